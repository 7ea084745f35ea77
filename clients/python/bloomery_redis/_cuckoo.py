"""A cuckoo filter at one key: an item needs about one byte, and can be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from . import _stats
from ._filter import FilterSteps
from ._items import Item, Items, answers, encode, pieces
from ._options import CuckooOptions, capacity_of, words
from ._stats import CuckooStats
from ._steps import Steps, ask, chained, operation

if TYPE_CHECKING:
    from typing_extensions import Unpack


class FilterFull(Exception):
    """A cuckoo filter has no room for some items. (For a full Bloom filter, the server's own error is raised.)"""


class CuckooSteps(FilterSteps):
    _family = "CF"

    @chained
    def reserve(self, capacity: int, *, exist_ok: bool = False, **options: Unpack[CuckooOptions]) -> Steps[Any]:
        """Creates the filter, empty, and returns this object.

        `capacity` is the number of items in the first sub-filter, 1 to 2**48. Options are those of CF.RESERVE, in lower
        case: `bucketsize=4`, `maxiterations=20`, `expansion=0` (it doesn't grow), `hash="SIPHASH"`, `seed="5eed"`. The
        error rate follows from the size of a bucket.

        Errors are those of Bloom.reserve.
        """
        command = ("CF.RESERVE", self.key, capacity_of(capacity), *words(options))
        try:
            yield from ask(*command)
        except Exception as error:
            if not (exist_ok and "item exists" in str(error)):
                raise
        return self

    @operation
    def add(self, item: Item, *, if_absent: bool = False) -> Steps[bool]:
        """Adds an item, even if it is already there; with `if_absent`, only if it isn't. True: it was added.

        Raises FilterFull if there is no room, and the server's error if there is no filter.
        """
        return bool((yield from self._insert([encode(item)], if_absent)))

    @operation
    def add_many(self, items: Items, *, if_absent: bool = False) -> Steps[int]:
        """Adds each item as `add` does, in pieces of 64 KiB. Returns how many were added.

        On FilterFull, all earlier pieces have been added, and those items of the failed piece for which there was room.
        """
        added = 0
        for piece in pieces(items):
            added += yield from self._insert(piece, if_absent)
        return added

    def _insert(self, items: list[bytes], if_absent: bool) -> Steps[int]:
        command = "CF.INSERTNX" if if_absent else "CF.INSERT"
        reply = yield from ask(command, self.key, "NOCREATE", "ITEMS", *items)
        added = sum(answers(reply))
        # If there is no room, CF.INSERT answers -1 in RESP2 and false in RESP3, and CF.INSERTNX answers -1. For an item
        # that is already there, CF.INSERTNX answers 0.
        if homeless := reply.count(-1) if if_absent else len(reply) - added:
            raise FilterFull(
                f"no room for {homeless} of {len(items)} items. Reserve a larger filter, or one that grows"
            )
        return added

    @operation
    def contains(self, item: Item) -> Steps[bool]:
        """False: it is certainly absent. True: it was added, or another item has its fingerprint.

        A filter that is missing contains nothing. Raises the server's error if the key holds another type. To tell, a
        no costs a second command.
        """
        found = bool((yield from ask("CF.EXISTS", self.key, encode(item))) == 1)
        yield from self._check(found)
        return found

    def _check(self, found: object) -> Steps[None]:
        """Raises the server's error if nothing was found because the key holds another type: for CF.EXISTS, CF.MEXISTS
        and CF.COUNT, it contains nothing. CF.INFO is in @cuckoo, so users may run it; TYPE isn't."""
        if not found:
            try:
                yield from ask("CF.INFO", self.key)
            except Exception as error:
                if "not found" not in str(error):
                    raise

    @operation
    def contains_many(self, items: Items) -> Steps[list[bool]]:
        """Tests any number of items, in pieces of 64 KiB. Returns what `contains` would return for each item."""
        found: list[bool] = []
        for piece in pieces(items):
            some = answers((yield from ask("CF.MEXISTS", self.key, *piece)))
            yield from self._check(any(some))
            found += some
        return found

    @operation
    def remove(self, item: Item) -> Steps[bool]:
        """Removes one occurrence of an item. False: it was absent. Raises the server's error if there is no filter.

        Remove only what was added; otherwise the filter may lose other items. """
        reply = yield from ask("CF.DEL", self.key, encode(item))
        return bool(reply == 1)

    @operation
    def count(self, item: Item) -> Steps[int]:
        """Returns how many times an item was added, minus the number of times it was removed. Sometimes the result is
        higher, because other items can share the item's fingerprint. For another type, it does what `contains` does."""
        count = int((yield from ask("CF.COUNT", self.key, encode(item))))
        yield from self._check(count)
        return count

    @operation
    def stats(self) -> Steps[CuckooStats]:
        """What the server knows about the filter. See CuckooStats."""
        return cast(CuckooStats, (yield from _stats.ask_stats("CF.STATS", self.key)))
