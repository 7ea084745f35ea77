"""A real RedisBloom's replication stream and files must make the same filters in our module, byte for byte.

A server with RedisBloom is the primary of two replicas: one with RedisBloom, and one with our module. `Traffic` sends
random commands in every spelling that RedisBloom accepts; they fill, grow, empty and compact filters, and some are
refused. After every batch, both replicas must have the primary's DUMP of every key. Then a server with our module loads
the primary's append-only file, both as it is and rewritten with and without an RDB part, and another one loads our
replica's file. Finally our replica is promoted, and the RedisBloom replica follows it. The filters are in RedisBloom's
format, so the RedisBloom replica must stay equal too.

Cuckoo filters with many sub-filters, which take a long time to compact, are compacted by CF.COMPACT and by CF.DEL,
first with RedisBloom and then with our module as the primary.

scripts/redisbloom fetches RedisBloom. 10,000 commands take about a minute. With --record FILE, the suite instead writes
RedisBloom's results for random commands to a file such as tests/fixtures/redisbloom/commands.json."""

import collections
import itertools
import json
import shutil
from pathlib import Path

import redis

from kit import suite
from kit.filters import pairs
from kit.redisbloom import BLOOM_KEYS, CUCKOO_KEYS, MODULE, MODULE_ARGS, Traffic, encoded
from kit.servers import APPEND_ONLY, Server, Spec, rewrite
from kit.suite import progress
from kit.wire_format import crc32c

BATCH = 50
BATCHES_OF_A_ROUND = 20

# RedisBloom also replicates commands that failed. They fail on the replicas in the same way.
CONFIG = {**APPEND_ONLY, "appendfsync": "no", "propagation-error-behavior": "ignore"}

GROWN = 60_000  # items in a filter with about thirty sub-filters
COMPACTED = {"by command": 0.08, "by deletes": 0.1}  # copies of that filter, and the fraction of items to delete

REDISBLOOM = {"module": MODULE, "module_args": MODULE_ARGS}


def dumps(server: Server) -> dict[bytes, tuple]:
    """Every key's type, DUMP and expiry."""
    with server.client() as client:
        keys = sorted(client.keys())
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.execute_command("TYPE", key)
            pipeline.execute_command("DUMP", key)
            pipeline.execute_command("PEXPIRETIME", key)
        answers = pipeline.execute()
    return {key: tuple(answers[3 * number : 3 * number + 3]) for number, key in enumerate(keys)}


def compare(what: str, expected: dict, found: dict) -> int:
    keys = sorted(expected.keys() | found.keys())
    unlike = {key: (expected.get(key), found.get(key)) for key in keys if expected.get(key) != found.get(key)}
    assert not unlike, f"{what}: {len(unlike)} of {len(keys)} keys differ: {dict(itertools.islice(unlike.items(), 2))}"
    return len(keys)


class Round:
    """A primary and its two replicas, all empty at first."""

    def __init__(self, spec: Spec, seed: int):
        self.traffic = Traffic(seed)
        self.totals: collections.Counter[str] = collections.Counter()
        self.primary = Server(spec, config=CONFIG, **REDISBLOOM)
        self.theirs = self.primary.replica(config=CONFIG, **REDISBLOOM)
        self.ours = self.primary.replica(config=CONFIG)

    def __enter__(self) -> "Round":
        return self

    def __exit__(self, *_) -> None:
        self.primary.destroy()

    def write(self, primary: Server) -> None:
        """Sends a batch of commands. Each is sent even if an earlier one was refused."""
        with primary.client() as client:
            self.copy(client)
            for words in map(encoded, self.traffic.commands(BATCH)):
                self.totals["commands"] += 1
                try:
                    reply = client.execute_command(*words)
                    self.totals["items refused"] += reply.count(-1) if isinstance(reply, list) else 0
                except redis.ResponseError as error:
                    self.totals[f"refused: {str(error)[:30]}"] += 1
                    # RedisBloom must understand every word. Which formats of numbers it accepts depends on the server.
                    assert not str(error).startswith(("Unknown", "wrong number", "Couldn't")), (words, error)
                except Exception as error:
                    error.add_note(f"after {words}")
                    raise

    def run(self) -> None:
        for words in self.traffic.fixed():
            self.primary.command(*words)
        for _ in range(BATCHES_OF_A_ROUND):
            self.write(self.primary)
            self.primary.wait_for_replicas()
            expected = dumps(self.primary)
            compare("RedisBloom's own replica", expected, dumps(self.theirs))
            self.totals["equal"] += compare("the replica", expected, dumps(self.ours))
        for server in (self.ours, self.primary):
            server.check()
        self.grow()
        self.compact(self.primary)
        self.files()
        self.promote()

    def copy(self, client) -> None:
        """Copies a filter to another key: as a whole, or, if it is a Bloom filter, usually in pieces. RedisBloom 2.8
        replicates only the head sent by CF.LOADCHUNK, so a cuckoo filter would be empty on RedisBloom's replicas."""
        keys = sorted(client.keys())
        if not keys:
            return
        source = self.traffic.random.choice(keys)
        is_cuckoo = family(client, source) == "CF"
        copy = self.traffic.random.choice([key for key in (CUCKOO_KEYS if is_cuckoo else BLOOM_KEYS) if key != source])
        whole, pieces = client.execute_command("DUMP", source), pieces_of(client, source)
        self.totals["copies"] += 1
        if is_cuckoo or self.traffic.random.random() < 0.3:
            client.execute_command("RESTORE", copy, 0, whole, "REPLACE")
            return
        client.delete(copy)
        for iterator, piece in pieces:
            client.execute_command("BF.LOADCHUNK", copy, iterator, piece)

    def files(self) -> None:
        """Loads RedisBloom's append-only file in all its forms, and our replica's."""
        expected = dumps(self.primary)
        self.load("its append-only file", expected)
        for preamble in ("no", "yes"):
            with self.primary.client() as client:
                client.config_set("aof-use-rdb-preamble", preamble)
                rewrite(self.primary, client)
            self.load(f"its append-only file, rewritten with preamble {preamble}", expected)
            self.write(self.primary)
            self.primary.wait_for_replicas()
            expected = dumps(self.primary)
            self.load(f"its append-only file after a rewrite with preamble {preamble}", expected)
        compare("the replica", expected, dumps(self.ours))
        self.load("the replica's append-only file", expected, self.ours)

    def grow(self) -> None:
        """Creates a cuckoo filter whose compaction needs more steps than our commands may spend on our own filters."""
        self.primary.command("CF.RESERVE", "grown", 2000, "EXPANSION", 1)
        self.primary.command("CF.INSERT", "grown", "ITEMS", *range(GROWN))

    def compact(self, primary: Server) -> None:
        """Compacts two copies of the filter `grown`, one by CF.COMPACT and one by CF.DEL."""
        with primary.client() as client:
            whole = client.dump("grown")
            for key, most in COMPACTED.items():
                client.restore(key, 0, whole, replace=True)
                deletes = client.pipeline(transaction=False)
                for item in self.traffic.random.sample(range(GROWN), int(GROWN * most)):
                    deletes.execute_command("CF.DEL", key, item)
                deletes.execute()
            client.execute_command("CF.COMPACT", "by command")
            for key in COMPACTED:
                found = pairs(client.execute_command("CF.INFO", key))
                assert found[b"Number of items deleted"] < GROWN // 20, f"{key} was not compacted: {found}"
        primary.wait_for_replicas()
        expected = dumps(primary)
        for replica in primary.replicas:
            compare("a replica after long compactions", expected, dumps(replica))
            self.totals["compacted"] += len(COMPACTED)

    def load(self, what: str, expected: dict, source: Server | None = None) -> None:
        """Starts a server with our module on a copy of the append-only file. No server may be writing to the file."""
        with Server(self.primary.spec, config={**CONFIG, "appendonly": "no"}) as server:
            server.stop()
            shutil.copytree((source or self.primary).directory / "appendonlydir", server.directory / "appendonlydir")
            server.config["appendonly"] = "yes"
            server.start()
            self.totals["loaded"] += compare(what, expected, dumps(server))

    def promote(self) -> None:
        """Makes our server the primary, and RedisBloom its replica. No filter is created, because it would have
        Bloomery's own type."""
        self.ours.command("REPLICAOF", "NO", "ONE")
        self.theirs.command("REPLICAOF", "127.0.0.1", self.ours.port)
        self.ours.wait_until_online(self.theirs)
        self.ours.replicas = [self.theirs]
        self.compact(self.ours)
        exists = set(dumps(self.ours))
        with self.ours.client() as client:
            for words in map(encoded, self.traffic.commands(BATCH * 10)):
                if words[0].endswith(b"RESERVE") or words[0] in (b"DEL", b"RENAME") or words[1] not in exists:
                    continue
                # Bloomery is the primary now, so use a form that it accepts.
                if b"INSERT" in words[0]:
                    words = [*words[:2], b"ITEMS", *words[-3:]]
                try:
                    client.execute_command(*words)
                    self.totals["commands of ours"] += 1
                except redis.ResponseError:
                    self.totals["refused by ours"] += 1
        self.ours.wait_for_replicas()
        self.ours.replicas = []
        self.totals["sent back"] += compare("RedisBloom as a replica of ours", dumps(self.ours), dumps(self.theirs))


def record(spec: Spec, arguments) -> str:
    """Records RedisBloom's results for random commands: all commands that it accepted, and after every batch, for each
    filter that changed, the length and the CRC-32C of all its SCANDUMP pieces together."""
    batches: list[dict] = []
    pieces: dict[str, list] = {}
    traffic = Traffic(arguments.seed)
    with Server(spec, config=CONFIG, **REDISBLOOM) as server, server.client() as client:
        for number in range(arguments.count // BATCH):
            accepted = []
            fixed = [] if number else traffic.fixed()
            for words in map(encoded, [*fixed, *traffic.commands(BATCH)]):
                # Skip the server's own commands, such as DEL.
                if not words[0].startswith((b"BF.", b"CF.")):
                    continue
                try:
                    client.execute_command(*words)
                except redis.ResponseError:
                    continue
                accepted.append([word.decode("latin-1") for word in words])
            changed = {key: found for key, found in scan_dumps(client).items() if pieces.get(key) != found}
            pieces |= changed
            batches.append({"commands": accepted, "filters": changed})
    lines = ",\n".join(json.dumps(batch) for batch in batches)
    Path(arguments.record).write_text(f"[\n{lines}\n]\n")
    return f"{sum(len(batch['commands']) for batch in batches):,} commands, {len(pieces)} filters recorded"


def family(client, key: bytes) -> str:
    return "CF" if client.type(key) == b"MBbloomCF" else "BF"


def pieces_of(client, key: bytes) -> list[tuple[int, bytes]]:
    """The pieces that SCANDUMP returns; none for an empty cuckoo filter."""
    command, iterator, pieces = f"{family(client, key)}.SCANDUMP", 0, []
    while True:
        iterator, piece = client.execute_command(command, key, iterator)
        if not iterator:
            return pieces
        pieces.append((iterator, piece))


def scan_dumps(client) -> dict[str, list]:
    found = {}
    for key in client.keys():
        if every := b"".join(piece for _, piece in pieces_of(client, key)):
            found[key.decode("latin-1")] = [len(every), crc32c(every)]
    return found


def redisbloom(spec: Spec, arguments) -> str:
    if arguments.record:
        return record(spec, arguments)
    totals: collections.Counter[str] = collections.Counter()
    rounds = max(1, arguments.count // (BATCH * BATCHES_OF_A_ROUND))
    for number in range(rounds):
        with Round(spec, arguments.seed * 1000 + number) as one:
            try:
                one.run()
            except Exception as error:
                error.add_note(f"in round {number + 1} of {rounds}")
                for server in (one.primary, one.theirs, one.ours):
                    if not server.alive():
                        error.add_note(server.explain("died"))
                raise
            totals += one.totals
        progress(number + 1, rounds, "rounds")
    return figure(totals)


def figure(totals) -> str:
    refused = sum(count for name, count in totals.items() if name.startswith("refused: "))
    # If no filter had been full, the run would prove little.
    assert refused and totals["items refused"] > 100 and totals["compacted"], totals
    assert totals["commands of ours"] and totals["sent back"], totals
    return (
        f"{totals['commands']:,} commands and {totals['commands of ours']:,} of ours; RedisBloom refused {refused:,} and "
        f"{totals['items refused']:,} items of others; {totals['equal']:,} filters of a replica, {totals['loaded']:,} "
        f"loaded from files, {totals['compacted']:,} after long compactions and {totals['sent back']:,} sent back, all equal "
        "byte for byte"
    )


def main() -> None:
    parser = suite.options("redisbloom", __doc__, 10_000, "random commands")
    parser.add_argument("--record", metavar="FILE", help="write what RedisBloom makes of random commands")
    suite.run(redisbloom, parser)
