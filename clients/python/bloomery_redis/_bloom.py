"""A Bloom filter at one key: fixed, scaling, counting, or a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar, cast

from . import _stats
from ._filter import FilterSteps
from ._items import Item, Items, answers, bits, encode, pieces, prefixed
from ._options import BloomOptions, capacity_of, error_rate_of, words
from ._stats import BloomStats
from ._steps import Caller, Key, Steps, Word, ask, chained, operation

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")


class BloomSteps(FilterSteps, Generic[R]):
    _family = "BF"
    _rebuild: Callable[[Any, Key, list[Word]], R]

    @chained
    def reserve(
        self, error_rate: float, capacity: int, *, exist_ok: bool = False, **options: Unpack[BloomOptions]
    ) -> Steps[Any]:
        """Creates the filter, empty, and returns this object.

        `error_rate`, above 0 and below 1, is the fraction of absent items that test positive when the filter is full.
        `capacity` is the number of items in a full filter, up to 2**48. With `counting`, `ttl` or `layout="QUOTIENT"`,
        it is only a hint, and may be 0. Options are those of BF.RESERVE, in lower case, such as `nonscaling=True`,
        `counting=4` (counters of 4 bits; items can be removed), `ttl=timedelta(days=1)` (items leave a day after their
        last add), `window=25, every=timedelta(hours=1)`, `onfull="SATURATE"`, `seed="5eed"`, `like=other`.

        Raises ValueError for an invalid number or word. Raises the server's error if options exclude each other, if
        there isn't enough memory, or if the key exists. With `exist_ok`, an existing filter stays as it is.
        """
        command = ("BF.RESERVE", self.key, error_rate_of(error_rate), capacity_of(capacity, 0), *words(options))
        try:
            yield from ask(*command)
        except Exception as error:
            if not (exist_ok and "item exists" in str(error)):
                raise
        return self

    # ---- items ------------------------------------------------------------------------------------------------------
    # Adds use NOCREATE: a filter that expired or was evicted must not come back empty, with a size that nobody chose.

    @operation
    def add(self, item: Item) -> Steps[bool]:
        """Adds an item. True: it was certainly absent. Raises the server's error if the filter is missing or full."""
        reply = yield from ask("BF.INSERT", self.key, "NOCREATE", "ITEMS", encode(item))
        return answers(reply)[0]

    @operation
    def add_many(self, items: Items) -> Steps[int]:
        """Adds any number of items, and returns how many were certainly absent.

        The items are read and sent in pieces of 64 KiB. On an error, the earlier pieces have been added. Items of the
        refused piece may have been added as well; the server's error says how many. """
        new = 0
        for piece in pieces(items):
            new += yield from ask("BF.BULKADD", self.key, "NOCREATE", "PREFIXED", prefixed(piece))
        return new

    @operation
    def contains(self, item: Item) -> Steps[bool]:
        """False: it was certainly not added. True: it was added, or this is a false positive. A filter that is missing
        contains nothing. Raises the server's error if the key holds another type: for BF.EXISTS, it contains nothing.
        """
        one = [encode(item)]
        return bits((yield from ask("BF.BULKTEST", self.key, "PREFIXED", prefixed(one))), 1)[0]

    @operation
    def contains_many(self, items: Items) -> Steps[list[bool]]:
        """Tests any number of items, in pieces of 64 KiB. Returns what `contains` would return for each item."""
        found: list[bool] = []
        for piece in pieces(items):
            bitmap = yield from ask("BF.BULKTEST", self.key, "PREFIXED", prefixed(piece))
            found += bits(bitmap, len(piece))
        return found

    # ---- counting filters, windows ----------------------------------------------------------------------------------

    @operation
    def remove(self, item: Item) -> Steps[bool]:
        """Removes one occurrence of an item from a counting filter. False: it was absent.

        Remove only what was added; otherwise the filter may lose other items. """
        reply = yield from ask("BF.DEL", self.key, encode(item))
        return bool(reply == 1)

    @operation
    def remove_many(self, items: Items) -> Steps[list[bool]]:
        """Removes any number of items, in pieces of 64 KiB. Returns what `remove` would return for each item."""
        removed: list[bool] = []
        for piece in pieces(items):
            removed += answers((yield from ask("BF.MDEL", self.key, *piece)))
        return removed

    @operation
    def count(self, item: Item) -> Steps[int]:
        """Returns how many times an item was added to a counting filter, minus the number of times it was removed.
        Sometimes the result is higher, because other items can share the item's counters. It is at most 15, 255 or
        65535, depending on the width of the counters."""
        return int((yield from ask("BF.COUNT", self.key, encode(item))))

    @operation
    def rotate(self) -> Steps[None]:
        """Opens a new generation of a window, and drops the oldest. With `every`, the server does this by itself."""
        yield from ask("BF.ROTATE", self.key)

    @operation
    def age(self, item: Item) -> Steps[int | None]:
        """How many generations ago an item was last added to a window, or by chance fewer. 0: in the current one. None:
        the item is absent."""
        age = int((yield from ask("BF.AGE", self.key, encode(item))))
        return None if age < 0 else age

    # ---- the whole filter -------------------------------------------------------------------------------------------

    @operation
    def card(self) -> Steps[int]:
        """Number of items; 0 if there is no filter."""
        return int((yield from ask("BF.CARD", self.key)))

    @operation
    def clear(self) -> Steps[None]:
        """Empties the filter. Its parameters and its seed stay."""
        yield from ask("BF.CLEAR", self.key)

    @operation
    def merge(self, *sources: Key | FilterSteps) -> Steps[None]:
        """Adds all items of other filters. If the key doesn't exist, it starts as a copy of the first source. All
        filters need the same seed, which `like=` gives them. In a cluster, their keys also need the same hash tag."""
        if not sources:
            raise ValueError("merge needs at least one source")
        keys = [source.key if isinstance(source, FilterSteps) else source for source in sources]
        yield from ask("BF.MERGE", self.key, *keys)

    @operation
    def merge_blob(self, *data: bytes) -> Steps[None]:
        """Adds all items of filters that are given as bytes: files that `bloomery pull` and `bloomery build` write, or
        replies of DUMP on any server. Each is sent in one argument, of at most 512 MiB unless the server allows more.
        Raises the server's error, and changes nothing, if bytes are damaged, or if a filter can't be merged with the
        others.
        """
        if not data:
            raise ValueError("merge_blob needs at least one filter")
        yield from ask("BF.MERGE", self.key, "BLOB", *data)

    @operation
    def feedback(self, checked: int, false: int) -> Steps[None]:
        """Tells the server that the source of truth refuted `false` of `checked` positive answers.

        `stats()["feedback"]` then has the error rate that the application sees. One report per thousand answers, or per
        second, is plenty.
        """
        if not 0 <= false <= checked:
            raise ValueError(f"false is from 0 to checked, not {false} of {checked}")
        yield from ask("BF.FEEDBACK", self.key, int(checked), int(false))

    @operation
    def stats(self) -> Steps[BloomStats]:
        """What the server knows about the filter: capacity, items, fill, error rates, advice. See BloomStats."""
        return cast(BloomStats, (yield from _stats.ask_stats("BF.STATS", self.key)))

    def rebuild(
        self, *, capacity: int | None = None, error_rate: float | None = None, **options: Unpack[BloomOptions]
    ) -> R:
        """Builds a new filter while this one serves. The new one then replaces it in one step.

            with bloom.rebuild(capacity=2_000_000) as new:
                new.add_many(rows)

        The new filter replaces the old one at the end of the block. If an exception leaves the block, the new filter is
        dropped. (If the server can't be reached to drop it, the rebuild goes on until `BF.REBUILD key ABORT`.) From the
        beginning of the block, adds to the filter go to both filters. Begin the block before you read the source of
        truth, so that no item is lost.

        Options are those of `reserve`, without `like`. Options that aren't given stay as they are. Without `capacity`,
        the new capacity is that of all layers together, or the number of items if that is larger.

        With an asyncio client, use `async with` and `await new.add_many(rows)`.
        """
        named: list[Word] = []
        if capacity is not None:
            named += ["CAPACITY", capacity_of(capacity)]
        if error_rate is not None:
            named += ["ERROR", error_rate_of(error_rate)]
        return self._rebuild(self.client, self.key, named + words(options))


class Overtaken(RuntimeError):
    """Another client has ended a rebuild, and begun its own."""


class RebuildSteps(Caller):
    """The filter that is being built. The Bloom object that created this object is the live filter."""

    def __init__(self, client: Any, key: Key, options: list[Word]):
        super().__init__(client)
        self.key = key
        self._options = options
        self._identity: str | None = None

    @operation
    def add_many(self, items: Items) -> Steps[None]:
        """Adds any number of items, only to the new filter, in pieces of 64 KiB.

        Raises the server's error if the new filter is full, or if the rebuild has ended by itself because an add to
        both filters found no room in the new one. Raises RuntimeError if another client has ended the rebuild and begun
        its own.
        """
        for piece in pieces(items):
            yield from self._own("ADD", *piece)

    @operation
    def _begin(self) -> Steps[None]:
        yield from ask("BF.REBUILD", self.key, "BEGIN", *self._options)
        self._identity = yield from self._running()

    @operation
    def _commit(self) -> Steps[None]:
        yield from self._own("COMMIT")

    @operation
    def _abort(self) -> Steps[None]:
        try:
            yield from self._own("ABORT")
        except Overtaken:
            pass
        except Exception as error:
            if "no rebuild is running" not in str(error):  # otherwise, it has already ended
                raise

    def _own(self, *words: Word) -> Steps[None]:
        """Sends a command to this rebuild, and not to another one that has begun since."""
        running = yield from self._running()
        if running not in (None, self._identity):
            raise Overtaken("another rebuild of the filter has begun")
        yield from ask("BF.REBUILD", self.key, *words)

    def _running(self) -> Steps[str | None]:
        """The identity of the rebuild that is running."""
        status = yield from _stats.ask_stats("BF.REBUILD", self.key, "STATUS")
        return cast("str | None", status.get("identity"))
