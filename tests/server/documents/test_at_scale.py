"""Compares what examples/at_scale.py predicts for a spread filter with a real cluster of three primaries, each with a
replica."""

import random

import pytest
from at_scale import BLOCKED_BITS, Spread
from bloomery_redis import SpreadBloom
from bloomery_redis._spread import part_capacity

from kit.clusters import IMPATIENT_MS, Cluster, key_slot
from kit.filters import pairs
from kit.program import PROGRAM, run

ABSENT = 200_000
PREDICTED = Spread(300_000, 3)
ITEMS = [f"user:{number}" for number in range(PREDICTED.items)]


@pytest.fixture(scope="module")
def cluster(spec):
    with Cluster(spec, config={"cluster-require-full-coverage": "no"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def users(cluster):
    """A real filter with the predicted parameters, filled to capacity."""
    with cluster.client() as client:
        users = SpreadBloom(client, "users", parts=PREDICTED.parts)
        users.reserve(PREDICTED.error_rate, PREDICTED.items, nonscaling=True).add_many(ITEMS)
        cluster.wait_for_replicas()
        yield users


def owner(cluster, key):
    return cluster.owner(key_slot(key.encode()))


def size(node, key) -> int:
    return pairs(node.command("BF.INFO", key))[b"Size"]


def test_parts_are_those_of_the_client():
    for items, nodes in ((10**9, 10), (10**11, 30), (10**12, 1000)):
        spread = Spread(items, nodes)
        assert spread.part_capacity == part_capacity(items, spread.parts)
        assert spread.parts % nodes == 0


@pytest.mark.parametrize("error_rate", BLOCKED_BITS)
def test_large_parts_have_the_predicted_size(server, error_rate):
    part = Spread(10_000_000, 1, error_rate, parts=1)
    server.command("BF.RESERVE", "part", error_rate, part.part_capacity, "NONSCALING")
    assert size(server, "part") == pytest.approx(part.part_bytes, rel=0.002)


def test_memory_and_error_rate_are_as_predicted(cluster, users):
    assert users.stats()["size"] == pytest.approx(PREDICTED.bytes, rel=0.02)  # each 12 KiB part needs 144 more bytes
    counts = [len(some) for some in by_part(users)]
    simulated = [PREDICTED.draw(random.Random(seed)) for seed in range(200)]
    assert min(map(max, simulated)) <= max(counts) <= max(map(max, simulated))
    for part, key in enumerate(users.keys):
        assert owner(cluster, key) is cluster.nodes[PREDICTED.node_of(part)]
    for primary in cluster.primaries():
        held = sum(size(primary, key) for key in users.keys if owner(cluster, key) is primary)
        assert held == pytest.approx(PREDICTED.bytes / PREDICTED.nodes, rel=0.02)
        assert len(cluster.replica_of(primary).command("KEYS", "*")) == PREDICTED.parts / PREDICTED.nodes
    false = sum(users.contains_many(f"nobody:{number}" for number in range(ABSENT)))
    expected = PREDICTED.error_rate_with(counts)
    assert false / ABSENT == pytest.approx(expected, abs=5 * (expected / ABSENT) ** 0.5)


def by_part(users) -> list[list[str]]:
    parts = {key: [] for key in users.keys}
    for item in ITEMS:
        parts[users._key(item.encode())].append(item)
    return list(parts.values())


def test_a_node_that_fails_takes_its_share_out_of_reach(cluster, users):
    victim = owner(cluster, users.keys[0])
    homes = [owner(cluster, key) for key in users.keys]
    out_of_reach = []

    def count():
        for key, home, some in zip(users.keys, homes, by_part(users), strict=True):
            if home is victim:
                out_of_reach.extend(some)
            else:
                assert home.command("BF.EXISTS", key, some[0]) == 1

    cluster.lose(victim, meanwhile=count)
    assert len(out_of_reach) / len(ITEMS) == pytest.approx(1 / PREDICTED.nodes, rel=0.02)
    assert all(users.contains_many(ITEMS)), "the replica had not everything"
    cluster.come_back(victim)


@pytest.mark.skipif(not PROGRAM.exists(), reason="needs target/debug/bloomery")
def test_parts_that_are_lost_come_back_from_files(cluster, users, tmp_path):
    at = ["--cluster", "--url", f"redis://127.0.0.1:{cluster.primaries()[0].port}"]
    lost = users.keys[:2]
    for number, key in enumerate(lost):
        run("pull", key, tmp_path / f"{number}.bloom", *at)
        users.client.unlink(key)
    assert users.missing() == lost
    known = sum(users.contains_many(ITEMS)) / len(ITEMS)
    assert known == pytest.approx(1 - len(lost) / PREDICTED.parts, rel=0.02)
    for number, key in enumerate(lost):
        run("push", tmp_path / f"{number}.bloom", key, *at)
    assert users.missing() == [] and all(users.contains_many(ITEMS))
