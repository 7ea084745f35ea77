"""BF.REBUILD under live adds: no acknowledged item is lost, at whatever point the server is killed.

Three clients add items to a filter, after adding each to the source of truth, while a fourth client begins a rebuild,
backfills from the source of truth, and commits or aborts. The rounds kill the server with kill -9, in every phase in
turn. A server that writes an append-only file with `appendfsync always` is restarted. If there is a replica, it takes
over, and an item counts as acknowledged after WAIT has confirmed that the replica has it. After the kill, the rebuild
must still be in the state that was acknowledged. It continues with the batches that were not acknowledged, not from the
beginning, so the shadow must still have its items. Finally the rebuild is committed, and the filter must have every
item. At the end of each round a replica, or the server after another restart, must have the same data, bit for bit.

Some filters become static during the rebuild, and some already are. A static filter accepts no adds, so the clients
test its items instead, and must always get a yes."""

import contextlib
import functools
import itertools
import random
import threading
import time

import redis

from kit.arrivals import OLDEST, ORIGINALS
from kit.filters import BY_NAME, pairs
from kit.foreign import Value, sealed
from kit.suite import Server, clients, options, progress, run
from kit.workload import digests

INITIAL, BATCH, ADDERS = 600, 100, 3
MANY = 40_000  # a static filter of this size is built on other threads

# The filters to rebuild: our own, with enough room for a round, and two from other systems.
CAPACITIES = dict.fromkeys(["scaling", "table", "counting-table", "window-ttl"], 100) | dict.fromkeys(
    ["fixed", "counting-8", "window", "sharded", "window-table"], 100_000
)
KINDS = [*CAPACITIES, "go-zero", "redisbloom", "static", "becomes static"]
FUSE = ["LAYOUT", "FUSE"]

# When the server is killed: between two steps of the rebuild, or during a step.
POINTS = ["before BEGIN", "in BEGIN", "after BEGIN", "in backfill", "half backfilled", "backfilled", "in COMMIT"]
POINTS += ["after COMMIT", "in ABORT", "after ABORT"]


class Source:
    """The source of truth, and the items in it that the filter must have."""

    def __init__(self):
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.truth: list[bytes] = []
        self.acknowledged: list[bytes] = []

    def new(self, count: int) -> list[bytes]:
        with self.lock:
            items = [b"%09d" % next(self.numbers) for _ in range(count)]
            self.truth += items
        return items


class Round:
    """One filter, rebuilt once."""

    def __init__(self, number: int, chance: random.Random, safe):
        self.chance, self.safe = chance, safe
        self.kind = KINDS[number % len(KINDS)]
        self.point = POINTS[number % len(POINTS)]
        self.key = f"{self.kind}:{number}"
        self.source = Source()
        self.sent: list[str] = []  # the subcommands of BF.REBUILD that have been sent
        self.done: list[str] = []  # the acknowledged ones among them
        self.left: list[list[bytes]] = []  # the batches still to backfill
        self.backfilled: list[bytes] = []  # the items of all batches
        self.initial, self.batch = (MANY, MANY // 6) if "static" in self.kind else (INITIAL, BATCH)

    def prepare(self, client) -> None:
        if self.kind == "redisbloom":
            client.restore(self.key, 0, sealed(Value.parse(ORIGINALS[b"bf:empty"]).dump(), OLDEST))
        elif self.kind == "go-zero":
            client.execute_command("BF.IMPORT", self.key, "GOZERO", "nothing", "BITS", 2_000_000)
        elif self.kind == "static":
            client.execute_command("BF.REBUILD", self.key, "BEGIN", *FUSE)
        elif self.kind == "becomes static":
            client.execute_command("BF.RESERVE", self.key, "0.001", MANY)
        else:
            command, *words = BY_NAME[self.kind].creation(CAPACITIES[self.kind], "0.001")
            client.execute_command(command, self.key, *words)
        items = self.source.new(self.initial)
        add = ["BF.REBUILD", self.key, "ADDBULK"] if self.kind == "static" else ["BF.BULKADD", self.key]
        client.execute_command(*add, "FIXED", 9, b"".join(items))
        if self.kind == "static":
            client.execute_command("BF.REBUILD", self.key, "COMMIT")
        self.safe(client)
        self.source.acknowledged += items

    # ---- live adds --------------------------------------------------------------------------------------------------

    def add(self, chance: random.Random, client, go_on) -> None:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            while go_on():
                items = self.source.new(chance.choice([1, 1, 1, 5]))
                if not self.takes(chance, client, items):
                    known = chance.choices(self.source.acknowledged, k=20)
                    assert client.execute_command("BF.MEXISTS", self.key, *known) == [1] * 20, f"{self.key} lacks items"
                    continue
                self.safe(client)
                with self.source.lock:
                    self.source.acknowledged += items

    def takes(self, chance: random.Random, client, items: list[bytes]) -> bool:
        """Adds items. Returns False if the filter is static and refuses them."""
        try:
            match chance.randrange(4):
                case 0:
                    replies = client.execute_command("BF.MADD", self.key, *items)
                case 1:
                    replies = [client.execute_command("BF.BULKADD", self.key, "FIXED", 9, b"".join(items))]
                case 2:
                    replies = client.execute_command("BF.INSERT", self.key, "NOCREATE", "ITEMS", *items)
                case _:
                    add = chance.choice(["BF.ADD", "BF.ADDNX"])
                    replies = [client.execute_command(add, self.key, item) for item in items]
        except redis.ResponseError as refused:
            replies = [refused]
        errors = [reply for reply in replies if isinstance(reply, redis.ResponseError)]
        if any("static" not in self.kind or "accepts no adds" not in str(error) for error in errors):
            raise errors[0]
        return not errors

    def adding(self, server):
        return clients(server, [functools.partial(self.add, random.Random(self.chance.random())) for _ in range(ADDERS)])

    # ---- the rebuild ------------------------------------------------------------------------------------------------

    def tell(self, client, word: str, *items) -> None:
        self.sent.append(word)
        client.execute_command("BF.REBUILD", self.key, word, *items)
        self.safe(client)
        self.done.append(word)

    def begin(self, client) -> None:
        self.tell(client, "BEGIN", *(FUSE if self.kind == "becomes static" else []))
        self.read_truth()

    def read_truth(self) -> None:
        """Reads the items to backfill. Items added before BEGIN are already in the source of truth; later items go to
        both filters."""
        truth = self.backfilled = list(self.source.truth)
        self.left = [truth[at : at + self.batch] for at in range(0, len(truth), self.batch)]

    def backfill(self, client, most: int = 1 << 30) -> None:
        for _ in range(min(most, len(self.left))):
            items = self.left[0]
            if self.chance.randrange(2):
                self.tell(client, "ADD", *items)
            else:
                self.tell(client, "ADDBULK", "FIXED", 9, b"".join(items))
            del self.left[0]

    def commit(self, client) -> None:
        self.tell(client, "COMMIT")
        with self.source.lock:
            self.source.acknowledged = [*{*self.source.acknowledged, *self.backfilled}]

    def until_lost(self, server) -> None:
        """Runs the rebuild up to this round's point, and kills the server there."""
        with server.client() as client, contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            moment, _, step = self.point.partition(" ")
            time.sleep(self.chance.uniform(0.01, 0.05))
            if self.point == "before BEGIN":
                return self.lose(server)
            if self.point == "in BEGIN":
                self.lose_soon(server)
            self.begin(client)
            if self.point == "in backfill":
                self.lose_soon(server, 0.02)
            if self.point != "after BEGIN":
                self.backfill(client, len(self.left) // 2 if self.point == "half backfilled" else 1 << 30)
                if step in ("COMMIT", "ABORT"):
                    if moment == "in":
                        self.lose_soon(server)
                    self.commit(client) if step == "COMMIT" else self.tell(client, step)
            time.sleep(self.chance.uniform(0, 0.02))
            self.lose(server)

    def lose(self, server) -> None:
        server.process.kill()

    def lose_soon(self, server, within: float = 0.003) -> None:
        """Kills the server while a command is in flight."""
        threading.Timer(self.chance.uniform(0, within), server.process.kill).start()

    def go_on(self, server) -> None:
        """Checks that the rebuild is in the acknowledged state, and completes it."""
        with server.client() as client:
            self.check(client)
            running = pairs(client.execute_command("BF.REBUILD", self.key, "STATUS"))[b"Status"] == b"running"
            end = {"COMMIT", "ABORT"}
            if self.sent[-1:] == self.done[-1:]:  # nothing was in flight
                expected = "BEGIN" in self.done and not end & set(self.done)
                assert running == expected, f"{self.point}: running {running} after {self.done[-3:]}"
            if not running and "BEGIN" in self.sent and not end & set(self.sent):
                assert "BEGIN" not in self.done, f"{self.point}: the shadow is gone after {self.done[-3:]}"
            with self.adding(server):
                if not running:
                    self.begin(client)
                elif not self.done:  # BEGIN was executed, but not acknowledged
                    self.read_truth()
                time.sleep(0.01)
                self.backfill(client)
                self.commit(client)
            self.check(client)

    def check(self, client) -> None:
        items = list(self.source.acknowledged)
        present = client.execute_command("BF.BULKTEST", self.key, "FIXED", 9, b"".join(items), "COUNT")
        assert present == len(items), f"{self.key}, {self.point}: {len(items) - present} of {len(items)} items are lost"
        # Without this, a filter that says yes to everything would pass.
        strangers = b"".join(b"%09d" % (10**8 + number) for number in range(2000))
        wrong = client.execute_command("BF.BULKTEST", self.key, "FIXED", 9, strangers, "COUNT")
        assert wrong < 200, f"{self.key}, {self.point}: {wrong} of 2000 strangers"


def same(expected: dict, found: dict) -> None:
    different = [key for key in expected | found if expected.get(key) != found.get(key)]
    assert not different, f"they differ in {different}"


def killed(spec, count: int, chance: random.Random, rounds: list) -> None:
    """Kills the server with kill -9, and restarts it from its append-only file."""
    config = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-min-size": "64kb"}
    with Server(spec, config=config) as server:
        for number in range(count):
            round_ = Round(number, chance, lambda client: None)
            rounds.append(round_)
            with server.client() as client:
                round_.prepare(client)
            with round_.adding(server):
                round_.until_lost(server)
            server.process.wait()
            server.config["aof-use-rdb-preamble"] = chance.choice(["yes", "no"])
            server.start_somewhere()
            round_.go_on(server)
            with server.client() as client:
                before = digests(client)
            server.kill()
            server.start_somewhere()
            with server.client() as client:
                same(before, digests(client))
                # Earlier rounds have checked the other filters.
                client.delete(*[key for key in client.keys() if key != round_.key.encode()] or ["none"])
            progress(number + 1, count, "kills")
        server.check()


def failed_over(spec, count: int, chance: random.Random, rounds: list) -> None:
    """Kills the primary with kill -9, and promotes its replica."""

    def safe(client) -> None:
        if client.execute_command("WAIT", 1, 10_000) < 1:
            raise redis.ConnectionError("no replica has it")

    primary = Server(spec)
    try:
        replica = primary.replica()
        for number in range(count):
            round_ = Round(number, chance, safe)
            rounds.append(round_)
            with primary.client() as client:
                round_.prepare(client)
            with round_.adding(primary):
                round_.until_lost(primary)
            primary.process.wait()
            primary.replicas.remove(replica)
            primary.check()
            primary.destroy()
            primary = replica
            primary.config.pop("replicaof", None)
            primary.command("REPLICAOF", "NO", "ONE")
            replica = primary.replica()
            round_.go_on(primary)
            primary.wait_for_replicas()
            with primary.client() as client, replica.client() as other:
                same(digests(client), digests(other))
                client.flushall()
            progress(number + 1, count, "failovers")
        primary.check()
    finally:
        primary.destroy()


def rebuild(spec, arguments) -> str:
    chance, rounds = random.Random(arguments.seed), []
    kills = (arguments.count + 1) // 2
    killed(spec, kills, chance, rounds)
    failed_over(spec, arguments.count - kills, chance, rounds)
    items = sum(len(round_.source.acknowledged) for round_ in rounds)
    open_ends = sum(round_.sent != round_.done for round_ in rounds)
    phases = len({round_.point for round_ in rounds})
    return (
        f"{kills} kills and {arguments.count - kills} failovers in {phases} phases of rebuilds, {items:,} acknowledged items, 0 lost; {open_ends} while a word of the rebuild was on its way"
    )


def main() -> None:
    run(rebuild, options("rebuild", __doc__, 400, "kills and failovers"))
