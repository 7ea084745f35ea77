"""Interrupts full resyncs at random moments: afterwards the replica must recover and be equal to its primary, and no
memory may leak.

If the primary's backlog doesn't reach back far enough, the replica needs the whole data set again: 200 MiB of filters
of every kind. `Syncs` causes full resyncs and interrupts them, again and again: it cuts the link from either side, or
kills the replica, or the primary's child process that writes the RDB file. A sync goes through the disk or through
memory, and replaces the old data set at once, or keeps it until the new one is loaded. Sometimes the suite lets a sync
complete. Then the replica must be equal to its primary, and both must use as much memory as before, so a filter that
was half loaded when the link broke must have been freed.
"""

import collections
import contextlib
import os
import random
import time
from pathlib import Path

import redis

from kit import suite
from kit.filters import SMALL, make_all
from kit.resync import paused, sync_in_some_way
from kit.servers import Server, Spec, wait_for
from kit.suite import progress
from kit.workload import digests

MB = 1 << 20
SLACK = 4 * MB  # of used_memory, for client buffers and the allocator's rounding

# A tiny backlog, so that a pause is enough for a full resync. Without compression, an RDB file is as large as the
# filters.
CONFIG = {"repl-backlog-size": "16kb", "rdbcompression": "no"}


class Syncs:
    """A primary, its replica, and resyncs between them."""

    def __init__(self, spec: Spec, seed: int, megabytes: int):
        self.random = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.duration = 1.0  # estimated seconds for a sync; each cut corrects it
        self.primary = Server(spec, config=CONFIG)
        self.replica = self.primary.replica(config=CONFIG)
        self.empty = self.memory()
        self.fill(megabytes)
        self.begin()
        self.recover()
        self.full = self.memory()

    def __enter__(self) -> "Syncs":
        return self

    def __exit__(self, *_) -> None:
        self.primary.destroy()

    def fill(self, megabytes: int) -> None:
        """Creates small filters of most kinds, and large ones with a total size of about `megabytes` MiB."""
        with self.primary.client() as client:
            make_all(client, [kind for kind in SMALL if "saturated" not in kind.states])
            items = megabytes * MB * 8 // 10  # at ten bits each
            client.execute_command("BF.RESERVE", "fixed", 0.01, items // 3)
            client.execute_command("BF.RESERVE", "counting", 0.01, items // 20, "COUNTING")
            client.execute_command("BF.RESERVE", "window", 0.01, items // 20, "WINDOW", 4)
            client.execute_command("CF.RESERVE", "cuckoo", items // 6, "BUCKETSIZE", 4)
            for key in ("fixed", "counting", "window", "chain"):
                client.execute_command("BF.BULKADD", key, "FIXED", 8, self.random.randbytes(8 * (items // 100)))
            client.execute_command("CF.INSERT", "cuckoo", "ITEMS", *range(5000))

    # ---- one sync ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Makes the replica miss more than the backlog contains."""
        with paused(self.replica), self.primary.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            client.set("filler", self.random.randbytes(MB))
            client.execute_command("BF.ADD", "chain", self.random.randbytes(8))
            client.execute_command("CF.ADD", "cuckoo", self.random.randbytes(8))

    def phase(self) -> str | None:
        """The current phase of a sync, or `None` if there is no sync or the replica doesn't answer."""
        try:
            with self.replica.client(decode_responses=True, socket_timeout=5) as client:
                info = client.info("replication") | client.info("persistence")
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return None
        if info["role"] == "master" or info["master_link_status"] == "up":
            return None
        if info["loading"] or info.get("async_loading"):
            return "loading"
        return "transfer" if info["master_sync_in_progress"] else None

    def is_online(self) -> bool:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return self.replica.info("replication")["master_link_status"] == "up"
        return False

    def cut(self) -> bool:
        """Cuts a sync at a random moment. Returns False if it was already over."""
        for server in (self.primary, self.replica):
            with contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError):
                sync_in_some_way(server, self.random)  # how the next sync works
        if self.is_online():
            self.begin()
        wait_for(lambda: self.phase() or self.is_online(), "a sync to begin")
        time.sleep(self.random.uniform(0, self.duration))
        phase = self.phase()
        if not phase:
            self.duration = max(0.1, 0.8 * self.duration)
            return False
        self.duration = min(4.0, 1.1 * self.duration)
        ways = [self.cut_link, self.leave, self.kill_replica, self.kill_child]
        way = self.random.choice(ways)
        if not way():
            way = self.cut_link
            way()
        self.counts[phase] += 1
        self.counts[way.__name__] += 1
        return True

    def cut_link(self) -> bool:
        self.primary.command("CLIENT", "KILL", "TYPE", "replica")
        return True

    def leave(self) -> bool:
        """Detaches the replica, and attaches it again. Returns False if the replica is loading and refuses that."""
        try:
            self.replica.command("REPLICAOF", "NO", "ONE")
        except (redis.BusyLoadingError, redis.ResponseError):
            return False
        # The replica might have a different data set from the primary's, or half of one, so it syncs from scratch.
        self.replica.command("REPLICAOF", "127.0.0.1", self.primary.port)
        return True

    def kill_replica(self) -> bool:
        self.replica.kill()
        for file in self.replica.directory.glob("temp-*"):
            file.unlink()
        self.replica.start(wait=False)
        return True

    def kill_child(self) -> bool:
        """Kills the process that writes the RDB file. Returns False if it no longer exists."""
        children = Path(f"/proc/{self.primary.process.pid}/task/{self.primary.process.pid}/children")
        found = children.read_text().split()
        for child in found:
            os.kill(int(child), 9)
        return bool(found)

    # ---- afterwards -------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        wait_for(self.is_online, f"{self.replica} to recover")
        self.primary.wait_until_online(self.replica)
        self.primary.wait_for_replicas()
        with self.primary.client() as client, self.replica.client() as other:
            expected, found = digests(client), digests(other)
        different = [key for key in expected | found if expected.get(key) != found.get(key)]
        assert not different, f"{self.replica} is not as {self.primary}: {different}"
        self.primary.check()
        self.counts["recoveries"] += 1

    def memory(self) -> dict[Server, int]:
        return {server: server.info("memory")["used_memory"] for server in (self.primary, self.replica)}

    def must_use(self, expected: dict[Server, int]) -> None:
        """Checks the memory. It may fall for up to 10 s, because other threads free large filters in the background."""
        for server in (self.primary, self.replica):
            with contextlib.suppress(AssertionError):
                wait_for(lambda: self.memory()[server] <= expected[server] + SLACK, "the memory to come back")
            used = self.memory()[server]
            assert used <= expected[server] + SLACK, f"{server} uses {used:,} bytes, not {expected[server]:,}"

    def flush(self) -> None:
        self.primary.command("FLUSHALL")
        self.primary.wait_for_replicas()
        self.must_use(self.empty)


def fullsync(spec: Spec, arguments) -> str:
    with Syncs(spec, arguments.seed, arguments.megabytes) as syncs:
        used = syncs.full[syncs.primary] - syncs.empty[syncs.primary]
        done = 0
        while done < arguments.count:
            if syncs.cut():
                done += 1
                progress(done, arguments.count, "cuts")
            if syncs.random.random() < 0.2:
                syncs.recover()
                syncs.must_use(syncs.full)
        syncs.recover()
        syncs.must_use(syncs.full)
        syncs.flush()
        counts = syncs.counts
        return (
            f"{done} full resyncs of {used // MB} MiB cut ({counts['transfer']} in transfer, {counts['loading']} while "
            f"loading; {counts['cut_link']} by the link, {counts['leave']} by the replica, {counts['kill_replica']} "
            f"replicas and {counts['kill_child']} children killed), {counts['recoveries']} recoveries, all equal, 0 "
            f"crashes, memory back within {SLACK // MB} MiB each time"
        )


def main() -> None:
    parser = suite.options("fullsync", __doc__, 100, "cuts")
    parser.add_argument("--megabytes", type=int, default=200, metavar="N", help="of filters (200)")
    suite.run(fullsync, parser)
