"""BF.MERGE, BF.INTERSECT and BF.EQUAL on a server: how they are replicated and written to the append-only file, which
keys each command has, and how they handle filters of 1 GiB. The Rust tests check the results without a server."""

import pytest
import redis

from kit.appendonly import Effects
from kit.filters import KINDS, Grower, differences, members, snapshot, snapshots
from kit.servers import wait_for

EVERY_SERVER = pytest.mark.every_server("the server replicates, watches keys, routes by slot and knows users")

OTHERS = ("several-chunks", "window-every", "window-ttl")
BLOOM = [kind for kind in KINDS if kind.family == "BF" and kind.name not in OTHERS]
GIB = 1 << 30


def alike(client, kind, count=3):
    """Makes filters of one kind with the same parameters and seed, but different items."""
    keys = [f"{kind.name}:{number}" for number in range(count)]
    client.execute_command(*kind.reservation(keys[0]))
    for key in keys[1:]:
        client.execute_command("BF.RESERVE", key, kind.error_rate, kind.capacity, "LIKE", keys[0])
    for key in keys:
        Grower(client, kind, key).add(members(kind.capacity // 4, key))
    return keys


def are_everywhere(primary, client, other) -> None:
    """Checks that all keys are the same on the replica, and on the primary after it has been killed and restarted."""
    keys = sorted(key.decode() for key in client.keys())
    primary.wait_for_replicas()
    before = snapshots(client, keys)
    assert differences(before, snapshots(other, keys)) == []
    primary.restart(kill=True)
    with primary.client() as after:
        assert differences(before, snapshots(after, keys)) == []


@EVERY_SERVER
def test_replicas_and_the_append_only_file_come_to_the_same(new_server):
    primary = new_server(config={"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": 0})
    replica = primary.replica(module_args=["MAX_FILTER_BYTES", "1"])
    effects = Effects(primary)
    with primary.client() as client, replica.client() as other:
        for kind in BLOOM:
            a, b, c = alike(client, kind)
            effects.new()
            assert client.execute_command("BF.MERGE", a, b) == b"OK"
            assert client.execute_command("BF.MERGE", f"{a}/new", a, b, c) == b"OK"
            written = [[b"BF.MERGE", a, b], [b"BF.MERGE", f"{a}/new", a, b, c]]
            if "window" not in kind.name:
                client.execute_command("BF.INTERSECT", b, a, c)
                written.append([b"BF.INTERSECT", b, a, c])
            expected = [[word if isinstance(word, bytes) else word.encode() for word in words] for words in written]
            assert effects.new() == expected
            for key in (a, f"{a}/new"):
                answers = client.execute_command("BF.MEXISTS", key, *members(kind.capacity // 4, a))
                assert set(answers) == {1}, key
        are_everywhere(primary, client, other)


@pytest.mark.parametrize("options", ["EXPANSION 2", "LAYOUT QUOTIENT", "COUNTING", "WINDOW 3 LAYOUT QUOTIENT"])
def test_tables_of_different_sizes_and_error_rates(server, options):
    """A prefix in one table may stand for several items of the other."""
    items = {"exact": members(3000), "vague": members(300, "other")}
    with server.client() as client:
        client.execute_command("BF.RESERVE", "exact", "1e-9", 10, *options.split(), "SEED", 7)
        client.execute_command("BF.RESERVE", "vague", "0.3", 1, *options.split(), "SEED", 7)
        for key, added in items.items():
            client.execute_command("BF.MADD", key, *added)
        for first, second in [("exact", "vague"), ("vague", "exact")]:
            client.copy(first, "union", replace=True)
            assert client.execute_command("BF.MERGE", "union", second) == b"OK"
            assert set(client.execute_command("BF.MEXISTS", "union", *items["exact"], *items["vague"])) == {1}
            union = {"x": snapshot(client, "union")}
            client.restore("restored", 0, client.dump("union"), replace=True)
            assert differences(union, {"x": snapshot(client, "restored")}) == []
            if options != "COUNTING":
                client.execute_command("BF.MERGE", "union", second)
                assert differences(union, {"x": snapshot(client, "union")}) == []


@pytest.mark.parametrize("options", ["LAYOUT CLASSIC", "LAYOUT BLOCKED", "LAYOUT PARTITIONED", "TIGHTENING 0.5"])
def test_a_filter_that_adds_layers_and_one_that_has_a_table(server, options):
    """The union can be saved, whichever of the two filters it takes after."""
    items = {"layers": members(500), "table": members(500, "other")}
    with server.client() as client:
        client.execute_command("BF.RESERVE", "layers", 0.01, 100, *options.split(), "SEED", 7)
        client.execute_command("BF.RESERVE", "table", 0.01, 100, "SEED", 7)
        for key, added in items.items():
            client.execute_command("BF.MADD", key, *added)
        for first, second in [("layers", "table"), ("table", "layers")]:
            assert client.execute_command("BF.MERGE", "union", first, second) == b"OK"
            client.restore("restored", 0, client.dump("union"), replace=True)
            assert set(client.execute_command("BF.MEXISTS", "restored", *items["layers"], *items["table"])) == {1}
            client.delete("union")


def file_of(client, key) -> bytes:
    """The filter as `bloomery pull` writes it."""
    iterator, file = 1, b""
    piece = client.execute_command("BF.SCANDUMP", key, 0)[1]
    while piece:
        file += piece
        iterator, piece = client.execute_command("BF.SCANDUMP", key, iterator)
    return file


@EVERY_SERVER
@pytest.mark.parametrize("compression", ["yes", "no"])
def test_blobs_are_merged_as_their_keys_are(new_server, compression):
    """Merges files and DUMP payloads with plain commands, in transactions, and in scripts. The result is the same as
    when the keys are merged. It is also the same on a replica with a different configuration, and when the primary has
    loaded its append-only file."""
    config = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": 0, "rdbcompression": compression}
    primary = new_server(config=config)
    replica = primary.replica(module_args=["MAX_FILTER_BYTES", "1", "THREADS", "0"])
    with primary.client() as client, replica.client() as other:
        for number, kind in enumerate(BLOOM):
            a, b, c = alike(client, kind)
            for to, sources in {a: [b, c], f"{a}/new": [b, a]}.items():
                forms = [[file_of(client, key) for key in sources], [client.dump(key) for key in sources]]
                ways = [
                    lambda *words: client.execute_command(*words),
                    lambda *words: client.pipeline(transaction=True).execute_command(*words).execute()[0],
                    lambda name, key, *words: client.eval(
                        "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))", 1, key, name, *words
                    ),
                ]
                # Every form in every way for one kind, and one of these for each other kind.
                each = [(form, way) for form in forms for way in ways]
                each = each if number == 0 else [each[number % len(each)]]
                keys = [f"{to}/{place}" for place in range(len(each))]
                for key, (form, way) in zip(keys, each, strict=True):
                    client.copy(to, key)
                    assert way("BF.MERGE", key, "BLOB", *form) == b"OK"
                client.execute_command("BF.MERGE", to, *sources)
                expected = snapshot(client, to)
                for key in keys:
                    assert differences({"x": snapshot(client, key)}, {"x": expected}) == [], (kind.name, key)
        are_everywhere(primary, client, other)


@EVERY_SERVER
def test_transactions_that_watch_and_listeners_are_told(new_server):
    server = new_server(config={"notify-keyspace-events": "Kd"})
    with server.client() as client, server.client() as watcher:
        client.execute_command("BF.RESERVE", "a", 0.01, 100)
        client.execute_command("BF.RESERVE", "b", 0.01, 100, "LIKE", "a")
        client.execute_command("BF.ADD", "b", "x")
        listener = watcher.pubsub()
        listener.psubscribe("__keyspace@0__:*")
        for command, watched, aborts in [
            ("BF.MERGE a b", "a", True),
            ("BF.MERGE a b", "a", False),  # adds nothing new
            ("BF.MERGE a b", "b", False),
            ("BF.INTERSECT a a b", "a", True),
            ("BF.EQUAL a b", "a", False),
        ]:
            with client.pipeline() as pipeline:
                pipeline.watch(watched)
                client.execute_command(*command.split())
                pipeline.multi()
                pipeline.ping()
                if aborts:
                    with pytest.raises(redis.WatchError):
                        pipeline.execute()
                else:
                    pipeline.execute()
        client.execute_command("BF.CLEAR", "b")  # causes the last event
        seen = []
        wait_for(lambda: seen[-1:] == [b"bf.clear"] or seen.append((listener.get_message() or {}).get("data")), "events")
        assert [event for event in seen if isinstance(event, bytes)] == [b"bf.merge", b"bf.intersect", b"bf.clear"]


# ---- keys -----------------------------------------------------------------------------------------------------------


@EVERY_SERVER
def test_every_key_is_declared(server):
    # Sent as one word, because redis-py parses the replies of "COMMAND" in its own way.
    with server.client(decode_responses=True) as client:
        for words, flags in [
            (["BF.MERGE", "d", "a", "b", "c"], [["RW", "insert"], *[["RO", "access"]] * 3]),
            (["BF.MERGE", "d", "BLOB"], [["RW", "insert"], ["RO", "access"]]),
            (["BF.MERGE", "d", "a", "BLOB"], [["RW", "insert"], *[["RO", "access"]] * 2]),
            (["BF.INTERSECT", "d", "a", "b"], [["OW", "update"], *[["RO", "access"]] * 2]),
            (["BF.EQUAL", "a", "b"], [["RO", "access"]] * 2),
        ]:
            assert client.execute_command("COMMAND GETKEYS", *words) == words[1:]
            found = client.execute_command("COMMAND GETKEYSANDFLAGS", *words)
            assert found == [list(pair) for pair in zip(words[1:], flags, strict=True)]
        for words in ["BF.MERGE d BLOB data", "BF.MERGE d blob data data"]:
            assert client.execute_command("COMMAND GETKEYS", *words.split()) == ["d"]


# ---- size -----------------------------------------------------------------------------------------------------------


@pytest.mark.large
def test_filters_of_more_than_4_billion_cells(new_server):
    server = new_server(module_args=["THREADS", 1])
    with server.client(socket_timeout=120) as client:
        capacity = 460_000_000
        client.execute_command("BF.RESERVE", "a", 0.01, capacity, "NONSCALING", "LAYOUT", "CLASSIC")
        client.execute_command("BF.RESERVE", "b", 0.01, capacity, "LIKE", "a")
        assert client.execute_command("BF.INFO", "a", "SIZE")[0] > GIB // 2
        blob = {}
        for key, first in [("a", 0), ("b", 1_000_000)]:
            blob[key] = b"".join(number.to_bytes(8, "little") for number in range(first, first + 2_000_000))
            client.execute_command("BF.BULKADD", key, "FIXED", 8, blob[key])
        assert client.execute_command("BF.EQUAL", "a", "b") == 0
        assert client.execute_command("BF.INTERSECT", "both", "a", "b") == b"OK"
        assert client.execute_command("BF.MERGE", "copy", "a") == b"OK"
        assert client.execute_command("BF.EQUAL", "copy", "a") == 1
        assert client.execute_command("BF.MERGE", "copy", "b") == b"OK"
        assert client.execute_command("BF.MERGE", "copy", "b", "a") == b"OK"
        for key in "ab":
            assert client.execute_command("BF.BULKTEST", "copy", "FIXED", 8, blob[key], "COUNT") == 2_000_000
        assert 2_970_000 < client.execute_command("BF.CARD", "copy") < 3_030_000
        assert client.execute_command("BF.BULKTEST", "both", "FIXED", 8, blob["b"][: 8 << 20], "COUNT") >= 1_000_000
        assert 990_000 < client.execute_command("BF.CARD", "both") < 1_010_000
        assert snapshot(client, "copy")["info"][b"Kind"] == b"fixed"
