"""Random settings for full resyncs, and pausing a server."""

import contextlib
import random
import signal

import redis

from kit.servers import Server

SYNC_OPTIONS = {
    "repl-diskless-sync": ["yes", "no"],
    "repl-diskless-load": ["disabled", "on-empty-db", "flush-before-load", "swapdb"],
    "repl-rdb-channel": ["yes", "no"],
    "dual-channel-replication-enabled": ["yes", "no"],
}


def sync_in_some_way(server: Server, chance: random.Random) -> None:
    """Randomly chooses how the next full resync works: how the primary sends the data, how the replica receives it, and
    over how many connections."""
    for name, values in SYNC_OPTIONS.items():
        with contextlib.suppress(redis.ResponseError):  # not every server has every option and value
            server.command("CONFIG", "SET", name, chance.choice(values))


@contextlib.contextmanager
def paused(server: Server):
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)
