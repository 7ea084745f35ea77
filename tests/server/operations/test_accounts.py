"""Memory that outlives the command that allocated it must be counted by INFO, or freed. Nobody can find and free
uncounted memory, and a server at its limit evicts other clients' keys because of it.
"""

import contextlib
import struct
import time

import pytest
import redis

from kit.background import SLOW, Busy, Replies
from kit.metrics import figures
from kit.servers import wait_for
from kit.suite import clients

EVERY_SERVER = pytest.mark.every_server("the server counts memory, evicts keys and unblocks clients")

CAPACITY = 26_900_000  # at an error rate of 1%, 31.8 MiB of cells, just below jemalloc's size class of 32 MiB
GAUGES = ("waiting_bytes", "freeing_bytes", "load_held_bytes")
SLACK = 2 << 20  # bytes, for buffers and tables


@pytest.fixture
def one_worker(new_server):
    def make(*arguments, **config):
        server = new_server(module_args=["THREADS", "1", *arguments], config=config)
        with server.client() as client:
            client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC")
            client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(20_000)))
            client.execute_command("BF.RESERVE", "g", 0.01, CAPACITY, "NONSCALING")
        return server

    return make


def waiting(client) -> int:
    return figures(client)["clients_waiting"]


def reserve(client, key):
    client.execute_command("BF.RESERVE", key, 0.01, CAPACITY, "LIKE", "g")
    client.execute_command("BF.ADD", key, "x")  # because BF.CLEAR doesn't change an empty filter


def unaccounted(client) -> int:
    """Bytes that the server uses but that neither a key nor a gauge of the module accounts for. The server's own share
    is constant."""
    now, used = figures(client), client.info("memory")["used_memory"]
    keys = sum(client.memory_usage(key, samples=0) for key in client.scan_iter(count=1000))
    return used - keys - sum(now[gauge] for gauge in GAUGES)


def settled(client) -> int:
    """`unaccounted`, after the server has shrunk its clients' buffers, which it does from time to time."""
    last, now = None, unaccounted(client)
    while last is None or abs(now - last) > 1 << 16:
        time.sleep(0.2)
        last, now = now, unaccounted(client)
    return now


# Ways to delete, replace or clear the filter f.
LEAVES = {
    "deleted": lambda client: client.delete("f"),
    "unlinked": lambda client: client.unlink("f"),
    "cleared": lambda client: client.execute_command("BF.CLEAR", "f"),
    "replaced": lambda client: client.set("f", "x"),
    "renamed-over": lambda client: (client.set("x", "x"), client.rename("x", "f")),
    "expired": lambda client: (client.pexpire("f", 1), wait_for(lambda: not client.exists("f"), "the key to expire")),
    "flushed": lambda client: client.flushall(),
}
WORK = {
    "equal": ["BF.EQUAL", "f", "g"],
    "test": ["BF.BULKTEST", "f", "FIXED", 1, bytes(20_000)],
    "merge": ["BF.MERGE", "new", "f", "g"],
    "intersect": ["BF.INTERSECT", "new", "g", "f"],
}


@EVERY_SERVER
@pytest.mark.parametrize("how", LEAVES)
def test_what_only_queued_work_keeps_is_counted_as_waiting(one_worker, how):
    server = one_worker("OFFLOAD_MAX_BYTES", "1gb")
    with server.client() as client:
        for command in WORK.values():
            if how == "cleared" and command[0] in ("BF.MERGE", "BF.INTERSECT"):
                continue  # BF.CLEAR would wait too
            if not client.exists("g"):
                client.execute_command("BF.RESERVE", "g", 0.01, CAPACITY, "NONSCALING")
                client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC")
                client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(20_000)))
            client.delete("f")
            reserve(client, "f")
            with Busy(server) as busy:
                before = settled(client)
                reply = busy.send(*command)
                waits = figures(client)["waiting_bytes"]
                LEAVES[how](client)
                wait_for(lambda: figures(client)["waiting_bytes"] > waits + (30 << 20), "the filter to be counted")
                assert abs(settled(client) - before) < SLACK, (how, command)
                busy.end()
                reply()
            wait_for(lambda: figures(client)["waiting_bytes"] == 0, "nothing to be kept")


@EVERY_SERVER
@pytest.mark.parametrize("kind", ["equal", "test"])
def test_queued_work_costs_nobody_keys(one_worker, kind):
    """Deletes filters while commands that read them wait. When the memory kept for these filters exceeds the limit for
    waiting commands, the module gives up some of the commands, and no other key is evicted."""
    server = one_worker(maxmemory="400mb", **{"maxmemory-policy": "allkeys-lru"})
    with server.client() as client, Busy(server):
        pipe = client.pipeline(transaction=False)
        for number in range(20_000):
            pipe.set(f"key:{number}", bytes(1000))
        pipe.execute()
        keys, replies = client.dbsize(), []
        for _ in range(13):
            reserve(client, "f")
            replies.append(Replies(server, [WORK[kind]]))
            wait_for(lambda: waiting(client) + sum(reply.has_come() for reply in replies) == len(replies) + 1, "it to wait")
            client.delete("f")
        most = figures(client)["waiting_bytes_max"] + SLOW
        wait_for(lambda: figures(client)["waiting_bytes"] < most + SLACK, "some to be given up")
        assert client.dbsize() == keys
        assert replies[-1]().startswith("a key of the command was deleted, replaced or renamed")
        assert not replies[0].has_come(), "the first ones may wait"


def test_other_memory_that_outlives_its_command(one_worker):
    """Gauges and keys account for all memory of loads and rebuilds, and of filters that are being freed."""
    server = one_worker()
    with server.client() as client:
        before = settled(client)
        reserve(client, "f")
        client.execute_command("BF.MADD", "f", *range(100_000))
        pieces, iterator = [], 0
        while iterator or not pieces:
            iterator, data = client.execute_command("BF.SCANDUMP", "f", iterator)
            pieces.append((iterator, data))
        for iterator, data in pieces[: len(pieces) // 2]:
            client.execute_command("BF.LOADCHUNK", "loaded", iterator, data)
        assert abs(settled(client) - before) < SLACK, "half of a load"
        client.execute_command("BF.LOADCHUNK", "loaded", 0, b"")
        client.execute_command("BF.REBUILD", "f", "BEGIN", "CAPACITY", 2 * CAPACITY)
        assert abs(settled(client) - before) < SLACK, "a rebuild"
        client.delete("f")
        assert abs(settled(client) - before) < SLACK, "a filter that is freed"
        for number in range(1000):  # each filter has a different shape
            client.execute_command("BF.RESERVE", "shape", 0.01, 1000 + number)
            client.delete("shape")
        assert abs(settled(client) - before) < SLACK, "remembered shapes"
        with contextlib.suppress(redis.ResponseError):
            client.execute_command("BF.IMPORT", "new", "GUAVA", bytes(40 << 20))
        wait_for(lambda: figures(client)["clients_waiting"] == 0, "nobody to wait")
        assert abs(settled(client) - before) < SLACK, "an import that was refused"


def redisblooms_cuckoo(client, key):
    """Loads a 16 MiB filter that is due for compaction: two sub-filters, with an item in every fourth slot."""
    size = 8 << 20
    cells = b"".join(b"%c\0\0\0" % (1 + number % 255) for number in range(size // 4))
    client.execute_command("CF.LOADCHUNK", key, 1, struct.pack("<QQQQHHH", size // 2, size // 4, size, 2, 4, 20, 1))
    for end in (size, 2 * size):
        client.execute_command("CF.LOADCHUNK", key, 1 + end, cells)
    client.execute_command("CF.ADD", key, "held")


def twins(client, key):
    client.execute_command("BF.RESERVE", key, 0.01, 12_000_000, "NONSCALING")
    client.execute_command("BF.RESERVE", "other", 0.01, 12_000_000, "LIKE", key)
    client.execute_command("BF.BULKADD", "other", "FIXED", 8, bytes(range(256)) * 2000)


def small_twins(client, key):
    """Reserves filters of less than 8 MiB, which are freed at once."""
    for name in (key, "other"):
        client.execute_command("BF.RESERVE", name, 0.01, 6_000_000, "NONSCALING", "SEED", 1)


def bitmap(client, _):
    client.set("bits", bytes(6 << 20))


# Commands that must not evict keys, although there isn't enough memory for their working copies: their keys don't grow,
# or there is room for the growth. The values are the setup function, the command, and the free memory in MiB.
WITHOUT_NEED = {
    "delete": (redisblooms_cuckoo, ["CF.DEL", "f", "held"], 5),
    "compact": (redisblooms_cuckoo, ["CF.COMPACT", "f"], 5),
    "merge": (twins, ["BF.MERGE", "f", "other"], 5),
    "intersect": (small_twins, ["BF.INTERSECT", "f", "f", "other"], 5),
    "import": (bitmap, ["BF.IMPORT", "f", "GOZERO", "bits", "BITS", 6 << 23], 9),
    "equal": (twins, ["BF.EQUAL", "f", "other"], 5),
    "test": (twins, ["BF.BULKTEST", "other", "FIXED", 8, bytes(1 << 18)], 5),
}


@EVERY_SERVER
@pytest.mark.parametrize("kind", WITHOUT_NEED)
def test_a_command_evicts_no_keys_without_need(new_server, kind):
    """While a command works on a copy of a filter, another client's writes must not evict keys to make room for the
    copy, because one of these keys might be the filter itself."""
    server = new_server(config={"maxmemory-policy": "allkeys-lru"})
    make, command, room = WITHOUT_NEED[kind]
    with server.client() as client:
        make(client, "f")
        for number in range(200):
            client.set(f"key:{number}", bytes(20_000))
        client.set("probe", "x")
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", used + (room << 20))
        keys = set(client.keys())
        with clients(server, [write_probes]):
            try:
                reply = client.execute_command(*command)
            except redis.ResponseError as error:
                reply = str(error)
        if kind in ("compact", "merge", "intersect", "import"):
            assert reply.startswith("Insufficient memory") and reply.endswith("in MULTI it runs at once")
            pipe = client.pipeline(transaction=True)
            pipe.execute_command(*command)
            assert pipe.execute() == [b"OK"]
        assert keys <= set(client.keys()) and client.info("stats")["evicted_keys"] == 0


def static_list(client, key: str) -> None:
    client.execute_command("BF.REBUILD", key, "BEGIN", "LAYOUT", "FUSE", "CAPACITY", 400_000)
    blob = b"".join(struct.pack("<I", number) for number in range(400_000))
    client.execute_command("BF.REBUILD", key, "ADDBULK", "FIXED", 4, blob)


def tables(client, key: str) -> None:
    client.execute_command("BF.RESERVE", key, "0.001", 4_000_000, "LAYOUT", "QUOTIENT", "NONSCALING")
    client.execute_command("BF.RESERVE", "other", "0.001", 4_000_000, "LIKE", key)
    for start in range(0, 1_000_000, 250_000):
        blob = b"".join(struct.pack("<I", number) for number in range(start, start + 250_000))
        client.execute_command("BF.BULKADD", "other", "FIXED", 4, blob)
    client.execute_command("BF.ADD", "other", "ada")


@EVERY_SERVER
@pytest.mark.parametrize("make, command", [(static_list, "BF.REBUILD f COMMIT"), (tables, "BF.MERGE f other")])
def test_what_is_refused_on_a_full_cache_works_in_a_transaction(new_server, make, command):
    """A cache is always full, so there must be a way to run these commands on a full server."""
    server = new_server(config={"maxmemory": "48mb", "maxmemory-policy": "allkeys-lru"})
    with server.client() as client:
        make(client, "f")
        number = 0
        while client.info("memory")["used_memory"] < 47 << 20:
            client.mset({f"key:{number + index}": bytes(1000) for index in range(200)})
            number += 200
        with pytest.raises(redis.ResponseError, match="Insufficient memory.* in MULTI it runs at once"):
            client.execute_command(*command.split())
        pipe = client.pipeline(transaction=True)
        pipe.execute_command(*command.split())
        assert pipe.execute() == [b"OK"]
        assert client.execute_command("BF.EXISTS", "f", struct.pack("<I", 7) if make is static_list else "ada") == 1


def write_probes(client, go_on) -> None:
    while go_on():
        client.set("probe", "x")


def test_a_table_of_a_power_of_two_takes_no_size_more_from_the_allocator(server):
    """If a table were a few bytes larger than its slots, it would need jemalloc's next size class, which is a quarter
    larger. Meanwhile, the server may free some 100 kB of earlier tests."""
    with server.client() as client:
        client.execute_command("CF.RESERVE", "first", 10)
        for slots in (1 << 16, 1 << 20, 1 << 24):
            before = client.info("memory")["used_memory"]
            filters = max(8, (16 << 20) // slots)
            for number in range(filters):
                client.execute_command("CF.RESERVE", f"power:{slots}:{number}", slots)
            used = (client.info("memory")["used_memory"] - before) / filters
            assert 0.95 * slots < used < 1.1 * slots, (slots, used)
