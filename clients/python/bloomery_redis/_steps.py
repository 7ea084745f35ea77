"""One implementation of every method, for blocking and for asyncio clients.

A method is written once, as a generator: it yields a list of commands, is sent the list of their replies, and returns
the result. `@operation` turns it into an ordinary method for a blocking client, and into a coroutine method for an
asyncio client. Replies are undecoded: strings are bytes, even with `decode_responses=True`. """

from __future__ import annotations

import functools
import inspect
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar, Union, overload

T = TypeVar("T")
Key = Union[str, bytes]
Word = Union[bytes, str, int, float]
Command = tuple[Word, ...]
Steps = Generator[list[Command], list[Any], T]

UNDECODED: dict[str, Any] = {"NEVER_DECODE": []}  # redis-py and valkey-py have this option


def ask(*command: Word) -> Steps[Any]:
    """Sends one command, and returns its reply."""
    (reply,) = yield [command]
    return reply


class Caller:
    """Base of the classes with a client. Refuses clients of the wrong kind."""

    def __init__(self, client: Any):
        if hasattr(client, "execute"):
            raise TypeError("a pipeline answers when it is executed; pass the client that it belongs to")
        if inspect.iscoroutinefunction(client.execute_command) != isinstance(self, Async):
            raise TypeError(
                "classes of bloomery_redis need a blocking client, and those of bloomery_redis.asyncio an asyncio client; "
                f"{type(self).__module__}.{type(self).__name__} got {type(client).__module__}.{type(client).__name__}"
            )
        self.client = client


class Sync(Caller):
    """Base of the classes with a blocking client."""

    def _run(self, steps: Steps[T]) -> T:
        try:
            commands = next(steps)
            while True:
                try:
                    replies = self._send(commands)
                except Exception as error:  # noqa: BLE001 - the steps decide whether it is expected
                    commands = steps.throw(error)
                else:
                    commands = steps.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, commands: list[Command]) -> list[Any]:
        """Sends the commands together, and returns their replies. Raises the first error once all are answered."""
        if len(commands) == 1:
            return [self.client.execute_command(*commands[0], **UNDECODED)]
        with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command, **UNDECODED)
            replies: list[Any] = pipeline.execute()
            return replies


class Async(Caller):
    """Base of the classes with an asyncio client. Its methods are those of Sync, with `await`."""

    async def _run(self, steps: Steps[T]) -> T:
        try:
            commands = next(steps)
            while True:
                try:
                    replies = await self._send(commands)
                except Exception as error:  # noqa: BLE001 - the steps decide whether it is expected
                    commands = steps.throw(error)
                else:
                    commands = steps.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, commands: list[Command]) -> list[Any]:
        if len(commands) == 1:
            return [await self.client.execute_command(*commands[0], **UNDECODED)]
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command, **UNDECODED)
            replies: list[Any] = await pipeline.execute()
            return replies


if TYPE_CHECKING:  # ParamSpec came with Python 3.10; type checkers bring typing_extensions along
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    C = TypeVar("C")
    S = TypeVar("S", bound=Sync)
    A = TypeVar("A", bound=Async)

    class operation(Generic[C, P, T]):
        """A method written as steps."""

        def __init__(self, steps: Callable[Concatenate[C, P], Steps[T]]): ...
        @overload
        def __get__(self, caller: None, owner: type) -> Callable[Concatenate[C, P], Steps[T]]: ...
        @overload
        def __get__(self, caller: Sync, owner: type) -> Callable[P, T]: ...
        @overload
        def __get__(self, caller: Async, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, caller: Any, owner: type) -> Any: ...

    class chained(Generic[C, P]):
        """A method written as steps that returns the object that it was called on."""

        def __init__(self, steps: Callable[Concatenate[C, P], Steps[Any]]): ...
        @overload
        def __get__(self, caller: None, owner: type) -> Callable[Concatenate[C, P], Steps[Any]]: ...
        @overload
        def __get__(self, caller: S, owner: type) -> Callable[P, S]: ...
        @overload
        def __get__(self, caller: A, owner: type) -> Callable[P, Coroutine[Any, Any, A]]: ...
        def __get__(self, caller: Any, owner: type) -> Any: ...

else:

    class operation:
        """A method written as steps. On the class, it is the generator function, so that help() shows its signature and
        its description."""

        def __init__(self, steps):
            self.steps = steps

        def __get__(self, caller, owner):
            if caller is None:
                return self.steps
            return functools.wraps(self.steps)(lambda *a, **k: caller._run(self.steps(caller, *a, **k)))

    chained = operation
