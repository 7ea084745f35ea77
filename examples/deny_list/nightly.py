"""Rebuilds a deny list from a file while the list is in use, and swaps in the new list in one step if it is plausible.

    python3 examples/deny_list/nightly.py blocked.txt

The file has one entry per line. Entries that were removed from the file are no longer in the filter afterwards. An
entry that is added to the filter while this runs is also in the new filter. Add it to the file as well, or the next run
drops it. The old filter is kept for a day as `{deny}:previous`. """

import argparse
import os
import sys
from collections.abc import Iterator

import redis
from bloomery_redis import Bloom

KEY, PREVIOUS = "{deny}", "{deny}:previous"  # in the same slot, for COPY in a cluster
ERROR_RATE = 1e-6  # one innocent in a million is taken for an entry
SPARE = 1.2  # room for what is added until the next run
KEEP_SECONDS = 24 * 3600


class Implausible(Exception):
    """The file is not plausible as today's deny list."""


def entries(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        yield from filter(None, map(str.strip, file))


def rebuild(client: redis.Redis, path: str, *, shrinks_to: float, seed: str | None = None) -> int:
    count = sum(1 for _ in entries(path))
    deny = Bloom(client, KEY)
    before = deny.card()  # 0 if there is no filter yet
    if count < before * shrinks_to:
        raise Implausible(f"{path} has {count} entries, and the filter has {before}; --shrinks-to allows that")
    capacity = max(1000, int(count * SPARE))
    if client.copy(KEY, PREVIOUS, replace=True):
        client.expire(PREVIOUS, KEEP_SECONDS)
    else:
        deny.reserve(ERROR_RATE, capacity)
    # The new filter takes the place of the old one at the end of the block. If anything fails, the old one stays.
    with deny.rebuild(capacity=capacity, error_rate=ERROR_RATE, seed=seed) as new:
        new.add_many(entries(path))
    return deny.card()


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild a deny list from a file, while it is in use.")
    parser.add_argument("file", help="one entry in a line")
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), metavar="URL")
    parser.add_argument(
        "--shrinks-to", type=float, default=0.8, metavar="PART", help="the least part of yesterday's entries (0.8)"
    )
    parser.add_argument("--seed", help="the key of the filter's hash, for a demonstration that can be repeated")
    arguments = parser.parse_args()
    client = redis.Redis.from_url(arguments.redis, decode_responses=True)
    try:
        items = rebuild(client, arguments.file, shrinks_to=arguments.shrinks_to, seed=arguments.seed)
    except (Implausible, OSError, UnicodeDecodeError, redis.RedisError) as error:
        sys.exit(f"the deny list is as it was: {error}")
    print(f"the deny list has {items} entries")


if __name__ == "__main__":
    main()
