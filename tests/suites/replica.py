"""Replicas stay equal to their primary, bit for bit, whatever happens to links, servers and roles.

Three servers form a chain: primary, replica, replica of the replica, each with a different configuration. Three
clients send rounds of random commands to the same keys. In each round, one thing goes wrong (`Chain`): cut links, a
paused replica, a backlog that is too small, a killed replica, an orderly promotion, FAILOVER, or a killed primary.
Promotions rotate the chain, so every server gets to be in every position. After each round all three must be equal and
have every acknowledged item (`Ledger`). No replica may have replied to its primary with an error.

--replica NAME uses another server of the matrix for the replicas. It must be newer than the primary, which never
becomes their replica; in the end, one of them takes over. 100,000 commands take about three minutes. A failure prints
the command that repeats it; only the timing differs from run to run.
"""

import collections
import contextlib
import functools
import itertools
import random
import time

import redis

from kit import suite
from kit.filters import pairs
from kit.resync import paused, sync_in_some_way
from kit.servers import Server, ServerFailed, Spec, io_threads, matrix, option, wait_for
from kit.suite import progress
from kit.workload import Workload, digests

COMMANDS_OF_A_ROUND = 1000
OTHERS = 2  # other clients that write to the same keys at the same time

# The module arguments of the three servers. One server's defaults must not affect the data on the others.
PERSONALITIES = [
    "THREADS 0",
    """ERROR_RATE 0.2 INITIAL_SIZE 3 EXPANSION_FACTOR 0 CF_BUCKET_SIZE 7 CF_INITIAL_SIZE 20 CF_MAX_ITERATIONS 1
       CF_EXPANSION_FACTOR 0 CF_MAX_EXPANSIONS 1 THREADS 2 OFFLOAD_MIN_ITEMS 1 OFFLOAD_MAX_BYTES 1gb
       HUGE_PAGES yes""",
    """ERROR_RATE 1e-9 INITIAL_SIZE 2000 EXPANSION_FACTOR 7 CF_BUCKET_SIZE 4 CF_INITIAL_SIZE 4000 CF_MAX_ITERATIONS 500
       CF_EXPANSION_FACTOR 4 CF_MAX_EXPANSIONS 65536 THREADS 1""",
]

# With these limits, a replica couldn't create any of the filters itself. The primary's limits refuse only some filters.
REPLICA_LIMITS = ["MAX_FILTER_BYTES", "1"], {"maxmemory": "1mb", "maxmemory-policy": "noeviction"}
LIMITS = {True: {"max-filter-bytes": "128kb", "maxmemory": "0"}, False: {"max-filter-bytes": "1", "maxmemory": "1mb"}}

BACKLOG, TINY_BACKLOG = "64mb", "16kb"

WRITES = [
    *(f"bf.{verb}" for verb in "reserve insert add madd addnx bulkadd del mdel rotate clear merge intersect".split()),
    *("bf.loadchunk", "bf.import", "bf.load", "bf.rebuild"),
    *(f"cf.{verb}" for verb in "reserve add addnx insert insertnx del compact loadchunk".split()),
]

WINDOW, GENERATIONS, EVERY = "ledger:window", 8, 400


class Ledger:
    """Items whose adds were acknowledged. No server may say no to any of them: they are never deleted, and those in the
    window are checked only until they rotate away. Items that only the primary has acknowledged are pending. They
    become certain once a replica has them.
    """

    KEYS = ["chain", "fixed", "counting", "table", "cuckoo", "default", "default-cuckoo"]
    # After about this number of items in all filters together, new filters are used. This bounds the size of a filter,
    # and so the time of a round.
    ITEMS_OF_A_KEY = 3000

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.numbers = itertools.count()
        self.settled = 0
        self.certain: dict[str, list[bytes]] = collections.defaultdict(list)
        self.window: list[tuple[float, bytes]] = []
        self.pending: list[tuple[float, str, bytes]] = []  # the time just before the add, the key, the item

    def add(self, client) -> None:
        """Adds a few items to a filter: a step of the workload."""
        name = self.random.choice(self.KEYS)
        key = f"ledger:{name}:{next(self.numbers) // self.ITEMS_OF_A_KEY}"
        self.reserve(client, name, key)
        now = time.time()
        items = [b"%08d" % next(self.numbers) for _ in range(self.random.randint(1, 6))]
        if "cuckoo" in name:
            reply = client.execute_command("CF.INSERT", key, "ITEMS", *items)
            added = [item for item, placed in zip(items, reply, strict=True) if placed == 1]
        elif self.random.random() < 0.3:
            client.execute_command("BF.BULKADD", key, "FIXED", 8, b"".join(items))
            added = items
        else:
            reply = client.execute_command("BF.MADD", key, *items)
            # The reply ends at the first refused item.
            added = [item for item, new in zip(items, reply, strict=False) if not isinstance(new, Exception)]
        self.pending += [(now, key, item) for item in added]

    def add_to_window(self, client) -> None:
        item, now = b"%08d" % next(self.numbers), time.time()
        client.execute_command("BF.ADD", WINDOW, item)
        self.pending.append((now, WINDOW, item))

    def reserve(self, client, name: str, key: str) -> None:
        reservations = {
            "chain": "BF.RESERVE 0.001 100",
            "fixed": "BF.RESERVE 0.001 4000 NONSCALING HASH SIPHASH",
            "counting": "BF.RESERVE 0.001 4000 COUNTING LAYOUT BLOCKED",
            "table": "BF.RESERVE 0.001 100 COUNTING",
            "cuckoo": "CF.RESERVE 300 BUCKETSIZE 4",
        }
        if name in reservations and not client.exists(key):
            command, *words = reservations[name].split()
            client.execute_command(command, key, *words)

    def settle(self) -> None:
        """Makes all pending items certain, because a replica has them."""
        for at, key, item in self.pending:
            if key == WINDOW:
                self.window.append((at, item))
            else:
                self.certain[key].append(item)
        self.settled += len(self.pending)
        self.pending = []

    def lose_pending(self) -> None:
        """Drops the pending items, since nobody knows which of them the killed primary had replicated."""
        self.pending = []

    def check(self, server: Server) -> None:
        with server.client() as client:
            for key, items in self.certain.items():
                if "cuckoo" in key:
                    present = sum(client.execute_command("CF.MEXISTS", key, *items))
                else:
                    present = client.execute_command("BF.BULKTEST", key, "FIXED", 8, b"".join(items), "COUNT")
                assert present == len(items), f"{server}: {key} has lost {len(items) - present} of {len(items)} items"
            if self.window:
                answers = client.execute_command("BF.MEXISTS", WINDOW, *(item for _, item in self.window))
                # Only the items that were still in the window when the reply arrived must be present.
                oldest = time.time() - (GENERATIONS - 1) * EVERY / 1000 + 0.001
                lost = [at for (at, _), answer in zip(self.window, answers, strict=True) if not answer and at > oldest]
                assert not lost, f"{server}: lost inside the window, added {time.time() - lost[0]:.3f} s before"
                self.window = [(at, item) for at, item in self.window if at > oldest]


class Chain:
    """Servers, and what can happen to them. `servers[0]` is the primary; each other server is a replica of the one
    before it. `run_round` runs one round. The methods in TROUBLES and PROMOTIONS get a function `write`, which sends a
    share of the round's commands.
    """

    def __init__(self, specs: list[Spec], seed: int):
        self.random = random.Random(seed)
        self.ledger = Ledger(seed)
        self.workload = Workload(seed)
        self.workload.steps += [self.ledger.add] * 3 + [self.ledger.add_to_window]
        self.others = [Workload(f"{seed}/{number}") for number in range(OTHERS)]
        self.totals: collections.Counter[str] = collections.Counter()
        self.made: list[Server] = []
        self.servers: list[Server] = []
        # A server reads data from its own version and from older ones, but not from newer ones.
        self.turns_round = len(set(specs)) == 1
        limits, limits_of_server = REPLICA_LIMITS
        for threads, (spec, personality) in enumerate(zip(specs, PERSONALITIES, strict=True), 1):
            config = {"repl-backlog-size": BACKLOG, **io_threads(spec, threads), **limits_of_server}
            self.made.append(Server(spec, config=config, module_args=[*personality.split(), *limits]))
        self.arrange(self.made)
        with self.primary.client() as client:
            client.execute_command("BF.RESERVE", WINDOW, 0.0001, 5000, "WINDOW", GENERATIONS, "EVERY", EVERY)

    def __enter__(self) -> "Chain":
        return self

    def __exit__(self, *_) -> None:
        for server in self.made:
            server.destroy()

    @property
    def primary(self) -> Server:
        return self.servers[0]

    # ---- the chain --------------------------------------------------------------------------------------------------

    def arrange(self, servers: list[Server]) -> None:
        """Makes the servers a chain in this order, and waits until all are in sync."""
        self.servers = servers
        for server, upstream in zip(servers, [None, *servers], strict=False):
            server.replicas = []
            server.config.pop("replicaof", None)
            if upstream:
                server.config["replicaof"] = ["127.0.0.1", str(upstream.port)]
                upstream.replicas = [server]
        for server in servers:
            limit(server, server is self.primary)
            # A replica that already has this primary keeps its link.
            server.command("REPLICAOF", *server.config.get("replicaof", ["NO", "ONE"]))
        self.wait_until_online()

    def wait_until_online(self) -> None:
        for upstream, server in itertools.pairwise(self.servers):
            upstream.wait_until_online(server)

    def catch_up(self) -> None:
        self.wait_until_online()
        for server in self.servers[:-1]:
            server.wait_for_replicas()

    def kill(self, server: Server) -> None:
        self.count(server)
        server.kill()

    def count(self, server: Server) -> None:
        """Adds the server's counts to the totals before the server stops."""
        stats, commands = server.info("stats"), server.info("commandstats")
        assert stats["unexpected_error_replies"] == 0, f"{server} sent its primary an error"
        self.totals["full"] += stats["sync_full"]
        self.totals["partial"] += stats["sync_partial_ok"]
        for name in WRITES:
            seen = commands.get(f"cmdstat_{name}", {})
            self.totals[name] += sum(seen.get(part, 0) * sign for part, sign in CALLS.items())

    def explain(self, error: Exception) -> None:
        """Adds the servers' own failures to an error, because a panic in a replica looks like a lost connection."""
        for server in self.made:
            try:
                server.check()
            except ServerFailed as failure:
                error.add_note(str(failure))

    # ---- a round ----------------------------------------------------------------------------------------------------

    def run_round(self, trouble, commands: int) -> None:
        def write(share: float) -> None:
            with suite.clients(self.primary, [functools.partial(write_on, other) for other in self.others]):
                with self.primary.client() as client:
                    self.workload.run(client, max(1, int(commands * share)))
            with self.primary.client() as client:
                self.workload.settle(client)

        for server in self.servers:
            sync_in_some_way(server, self.random)
        trouble(self, write)
        self.catch_up()
        self.ledger.settle()
        self.check()

    def check(self) -> None:
        # The reads come first, so that the comparison would notice a read that changes something.
        for server in self.servers:
            self.ledger.check(server)
        with self.primary.client() as client:
            expected = digests(client)
        assert len(expected) > 20
        for replica in self.servers[1:]:
            with replica.client() as client:
                found = digests(client)
            keys = sorted(expected.keys() | found.keys())
            unlike = {key: (expected.get(key), found.get(key)) for key in keys if expected.get(key) != found.get(key)}
            assert not unlike, f"{replica} is not as {self.primary}: {unlike}"
            assert replica.info("stats")["unexpected_error_replies"] == 0
        for server in self.servers:
            server.check()
            assert "== CRITICAL ==" not in server.log(), server.explain("met an error")
        self.totals["checks"] += 1
        self.totals["keys"] += len(expected)

    # ---- what happens to the chain ----------------------------------------------------------------------------------

    def nothing(self, write) -> None:
        write(1)

    def cut_links(self, write) -> None:
        for upstream in self.servers[:-1]:
            write(0.4)
            upstream.command("CLIENT", "KILL", "TYPE", "replica")
        write(0.2)

    def pause_a_replica(self, write) -> None:
        """Pauses a replica and cuts its link. When it continues, the backlog still contains the commands it missed."""
        upstream, replica = self.some_link()
        with paused(replica):
            write(0.5)
            upstream.command("CLIENT", "KILL", "TYPE", "replica")
        write(0.5)

    def outrun_a_replica(self, write) -> None:
        """Pauses a replica until the backlog no longer contains the commands it missed."""
        upstream, replica = self.some_link()
        before = upstream.info("stats")["sync_full"]
        with paused(replica):
            upstream.command("CLIENT", "KILL", "TYPE", "replica")
            configure(upstream, "repl-backlog-size", TINY_BACKLOG)
            write(0.4)
            for _ in range(20):
                self.primary.command("SET", "filler", self.random.randbytes(40_000))
            if upstream is not self.primary:
                self.primary.wait_for_replicas()
        write(0.6)
        upstream.wait_until_online(replica)
        assert upstream.info("stats")["sync_full"] > before, f"{replica} was not outrun"
        configure(upstream, "repl-backlog-size", BACKLOG)

    def kill_a_replica(self, write) -> None:
        _, replica = self.some_link()
        write(0.2)
        self.kill(replica)
        write(0.4)
        replica.start()
        write(0.4)

    def promote(self, write) -> None:
        """An orderly promotion: the writers stop, the replica catches up and takes over, and the others follow it."""
        write(0.5)
        self.catch_up()
        first, second, third = self.servers
        self.arrange([second, third, first])
        self.window_goes_on()
        write(0.5)

    def fail_over(self, write) -> None:
        """Promotes a replica with FAILOVER during writes. It has all writes that the old primary acknowledged."""
        write(0.4)
        first, second, third = self.servers
        limit(second, True)
        first.command("FAILOVER", "TO", "127.0.0.1", second.port, "TIMEOUT", 20_000)
        deadline = time.monotonic() + 240
        while first.info("replication")["role"] == "master":
            with contextlib.suppress(redis.ReadOnlyError):
                write(0.02)
            assert time.monotonic() < deadline, f"{first} is still the primary"
        self.arrange([second, third, first])
        self.window_goes_on()
        write(0.5)

    def kill_the_primary(self, write) -> None:
        """Kills the primary. Writes that a replica confirmed must survive; others may be lost. The killed server comes
        back empty, as the last replica in the chain."""
        write(0.2)
        with self.primary.client() as client:
            self.workload.run(client, 200)
            # WAIT covers only its own connection's writes, but all earlier writes have reached the replica as well.
            assert client.execute_command("WAIT", 1, 20_000) >= 1
        self.ledger.settle()
        write(0.2)
        first, second, third = self.servers
        self.kill(first)
        self.ledger.lose_pending()
        self.arrange([second, third])
        if self.turns_round:
            first.start()
            self.arrange([second, third, first])
        self.window_goes_on()
        write(0.4)

    def window_goes_on(self) -> None:
        """Checks that the new primary rotates by the clock, continuing the old primary's periods, and that its replicas
        follow."""
        self.totals["failovers"] += 1
        self.ledger.check(self.primary)
        rotated = rotations(self.servers[1])
        with self.primary.client() as client:
            before = generation(client)
            self.ledger.add_to_window(client)
            wait_for(lambda: generation(client) > before, "the next generation")
            self.ledger.add_to_window(client)
        self.catch_up()
        self.ledger.settle()
        assert rotations(self.servers[1]) > rotated, f"{self.primary} was promoted and has not rotated"
        self.ledger.check(self.servers[1])

    def some_link(self) -> tuple[Server, Server]:
        return self.random.choice(list(itertools.pairwise(self.servers)))


TROUBLES = [Chain.nothing, Chain.cut_links, Chain.pause_a_replica, Chain.outrun_a_replica, Chain.kill_a_replica]
PROMOTIONS = [Chain.promote, Chain.fail_over, Chain.kill_the_primary]

# Fields of INFO commandstats, each with its sign in the sum that gives the number of successful calls.
CALLS = {"calls": 1, "failed_calls": -1, "rejected_calls": -1}


def write_on(workload: Workload, client, go_on) -> None:
    """Writes to the same keys as the other clients, until the test ends or the primary stops."""
    with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
        while go_on():
            workload.step(client)


def configure(server: Server, name: str, value: str) -> None:
    server.command("CONFIG", "SET", name, value)


def limit(server: Server, is_primary: bool) -> None:
    """Sets the limits of a primary or of a replica."""
    for name, value in LIMITS[is_primary].items():
        if name.startswith("max-filter"):
            name = option(server.spec, name)
        configure(server, name, value)


def rotations(server: Server) -> int:
    return server.info("commandstats").get("cmdstat_bf.rotate", {"calls": 0})["calls"]


def generation(client) -> int:
    return pairs(client.execute_command("BF.STATS", WINDOW))[b"Generation"]


def troubles(chain: Chain):
    """All troubles in random order, again and again."""
    while True:
        every = TROUBLES + (PROMOTIONS if chain.turns_round else [])
        yield from chain.random.sample(every, len(every))


def replica(spec: Spec, arguments) -> str:
    other = next((other for other in matrix() if other.name == arguments.replica), spec)
    with Chain([spec, other, other], arguments.seed) as chain:
        rounds = max(len(TROUBLES + PROMOTIONS), arguments.count // COMMANDS_OF_A_ROUND)
        for number, trouble in enumerate(itertools.islice(troubles(chain), rounds), 1):
            try:
                chain.run_round(trouble, arguments.count // rounds)
            except Exception as error:
                error.add_note(f"in round {number} of {rounds}, {trouble.__name__}")
                chain.explain(error)
                raise
            progress(number, rounds, f"rounds, {trouble.__name__}")
        if not chain.turns_round:
            chain.run_round(Chain.kill_the_primary, COMMANDS_OF_A_ROUND)
        for server in chain.servers:
            chain.count(server)
        return figure(chain, arguments.count, "" if other is spec else f" replicated by {other}")


def figure(chain: Chain, commands: int, by: str) -> str:
    totals = chain.totals
    # Without these, the run would prove little.
    assert not [name for name in WRITES if not totals[name]], "some command was never carried out"
    assert len(chain.workload.refused) > 10
    assert totals["full"] >= 3 and totals["partial"] >= 1 and totals["failovers"] >= 1
    return (
        f"{commands:,} commands{by}, {totals['full']} full and {totals['partial']} partial resyncs, "
        f"{totals['failovers']} failovers, {totals['checks']} comparisons, {totals['keys']:,} digests "
        f"equal, {chain.ledger.settled:,} acknowledged items, 0 lost, 0 errors on replicas"
    )


def main() -> None:
    parser = suite.options("replica", __doc__, 500_000, "random commands")
    parser.add_argument(
        "--replica", choices=[spec.name for spec in matrix()], help="of which server the replicas are, if of another"
    )
    suite.run(replica, parser)
