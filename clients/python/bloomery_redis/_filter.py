"""Base of the filters at one key, with `dump` and `restore`, which work in pieces of about 1 MiB."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any

from ._steps import Async, Caller, Key, Steps, Sync, ask, operation

Piece = tuple[int, bytes]  # the iterator of SCANDUMP, and the bytes that came with it


class FilterSteps(Caller):
    """The filter at `key`. `client` is a redis-py or valkey-py client, for one server or for a cluster.

    Raises TypeError for a pipeline, and for a client of the other kind: blocking where an asyncio client is needed, or
    the reverse. """

    _family: str

    def __init__(self, client: Any, key: Key):
        super().__init__(client)
        self.key = key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r})"

    @operation
    def _dump(self, iterator: int) -> Steps[Piece]:
        following, data = yield from ask(f"{self._family}.SCANDUMP", self.key, iterator)
        return following, data

    @operation
    def _load(self, piece: Piece) -> Steps[None]:
        yield from ask(f"{self._family}.LOADCHUNK", self.key, *piece)

    @operation
    def _check_load(self, begun: bool) -> Steps[None]:
        """Ends the load, which is refused if there is none. Then there is a filter, or the load was lost."""
        if begun:
            try:
                yield from ask(f"{self._family}.LOADCHUNK", self.key, 0, b"")
            except Exception:  # noqa: BLE001 - the next command shows what it means
                yield from ask(f"{self._family}.INFO", self.key)  # not EXISTS, which may go to a replica
                return
        raise ValueError("the pieces end early: there is no filter after the last one")

    @operation
    def _end_load(self) -> Steps[None]:
        """Ends a load that has failed. If this fails, too, the server drops the load by itself after five minutes."""
        with contextlib.suppress(Exception):
            yield from ask(f"{self._family}.LOADCHUNK", self.key, 0, b"")


class SyncFilter(FilterSteps, Sync):
    def dump(self) -> Iterator[Piece]:
        """The filter in pieces, for `restore`. Each piece is read from the server when it is consumed.

        Items that are added meanwhile may be missing from the pieces. All pieces have to come from one server: in a
        cluster, don't read from replicas. Raises the server's error if there is no filter. """
        iterator, data = self._dump(0)
        while iterator:
            yield iterator, data
            iterator, data = self._dump(iterator)

    def restore(self, pieces: Iterable[Piece]) -> None:
        """Makes the filter from the pieces that `dump` returned, in their original order. The last one creates the key.

        Raises the server's error if there is a filter already, if the pieces are damaged, or if the filter that they
        come from grew or rotated during the dump, and ValueError if pieces are missing at the end. In that case, nothing
        is left of the new filter.
        """
        begun = False
        try:
            for piece in pieces:
                self._load(piece)
                begun = True
            self._check_load(begun)
        except BaseException:
            self._end_load()
            raise


class AsyncFilter(FilterSteps, Async):
    async def dump(self) -> AsyncIterator[Piece]:
        """The filter in pieces, for `restore`. Each piece is read from the server when it is consumed.

        Items that are added meanwhile may be missing from the pieces. All pieces have to come from one server: in a
        cluster, don't read from replicas. Raises the server's error if there is no filter. """
        iterator, data = await self._dump(0)
        while iterator:
            yield iterator, data
            iterator, data = await self._dump(iterator)

    async def restore(self, pieces: AsyncIterable[Piece]) -> None:
        """Makes the filter from the pieces that `dump` returned, in their original order. The last one creates the key.

        Raises the server's error if there is a filter already, if the pieces are damaged, or if the filter that they
        come from grew or rotated during the dump, and ValueError if pieces are missing at the end. In that case, nothing
        is left of the new filter.
        """
        begun = False
        try:
            async for piece in pieces:
                await self._load(piece)
                begun = True
            await self._check_load(begun)
        except BaseException:
            await self._end_load()
            raise
