"""One Bloom filter spread over the nodes of a cluster, so that it may be larger and hotter than one node.

    from redis.cluster import RedisCluster
    users = SpreadFilter(RedisCluster("127.0.0.1", 7001), "users", parts=64)
    users.create(0.01, 1_000_000_000)
    users.add("ada")                         # True: it was absent
    users.test("ada")                        # True
    users.bulk_add(str(number) for number in range(1_000_000))
    users.info()["items"]

It is P parts, each a filter of Bloomery's under a key of its own, and every item belongs to one of them. Written to be
read and carried into other languages; docs/CLUSTER.md has the reasons and the test vectors. Needs redis-py (or
valkey-py), and works with a client of one server too. All clients of a filter have to give it the same name and the
same number of parts, which does not change later.
"""

import binascii
import hashlib
import itertools
import math
import struct

SLOTS = 16384  # of a cluster
MOST_PARTS = 1024  # as many as a cluster has nodes, about

# How many items go into one command of the bulk methods, per part.
BATCH = 10_000

# The chance that any part at all gets more items than it is sized for, when the whole filter is full.
OVERFLOW = 1e-9


def part_of(item: bytes, parts: int) -> int:
    """The part of an item: the first 8 bytes of its SHA-256, as a fraction of 2^64, of the number of parts.

    Not the hash of the filters: the items of a part would have its upper bits in common, and crowd some of the cells.
    And this one is at hand in every language.
    """
    return int.from_bytes(hashlib.sha256(item).digest()[:8], "big") * parts >> 64


def part_key(name: str, part: int, parts: int) -> str:
    """The key of a part. Slot numbers are cut into as many ranges as there are parts, and each has its slot in one.

    Its hash tag ends in the first number, from 0 up, that brings it there. Slots lie on nodes in ranges, so that parts
    are spread as evenly as can be.
    """
    first, last = SLOTS * part // parts, SLOTS * (part + 1) // parts
    number = 0
    while not first <= slot_of(tag := f"{name}:{part}/{parts}:{number}") < last:
        number += 1
    return f"{{{tag}}}"


def slot_of(tag: str) -> int:
    """CRC-16/XMODEM, as a cluster has it."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


def part_capacity(capacity: int, parts: int) -> int:
    """What a part has to hold: its share, and as much more as chance may give it.

    The items of a part are binomial, with the mean m = capacity / parts. By Bernstein's inequality one part has more
    than m + t with a chance below exp(-t² / 2(m + t/3)); t is such that this is OVERFLOW / parts.
    """
    if parts == 1:
        return capacity
    mean, log = capacity / parts, math.log(parts / OVERFLOW)
    slack = log / 3 + math.sqrt(log * log / 9 + 2 * log * mean)
    return min(capacity, math.ceil(mean + slack))


class SpreadFilter:
    """A Bloom filter of `parts` parts, 1 to 1024. Items are bytes, or text, which is its UTF-8."""

    def __init__(self, client, name: str, parts: int):
        if not 1 <= parts <= MOST_PARTS:
            raise ValueError(f"{parts} parts; a spread filter has 1 to {MOST_PARTS}")
        if not name or set(name) & set("{}"):
            raise ValueError("the name stands between braces, and may have none itself")
        self.client = client
        self.keys = [part_key(name, part, parts) for part in range(parts)]

    # ---- the whole filter -------------------------------------------------------------------------------------------

    def create(self, error_rate: float, capacity: int, *options) -> None:
        """`options` are those of BF.RESERVE, as in `create(0.01, 10**9, "NONSCALING")`. Raises if any part exists."""
        each = part_capacity(capacity, len(self.keys))
        self._each("BF.RESERVE", error_rate, each, *options)

    def must_exist(self) -> None:
        """Raises if a part is missing: never created, or evicted. Tests say no to what a missing part may have had."""
        if missing := [key for key, found in zip(self.keys, self._each("EXISTS"), strict=True) if not found]:
            raise LookupError(f"{len(missing)} parts are missing, such as {missing[0]}")

    def delete(self) -> None:
        self._each("UNLINK")

    def info(self) -> dict:
        """Sums over the parts. The error rates are means, since every part is asked for the same share of the items.

        `fullest` is how full the fullest part is, of its capacity: 1.0 says that the whole has reached its own.
        """
        replies = [_map(reply) for reply in self._each("BF.INFO", "FULL")]
        total = {name: sum(reply[field] for reply in replies) for name, field in SUMS.items()}
        means = {name: sum(float(reply[field]) for reply in replies) / len(replies) for name, field in MEANS.items()}
        fullest = max(reply["Number of items inserted"] / reply["Capacity"] for reply in replies)
        return {"parts": len(replies), **total, **means, "fullest": fullest}

    # ---- items ------------------------------------------------------------------------------------------------------

    def add(self, item) -> bool:
        """Whether it was absent."""
        return self.madd([item])[0]

    def test(self, item) -> bool:
        """False: it was certainly not added. True: it was, or this is one of the wrong answers of the error rate."""
        return self.mtest([item])[0]

    def madd(self, items) -> list[bool]:
        """Adds several, and says of each whether it was absent. A part that refuses one raises; others have theirs."""
        # NOCREATE: a part that is missing is an error, and no new filter of the configured size.
        return self._by_part(items, lambda key, some: ["BF.INSERT", key, "NOCREATE", "ITEMS", *some], _answers)

    def mtest(self, items) -> list[bool]:
        return self._by_part(items, lambda key, some: ["BF.MEXISTS", key, *some], _answers)

    def bulk_add(self, items) -> int:
        """Adds any number of items, and says how many were absent. A batch for each part is one command."""
        self.must_exist()  # BF.BULKADD would make what is missing, with the configured size
        return sum(self._in_bulk(items, "BF.BULKADD", lambda reply, count: [reply]))

    def bulk_test(self, items) -> list[bool]:
        """Tests any number of items, in batches."""
        return self._in_bulk(items, "BF.BULKTEST", _bits)

    # ---- commands by part -------------------------------------------------------------------------------------------

    def _each(self, command: str, *arguments) -> list:
        """The same command for every part; to all nodes at once."""
        return self._run([[command, key, *arguments] for key in self.keys])

    def _by_part(self, items, command, answers) -> list:
        """One command for each part that has some of the items; the answers in the order of the items."""
        places: dict[int, list[int]] = {}
        items = [item.encode() if isinstance(item, str) else bytes(item) for item in items]
        for place, item in enumerate(items):
            places.setdefault(part_of(item, len(self.keys)), []).append(place)
        replies = self._run(
            [command(self.keys[part], [items[place] for place in some]) for part, some in places.items()]
        )
        found = [None] * len(items)
        for some, reply in zip(places.values(), replies, strict=True):
            for place, answer in zip(some, answers(reply, len(some)), strict=False):
                found[place] = answer
        return found

    def _in_bulk(self, items, command: str, answers) -> list:
        def words(key, some):
            return [command, key, "PREFIXED", b"".join(struct.pack("<I", len(item)) + item for item in some)]

        found, items = [], iter(items)
        while batch := list(itertools.islice(items, BATCH * len(self.keys))):
            found += self._by_part(batch, words, answers)
        # Where a part gave one answer for all of its items, it stands in the place of the first.
        return [answer for answer in found if answer is not None]

    def _run(self, commands: list) -> list:
        """All commands, those for one node in one go. The client follows slots that move; the first error is raised."""
        if len(commands) == 1:
            return [self.client.execute_command(*commands[0])]
        with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()


SUMS = {
    "capacity": "Capacity",
    "items": "Number of items inserted",
    "estimated items": "Approximate number of items",
    "bytes": "Size",
}
MEANS = {"error rate": "Error rate", "error rate now": "Error rate now"}


def _map(reply) -> dict:
    """BF.INFO's, whichever protocol it came by."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode() if isinstance(name, bytes) else name: value for name, value in pairs}


def _answers(reply, count: int) -> list[bool]:
    for answer in reply:
        if isinstance(answer, Exception):
            raise answer
    return [bool(answer) for answer in reply]


def _bits(bitmap: bytes, count: int) -> list[bool]:
    return [bool(bitmap[place >> 3] >> (7 - place % 8) & 1) for place in range(count)]
