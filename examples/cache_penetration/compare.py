"""Sends the same requests to the service twice, without the filter and with it, and counts what reaches the store.

    python3 examples/cache_penetration/compare.py

A fifth of the requests are for users that exist, and the others for ids that somebody made up. A cache does not help
against made-up ids: a user that does not exist cannot be cached, so each of these requests causes a query. Keys that an
earlier run left in the server are removed first. """

import argparse
import concurrent.futures
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fill import fill
from guard import FILTER, READY, connect
from store import Store

HERE = Path(__file__).resolve().parent
CLIENTS = 4
REAL = 0.2  # the fraction of the requests that are for users that exist
SEED = "b100"  # of the filter, so that everybody sees the same false positives


def user(number: int) -> str:
    return f"user-{number:07}"


def requests(users: int, count: int) -> list[str]:
    """The ids to ask for. Users that exist have numbers below `users`, and some come often. Made-up ids come once."""
    chance = random.Random(1)
    real = [int(users * chance.random() ** 3) for _ in range(int(count * REAL))]
    made_up = chance.sample(range(users, 10 * users + count), count - len(real))
    ids = [user(number) for number in real + made_up]
    chance.shuffle(ids)
    return ids


def send(port: int, ids: list[str]) -> list[int]:
    """Requests the ids over one connection, and returns the status of each answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    statuses = []
    for id in ids:
        connection.request("GET", f"/users/{id}")
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    return statuses


def run(database: str, url: str, ids: list[str], *options: str) -> dict[str, Any]:
    """Starts the service, sends the requests, and returns the numbers of users found and not found, the time, and
    the counts of the service."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, str(HERE / "service.py"), database, "--port", str(port), "--redis", url, *options]
    service = subprocess.Popen(words)
    try:
        wait_until_up(port, service)
        started = time.monotonic()
        # All requests for an id come from the same client, one by one, so the second finds what the first has cached.
        shares = [[id for id in ids if hash_of(id) % CLIENTS == client] for client in range(CLIENTS)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            statuses = [status for some in pool.map(lambda share: send(port, share), shares) for status in some]
        seconds = time.monotonic() - started
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/stats")
        stats = json.load(connection.getresponse())
    finally:
        service.terminate()
        service.wait()
    found = statuses.count(200)
    assert found + statuses.count(404) == len(ids), "the service was too busy for some requests"
    return {"found": found, "not found": len(ids) - found, "seconds": seconds, **stats}


def hash_of(id: str) -> int:
    return int(id.removeprefix("user-"))


def wait_until_up(port: int, service: subprocess.Popen[bytes]) -> None:
    while service.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
    sys.exit("the service did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the queries that reach the store, before and after.")
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), metavar="URL")
    arguments = parser.parse_args()
    client = connect(arguments.redis, timeout=10)
    ids = requests(arguments.users, arguments.requests)

    def forget() -> None:
        if cached := list(client.scan_iter("example:user:*", count=1000)):
            client.unlink(*cached)

    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/users.db"
        store = Store(database)
        everybody = [user(number) for number in range(arguments.users)]
        store.insert([(id, id.replace("-", " ")) for id in everybody])
        store.confirm(everybody)  # fill() brings them into the filter
        forget()
        client.unlink(FILTER, READY)
        before = run(database, arguments.redis, ids, "--no-filter")
        forget()
        fill(store, client, seed=SEED)
        after = run(database, arguments.redis, ids)

    def row(name: str, key: str) -> None:
        print(f"{name:<24} {before.get(key, 0):>14} {after.get(key, 0):>14}")

    print(f"{'':<24} {'without filter':>14} {'with filter':>14}")
    row("users found", "found")
    row("users not found", "not found")
    row("answered by the cache", "answered by the cache")
    row("answered by the filter", "answered by the filter")
    row("queries to the store", "queries to the store")
    row("  for a false positive", "false positives")
    print(f"{'seconds':<24} {before['seconds']:>14.1f} {after['seconds']:>14.1f}")


if __name__ == "__main__":
    main()
