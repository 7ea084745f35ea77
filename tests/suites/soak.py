"""Hours of mixed traffic at a low rate: nothing crashes, nothing leaks, nothing drifts.

The traffic consists of random writes of every kind (kit/workload.py), filters of tens of MiB that are created and
deleted, offloaded tests, whole-filter commands, other systems' filters, snapshots, rewrites of the append-only file,
and a replica that loses its link now and then. The suite samples the server's memory every 10 seconds, and fits a line
to the last two thirds of the samples by least squares: if the server leaks, its resident memory climbs. By the end,
every module command must have been called, the replica must be equal, and after all keys are deleted the server must
use as much memory as when it was warmed up and empty.

The slope of a short run is uncertain, so it is printed with its standard error. The standard error assumes independent
samples, which isn't quite true of fluctuating memory. The run fails if the slope exceeds the bound by more than two
standard errors.
"""

import contextlib
import random
import statistics
import threading
import time

import redis

from kit.commands import COMMANDS
from kit.expected import go_zero_bitmap, redisbloom_chain, valkey_bloom_chain
from kit.filters import load_pieces, pairs, pieces
from kit.suite import Server, options, progress, run
from kit.workload import Workload, digests

PERIOD = 10  # seconds between samples
BOUND = 1.0  # MiB/h
BACK = 8 << 10  # bytes: how much more data memory the empty server may use than after the warm-up
BLOB = b"".join(b"%08d" % number for number in range(20_000))
CONFIG = {
    "appendonly": "yes",
    "auto-aof-rewrite-min-size": "16mb",
    "repl-backlog-size": "256kb",
    # Otherwise the server would store the arguments of slow commands, and a latency histogram for each command.
    "slowlog-log-slower-than": -1,
    "latency-tracking": "no",
}

# Filters of 5 to 40 MiB: how to reserve each of them, and its capacity per MiB.
LARGE = [
    ("BF.RESERVE 0.01 {} NONSCALING", 800_000),
    ("BF.RESERVE 0.01 {} EXPANSION 2", 800_000),
    ("BF.RESERVE 0.01 {} SHARDS 8 NONSCALING", 800_000),
    ("BF.RESERVE 0.01 {} COUNTING", 200_000),
    ("BF.RESERVE 0.01 {} WINDOW 4", 200_000),
    ("CF.RESERVE {} BUCKETSIZE 4", 800_000),
]


class Traffic:
    """One client's commands, in rounds."""

    def __init__(self, server, seed: int):
        self.server = server
        self.client = server.client()
        self.chance = random.Random(seed)
        self.workload = Workload(seed)
        self.steps = [self.large, self.large, self.whole, self.foreign, self.once, self.save, self.link]

    def round(self) -> None:
        self.workload.run(self.client, 60)
        self.chance.choice(self.steps)()

    def every_step(self) -> None:
        for step in self.steps:
            self.workload.run(self.client, 60)
            step()

    def do(self, *words):
        return self.client.execute_command(*words)

    def large(self) -> None:
        """Creates, fills and drops a large filter. A Bloom filter is changed and copied while the pool tests it."""
        reservation, per_mib = self.chance.choice(LARGE)
        command, *words = reservation.format(self.chance.randint(5, 40) * per_mib).split()
        self.do(command, "large", *words)
        if command == "CF.RESERVE":
            for start in range(0, len(BLOB), 8000):
                self.do("CF.INSERT", "large", "ITEMS", *(BLOB[at : at + 8] for at in range(start, start + 8000, 8)))
        else:
            self.do("BF.BULKADD", "large", "FIXED", 8, BLOB)
            with self.testers(2):
                self.do("BF.BULKADD", "large", "FIXED", 4, BLOB)
                self.do("BF.ROTATE" if "WINDOW" in words else "BF.CARD", "large")
                self.client.copy("large", "large copy", replace=True)
                if self.chance.random() < 0.5:
                    self.do("BF.CLEAR", "large")
                self.client.pexpire("large copy", 20)
        self.do(self.chance.choice(["DEL", "UNLINK"]), "large")
        self.client.unlink("large copy")

    @contextlib.contextmanager
    def testers(self, count: int):
        """Clients whose blobs the pool tests. One of them disconnects without waiting for its reply."""

        def test(stays: bool) -> None:
            with self.server.client() as other:
                connection = other.connection_pool.get_connection()
                connection.send_command("BF.BULKTEST", "large", "FIXED", 8, BLOB, "COUNT")
                if stays:
                    connection.read_response()
                connection.disconnect()

        threads = [threading.Thread(target=test, args=[bool(number)]) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                thread.join()

    def whole(self) -> None:
        """Runs commands on several filters, sometimes in a transaction. Keeps their results until the next call."""
        self.client.delete("left", "right", "both", "common")
        self.do("BF.RESERVE", "left", 0.01, 5000, *self.chance.choice([["NONSCALING"], ["COUNTING"], ["WINDOW", 3]]))
        self.do("BF.RESERVE", "right", 0.01, 5000, "LIKE", "left")
        kind = pairs(self.do("BF.STATS", "left"))[b"Kind"]
        with self.client.pipeline(transaction=self.chance.random() < 0.5) as pipeline:
            pipeline.execute_command("BF.BULKADD", "left", "FIXED", 8, BLOB[:16_000])
            pipeline.execute_command("BF.BULKADD", "right", "FIXED", 8, BLOB[8_000:24_000])
            pipeline.execute_command("BF.BULKTEST", "right", "FIXED", 8, BLOB)
            pipeline.execute_command("BF.MERGE", "both", "left", "right")
            pipeline.execute_command("BF.EQUAL", "both", "left")
            if kind != b"window":
                pipeline.execute_command("BF.INTERSECT", "common", "left", "right")
            pipeline.execute()

    def foreign(self) -> None:
        """Imports, grows and moves other systems' filters. Keeps the last one until the next call."""
        for make in (redisbloom_chain, valkey_bloom_chain, go_zero_bitmap):
            self.client.delete("foreign", "moved")
            self.do(*make("foreign"))
            self.do("BF.BULKADD", "foreign", "FIXED", 8, BLOB[: 8 * 2000])
            load_pieces(self.client, "moved", "BF", pieces(self.client, "foreign", "BF"))
            assert self.do("BF.CARD", "moved") == self.do("BF.CARD", "foreign")

    def once(self) -> None:
        """Sends the commands that no other step sends. They use filters of their own, because a rebuild may have
        changed the kind of the workload's filters."""
        self.do("BF.RESERVE", "aging", 0.01, 30, "WINDOW", 3)
        self.do("BF.ADD", "aging", "ada")
        self.do("BF.TEST", "aging", "ada")
        self.do("BF.MEXISTS", "aging", "ada", "bob")
        self.do("BF.AGE", "aging", "ada")
        self.do("BF.DEBUG", "aging")
        self.do("BF.INFO", "aging")
        self.do("CF.ADD", "pieces", "ada")
        self.do("CF.STATS", "pieces")
        self.do("CF.SCANDUMP", "pieces", 0)
        for command in COMMANDS:
            if command.family in ("cms", "topk", "tdigest"):
                if command.creates:
                    self.client.delete(command.family)
                self.do(*command.words(command.family))
        self.client.delete("aging", "pieces", "cms", "topk", "tdigest")

    def save(self) -> None:
        """Starts a snapshot or a rewrite. The server refuses one while the other is in progress."""
        with contextlib.suppress(redis.ResponseError):
            self.do(self.chance.choice(["BGSAVE", "BGREWRITEAOF"]))

    def link(self) -> None:
        """Cuts the replica's link, and sometimes makes a partial resync impossible."""
        if self.chance.random() < 0.3:
            self.do("DEBUG", "CHANGE-REPL-ID")
        self.do("CLIENT", "KILL", "TYPE", "replica")

    def compare(self, replica) -> None:
        self.server.wait_until_online(replica)
        self.whole()  # this comes last: a later full resync would hide replication errors
        self.server.wait_for_replicas()
        with replica.client() as other:
            ours, theirs = digests(self.client), digests(other)
        differing = [key for key in ours | theirs if ours.get(key) != theirs.get(key)]
        assert not differing, f"the replica's {differing} are not the primary's"

    def used(self, replica) -> int:
        """Empties the server, and returns the memory that it uses for data alone, while idle and without its replica.
        The server computes it from its total by subtracting its buffers, tables and initial memory. These numbers
        aren't from the same moment, so the difference might be negative, and INFO then wraps around.
        """
        self.do("FLUSHALL", "SYNC")
        replica.command("REPLICAOF", "NO", "ONE")
        least = []
        for _ in range(5):
            time.sleep(1)
            dataset = self.client.info("memory")["used_memory_dataset"]
            least.append(dataset - 2**64 if dataset >= 2**63 else dataset)
        replica.command("REPLICAOF", "127.0.0.1", self.server.port)
        return min(least)


def soak(spec, arguments) -> str:
    module_args = ["THREADS", 2, "OFFLOAD_MIN_ITEMS", 5000]
    with Server(spec, config=CONFIG, module_args=module_args) as server:
        replica = server.replica(module_args=module_args, config={"latency-tracking": "no"})
        traffic = Traffic(server, arguments.seed)
        # Warm the server up, then empty it. The first loss of its replica costs a server some memory, and in the first
        # 36,000 commands rare events cost up to 13 kB. The next 110,000 commands cost 8 bytes (valkey-9.1) and 2 kB
        # (redis-7.0).
        traffic.every_step()
        traffic.used(replica)
        for _ in range(600):
            traffic.round()
        warm = traffic.used(replica)
        samples = watch(traffic, replica, arguments.count, arguments.share)
        traffic.compare(replica)
        must_have_called_every_command(traffic.client)
        left = traffic.used(replica)
        if left - warm > BACK:
            # Either a rare event cost the server memory once, or there is a leak. The same traffic would repeat a leak.
            warm = left
            samples = watch(traffic, replica, arguments.count, arguments.share)
            left = traffic.used(replica)
        assert left - warm <= BACK, f"{left:,} bytes of data are left with all keys gone, and {warm:,} were before"
        server.check()
    late = samples[len(samples) // 3 :]
    slope, error = fitted([(at, rss) for at, rss, _ in late])
    used_slope, used_error = fitted([(at, used) for at, _, used in late])
    figure = (
        f"{len(samples)} samples in {samples[-1][0] * 60:.0f} min, {sum(traffic.workload.did.values()):,} random "
        f"commands; resident {late[0][1]:.1f} to {late[-1][1]:.1f} MiB, slope {slope:+.2f} ± {error:.2f} MiB/h; "
        f"used {used_slope:+.2f} ± {used_error:.2f} MiB/h; {left - warm:+,} bytes when empty; replica equal"
    )
    assert slope - 2 * error < BOUND, figure
    return figure


def watch(traffic, replica, count: int, share: float) -> list[tuple[float, float, float]]:
    """Runs traffic, and samples the memory. A sample is the time in hours, the resident MiB, and the used MiB."""
    started, samples = time.monotonic(), []
    while len(samples) < count:
        began = time.monotonic()
        traffic.round()
        time.sleep(min(PERIOD, (time.monotonic() - began) * (1 / share - 1)))
        now = time.monotonic()
        if now - started >= PERIOD * (len(samples) + 1):
            traffic.do("MEMORY", "PURGE")  # otherwise the memory that the allocator keeps for reuse would hide a leak
            time.sleep(0.3)  # the server updates its resident memory ten times a second
            memory = traffic.client.info("memory")
            samples.append(((now - started) / 3600, memory["used_memory_rss"] / 2**20, memory["used_memory"] / 2**20))
            progress(len(samples), count, "samples")
            if len(samples) % 30 == 0:
                traffic.compare(replica)
    return samples


def fitted(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The slope of a line through the points, and its standard error, which is infinite if there are too few points."""
    if len(points) < 3:
        return 0.0, float("inf")
    xs, ys = zip(*points, strict=True)
    slope, intercept = statistics.linear_regression(xs, ys)
    rest = sum((y - slope * x - intercept) ** 2 for x, y in points)
    mean = statistics.fmean(xs)
    return slope, (rest / (len(points) - 2) / sum((x - mean) ** 2 for x in xs)) ** 0.5


def must_have_called_every_command(client) -> None:
    module = {name.decode() for name in client.command_list(module="bf")}
    called = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert module and not module - called, f"never called: {sorted(module - called)}"


def main() -> None:
    parser = options("soak", __doc__, 1440, f"samples, one each {PERIOD} s,")
    parser.add_argument(
        "--minutes", dest="count", type=lambda minutes: round(float(minutes) * 60 / PERIOD), help="the same in minutes"
    )
    parser.add_argument("--share", type=float, default=0.2, help="of the time that there is traffic (0.2)")
    run(soak, parser)
