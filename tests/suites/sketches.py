"""Sends random CMS, TOPK and TDIGEST commands to our module and to a real RedisBloom: all replies must be equal.

The values of count-min sketches and t-digests must be equal byte for byte. Most Top-K sketches have decay 1 or 1e-300,
with which nothing is left to chance. Of the others, only the types of the replies are compared. Some commands are
refused. Reads of t-digests come between the writes, because in RedisBloom they change the digest. These things are left
out: files of Top-K sketches, because RedisBloom 2.8 forgets their decay; NUL bytes in Top-K items; TOPK.INCRBY with
several increments of which one is bad, to which RedisBloom sends a reply that is too short; digests of one observation,
and equal observations in digests that are merged, in which 2.8 differs from its successors.

At the end of each family, each server loads the other's append-only file, with and without an RDB part. RedisBloom's
RDB file is loaded by our module, and ours by RedisBloom again, and the answers of all keys must stay the same: 1000
keys of each family with 200,000 commands. Our module, as a replica of RedisBloom, must hold what its primary holds.

scripts/suite fetches RedisBloom. 200,000 commands take a minute. `--family cms` runs only this family."""

import collections
import random
import shutil

import redis

from kit.redisbloom import MODULE as THEIRS
from kit.servers import MODULE as OURS
from kit.servers import Server, rewrite
from kit.suite import options, progress, run

BATCH = 100
STRING, MISSING = "string", "missing"
BAD_INTEGERS = ["", "x", "1.5", "01", "-0", "+1", " 1", "0x1", "9223372036854775808", "-1", "-9223372036854775808"]
BAD_NUMBERS = ["", "x", "nan", "1e400", "0", "-0.5", "1.5", "inf", " 0.5", "0_1"]
BAD_DOUBLES = ["", "x", "nan", "1e400", "1e-400", " 1", "1 ", "1_0", "-1", "2", "inf", "-inf", "0x1p-1", "+.5", "1.5", "01", "-0"]


class Traffic:
    """Random commands for a family."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def batch(self) -> list[list]:
        return [self.next() for _ in range(BATCH)]

    def items(self, most: int) -> list[str]:
        """Few items are frequent, and many are rare."""
        count = self.random.randint(1, most)
        return [f"i{min(int(self.random.paretovariate(0.6)), 5000)}" for _ in range(count)]

    def pairs(self, most: int, increments: list) -> list:
        return [word for item in self.items(most) for word in (item, self.random.choice(increments))]

    def bad(self, words: list) -> list:
        """The words, with some changed, missing or added."""
        words = [self.random.choice([*BAD_INTEGERS, *BAD_NUMBERS]) if self.random.random() < 0.3 else word for word in words]
        return words[: self.random.randint(1, len(words))] if self.random.random() < 0.3 else words


class Cms(Traffic):
    KEYS = ["a", "b", "c", "d", "e", "f"]

    def next(self) -> list:
        key, chance = self.random.choice([*self.KEYS, self.KEYS[0]] * 5 + [STRING, MISSING]), self.random.random()
        if chance < 0.01:
            return ["DEL", self.random.choice(self.KEYS)]
        if chance < 0.15:
            return self.create(key)
        if chance < 0.45:
            increments = [0, 1, 2, 5, 100, 10**6] if self.random.random() < 0.97 else [0, 4294967290, 4294967296, 2**62]
            return ["CMS.INCRBY", key, *self.pairs(30, increments)]
        if chance < 0.65:
            return ["CMS.QUERY", key, *self.items(30)]
        if chance < 0.75:
            return self.merge(key)
        if chance < 0.85:
            return ["CMS.INFO", key]
        if chance < 0.92:
            return ["DUMP", key]
        name = self.random.choice(["INCRBY", "MERGE", "INITBYDIM", "INITBYPROB"])
        words = {
            "INCRBY": self.pairs(4, [1]),
            "MERGE": self.merge(key)[2:],
            "INITBYDIM": [20, 5],
            "INITBYPROB": [0.1, 0.1],
        }[name]
        return [f"CMS.{name}", key, *self.bad(words)]

    def filled(self, key: str) -> list[list]:
        return [self.create(key), ["CMS.INCRBY", key, *self.pairs(60, [1, 2, 1000, 4294967290])]]

    def create(self, key: str) -> list:
        if self.random.random() < 0.05:
            words = [self.random.choice([0.5, 0.1, 0.013]), self.random.choice([0.5, 0.03, 0.0001])]
            return ["CMS.INITBYPROB", key, *words]
        return ["CMS.INITBYDIM", key, *self.random.choice([(20, 5)] * 20 + [(7, 3), (1, 1), (1000, 4), (2, 300)])]

    def merge(self, key: str) -> list:
        sources = self.random.choices(self.KEYS, k=self.random.randint(1, 4))
        weights = [self.random.choice([1, 1, 2, 3, -1, 0, 2**40]) for _ in sources]
        weights = [self.random.choice(["WEIGHTS", "weights"]), *weights] if self.random.random() < 0.5 else []
        return ["CMS.MERGE", key, len(sources), *sources, *weights]


class Topk(Traffic):
    KEYS = ["a", "b", "c", "d"]
    CHANCE = "chance"  # the key of the sketches that decay by chance

    def next(self) -> list:
        key, chance = self.random.choice([*self.KEYS, self.CHANCE] * 5 + [STRING, MISSING]), self.random.random()
        if chance < 0.01:
            return ["DEL", self.random.choice([*self.KEYS, self.CHANCE])]
        if chance < 0.10:
            return self.create(key)
        if chance < 0.40:
            return ["TOPK.ADD", key, *self.items(30)]
        if chance < 0.60:
            return ["TOPK.INCRBY", key, *self.pairs(20, [0, 1, 2, 3, 10, 200])]
        if chance < 0.70:
            return ["TOPK.QUERY", key, *self.items(10)]
        if chance < 0.80:
            return ["TOPK.COUNT", key, *self.items(10)]
        if chance < 0.90:
            return ["TOPK.LIST", key, *self.random.choice([[], ["WITHCOUNT"], ["with"], [""], ["x"], ["WITHCOUNTS"]])]
        if chance < 0.93:
            return ["TOPK.INFO", key]
        if chance < 0.96:
            return ["TOPK.INCRBY", key, "item", self.random.choice([*BAD_INTEGERS, 100_001])]
        # Cut short, it creates a sketch with decay 0.9.
        return ["TOPK.RESERVE", self.CHANCE, *self.bad([3, 8, 7, 0.9])]

    def filled(self, key: str) -> list[list]:
        return [self.create(key), ["TOPK.INCRBY", key, *self.pairs(60, [1, 2, 1000])]]

    def create(self, key: str) -> list:
        shape = self.random.choice([(1, 1, 1), (3, 8, 7), (10, 50, 4), (40, 2, 300), (5, 1000, 2)])
        decay = self.random.choice(["0.9", "0.5"] if key == self.CHANCE else ["1", "1e-300"])
        return ["TOPK.RESERVE", key, *shape, decay]


class Tdigest(Traffic):
    """Also records what the digests hold."""

    KEYS = ["a", "b", "c", "d", "e", "f"]

    def __init__(self, seed: int):
        super().__init__(seed)
        self.adds = 0
        # For each key, the numbers of the adds whose observations are in its digest. None for a missing key.
        self.held: dict[str, set[int] | None] = dict.fromkeys(self.KEYS)

    def batch(self) -> list[list]:
        return [command for _ in range(BATCH) for command in self.several()]

    def several(self) -> list[list]:
        key, chance = self.random.choice(self.KEYS), self.random.random()
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

    def filled(self, key: str) -> list[list]:
        self.held[key] = None
        return [*self.create(key), *self.add(key), *self.add(key)]

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
        for source in self.random.sample(self.KEYS, self.random.randint(1, 3)):
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
        key = self.random.choice([*self.KEYS, STRING, MISSING])
        words = self.random.choices(BAD_DOUBLES, k=self.random.randint(0, 3))
        match name:
            case "ADD":
                words += ["x"]
            case "CREATE":
                key = self.random.choice([STRING, MISSING])
                words = ["COMPRESSION", *(word for word in words if word not in ("2",))]
            case "MERGE":
                options = [["COMPRESSION"], ["COMPRESSION", "x"], ["other"], ["COMPRESSION", "0", "OVERRIDE"]]
                words = [self.random.choice([*BAD_DOUBLES, "1", "9"]), MISSING, *self.random.choice(options)]
        return [[f"TDIGEST.{name}", key, *words]]


# What is asked of each key, with the arguments after the key.
ITEMS = [f"i{number}" for number in range(1, 40)]
QUESTIONS = {
    "cms": [["CMS.QUERY", *ITEMS], ["CMS.INFO"]],
    "topk": [["TOPK.LIST", "WITHCOUNT"], ["TOPK.QUERY", *ITEMS], ["TOPK.COUNT", *ITEMS]],
    "tdigest": [
        ["TDIGEST.QUANTILE", 0, 0.01, 0.5, 0.9, 0.999, 1], ["TDIGEST.CDF", -1e6, 0, 0.5, 1e6], ["TDIGEST.RANK", 0, 0.5],
        ["TDIGEST.BYREVRANK", 0, 1, 50], ["TDIGEST.TRIMMED_MEAN", 0.1, 0.9], ["TDIGEST.MIN"], ["TDIGEST.MAX"],
        ["TDIGEST.INFO"],
    ],
}  # fmt: skip
WRITES = ("DEL", "RESERVE", "INITBYDIM", "INITBYPROB", "INCRBY", "ADD", "CREATE", "MERGE", "RESET")


FAMILIES = {"cms": Cms, "topk": Topk, "tdigest": Tdigest}


def replies(client, commands: list[list]) -> list:
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    return [plain(words, reply) for words, reply in zip(commands, pipeline.execute(raise_on_error=False), strict=True)]


def plain(words: list, reply):
    """A reply as something that can be compared."""
    if isinstance(reply, redis.ResponseError):
        return f"refused: {reply}"
    if words[0] == "TDIGEST.INFO":  # 2.8 has another formula for the memory, which is the last field
        fields = list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))
        return repr(fields[:-1])
    if words[1] == Topk.CHANCE and words[0] in ("TOPK.ADD", "TOPK.INCRBY", "TOPK.QUERY", "TOPK.COUNT"):
        return len(reply)
    if words[1] == Topk.CHANCE and words[0] == "TOPK.LIST":
        return type(reply)
    if isinstance(reply, list):
        return [f"refused: {part}" if isinstance(part, redis.ResponseError) else repr(part) for part in reply]
    return repr(reply)


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


def answers(server: Server, family: str) -> dict:
    with server.client() as client:
        questions = [[name, key, *words] for key in sorted(client.keys()) for name, *words in QUESTIONS[family]]
        return {tuple(words): reply for words, reply in zip(questions, replies(client, questions), strict=True)}


def there_and_back(spec, name: str, traffic: Traffic, keys: int) -> None:
    """Carries keys by RDB files from RedisBloom to our module, and from there to RedisBloom."""
    with Server(spec, module=THEIRS) as source:
        with source.client() as client:
            for number in range(keys):
                replies(client, traffic.filled(f"key:{number}"))
        expected = answers(source, name)
        assert len(expected) == keys * len(QUESTIONS[name])
        source.command("SAVE")
        file = source.directory
        for module in (OURS, THEIRS):
            with Server(spec, module=module) as target:
                target.stop()
                shutil.copy(file / "dump.rdb", target.directory / "dump.rdb")
                target.start()
                assert answers(target, name) == expected, f"{name}, {module}"
                target.command("SAVE")
                shutil.copy(target.directory / "dump.rdb", file / "dump.rdb")


def follow(spec, traffics: list[Traffic]) -> None:
    """Our module is the replica of a RedisBloom, which gets only writes: its reads change digests on the primary alone."""
    config = {"propagation-error-behavior": "ignore"}  # RedisBloom replicates commands that failed as well
    with Server(spec, module=THEIRS) as primary, primary.client() as client:
        replica = primary.replica(config=config, module=OURS)
        for traffic in traffics:
            client.flushall()
            commands = [words for _ in range(20) for words in traffic.batch() if words[0].split(".")[-1] in WRITES]
            replies(client, [words for words in commands if words[1] != Topk.CHANCE])
            primary.wait_for_replicas()
            with replica.client() as other:
                found = {key: content(other, key) for key in other.keys()}
            assert found == {key: content(client, key) for key in client.keys()}, "the replica differs"
            assert found


def sketches(spec, arguments) -> str:
    totals: collections.Counter[str] = collections.Counter()
    names = arguments.family or list(FAMILIES)
    rounds = max(1, arguments.count // BATCH // len(names) // 2)
    with Server(spec) as ours, Server(spec, module=THEIRS) as theirs:
        for name, protocol in [(name, protocol) for name in names for protocol in (2, 3)]:
            traffic = FAMILIES[name](arguments.seed + protocol)
            with ours.client(protocol=protocol) as our_client, theirs.client(protocol=protocol) as their_client:
                for client in our_client, their_client:
                    client.flushall()
                    client.set(STRING, "x")
                for number in range(rounds):
                    commands = traffic.batch()
                    expected, found = replies(their_client, commands), replies(our_client, commands)
                    for words, theirs_said, ours_said in zip(commands, expected, found, strict=True):
                        assert ours_said == theirs_said, f"{words}\nours:   {ours_said}\ntheirs: {theirs_said}"
                        totals["refused" if str(theirs_said).startswith("refused") else words[0]] += 1
                    progress(number + 1, rounds, f"batches with RESP{protocol}")
                    if not isinstance(traffic, Topk) and number % 50 == 49:
                        our_client.execute_command("DEBUG", "RELOAD")
                        their_client.execute_command("DEBUG", "RELOAD")
            if protocol == 3:
                exchange(ours, THEIRS)
                exchange(theirs, OURS)
                for server in ours, theirs:
                    server.command("CONFIG", "SET", "appendonly", "no")
        ours.check()
    for name in names:
        there_and_back(spec, name, FAMILIES[name](arguments.seed), arguments.count // 200)
        follow(spec, [FAMILIES[name](arguments.seed + number) for number in range(10)])
    counts = ", ".join(f"{count:,} {kind}" for kind, count in totals.most_common())
    return f"{totals.total():,} commands with equal replies: {counts}"


def main() -> None:
    parser = options("sketches", __doc__, 200_000, "random commands")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this family (may be repeated)")
    run(sketches, parser)
