"""Counts the requests for users who don't exist that reach the database: with cached nulls, a filter, or both.

    python3 examples/null_values.py

The database is a set in this program. The server is on port 6379, or at the address in REDIS_URL. The program replaces
the key `example:known`, and deletes all keys `example:null:*`. """

import argparse
import os
import random

import redis
from bloomery_redis import Bloom

USERS = 100_000
REQUESTS = 5000  # of each kind, all within NULL_SECONDS
NULL_SECONDS = 600
SEED = "5eed"  # of the filter, so that everybody sees the same false positives


class Lookup:
    """Finds a user, and counts the queries that reach the database."""

    def __init__(self, client: redis.Redis, *, nulls: bool, filtered: bool):
        self.client, self.nulls = client, nulls
        self.known = Bloom(client, "example:known") if filtered else None
        self.queries = 0

    def find(self, user: str) -> bool:
        if self.known and not self.known.contains(user):
            return False  # certain
        if self.nulls and self.client.exists(f"example:null:{user}"):
            return False  # the database said so less than NULL_SECONDS ago
        self.queries += 1
        found = user in DATABASE
        if self.nulls and not found:
            self.client.set(f"example:null:{user}", b"", ex=NULL_SECONDS)
        return found


DATABASE = {f"user:{number}" for number in range(USERS)}


def absent(distinct: int) -> list[str]:
    """The ids for REQUESTS requests, drawn from `distinct` ids that don't exist."""
    chance = random.Random(distinct)
    ids = [f"user:{number}" for number in range(USERS, USERS + distinct)]
    return ids if distinct == REQUESTS else chance.choices(ids, k=REQUESTS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare cached nulls with a filter.")
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), metavar="URL")
    client = redis.Redis.from_url(parser.parse_args().redis)
    client.unlink("example:known")
    Bloom(client, "example:known").reserve(0.01, USERS, nonscaling=True, seed=SEED).add_many(DATABASE)
    print(f"{f'{REQUESTS:,} requests for':<22}{'queries: nulls':>15}{'filter':>8}{'both':>7}{'cached: nulls':>17}{'both':>7}")
    for name, distinct in (("100 ids", 100), ("2,000 ids", 2000), ("as many ids", REQUESTS)):
        queries, cached = [], []
        for nulls, filtered in ((True, False), (False, True), (True, True)):
            lookup = Lookup(client, nulls=nulls, filtered=filtered)
            assert not any(map(lookup.find, absent(distinct)))
            queries.append(lookup.queries)
            keys = list(client.scan_iter("example:null:*", count=10_000))
            cached.append(len(keys))
            if keys:
                client.unlink(*keys)
        print(f"{name:<22}{queries[0]:>15,}{queries[1]:>8,}{queries[2]:>7,}{cached[0]:>17,}{cached[2]:>7,}")


if __name__ == "__main__":
    main()
