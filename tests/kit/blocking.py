"""Makes asyncio objects usable as if they were blocking, so that one test covers both kinds of Python clients.

bloom = Blocking(loop, bloomery_redis.asyncio.Bloom(client, "users"))
bloom.add("ada")                        # awaited
with bloom.rebuild() as new: ...        # async with
for piece in bloom.dump(): ...          # async for
"""

import asyncio
import inspect


class Blocking:
    def __init__(self, loop: asyncio.AbstractEventLoop, target):
        self.loop, self.target = loop, target

    def __getattr__(self, name: str):
        value = getattr(self.target, name)
        if not callable(value):
            return value
        return lambda *arguments, **options: self._result(value(*map(_bare, arguments), **_bare(options)))

    def _result(self, value):
        if inspect.iscoroutine(value):
            return self._result(self.loop.run_until_complete(value))
        if inspect.isasyncgen(value):
            return self._iterate(value)
        if value is self.target:
            return self
        return Blocking(self.loop, value) if hasattr(value, "__aenter__") else value

    def _iterate(self, generator):
        try:
            while True:
                yield self.loop.run_until_complete(anext(generator))
        except StopAsyncIteration:
            pass

    def __enter__(self):
        return self._result(self.target.__aenter__())

    def __exit__(self, *failure) -> None:
        self.loop.run_until_complete(self.target.__aexit__(*failure))


def _bare(argument):
    """Unwraps an argument, so that a coroutine gets the asyncio object itself, not its `Blocking` wrapper."""
    if isinstance(argument, Blocking):
        return argument.target
    if isinstance(argument, dict):
        return {name: _bare(value) for name, value in argument.items()}
    return argument


async def asynchronous(iterable):
    for value in iterable:
        yield value
