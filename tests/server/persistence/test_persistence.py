"""A filter survives, bit for bit, everything that a server does to keep its data. Every kind of filter in every state
(`filters.KINDS`) goes through every way out of a server's memory and back: the RDB file, the append-only file rewritten
(as RDB and as commands) and not rewritten, DUMP and RESTORE, COPY, DEBUG RELOAD, and DEBUG LOADAOF. For a restart, the
server is killed with kill -9, so that nothing is saved that the test didn't ask for.
"""

import collections
import contextlib
import random
import re
import struct
import time
from pathlib import Path

import pytest
import redis

from kit.arrivals import move_all_in
from kit.filters import (
    KINDS,
    PROBES,
    SMALL,
    adding,
    differences,
    family,
    load_pieces,
    make_all,
    members,
    pairs,
    pieces,
    snapshot,
    snapshots,
)
from kit.foreign import ValkeyBloomChain
from kit.metrics import figures
from kit.servers import APPEND_ONLY, Server, rewrite, saves_loads, wait_for
from kit.workload import Workload, digests

pytestmark = pytest.mark.every_server("the server writes and reads RDB files, append-only files and DUMP payloads")


def must_be_equal(before, after):
    if different := differences(before, after):
        pytest.fail("not what it was:\n" + "\n".join(different), pytrace=False)


@pytest.fixture(scope="module")
def made(spec):
    """A server with a filter of every kind in every state, a client, and snapshots of the filters. No test changes the
    filters."""
    with Server(spec) as server, server.client() as client:
        keys = make_all(client)
        yield server, client, snapshots(client, keys)
        server.check()


def test_states_are_what_they_are_called(made):
    """If a "grown" chain had one layer, or if counters never saturated, the tests of these states would prove little.
    """
    _, _, before = made
    info = {key: seen["info"] for key, seen in before.items()}
    for kind in KINDS:
        if "grown" in kind.states:
            assert info[f"{kind}/grown"][b"Number of filters"] >= 6
        if kind.name == "scaling":
            assert info["scaling/overfull"][b"Number of filters"] == info["scaling/large"][b"Number of filters"] == 2
        if "saturated" in kind.states:
            assert info[f"{kind}/saturated"][b"Saturated counters"] > 0
        if "rotated" in kind.states:
            assert info[f"{kind}/rotated"][b"Generation"] >= 7
        if "large" in kind.states:
            assert info[f"{kind}/large"][b"Capacity"] > 10 * kind.capacity
        if "shrunk" in kind.states:
            assert info[f"{kind}/shrunk"][b"Capacity"] < info[f"{kind}/large"][b"Capacity"] / 2
        if "one" in kind.states:
            assert before[f"{kind}/one"]["answers"][PROBES.index("member:0")] == 1
        if "deleted" in kind.states:
            assert info[f"{kind}/deleted"][b"Number of items deleted"] == 22
        if "compacted" in kind.states:
            grown, compacted = info[f"{kind}/grown"], info[f"{kind}/compacted"]
            assert compacted[b"Number of filters"] < grown[b"Number of filters"]
            assert 0 < compacted[b"Number of items inserted"] < grown[b"Number of items inserted"] / 2
            assert compacted[b"Number of items deleted"] == 0
    assert 0 < info["window-rotate/overfull"][b"Number of items inserted"] <= 200
    assert info["saturate/overfull"][b"Error rate now"] > info["saturate/overfull"][b"Error rate"]
    assert len({seen["digest"] for seen in before.values()}) == len(before)


def test_dump_and_restore(made):
    _, client, before = made
    for key in before:
        client.restore("restored", 0, client.dump(key), replace=True)
        must_be_equal({key: before[key]}, {key: snapshot(client, "restored")})
        if family(client, key) == "BF":
            assert client.execute_command("BF.EQUAL", key, "restored") == 1, key


def test_a_default_filter_takes_no_more_than_redisblooms(server):
    """RedisBloom's DUMP payload of a default filter is 87 bytes long with one item, and 206 bytes with a hundred."""
    with server.client() as client:
        for items, most in [(1, 87), (100, 206)]:
            client.execute_command("BF.MADD", f"items:{items}", *(f"item:{item}" for item in range(items)))
            dump = client.dump(f"items:{items}")
            assert len(dump) <= most
            client.restore("restored", 0, dump, replace=True)
            assert client.dump("restored") == dump


def test_copy(made):
    _, client, before = made
    for key in before:
        assert client.copy(key, "copied", replace=True)
        must_be_equal({key: before[key]}, {key: snapshot(client, "copied")})


def test_a_copy_shares_nothing(server):
    with server.client() as client:
        keys = make_all(client)
        for key in keys:
            client.copy(key, f"{key}/copy")
        before = snapshots(client, keys)
        for key in keys:
            prefix, copy = family(client, key), f"{key}/copy"
            client.execute_command(*adding(prefix, copy, members(50, "only in the copy")))
            if prefix == "CF":
                client.execute_command("CF.DEL", copy, "only in the copy:0")
                client.execute_command("CF.COMPACT", copy)
                continue
            if key.startswith("window"):
                client.execute_command("BF.ROTATE", copy)
            client.execute_command("BF.CLEAR", copy)
        must_be_equal(before, snapshots(client, keys))


def test_digests_tell_filters_apart(server):
    """Equal digests prove nothing if different filters also have equal ones."""
    plain = "BF.RESERVE {} 0.01 1000 NONSCALING SEED 1"
    makings = [
        [plain],
        ["BF.RESERVE {} 0.01 1000 NONSCALING SEED 2"],
        ["BF.RESERVE {} 0.01 1000 NONSCALING SEED 1 ONFULL SATURATE"],
        ["BF.RESERVE {} 0.01 1000 NONSCALING SEED 1 HASH SIPHASH"],
        [plain, "BF.ADD {} a"],
        [plain, "BF.ADD {} b"],
        ["CF.RESERVE {} 1000 SEED 1"],
        ["CF.RESERVE {} 1000 SEED 1", "CF.ADD {} a"],
        ["CF.RESERVE {} 1000 SEED 1", "CF.ADD {} b"],
    ]
    with server.client() as client:
        for number, commands in enumerate(makings):
            for command in commands:
                client.execute_command(*command.format(number).split())
        seen = client.execute_command("DEBUG", "DIGEST-VALUE", *range(len(makings)))
        assert len(set(seen)) == len(makings), seen


def test_reload(made):
    _, client, before = made
    assert client.execute_command("DEBUG", "RELOAD") == b"OK"
    must_be_equal(before, snapshots(client, before))


def test_rename_move_and_expire(server):
    with server.client() as client, server.client(db=1) as other:
        keys = make_all(client)
        before = snapshots(client, keys)
        for key in keys:
            client.rename(key, "elsewhere")
            client.move("elsewhere", 1)
            other.expire("elsewhere", 1000)
            assert 990 < other.ttl("elsewhere") <= 1000
            other.persist("elsewhere")  # because the server includes the expiry time in the digest
            must_be_equal({key: before[key]}, {key: snapshot(other, "elsewhere")})
            other.delete("elsewhere")


@pytest.mark.parametrize("way", ["rdb", "aof", "aof rewritten as rdb", "aof rewritten as commands"])
def test_restart(new_server, way):
    server = new_server(config={} if way == "rdb" else APPEND_ONLY)
    with server.client() as client:
        preamble = "no" if way.endswith("commands") else "yes"
        client.config_set("aof-use-rdb-preamble", preamble)
        keys = make_all(client)
        client.expireat(keys[0], int(time.time()) + 1000)
        before = snapshots(client, keys)
        if way == "rdb":
            client.save()
        elif "rewritten" in way:
            rewrite(server, client)
        if way != "rdb":
            assert client.execute_command("DEBUG", "LOADAOF") == b"OK"
            must_be_equal(before, snapshots(client, keys))
    server.restart(kill=True)
    with server.client() as client:
        must_be_equal(before, snapshots(client, keys))
        assert 900 < client.ttl(keys[0]) <= 1000


def test_a_restarted_filter_goes_on_as_before(new_server):
    """The next commands have the same replies and effects as without the restart."""
    stays, restarts = new_server(), new_server()
    with stays.client() as client:
        keys = make_all(client)
        with restarts.client() as other:
            for key in keys:
                other.restore(key, 0, client.dump(key))
            other.save()
    restarts.restart(kill=True)
    with stays.client() as client, restarts.client() as other:
        for key in keys:
            prefix = family(client, key)
            for command in [
                adding(prefix, key, members(300, "after the restart")),
                [f"{prefix}.ADDNX", key, "member:0"],
                *([["CF.DEL", key, "after the restart:7"], ["CF.COMPACT", key]] if prefix == "CF" else []),
                *([["BF.MDEL", key, "stuck", "back", "member:1"]] if key.startswith("counting") else []),
                *([["BF.ROTATE", key], ["BF.ADD", key, "rotated:6"]] if key.startswith("window") else []),
            ]:
                assert answer(client, command) == answer(other, command), command
        must_be_equal(snapshots(client, keys), snapshots(other, keys))


def answer(client, command) -> str:
    """The reply, or the error message."""
    try:
        return repr(client.execute_command(*command))
    except redis.ResponseError as error:
        return str(error)


def test_a_window_keeps_its_schedule(new_server):
    """Manual rotations change a window's schedule. A window that forgot them would not rotate for a while."""
    server = new_server()
    every = 400
    with server.client() as client:

        def generation(key: str) -> int:
            return pairs(client.execute_command("BF.STATS", key))[b"Generation"]

        client.execute_command("BF.RESERVE", "stays", 0.01, 100, "WINDOW", 3, "EVERY", every)
        for _ in range(5):
            client.execute_command("BF.ROTATE", "stays")
        client.copy("stays", "copied")
        client.restore("restored", 0, client.dump("stays"))
        client.execute_command("DEBUG", "RELOAD")
        before = generation("stays")
        assert before >= 5
        wait_for(lambda: generation("stays") > before, "the next rotation by the clock", seconds=3 * every / 1000)
        assert generation("copied") == generation("restored") == generation("stays")


@pytest.mark.parametrize("rewritten", [False, True], ids=["", "rewritten on the way"])
def test_replay_of_random_commands(new_server, rewritten):
    """Replaying the append-only file of thousands of random commands restores all data, even if the file was rewritten
    in between."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    server = new_server(config=APPEND_ONLY | {"appendfsync": "no"})
    with server.client() as client:
        workload = Workload(seed)
        workload.run(client, 1000)
        if rewritten:
            client.config_set("aof-use-rdb-preamble", "no")
            client.bgrewriteaof()
            workload.run(client, 1000)
            rewrite(server, client)
        workload.run(client, 1000)
        before = digests(client)
        assert len(before) > 20
    server.restart(kill=True)
    with server.client() as client:
        assert digests(client) == before


@pytest.mark.parametrize("way", ["rdb", "aof", "aof rewritten as commands"])
def test_a_load_that_is_not_complete_is_no_key(new_server, way):
    """Clients are killed in the middle of a load, early or late. There is no key before or after the restart. If the
    file contains the load, another client can continue it."""
    server = new_server(config={} if way == "rdb" else APPEND_ONLY | {"aof-use-rdb-preamble": "no"})
    with server.client() as client:
        sources = make_all(client, [kind for kind in KINDS if kind.name.endswith("several-chunks")])
        parts = {key: pieces(client, key, family(client, key)) for key in sources}
        for key, found in parts.items():
            assert len(found) > 3
            for count in range(1, len(found)):
                with server.client() as loader:
                    load_pieces(loader, f"{key}/{count}", family(client, key), found[:count])
                    client.client_kill_filter(_id=loader.client_id())
        assert sorted(client.keys()) == sorted(map(str.encode, sources))
        before = snapshots(client, sources)
        if way == "rdb":
            client.save()
        elif way != "aof":
            rewrite(server, client)
    server.restart(kill=True)
    with server.client() as client:
        assert sorted(client.keys()) == sorted(map(str.encode, sources))
        must_be_equal(before, snapshots(client, sources))
        for key, found in parts.items():
            prefix = family(client, key)
            for count, part in enumerate(found[1:], 1):
                name = f"{key}/{count}"
                if way == "aof rewritten as commands" or not saves_loads(server.spec):
                    assert answer(client, [f"{prefix}.LOADCHUNK", name, *part]) == "not found"
                else:
                    load_pieces(client, name, prefix, found[count:])
                    must_be_equal({key: before[key]}, {key: snapshot(client, name)})
            load_pieces(client, "anew", prefix, found)
            must_be_equal({key: before[key]}, {key: snapshot(client, "anew")})
            client.delete("anew")


def test_a_filter_of_more_tables_than_any(new_server):
    """A filter can be loaded again, however many tables it has grown to."""
    server = new_server(module_args=["CF_MAX_EXPANSIONS", "65536"])
    with server.client() as client:
        client.execute_command("CF.RESERVE", "tables", 2, "BUCKETSIZE", 1, "EXPANSION", 1)
        for _ in range(10):
            client.execute_command(*adding("CF", "tables", ["the same"] * 1000))
        info = pairs(client.execute_command("CF.INFO", "tables"))
        assert info[b"Number of filters"] >= 4096
        client.restore("restored", 0, client.dump("tables"))
        must_be_equal({"": snapshot(client, "tables")}, {"": snapshot(client, "restored")})


# ---- memory of the child ---------------------------------------------------------------------------------------------

MIB = 1 << 20
SPARSE = 64 * MIB  # bytes of a filter's only array. A page that nobody has written to isn't in memory.


def chain_of_redisbloom(client) -> None:
    head = struct.pack("<QIII", 0, 1, 4, 2) + struct.pack("<QQQdd", SPARSE, 8 * SPARSE, 0, 0.01, 9.585)
    arrays_of_zeros(client, "BF.LOADCHUNK", head + struct.pack("<IQB", 7, 50_000_000, 0))


def cuckoo_filter_of_redisbloom(client) -> None:
    arrays_of_zeros(client, "CF.LOADCHUNK", struct.pack("<QQQQHHH", 0, SPARSE // 4, 0, 1, 4, 20, 1))


def arrays_of_zeros(client, command: str, head: bytes) -> None:
    client.execute_command(command, "k", 1, head)
    for end in range(MIB, SPARSE + 1, MIB):
        client.execute_command(command, "k", end + 1, bytes(MIB))


def chain_of_valkey_bloom(client) -> None:
    """Makes a chain whose second link takes up 66 MiB."""
    client.execute_command("BF.LOAD", "k", ValkeyBloomChain(100, 0.01, 0.5, 500_000, bytes(32)).payload())
    client.execute_command("BF.MADD", "k", *members(110))


@pytest.mark.parametrize(
    "make, bound", [(chain_of_redisbloom, 8), (cuckoo_filter_of_redisbloom, 8), (chain_of_valkey_bloom, 66 + 8)]
)
def test_saving_copies_no_filter(new_server, make, bound):
    """Saving copies no filter as a whole. Only the links of filters from valkey-bloom are copied, one at a time,
    because a link and its head are one string. Compressing zeros needs little memory."""
    server = new_server(config={"rdb-key-save-delay": 500_000})  # a pause in µs after each key, to watch the child
    with server.client() as client:
        client.set("other", "")
        none = added_by_the_child(server, client)
        client.delete("other")
        make(client)
        added = added_by_the_child(server, client) - none
        before = resident(server.process.pid, "VmRSS")
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # resets VmHWM to the current value
        client.execute_command("DUMP", "k")
        dumped = resident(server.process.pid, "VmHWM") - before
        print(f"the child of a BGSAVE added {added / MIB:.1f} MiB, DUMP {dumped / MIB:.1f}")
        assert max(added, dumped) < bound * MIB


def added_by_the_child(server, client) -> int:
    """The largest number of bytes that the child of a BGSAVE had in memory, minus those of the server."""
    pid, most = server.process.pid, 0
    before = resident(pid, "VmRSS")
    client.bgsave()
    while client.info("persistence")["rdb_bgsave_in_progress"]:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError, TypeError):
                most = max(most, resident(child, "VmHWM"))
    assert client.info("persistence")["rdb_last_bgsave_status"] == "ok" and most
    return most - before


def resident(pid, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s*(\d+) kB", status)[1]) << 10


def test_the_servers_own_tools_read_filters(new_server, spec):
    """redis-check-rdb and the surveys of redis-cli know no modules. They get along with filters of every type, and with
    half a load."""
    server = new_server()
    with server.client() as client:
        make_all(client, SMALL)
        move_all_in(client)
        client.set("text", "x")
        (head, *_) = pieces(client, "fixed/full", "BF")
        load_pieces(client, "half", "BF", [head])
        assert figures(client)["loads"] == 1
        types = collections.Counter(client.type(key).decode() for key in client.keys())
        client.save()
    assert set(types) == {"bloomery1", "bloomeryC", "MBbloom--", "MBbloomCF", "bloomfltr", "string"}
    checked = server.check_file("rdb", "dump.rdb")
    assert checked.returncode == 0 and "RDB looks OK" in checked.stdout, checked.stdout
    for survey in ("--bigkeys", "--memkeys"):
        found = server.cli(survey, program=spec.cli)
        for name, count in types.items():
            assert re.search(rf"^{count} {name}s with ", found, re.MULTILINE), (survey, name, found)
    if "--keystats" in server.cli("--help", program=spec.cli):
        found = server.cli("--keystats", program=spec.cli)
        assert all(name in found for name in types), found
