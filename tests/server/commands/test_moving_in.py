"""Filters from other systems: every member is found, the same absent items test positive, and what can be exported is
exported unchanged. The data was recorded from the originals: RedisBloom's dump.rdb, DUMP payloads and SCANDUMP pieces,
go-zero's bitmap, and the files of bits-and-blooms. The manifests in tests/fixtures list the members of each filter, and
the absent items that tested positive. For Guava, Redisson, valkey-bloom and old RedisBloom, kit/foreign.py makes
filters by rules that were checked against recorded positions.
"""

import base64
import random
import shutil
import subprocess

import pytest
import redis

from kit.appendonly import Effects
from kit.arrivals import (
    FIXTURES,
    MANIFEST,
    ORIGINALS,
    REDISBLOOM_RDB,
    Arrival,
    arrivals,
    move_all_in,
    numbered,
    valkey_bloom_chain,
)
from kit.filters import NOT_ITS_OWN, batches, load_pieces, pairs, pieces
from kit.foreign import Value, go_zero, reversed_bits, sealed, values_of, version_of
from kit.payload import PREFIX as CHUNK_PREFIX
from kit.servers import APPEND_ONLY, Server, ServerFailed, rewrite, wait_for

EVERY_SERVER = pytest.mark.every_server("the server saves, replicates, and owns the names of types")

# ---- what they are afterwards ---------------------------------------------------------------------------------------


def snapshot(client, key: str, arrival: Arrival) -> dict:
    """Everything that a client can see of a filter."""
    prefix = arrival.family
    info = pairs(client.execute_command(f"{prefix}.STATS", key))
    return {
        "type": client.type(key),
        "digest": client.execute_command("DEBUG", "DIGEST-VALUE", key)[0],
        "answers": arrival.answers_at_once(client, key),
        "info": {name: value for name, value in info.items() if name not in NOT_ITS_OWN},
        "lines": client.execute_command(f"{prefix}.DEBUG", key),
    }


def snapshots(client) -> dict[str, dict]:
    return {name: snapshot(client, name, arrival) for name, arrival in arrivals().items()}


def must_be_equal(before: dict[str, dict], after: dict[str, dict]) -> None:
    assert before.keys() == after.keys()
    parts = ((name, part) for name in before for part in before[name])
    assert not [f"{name}: {part}" for name, part in parts if before[name][part] != after[name][part]]


@pytest.fixture(scope="module")
def moved(spec):
    """A server with all imported filters, a client, and snapshots of the filters. No test changes the filters."""
    with Server(spec) as server, server.client() as client:
        move_all_in(client)
        yield server, client, snapshots(client)
        server.check()


def test_members_are_found_and_strangers_get_what_they_got(moved):
    _, client, before = moved
    for name, arrival in arrivals().items():
        seen = before[name]
        assert seen["answers"] == arrival.answers(client, name), name
        count = len(arrival.members)
        missed = [item for item, found in zip(arrival.members, seen["answers"], strict=False) if not found]
        assert not missed, name
        if arrival.positives is not None:
            assert seen["answers"] == arrival.expected(), name
        else:
            assert sum(seen["answers"][count:]) < len(arrival.strangers), name
        assert seen["type"] == arrival.type, name
    # Enough absent items test positive to tell one filter from another.
    assert sum(len(arrival.positives or []) for arrival in arrivals().values()) > 500


def test_what_redisbloom_says_of_its_filters(moved):
    """INFO and DEBUG reply as RedisBloom does, except for the size, which depends on how memory is allocated."""
    _, client, before = moved
    for key, entry in MANIFEST.items():
        lines = before[key]["lines"]
        lines = lines.decode() if isinstance(lines, bytes) else [line.decode() for line in lines]
        assert lines == entry["debug"]
        info = pairs(client.execute_command(f"{entry['type']}.INFO", key))
        assert {name.decode(): value for name, value in info.items()} == entry["info"] | {"Size": info[b"Size"]}


# ---- ways out of memory and back ------------------------------------------------------------------------------------


def dump_and_restore(client, key):
    client.restore("there", 0, client.dump(key), replace=True)


def copy(client, key):
    assert client.copy(key, "there", replace=True)


def dump_and_load(client, key):
    client.delete("there")
    prefix = arrivals()[key].family
    load_pieces(client, "there", prefix, pieces(client, key, prefix))


@pytest.mark.parametrize("way", [dump_and_restore, copy, dump_and_load], ids=lambda way: way.__name__)
@EVERY_SERVER
def test_to_another_key(moved, way):
    _, client, before = moved
    after = {}
    for name, arrival in arrivals().items():
        way(client, name)
        after[name] = snapshot(client, "there", arrival)
    client.delete("there")
    must_be_equal(before, after)


@EVERY_SERVER
def test_rename(moved):
    _, client, before = moved
    after = {}
    for name, arrival in arrivals().items():
        client.rename(name, "there")
        after[name] = snapshot(client, "there", arrival)
        client.rename("there", name)
    must_be_equal(before, after)


@EVERY_SERVER
def test_reload(moved):
    _, client, before = moved
    assert client.execute_command("DEBUG", "RELOAD") == b"OK"
    must_be_equal(before, snapshots(client))


@pytest.mark.parametrize("way", ["rdb", "aof", "aof rewritten as rdb", "aof rewritten as commands"])
@EVERY_SERVER
def test_restart(new_server, moved, way):
    _, _, before = moved
    server = new_server(config={} if way == "rdb" else APPEND_ONLY)
    with server.client() as client:
        client.config_set("aof-use-rdb-preamble", "no" if way.endswith("commands") else "yes")
        move_all_in(client)
        if way == "rdb":
            client.save()
        elif "rewritten" in way:
            rewrite(server, client)
        if way != "rdb":
            assert client.execute_command("DEBUG", "LOADAOF") == b"OK"
            must_be_equal(before, snapshots(client))
    server.restart(kill=True)
    with server.client() as client:
        must_be_equal(before, snapshots(client))


@EVERY_SERVER
def test_replicas(new_server, moved):
    """One replica exists from the start, and one joins later. Both stay equal to the primary when items are added."""
    _, _, before = moved
    primary = new_server()
    early = primary.replica()
    with primary.client() as client:
        move_all_in(client)
        late = primary.replica()
        primary.wait_for_replicas()
        for replica in (early, late):
            with replica.client() as other:
                must_be_equal(before, snapshots(other))
        # The items are numbers, since some of these filters accept nothing else.
        for name, arrival in arrivals().items():
            command = ["CF.INSERT", name, "ITEMS"] if arrival.family == "CF" else ["BF.MADD", name]
            for items in batches([str(number) for number in range(1_000_000, 1_000_600)], 100):
                client.execute_command(*command, *items)
        primary.wait_for_replicas()
        after = snapshots(client)
        assert not [name for name in before if before[name]["digest"] == after[name]["digest"]]
        for replica in (early, late):
            with replica.client() as other:
                must_be_equal(after, snapshots(other))


@EVERY_SERVER
def test_imports_are_replicated_with_their_data(new_server):
    """An import from a key is replicated with the key's data, because the key may be different on a replica, or no
    longer exist."""
    names = ["go-zero", "bits-and-blooms/big-endian", "guava/1/LONG", "redisson/KRYO5", "valkey-bloom/scaled/BF.LOAD"]
    server = new_server(config=APPEND_ONLY)
    with server.client() as client:
        effects = Effects(server)
        for name in names:
            arrivals()[name].move_in(client, name)
        commands = [command for command in effects.new() if command[0].lower() not in (b"set", b"hset", b"del")]
        commands = [[command[0].upper(), *command[1:]] for command in commands]
        assert [command[:2] for command in commands] == [
            [b"BF.LOAD" if name.endswith("BF.LOAD") else b"BF.IMPORT", name.encode()] for name in names
        ]
        assert [b"DATA" in command for command in commands] == [True, False, False, True, False]
        before = {name: snapshot(client, name, arrivals()[name]) for name in names}
    server.kill()
    server.start()
    with server.client() as client:
        must_be_equal(before, {name: snapshot(client, name, arrivals()[name]) for name in names})


# ---- RedisBloom: files, payloads, pieces ----------------------------------------------------------------------------


@EVERY_SERVER
def test_a_file_of_redisbloom(spec, moved):
    """Puts a dump.rdb of Redis 8 into a server's folder. A server that doesn't know its RDB version says so and exits.
    """
    _, _, before = moved
    is_foreign = spec.product == "valkey" or spec.version < (8,)
    with Server(spec) as server:
        server.kill()
        shutil.copy(REDISBLOOM_RDB, server.directory / "dump.rdb")
        if is_foreign:
            with pytest.raises(ServerFailed, match="Can't handle RDB format version 12"):
                server.start()
            if spec.product == "redis" or spec.version < (9,):
                return
            server.config["rdb-version-check"] = "relaxed"
        server.start()
        with server.client() as client:
            assert sorted(client.keys()) == sorted(key.encode() for key in MANIFEST)
            for key in MANIFEST:
                must_be_equal({key: before[key]}, {key: snapshot(client, key, arrivals()[key])})
        server.check()


@EVERY_SERVER
def test_payloads_of_redisbloom(moved):
    """Restores payloads as DUMP returned them. A server that doesn't accept their RDB version says so."""
    _, client, before = moved
    takes = client.dump("bf:default")
    for key, entry in MANIFEST.items():
        if not entry["dump_base64"]:
            continue
        payload = base64.b64decode(entry["dump_base64"])
        assert payload == sealed(ORIGINALS[key.encode()], version_of(payload))
        if version_of(payload) == version_of(takes):
            client.restore("there", 0, payload, replace=True)
            must_be_equal({"": before[key]}, {"": snapshot(client, "there", arrivals()[key])})
        else:
            with pytest.raises(redis.ResponseError, match="DUMP payload version or checksum are wrong"):
                client.restore("there", 0, payload, replace=True)
    client.delete("there")


@EVERY_SERVER
def test_dump_gives_redisblooms_value_back(moved):
    """DUMP returns, byte for byte, the values that RedisBloom wrote."""
    _, client, _ = moved
    for key, value in ORIGINALS.items():
        dump = client.dump(key)
        assert Value.parse(dump[:-10]) == Value.parse(value)
        assert dump[:-10] == value


@EVERY_SERVER
def test_a_file_gives_redisblooms_values_back(new_server):
    """The way back: after SAVE, each value in the file has the bytes of the original."""
    server = new_server()
    with server.client() as client:
        for key in MANIFEST:
            arrivals()[key].move_in(client, key)
        client.save()
    assert values_of((server.directory / "dump.rdb").read_bytes()) == ORIGINALS


def scanned(key: str) -> list[tuple[int, bytes]]:
    return [(iterator, base64.b64decode(piece)) for iterator, piece in MANIFEST[key]["scandump"]]


SCANNED = [key for key, entry in MANIFEST.items() if entry["scandump"]]


def with_iterator_0(parts, chance):
    """The head has iterator 0, as in append-only files of versions up to 2.2.6."""
    (_, head), *chunks = parts
    return [(0, head), *chunks]


def before_2_2_1(parts, chance):
    """The head as versions before 2.2.1 wrote it: each capacity is 32 bits wide."""
    return [(1, shortened(parts[0][1], 20)), *parts[1:]]


def before_2_2_0(parts, chance):
    """The head as versions before 2.2.0 wrote it: each capacity is 32 bits wide, and there is no growth factor."""
    return [(1, shortened(parts[0][1], 16)), *parts[1:]]


def shortened(head: bytes, fixed: int) -> bytes:
    links = [head[at : at + 53] for at in range(20, len(head), 53)]
    return head[:fixed] + b"".join(link[:48] + link[52:] for link in links)


def with_an_address(parts, chance):
    """The head of a cuckoo filter as versions 2.2.0 to 2.2.10 wrote it: it ends with a pointer."""
    (_, head), *chunks = parts
    return [(1, head + chance.randbytes(8)), *chunks]


@pytest.mark.parametrize(
    "arranged",
    [list, with_iterator_0, before_2_2_1, before_2_2_0, with_an_address],
    ids=lambda arranged: "in order" if arranged is list else arranged.__name__,
)
def test_pieces_of_redisbloom(moved, arranged):
    """The filter exists when all chunks have arrived, and not before. tests/foreign checks other orders and cuts."""
    _, client, before = moved
    chance = random.Random(arranged.__name__)
    families = {with_iterator_0: "BF", before_2_2_1: "BF", before_2_2_0: "BF", with_an_address: "CF"}
    for key in SCANNED:
        prefix = MANIFEST[key]["type"]
        if prefix != families.get(arranged, prefix) or (arranged is before_2_2_0 and key == "bf:exp4"):
            continue  # this filter needs its growth factor, 4
        parts = scanned(key)
        *most, last = parts if arranged is list else arranged(parts, chance)
        client.delete("there")
        load_pieces(client, "there", prefix, most)
        assert client.exists("there") == 0
        load_pieces(client, "there", prefix, [last])
        must_be_equal({"": before[key]}, {"": snapshot(client, "there", arrivals()[key])})
    client.delete("there")


def test_pieces_go_back_to_redisbloom(moved):
    _, client, _ = moved
    for key in SCANNED:
        assert pieces(client, key, MANIFEST[key]["type"]) == scanned(key)


def test_an_iterator_may_point_anywhere(moved):
    """As in RedisBloom, the reply has the bytes from the iterator's offset to the end of the bit array."""
    _, client, _ = moved
    for key in SCANNED:
        if MANIFEST[key]["type"] == "BF":
            (_, _), (end, chunk), *_ = scanned(key)
            for iterator in (2, 3, 9, end - 1):
                assert client.execute_command("BF.SCANDUMP", key, iterator) == [end, chunk[iterator - 1 :]]


# ---- life afterwards ------------------------------------------------------------------------------------------------


def add_all(client, key: str, items) -> list[int]:
    answers = []
    for batch in batches(items, 500):
        answers += client.execute_command("BF.MADD", key, *batch)
    return answers


@pytest.mark.parametrize("by", ["file", "client"])
@EVERY_SERVER
def test_what_valkey_bloom_writes_when_a_filter_is_created(new_server, by):
    """The same commands, read from valkey-bloom's append-only file or sent by a client, make the same filters. The
    filters also reach a replica and the server's own append-only file."""
    server = new_server(config=APPEND_ONLY)
    chains, commands = {}, []
    for key, shape in {"grows": (5, 0, 0.1, 0.3, 2), "fixed": (64, 0, 0.001, 0.5, 0), "empty": (9, 0, 0.02, 0.5, 1)}.items():
        capacity, _, error_rate, tightening, expansion = shape
        chain = chains[key] = valkey_bloom_chain.__wrapped__(*shape)[0]
        words = ["BF.INSERT", key, "CAPACITY", capacity, "ERROR", error_rate, "TIGHTENING", tightening, "SEED", chain.seed]
        words += ["EXPANSION", expansion] if expansion else ["NONSCALING"]
        first, *items = numbered("v", 0, 60)
        if key == "empty":
            commands.append(words)
            continue
        commands += [[*words, "ITEMS", first], *(["BF.ADD", key, item] for item in items[:30])]
        commands.append(["BF.MADD", key, *items])
        for item in [first, *items]:
            chain.add(item)

    def are_there(client):
        for key, chain in chains.items():
            assert client.type(key) == b"bloomfltr"
            assert Value.parse(client.dump(key)[:-10]) == chain.value()

    if by == "file":
        (path,) = (server.directory / "appendonlydir").glob("*.incr.aof")
        pack = redis.Connection().pack_command
        with path.open("ab") as file:
            for words in [["SELECT", 0], *commands]:
                file.write(b"".join(pack(*words)))
        server.restart(kill=True)
    with server.client() as client:
        if by == "client":
            for words in commands:
                client.execute_command(*words)
        are_there(client)
        replica = server.replica()
        client.execute_command("BF.INSERT", "more", "SEED", bytes(32), "ITEMS", "a")
        wait_for(lambda: client.wait(1, 1000) == 1, "the replica")
        with replica.client() as other:
            are_there(other)
            assert other.dump("more") == client.dump("more")
        replica.destroy()
        client.execute_command("UNLINK", "more")
    server.restart(kill=True)
    with server.client() as client:
        are_there(client)


def test_what_is_added_to_a_bitmap_is_seen_by_go_zero(server):
    """The bits are those that SETBIT would set, so the script with which go-zero tests items finds them. The source is
    unchanged."""
    members, items = numbered("order", 0, 2000), numbered("new", 0, 500)
    bitmap = (FIXTURES / "go-zero" / "bitmap.bin").read_bytes()
    script = "for _, at in ipairs(ARGV) do if redis.call('GETBIT', KEYS[1], at) == 0 then return 0 end end return 1"
    with server.client() as client:
        client.set("source", bitmap)
        client.execute_command("BF.IMPORT", "key", "GOZERO", "source", "BITS", 40_000)
        assert sum(add_all(client, "key", items)) == len(items)
        assert client.get("source") == bitmap
        (_, _), (_, chunk) = pieces(client, "key", "BF")
        client.set("exported", reversed_bits(chunk[CHUNK_PREFIX:]))
        check = client.register_script(script)

        def tested(item: str) -> int:
            return check(keys=["exported"], args=list(go_zero(item.encode(), 14, 40_000)))

        assert all(tested(item) == 1 for item in members + items)
        strangers = arrivals()["go-zero"].strangers[:3000]
        assert client.execute_command("BF.MEXISTS", "key", *strangers) == [tested(item) for item in strangers]


@pytest.mark.parametrize("name", ["go-zero", "redisson/STRING", "guava/0/INT", "bits-and-blooms/big-endian"])
@EVERY_SERVER
def test_an_import_is_an_event(server, name):
    with server.configured({"notify-keyspace-events": "Ed"}), server.client() as client:
        with server.client() as listener, listener.pubsub() as events:
            events.psubscribe("__keyevent@0__:*")
            events.get_message(timeout=60)
            with client.pipeline(transaction=True) as pipeline:
                pipeline.watch("key")
                arrivals()[name].move_in(client, "key")
                pipeline.multi()
                pipeline.ping()
                with pytest.raises(redis.WatchError):
                    pipeline.execute()
            message = events.get_message(timeout=60)
            assert (message["channel"], message["data"]) == (b"__keyevent@0__:bf.import", b"key")


# ---- a type that is taken -------------------------------------------------------------------------------------------

# A module that has RedisBloom's type, with empty values.
TYPE = """
void *load(void *io, int encoding) { return 0; }
void save(void *io, void *value) {}
void rewrite(void *io, void *key, void *value) {}
void nothing(void *value) {}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    void (*name)(void *, const char *, int, int);
    void *(*type)(void *, const char *, int, void *);
    struct { unsigned long version; void *load, *save, *rewrite, *usage, *digest, *free; void *more[16]; } methods =
        {1, load, save, rewrite, 0, 0, nothing};
    if (get("RedisModule_SetModuleAttribs", &name) || get("RedisModule_CreateDataType", &type)) return 1;
    name(ctx, "other", 1, 1);
    return type(ctx, "MBbloom--", 4, &methods) == 0;
}
"""


@pytest.fixture
def other_module(tmp_path):
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(TYPE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@EVERY_SERVER
def test_another_module_has_the_type(new_server, other_module, moved):
    """Another module has registered MBbloom--, so the server gives values of that type to it. Pieces of Bloom filters
    in RedisBloom's format make keys of Bloomery's own type instead."""
    _, _, before = moved
    server = new_server(config={"loadmodule": str(other_module)})
    assert "another module has the data type MBbloom--" in server.log()
    assert "MBbloomCF" not in server.log() and "bloomfltr" not in server.log()
    with server.client() as client:
        with pytest.raises(redis.ResponseError, match="Bad data format"):
            arrivals()["bf:default"].move_in(client, "key")
        for key in SCANNED:
            load_pieces(client, key, MANIFEST[key]["type"], scanned(key))

        def must_be_there():
            for key in SCANNED:
                seen, home = snapshot(client, key, arrivals()[key]), {"bf": b"bloomery1", "cf": b"MBbloomCF"}[key[:2]]
                # A digest is that of the bytes that are saved, which depend on the type.
                expected = before[key] | {"type": home, "digest": seen["digest"]}
                must_be_equal({key: expected}, {key: seen})

        must_be_there()
        client.execute_command("DEBUG", "RELOAD")
        must_be_there()
        for key in SCANNED:
            client.restore(key, 0, client.dump(key), replace=True)
            assert pieces(client, key, MANIFEST[key]["type"]) == scanned(key)
        must_be_there()


@EVERY_SERVER
def test_another_module_comes_too_late(new_server, other_module):
    server = new_server()
    with server.client() as client:
        arrivals()["bf:default"].move_in(client, "key")
        with pytest.raises(redis.ResponseError):
            client.execute_command("MODULE", "LOAD", str(other_module))
        assert client.execute_command("BF.EXISTS", "key", "user:0") == 1
