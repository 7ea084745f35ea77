"""Sends random CMS and TOPK commands to our module and to a real RedisBloom: all replies must be equal.

The values of count-min sketches must be equal byte for byte. Most Top-K sketches have decay 1 or 1e-300, with which
nothing is left to chance. Of the others, only the types of the replies are compared. Some commands are refused. Three
things are left out: files of Top-K sketches, because RedisBloom 2.8 forgets their decay; NUL bytes in Top-K items; and
TOPK.INCRBY with several increments of which one is bad, to which RedisBloom sends a reply that is too short.

At the end of each family, each server loads the other's append-only file, with and without an RDB part.

scripts/redisbloom fetches RedisBloom. 200,000 commands take half a minute. `--family cms` or `--family topk` runs one of
the families."""

import collections
import random

import redis

from kit.redisbloom import MODULE as THEIRS
from kit.servers import MODULE as OURS
from kit.servers import Server
from kit.suite import options, progress, run
from suites.tdigest import exchange

BATCH = 100
STRING, MISSING = "string", "missing"
BAD_INTEGERS = ["", "x", "1.5", "01", "-0", "+1", " 1", "0x1", "9223372036854775808", "-1", "-9223372036854775808"]
BAD_NUMBERS = ["", "x", "nan", "1e400", "0", "-0.5", "1.5", "inf", " 0.5", "0_1"]


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

    def create(self, key: str) -> list:
        shape = self.random.choice([(1, 1, 1), (3, 8, 7), (10, 50, 4), (40, 2, 300), (5, 1000, 2)])
        decay = self.random.choice(["0.9", "0.5"] if key == self.CHANCE else ["1", "1e-300"])
        return ["TOPK.RESERVE", key, *shape, decay]


FAMILIES = {"cms": Cms, "topk": Topk}


def replies(client, commands: list[list]) -> list:
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    return [plain(words, reply) for words, reply in zip(commands, pipeline.execute(raise_on_error=False), strict=True)]


def plain(words: list, reply):
    """A reply as something that can be compared."""
    if isinstance(reply, redis.ResponseError):
        return f"refused: {reply}"
    if words[1] == Topk.CHANCE and words[0] in ("TOPK.ADD", "TOPK.INCRBY", "TOPK.QUERY", "TOPK.COUNT"):
        return len(reply)
    if words[1] == Topk.CHANCE and words[0] == "TOPK.LIST":
        return type(reply)
    if isinstance(reply, list):
        return [f"refused: {part}" if isinstance(part, redis.ResponseError) else repr(part) for part in reply]
    return repr(reply)


def sketches(spec, arguments) -> str:
    totals: collections.Counter[str] = collections.Counter()
    families = [FAMILIES[name](arguments.seed) for name in arguments.family or FAMILIES]
    rounds = arguments.count // BATCH // len(families) // 2
    with Server(spec) as ours, Server(spec, module=THEIRS) as theirs:
        for traffic, protocol in [(traffic, protocol) for traffic in families for protocol in (2, 3)]:
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
                    if isinstance(traffic, Cms) and number % 50 == 49:
                        our_client.execute_command("DEBUG", "RELOAD")
                        their_client.execute_command("DEBUG", "RELOAD")
            if protocol == 3:
                exchange(ours, THEIRS)
                exchange(theirs, OURS)
                for server in ours, theirs:
                    server.command("CONFIG", "SET", "appendonly", "no")
        ours.check()
    counts = ", ".join(f"{count:,} {kind}" for kind, count in totals.most_common())
    return f"{totals.total():,} commands with equal replies: {counts}"


def main() -> None:
    parser = options("sketches", __doc__, 200_000, "random commands")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this family (may be repeated)")
    run(sketches, parser)
