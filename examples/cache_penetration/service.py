"""A small HTTP service that finds users by id, in a cache or in a slow store behind a Bloom filter.

    python3 examples/cache_penetration/service.py users.db --port 8000

    GET  /users/ID    the user, or 404
    POST /users/ID    creates the user; the body is the name
    GET  /stats       how many queries have reached the store, and more
"""

import argparse
import collections
import json
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from guard import Guard, connect
from store import Busy, Store

DRAIN_SECONDS = 1.0


class Users:
    """Finds and creates users. A new user goes first into the store, the source of truth, and then into the filter."""

    def __init__(self, store: Store, guard: Guard):
        self.store = store
        self.guard = guard
        self.stats: collections.Counter[str] = collections.Counter()

    def find(self, id: str) -> dict[str, Any] | None:
        cached, maybe = self.guard.ask(id)
        if cached:
            self.stats["answered by the cache"] += 1
            return cached
        if maybe is False:
            self.stats["answered by the filter"] += 1
            return None
        user = self.store.find(id)
        if maybe:  # the filter said yes, and the store knows whether that was right
            self.guard.report(was_false=user is None)
            self.stats["false positives"] += user is None
        if user:
            self.guard.cache(user)
        return user

    def create(self, id: str, name: str) -> None:
        self.store.insert([(id, name)])  # 1. the store: the user, and a line in the outbox, in one transaction
        if self.guard.add([id]):  # 2. the filter
            self.store.confirm([id])
        self.guard.forget(id)  # 3. the cache

    def drain(self) -> None:
        """Repeats adds to the filter that failed in step 2 of `create`. Adding a user twice does no harm."""
        while users := self.store.outbox():
            if not self.guard.add(users):
                return
            self.store.confirm(users)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True
    users: Users

    def do_GET(self) -> None:
        if self.path == "/stats":
            return self._answer(200, {"queries to the store": self.users.store.queries, **self.users.stats})
        try:
            user = self.users.find(self._id())
        except Busy:
            return self._answer(503, {"error": "too many queries"})
        return self._answer(200, user) if user else self._answer(404, {"error": "no such user"})

    def do_POST(self) -> None:
        name = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        try:
            self.users.create(self._id(), name)
        except Busy:
            return self._answer(503, {"error": "too many queries"})
        return self._answer(201, {"id": self._id(), "name": name})

    def _id(self) -> str:
        return self.path.removeprefix("/users/")

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Users by id, from a cache, behind a Bloom filter.")
    parser.add_argument("database", help="a file of SQLite; it is made if it is not there")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), metavar="URL")
    parser.add_argument("--no-filter", action="store_true", help="the cache alone, as it was before")
    arguments = parser.parse_args()

    users = Users(Store(arguments.database), Guard(connect(arguments.redis), filtered=not arguments.no_filter))
    Handler.users = users
    threading.Thread(target=_drain_forever, args=(users,), daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()


def _drain_forever(users: Users) -> None:
    while True:
        time.sleep(DRAIN_SECONDS)
        try:
            users.drain()
        except Busy:
            pass


if __name__ == "__main__":
    main()
