"""Filters that are being loaded in pieces: the memory they need, what ends a load, and when a load is dropped because
memory is short. A load may use memory in proportion to the bytes that have arrived, but never at the expense of keys or
of other clients' writes, because it isn't a key yet. It ends when its client says so, when it has made no progress for
five minutes, or when something else appears under its key."""

import contextlib
import dataclasses
import shutil
import struct

import pytest
import redis

from kit.filters import load_pieces, members, pieces
from kit.foreign import redisbloom_head
from kit.metrics import figures
from kit.payload import seal_chunk
from kit.servers import APPEND_ONLY, matrix, rewrite, saves_loads, wait_for
from kit.wire_format import crc32c

MIB = 1 << 20
POLICIES = [
    "noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random",
    "volatile-ttl",
]  # fmt: skip
EVERY_SERVER = pytest.mark.every_server("the server evicts, refuses writes, and tells of time and keys")


@dataclasses.dataclass
class Announced:
    """A head that declares many bytes, and the shortest chunk that may follow it."""

    name: str
    prefix: str
    head: bytes
    end: int  # offset at which the first chunk ends
    chunk: bytes

    def __str__(self) -> str:
        return self.name

    def send(self, client, key: str) -> int:
        """Sends the head and the chunk, and returns the number of bytes of both commands. Ignores refusals."""
        sent = 0
        for iterator, piece in [(1, self.head), (1 + self.end, self.chunk)]:
            sent += 60 + len(piece)
            try:
                client.execute_command(f"{self.prefix}.LOADCHUNK", key, iterator, piece)
            except redis.ResponseError:
                pass
        return sent


def cut(head: bytes, stamp: bytes, prefix: str, name: str) -> Announced:
    """A load in one of Bloomery's own formats, with a first chunk of only one word."""
    data = struct.pack("<QI", 0, 8) + bytes(8) + b"\1" * 8
    return Announced(name, prefix, head, 8, seal_chunk(data, stamp))


def redisbloom(size: int) -> Announced:
    return Announced("redisbloom bloom", "BF", redisbloom_head(size), 1, b"\1")


def redisbloom_cuckoo(size: int, filters: int = 1) -> Announced:
    buckets = 1 << (size // filters // 2).bit_length() - 1
    head = struct.pack("<QQQQHHH", 5, buckets, 0, filters, 2, 20, int(filters > 1))
    return Announced(f"redisbloom cuckoo of {filters}", "CF", head, 2 * buckets, b"\1")


def announced(client, size: int) -> list[Announced]:
    """Loads of every kind and format. Their heads declare about `size` bytes of cells, except for heads with 65,536
    sub-filters, which declare up to 4 MiB."""
    found = []
    for name, reservation in {
        "fixed": f"BF.RESERVE x 0.01 {size * 8 // 10} NONSCALING",
        "scaling": f"BF.RESERVE x 0.01 {size * 8 // 10}",
        "sharded": f"BF.RESERVE x 0.01 {size * 8 // 11} NONSCALING SHARDS 8",
        "counting": f"BF.RESERVE x 0.01 {size * 8 // 45} COUNTING 4",
        "window": f"BF.RESERVE x 0.01 {size * 8 // 40} WINDOW 3",
        "rebuild": f"BF.RESERVE x 0.01 {size * 8 // 22} NONSCALING",
        "cuckoo": f"CF.RESERVE x {size // 2}",
        "cuckoo of many": "CF.RESERVE x 8 BUCKETSIZE 1 EXPANSION 1",
    }.items():
        client.execute_command(*reservation.split())
        prefix = reservation[:2]
        if name == "rebuild":
            client.execute_command("BF.REBUILD", "x", "BEGIN")
        head, chunk = (client.execute_command(f"{prefix}.SCANDUMP", "x", place)[1] for place in [0, 1])
        stamp = chunk[12:16]
        if name == "cuckoo of many":
            head = sealed_head(head, {12: ("<Q", 8 * 65_536), 72: ("<I", 65_536)})
            stamp = struct.pack("<I", crc32c(head[24:]))
        found.append(cut(head, stamp, prefix, name))
        client.delete("x")
    return [*found, redisbloom(size), redisbloom_cuckoo(size), redisbloom_cuckoo(64 * 65_536, 65_536)]


def sealed_head(head: bytes, fields: dict[int, tuple[str, int]]) -> bytes:
    """A head with other values in these fields, and a correct checksum."""
    changed = bytearray(head)
    for place, (form, value) in fields.items():
        struct.pack_into(form, changed, place, value)
    struct.pack_into("<I", changed, 20, crc32c(bytes(changed[:20]) + bytes(changed[24:])))
    return bytes(changed)


def used(client) -> int:
    return client.info("memory")["used_memory"]


def evicted(client) -> int:
    return client.info("stats")["evicted_keys"]


def fill(client, count: int) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for number in range(count):
            pipeline.set(f"key:{number}", bytes(500), ex=10_000 + number)
        pipeline.execute()


@EVERY_SERVER
def test_a_load_takes_what_has_come_of_it(new_server):
    """Whatever a head declares, it and a first chunk need memory in proportion to their own bytes. Nothing is evicted
    for them under any policy, and other clients can still write."""
    server = new_server()
    with server.client() as client:
        large, fitting = announced(client, 58 * MIB), announced(client, 12 * MIB)
        fill(client, 20_000)
        client.config_set("maxmemory", used(client) + 40 * MIB)
        for policy in POLICIES:
            client.config_set("maxmemory-policy", policy)
            for head in [*large, *fitting]:
                what, before = f"{policy}, {head}", used(client)
                sent = head.send(client, "target")
                assert used(client) - before <= 4 * sent + 100_000, what
                client.set("other", "x" * 1000)
                assert evicted(client) == 0, what
                end(client, head.prefix, "target")
        assert figures(client)["loads"] == 0
        assert client.dbsize() == 20_001


def end(client, prefix: str, key: str) -> None:
    """Ends a load, if there is one."""
    try:
        client.execute_command(f"{prefix}.LOADCHUNK", key, 0, "")
    except redis.ResponseError:
        pass


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


@pytest.fixture(params=["BF", "CF"])
def parts(request, server):
    """The prefix of a filter's commands, and the pieces of the filter, which is larger than 10 MiB."""
    with server.client() as client:
        client.execute_command(*{
            "BF": ["BF.RESERVE", "source", 0.01, 20_000_000, "NONSCALING"],
            "CF": ["CF.RESERVE", "source", 16_000_000],
        }[request.param])
        found = pieces(client, "source", request.param)
        client.delete("source")
        wait_for(lambda: figures(client)["cell_bytes"] == 0, "the source to be freed")
    return request.param, found


def not_found(client, prefix: str, key: str, piece) -> None:
    with pytest.raises(redis.ResponseError, match="not found"):
        client.execute_command(f"{prefix}.LOADCHUNK", key, *piece)


OVERWRITING = {
    "SET": "SET target x",
    "RENAME": "RENAME text target",
    "RENAMENX": "RENAMENX text target",
    "COPY": "COPY text target",
    "RESTORE": None,
    "MOVE": "MOVE target 0",
    "BF.ADD": "BF.ADD target x",
    "CF.ADD": "CF.ADD target x",
    "HSET": "HSET target field x",
    "SORT STORE": "SORT list STORE target",
}


@EVERY_SERVER
@pytest.mark.parametrize("way", OVERWRITING)
def test_a_key_of_the_same_name_ends_a_load(server, client, way):
    """Whatever appears under the load's key ends the load. Other keys, and keys in other databases, don't."""
    if server.spec.product == "valkey":
        pytest.skip("with a callback for the event, MOVE of Valkey 8.1 leaves the key in both databases")
    client.execute_command("BF.RESERVE", "source", 0.01, 1000)
    found = pieces(client, "source", "BF")
    payload = client.dump("source")
    client.delete("source")
    for text in ["text", "other"]:
        client.set(text, "x")
    client.rpush("list", 2, 1)
    load_pieces(client, "target", "BF", found[:1])
    load_pieces(client, "neighbour", "BF", found[:1])
    with server.client(db=1) as there:
        load_pieces(there, "target", "BF", found[:1])
        client.rename("other", "elsewhere")
        assert figures(client)["loads"] == 3
        if way == "RESTORE":
            client.restore("target", 0, payload)
        elif way == "MOVE":
            there.execute_command("BF.LOADCHUNK", "target", 0, "")
            there.set("target", "x")
            there.execute_command(*OVERWRITING[way].split())
            load_pieces(there, "target", "BF", found[:1])
        else:
            client.execute_command(*OVERWRITING[way].split())
        assert figures(client)["loads"] == 2
        client.delete("target")
        not_found(client, "BF", "target", found[1])
        load_pieces(there, "target", "BF", found[1:])
    load_pieces(client, "neighbour", "BF", found[1:])
    client.flushall()


# Number of keys beside a load. Usually up to 200 of them are evicted before the load's memory is free, but more if the
# thread that frees it has to wait for a processor.
FILLED = 5000


@EVERY_SERVER
@pytest.mark.parametrize("policy", POLICIES)
def test_others_go_first_when_memory_is_short(new_server, policy):
    """The load ends when the first key is evicted, or soon after the limit is exceeded. Then other clients can write
    again."""
    assert evicted_beside_a_load(new_server, policy) < (1 if policy == "noeviction" else FILLED)


def evicted_beside_a_load(new_server, policy) -> int:
    server = new_server(config={"maxmemory-policy": policy})
    with server.client() as client:
        client.execute_command("BF.RESERVE", "source", 0.01, 20_000_000, "NONSCALING")
        found = pieces(client, "source", "BF")
        client.delete("source")
        wait_for(lambda: figures(client)["cell_bytes"] == 0, "the source to be freed")
        fill(client, FILLED)
        start = used(client)
        client.config_set("maxmemory", start + 42 * MIB)
        load_pieces(client, "target", "BF", found[:-1])
        held = figures(client)["load_held_bytes"]
        assert held >= 20 * MIB
        refused = 0
        for number in range(50_000):
            try:
                client.set(f"more:{number % 1000}", bytes(1000 * (1 + number // 1000)), ex=100_000)
            except redis.exceptions.OutOfMemoryError:
                refused += 1
            if not number % 50 and not figures(client)["loads"]:
                break
        assert figures(client)["loads"] == 0, "the load is still there"
        wait_for(lambda: figures(client)["cell_bytes"] == 0, "the load to be freed")
        count = evicted(client)
        assert client.set("other", "x" * 100_000)
        not_found(client, "BF", "target", found[-1])
        assert figures(client)["loads_dropped"] == 1
        assert "memory is short" in server.log()
        return count


@EVERY_SERVER
def test_a_load_can_be_ended_without_memory(new_server, parts):
    """A server that is above its limit accepts no pieces, but a load can still be ended. A small load isn't dropped,
    because the arguments of any command may need as much memory."""
    prefix, found = parts
    command = f"{prefix}.LOADCHUNK"
    with new_server(config={"maxmemory-policy": "noeviction"}).client() as client:
        load_pieces(client, "target", prefix, found[:1])
        client.config_set("maxmemory", 1000)
        for piece in found[1:2] + found[:1]:
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                client.execute_command(command, "target", *piece)
        assert figures(client)["loads"] == 1
        assert client.execute_command(command, "target", 0, "") == b"OK"
        assert figures(client)["loads"] == 0


def test_a_load_that_does_not_fit_is_refused_by_its_head(new_server, parts):
    """Under every policy, the head is refused if the server would have to evict keys for the filter."""
    prefix, found = parts
    with new_server().client() as client:
        client.set("other", bytes(40 * MIB), ex=10_000)
        for policy in POLICIES:
            client.config_set("maxmemory-policy", policy)
            client.config_set("maxmemory", used(client) + 10 * MIB)
            with pytest.raises(redis.ResponseError, match="what maxmemory leaves is 9|what maxmemory leaves is 10"):
                load_pieces(client, "target", prefix, found[:1])
            assert (evicted(client), figures(client)["loads"]) == (0, 0), policy


@EVERY_SERVER
def test_small_filters_are_loaded_where_keys_are_evicted_all_the_time(new_server):
    """A cache is always full. Loads that together need less than 1 MiB, about what a command's arguments may need, work
    even there."""
    with new_server(config={"maxmemory-policy": "allkeys-lru"}).client() as client:
        client.execute_command("BF.RESERVE", "source", 0.01, 300_000)
        client.execute_command("BF.MADD", "source", *members(1000))
        found = pieces(client, "source", "BF")
        client.delete("source")
        client.config_set("maxmemory", used(client) + 3 * MIB)
        fill(client, 20_000)
        before = evicted(client)
        assert before > 1000
        whole = 0
        for number in range(20):
            target = f"target:{number}"
            for piece in found:
                load_pieces(client, target, "BF", [piece])
                client.set(f"more:{number}", bytes(20_000))
            # The target itself may be evicted, so it is either complete or gone.
            answers = set(client.execute_command("BF.MEXISTS", target, *members(1000)))
            assert len(answers) == 1
            whole += answers.pop()
        assert evicted(client) > before
        assert whole >= 10


# ---- on replicas and in files ---------------------------------------------------------------------------------------


def loads_of(server) -> int:
    with server.client() as client:
        return figures(client)["loads"]


def digest(server, key: str):
    with server.client() as client:
        return client.execute_command("DEBUG", "DIGEST-VALUE", key)


@pytest.fixture
def source(new_server):
    """The pieces of a filter of 5 MiB, and the filter's digest."""
    with new_server().client() as client:
        client.execute_command("BF.RESERVE", "source", 0.01, 4_000_000, "NONSCALING")
        client.execute_command("BF.BULKADD", "source", "FIXED", 8, b"".join(b"%08d" % n for n in range(500_000)))
        return pieces(client, "source", "BF"), client.execute_command("DEBUG", "DIGEST-VALUE", "source")


@EVERY_SERVER
def test_each_piece_is_replicated_when_it_comes(new_server, source):
    """If servers can save loads, replicas get each piece when it arrives. No server has the key before the last piece.
    """
    found, expected = source
    primary = new_server(config=APPEND_ONLY)
    replica = primary.replica(config=APPEND_ONLY)
    last = replica.replica()
    with primary.client() as client:
        for piece in found[:-1]:
            load_pieces(client, "target", "BF", [piece])
        primary.wait_for_replicas()
        replica.wait_for_replicas()
        for server in (replica, last):
            assert loads_of(server) == int(saves_loads(primary.spec))
            assert server.command("EXISTS", "target") == 0
        load_pieces(client, "target", "BF", found[-1:])
        primary.wait_for_replicas()
        replica.wait_for_replicas()
    for server in (primary, replica, last):
        assert (digest(server, "target"), loads_of(server)) == (expected, 0)
    for server in (primary, replica):
        server.restart(kill=True)
        assert digest(server, "target") == expected


@EVERY_SERVER
@pytest.mark.parametrize("way", ["diskless", "disk", "swapdb", "chain", "restart"])
def test_a_snapshot_in_the_middle_of_a_load_has_it(new_server, source, way):
    """If a server restarts or becomes a replica (of the primary or of another replica) in the middle of a load, it has
    the filter in the end."""
    found, expected = source
    primary = new_server(config={"repl-diskless-sync": "no" if way == "disk" else "yes", "repl-diskless-sync-delay": 0})
    first = primary.replica(config={"repl-diskless-load": "swapdb"} if way == "swapdb" else {})
    of = first if way == "chain" else primary
    with primary.client() as client:
        for count in (1, 2, len(found) // 2, len(found) - 1):
            load_pieces(client, "target", "BF", found[:count])
            primary.wait_for_replicas()
            joined = []
            match way:
                case "restart":
                    first.restart()
                case "swapdb":
                    first.command("REPLICAOF", "NO", "ONE")
                    first.command("SET", "own", "x")  # so that it needs a full sync
                    first.command("REPLICAOF", "127.0.0.1", primary.port)
                case _:
                    joined.append(of.replica())
            primary.wait_until_online(first)
            load_pieces(client, "target", "BF", found[count:])
            for server in (primary, of):
                server.wait_for_replicas()
            for server in (primary, first, *joined):
                assert (digest(server, "target"), loads_of(server)) == (expected, 0), (server, count)
            for server in joined:
                of.replicas.remove(server)
                server.destroy()
            client.delete("target")
        primary.check()


@EVERY_SERVER
def test_a_load_goes_on_at_a_promoted_replica(new_server, source):
    found, expected = source
    primary = new_server()
    replica = primary.replica()
    with primary.client() as client, replica.client() as there:
        load_pieces(client, "target", "BF", found[:3])
        primary.wait_for_replicas()
        there.replicaof("NO", "ONE")
        if not saves_loads(primary.spec):
            return not_found(there, "BF", "target", found[3])
        load_pieces(there, "target", "BF", found[3:-1])
        assert there.execute_command("BF.LOADCHUNK", "target", 0, "") == b"OK"
        load_pieces(there, "target", "BF", found)
        assert digest(replica, "target") == expected


@EVERY_SERVER
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_an_aof_rewrite_in_the_middle_of_a_load(new_server, source, preamble):
    """The rewritten file has the pieces in its RDB part. Without such a part, it gets all pieces after the last one has
    arrived."""
    found, expected = source
    primary = new_server(config={**APPEND_ONLY, "aof-use-rdb-preamble": preamble})
    replica = primary.replica(config={**APPEND_ONLY, "aof-use-rdb-preamble": "no"})
    with primary.client() as client, replica.client() as there:
        for count in (1, len(found) - 2):
            load_pieces(client, "target", "BF", found[:count])
            primary.wait_for_replicas()
            rewrite(primary, client)
            rewrite(replica, there)
            load_pieces(client, "target", "BF", found[count:-1])
            primary.wait_for_replicas()
            # Even if no more pieces are sent, the replica keeps those that it has until the complete filter arrives.
            assert loads_of(replica) == int(saves_loads(primary.spec))
            load_pieces(client, "target", "BF", found[-1:])
            primary.wait_for_replicas()
            assert digest(replica, "target") == expected
            primary.restart(kill=True)
            assert digest(primary, "target") == expected
            replica.stop()
            replica.config.pop("replicaof", None)
            replica.start()
            assert digest(replica, "target") == expected, "from its own file"
            replica.command("REPLICAOF", "127.0.0.1", primary.port)
            primary.wait_until_online(replica)
            client.delete("target")


@EVERY_SERVER
@pytest.mark.parametrize("way", ["sync", "reload"])
def test_a_snapshot_of_a_replica_has_all_loads_of_its_primary(new_server, source, way):
    """A server that has loaded the replica's snapshot needs only the pieces that the primary sends afterwards,
    whichever pieces the replica's own file contains. The replica's file gets the pieces that it lacks."""
    found, expected = source
    config = {**APPEND_ONLY, "aof-use-rdb-preamble": "no"}
    primary = new_server(config=config)
    replica = primary.replica(config=config)
    with primary.client() as client, replica.client() as there:
        load_pieces(client, "target", "BF", found[:2])
        primary.wait_for_replicas()
        rewrite(replica, there)
        load_pieces(client, "target", "BF", found[2:3])
        primary.wait_for_replicas()
        if way == "reload":
            there.execute_command("DEBUG", "RELOAD")
        last = replica.replica(config=config)
        assert loads_of(last) == int(saves_loads(primary.spec))
        load_pieces(client, "target", "BF", found[3:])
        for server in (primary, replica):
            server.wait_for_replicas()
        for server in (primary, replica, last):
            assert (digest(server, "target"), loads_of(server)) == (expected, 0)
        for server in (replica, last):
            server.command("DEBUG", "LOADAOF")
            assert digest(server, "target") == expected, "from its own file"
    primary.check()


@EVERY_SERVER
def test_who_reads_a_snapshot_keeps_what_its_file_has_of_the_loads(new_server, source):
    found, expected = source
    server = new_server(config={**APPEND_ONLY, "aof-use-rdb-preamble": "no"})
    with server.client() as client:
        if not saves_loads(server.spec):
            pytest.skip("its snapshots have no loads")
        load_pieces(client, "target", "BF", found[:2])
        rewrite(server, client)
        client.execute_command("DEBUG", "RELOAD")
        load_pieces(client, "target", "BF", found[2:])
        assert digest(server, "target") == expected
        client.execute_command("DEBUG", "LOADAOF")
        assert digest(server, "target") == expected


def replicas_of(spec) -> list:
    """The servers of the matrix that can be replicas of this one: those that can read its RDB files."""
    if spec.name == "redis-8.0":
        return [spec]
    return [other for other in matrix() if other.name != "redis-7.0" or spec.name == "redis-7.0"]


@EVERY_SERVER
def test_a_replica_ends_a_load_when_its_primary_does(new_server, source):
    """Whatever commands are sent between two pieces, the replica and its replica have the same loads and keys as the
    primary, even if the servers differ in which events they send for keys."""
    found, _ = source
    ways = {
        "a key comes and goes": ["SET target x", "DEL target"],
        "a key stays": ["SET target x"],
        "another key gets the name": ["SET other x", "RENAME other target", "RENAME target other"],
        "a filter comes and goes": ["BF.ADD target x", "DEL target"],
        "it expires": ["SET target x PX 1", "PING", "DEL target"],
        "in a transaction": ["MULTI", "SET target x", "DEL target", "EXEC"],
        "in a script": ["EVAL return{redis.call('set','target',1),redis.call('del','target')} 0"],
        "databases change places": ["SET target x", "SWAPDB 0 1", "SWAPDB 0 1", "DEL target"],
        "the load is elsewhere": ["SWAPDB 0 1"],
        "a database is flushed": ["FLUSHDB"],
        "all are flushed": ["FLUSHALL ASYNC"],
        "nothing": [],
    }
    primary = new_server()
    for spec in replicas_of(primary.spec):
        replica = primary.replica(spec=spec)
        last = replica.replica()
        servers = (primary, replica, last)
        with primary.client() as client, primary.client(single_connection_client=True) as other:
            for way, commands in ways.items():
                load_pieces(client, "target", "BF", found[:3])
                for command in commands:
                    other.execute_command(*command.split())
                with contextlib.suppress(redis.ResponseError):
                    load_pieces(client, "target", "BF", found[3:-1])
                for server in (primary, replica):
                    server.wait_for_replicas()
                if saves_loads(primary.spec):
                    assert len({loads_of(server) for server in servers}) == 1, f"{way}, {spec}"
                with contextlib.suppress(redis.ResponseError):
                    load_pieces(client, "target", "BF", found[-1:])
                for server in (primary, replica):
                    server.wait_for_replicas()
                assert len({*map(str, (digest(server, "target") for server in servers))}) == 1, f"{way}, {spec}"
                assert {loads_of(server) for server in servers[1:]} <= {loads_of(primary)}, f"{way}, {spec}"
                client.flushall()
        primary.check()
        primary.replicas.remove(replica)
        replica.destroy()


@EVERY_SERVER
def test_who_becomes_a_replica_drops_the_loads_that_only_it_has(new_server):
    """No client can continue them there, and no primary ends them."""
    server = new_server()
    with server.client() as client:
        client.execute_command("BF.LOADCHUNK", "target", 1, redisbloom_head(MIB))
        assert loads_of(server) == 1
        client.replicaof("127.0.0.1", 1)  # nobody answers, so no sync replaces the data
        assert loads_of(server) == 0
        client.replicaof("NO", "ONE")


@EVERY_SERVER
@pytest.mark.parametrize("way", ["file", "snapshot", "failover"])
def test_a_load_whose_client_is_gone_makes_room(new_server, way):
    """If memory is short, a load whose client is gone is dropped, even if the server has it from a file or from its
    former primary."""
    config = {"maxmemory-policy": "allkeys-lru"}
    primary = new_server(config=config | (APPEND_ONLY if way == "file" else {}))
    if not saves_loads(primary.spec):
        pytest.skip("its loads don't outlive it")
    server = primary.replica(config=config) if way == "failover" else primary
    with new_server().client() as client:
        client.execute_command("BF.RESERVE", "source", 0.01, 20_000_000, "NONSCALING")
        found = pieces(client, "source", "BF")
    with primary.client() as client:
        fill(client, FILLED)
        load_pieces(client, "target", "BF", found[:-1])
        primary.wait_for_replicas()
        if way == "snapshot":
            client.save()
    if way == "failover":
        server.command("REPLICAOF", "NO", "ONE")
    else:
        server.restart(kill=True)
    with server.client() as client:
        assert figures(client)["load_held_bytes"] >= 20 * MIB
        client.config_set("maxmemory", used(client) + 4 * MIB)
        for number in range(20_000):
            client.set(f"more:{number}", bytes(1000))
            if not number % 50 and not figures(client)["loads"]:
                break
        assert figures(client)["loads"] == 0, "the load is still there"
        assert evicted(client) < FILLED


@EVERY_SERVER
@pytest.mark.parametrize("way", ["end", "iterator", "other", "memory", "evicted", "flush", "key"])
def test_a_load_that_ends_ends_on_replicas_also(new_server, source, way):
    found, _ = source
    primary = new_server(config={**APPEND_ONLY, "maxmemory-policy": "allkeys-lru" if way == "evicted" else "noeviction"})
    replica = primary.replica()
    with primary.client() as client:
        if way == "key" and primary.spec.product == "valkey":
            pytest.skip("a key of the same name doesn't end a load there")
        fill(client, 2000)
        load_pieces(client, "target", "BF", found[:-1])
        primary.wait_for_replicas()
        assert loads_of(replica) == int(saves_loads(primary.spec))
        match way:
            case "end":
                client.execute_command("BF.LOADCHUNK", "target", 0, "")
            case "iterator":
                refused = pytest.raises(redis.ResponseError)
                with refused:
                    client.execute_command("BF.LOADCHUNK", "target", 7, found[-1][1])
            case "other":
                load_pieces(client, "target", "BF", [(1, redisbloom(1000).head)])
            case "memory":
                client.config_set("maxmemory", 5 * MIB)  # the buffers for replicas don't count
            case "evicted":
                client.config_set("maxmemory", 5 * MIB)  # the buffers for replicas don't count
                # The server may evict every key before it notices that the memory of the keys and of the load has been
                # freed. It then refuses this SET.
                with contextlib.suppress(redis.exceptions.OutOfMemoryError):
                    client.set("other", "x" * 1000)
            case "flush":
                client.flushall()
            case "key":
                client.set("target", "x")
        wait_for(lambda: loads_of(primary) == int(way == "other"), "the load to end")
        client.config_set("maxmemory", 0)
        client.set("last", "x")
        primary.wait_for_replicas()
        assert loads_of(replica) == 0
        primary.check()
        # The load doesn't come back after a restart from the append-only file either.
        primary.restart(kill=True)
        assert loads_of(primary) == 0


@EVERY_SERVER
def test_a_file_without_loads_needs_no_module(new_server, source):
    """A server without the module can read the RDB file if there are no filters and no loads in progress."""
    found, _ = source
    server, stock = new_server(), new_server(module=None)
    with server.client() as client:
        client.set("text", "x")
        load_pieces(client, "target", "BF", found)
        client.delete("target")
        load_pieces(client, "target", "BF", found[:2])
        client.execute_command("BF.LOADCHUNK", "target", 0, "")
        client.save()
    stock.stop()
    shutil.copy(server.directory / "dump.rdb", stock.directory / "dump.rdb")
    stock.start()
    assert stock.command("GET", "text") == b"x"
