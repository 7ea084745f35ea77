"""The module's sections of INFO. When all keys are gone, every gauge must be 0, however the filters came and went. A
refusal changes only the count of refusals."""

import contextlib
import re
import time
from string import ascii_lowercase

import pytest
import redis
from redis.connection import Connection

from kit.filters import KINDS, Grower, load_pieces, make_all, members, pieces
from kit.metrics import GAUGES, TEXTS, figures, gauges, tenants
from kit.servers import APPEND_ONLY, option, wait_for
from kit.workload import Workload

EVERY_SERVER = pytest.mark.every_server("the server frees, loads and evicts filters")

HAPPENED = {
    *("pool_threads", "pool_forks", "pool_jobs", "offloaded_items", "payloads_refused", "panics"),
    *("waiting_refused", "waiting_dropped", "loads_dropped", "evicted_filters", "creations_refused", "sizes_refused"),
    *(f"adds_refused_{reason}" for reason in ("full", "limit", "memory")),
}
LOAD_BOUNDS = {"loads_max": 64, "load_idle_seconds_max": 300}
BOUNDS = {"clients_waiting_max", "waiting_bytes_max", *LOAD_BOUNDS}
GOZERO = ["BF.IMPORT", "{key}", "GOZERO", "{key}:bits", "BITS", "1024"]


def filters(client) -> dict[str, int]:
    """The number of filters of each kind, if it isn't 0."""
    found = figures(client, "bf_filters")
    return {name.removesuffix("_filters"): value for name, value in found.items() if value}


def all_zero(client) -> bool:
    return not any(gauges(client).values())


def must_become_zero(client) -> None:
    """Waits until every gauge is 0, because large filters are freed on another thread."""
    wait_for(lambda: all_zero(client), "every figure to become 0")


@pytest.fixture
def client(server):
    with server.client() as client:
        must_become_zero(client)
        yield client


def refused(client, *command) -> None:
    with pytest.raises(redis.ResponseError):
        client.execute_command(*command)


@EVERY_SERVER
def test_the_fields(server, client):
    assert set(figures(client)) == GAUGES | HAPPENED | BOUNDS
    loads = {"loads", "load_bytes", "load_held_bytes", "loads_dropped", *LOAD_BOUNDS}
    assert set(figures(client, "bf_memory")) == {"cell_bytes", "freeing_bytes", "evicted_filters"} | loads
    assert {name: value for name, value in figures(client).items() if name in LOAD_BOUNDS} == LOAD_BOUNDS
    # Tools compare the version in MODULE LIST with those of RedisBloom, such as 2.4.0, written as 240 or 20400.
    assert [module[b"ver"] for module in client.module_list() if module[b"name"] == b"bf"] == [20802]
    about = client.info("bf_module")
    assert set(about) == TEXTS and about["bf_implementation"] == "bloomery"
    assert re.fullmatch(r"\d+\.\d+\.\d+", about["bf_version"])
    with server.client(decode_responses=True) as other:
        assert "bf_fixed_filters" in other.execute_command("INFO", "modules")
        assert "bf_fixed_filters" not in other.execute_command("INFO")


def test_filters_are_counted_by_kind(client):
    for kind, command in [
        ("fixed", "BF.RESERVE fixed 0.01 100 NONSCALING"),
        ("scaling", "BF.RESERVE scaling 0.01 100"),
        ("counting", "BF.RESERVE counting 0.01 100 COUNTING"),
        ("window", "BF.RESERVE window 0.01 100 WINDOW 4"),
        ("cuckoo", "CF.RESERVE cuckoo 100"),
        ("foreign", " ".join(GOZERO).replace("{key}", "foreign")),
    ]:
        before = filters(client)
        client.execute_command(*command.split())
        assert filters(client) == {**before, kind: 1}
    client.copy("window", "copied")
    client.rename("fixed", "renamed")
    assert filters(client)["window"] == 2
    sizes = {key: client.execute_command("MEMORY", "USAGE", key) for key in client.keys()}
    # Cells are more than a quarter of the memory of the small filters, and less than all of it.
    assert sum(sizes.values()) / 4 < figures(client)["cell_bytes"] < sum(sizes.values())
    client.delete("copied", "cuckoo", "foreign")
    assert filters(client) == {"fixed": 1, "scaling": 1, "counting": 1, "window": 1}
    client.set("window", "text")  # overwrites a filter
    client.execute_command("BF.INTERSECT", "scaling", "renamed", "renamed")  # also overwrites a filter
    assert filters(client) == {"fixed": 2, "counting": 1}
    client.flushall()
    must_become_zero(client)


def test_cells_follow_growth_rotation_and_clearing(client):
    client.execute_command("BF.RESERVE", "grows", 0.01, 1000)
    sizes = [figures(client)["cell_bytes"]]
    for number in range(4):
        client.execute_command("BF.MADD", "grows", *members(2000, str(number)))
        sizes.append(figures(client)["cell_bytes"])
    assert sizes == sorted(sizes) and sizes[-1] > 8 * sizes[0]
    for command in ["BF.CLEAR grows", "BF.RESERVE w 0.01 100000 WINDOW 3", "BF.ADD w a", "BF.ROTATE w", "BF.CLEAR w"]:
        client.execute_command(*command.split())
    bytes_of = {key: client.execute_command("BF.INFO", key, "SIZE")[0] for key in ["grows", "w"]}
    assert figures(client)["cell_bytes"] == pytest.approx(sum(bytes_of.values()), rel=0.02)
    client.flushall()
    must_become_zero(client)


@EVERY_SERVER
def test_evicted_filters_are_counted(new_server, spec):
    """Neither other keys that are evicted nor filters that are deleted, overwritten, moved or expire are counted."""
    server = new_server(config={"maxmemory-policy": "allkeys-random"})
    with server.client() as client:
        for name in ("deleted", "overwritten", "moved", "expired"):
            client.execute_command("BF.RESERVE", name, 0.01, 1000)
        client.delete("deleted")
        client.set("overwritten", "x")
        client.move("moved", 1)
        client.pexpire("expired", 1)
        wait_for(lambda: not client.exists("expired"), "the filter to expire")
        client.flushall()
        client.mset({f"text:{number}": "x" * 100 for number in range(1000)})
        used = client.info("memory")["used_memory"]
        with server.configured({"maxmemory": used // 2}):
            wait_for(lambda: not client.keys("text:*"), "all keys to be evicted")
        if spec.name != "redis-7.0":  # it does not tell the module the time
            for _ in range(20):
                pipeline = client.pipeline(transaction=False)
                pipeline.execute_command("BF.ADD", "deleted", "x").delete("deleted").set("deleted", "x")
                pipeline.config_set("maxmemory", 1).config_set("maxmemory", 0).execute(raise_on_error=False)
        assert figures(client)["evicted_filters"] == 0
        for command in ("BF.ADD", "CF.ADD"):
            for number in range(50):
                client.execute_command(command, f"{command}:{number}", "x")
        with server.configured({"maxmemory": used // 2}):
            wait_for(lambda: not client.dbsize(), "all filters to be evicted")
        assert figures(client)["evicted_filters"] == 100


@EVERY_SERVER
def test_adds_that_may_not_create_a_filter_are_counted(new_server, spec):
    """A replica and an append-only file do what the primary did, whatever their configuration says."""
    primary = new_server(config=APPEND_ONLY)
    replica = primary.replica(module_args=["AUTO_CREATE", "no"])
    with primary.client() as client:
        client.execute_command("BF.ADD", "seen", "ada")
        client.execute_command("CF.ADD", "cuckoo", "ada")
        client.config_set(option(spec, "auto-create"), "no")
        refused(client, "BF.MADD", "new", "ada", "bob")
        refused(client, "CF.INSERT", "new", "ITEMS", "ada")
        assert figures(client)["creations_refused"] == 2 and not client.exists("new")
        assert client.execute_command("BF.ADD", "seen", "bob") == 1
        assert client.execute_command("BF.INSERT", "new", "CAPACITY", 10, "ITEMS", "ada") == [1]
        primary.wait_for_replicas()
    primary.module_args = ["AUTO_CREATE", "no"]
    primary.restart(kill=True)
    for server in (primary, replica):
        assert server.command("BF.MEXISTS", "seen", "ada", "bob") == [1, 1]
        assert server.command("DBSIZE") == 3


def test_filters_of_other_sizes_are_refused(new_server):
    """Another version wrote the append-only file, and would have given the filter other bits. Without its creation, an
    add would create another filter, so it is refused, too."""
    server = new_server(config=APPEND_ONLY | {"propagation-error-behavior": "ignore"})
    server.command("BF.ADD", "known", "ada")
    server.stop()
    (file,) = (server.directory / "appendonlydir").glob("*.incr.aof")
    with file.open("ab") as end:
        for line in ("BF.RESERVE new 0.01 100 SIZES 1 SEED 7", "BF.ADD new ada", "BF.ADD known bob"):
            end.write(Connection().pack_command(*line.split())[0])
    server.start()
    with server.client() as client:
        assert client.keys() == [b"known"] and client.execute_command("BF.EXISTS", "known", "bob") == 1
        assert figures(client)["sizes_refused"] == 1
    assert "another version of Bloomery, with SIZES 1 instead of 0, computed" in server.log()


def test_adds_that_filters_refuse_are_counted_by_reason(new_server, spec):
    """The counts aren't saved. An add that only the shadow of a rebuild refuses isn't refused."""
    server = new_server(config=APPEND_ONLY, module_args=["CF_MAX_EXPANSIONS", 1])

    def counts() -> list[int]:
        found = figures(client)
        stats = {key: client.execute_command(f"{family}.STATS", key) for family, key in (("BF", "fixed"), ("CF", "cuckoo"))}
        of = {key: sum(reply[reply.index(b"Adds refused") + 1][1::2]) for key, reply in stats.items()}
        return [*(found[f"adds_refused_{reason}"] for reason in ("full", "limit", "memory")), of["fixed"], of["cuckoo"]]

    with server.client() as client:
        for command in (
            "BF.RESERVE fixed 0.01 2 NONSCALING", "BF.MADD fixed a b", "BF.RESERVE grows 0.01 2", "BF.MADD grows a b",
            "BF.RESERVE rebuilt 0.01 9", "CF.RESERVE cuckoo 4", "BF.REBUILD rebuilt BEGIN CAPACITY 1 NONSCALING ONFULL ERROR",
        ):  # fmt: skip
            client.execute_command(*command.split())
        assert client.execute_command("BF.MADD", "rebuilt", "a", "b", "c") == [1, 1, 1]
        refused(client, "BF.REBUILD", "rebuilt", "COMMIT")
        assert counts() == [0, 0, 0, 0, 0]
        refused(client, "BF.ADD", "fixed", "c")
        with server.configured({option(spec, "max-filter-bytes"): "1"}):
            refused(client, "BF.ADD", "grows", "c")
        for item in members(8):
            with contextlib.suppress(redis.ResponseError):
                client.execute_command("CF.ADD", "cuckoo", item)
        full, limit, memory, of_fixed, of_cuckoo = counts()
        assert (full, memory, of_fixed) == (1, 1, 1) and limit == of_cuckoo >= 4
    server.restart()
    with server.client() as client:
        assert counts() == [0, 0, 0, 0, 0]


ACROSS = ["num_objects", "num_filters_across_objects", "num_items_across_objects", "capacity_across_objects"]


def counted(client) -> list[int]:
    """The totals for all Bloom filters, which INFO reports under valkey-bloom's names."""
    found = figures(client, "bf_bloom_core_metrics")
    return [found[f"bloom_{name}"] for name in ACROSS]


def in_keys(client) -> list[int]:
    """The totals that `counted` should return, added up from the BF.INFO of each key."""
    sums = [0, 0, 0, 0]
    for key in client.keys():
        if holds_a_filter(client, key):
            try:
                info = client.execute_command("BF.INFO", key)
            except redis.ResponseError:  # a cuckoo filter
                continue
            found = dict(zip(info[::2], info[1::2]))
            fields = [found[name] for name in (b"Number of filters", b"Number of items inserted", b"Capacity")]
            sums = [one + more for one, more in zip(sums, [1, *fields])]
    return sums


@EVERY_SERVER
def test_what_filters_have_is_summed(server, client):
    """The totals are right after every way to change a filter. Most of these commands don't change the number of items
    by the number of items that were sent. So are the sums of tenants, each of which has the filters of a letter: they
    are the same when all keys are counted again."""
    with server.configured({option(server.spec, "tenants"): LETTERS, "hz": 500}):
        change_filters_in_every_way(client, option(server.spec, "tenants"))


LETTERS = " ".join(f"{letter} 0 0" for letter in ascii_lowercase)


def change_filters_in_every_way(client, tenants_option: str) -> None:
    def check(what) -> None:
        assert counted(client) == in_keys(client), what
        before = tenants(client)
        for prefixes in ("none", LETTERS):
            client.config_set(tenants_option, prefixes)
        wait_for(lambda: not client.info("bf_tenants")["bf_tenants_being_counted"], "all keys to be counted")
        assert tenants(client) == before, what

    for command in [
        "BF.RESERVE tiny 0.01 2", *(f"BF.ADD tiny {number}" for number in range(20)), "BF.RESERVE any 0.01 2 ONFULL SATURATE",
        *(f"BF.ADDNX any {number}" for number in range(9)), "BF.ADD grows a", "BF.ADD grows a", "BF.MADD grows a b c", "BF.ADDNX grows d", "BF.INSERT new CAPACITY 10 ITEMS a b",
        "BF.RESERVE small 0.01 10", ["BF.MADD", "small", *members(1000)], ["BF.BULKADD", "small", "FIXED", "2", "aabbcc"],
        "BF.RESERVE shards 0.01 100000 SHARDS 64", ["BF.MADD", "shards", *members(100)], "BF.ADD shards one",
        ["BF.BULKADD", "shards", "FIXED", "4", b"".join(number.to_bytes(4, "little") for number in range(40_000))],
        "BF.ADD shards another", "BF.RESERVE like 0.01 100000 LIKE shards", "BF.ADD like x", "BF.MERGE shards like",
        "BF.RESERVE counts 0.01 100 COUNTING", "BF.MADD counts a b c a", "BF.DEL counts a", "BF.DEL counts a",
        "BF.MDEL counts b c x", "BF.RESERVE tables 0.01 20 COUNTING EXPANSION 2 LAYOUT QUOTIENT",
        ["BF.MADD", "tables", *members(200)], ["BF.MDEL", "tables", *members(150)], "BF.DEL tables none",
        "BF.RESERVE window 0.01 50 WINDOW 3 ONFULL FORGET LAYOUT QUOTIENT", ["BF.MADD", "window", *members(200)],
        "BF.ROTATE window", "BF.ADD window a", "BF.ROTATE window", "BF.ROTATE window", "BF.ROTATE window",
        "BF.RESERVE ring 0.01 50 WINDOW 3", ["BF.MADD", "ring", *members(50)], "BF.ROTATE ring", "BF.ADD ring new", "BF.ROTATE ring",
        "BF.ROTATE ring", "COPY small grown", "BF.CLEAR grown", "BF.ADD grown a", "RENAME grown grows",
        "BF.REBUILD small BEGIN CAPACITY 5000 ERROR 0.001 NONSCALING", "BF.ADD small both", ["BF.REBUILD", "small", "ADD", *members(9)],
        "BF.REBUILD small COMMIT", "BF.ADD small a", "BF.REBUILD static BEGIN CAPACITY 100 LAYOUT FUSE",
        ["BF.REBUILD", "static", "ADD", *members(90)], "BF.REBUILD static COMMIT", "BF.REBUILD counts BEGIN", "BF.REBUILD counts ABORT",
        "CF.ADD cuckoo a", "BF.RESERVE once 0.01 10 NONSCALING", ["BF.MADD", "once", *members(10)],
    ]:  # fmt: skip
        words = command.split() if isinstance(command, str) else command
        client.execute_command(*words)
        check(command)
    refused(client, "BF.ADD", "once", "no room")
    check("a refusal")
    client.execute_command("BF.RESERVE", "gone", 0.01, 10, "WINDOW", 2, "EVERY", 30)
    client.execute_command("BF.MADD", "gone", *members(10))
    time.sleep(0.1)
    client.execute_command("BF.ADD", "gone", "late")  # the window rotates first
    check("a rotation")
    payload = client.dump("shards")
    client.restore("shards", 0, payload, replace=True)
    wait_for(lambda: counted(client) == in_keys(client), "the filter that was replaced to be freed")
    client.execute_command("BF.ADD", "shards", "and one")
    check("an add to a filter that was restored")


@pytest.mark.parametrize("way", ["DEL", "UNLINK", "FLUSHALL SYNC", "FLUSHALL ASYNC", "FLUSHDB", "expiry", "RESTORE", "SET"])
@EVERY_SERVER
def test_keys_gone_and_all_figures_are_zero(client, way):
    """Removes filters of every kind and in every state, including a large one."""
    keys = make_all(client)
    client.execute_command("BF.RESERVE", "large", 0.01, 20_000_000)
    client.execute_command("BF.MADD", "large", *members(1000))
    keys.append("large")
    assert sum(filters(client).values()) == len(keys)
    match way:
        case "DEL" | "UNLINK":
            client.execute_command(way, *keys)
        case "expiry":
            for key in keys:
                client.pexpire(key, 1)
            wait_for(lambda: not client.exists(*keys), "the keys to expire")
        case "RESTORE":
            client.set("text", "x")
            payload = client.dump("text")
            for key in keys:
                client.restore(key, 0, payload, replace=True)
        case "SET":
            for key in keys:
                client.set(key, "text")
        case _:
            client.execute_command(*way.split())
    must_become_zero(client)


def test_what_comes_by_payload_is_counted_and_what_is_refused_is_not(server, client):
    """A filter that is restored or loaded counts like the original. A refusal changes only the count of refusals."""
    client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    client.config_set("rdbcompression", "no")  # otherwise, a changed byte could stand for the same cells
    try:
        for kind in KINDS:
            state = next(name for name in ["full", "one"] if name in kind.states)
            client.execute_command(*kind.reservation("source"))
            getattr(Grower(client, kind, "source"), state)()
            payload = client.dump("source")
            found = pieces(client, "source", kind.family)
            one = gauges(client)
            client.restore("copy", 0, payload)
            two = gauges(client)
            assert two == {name: 2 * value for name, value in one.items()}
            load_pieces(client, "loaded", kind.family, found)
            assert gauges(client) == {name: 3 * value for name, value in one.items()}
            client.delete("copy", "loaded")
            wait_for(lambda one=one: gauges(client) == one, "the copies to be freed")

            before = figures(client)
            broken = bytearray(payload)
            broken[len(payload) // 2] ^= 1
            for bad in [payload[: len(payload) // 2] + payload[-10:], bytes(broken)]:
                with pytest.raises(redis.ResponseError):
                    client.restore("copy", 0, bad)
            load = f"{kind.family}.LOADCHUNK"
            head = found[0][1]
            refused(client, load, "copy", 1, head[:-1])
            refused(client, load, "copy", 1, bytes([head[0] ^ 1]) + head[1:])
            wait_for(lambda before=before: gauges(client) == {n: before[n] for n in GAUGES}, "the refused to be freed")
            assert figures(client) == {**before, "payloads_refused": before["payloads_refused"] + 4}
            client.delete("source")
            must_become_zero(client)
    finally:
        client.config_set("rdbcompression", "yes")
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 0)


def test_other_refusals_change_no_figure(client):
    client.execute_command("BF.ADD", "plain", "a")
    client.execute_command("CF.ADD", "cuckoo", "a")
    client.set("text", "x")
    before = figures(client)
    for command in [
        "BF.RESERVE plain 0.01 100", "BF.RESERVE n 2 100", "BF.RESERVE n 0.01 100000000000000", "BF.ADD text a",
        "CF.ADD plain a", "BF.DEL plain a", "BF.ROTATE plain", "BF.MERGE n missing", "BF.INTERSECT n plain cuckoo",
        "BF.BULKADD plain FIXED 3 ab", "CF.RESERVE n 1 EXPANSION x", "BF.INSERT n NOCREATE ITEMS a",
    ]:  # fmt: skip
        refused(client, *command.split())
        assert figures(client) == before, command


@EVERY_SERVER
def test_loads_that_wait_are_seen_until_they_are_flushed(server, client):
    client.execute_command("BF.RESERVE", "source", 0.01, 3_000_000)
    client.execute_command("BF.ADD", "source", "a")
    found = pieces(client, "source", "BF")
    bytes_ = figures(client)["cell_bytes"]
    client.delete("source")
    with server.client(db=3) as other:
        for key in ["a", "b"]:
            load_pieces(client, key, "BF", found[:-1])
        load_pieces(other, "a", "BF", found[:-1])
        seen = figures(client)
        assert (seen["loads"], seen["load_bytes"], seen["cell_bytes"]) == (3, 3 * bytes_, 3 * bytes_)
        load_pieces(client, "a", "BF", found[:1])  # restarts the load
        assert figures(client)["loads"] == 3
        client.flushdb()
        assert figures(client)["loads"] == 1
        with pytest.raises(redis.ResponseError, match="not found"):
            load_pieces(client, "b", "BF", found[-1:])
        load_pieces(other, "a", "BF", found[-1:])
        assert (figures(client)["loads"], filters(client)) == (0, {"scaling": 1})
        load_pieces(client, "a", "BF", found[:-1])
        client.flushall()
        must_become_zero(client)


def alike(one: dict, other: dict) -> bool:
    """Whether the gauges are equal. How much memory a table has to spare depends on its past."""
    return all(abs(value - other[name]) <= ("bytes" in name) * 0.01 * value for name, value in one.items())


@EVERY_SERVER
def test_after_a_restart_the_figures_are_those_of_before(new_server):
    server = new_server(config={"save": ["3600", "1"]})
    with server.client() as client:
        make_all(client)
        before = gauges(client)
    server.restart()
    with server.client() as client:
        assert alike(gauges(client), before)
        client.execute_command("DEBUG", "RELOAD")
        wait_for(lambda: alike(gauges(client), before), "the old filters to be freed")
        assert figures(client)["payloads_refused"] == 0


@EVERY_SERVER
def test_a_full_resync_leaves_no_figure_behind(new_server):
    primary = new_server()
    with primary.client() as client:
        make_all(client)
        replica = primary.replica()
        with replica.client() as other:
            for _ in range(2):
                wait_for(lambda: alike(gauges(other), gauges(client)), "the same figures")
                other.execute_command("REPLICAOF", "NO", "ONE")
                other.execute_command("BF.ADD", "own", "a")
                other.execute_command("REPLICAOF", "127.0.0.1", primary.port)
                primary.wait_until_online(replica)
            wait_for(lambda: alike(gauges(other), gauges(client)), "the same figures")
            client.flushall()
            primary.wait_for_replicas()
            must_become_zero(client)
            must_become_zero(other)


def test_the_pool(new_server):
    server = new_server(module_args=["THREADS", 1, "OFFLOAD_MIN_ITEMS", 1000])
    with server.client() as client:
        client.execute_command("BF.ADD", "plain", "a")
        assert figures(client)["pool_threads"] == 0  # threads start at first use
        client.execute_command("BF.BULKTEST", "plain", "FIXED", 2, bytes(2 * 5000), "COUNT")
        wait_for(lambda: figures(client)["pool_jobs"] == 1, "the job to end")  # the job ends after its reply
        seen = figures(client)
        assert (seen["pool_threads"], seen["offloaded_items"]) == (1, 5000)
        waiting = [server.client().connection_pool.get_connection() for _ in range(3)]
        *parts, last = waiting[0].pack_command("BF.BULKTEST", "plain", "FIXED", 8, bytes(8 * 4_000_000), "COUNT")
        for other in waiting:
            other.send_packed_command([*parts, last[:-1]])
        for other in waiting:  # all at once, so that the first job hasn't ended when the last arrives
            other.send_packed_command([last[-1:]])
        wait_for(lambda: figures(client)["clients_waiting"] >= 2, "some to wait")
        for other in waiting:
            other.disconnect()  # a running job stops, and waiting jobs are taken out of the queue
        wait_for(lambda: figures(client)["clients_waiting"] == 0, "the jobs to end")
        seen = figures(client)
        assert seen["waiting_dropped"] >= 2 and seen["offloaded_items"] <= 5000 + 4_000_000, seen
        client.flushall()
        must_become_zero(client)


def holds_a_filter(client, key) -> bool:
    """Whether a key of a workload holds a filter, and not the source of an import."""
    return client.type(key) not in (b"string", b"hash", b"none")


def test_random_traffic_leaves_nothing_behind(new_server):
    """Runs all commands in random order, on keys that come and go. Unfinished loads are flushed with the keys."""
    server = new_server()
    with server.client() as client:
        for seed in range(3):
            Workload(seed).run(client, 3000)
            # Expired keys become invisible before their filters are freed.
            wait_for(
                lambda: sum(filters(client).values()) == sum(holds_a_filter(client, key) for key in client.keys()),
                f"as many filters as keys after Workload({seed})",
            )
            assert counted(client) == in_keys(client)
            client.flushall(asynchronous=bool(seed % 2))
            must_become_zero(client)
        assert figures(client)["panics"] == 0
