"""A cache and a Bloom filter in front of a store: if the filter answers "no", the request never reaches the store.

Whatever goes wrong with the filter, the answer is "perhaps": the guard fails open, and the store is asked.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
from bloomery_redis import Bloom
from redis.backoff import NoBackoff
from redis.retry import Retry

ERROR_RATE = 0.01
CACHE_SECONDS = 60
TIMEOUT_SECONDS = 0.1  # longer than any answer takes, and short enough to wait for
PAUSE_SECONDS = 1.0  # after a failure, before the server is tried again
REPORT_EVERY = 100  # answers of the store per BF.FEEDBACK

# Both keys have the tag {example}, so that in a cluster they are in one slot and one command may name both.
FILTER = "{example}:filter"
READY = "{example}:ready"  # fill.py sets this key when every user of the store is in the filter


def connect(url: str, *, timeout: float = TIMEOUT_SECONDS) -> redis.Redis:
    """A client that doesn't retry: asking the store is better than asking the filter again."""
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))


class Guard:
    def __init__(self, client: redis.Redis, *, filtered: bool = True):
        self.client = client
        self.users = Bloom(client, FILTER)
        self.filtered = filtered
        self.paused_until = 0.0
        self.lock = threading.Lock()
        self.checked = self.false = 0

    def ask(self, user: str) -> tuple[dict[str, Any] | None, bool | None]:
        """The cached user or None, and what the filter says: False (absent), True (perhaps present), None (unknown)."""
        if time.monotonic() < self.paused_until:
            return None, None
        try:
            pipeline: Any
            with self.client.pipeline(transaction=False) as pipeline:  # one round trip
                pipeline.get(_cached(user))
                # A filter that is missing, or not yet filled, says no to everything. Only a filled one can be trusted.
                pipeline.exists(FILTER, READY)
                pipeline.execute_command("BF.EXISTS", FILTER, user)
                cached, keys, maybe = pipeline.execute()
        except redis.RedisError:
            self._pause()
            return None, None
        believed = self.filtered and keys == 2
        return cached and json.loads(cached), bool(maybe) if believed else None

    def add(self, users: list[str]) -> bool:
        """Adds users to the filter, and returns whether they are in it now. An add does not recreate a filter that is
        gone, because the new one would lack all other users."""
        try:
            self.users.add_many(users)
        except redis.RedisError:
            return False
        return True

    def cache(self, user: dict[str, Any]) -> None:
        self._try(lambda: self.client.set(_cached(user["id"]), json.dumps(user), ex=CACHE_SECONDS))

    def forget(self, user: str) -> None:
        self._try(lambda: self.client.unlink(_cached(user)))

    def report(self, *, was_false: bool) -> None:
        """Counts a "yes" that the store has checked. After REPORT_EVERY of them, reports the counts to the server."""
        with self.lock:
            self.checked += 1
            self.false += was_false
            if self.checked < REPORT_EVERY:
                return
            checked, false, self.checked, self.false = self.checked, self.false, 0, 0
        self._try(lambda: self.users.feedback(checked, false))

    def _try(self, send: Callable[[], object]) -> None:
        if time.monotonic() >= self.paused_until:
            try:
                send()
            except redis.ResponseError:
                pass  # refused, for example at maxmemory; no answer to a client depends on it
            except redis.RedisError:
                self._pause()

    def _pause(self) -> None:
        """Leaves the server alone for a while. Otherwise, if it hangs, every request would wait for the timeout."""
        self.paused_until = time.monotonic() + PAUSE_SECONDS


def _cached(user: str) -> str:
    return f"example:user:{user}"
