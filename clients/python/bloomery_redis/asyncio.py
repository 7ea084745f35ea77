"""The classes of bloomery_redis for asyncio clients.

    from bloomery_redis.asyncio import Bloom

    users = await Bloom(redis.asyncio.Redis(), "users").reserve(0.01, 1_000_000)
    await users.add("ada")

Their methods are awaited; `rebuild` is for `async with`, and `dump` for `async for`.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ._bloom import BloomSteps, RebuildSteps
from ._cuckoo import CuckooSteps
from ._filter import AsyncFilter
from ._spread import SpreadSteps
from ._steps import Async

__all__ = ["Bloom", "Cuckoo", "Rebuild", "SpreadBloom"]

if TYPE_CHECKING:
    from typing_extensions import Self


class Rebuild(RebuildSteps, Async):
    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind:
            await self._abort()
        else:
            await self._commit()


class Bloom(BloomSteps[Rebuild], AsyncFilter):
    _rebuild = Rebuild


class Cuckoo(CuckooSteps, AsyncFilter):
    pass


class SpreadBloom(SpreadSteps, Async):
    pass
