"""Filters in pieces: SCANDUMP and LOADCHUNK with filters of every kind, from empty ones to one of 1 GiB, and what
clients and databases see between the head and the last chunk. `scripts/suite chunks` sends wrong pieces of every sort,
and checks with a model that an upload either makes exactly the filter that was dumped, or leaves nothing.
"""

import re
from pathlib import Path

import pytest
import redis

from kit.clients import refusal
from kit.filters import (
    KINDS,
    adding,
    batches,
    differences,
    family,
    load_pieces,
    make_all,
    members,
    pieces,
    snapshot,
    snapshots,
)
from kit.payload import PREFIX as CHUNK_PREFIX
from kit.servers import saves_loads

EVERY_SERVER = pytest.mark.every_server("the server says what happened to keys, clients and databases")

MIB = 1 << 20

@EVERY_SERVER
def test_every_kind_in_pieces(server, new_server):
    """Copies filters in every state to another server. The key appears with the last piece, and its filter is the same
    as the original."""
    other = new_server()
    with server.client() as client, other.client() as there:
        keys = make_all(client)
        before = snapshots(client, keys)
        for key in keys:
            prefix = family(client, key)
            *most, last = pieces(client, key, prefix)
            assert most, key  # even an empty filter has a chunk
            load_pieces(there, key, prefix, most)
            assert not there.exists(key), key
            load_pieces(there, key, prefix, [last])
        assert differences(before, snapshots(there, keys)) == []


def test_a_default_filter_grows_while_it_is_dumped(server):
    """The copy has all items that were there when the dump began."""
    with server.client() as client:
        client.execute_command("BF.RESERVE", "source", 0.01, 100)
        items = b"".join(b"%08d" % number for number in range(500_000))
        client.execute_command("BF.BULKADD", "source", "FIXED", 8, items)
        iterator, piece = client.execute_command("BF.SCANDUMP", "source", 0)
        loaded = 0
        while iterator:
            load_pieces(client, "target", "BF", [(iterator, piece)])
            loaded += 1
            more = b"".join(b"%08d" % (loaded * 1_000_000 + number) for number in range(200_000))
            client.execute_command("BF.BULKADD", "source", "FIXED", 8, more)
            iterator, piece = client.execute_command("BF.SCANDUMP", "source", iterator)
        assert loaded >= 4
        assert client.execute_command("BF.INFO", "target", "FILTERS") == [2]
        assert client.execute_command("BF.BULKTEST", "target", "FIXED", 8, items, "COUNT") == 500_000


@pytest.mark.large
@pytest.mark.parametrize("prefix, size", [("BF", [0.01, 870_000_000]), ("CF", [1 << 30])], ids=["BF", "CF"])
def test_a_gigabyte_in_pieces(new_server, prefix, size):
    """Copies a filter of 1 GiB to another key. The server needs memory only for the two filters, and touches little of
    it."""
    server = new_server()
    with server.client() as client:
        client.execute_command(f"{prefix}.RESERVE", "source", *size)
        for batch in batches(members(5000), 1000):
            client.execute_command(*adding(prefix, "source", batch))
        before, used = most_resident(server), client.info("memory")["used_memory"]
        iterator, total = 0, 0
        while True:
            iterator, piece = client.execute_command(f"{prefix}.SCANDUMP", "source", iterator)
            if not iterator:
                break
            assert len(piece) <= MIB + CHUNK_PREFIX
            total += len(piece)
            load_pieces(client, "target", prefix, [(iterator, piece)])
        assert total >= 1 << 30
        source, target = client.execute_command("DEBUG", "DIGEST-VALUE", "source", "target")
        assert source == target
        assert client.execute_command(f"{prefix}.MEXISTS", "target", *members(5000)) == [1] * 5000
        assert client.info("memory")["used_memory"] - used < 1.26 * total  # the allocator rounds up
        assert most_resident(server) - before < 200 * MIB


def most_resident(server) -> int:
    """The largest number of bytes that the server's process has had in memory so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) << 10


class Transfer:
    """A filter of several chunks under the key `source`, and the load of its pieces under the key `target`."""

    def __init__(self, client, prefix: str):
        self.client, self.prefix = client, prefix
        names = [kind for kind in KINDS if kind.family == prefix and kind.name.endswith("several-chunks")]
        (made,) = make_all(client, names)
        client.rename(made, "source")
        self.pieces = pieces(client, "source", prefix)
        self.snapshot = snapshot(client, "source")
        assert len(self.pieces) >= 4

    def load(self, *numbers: int) -> None:
        load_pieces(self.client, "target", self.prefix, [self.pieces[number] for number in numbers])

    def load_rest(self, first: int) -> None:
        """Loads piece number `first` and all later pieces, checks the filter that they make, and deletes it."""
        self.load(*range(first, len(self.pieces)))
        assert differences({"source": self.snapshot}, {"source": snapshot(self.client, "target")}) == []
        self.client.delete("target")

    def refused(self, iterator, piece: bytes, prefix: str | None = None) -> str:
        return refusal(self.client, f"{prefix or self.prefix}.LOADCHUNK", "target", iterator, piece)


@pytest.fixture(params=["BF", "CF"])
def transfer(request, server):
    with server.client() as client:
        yield Transfer(client, request.param)


def test_nothing_is_seen_before_the_last_piece(transfer):
    client, prefix = transfer.client, transfer.prefix
    no_key = [
        (["EXISTS", "target"], 0),
        (["TYPE", "target"], b"none"),
        (["KEYS", "*"], [b"source"]),
        (["SCAN", "0"], (0, [b"source"])),
        (["DBSIZE"], 1),
        (["RANDOMKEY"], b"source"),
        (["DUMP", "target"], None),
        (["MEMORY", "USAGE", "target"], None),
        (["OBJECT", "ENCODING", "target"], None),
        (["EXPIRE", "target", 100], 0),
        ([f"{prefix}.EXISTS", "target", "member:0"], 0),
        ([f"{prefix}.MEXISTS", "target", "member:0", "a"], [0, 0]),
    ]
    no_filter = [["INFO"], ["SCANDUMP", 0], ["SCANDUMP", 1], ["DEBUG"]]
    if prefix == "BF":
        no_key += [(["BF.CARD", "target"], 0)]
        no_key += [(["BF.TEST", "target", "member:0"], 0), (["BF.AGE", "target", "member:0"], -1)]
        no_filter += [["CLEAR"]]
    else:
        no_key += [(["CF.COUNT", "target", "member:0"], 0)]
        no_filter += [["DEL", "member:0"], ["COMPACT"]]
    for number in range(len(transfer.pieces) - 1):
        transfer.load(number)
        for command, reply in no_key:
            assert client.execute_command(*command) == reply, command
        for verb, *arguments in no_filter:
            text = refusal(client, f"{prefix}.{verb}", "target", *arguments)
            assert text.lower().endswith("not found"), verb
        assert "no such key" in refusal(client, "RENAME", "target", "other")
        assert client.execute_command("COPY", "target", "other") == 0
        assert refusal(client, f"{prefix}.INSERT", "target", "NOCREATE", "ITEMS", "a") == "not found"
    transfer.load_rest(len(transfer.pieces) - 1)


@pytest.mark.parametrize("creation", ["SET target x", "BF.ADD target x", "CF.ADD target x", "RESTORE", "RENAME"])
@EVERY_SERVER
def test_another_client_creates_the_key(transfer, server, creation):
    """The other client's key stays as it is, and all pieces of the load are refused."""
    client, prefix = transfer.client, transfer.prefix
    transfer.load(0, 1)
    with server.client() as other:
        if creation == "RESTORE":
            other.restore("target", 0, other.dump("source"))
        elif creation == "RENAME":
            other.copy("source", "copied")
            other.rename("copied", "target")
        else:
            other.execute_command(*creation.split())
        before = other.dump("target")
        for iterator, piece in [*transfer.pieces[2:], *transfer.pieces]:
            text = transfer.refused(iterator, piece)
            if creation.startswith("SET") and not (prefix == "CF" and iterator == 1):
                assert text.startswith("WRONGTYPE")
        assert other.dump("target") == before
        other.delete("target")
    transfer.load_rest(0)


@pytest.mark.parametrize("command", ["DEL target", "UNLINK target", "SAVE", "SCRIPT FLUSH"])
@EVERY_SERVER
def test_commands_in_the_middle(transfer, command):
    """The load continues: there is no key yet that could be deleted, and the other commands don't affect loads."""
    transfer.load(0, 1)
    transfer.client.execute_command(*command.split())
    assert not transfer.client.exists("target")
    transfer.load_rest(2)


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB"])
@EVERY_SERVER
def test_commands_that_empty_the_database(transfer, command):
    """A load in progress is deleted with the keys, and can be started again."""
    transfer.load(0, 1)
    transfer.client.execute_command(*command.split())
    assert transfer.refused(*transfer.pieces[2]).endswith("not found")
    transfer.load_rest(0)


@EVERY_SERVER
def test_a_reload(transfer, server):
    """If the server's RDB files can contain loads, the load is saved and continues. Otherwise, it must start again."""
    transfer.load(0, 1)
    transfer.client.execute_command("DEBUG", "RELOAD")
    if not saves_loads(server.spec):
        assert transfer.refused(*transfer.pieces[2]).endswith("not found")
        transfer.load(0, 1)
    transfer.load_rest(2)


@EVERY_SERVER
def test_a_client_that_is_killed(transfer, server):
    """Another client can continue the load, or start it again."""
    for first in (2, 0):
        with server.client() as doomed:
            load_pieces(doomed, "target", transfer.prefix, transfer.pieces[:2])
            transfer.client.client_kill_filter(_id=doomed.client_id())
            assert not transfer.client.exists("target")
        transfer.load_rest(first)


@EVERY_SERVER
def test_databases_have_loads_of_their_own(transfer, server):
    with server.client(db=1) as other:
        transfer.load(0, 1)
        command = f"{transfer.prefix}.LOADCHUNK"
        assert refusal(other, command, "target", *transfer.pieces[2]) == "not found"
        load_pieces(other, "target", transfer.prefix, transfer.pieces)
        assert not transfer.client.exists("target")
        assert differences({"": transfer.snapshot}, {"": snapshot(other, "target")}) == []
    transfer.load_rest(2)


@EVERY_SERVER
def test_a_load_in_transactions(transfer, server):
    client, command = transfer.client, f"{transfer.prefix}.LOADCHUNK"

    def execute(parts) -> list:
        with client.pipeline(transaction=True) as pipeline:
            for part in parts:
                pipeline.execute_command(command, "target", *part)
                pipeline.exists("target")
            return pipeline.execute(raise_on_error=False)

    count = len(transfer.pieces)
    assert execute(transfer.pieces) == [b"OK", 0] * (count - 1) + [b"OK", 1]
    assert differences({"": transfer.snapshot}, {"": snapshot(client, "target")}) == []
    client.delete("target")
    # If a piece is missing, later pieces are refused, and the missing piece can still be sent.
    replies = execute([transfer.pieces[0], transfer.pieces[1], *transfer.pieces[3:]])
    assert replies[:4] == [b"OK", 0] * 2 and not any(replies[5::2])
    assert all("is not the next one" in str(reply) for reply in replies[4::2])
    transfer.load_rest(2)


@EVERY_SERVER
def test_a_load_in_a_script(transfer):
    script = """
        for piece = 1, #ARGV, 2 do redis.call(KEYS[2], KEYS[1], ARGV[piece], ARGV[piece + 1]) end
        return redis.call('EXISTS', KEYS[1])
    """
    words = [word for part in transfer.pieces for word in part]
    command = f"{transfer.prefix}.LOADCHUNK"
    assert transfer.client.eval(script, 2, "target", command, *words[:-2]) == 0
    assert transfer.client.eval(script, 2, "target", command, *words) == 1
    assert differences({"": transfer.snapshot}, {"": snapshot(transfer.client, "target")}) == []


@EVERY_SERVER
def test_a_transaction_that_watches_is_aborted_by_the_last_piece(transfer, server):
    with server.client() as other, other.pipeline(transaction=True) as pipeline:
        for number in range(len(transfer.pieces)):
            pipeline.watch("target")
            transfer.load(number)
            pipeline.multi()
            pipeline.ping()
            if number < len(transfer.pieces) - 1:
                assert pipeline.execute() == [True]
            else:
                with pytest.raises(redis.WatchError):
                    pipeline.execute()
