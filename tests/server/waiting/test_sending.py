"""Large filters that replicas and the append-only file can't make by themselves: imports, and loads whose first pieces
they don't have. They get such a filter as a load, a few pieces at a time, before it is a key anywhere. So whatever
happens in the middle, each server has the whole filter or none.
"""

import contextlib
import struct
import threading

import pytest
import redis

from kit.clients import refusal
from kit.filters import differences, load_pieces, pieces, snapshot
from kit.foreign import ValkeyBloomChain, redisbloom_cuckoo_head, redisbloom_head
from kit.metrics import figures
from kit.servers import APPEND_ONLY, rewrite, saves_loads, wait_for

EVERY_SERVER = pytest.mark.every_server("the server replicates, writes files, forks, and says that clients have gone")
MIB = 1 << 20
SIZE = 24 * MIB
IMPORT = ["BF.IMPORT", "k", "GOZERO", "bitmap", "BITS", SIZE * 8]


def bitmap(client):
    """Makes a bitmap with bits in each piece. Replicas make it from the same short commands."""
    with client.pipeline(transaction=False) as pipe:
        for number in range(SIZE // MIB * 8):
            pipe.setbit("bitmap", number * MIB + number * 7919 % MIB, 1)
        pipe.setbit("bitmap", SIZE * 8 - 1, 1)
        pipe.execute()


def ways(client) -> dict:
    """Ways to create a filter of several MiB, by name. Each is a list of commands, the last of which creates the
    filter."""
    size = 4 * MIB
    data = bytes(range(256)) * (size // 256)
    chain = ValkeyBloomChain(int(size * 0.8), 0.01, 0.5, 0, bytes(32))
    client.set("bitmap", data)
    client.hset("config", mapping={"size": size * 8, "hashIterations": 7})
    half = size // 2
    return {
        "go-zero, key": [["BF.IMPORT", "k", "GOZERO", "bitmap", "BITS", size * 8]],
        "go-zero, longer": [["BF.IMPORT", "k", "GOZERO", "bitmap", "BITS", size * 8 * 3]],
        "go-zero, data": [["BF.IMPORT", "k", "GOZERO", "none", "BITS", size * 8, "DATA", data]],
        "redisson": [["BF.IMPORT", "k", "REDISSON", "bitmap", "config"]],
        "guava": [["BF.IMPORT", "k", "GUAVA", struct.pack(">BBI", 1, 7, size // 8) + data]],
        "valkey-bloom": [["BF.LOAD", "k", chain.payload()]],
        "redisbloom": [
            ["BF.LOADCHUNK", "k", 1, redisbloom_head(size)],
            ["BF.LOADCHUNK", "k", 1 + half, data[:half]],
            ["BF.LOADCHUNK", "k", 1 + size, data[half:]],
        ],
        "redisbloom, cuckoo": [
            ["CF.LOADCHUNK", "k", 1, redisbloom_cuckoo_head(size)],
            ["CF.LOADCHUNK", "k", 1 + half, data[:half]],
            ["CF.LOADCHUNK", "k", 1 + size, data[half:]],
        ],
    }  # fmt: skip


def longest_argument(server) -> int:
    """The length in bytes of the longest argument in the server's append-only file."""
    longest = 0
    for path in (server.directory / "appendonlydir").glob("*.incr.aof"):
        text, at = path.read_bytes(), 0
        while at < len(text):
            end = text.index(b"\r\n", at)
            kind, number = text[at : at + 1], int(text[at + 1 : end])
            at = end + 2
            if kind == b"$":
                longest, at = max(longest, number), at + number + 2
    return longest


def skip_if_sent_whole(server):
    if not saves_loads(server.spec):
        pytest.skip("Redis 7.0 can't save what has been sent, so it sends filters whole")


@EVERY_SERVER
def test_it_is_the_filter_that_a_transaction_makes(new_server):
    """The filters on the server, on replicas and in append-only files equal those that transactions make, and have the
    same types."""
    server = new_server(config=APPEND_ONLY)
    replica = server.replica(config=APPEND_ONLY)
    last = replica.replica()
    made = {}
    with server.client() as client:
        todo = ways(client)
        rewrite(server, client)
        for name, commands in todo.items():
            *before, (verb, _, *words) = commands
            for words_before in before:
                assert client.execute_command(*words_before) == b"OK", name
            assert client.execute_command(verb, "k", *words) == b"OK", name
            client.rename("k", name)
            made[name] = client.execute_command("DEBUG", "DIGEST-VALUE", name), client.type(name)
        wait_for(lambda: figures(client)["clients_waiting"] == 0, "nobody to wait")
        server.wait_for_replicas()
        replica.wait_for_replicas()
        found = {name: [snapshot(client, name)] for name in made}
        for there in (replica, last):
            with there.client() as other:
                assert figures(other)["loads"] == 0
                assert {name: (other.execute_command("DEBUG", "DIGEST-VALUE", name), other.type(name)) for name in made} == made
        for name, commands in todo.items():
            *before, (verb, _, *words) = commands
            for words_before in before:
                client.execute_command(words_before[0], "whole", *words_before[2:])
            pipe = client.pipeline(transaction=True)
            pipe.execute_command(verb, "whole", *words)
            assert pipe.execute() == [b"OK"], name
            found[name].append(snapshot(client, "whole"))
            client.delete("whole")
            if name == list(todo)[0]:
                assert longest_argument(server) > 2 * MIB, "whole in a transaction"
        for name, (sent, whole) in found.items():
            assert differences({"x": sent}, {"x": whole}) == [], name
    for there in (server, replica):
        there.kill()
    for there in (replica, server):  # the replica first: without a primary, it has only what is in its own file
        there.start()
        with there.client() as other:
            assert {name: (other.execute_command("DEBUG", "DIGEST-VALUE", name), other.type(name)) for name in made} == made


@EVERY_SERVER
def test_no_command_of_the_file_is_longer_than_a_piece(new_server):
    server = new_server(config=APPEND_ONLY)
    skip_if_sent_whole(server)
    with server.client() as client:
        commands = [words for name, words in ways(client).items()]
        client.delete("k")
        base = longest_argument(server)
        for *before, last in commands:
            for words in before:
                client.execute_command(*words)
            assert client.execute_command(*last) == b"OK"
            client.unlink("k")
        client.delete("bitmap")
    text = b"".join(path.read_bytes() for path in (server.directory / "appendonlydir").glob("*.incr.aof"))
    assert longest_argument(server) == base, "that of the SET of the bitmap"
    assert text.count(b"LOADCHUNK") + text.count(b"loadchunk") > 4 * len(commands)


class Middle:
    """An import of which a part has been sent to a replica. The server has paused writes, and `end` lets the import
    continue."""

    def __init__(self, new_server, **config):
        self.server = new_server(config={**APPEND_ONLY, **config})
        skip_if_sent_whole(self.server)
        self.replica = self.server.replica(config=APPEND_ONLY)
        self.client = self.server.client()
        bitmap(self.client)
        self.client.execute_command("BF.RESERVE", "small", 0.01, 100)
        self.client.execute_command(*["BF.IMPORT", "other", *IMPORT[2:]])
        self.expected = self.digest(self.server, "other")
        self.client.delete("other")
        self.server.wait_for_replicas()
        for _ in range(20):
            self.begin()
            if not self.replies:
                return
            self.end()
            self.client.delete("k")
        pytest.fail("the import was never seen in the middle")

    def begin(self):
        self.replies = []
        self.importer = self.server.client()
        self.id = self.importer.client_id()

        def run():
            try:
                self.replies.append(self.importer.execute_command(*IMPORT))
            except redis.RedisError as why:
                self.replies.append(str(why))

        self.thread = threading.Thread(target=run)
        self.thread.start()
        with self.replica.client() as other:
            wait_for(lambda: figures(other)["loads"] == 1 or self.replies, "the import to be sent")
        self.client.execute_command("CLIENT", "PAUSE", 100_000, "WRITE")

    def end(self):
        self.client.execute_command("CLIENT", "UNPAUSE")
        self.thread.join()
        return self.replies[0]

    @staticmethod
    def digest(server, key="k"):
        return server.command("DEBUG", "DIGEST-VALUE", key)

    def is_whole(self, *servers):
        self.server.wait_for_replicas()
        for server in (self.server, *servers):
            assert self.digest(server) == self.expected, server
            with server.client() as client:
                wait_for(lambda: figures(client)["loads"] == 0, f"{server} to have no load")

    def is_nowhere(self, *servers):
        self.server.wait_for_replicas()
        for server in (self.server, *servers):
            assert server.command("EXISTS", "k") == 0
            with server.client() as client:
                wait_for(lambda: figures(client)["loads"] == 0, f"{server} to have no load")


@EVERY_SERVER
def test_no_server_has_the_key_before_it_is_sent(new_server):
    middle = Middle(new_server)
    middle.server.wait_for_replicas()
    for server in (middle.server, middle.replica):
        assert server.command("EXISTS", "k") == 0
    assert middle.end() == b"OK"
    middle.is_whole(middle.replica)


@EVERY_SERVER
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_rewrite_in_the_middle(new_server, preamble):
    middle = Middle(new_server, **{"aof-use-rdb-preamble": preamble})
    rewrite(middle.server, middle.client)
    assert middle.end() == b"OK"
    middle.is_whole(middle.replica)
    # Checks what each server has in its own file. Each starts alone, because a replica of a running primary would load
    # the primary's data instead.
    for server in (middle.server, middle.replica):
        server.kill()
    for server in (middle.server, middle.replica):
        server.start()
        assert middle.digest(server) == middle.expected
        server.kill()


@EVERY_SERVER
@pytest.mark.parametrize("way", ["diskless", "disk"])
def test_a_full_sync_in_the_middle(new_server, way):
    middle = Middle(new_server, **{"repl-diskless-sync": "no" if way == "disk" else "yes"})
    late = middle.server.replica()
    assert loads_of(late) == 1
    assert middle.end() == b"OK"
    middle.is_whole(middle.replica, late)


def loads_of(server) -> int:
    with server.client() as client:
        return figures(client)["loads"]


@EVERY_SERVER
def test_kill_9_in_the_middle(new_server):
    """The file has a part of the load, which isn't a key. The import can be repeated."""
    middle = Middle(new_server)
    middle.server.kill()
    middle.thread.join()
    middle.server.start()
    with middle.server.client() as client:
        assert not client.exists("k")
        assert figures(client)["loads"] == 1
        middle.server.wait_until_online(middle.replica)
        assert client.execute_command(*IMPORT) == b"OK"
    middle.is_whole(middle.replica)


@EVERY_SERVER
def test_a_failover_in_the_middle(new_server):
    """The promoted replica has no key, and accepts the import. The old primary gives up its own import, and becomes a
    replica."""
    middle = Middle(new_server)
    middle.server.wait_for_replicas()
    middle.replica.command("REPLICAOF", "NO", "ONE")
    assert middle.replica.command("EXISTS", "k") == 0
    middle.client.execute_command("CLIENT", "UNPAUSE")
    middle.server.command("REPLICAOF", "127.0.0.1", middle.replica.port)
    middle.thread.join()
    middle.server.replicas.remove(middle.replica)
    middle.replica.replicas.append(middle.server)
    try:
        with middle.replica.client() as client:
            assert client.execute_command(*IMPORT) == b"OK"
        middle.replica.wait_until_online(middle.server)
        middle.replica.wait_for_replicas()
        assert middle.digest(middle.server) == middle.digest(middle.replica) == middle.expected
        assert loads_of(middle.server) == loads_of(middle.replica) == 0
    finally:
        middle.replica.replicas.remove(middle.server)
        middle.replica.destroy()


@EVERY_SERVER
def test_the_client_goes_in_the_middle(new_server):
    middle = Middle(new_server)
    middle.client.client_kill_filter(_id=middle.id)
    middle.end()
    wait_for(lambda: figures(middle.client)["clients_waiting"] == 0, "the import to end")
    middle.is_nowhere(middle.replica)
    wait_for(lambda: figures(middle.client)["cell_bytes"] < MIB, "its memory to be freed")
    assert middle.client.execute_command(*IMPORT) == b"OK"
    middle.is_whole(middle.replica)


# What happens to the key, and a part of the import's reply.
MEANWHILE = {
    "SET": (["SET", "k", "text"], "WRONGTYPE"),
    "COPY": (["COPY", "small", "k"], "item exists"),
    "FLUSHALL": (["FLUSHALL"], "OK"),
    "FLUSHDB": (["FLUSHDB", "ASYNC"], "OK"),
    "DEL": (["DEL", "k", "bitmap"], "OK"),
    "BF.ADD": (["BF.ADD", "k", "item"], "OK"),
    "BF.RESERVE": (["BF.RESERVE", "k", "0.01", "100"], "OK"),
    "BF.LOADCHUNK": (["BF.LOADCHUNK", "k", 0, ""], "OK"),
}


@EVERY_SERVER
@pytest.mark.parametrize("what", MEANWHILE)
def test_what_happens_to_the_key_in_the_middle(new_server, what):
    """The server's own commands don't wait for the import, but the module's do. In the end, replicas have the same
    data."""
    command, expected = MEANWHILE[what]
    middle = Middle(new_server)
    writer = threading.Thread(target=lambda: attempt(middle.server, command))
    writer.start()
    wait_for(lambda: middle.client.info("clients")["blocked_clients"] == 2, "the writer to wait")
    reply = middle.end()
    writer.join()
    assert expected in str(reply)
    middle.server.wait_for_replicas()
    if reply == b"OK" and what != "BF.ADD":
        assert middle.digest(middle.server) == middle.expected
    assert middle.digest(middle.server) == middle.digest(middle.replica)
    assert figures(middle.client)["clients_waiting"] == 0
    wait_for(lambda: loads_of(middle.replica) == 0, "the replica to have no load")


def attempt(server, command):
    with server.client() as client, contextlib.suppress(redis.ResponseError):
        client.execute_command(*command)


@EVERY_SERVER
def test_a_transaction_on_the_key_in_the_middle(new_server):
    """A transaction can't wait, so the rest of the filter is sent at once."""
    middle = Middle(new_server)
    outcome = []

    def transaction():
        pipe = middle.server.client().pipeline(transaction=True)
        pipe.execute_command("BF.ADD", "k", "item")
        pipe.execute_command("BF.EXISTS", "k", "item")
        outcome.append(pipe.execute())

    writer = threading.Thread(target=transaction)
    writer.start()
    assert middle.end() == b"OK"
    writer.join()
    assert outcome[0][1] == 1
    middle.server.wait_for_replicas()
    assert middle.digest(middle.server) == middle.digest(middle.replica)
    assert loads_of(middle.replica) == 0


@EVERY_SERVER
def test_loads_that_a_rewrite_has_missed_go_in_pieces_also(new_server):
    """The rewritten file has no pieces of a load that began before the rewrite. So the filter is written to the file in
    pieces when the load is complete."""
    server = new_server(config={**APPEND_ONLY, "aof-use-rdb-preamble": "no"})
    replica = server.replica()
    with server.client() as client:
        client.execute_command("BF.RESERVE", "source", 0.01, 6_000_000, "NONSCALING")
        client.execute_command("BF.BULKADD", "source", "FIXED", 8, b"".join(b"%08d" % n for n in range(200_000)))
        found = pieces(client, "source", "BF")
        expected = Middle.digest(server, "source")
        load_pieces(client, "k", "BF", found[:3])
        rewrite(server, client)
        load_pieces(client, "k", "BF", found[3:])
        assert Middle.digest(server) == expected
        server.wait_for_replicas()
        assert Middle.digest(replica) == expected and loads_of(replica) == 0
        assert refusal(client, "BF.LOADCHUNK", "k", *found[1]).startswith("received bad data")
    server.kill()
    server.start()
    assert Middle.digest(server) == expected
