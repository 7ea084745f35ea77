"""Lets the filters of several services converge: each gets the items of all the others.

    python3 converge.py KEY URL URL [URL...]      the servers, such as redis://paris:6379

Run it as often as you want the services to learn of each other's items. A server that has no such filter yet gets one.
Needs the package redis.
"""

import sys

import redis


def converge(key: str, servers: list[redis.Redis]) -> None:
    """Merges every filter into all others. Reads all of them first, so that each is sent with only its own items."""
    filters = [server.dump(key) for server in servers]
    for server, own in zip(servers, filters):
        others = [data for data in filters if data and data is not own]
        if others:
            server.execute_command("BF.MERGE", key, "BLOB", *others)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    converge(sys.argv[1], [redis.Redis.from_url(url) for url in sys.argv[2:]])
