"""The source of truth: users in SQLite, made as slow as a database at the other end of a network.

This is the only file with SQL. It also keeps the outbox: the users whose add to the filter is not yet confirmed. A user
and their line in the outbox are written in one transaction, so that a crash loses both or neither.
"""

import queue
import sqlite3
import time
from collections.abc import Iterator

SCHEMA = """
    CREATE TABLE IF NOT EXISTS users (id TEXT PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS outbox (id TEXT PRIMARY KEY);
"""


class Busy(Exception):
    """All connections were in use for as long as a client may wait."""


class Store:
    """The users in a database. At most `connections` queries reach it at a time, whatever happens in front of it."""

    def __init__(self, path: str, *, connections: int = 4, query_seconds: float = 0.002, wait_seconds: float = 0.5):
        self.query_seconds = query_seconds
        self.wait_seconds = wait_seconds
        self.queries = 0
        self.pool: queue.Queue[sqlite3.Connection] = queue.Queue()
        for _ in range(connections):
            self.pool.put(sqlite3.connect(path, check_same_thread=False))
        with self._connection() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(SCHEMA)

    def find(self, user: str) -> dict[str, str] | None:
        with self._connection() as database:
            self.queries += 1  # by several threads, one at a time because of Python's global lock
            time.sleep(self.query_seconds)
            row = database.execute("SELECT id, name FROM users WHERE id = ?", (user,)).fetchone()
        return row and {"id": row[0], "name": row[1]}

    def insert(self, users: list[tuple[str, str]]) -> None:
        """Stores users. Those that are already there stay as they are, so a client may send a user again."""
        with self._connection() as database:
            database.executemany("INSERT INTO users VALUES (?, ?) ON CONFLICT DO NOTHING", users)
            database.executemany("INSERT INTO outbox VALUES (?) ON CONFLICT DO NOTHING", [(id,) for id, _ in users])

    def outbox(self, limit: int = 1000) -> list[str]:
        with self._connection() as database:
            return [id for (id,) in database.execute("SELECT id FROM outbox LIMIT ?", (limit,))]

    def confirm(self, users: list[str]) -> None:
        with self._connection() as database:
            database.executemany("DELETE FROM outbox WHERE id = ?", [(id,) for id in users])

    def count(self) -> int:
        with self._connection() as database:
            return int(database.execute("SELECT count(*) FROM users").fetchone()[0])

    def all_ids(self, batch: int = 1000) -> Iterator[list[str]]:
        """All ids, in lists. Each list is a separate query, so no transaction is open while the caller works on it."""
        last = ""
        while True:
            with self._connection() as database:
                rows = database.execute("SELECT id FROM users WHERE id > ? ORDER BY id LIMIT ?", (last, batch))
                ids = [id for (id,) in rows]
            if not ids:
                return
            yield ids
            last = ids[-1]

    def _connection(self) -> "_Borrowed":
        return _Borrowed(self.pool, self.wait_seconds)


class _Borrowed:
    """A connection from the pool, and a transaction: committed at the end of the `with`, or rolled back on an error."""

    def __init__(self, pool: queue.Queue[sqlite3.Connection], wait_seconds: float):
        self.pool = pool
        self.wait_seconds = wait_seconds

    def __enter__(self) -> sqlite3.Connection:
        try:
            self.connection = self.pool.get(timeout=self.wait_seconds)
        except queue.Empty:
            raise Busy from None
        return self.connection

    def __exit__(self, failure: object, *_: object) -> None:
        self.connection.rollback() if failure else self.connection.commit()
        self.pool.put(self.connection)
