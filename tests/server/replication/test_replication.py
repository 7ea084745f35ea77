"""A replica equals its primary, bit for bit, whatever its own configuration says and whatever was refused. Replicas get
effects, not requests. A command that creates a filter is sent with every parameter and the seed. Only items that
changed something are sent. A command that failed or did nothing isn't sent. The servers run with
`propagation-error-behavior panic`, so a replica that met an error in the stream would no longer be running at the end
of the test.
"""

import collections
import os
import random
import time

import pytest
import redis

from kit.appendonly import Effects
from kit.filters import KINDS, adding, differences, family, load_pieces, make_all, pieces, snapshot, snapshots
from kit.servers import matrix, saves_loads
from kit.workload import Workload, digests

pytestmark = pytest.mark.every_server("the server replicates, and says which command came from a primary")

COMMANDS = 12_000

# Options that differ from the primary's, with limits that are too small for any filter. A replica must accept whatever
# its primary has created.
ODD = """
    ERROR_RATE 0.2 INITIAL_SIZE 3 EXPANSION_FACTOR 0 MAX_FILTER_BYTES 1
    CF_BUCKET_SIZE 7 CF_INITIAL_SIZE 20 CF_MAX_ITERATIONS 1 CF_EXPANSION_FACTOR 0 CF_MAX_EXPANSIONS 1
""".split()
ODDER = ["ERROR_RATE", "1e-9", "INITIAL_SIZE", "100000", "EXPANSION_FACTOR", "32768"]


def must_be_equal(primary, *replicas):
    with primary.client() as client:
        expected = digests(client)
    assert len(expected) > 20
    for replica in replicas:
        with replica.client() as client:
            found = digests(client)
        different = {
            key: (expected.get(key), found.get(key)) for key in expected | found if expected.get(key) != found.get(key)
        }
        assert not different, f"{replica} differs from {primary}"
        assert not [text for text in replica.log().splitlines() if "CRITICAL" in text]


def caught_up(primary, *chain):
    """Waits until all replicas in a chain have everything that the primary has written."""
    for server in (primary, *chain[:-1]):
        server.wait_for_replicas()


def test_random_writes(new_server):
    """Sends thousands of commands to the primary of a chain of two replicas, with full and partial resyncs in between.
    """
    seed = int(os.environ.get("BLOOMERY_SEED") or random.randrange(1 << 32))
    print("BLOOMERY_SEED", seed)
    primary = new_server(config={"repl-backlog-size": "64mb", "appendonly": "yes", "appendfsync": "no"})
    effects = Effects(primary)
    replica = primary.replica(module_args=ODD, config={"repl-diskless-load": "swapdb"})
    second = replica.replica(module_args=ODDER)
    workload = Workload(seed)
    with primary.client() as client:

        def write_and_compare():
            workload.run(client, COMMANDS // 4)
            caught_up(primary, replica, second)
            must_be_equal(primary, replica, second)

        write_and_compare()

        second.kill()  # comes back empty: a full resync while the primary is written to
        workload.run(client, COMMANDS // 8)
        second.start()
        workload.run(client, COMMANDS // 8)
        replica.wait_until_online(second)
        write_and_compare()

        client.execute_command("CLIENT", "KILL", "TYPE", "replica")  # a partial resync
        workload.run(client, COMMANDS // 8)
        primary.wait_until_online(replica)
        write_and_compare()

        replica.kill()  # both replicas have to sync again
        replica.start()
        primary.wait_until_online(replica)
        replica.wait_until_online(second)
        write_and_compare()

        # The test shows little unless each of these verbs was replicated more than ten times. Some commands, such as
        # BF.DEL, seldom have an effect, so it may take a few more rounds.
        bloom = "reserve add madd bulkadd del mdel rotate clear merge intersect loadchunk rebuild".split()
        cuckoo = "reserve add insert del compact loadchunk".split()
        written = list(effects.new())
        for _ in range(5):
            verbs = collections.Counter(words[0].lower().decode() for words in written)
            print(verbs, workload.refused)
            lacking = [verb for verb in [f"bf.{verb}" for verb in bloom] + [f"cf.{verb}" for verb in cuckoo] if verbs[verb] <= 10]
            if not lacking:
                break
            write_and_compare()
            written += effects.new()
    assert not lacking, f"hardly any {lacking}"
    assert sum(words[0] == b"bf.rotate" and len(words) == 4 for words in written) > 30, "hardly a rotation by the clock"
    assert len(workload.refused) > 10


def test_full_resync_of_every_kind(new_server):
    primary = new_server()
    with primary.client() as client:
        keys = make_all(client)
        before = snapshots(client, keys)
    replica = primary.replica(module_args=ODD)
    with replica.client() as client:
        assert differences(before, snapshots(client, keys)) == []


def test_every_kind_grows_the_same(new_server):
    """All states of all kinds are reached by commands while a replica listens."""
    primary = new_server()
    replica = primary.replica(module_args=ODD)
    with primary.client() as client, replica.client() as other:
        keys = make_all(client)
        primary.wait_for_replicas()
        assert differences(snapshots(client, keys), snapshots(other, keys)) == []


def test_half_a_load_is_replicated(new_server):
    """A replica that joins in the middle of a load has the filter when the load is complete, and not before. If the
    replica is promoted in the middle, the load continues on the replica."""
    primary = new_server()
    with primary.client() as client:
        sources = make_all(client, [kind for kind in KINDS if kind.name.endswith("several-chunks")])
        found = {key: pieces(client, key, family(client, key)) for key in sources}

        def load(key: str, target: str, parts) -> None:
            load_pieces(client, target, family(client, key), parts)

        for key, parts in found.items():
            load(key, f"{key}/complete", parts[:2])
            load(key, f"{key}/half", parts[:2])
        replica = primary.replica(module_args=ODD)
        for key, parts in found.items():
            load(key, f"{key}/complete", parts[2:])
            load(key, f"{key}/half", parts[2:-1])
        primary.wait_for_replicas()
        expected = snapshots(client, sources)
    primary.kill()
    with replica.client() as other:
        other.execute_command("REPLICAOF", "NO", "ONE")
        assert len(other.keys()) == 2 * len(sources)
        assert differences(expected, snapshots(other, sources)) == []
        for key, parts in found.items():
            assert differences({key: expected[key]}, {key: snapshot(other, f"{key}/complete")}) == []
            if not saves_loads(primary.spec):
                with pytest.raises(redis.ResponseError, match="not found"):
                    load_pieces(other, f"{key}/half", family(other, key), parts[-1:])
                continue
            load_pieces(other, f"{key}/half", family(other, key), parts[-1:])
            assert differences({key: expected[key]}, {key: snapshot(other, f"{key}/half")}) == []


def test_a_newer_server_replicates_an_older_one(spec, new_server):
    """To upgrade a server without downtime, a newer server first becomes a replica of the older one."""
    oldest = matrix()[0]
    if spec == oldest:
        pytest.skip(f"{spec} is the oldest")
    primary = new_server(spec=oldest)
    with primary.client() as client:
        keys = make_all(client)
        replica = primary.replica(spec=spec, module_args=ODD)
        Workload(1).run(client, 500)
        primary.wait_for_replicas()
        with replica.client() as other:
            assert differences(snapshots(client, keys), snapshots(other, keys)) == []
        must_be_equal(primary, replica)


def test_rotation_by_the_clock_is_the_primarys(new_server):
    """A replica never rotates by itself. It answers by the clock, and begins to rotate when it is promoted."""
    primary = new_server()
    replica = primary.replica()
    with primary.client() as client, replica.client() as other:
        client.execute_command("BF.RESERVE", "window", 0.01, 100, "WINDOW", 3, "EVERY", 400)
        client.execute_command("BF.ADD", "window", "old")
        primary.wait_for_replicas()
        assert other.execute_command("BF.EXISTS", "window", "old") == 1
        time.sleep(1.25)  # three rotations: by now the item is too old
        for reader in (client, other):
            assert reader.execute_command("BF.EXISTS", "window", "old") == 0
            assert reader.execute_command("BF.AGE", "window", "old") == -1
        # Reads rotate nothing.
        assert digests(client) == digests(other)
        assert rotations(replica) == 0
        client.execute_command("BF.ADD", "window", "new")
        primary.wait_for_replicas()
        assert rotations(replica) == 1
        assert digests(client) == digests(other)

        primary.kill()
        other.execute_command("REPLICAOF", "NO", "ONE")
        before = generation(other)
        other.execute_command("BF.ADD", "window", "newer")
        time.sleep(0.45)
        other.execute_command("BF.ADD", "window", "newest")
        assert generation(other) > before
        assert other.execute_command("BF.MEXISTS", "window", "newer", "newest") == [1, 1]
        assert other.execute_command("BF.AGE", "window", "newer") >= 1
        time.sleep(1.25)
        assert other.execute_command("BF.MEXISTS", "window", "newer", "newest") == [0, 0]


def rotations(server) -> int:
    return server.info("commandstats").get("cmdstat_bf.rotate", {"calls": 0})["calls"]


def generation(client) -> int:
    flat = client.execute_command("BF.STATS", "window")
    return flat[flat.index(b"Generation") + 1]


# ---- what goes over the wire ----------------------------------------------------------------------------------------


@pytest.fixture
def wire(new_server):
    """`wire("BF.ADD key item")` runs a command and returns what it writes to replicas, as text."""
    server = new_server(config={"appendonly": "yes", "appendfsync": "always"})
    effects = Effects(server)
    with server.client() as client:

        def run(command: str) -> list[str]:
            try:
                run.reply = client.execute_command(*command.split())
            except redis.ResponseError as error:
                run.reply = error
            return [" ".join(word.decode() for word in words) for words in effects.new()]

        run.client, run.effects = client, effects
        yield run


def test_creation_carries_everything(wire):
    """Whichever command creates a filter, replicas get a RESERVE with every parameter and the seed."""
    tail = "SEED "
    cuckoo = f"BUCKETSIZE 2 MAXITERATIONS 20 EXPANSION 1 HASH XXH3 {tail}"
    created = {
        "BF.ADD a x": f"bf.reserve a 0.01 100 EXPANSION 2 {tail}",
        "BF.MADD b x y": f"bf.reserve b 0.01 100 EXPANSION 2 {tail}",
        "BF.ADDNX c x": f"bf.reserve c 0.01 100 EXPANSION 2 {tail}",
        "BF.INSERT d CAPACITY 7 ERROR 0.5 EXPANSION 3 ITEMS x": f"bf.reserve d 0.5 7 EXPANSION 3 {tail}",
        "BF.INSERT e NONSCALING ITEMS x": f"bf.reserve e 0.01 100 ONFULL ERROR {tail}",
        "BF.RESERVE f 1e-5 10": f"bf.reserve f 0.00001 10 EXPANSION 2 {tail}",
        "BF.RESERVE f2 0.01 10 NONSCALING": f"bf.reserve f2 0.01 10 ONFULL ERROR {tail}",
        "BF.RESERVE g 0.1 10 ONFULL SATURATE SHARDS 4 LAYOUT BLOCKED": (
            "bf.reserve g 0.1 10 ONFULL SATURATE SHARDS 4 LAYOUT BLOCKED SEED "
        ),
        "BF.RESERVE h 0.1 10 TIGHTENING 0.25 HASH SIPHASH": (
            "bf.reserve h 0.1 10 EXPANSION 2 TIGHTENING 0.25 HASH SIPHASH SEED "
        ),
        "BF.RESERVE i 0.1 10 COUNTING": f"bf.reserve i 0.1 10 ONFULL ERROR COUNTING 4 {tail}",
        "BF.RESERVE j 0.1 10 COUNTING 16": f"bf.reserve j 0.1 10 ONFULL ERROR COUNTING 16 {tail}",
        "BF.RESERVE k 0.1 10 WINDOW 3": f"bf.reserve k 0.1 10 WINDOW 3 ONFULL SATURATE {tail}",
        "BF.RESERVE l 0.1 10 WINDOW 3 EVERY 90000 SINCE 5": (
            f"bf.reserve l 0.1 10 WINDOW 3 EVERY 90000 SINCE 5 ONFULL SATURATE {tail}"
        ),
        "BF.RESERVE m 0.1 10 SEED 00BEEF": f"bf.reserve m 0.1 10 EXPANSION 2 {tail}",
        "CF.ADD ca x": f"cf.reserve ca 1024 {cuckoo}",
        "CF.ADDNX cb x": f"cf.reserve cb 1024 {cuckoo}",
        "CF.INSERT cc ITEMS x y": f"cf.reserve cc 1024 {cuckoo}",
        "CF.INSERTNX cd CAPACITY 70 ITEMS x y": f"cf.reserve cd 70 {cuckoo}",
        "CF.RESERVE ce 10": f"cf.reserve ce 10 {cuckoo}",
        "CF.RESERVE cf 30 BUCKETSIZE 4 EXPANSION 3": (
            f"cf.reserve cf 30 BUCKETSIZE 4 MAXITERATIONS 20 EXPANSION 4 HASH XXH3 {tail}"
        ),
        "CF.RESERVE cg 30 MAXITERATIONS 7 EXPANSION 0 HASH SIPHASH": (
            "cf.reserve cg 30 BUCKETSIZE 2 MAXITERATIONS 7 EXPANSION 0 HASH SIPHASH SEED "
        ),
        "CF.RESERVE ch 30 SEED 00BEEF": f"cf.reserve ch 30 {cuckoo}",
    }
    for command, expected in created.items():
        first, *_ = wire(command)
        assert first.startswith(expected), command
        seed = first.removeprefix(expected)
        # The seed has 64 random bits, or 128 for SipHash. A much shorter number would be an extreme coincidence.
        assert seed.lstrip("0") == "beef" if command.endswith("00BEEF") else len(seed) > (24 if "SIPHASH" in command else 8)
    # The parameters copied by LIKE are written out, so that they don't depend on the other key.
    (like,) = wire("BF.RESERVE n 0.1 10 LIKE g")
    (other,) = wire("BF.RESERVE g2 0.1 10 LIKE g")
    assert like.split()[2:] == other.split()[2:]
    assert like.startswith("bf.reserve n 0.1 10 ONFULL SATURATE SHARDS 4 LAYOUT BLOCKED SEED ")


def test_a_window_by_the_clock_carries_its_beginning(wire):
    before = int(time.time() * 1000)
    (line,) = wire("BF.RESERVE w 0.1 10 WINDOW 3 EVERY 90000")
    words = line.split()
    since = int(words[words.index("SINCE") + 1])
    assert before - 100 <= since <= int(time.time() * 1000)


def test_only_effects_are_written(wire):
    wire("BF.RESERVE plain 0.01 4 NONSCALING SEED 1")
    wire("BF.RESERVE counting 0.01 100 COUNTING")
    wire("BF.RESERVE window 0.01 100 WINDOW 2")
    wire("SET text x")
    for command, effects in [
        ("BF.ADD plain a", ["BF.ADD plain a"]),
        ("BF.ADD plain a", []),
        ("BF.ADDNX plain a", []),
        ("BF.ADDNX plain b", ["bf.add plain b"]),
        ("BF.MADD plain a b", []),
        ("BF.MADD plain a c b", ["bf.madd plain c"]),
        # One item fits. The next item doesn't, which ends the command.
        ("BF.MADD plain a d e f", ["bf.madd plain d"]),
        ("BF.ADD plain e", []),
        ("BF.MADD plain e", []),
        ("BF.INSERT plain ITEMS e a", []),
        ("BF.INSERT counting ITEMS y y", ["BF.INSERT counting ITEMS y y"]),
        ("BF.INSERT counting CAPACITY 5 ITEMS x x", ["bf.madd counting x x"]),
        ("BF.ADD counting x", ["BF.ADD counting x"]),
        ("BF.ADDNX counting x", []),
        ("BF.DEL counting x", ["BF.DEL counting x"]),
        ("BF.DEL counting never", []),
        ("BF.MDEL counting never x", ["bf.mdel counting x"]),
        ("BF.MDEL counting never", []),
        ("BF.DEL plain a", []),
        ("BF.DEL nokey a", []),
        ("BF.ADD window a", ["BF.ADD window a"]),
        ("BF.ADD window a", []),
        ("BF.ROTATE window", ["bf.rotate window AT 1 MANUAL"]),
        # The item is recorded in the new generation, too: otherwise it would leave the window too early.
        ("BF.ADD window a", ["BF.ADD window a"]),
        ("BF.ROTATE plain", []),
        ("BF.ROTATE window AT 9", []),
        ("BF.RESERVE plain 0.01 100", []),
        ("BF.RESERVE new 0.01 nonsense", []),
        ("BF.RESERVE text 0.01 100", []),
        ("BF.ADD text a", []),
        ("BF.MADD text a", []),
        ("BF.INSERT new NOCREATE ITEMS a", []),
        ("BF.INSERT new", []),
        ("BF.CLEAR plain", ["BF.CLEAR plain"]),
        ("BF.CLEAR plain", []),
        ("BF.CLEAR nokey", []),
        ("BF.EXISTS plain a", []),
        ("BF.MEXISTS nokey a", []),
        ("BF.STATS plain", []),
        ("BF.CARD plain", []),
        ("BF.COUNT counting x", []),
        ("BF.AGE window a", []),
        ("BF.DEBUG plain", []),
        ("BF.FEEDBACK plain 1 0", []),
        ("BF.SCANDUMP plain 0", []),
        ("BF.EXPORT plain", []),
        ("BF.LOADCHUNK new 1 nonsense", []),
    ]:
        assert wire(command) == effects, (command, wire.reply)


def test_only_effects_on_cuckoo_filters_are_written(wire):
    wire("CF.RESERVE cuckoo 100 SEED 1")
    wire("CF.RESERVE small 2 BUCKETSIZE 1 EXPANSION 0 SEED 3")  # with this seed, x has two different buckets
    wire("BF.RESERVE bloom 0.01 100")
    wire("SET text x")
    for command, effects in [
        ("CF.ADD cuckoo a", ["CF.ADD cuckoo a"]),
        ("CF.ADD cuckoo a", ["CF.ADD cuckoo a"]),
        ("CF.ADDNX cuckoo a", []),
        ("CF.ADDNX cuckoo b", ["CF.ADDNX cuckoo b"]),
        ("CF.INSERT cuckoo ITEMS a c a", ["CF.INSERT cuckoo ITEMS a c a"]),
        ("CF.INSERT cuckoo CAPACITY 70 NOCREATE ITEMS c", ["cf.insert cuckoo ITEMS c"]),
        ("CF.INSERTNX cuckoo ITEMS a d b d", ["cf.insert cuckoo ITEMS d"]),
        ("CF.INSERTNX cuckoo ITEMS a d b", []),
        ("CF.INSERTNX cuckoo ITEMS e f", ["CF.INSERTNX cuckoo ITEMS e f"]),
        ("CF.DEL cuckoo a", ["CF.DEL cuckoo a"]),
        ("CF.DEL cuckoo never", []),
        ("CF.COMPACT cuckoo", ["CF.COMPACT cuckoo"]),
        ("CF.COMPACT cuckoo", []),
        # One item fits, but the next doesn't.
        ("CF.ADD small x", ["CF.ADD small x"]),
        ("CF.INSERT small ITEMS x x x", ["cf.insert small ITEMS x"]),
        ("CF.ADD small x", []),
        ("CF.INSERT small ITEMS x x", []),
        ("CF.RESERVE cuckoo 100", []),
        ("CF.RESERVE new nonsense", []),
        ("CF.RESERVE bloom 100", []),
        ("CF.RESERVE text 100", []),
        ("CF.ADD bloom a", []),
        ("CF.INSERT text ITEMS a", []),
        ("CF.INSERT new NOCREATE ITEMS a", []),
        ("CF.INSERT new", []),
        ("CF.DEL nokey a", []),
        ("CF.DEL bloom a", []),
        ("CF.COMPACT nokey", []),
        ("BF.ADD cuckoo a", []),
        ("BF.CLEAR cuckoo", []),
        ("BF.RESERVE cuckoo 0.01 100", []),
        ("CF.EXISTS cuckoo a", []),
        ("CF.MEXISTS nokey a", []),
        ("CF.COUNT cuckoo a", []),
        ("CF.INFO cuckoo", []),
        ("CF.DEBUG cuckoo", []),
        ("CF.SCANDUMP cuckoo 0", []),
        ("CF.LOADCHUNK new 1 nonsense", []),
    ]:
        assert wire(command) == effects, (command, wire.reply)


def test_a_saturated_counter_writes_nothing(wire):
    wire("BF.RESERVE counting 0.01 100 COUNTING")
    for _ in range(15):
        assert wire("BF.ADD counting x") == ["BF.ADD counting x"]
    assert wire("BF.ADD counting x") == []
    assert wire("BF.DEL counting x") == []
    assert wire.reply == 1  # present, but stuck


def test_rotation_by_the_clock_goes_before_the_write(wire):
    wire("BF.RESERVE window 0.01 100 WINDOW 3 EVERY 50")
    time.sleep(0.06)
    rotate, add = wire("BF.ADD window a")
    assert rotate.startswith("bf.rotate window AT ") and not rotate.endswith("MANUAL")
    assert add == "BF.ADD window a"


@pytest.mark.parametrize("prefix", ["BF", "CF"])
def test_each_piece_of_a_load_is_written_when_it_comes(spec, wire, prefix):
    if not saves_loads(spec):
        pytest.skip("Redis 7.0 has no place for loads in its files, so all pieces are written at the end")
    wire(f"{prefix}.ADD source x")
    client = wire.client
    (_, head), (end, chunk) = pieces(client, "source", prefix)
    command = f"{prefix}.LOADCHUNK".encode()
    client.execute_command(command, "target", 1, head)
    assert wire.effects.new() == [[command, b"target", b"1", head]]
    client.execute_command(command, "target", end, chunk)
    assert wire.effects.new() == [[command, b"target", str(end).encode(), chunk]]


@pytest.mark.parametrize("prefix", ["BF", "CF"])
def test_what_an_add_to_a_missing_key_causes_is_one_transaction(wire, prefix):
    """A replica, or an append-only file that was cut short, has all items or none."""
    wire("PING")
    wire.client.execute_command(*adding(prefix, "a", ["x", "y"]))
    around = [words[0].lower() for words in wire.effects.new(whole=True) if words[0].lower() != b"select"]
    assert around[0] == b"multi" and around[1] == f"{prefix.lower()}.reserve".encode() and around[-1] == b"exec"
