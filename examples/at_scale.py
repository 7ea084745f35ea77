"""Estimates the memory of a Bloom filter spread over a cluster, the times to load and rebuild it, and the effects of a
failure.

    python3 examples/at_scale.py 1e9:10 1e12:1000

prints a column for each ITEMS:NODES. It needs only Python, and no server. Sizes are computed. How evenly items fall
into parts, and the resulting error rate, are simulated: the number of items in each part is drawn at random. Times
follow from the rates below, which docs/guides/at-scale.md measures. Replace them with rates of your own machines. """

import argparse
import math
import random
from dataclasses import dataclass

MOST_PARTS = 1024  # of a spread filter
PARTS_OF_A_NODE = 10
OVERFLOW = 1e-9  # the chance that any part gets more items than it has room for

# Bits per item, by error rate, in filters of more than 512 KiB, for which LAYOUT AUTO chooses BLOCKED.
BLOCKED_BITS = {0.01: 9.92, 0.001: 15.55, 0.0001: 22.0}
BLOCKED_ABOVE = 512 << 10

LOAD_NS = 210  # `bloomery load --spread`, processor time for an item: to read, hash and send it
ADD_NS = 52  # processor time of the server to add an item
BUILD_NS = 360  # `bloomery build --static`, processor time for an item
BUILD_BYTES = 33  # memory of `bloomery build --static` for an item
PUSH_MIB = 100  # `bloomery push`, MiB per second over one connection
MIGRATE_SECONDS = 20  # for each GiB of a filter; during this time, neither node serves anyone
SET_BYTES = 46  # used_memory for a member of 16 bytes in a SET
GO_ZERO_BITS = 20  # for an item of go-zero's filter, whose error rate is 0.007%
NODE_TIMEOUT = 15  # cluster-node-timeout in seconds


@dataclass(frozen=True)
class Spread:
    """A filter of fixed size for `items`, in equal parts, on `nodes` primaries with equal ranges of slots."""

    items: int
    nodes: int
    error_rate: float = 0.01
    parts: int = 0  # 0: ten for each node, or fewer, so that there are at most 1024

    def __post_init__(self) -> None:
        most = MOST_PARTS // self.nodes
        if not most:
            raise SystemExit(f"a spread filter has at most {MOST_PARTS} parts, so it uses at most as many nodes")
        object.__setattr__(self, "parts", self.parts or self.nodes * min(PARTS_OF_A_NODE, most))

    @property
    def part_capacity(self) -> int:
        """A part's share of the items, plus what chance may add to it, by Bernstein's inequality (docs/CLUSTER.md)."""
        mean, log = self.items / self.parts, math.log(self.parts / OVERFLOW)
        slack = log / 3 + math.sqrt(log * log / 9 + 2 * log * mean)
        return min(self.items, math.ceil(mean + slack))

    @property
    def part_bytes(self) -> float:
        classic = self.part_capacity * math.log2(1 / self.error_rate) / math.log(2) / 8
        return classic if classic <= BLOCKED_ABOVE else self.part_capacity * BLOCKED_BITS[self.error_rate] / 8

    @property
    def bytes(self) -> float:
        return self.parts * self.part_bytes

    def node_of(self, part: int) -> int:
        return part * self.nodes // self.parts

    def draw(self, chance: random.Random) -> list[int]:
        """Draws the number of items in each part of the full filter. The numbers are binomial, so nearly normal."""
        mean = self.items / self.parts
        deviation = math.sqrt(mean * (1 - 1 / self.parts))
        return [round(chance.gauss(mean, deviation)) for _ in range(self.parts)]

    def error_rate_with(self, counts: list[int]) -> float:
        """The error rate of the whole filter: an absent item is tested in one part, and all parts are equally likely.

        A part that is filled to its capacity has half of its bits set. A false positive needs k probes that all find a
        set bit. """
        k = math.log2(1 / self.error_rate)
        return sum((1 - 0.5 ** (count / self.part_capacity)) ** k for count in counts) / self.parts


def report(spread: Spread, replicas: int, seed: int) -> dict[str, str]:
    counts = spread.draw(random.Random(seed))
    by_node = [0] * spread.nodes
    for part, count in enumerate(counts):
        by_node[spread.node_of(part)] += count
    of_a_node = spread.items / spread.nodes
    static_bits = math.ceil(math.log2(1 / spread.error_rate)) * 1.12  # 1.125 for small filters
    return {
        "items": f"{spread.items:.0e}".replace("e+", "e"),
        "nodes": f"{spread.nodes:,}",
        "parts": f"{spread.parts:,}",
        "capacity of a part": f"{spread.part_capacity:,}",
        "spare in it": f"{spread.part_capacity / (spread.items / spread.parts) - 1:.2%}",
        "memory of a part": size(spread.part_bytes),
        "memory of a node": size(spread.bytes / spread.nodes),
        "all nodes and replicas": size(spread.bytes * (1 + replicas)),
        "simulated: fullest part": f"{max(counts) / spread.part_capacity:.2%}",
        "simulated: fullest node": f"{max(by_node) / of_a_node - 1:+.3%}",
        "simulated: error rate": f"{spread.error_rate_with(counts):.3%}",
        "load, a loader a node": span(of_a_node * max(LOAD_NS, ADD_NS) / 1e9),
        "static: build, a core a node": span(of_a_node * BUILD_NS / 1e9),
        "static: memory for a part": size(spread.items / spread.parts * BUILD_BYTES),
        "static: push, all nodes": span(of_a_node * static_bits / 8 / 2**20 / PUSH_MIB),
        "node lost: out of reach": f"{1 / spread.nodes:.1%}",
        "node lost: for, at most": span(1.5 * NODE_TIMEOUT + 2),
        "node and replica: push files": span(spread.bytes / spread.nodes / 2**20 / PUSH_MIB),
        "MIGRATE of a part": span(spread.part_bytes / 2**30 * MIGRATE_SECONDS),
        "as SETs, with replicas": size(spread.items * SET_BYTES * (1 + replicas)),
        "as go-zero's bitmaps, the same": size(spread.items * GO_ZERO_BITS / 8 * (1 + replicas)),
    }


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB" if count < 1000 else f"{count:,.0f} TiB"


def span(seconds: float) -> str:
    for unit, length in (("ms", 0.001), ("s", 1), ("min", 60)):
        if seconds < 100 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds / 3600:.2g} h" if seconds < 100 * 3600 else f"{seconds / 86400:.2g} d"


def main() -> None:
    parser = argparse.ArgumentParser(description="Estimate a Bloom filter that is spread over a cluster.")
    parser.add_argument("size", nargs="+", metavar="ITEMS:NODES", help="such as 1e9:10")
    parser.add_argument("--error-rate", type=float, choices=BLOCKED_BITS, default=0.01)
    parser.add_argument("--replicas", type=int, default=1, help="of each primary (1)")
    parser.add_argument("--seed", type=int, default=1, help="of the simulation (1)")
    arguments = parser.parse_args()
    columns = []
    for items, nodes in (words.split(":") for words in arguments.size):
        spread = Spread(int(float(items)), int(nodes), arguments.error_rate)
        columns.append(report(spread, arguments.replicas, arguments.seed))
    for row in columns[0]:
        print(f"{row:<31}" + "".join(f"{column[row]:>14}" for column in columns))


if __name__ == "__main__":
    main()
