"""Commands that run in the background, off the main thread, if their filters are large: BF.MERGE, BF.INTERSECT,
BF.EQUAL, BF.LOAD, BF.IMPORT and others. While such a command runs, other clients are served, and writes to its keys
wait. The result is the same as in MULTI.

To make something happen during a command, most tests keep the only worker busy with another job, so they don't depend
on timing.
"""

import contextlib
import struct
import threading
import time
from pathlib import Path

import pytest
import redis

from kit.appendonly import Effects
from kit.background import Busy, Replies, calls, imports, redisblooms, valkey_payload
from kit.clients import refusal
from kit.filters import differences, pairs, snapshot
from kit.metrics import figures
from kit.servers import APPEND_ONLY, wait_for

EVERY_SERVER = pytest.mark.every_server("the server blocks clients, calls timers, replicates, and changes keys by itself")

MANY = 2_000_000  # capacity at an error rate of 1%: 2.3 MiB of cells, enough for commands to run in the background
ITEMS = 2000


@pytest.fixture
def one_worker(new_server):
    def make(**options):
        server = new_server(module_args=["THREADS", "1", "OFFLOAD_MAX_BYTES", "1gb"], **options)
        with server.client() as client:
            client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC")
            client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(20_000)))
            fill(client)
        return server

    return make


def fill(client):
    """Makes two filters that can be merged, with ITEMS items each, half of which they share."""
    client.execute_command("BF.RESERVE", "a", 0.01, MANY, "NONSCALING")
    client.execute_command("BF.RESERVE", "b", 0.01, MANY, "LIKE", "a")
    client.execute_command("BF.MADD", "a", *range(ITEMS))
    client.execute_command("BF.MADD", "b", *range(ITEMS // 2, ITEMS + ITEMS // 2))


def nothing_waits(client) -> bool:
    now = figures(client)
    return not any(now[name] for name in ("clients_waiting", "clients_in_pieces", "waiting_bytes", "pool_jobs_queued"))


def count(client, key) -> int:
    return sum(client.execute_command("BF.MEXISTS", key, *range(2 * ITEMS)))


# ---- the result ------------------------------------------------------------------------------------------------------


def test_short_tables_are_compared_apart(server):
    """BF.EQUAL looks up each cell in the other table. With tables of 1 MiB, this used to block the server for
    42 ms."""
    with server.client() as client:
        client.execute_command("BF.RESERVE", "a", 0.01, 100_000, "LAYOUT", "QUOTIENT", "NONSCALING")
        client.execute_command("BF.RESERVE", "b", 0.01, 100_000, "LIKE", "a")
        for key in "ab":
            client.execute_command("BF.BULKADD", key, "FIXED", 4, b"".join(b"%04x" % n for n in range(60_000)))
        jobs = figures(client)["pool_jobs"]
        assert client.execute_command("BF.EQUAL", "a", "b") == 1
        client.execute_command("BF.ADD", "b", "another")
        assert client.execute_command("BF.EQUAL", "a", "b") == 0
        wait_for(lambda: figures(client)["pool_jobs"] == jobs + 2, "both to have been done apart")


def test_a_test_with_thousands_of_probes_is_left_to_the_workers(server):
    """With 10,000 probes per item, testing 16,383 items in a filter of 1 KiB used to block the server for 260 ms."""
    with server.client() as client:
        bits = b"\xff" * 1024
        client.execute_command("BF.IMPORT", "many", "BLOOMV3", struct.pack(">QQQ", 8192, 10_000, 8192) + bits)
        client.execute_command("BF.IMPORT", "few", "BLOOMV3", struct.pack(">QQQ", 8192, 7, 8192) + bits)
        for key, jobs in (("few", 0), ("many", 1)):
            before = figures(client)["pool_jobs"]
            assert client.execute_command("BF.BULKTEST", key, "FIXED", 8, bytes(8 * 16_383), "COUNT") == 16_383
            wait_for(lambda: figures(client)["pool_jobs"] == before + jobs, "the job to end")  # noqa: B023


@EVERY_SERVER
def test_imports_are_those_of_a_transaction_and_reach_replicas_and_the_file(new_server):
    server = new_server(config=APPEND_ONLY)
    replica = server.replica()
    size = 3 << 20
    with server.client() as client, replica.client() as other:
        client.set("bitmap", bytes(range(256)) * (size // 256))
        client.hset("config", mapping={"size": size * 8, "hashIterations": 7})
        made = {}
        for name, words in imports(size).items():
            jobs = figures(client)["pool_jobs"]
            assert client.execute_command(*words) == b"OK", name
            assert figures(client)["pool_jobs"] > jobs, name
            pipe = client.pipeline(transaction=True)
            pipe.execute_command(words[0], "whole", *words[2:])
            assert pipe.execute() == [b"OK"]
            assert differences({"x": snapshot(client, "new")}, {"x": snapshot(client, "whole")}) == [], name
            server.wait_for_replicas()
            assert differences({"x": snapshot(client, "new")}, {"x": snapshot(other, "new")}) == [], name
            client.rename("new", name)
            client.delete("whole")
            made[name] = snapshot(client, name)
        assert refusal(client, "BF.IMPORT", "bad", "GUAVA", bytes(size)).startswith("received bad data")
        assert refusal(client, "BF.LOAD", "bad", bytes(size)).startswith("received bad data")
        assert refusal(client, *imports(size)["load"][:1], "load", valkey_payload(size)) == "item exists"
    server.kill()
    server.start()
    with server.client() as client:
        assert differences(made, {name: snapshot(client, name) for name in made}) == []


# ---- meanwhile -------------------------------------------------------------------------------------------------------


@EVERY_SERVER
@pytest.mark.parametrize("gone", ["load", "client"])
def test_a_load_or_its_client_is_gone_before_its_piece_is_placed(one_worker, gone):
    server, size = one_worker(), 4 << 20
    part = bytes(range(256)) * (size // 512)
    halves = [["CF.LOADCHUNK", "k", 1 + end, part] for end in (size // 2, size)]
    with server.client() as client, Busy(server) as busy:
        client.execute_command("CF.LOADCHUNK", "k", 1, redisblooms(size)["CF"])
        first = busy.send(*halves[0])
        assert figures(client)["load_held_bytes"] > size // 2, "it is counted from its beginning"
        second = busy.send(*halves[1])
        if gone == "client":
            busy.leave(first)
        else:
            client.flushdb()
        busy.end()
        assert second() == (b"OK" if gone == "client" else "not found")
        wait_for(lambda: nothing_waits(client), "nobody to wait")
        assert not client.exists("k")
        if gone == "client":
            assert client.execute_command(*halves[0]) == b"OK"
            assert client.exists("k") and client.execute_command("CF.INFO", "k")
        else:
            assert first() == "not found"
        assert figures(client)["load_held_bytes"] == 0


@EVERY_SERVER
def test_others_are_served_and_writes_to_the_keys_wait(one_worker):
    server = one_worker()
    replica = server.replica()
    with server.client() as client, Busy(server) as busy:
        merge = busy.send("BF.MERGE", "a", "b")
        assert client.ping() and client.execute_command("BF.ADD", "other", "x") == 1
        assert client.execute_command("BF.EXISTS", "a", ITEMS + 1) == 0, "nothing of the union is seen"
        assert client.execute_command("BF.CARD", "b") > 0
        writes = [
            busy.send("BF.ADD", "a", "later"),
            busy.send("BF.MADD", "b", "later", "later"),
            busy.send("BF.CLEAR", "b"),
            busy.send("BF.RESERVE", "a", 0.01, 100),
            busy.send("BF.MERGE", "c", "a"),
            busy.send("BF.ADD", "c", "last"),
        ]
        assert client.info("clients")["blocked_clients"] == len(writes) + 2
        busy.end()
        replies = [merge(), *(write() for write in writes)]
        assert replies == [b"OK", 1, [1, 0], b"OK", "item exists", b"OK", 1]
        assert count(client, "a") == ITEMS + ITEMS // 2, "the union was made before b was cleared"
        assert client.execute_command("BF.MEXISTS", "c", "later", "last") == [1, 1]
        assert client.execute_command("BF.EXISTS", "a", "last") == 0
        wait_for(lambda: nothing_waits(client), "nobody to wait")
        server.wait_for_replicas()
        with replica.client() as other:
            for key in "abc":
                assert differences({"x": snapshot(client, key)}, {"x": snapshot(other, key)}) == [], key


def chain_and_source(client):
    """Makes a chain to which adding is slow, and a filter that a worker will merge into it."""
    client.execute_command("BF.RESERVE", "k", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC", "SEED", 1)
    client.execute_command("BF.BULKADD", "k", "FIXED", 8, b"".join(b"%08d" % n for n in range(20_000)))
    client.execute_command("BF.RESERVE", "l", 0.01, MANY, "EXPANSION", 1, "LAYOUT", "CLASSIC", "SEED", 1)


@EVERY_SERVER
def test_a_command_in_pieces_waits_for_work_that_begins_in_the_middle(one_worker):
    server = one_worker()
    replica = server.replica()
    with server.client() as client, Busy(server) as busy:
        chain_and_source(client)
        client.execute_command("BF.ADD", "l", "of the source")
        items = [f"item {number}" for number in range(60_000)]
        pieces = busy.send("BF.MADD", "k", *items)
        merge = busy.send("BF.MERGE", "k", "l")
        late = busy.send("BF.MERGE", "k", "l")
        added, called = client.execute_command("BF.CARD", "k"), calls(client, "BF.MADD")
        assert 0 < added < 20_000 + len(items)
        for _ in range(100):
            client.ping()
        assert not merge.has_come() and not pieces.has_come()
        assert client.execute_command("BF.CARD", "k") == added and calls(client, "BF.MADD") == called
        busy.end()
        assert [merge(), late()] == [b"OK", b"OK"]
        replies = pieces()
        assert len(replies) == len(items) and set(replies) == {0, 1}
        assert all(client.execute_command("BF.MEXISTS", "k", *items, "of the source"))
        wait_for(lambda: nothing_waits(client), "nobody to wait")
        server.wait_for_replicas()
        with replica.client() as other:
            assert differences({"x": snapshot(client, "k")}, {"x": snapshot(other, "k")}) == []


@EVERY_SERVER
def test_a_command_that_has_waited_goes_on_in_pieces(one_worker):
    server = one_worker(config=APPEND_ONLY)
    with server.client() as client, Busy(server) as busy:
        chain_and_source(client)
        client.execute_command("BF.REBUILD", "b", "BEGIN")
        items = [f"item {number}" for number in range(60_000)]
        blob = b"".join(b"%08d" % number for number in range(60_000))
        merges = [busy.send("BF.MERGE", "k", "l"), busy.send("BF.MERGE", "n", "a", "b")]
        commands = [
            ["BF.MADD", "k", *items], ["BF.INSERT", "k", "CAPACITY", 10, "ITEMS", *items], ["BF.BULKADD", "k", "FIXED", 8, blob],
            ["BF.MADD", "b", "one", "one"], ["BF.INSERT", "k", "CAPACITY", 0, "ITEMS", "x"], ["BF.REBUILD", "b", "STATUS"],
            ["BF.INSERT", "n", "NOCREATE", "ITEMS", *items],
        ]  # fmt: skip
        client.config_resetstat()
        writers = [busy.send(*command) for command in commands]
        gone = busy.send("BF.MADD", "k", "gone")
        client.client_kill(gone.address)
        wait_for(lambda: busy.clients() == len(commands) + 3, "the server to forget the client")
        busy.end()
        assert [merge() for merge in merges] == [b"OK", b"OK"]
        added, inserted, bulk, one, wrong, status, union = [writer() for writer in writers]
        assert len(added) == len(inserted) == len(union) == len(items) and sum(added) + bulk > len(items)
        assert all(client.execute_command("BF.MEXISTS", "k", *items)) and all(client.execute_command("BF.MEXISTS", "n", *items))
        assert one == [1, 0] and "capacity" in wrong and isinstance(status, list)
        assert client.execute_command("BF.EXISTS", "k", "gone") == 0
        assert calls(client, "BF.MADD") > 10
        wait_for(lambda: nothing_waits(client), "nobody to wait")
        before = {key: snapshot(client, key) for key in "kn"}
    server.kill()
    server.start()
    with server.client() as client:
        assert differences(before, {key: snapshot(client, key) for key in "kn"}) == []


@EVERY_SERVER
def test_a_pipeline_keeps_its_order(one_worker):
    server = one_worker()
    with server.client() as client, Busy(server) as busy:
        commands = [["BF.MERGE", "a", "b"], ["BF.ADD", "a", "x"], ["PING"], ["BF.MERGE", "n", "a", "b"], ["BF.EXISTS", "n", "x"]]
        replies = busy.send_all(commands)
        busy.end()
        assert [replies() for _ in commands] == [b"OK", 1, b"PONG", b"OK", 1]
        wait_for(lambda: nothing_waits(client), "nobody to wait")


@pytest.mark.parametrize("how", ["transaction", "script"])
@EVERY_SERVER
def test_a_writer_that_may_not_wait_has_the_work_finished_first(one_worker, how):
    server = one_worker(config=APPEND_ONLY)
    replica = server.replica()
    effects = Effects(server)
    effects.new()
    with server.client() as client, Busy(server) as busy:
        merge = busy.send("BF.MERGE", "a", "b")
        if how == "script":
            client.eval("return redis.call('BF.ADD', KEYS[1], 'x')", 1, "a")
        else:
            pipe = client.pipeline(transaction=True)
            pipe.execute_command("BF.ADD", "a", "x")
            pipe.execute_command("BF.CARD", "a")
            pipe.execute()
        assert merge() == b"OK"
        assert count(client, "a") == ITEMS + ITEMS // 2
        written = [[word.upper() if word == words[0] else word for word in words] for words in effects.new()]
        written = [words for words in written if words[0] not in (b"MULTI", b"EXEC")]
        assert written == [[b"BF.MERGE", b"a", b"b"], [b"BF.ADD", b"a", b"x"]]
        busy.end()
        server.wait_for_replicas()
        with replica.client() as other:
            assert differences({"x": snapshot(client, "a")}, {"x": snapshot(other, "a")}) == []


def swap_and_write(client, _):
    """Swaps two databases, changes the filter in its new database with a write that can't wait, and swaps them back."""
    client.swapdb(0, 1)
    writer = redis.Redis(port=client.connection_pool.connection_kwargs["port"], db=1)
    pipe = writer.pipeline(transaction=True)
    pipe.execute_command("BF.ADD", "a", "elsewhere")
    pipe.execute()
    client.swapdb(0, 1)


CHANGED = "was deleted, replaced or renamed while the command was running"
# Changes to the keys during a merge, and the merge's reply or part of its error message.
CHANGES = {
    "DEL of the source": (lambda client, _: client.delete("b"), "not found"),
    "DEL of the destination": (lambda client, _: client.delete("a"), CHANGED),
    "RENAME": (lambda client, _: client.rename("a", "z"), CHANGED),
    "RENAME over": (lambda client, _: client.rename("slow", "a"), "a different seed"),
    "SET": (lambda client, _: client.set("a", "text"), "Operation against a key"),
    "RESTORE": (lambda client, _: client.restore("a", 0, client.dump("b"), replace=True), CHANGED),
    "COPY over the source": (lambda client, _: client.copy("a", "b", replace=True), CHANGED),
    "FLUSHALL": (lambda client, _: client.flushall(), "not found"),
    "SWAPDB": (lambda client, _: client.swapdb(0, 1), "not found"),
    "MOVE": (lambda client, _: client.move("b", 1), "not found"),
    "expiry": (lambda client, _: (client.pexpire("a", 1), time.sleep(0.05)), CHANGED),
    "RENAME and back": (lambda client, _: (client.rename("a", "z"), client.rename("z", "a")), b"OK"),
    "EXPIRE": (lambda client, _: client.expire("a", 1000), b"OK"),
    "SWAPDB, a write there, and back": (swap_and_write, "not found"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_server_does_to_keys_meanwhile(one_worker, change):
    server = one_worker()
    replica = server.replica()
    with server.client() as client, Busy(server) as busy:
        merge = busy.send("BF.MERGE", "a", "b")
        what, expected = CHANGES[change]
        what(client, server)
        client.config_resetstat()
        busy.end()
        reply = merge()
        assert reply == expected if isinstance(expected, bytes) else expected in str(reply), reply
        wait_for(lambda: nothing_waits(client), "nobody to wait")
        if expected == b"OK":
            assert count(client, "a") == ITEMS + ITEMS // 2
            assert client.ttl("a") == -1 or change == "EXPIRE"
        if "a write" in change:
            assert client.execute_command("BF.EXISTS", "a", "elsewhere") == 1
        server.wait_for_replicas()
        with replica.client() as other:
            for key in {key.decode() for key in client.keys()} - {"slow"}:
                if client.type(key) != b"string":
                    assert differences({"x": snapshot(client, key)}, {"x": snapshot(other, key)}) == [], key
            assert other.dbsize() == client.dbsize()


@EVERY_SERVER
def test_the_source_of_an_import_that_goes_away(one_worker):
    server = one_worker()
    with server.client() as client:
        client.set("bitmap", bytes(8 << 20))
        reader = Replies(server, [["BF.IMPORT", "new", "GOZERO", "bitmap", "BITS", 64 << 20]])
        client.delete("bitmap")
        # The reply depends on whether the string had already been read when it was deleted.
        assert reader() in (b"OK", f"a key of the command {CHANGED}, and nothing was done. Send the command again")


ONES, SOME = b"\xff", b"\x11"  # a bitmap of SOME lacks bits that one of ONES has, but not the other way round


@EVERY_SERVER
@pytest.mark.parametrize(
    "how, old, new",
    [
        *((how, *bits) for how in ["RENAME", "SET", "RESTORE", "SWAPDB"] for bits in [(ONES, SOME), (SOME, ONES)]),
        # Not (SOME, ONES): if the new string has the old one's address, it looks like the old one with more bits set.
        ("DEL and SET", ONES, SOME),
    ],
)
def test_the_source_of_an_import_that_is_replaced(new_server, how, old, new):
    """The import uses either the old string or the new one, never half of each."""
    size = 64 << 20  # bytes; reading and checking them takes 20 ms
    server = new_server(module_args=["THREADS", "1"])
    with server.client() as client, server.client(db=1) as elsewhere:
        client.set("live", old * size)
        (elsewhere if how == "SWAPDB" else client).set("live" if how == "SWAPDB" else "next", new * size)
        payload = client.dump("next") if how == "RESTORE" else None
        reader = Replies(server, [["BF.IMPORT", "new", "GOZERO", "live", "BITS", size * 8]])
        wait_for(lambda: figures(client)["clients_waiting"] == 1, "the import to begin")
        match how:
            case "RENAME":
                client.rename("next", "live")
            case "SET":
                client.set("live", new * size)
            case "RESTORE":
                client.restore("live", 0, payload, replace=True)
            case "SWAPDB":
                client.swapdb(0, 1)
            case "DEL and SET":
                client.delete("live")
                client.set("live", new * size)
        reply = reader()
        if reply == b"OK":
            full = client if client.exists("new") else elsewhere
            cells = pairs(full.execute_command("BF.STATS", "new"))
            assert float(cells[b"Fill"]) in (1.0, 0.25)
        else:
            assert reply.startswith("a key of the command was deleted"), reply


@EVERY_SERVER
@pytest.mark.parametrize("command", ["BF.IMPORT", "BF.IMPORT evicting", "BF.INTERSECT", "BF.MERGE"])
def test_commands_that_wait_are_promised_what_there_is_once(one_worker, command):
    server = one_worker()
    command, _, evicting = command.partition(" ")
    with server.client() as client, contextlib.ExitStack() as clients:
        for number in range(40):
            # Each command has its own sources, because commands that share sources run one after the other.
            client.execute_command("BF.RESERVE", f"a:{number}", 0.01, MANY, "NONSCALING", "SEED", 1)
            client.execute_command("BF.RESERVE", f"b:{number}", 0.01, MANY, "NONSCALING", "SEED", 1)
        each = 2_400_000 if command != "BF.IMPORT" else 20_000_000
        client.config_set("maxmemory-policy", "allkeys-lru" if evicting else "noeviction")
        with Busy(server) as busy:
            most = client.info("memory")["used_memory"] + 10 * each
            client.config_set("maxmemory", most)
            waiting = []
            for number in range(40):
                if command == "BF.IMPORT":
                    words = [command, f"new:{number}", "GOZERO", "none", "BITS", each * 8, "DATA", "x"]
                else:
                    words = [command, f"new:{number}", f"a:{number}", f"b:{number}"]
                waiting.append(Replies(server, [words]))
                clients.callback(waiting[-1].client.close)
            replied = lambda: sum(reply.has_come() for reply in waiting)  # noqa: E731
            wait_for(lambda: figures(client)["clients_waiting"] + replied() == 41, "all of them to wait or to be refused")
            assert 0 < figures(client)["promised_bytes"] <= most
            busy.end()
            replies = [reply() for reply in waiting]
        assert b"OK" in replies
        assert all(reply == b"OK" or "what maxmemory leaves" in reply for reply in replies), replies
        assert any(reply != b"OK" for reply in replies)
        assert replies.count(b"OK") * each <= most
        wait_for(lambda: client.info("memory")["used_memory"] <= most + (1 << 20), "evictions to end")
        assert figures(client)["promised_bytes"] == 0


def test_strings_are_read_one_after_the_other(one_worker):
    """However many clients import at the same time, others are served between their strings."""
    server, count = one_worker(), 100
    with server.client() as client, Busy(server) as busy:
        client.set("bitmap", bytes(3 << 20))
        waiting = [Replies(server, []) for _ in range(count)]
        for number, one in enumerate(waiting):
            one.send([["BF.IMPORT", f"new:{number}", "GOZERO", "bitmap", "BITS", 24 << 20]])
        served = 0
        while figures(client)["pool_jobs_queued"] < count:
            served += 1
        busy.end()
        assert [reply() for reply in waiting] == [b"OK"] * count
        assert served > 10


@EVERY_SERVER
def test_a_client_that_goes_takes_its_command_along(one_worker):
    server = one_worker()
    with server.client() as client, Busy(server) as busy:
        merge = busy.send("BF.MERGE", "a", "b")
        waiting = busy.send("BF.ADD", "a", "x")
        patient = busy.send("BF.ADD", "a", "y")
        dropped = figures(client)["waiting_dropped"]
        client.client_kill(waiting.address)
        client.client_kill(merge.address)
        assert patient() == 1, "it need not wait any longer, though the worker is still busy"
        assert client.execute_command("BF.MEXISTS", "a", "x", "y", ITEMS + 1) == [0, 1, 0]
        wait_for(lambda: figures(client)["clients_waiting"] == 1, "only the worker's client to be left")
        assert figures(client)["waiting_dropped"] == dropped + 2


@EVERY_SERVER
def test_a_server_that_becomes_a_replica(one_worker, new_server):
    server, primary = one_worker(), new_server()
    with server.client() as client, primary.client() as other, Busy(server) as busy:
        merge = busy.send("BF.MERGE", "a", "b")
        write = busy.send("BF.ADD", "b", "x")
        fill(other)
        client.replicaof("127.0.0.1", primary.port)
        for waiting in (merge, write):
            assert "UNBLOCKED" in str(waiting()) or "UNBLOCKED" in repr(waiting)
        primary.wait_until_online(server)
        other.execute_command("BF.ADD", "a", "from the primary")
        primary.wait_for_replicas()
        assert differences({"x": snapshot(other, "a")}, {"x": snapshot(client, "a")}) == []


@EVERY_SERVER
def test_a_slot_that_is_elsewhere_by_then(new_server):
    config = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    server = new_server(module_args=["THREADS", "1"], config=config)
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        wait_for(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the cluster")
        client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC")
        client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(20_000)))
        client.execute_command("BF.RESERVE", "{x}a", 0.01, MANY, "NONSCALING")
        client.execute_command("BF.RESERVE", "{x}b", 0.01, MANY, "LIKE", "{x}a")
        for moves in (False, True):
            with Busy(server) as busy:
                client.execute_command("BF.MADD", "{x}b", *range(ITEMS + moves))
                merge, write = busy.send("BF.MERGE", "{x}a", "{x}b"), busy.send("BF.ADD", "{x}b", f"later {moves}")
                if moves:
                    before = client.execute_command("DEBUG", "DIGEST")
                    client.execute_command("CLUSTER", "DELSLOTS", client.execute_command("CLUSTER", "KEYSLOT", "{x}"))
                busy.end()
                replies = [merge(), write()]
            if moves:
                assert [str(reply).split()[:3] for reply in replies] == [["the", "slot", "of"]] * 2, replies
                assert client.execute_command("DEBUG", "DIGEST") == before
            else:
                assert replies == [b"OK", 1]


@EVERY_SERVER
def test_nothing_is_written_while_writes_are_paused(one_worker):
    server = one_worker()
    with server.client() as client, Busy(server) as busy:
        merge = busy.send("BF.MERGE", "a", "b")
        write = busy.send("BF.ADD", "a", "x")
        client.execute_command("CLIENT", "PAUSE", 100_000, "WRITE")
        busy.end()
        wait_for(lambda: figures(client)["pool_jobs_running"] == 0, "the work to end")
        assert not merge.has_come() and count(client, "a") == ITEMS
        client.execute_command("CLIENT", "UNPAUSE")
        assert [merge(), write()] == [b"OK", 1]
        assert count(client, "a") == ITEMS + ITEMS // 2


@EVERY_SERVER
def test_snapshots_and_full_syncs_in_the_middle(one_worker):
    server = one_worker(config=APPEND_ONLY)
    with server.client() as client, Busy(server) as busy:
        merge = busy.send("BF.MERGE", "a", "b")
        write = busy.send("BF.ADD", "b", "x")
        replica = server.replica()
        client.bgrewriteaof()
        wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the rewrite")
        busy.end()
        assert [merge(), write()] == [b"OK", 1]
        server.wait_for_replicas()
        before = {key: snapshot(client, key) for key in "ab"}
        with replica.client() as other:
            assert differences(before, {key: snapshot(other, key) for key in "ab"}) == []
    server.kill()
    server.start()
    with server.client() as client:
        assert differences(before, {key: snapshot(client, key) for key in "ab"}) == []


@EVERY_SERVER
def test_random_traffic_is_that_of_a_replica(new_server):
    """Clients add, merge, intersect and delete at the same time. In the end, the replica has the same filters as the
    primary."""
    server = new_server()
    replica = server.replica()
    with server.client() as client:
        fill(client)
        errors = []

        def traffic(seed):
            import random

            chance = random.Random(seed)
            with server.client() as own:
                for number in range(150):
                    keys = chance.sample("abcd", 3)
                    command = chance.choice([
                        ["BF.ADD", keys[0], f"{seed}:{number}"], ["BF.ADD", keys[0], f"{seed}:{number}"],
                        ["BF.MADD", keys[0], *range(number, number + 50)],
                        ["BF.MERGE", *keys[:2]], ["BF.MERGE", *keys], ["BF.INTERSECT", *keys], ["BF.EQUAL", *keys[:2]],
                        ["RENAME", *keys[:2]], ["COPY", *keys[:2], "REPLACE"], ["DEL", keys[2]], ["BF.CLEAR", keys[1]],
                        ["BF.RESERVE", keys[0], 0.01, MANY, "LIKE", keys[1]],
                    ])  # fmt: skip
                    try:
                        if chance.random() < 0.2:
                            pipe = own.pipeline(transaction=True)
                            pipe.execute_command(*command)
                            pipe.execute()
                        else:
                            own.execute_command(*command)
                    except redis.ResponseError as error:
                        if "internal" in str(error):
                            errors.append(str(error))

        threads = [threading.Thread(target=traffic, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        wait_for(lambda: nothing_waits(client), "nobody to wait")
        server.wait_for_replicas()
        with replica.client() as other:
            keys = sorted(key.decode() for key in client.keys())
            assert keys == sorted(key.decode() for key in other.keys())
            for key in keys:
                assert differences({"x": snapshot(client, key)}, {"x": snapshot(other, key)}) == [], key


# ---- compaction ------------------------------------------------------------------------------------------------------


def due_for_compaction(client, key) -> None:
    """Loads a RedisBloom cuckoo filter with two sub-filters of 1 MiB each."""
    size = 1 << 20
    sparse = b"\0\0\0".join(b"%c" % (1 + number % 255) for number in range(size // 4)) + b"\0\0\0"
    client.execute_command("CF.LOADCHUNK", key, 1, struct.pack("<QQQQHHH", size // 2, size // 4, size, 2, 4, 20, 1))
    for number in (1, 2):
        client.execute_command("CF.LOADCHUNK", key, number * size + 1, sparse)
    client.execute_command("CF.ADD", key, "held")


@EVERY_SERVER
@pytest.mark.parametrize("words", [["CF.COMPACT", "k"], ["CF.DEL", "k", "held"]], ids=["command", "delete"])
def test_a_filter_of_redisblooms_is_compacted_apart(one_worker, words):
    """While a worker compacts a filter, reads are served and writes wait. The result is the same as in a transaction.
    If the client disconnects, the filter is unchanged."""
    server = one_worker()
    replica = server.replica()
    with server.client() as client, replica.client() as other:
        for key in ("k", "whole"):
            due_for_compaction(client, key)
        pipe = client.pipeline(transaction=True)
        pipe.execute_command(words[0], "whole", *words[2:])
        (expected,) = pipe.execute()
        before = snapshot(client, "k")
        with Busy(server) as busy:
            gone = busy.send(*words)
            busy.leave(gone)
            assert differences({"k": before}, {"k": snapshot(client, "k")}) == []
            reply, write = busy.send(*words), busy.send("CF.ADD", "k", "more")
            assert client.execute_command("CF.EXISTS", "k", "held") == 1
            assert not write.has_come()
            busy.end()
            assert (reply(), write()) == (expected, 1)
        client.execute_command("CF.ADD", "whole", "more")
        assert pairs(client.execute_command("CF.INFO", "k"))[b"Number of items deleted"] == 0
        assert differences({"k": snapshot(client, "whole")}, {"k": snapshot(client, "k")}) == []
        server.wait_for_replicas()
        assert differences({"k": snapshot(client, "k")}, {"k": snapshot(other, "k")}) == []


@EVERY_SERVER
@pytest.mark.parametrize("words", [["CF.COMPACT", "k"], ["CF.DEL", "k", "held"]], ids=["command", "delete"])
def test_a_write_under_another_name_is_kept(one_worker, words):
    """The filter is renamed, written and renamed back while it is compacted. It is in its key then, but has changed."""
    server = one_worker()
    with server.client() as client:
        due_for_compaction(client, "k")
        with Busy(server) as busy:
            reply = busy.send(*words)
            client.rename("k", "z")
            assert client.execute_command("CF.ADD", "z", "more") == 1
            client.rename("z", "k")
            before = snapshot(client, "k")
            busy.end()
            assert CHANGED in str(reply())
        assert differences({"k": before}, {"k": snapshot(client, "k")}) == []


# ---- the law of doubling ---------------------------------------------------------------------------------------------


def test_what_others_do_costs_no_more_with_sixteen_times_the_clients_that_wait(one_worker):
    """Measures commands on a key that a waiting command holds and on a free key, while 50 and then 800 clients wait.
    tests/commands/doubling.rs varies the other dimensions."""
    server = one_worker()
    schedstat = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/schedstat")

    def cost(client) -> float:
        """The main thread's CPU time for a command, in µs: the minimum of several measurements."""
        took = []
        for _ in range(5):
            time.sleep(0.02)  # until the server is idle and its CPU time is up to date
            before = int(schedstat.read_text().split()[0])
            pipe = client.pipeline(transaction=False)
            for number in range(5000):
                pipe.execute_command("BF.ADD", "free", number)
                pipe.execute_command("BF.EXISTS", "a", number)
            pipe.execute()
            time.sleep(0.02)
            took.append((int(schedstat.read_text().split()[0]) - before) / 1e7)
        return min(took)

    with server.client() as client:
        client.execute_command("BF.RESERVE", "free", 0.01, 100_000)
        with Busy(server) as busy:
            merge = busy.send("BF.MERGE", "a", "b")
            costs, waiting = [], []
            for clients in (50, 800):
                while len(waiting) < clients:
                    command = ["BF.ADD", "BF.MADD"][len(waiting) % 2]
                    waiting.append(Replies(server, [[command, "a", "b"]]))
                wait_for(lambda: busy.clients() == clients + 2, "all to wait")
                costs.append(cost(client))
            few, many = costs
            print(f"{few:.2f} µs beside 50 clients, {many:.2f} beside 800")
            assert many < 1.5 * few + 1
            busy.end()
            assert merge() == b"OK"
            assert all(reply() in (0, 1, [0], [1]) for reply in waiting)
