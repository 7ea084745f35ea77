"""Sends random TDIGEST commands to our module and to a real RedisBloom: all replies, DUMPs and files must be equal.

Reads come between the writes, because in RedisBloom they change the digest. Some commands are refused. Two things are
left out, in which RedisBloom 2.8 differs from its successors: digests of one observation, and equal observations in
digests that are merged, which it doesn't sort in the order in which they came.

At the end, each server loads the other's append-only file, with and without an RDB part.

scripts/redisbloom fetches RedisBloom. 200,000 commands take about a minute."""

import collections
import random
import shutil

import redis

from kit.redisbloom import MODULE as THEIRS
from kit.servers import MODULE as OURS
from kit.servers import Server, rewrite
from kit.suite import options, progress, run

BATCH = 100
KEYS = ["a", "b", "c", "d", "e", "f"]
STRING, MISSING = "string", "missing"
BAD = ["", "x", "nan", "1e400", "1e-400", " 1", "1 ", "1_0", "-1", "2", "inf", "-inf", "0x1p-1", "+.5", "1.5", "01", "-0"]


class Traffic:
    """Random commands, and what the digests hold."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.adds = 0
        # For each key, the numbers of the adds whose observations are in its digest. None for a missing key.
        self.held: dict[str, set[int] | None] = dict.fromkeys(KEYS)

    def batch(self) -> list[list]:
        return [command for _ in range(BATCH) for command in self.next()]

    def next(self) -> list[list]:
        key, chance = self.random.choice(KEYS), self.random.random()
        if chance < 0.04:
            return self.odd()
        if self.held[key] is None:
            return self.create(key)
        if chance < 0.45:
            return self.add(key)
        if chance < 0.50:
            return self.merge(key)
        if chance < 0.51:
            self.held[key] = set()
            return [["TDIGEST.RESET", key]]
        if chance < 0.52:
            self.held[key] = None
            return [["DEL", key]]
        return [self.read(key)]

    def create(self, key: str) -> list[list]:
        self.held[key] = set()
        compression = self.random.choice([None, 1, 2, 10, 50, 1000])
        return [["TDIGEST.CREATE", key, *(["COMPRESSION", compression] if compression else [])]]

    def add(self, key: str) -> list[list]:
        self.adds += 1
        self.held[key].add(self.adds)
        count = self.random.choice([2, 3, 10, 100])
        draw = self.random.choice([self.random.random, lambda: self.random.gauss(0, 1e6), self.extreme])
        return [["TDIGEST.ADD", key, *(repr(draw()) for _ in range(count))]]

    def extreme(self) -> float:
        return self.random.choice([-1, 1]) * 10 ** self.random.uniform(-300, 150)

    def merge(self, key: str) -> list[list]:
        """Merges digests without a common observation."""
        overrides = self.random.random() < 0.5
        held = set() if overrides else set(self.held[key])
        sources = []
        for source in self.random.sample(KEYS, self.random.randint(1, 3)):
            if self.held[source] is not None and not held & self.held[source]:
                sources.append(source)
                held |= self.held[source]
        if not sources:
            return []
        self.held[key] = held
        compression = self.random.choice([[], ["COMPRESSION", self.random.choice([1, 20, 100])]])
        return [["TDIGEST.MERGE", key, len(sources), *sources, *compression, *(["OVERRIDE"] if overrides else [])]]

    def read(self, key: str) -> list:
        several = range(self.random.choice([1, 2, 10]))
        command = self.random.choice("QUANTILE CDF RANK REVRANK BYRANK BYREVRANK TRIMMED_MEAN MIN MAX INFO DUMP".split())
        match command:
            case "DUMP":
                return ["DUMP", key]
            case "QUANTILE":
                arguments = [self.random.random() for _ in several]
            case "CDF" | "RANK" | "REVRANK":
                draw = self.random.choice([self.random.random, lambda: self.random.gauss(0, 1e6), self.extreme])
                arguments = [draw() for _ in several]
            case "BYRANK" | "BYREVRANK":
                arguments = [self.random.choice([0, 1, self.random.randrange(5000)]) for _ in several]
            case "TRIMMED_MEAN":
                arguments = sorted(self.random.random() for _ in range(2))
            case _:
                arguments = []
        return [f"TDIGEST.{command}", key, *map(repr, arguments)]

    def odd(self) -> list[list]:
        """A command that is refused, or that has an odd argument, and changes nothing."""
        name = self.random.choice("QUANTILE CDF RANK REVRANK BYRANK BYREVRANK TRIMMED_MEAN ADD CREATE MERGE".split())
        key = self.random.choice([*KEYS, STRING, MISSING])
        words = self.random.choices(BAD, k=self.random.randint(0, 3))
        match name:
            case "ADD":
                words += ["x"]
            case "CREATE":
                key = self.random.choice([STRING, MISSING])
                words = ["COMPRESSION", *(word for word in words if word not in ("2",))]
            case "MERGE":
                options = [["COMPRESSION"], ["COMPRESSION", "x"], ["other"], ["COMPRESSION", "0", "OVERRIDE"]]
                words = [self.random.choice([*BAD, "1", "9"]), MISSING, *self.random.choice(options)]
        return [[f"TDIGEST.{name}", key, *words]]


def replies(client, commands: list[list]) -> list:
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    return [plain(words, reply) for words, reply in zip(commands, pipeline.execute(raise_on_error=False), strict=True)]


def plain(words: list, reply):
    """A reply as something that can be compared. INFO's last field, the memory, has another formula in 2.8."""
    if words[0] == "TDIGEST.INFO" and not isinstance(reply, redis.ResponseError):
        fields = list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))
        return repr(fields[:-1])
    return f"refused: {reply}" if isinstance(reply, redis.ResponseError) else repr(reply)


def content(client, key: bytes):
    """What is in a key. A Top-K sketch has bytes by chance in DUMP."""
    return client.execute_command("TOPK.LIST", key, "WITHCOUNT") if client.type(key) == b"TopK-TYPE" else client.dump(key)


def exchange(source: Server, module) -> None:
    """Loads the append-only file of a server into one with another module."""
    for preamble in ("yes", "no"):
        with source.client() as client:
            client.config_set("aof-use-rdb-preamble", preamble)
            client.config_set("appendonly", "yes")
            rewrite(source, client)
            expected = {key: content(client, key) for key in client.keys()}
        with Server(source.spec, module=module) as other:
            other.stop()
            shutil.copytree(source.directory / "appendonlydir", other.directory / "appendonlydir")
            other.config["appendonly"] = "yes"
            other.start()
            with other.client() as client:
                found = {key: content(client, key) for key in client.keys()}
        assert found == expected, f"preamble {preamble}, {module}"


def tdigest(spec, arguments) -> str:
    totals: collections.Counter[str] = collections.Counter()
    traffic = Traffic(arguments.seed)
    with Server(spec) as ours, Server(spec, module=THEIRS) as theirs:
        for protocol in (2, 3):
            with ours.client(protocol=protocol) as our_client, theirs.client(protocol=protocol) as their_client:
                our_client.set(STRING, "x")
                their_client.set(STRING, "x")
                for number in range(arguments.count // BATCH // 2):
                    commands = traffic.batch()
                    expected, found = replies(their_client, commands), replies(our_client, commands)
                    for words, theirs_said, ours_said in zip(commands, expected, found, strict=True):
                        assert ours_said == theirs_said, f"{words}\nours:   {ours_said}\ntheirs: {theirs_said}"
                        kind = "refused" if theirs_said.startswith("refused") else words[0].removeprefix("TDIGEST.")
                        totals[kind] += 1
                    progress(number + 1, arguments.count // BATCH // 2, f"batches with RESP{protocol}")
                    if number % 50 == 49:
                        our_client.execute_command("DEBUG", "RELOAD")
                        their_client.execute_command("DEBUG", "RELOAD")
        exchange(ours, THEIRS)
        exchange(theirs, OURS)
        ours.check()
    assert totals["refused"] and totals["DUMP"] and totals["MERGE"], totals
    counts = ", ".join(f"{count:,} {kind}" for kind, count in totals.most_common())
    return f"{totals.total():,} commands with equal replies: {counts}"


def main() -> None:
    run(tdigest, options("tdigest", __doc__, 200_000, "random commands"))
