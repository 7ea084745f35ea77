"""BF.REBUILD in a server: the filter and its shadow, the new filter, stay together in everything that a server does
with a key. The time to live stays, and the key has the right type in each phase. A rebuild needs memory and
permissions.
"""

import contextlib

import pytest
import redis

from kit.arrivals import OLDEST, ORIGINALS, valkey_bloom_chain
from kit.filters import PROBES, SMALL, Grower, differences, pairs, snapshot, snapshots
from kit.foreign import Value, sealed
from kit.servers import APPEND_ONLY, wait_for

EVERY_SERVER = pytest.mark.every_server("the server saves, replicates, and knows users and scripts")

BLOOM = [kind for kind in SMALL if kind.family == "BF"]
NOT_RUNNING = "no rebuild is running"


def begin_all(client) -> list[str]:
    """Makes filters of every kind and from other systems, each with a shadow that has some items. The shadows of
    counting filters have missed a delete. Returns the keys."""
    keys = []
    for kind in BLOOM:
        key = f"{kind.name}/rebuilding"
        assert client.execute_command(*kind.reservation(key)) == b"OK"
        getattr(Grower(client, kind, key), kind.states[-1])()
        keys.append(key)
    client.execute_command("BF.IMPORT", "go-zero", "GOZERO", "nothing", "BITS", 2000)
    client.restore("redisbloom", 0, sealed(Value.parse(ORIGINALS[b"bf:empty"]).dump(), OLDEST))
    client.restore("valkey", 0, sealed(valkey_bloom_chain(5, 20, 0.05, 0.5, 2)[0].value().dump(), OLDEST))
    keys += ["go-zero", "redisbloom", "valkey"]
    for key in keys:
        assert client.execute_command("BF.REBUILD", key, "BEGIN", "CAPACITY", 1000) == b"OK"
        with contextlib.suppress(redis.ResponseError):  # some are full
            client.execute_command("BF.ADD", key, "in both")
        assert client.execute_command("BF.REBUILD", key, "ADD", "member:1", "backfilled") == b"OK"
        if key.startswith("counting"):
            assert client.execute_command("BF.DEL", key, "member:5") == 1
    return keys


def look(client, key) -> dict:
    """Everything that a client can see of a filter and its shadow."""
    return {**snapshot(client, key), "status": client.execute_command("BF.REBUILD", key, "STATUS")}


def looks(client, keys) -> dict[str, dict]:
    return {key: look(client, key) for key in keys}


def status(client, key) -> dict:
    return pairs(client.execute_command("BF.REBUILD", key, "STATUS"))


@EVERY_SERVER
def test_through_every_way_of_keeping_data(new_server):
    """A rebuild survives DUMP, COPY, RENAME, DEBUG RELOAD, and restarts from the append-only file, whether the file is
    as it was first written or was rewritten in either form."""
    server = new_server(config={**APPEND_ONLY, "save": ""})
    with server.client() as client:
        keys = begin_all(client)
        before = looks(client, keys)
        assert all(seen["status"][1] == b"running" for seen in before.values())
        assert len({seen["digest"] for seen in before.values()}) == len(before)
        assert pairs(before["counting-4/rebuilding"]["status"])[b"Deletes missed"] == 1
        for key in keys:
            client.restore("restored", 0, client.dump(key), replace=True)
            client.copy(key, "copied", replace=True)
            client.rename("restored", "renamed")
            for other in ("renamed", "copied"):
                assert differences({key: before[key]}, {key: look(client, other)}) == []
        client.delete("renamed", "copied")
        assert client.execute_command("DEBUG", "RELOAD") == b"OK"
        assert differences(before, looks(client, keys)) == []
    server.restart(kill=True)  # from the append-only file as it was written
    for preamble in ("yes", "no"):
        with server.client() as client:
            assert differences(before, looks(client, keys)) == []
            client.config_set("aof-use-rdb-preamble", preamble)
            client.bgrewriteaof()
            wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the rewrite")
            wait_for(lambda: not client.info("persistence")["aof_rewrite_scheduled"], "the rewrite")
            assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"
        server.restart(kill=True)
    with server.client() as client:
        assert differences(before, looks(client, keys)) == []
        # Every rebuild can be committed or aborted.
        for number, key in enumerate(keys):
            assert client.execute_command("BF.REBUILD", key, ["COMMIT", "ABORT"][number % 2]) == b"OK"
            assert status(client, key) == {b"Status": b"none"}
            if number % 2 == 0:
                assert client.execute_command("BF.EXISTS", key, "backfilled") == 1
                assert pairs(client.execute_command("BF.STATS", key))[b"Origin"] == b"bloomery"


@EVERY_SERVER
def test_replicas_see_every_phase(new_server):
    primary = new_server()
    replica = primary.replica(module_args=["MAX_FILTER_BYTES", "1"], config={"maxmemory": "1mb"})
    with primary.client() as client, replica.client() as other:
        keys = begin_all(client)
        primary.wait_for_replicas()

        def rebuilds(client) -> dict:
            """The rebuild of each key, as BF.INFO shows it. A replica refuses BF.REBUILD STATUS like any write command.
            """
            return {key: pairs(client.execute_command("BF.STATS", key))[b"Rebuild"] for key in keys}

        def equal(server) -> bool:
            return differences(snapshots(client, keys), snapshots(server, keys)) == []

        assert rebuilds(client) == rebuilds(other) and all(rebuilds(client).values())
        assert equal(other)
        late = primary.replica()
        with late.client() as joined:
            assert equal(joined)
            for number, key in enumerate(keys):
                client.execute_command("BF.REBUILD", key, "ADD", *PROBES[:50])
                client.execute_command("BF.REBUILD", key, ["COMMIT", "ABORT"][number % 2])
            primary.wait_for_replicas()
            assert equal(other) and equal(joined)
            assert not any(rebuilds(joined).values())


@EVERY_SERVER
def test_types_and_times_to_live(new_server):
    """A filter from RedisBloom or valkey-bloom has Bloomery's type while it has a shadow, and its own type again if the
    shadow is dropped."""
    server = new_server(config=APPEND_ONLY)
    with server.client() as client:
        for key, payload, home in [
            ("redisbloom", Value.parse(ORIGINALS[b"bf:empty"]).dump(), b"MBbloom--"),
            ("valkey", valkey_bloom_chain(5, 20, 0.05, 0.5, 2)[0].value().dump(), b"bloomfltr"),
        ]:
            client.restore(key, 0, sealed(payload, OLDEST))
            client.execute_command("BF.ADD", key, "before")
            client.pexpire(key, 1_000_000)
            before = snapshot(client, key)
            expires = client.execute_command("PEXPIRETIME", key)

            def kinds(kind, key=key):
                info = client.info("bf")
                assert client.type(key) == kind
                assert client.execute_command("PEXPIRETIME", key) == expires
                return sum(info[f"bf_{name}_filters"] for name in "fixed scaling counting window foreign".split())

            assert client.type(key) == home
            count = kinds(home)
            client.execute_command("BF.REBUILD", key, "BEGIN")
            assert kinds(b"bloomery1") == count
            assert client.execute_command("BF.EXISTS", key, "before") == 1
            client.execute_command("BF.REBUILD", key, "ABORT")
            assert kinds(home) == count
            assert differences({key: before}, {key: snapshot(client, key)}) == []
            client.execute_command("BF.REBUILD", key, "BEGIN")
            client.execute_command("BF.REBUILD", key, "ADD", "after")
            client.execute_command("BF.REBUILD", key, "COMMIT")
            assert kinds(b"bloomery1") == count
            assert client.execute_command("BF.MEXISTS", key, "before", "after") == [0, 1]
        # A filter without a time to live gets none.
        client.execute_command("BF.RESERVE", "plain", 0.01, 100)
        client.execute_command("BF.REBUILD", "plain", "BEGIN")
        assert client.ttl("plain") == -1
        client.expire("plain", 1000)
        client.execute_command("BF.REBUILD", "plain", "COMMIT")
        assert client.ttl("plain") > 900
        times = {key: client.execute_command("PEXPIRETIME", key) for key in client.keys()}
    server.restart(kill=True)
    with server.client() as client:
        assert {key: client.execute_command("PEXPIRETIME", key) for key in client.keys()} == times
        assert client.info("bf")["bf_foreign_filters"] == 0 and client.info("bf")["bf_scaling_filters"] == 3


@EVERY_SERVER
def test_a_shadow_goes_with_its_key(server):
    with server.client() as client:
        for end in (["DEL", "k"], ["UNLINK", "k"], ["FLUSHALL"], ["PEXPIRE", "k", 1], ["SET", "k", "text"]):
            client.execute_command("BF.RESERVE", "k", 0.01, 5_000_000)
            alone = client.memory_usage("k")
            client.execute_command("BF.REBUILD", "k", "BEGIN")
            assert 1.9 < client.memory_usage("k") / alone < 2.1
            client.execute_command("BF.REBUILD", "k", "ADD", "a")
            client.execute_command(*end)
            wait_for(lambda: client.info("bf")["bf_cell_bytes"] == 0, f"the memory after {end}")
            client.delete("k")
        # ABORT frees the shadow, and COMMIT the old filter.
        client.execute_command("BF.RESERVE", "k", 0.01, 5_000_000)
        cells = client.info("bf")["bf_cell_bytes"]
        for end in ("ABORT", "COMMIT"):
            client.execute_command("BF.REBUILD", "k", "BEGIN")
            client.execute_command("BF.REBUILD", "k", end)
            wait_for(lambda: client.info("bf")["bf_cell_bytes"] == cells, f"the memory after {end}")


@EVERY_SERVER
def test_in_transactions_and_scripts(server):
    with server.client() as client:
        client.execute_command("BF.RESERVE", "k", 0.01, 100)
        with client.pipeline(transaction=True) as pipeline:
            for words in (["BEGIN"], ["ADD", "a"], ["COMMIT"]):
                pipeline.execute_command("BF.REBUILD", "k", *words)
            assert pipeline.execute() == [b"OK"] * 3
        script = "return redis.call('BF.REBUILD', KEYS[1], unpack(ARGV))"
        assert client.eval(script, 1, "k", "BEGIN") == b"OK"
        assert client.eval(script, 1, "k", "ADD", "a", "b") == b"OK"
        # COMMIT changes a watched key.
        with client.pipeline(transaction=True) as pipeline:
            pipeline.watch("k")
            client.execute_command("BF.REBUILD", "k", "COMMIT")
            pipeline.multi()
            pipeline.ping()
            with pytest.raises(redis.WatchError):
                pipeline.execute()
        assert client.execute_command("BF.MEXISTS", "k", "a", "b") == [1, 1]
