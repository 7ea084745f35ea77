"""One Bloom filter spread over the nodes of a cluster, so that it can hold more, and serve more requests, than one
node.

It is made of parts, each a filter under a key of its own, and every item belongs to one of them. All clients of a
filter have to give it the same name and the same number of parts, which does not change later. A program in another
language has to reproduce only the functions at the top level; docs/CLUSTER.md has the reasons, and test vectors. """

from __future__ import annotations

import binascii
import hashlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from . import _stats
from ._checks import is_integer
from ._items import PIECE_BYTES, Item, Items, answers, bits, encode, pieces, prefixed
from ._options import BloomOptions, capacity_of, error_rate_of, words
from ._steps import Caller, Command, Steps, Word, chained, operation

if TYPE_CHECKING:
    from typing_extensions import Unpack

SLOTS = 16384  # of a cluster
MOST_PARTS = 1024  # about as many as the largest cluster has nodes
MOST_PIECES = 64  # in a batch, so that it needs only a few MiB

# The chance that any part at all gets more items than it is sized for, when the whole filter is full.
OVERFLOW = 1e-9


def part_of(item: bytes, parts: int) -> int:
    """The number of an item's part: the first 8 bytes of its SHA-256, divided by 2^64, times the number of parts.

    The filters use a different hash, because with this one, all items of a part would have the same upper bits, and
    would crowd some of the cells.
    """
    return int.from_bytes(hashlib.sha256(item).digest()[:8], "big") * parts >> 64


def part_key(name: str, part: int, parts: int) -> str:
    """The key of a part. The slots are divided into as many ranges as there are parts, and each part has its own range.

    The key's hash tag ends in the first number, counting from 0, that gives a slot in the part's range. Nodes have
    ranges of slots, too, so the parts are spread as evenly as possible. """
    first, last = SLOTS * part // parts, SLOTS * (part + 1) // parts
    number = 0
    while not first <= slot_of(tag := f"{name}:{part}/{parts}:{number}") < last:
        number += 1
    return f"{{{tag}}}"


def slot_of(tag: str) -> int:
    """The slot of a hash tag: its CRC-16/XMODEM, modulo the number of slots."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


def part_capacity(capacity: int, parts: int) -> int:
    """The capacity of a part: its share of the items, and a reserve for what chance may add to it.

    The number of items of a part is binomial, with the mean m = capacity / parts. By Bernstein's inequality, one part
    has more than m + t items with a probability below exp(-t² / 2(m + t/3)). t is chosen so that this bound is
    OVERFLOW / parts.
    """
    if parts == 1:
        return capacity
    mean, log = capacity / parts, math.log(parts / OVERFLOW)
    slack = log / 3 + math.sqrt(log * log / 9 + 2 * log * mean)
    return min(capacity, math.ceil(mean + slack))


class SpreadStats(TypedDict):
    """Sums over the parts. The error rates are means, because each part is asked about the same share of the items."""

    parts: int
    capacity: int
    number_of_items_inserted: int
    approximate_number_of_items: int
    size: int  # bytes
    error_rate: float
    error_rate_now: float
    fullest: float  # items of the fullest part / its capacity; at 1.0, the whole filter is full


class SpreadSteps(Caller):
    """A Bloom filter in `parts` parts: 1 to 1024, and ten per node is a good start. `client` is a client for a cluster;
    one for a single server works too."""

    def __init__(self, client: Any, name: str, parts: int):
        super().__init__(client)
        if not is_integer(parts) or not 1 <= parts <= MOST_PARTS:
            raise ValueError(f"parts is an integer from 1 to {MOST_PARTS}, not {parts!r}")
        if not name or set(name) & set("{}"):
            raise ValueError(f"the name stands between braces in keys, so it is not empty and has none: not {name!r}")
        self.name = name
        self.keys = [part_key(name, part, parts) for part in range(parts)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, parts={len(self.keys)})"

    # ---- the whole filter -------------------------------------------------------------------------------------------

    @chained
    def reserve(
        self, error_rate: float, capacity: int, *, exist_ok: bool = False, **options: Unpack[BloomOptions]
    ) -> Steps[Any]:
        """Creates all parts, and returns this object. Arguments and errors are those of Bloom.reserve, for the whole
        filter, without `like`.

        Even if some of the parts exist, the others are created. So `exist_ok` also repairs a filter that lacks a part.
        The items of that part have to be added again. """
        each = part_capacity(capacity_of(capacity), len(self.keys))
        try:
            yield from self._each("BF.RESERVE", error_rate_of(error_rate), each, *words(options))
        except Exception as error:
            # The first error hides later ones, so check that all parts exist.
            if not (exist_ok and "item exists" in str(error)) or not all((yield from self._each("EXISTS"))):
                raise
        return self

    @operation
    def missing(self) -> Steps[list[str]]:
        """The keys of missing parts: never created, expired, or evicted. Tests answer no for their items."""
        found = yield from self._each("EXISTS")
        return [key for key, there in zip(self.keys, found) if not there]

    @operation
    def delete(self) -> Steps[None]:
        """Deletes all parts."""
        yield from self._each("UNLINK")

    @operation
    def stats(self) -> Steps[SpreadStats]:
        """What the servers know about all parts together. Raises the server's error if a part is missing."""
        replies = yield from self._each("BF.STATS")
        each = [_stats.table(reply) for reply in replies]
        return {
            "parts": len(each),
            "capacity": sum(part["capacity"] for part in each),
            "number_of_items_inserted": sum(part["number_of_items_inserted"] for part in each),
            "approximate_number_of_items": sum(part["approximate_number_of_items"] for part in each),
            "size": sum(part["size"] for part in each),
            "error_rate": sum(part["error_rate"] for part in each) / len(each),
            "error_rate_now": sum(part["error_rate_now"] for part in each) / len(each),
            "fullest": max(part["number_of_items_inserted"] / part["capacity"] for part in each),
        }

    # ---- items ------------------------------------------------------------------------------------------------------

    @operation
    def add(self, item: Item) -> Steps[bool]:
        """Adds an item. True: it was certainly absent. Raises the server's error if its part is missing or full."""
        encoded = encode(item)
        (reply,) = yield [("BF.INSERT", self._key(encoded), "NOCREATE", "ITEMS", encoded)]
        return answers(reply)[0]

    @operation
    def add_many(self, items: Items) -> Steps[int]:
        """Adds any number of items, and returns how many were certainly absent.

        The items are read in batches. In each batch, a part gets one command of at most about 64 KiB, and commands for
        different nodes are sent together. On an error, the earlier batches have been added, and those items of this
        batch whose parts did not refuse them. """
        new = 0
        for batch in self._batches(items):
            new += sum((yield self._bulk("BF.BULKADD", batch, "NOCREATE")))
        return new

    @operation
    def contains(self, item: Item) -> Steps[bool]:
        """False: it was certainly not added. True: it was added, or this is a false positive. A part that is missing
        contains nothing. Raises the server's error if the key of the part holds another type. """
        encoded = encode(item)
        (bitmap,) = yield self._bulk("BF.BULKTEST", {self._key(encoded): ([0], [encoded])})
        return bits(bitmap, 1)[0]

    @operation
    def contains_many(self, items: Items) -> Steps[list[bool]]:
        """Tests any number of items in batches, as in `add_many`. Returns what `contains` would return for each item."""
        found: list[bool] = []
        for batch in self._batches(items):
            bitmaps = yield self._bulk("BF.BULKTEST", batch)
            start = len(found)
            found += [False] * sum(len(places) for places, _ in batch.values())
            for (places, some), bitmap in zip(batch.values(), bitmaps):
                for place, answer in zip(places, bits(bitmap, len(some))):
                    found[start + place] = answer
        return found

    # ---- commands by part -------------------------------------------------------------------------------------------

    def _key(self, item: bytes) -> str:
        return self.keys[part_of(item, len(self.keys))]

    def _each(self, command: str, *arguments: Word) -> Steps[list[Any]]:
        """Sends the same command to every part, and returns the replies."""
        return (yield [(command, key, *arguments) for key in self.keys])

    def _batches(self, items: Items) -> Iterator[dict[str, tuple[list[int], list[bytes]]]]:
        """The items in batches. A batch has, for each key, the places of its items in the batch, and the items."""
        for batch in pieces(items, PIECE_BYTES * min(len(self.keys), MOST_PIECES)):
            by_key: dict[str, tuple[list[int], list[bytes]]] = {}
            for place, item in enumerate(batch):
                places, some = by_key.setdefault(self._key(item), ([], []))
                places.append(place)
                some.append(item)
            yield by_key

    def _bulk(self, command: str, batch: dict[str, tuple[list[int], list[bytes]]], *options: Word) -> list[Command]:
        return [(command, key, *options, "PREFIXED", prefixed(some)) for key, (_, some) in batch.items()]
