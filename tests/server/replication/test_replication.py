"""A replica equals its primary, bit for bit, whatever its own configuration says and whatever was refused. The servers
run with `propagation-error-behavior panic`, so a replica that met an error in the stream would no longer be running at
the end of the test.
"""

import collections
import contextlib
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


def test_every_kind_in_every_state(new_server):
    """One replica listens from the start, so its filters grow by commands. The other one joins later, by a full resync.
    """
    primary = new_server()
    early = primary.replica(module_args=ODD)
    with primary.client() as client:
        keys = make_all(client)
        late = primary.replica(module_args=ODD)
        primary.wait_for_replicas()
        before = snapshots(client, keys)
    for replica in (early, late):
        with replica.client() as other:
            assert differences(before, snapshots(other, keys)) == []


def test_dumps_of_two_replicas(new_server):
    """DUMP returns the same bytes on both replicas, and so does SCANDUMP, except for the dump number in the pieces of a
    long dump, which is the same in one of 65,535 runs. A load with pieces of two servers is refused or complete."""
    primary = new_server()
    replicas = [primary.replica(), primary.replica()]
    other = new_server()
    with primary.client() as client, other.client() as target, contextlib.ExitStack() as stack:
        keys = make_all(client)
        caught_up(primary, replicas[0])
        clients = [stack.enter_context(replica.client()) for replica in replicas]
        for key in keys:
            prefix = family(client, key)
            assert clients[0].dump(key) == clients[1].dump(key), key
            one, two = (pieces(found, key, prefix) for found in clients)
            assert [iterator for iterator, _ in one] == [iterator for iterator, _ in two]
            load_pieces(target, "whole", prefix, one)
            mixed = one[:1] + two[1:]
            assert (one == two) == (len(one) == 2), key
            if one == two:
                load_pieces(target, "mixed", prefix, mixed)
                assert target.dump("mixed") == target.dump("whole") == client.dump(key), key
            else:
                with pytest.raises(redis.ResponseError, match="does not belong to the header"):
                    load_pieces(target, "mixed", prefix, mixed)
            target.flushall()


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
        added = time.monotonic()
        client.execute_command("BF.ADD", "window", "old")
        primary.wait_for_replicas()
        assert other.execute_command("BF.EXISTS", "window", "old") == 1 or time.monotonic() > added + 0.8
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
        before, added = generation(other), time.monotonic()
        other.execute_command("BF.ADD", "window", "newer")
        time.sleep(0.45)
        other.execute_command("BF.ADD", "window", "newest")
        assert generation(other) > before
        found = other.execute_command("BF.MEXISTS", "window", "newer", "newest")
        age = other.execute_command("BF.AGE", "window", "newer")
        assert (found == [1, 1] and age >= 1) or time.monotonic() > added + 0.8
        time.sleep(1.25)
        assert other.execute_command("BF.MEXISTS", "window", "newer", "newest") == [0, 0]


def rotations(server) -> int:
    return server.info("commandstats").get("cmdstat_bf.rotate", {"calls": 0})["calls"]


def generation(client) -> int:
    flat = client.execute_command("BF.STATS", "window")
    return flat[flat.index(b"Generation") + 1]


@pytest.mark.parametrize("prefix", ["BF", "CF"])
def test_what_an_add_to_a_missing_key_causes_is_one_transaction(new_server, prefix):
    """A replica, or an append-only file that was cut short, has all items or none. tests/commands checks what each
    command replicates."""
    server = new_server(config={"appendonly": "yes", "appendfsync": "always"})
    effects = Effects(server)
    with server.client() as client:
        client.execute_command(*adding(prefix, "a", ["x", "y"]))
        around = [words[0].lower() for words in effects.new(whole=True) if words[0].lower() != b"select"]
        assert around[0] == b"multi" and around[1] == f"{prefix.lower()}.reserve".encode() and around[-1] == b"exec"
