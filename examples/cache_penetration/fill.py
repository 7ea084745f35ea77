"""Fills the filter from the store, the first time and at every rebuild, while the service runs.

    python3 examples/cache_penetration/fill.py users.db

Users that the service adds meanwhile go to both filters, so none is lost. The old filter answers tests until the new
one is complete.
"""

import argparse
import os
import sys

import redis
from bloomery_redis import Bloom
from guard import ERROR_RATE, FILTER, READY, connect
from store import Store

TIMEOUT_SECONDS = 10  # nobody waits for this


class Implausible(Exception):
    """The store has too few users, so it is probably the wrong store."""


def fill(store: Store, client: redis.Redis, *, seed: str | None = None, shrinks_to: float = 0.5) -> None:
    users = Bloom(client, FILTER)
    count, before = store.count(), users.card()
    if count < before * shrinks_to:  # a filter of an empty table would say no to everybody
        raise Implausible(f"the store has {count} users, and the filter has {before}; --shrinks-to allows that")
    capacity = max(1000, int(1.2 * count))  # with room for those who come until the next rebuild
    if not client.exists(FILTER):
        client.delete(READY)  # it belongs to a filter that is gone
        users.reserve(ERROR_RATE, capacity)
    with users.rebuild(capacity=capacity, seed=seed) as new:  # if anything fails, the old filter stays
        # The rebuild has begun. A user who is stored from now on is added to both filters, and one who was stored
        # earlier is read here.
        for ids in store.all_ids():
            new.add_many(ids)
    client.set(READY, "yes")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the filter from the store.")
    parser.add_argument("database", help="the file of SQLite")
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), metavar="URL")
    parser.add_argument(
        "--shrinks-to", type=float, default=0.5, metavar="PART", help="the least part of the users of last time (0.5)"
    )
    parser.add_argument("--seed", help="the key of the filter's hash, for a demonstration that can be repeated")
    arguments = parser.parse_args()
    store, client = Store(arguments.database), connect(arguments.redis, timeout=TIMEOUT_SECONDS)
    try:
        fill(store, client, seed=arguments.seed, shrinks_to=arguments.shrinks_to)
    except (Implausible, redis.RedisError) as error:
        sys.exit(f"the filter is as it was: {error}")
    print(f"{store.count()} users in the store, {Bloom(client, FILTER).card()} in the filter")


if __name__ == "__main__":
    main()
