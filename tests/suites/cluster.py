"""Clusters under traffic lose no acknowledged add while slots move and primaries fail over or are killed.

A cluster of three primaries and three replicas on loopback contains filters of every kind and from every system. While
clients write, every slot that has keys moves to another primary and back, with MIGRATE and, if the server supports it,
with atomic slot migration. Then every primary swaps roles with its replica, and finally primaries are killed. No
acknowledged add is lost (after a kill, none that WAIT acknowledged), replicas stay equal to their primaries, and a
filter that nobody wrote to is unchanged.
"""

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Iterator

from kit.arrivals import arrivals, move_all_in
from kit.clusters import Cluster, key_slot, looks, migrates_atomically, peers, tag_in
from kit.filters import BY_NAME, KINDS, family, make_all
from kit.suite import Server, options, run
from kit.traffic import Traffic

KEYS_IN_A_SLOT = 10
CLIENTS = 2
EVERY_NTH_IS_WRITTEN_TO = 3


@dataclasses.dataclass
class Herd:
    """The keys of a cluster, and the filters that they were created from."""

    cluster: Cluster
    originals: dict[str, str]  # the filter on the workbench that each key was made from
    looks: dict[str, tuple]  # each workbench filter's look
    written_to: dict[str, str]  # the family of each key that clients write to
    seed: int
    numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)  # client numbers

    @property
    def slots(self) -> list[int]:
        return sorted({key_slot(key.encode()) for key in self.originals})


# ---- a cluster full of filters --------------------------------------------------------------------------------------


def workbench(spec) -> tuple[dict[str, bytes], dict[str, tuple], dict[str, str]]:
    """Makes a filter of every kind in every state, and the filters from other systems. Returns their DUMPs, looks and
    families."""
    with Server(spec) as server, server.client() as client:
        make_all(client)
        move_all_in(client)
        names = sorted(client.keys())
        names = [name.decode() for name in names if client.type(name) != b"string"]
        payloads = {name: client.dump(name) for name in names}
        return payloads, looks(client, names), {name: family(client, name) for name in names}


def selection(names: list[str], count: int, chosen: random.Random) -> list[str]:
    """`count` names: one state of every kind, then the filters of other systems, then all names again and again."""
    states = {kind.name: [name for name in names if name.startswith(f"{kind.name}/")] for kind in KINDS}
    first = [chosen.choice(states[kind]) for kind in states if states[kind]]
    second = [name for name in names if name in arrivals()]
    return list(itertools.islice(itertools.chain(first, second, itertools.cycle(names)), count))


def fill(cluster: Cluster, spec, count: int, seed: int) -> Herd:
    chosen = random.Random(seed)
    payloads, looks, families = workbench(spec)
    tags = [tag_in(range(slot, slot + 1)) for slot in chosen.sample(range(16384), max(6, count // KEYS_IN_A_SLOT))]
    originals = {
        f"{{{tags[number % len(tags)]}}}{number}:{name}": name
        for number, name in enumerate(selection(sorted(payloads), count, chosen))
    }
    with cluster.client() as client:
        for key, name in originals.items():
            client.restore(key, 0, payloads[name])
    written_to = chosen.sample(sorted(originals), max(1, count // EVERY_NTH_IS_WRITTEN_TO))
    return Herd(cluster, originals, looks, {key: families[originals[key]] for key in written_to}, seed)


# ---- what must hold -------------------------------------------------------------------------------------------------


def must_be_whole(herd: Herd, traffic: list[Traffic]) -> None:
    """Checks after the traffic that nothing acknowledged is lost, that replicas are equal, and that filters without
    writes are unchanged."""
    cluster = herd.cluster
    with cluster.client() as client:
        lost = [item for one in traffic for item in one.lost(client)]
    assert not lost, f"{len(lost)} acknowledged items are lost, such as {lost[:3]}"
    cluster.wait_for_replicas()
    seen = 0
    for primary in cluster.primaries():
        replica = cluster.replica_of(primary)
        keys = sorted(key.decode() for key in primary.command("KEYS", "*"))
        assert keys == sorted(key.decode() for key in replica.command("KEYS", "*")), f"{replica} has other keys"
        with primary.client() as client, cluster.reader(replica) as reader:
            here, there = looks(client, keys), looks(reader, keys)
        different = [key for key in keys if here[key] != there[key]]
        assert not different, f"{replica} differs from {primary} in {different[:5]}"
        expected = {key: herd.looks[herd.originals[key]] for key in keys if key not in herd.written_to}
        changed = [key for key, look in expected.items() if here[key] != look]
        assert not changed, f"nobody wrote to {changed[:3]}: was {expected[changed[0]]}, is {here[changed[0]]}"
        seen += len(keys)
    assert seen == len(herd.originals), f"{seen} keys of {len(herd.originals)}"
    cluster.check()


def under_traffic(herd: Herd, work, *, clients: int = CLIENTS, safe: bool = False) -> int:
    """Does `work` while clients write, and checks the result. Returns how many items were acknowledged."""
    kinds = {key: BY_NAME.get(herd.originals[key].partition("/")[0]) for key in herd.written_to}
    latest = {key: kind.latest for key, kind in kinds.items() if kind}
    traffic = [
        Traffic(herd.cluster, herd.written_to, number=next(herd.numbers), seed=herd.seed, safe=safe, latest=latest)
        for _ in range(clients)
    ]
    with contextlib.ExitStack() as stack:
        for one in traffic:
            stack.enter_context(one)
        work()
    must_be_whole(herd, traffic)
    count = sum(one.count for one in traffic)
    assert count, f"nothing was written: {[(one.refused, one.failed) for one in traffic]}"
    return count


def redirections(cluster: Cluster, kind: str) -> int:
    """The number of times that clients were redirected to another node."""
    statistics = (node.info("errorstats").get(f"errorstat_{kind}", {"count": 0}) for node in cluster.nodes)
    return sum(found["count"] for found in statistics)


# ---- what happens to the cluster ------------------------------------------------------------------------------------


def reshard(herd: Herd) -> None:
    """Moves every slot to the next primary, and then back in reverse order."""
    homes = {slot: herd.cluster.owner(slot) for slot in herd.slots}
    for slot, home in homes.items():
        primaries = herd.cluster.primaries()
        herd.cluster.move_slot(slot, primaries[(primaries.index(home) + 1) % len(primaries)], batch=3)
    for slot, home in reversed(homes.items()):
        herd.cluster.move_slot(slot, home, batch=3)


def reshard_atomically(herd: Herd) -> None:
    """Moves all slots of each primary to the next one, and then back."""
    cluster = herd.cluster
    primaries = cluster.primaries()
    for home, other in zip(primaries, primaries[1:] + primaries[:1], strict=True):
        slots = [slot for slot in herd.slots if slot in peers(home)[cluster.id(home)].slots]
        if slots:
            cluster.move_atomically(slots, other)
            cluster.move_atomically(slots, home)


def promote_all(herd: Herd) -> None:
    for primary in herd.cluster.primaries():
        herd.cluster.promote(herd.cluster.replica_of(primary))


def lose_all(herd: Herd, count: int) -> None:
    for primary in herd.cluster.primaries()[:count]:
        herd.cluster.lose(primary)
        herd.cluster.come_back(primary)


def cluster(spec, arguments) -> str:
    with Cluster(spec) as nodes:
        herd = fill(nodes, spec, arguments.count, arguments.seed)
        must_be_whole(herd, [])
        adds = under_traffic(herd, lambda: reshard(herd))
        ways, asked, moved = "by MIGRATE", redirections(nodes, "ASK"), redirections(nodes, "MOVED")
        assert asked and moved, f"{asked} ASK, {moved} MOVED: the traffic has missed the moves"
        if migrates_atomically(nodes.nodes[0]):
            adds += under_traffic(herd, lambda: reshard_atomically(herd))
            ways += " and atomically"
        adds += under_traffic(herd, lambda: promote_all(herd))
        kills = 3 if arguments.count >= 1000 else 1
        safe = under_traffic(herd, lambda: lose_all(herd, kills), clients=2 * CLIENTS, safe=True)
        return (
            f"{len(herd.originals):,} keys from {len(herd.looks)} states, {len(herd.slots)} slots there and back {ways}"
            f" ({asked:,} ASK, {moved:,} MOVED), 3 failovers: {adds:,} acknowledged adds, 0 lost; {kills} kill -9 of a "
            f"primary: {safe:,} adds that WAIT acknowledged, 0 lost; digests equal"
        )


def main() -> None:
    run(cluster, options("cluster", __doc__, 5000, "keys"))
