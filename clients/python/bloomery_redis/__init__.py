"""Bloom and cuckoo filters of Bloomery, the module for Redis and Valkey.

    import redis
    from bloomery_redis import Bloom

    users = Bloom(redis.Redis(), "users").reserve(0.01, 1_000_000)
    users.add("ada")                       # True: it was absent
    users.add_many(f"user:{n}" for n in range(100_000))
    users.contains_many(["ada", "eve"])    # [True, False]

These classes accept redis-py's and valkey-py's blocking clients, for one server or for a cluster.
bloomery_redis.asyncio has the same classes for asyncio clients. The server's errors are raised as the client raises
them for any command.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ._bloom import BloomSteps, RebuildSteps
from ._cuckoo import CuckooSteps, FilterFull
from ._filter import Piece, SyncFilter
from ._items import Item, Items
from ._options import BloomOptions, CuckooOptions
from ._spread import SpreadStats, SpreadSteps
from ._stats import BloomStats, CuckooStats
from ._steps import Sync

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Bloom",
    "BloomOptions",
    "BloomStats",
    "Cuckoo",
    "CuckooOptions",
    "CuckooStats",
    "FilterFull",
    "Item",
    "Items",
    "Piece",
    "Rebuild",
    "SpreadBloom",
    "SpreadStats",
]


class Rebuild(RebuildSteps, Sync):
    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind:
            self._abort()
        else:
            self._commit()


class Bloom(BloomSteps[Rebuild], SyncFilter):
    _rebuild = Rebuild

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)


class Cuckoo(CuckooSteps, SyncFilter):
    def __contains__(self, item: Item) -> bool:
        return self.contains(item)


class SpreadBloom(SpreadSteps, Sync):
    def __contains__(self, item: Item) -> bool:
        return self.contains(item)
