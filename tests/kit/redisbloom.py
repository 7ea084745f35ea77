"""A real RedisBloom: where it is, and random commands for it in the spellings that it accepts.

`scripts/redisbloom` fetches it into .cache. Its licence doesn't allow us to put it into this repository or a release.
"""

import random
from collections.abc import Iterator

from kit.servers import ROOT

MODULE = ROOT / ".cache" / "redisbloom" / "redisbloom.so"

# Module arguments for replicas and primaries. The number of sub-filters is practically unlimited, because at the limit
# RedisBloom refuses every add.
MODULE_ARGS = ["CF_MAX_EXPANSIONS", "65535"]

# Some keys look like options of RESERVE. RedisBloom accepts them. If the key is MAXITERATIONS, it reads the capacity as
# that option's value.
BLOOM_KEYS = [b"b:%d" % number for number in range(8)] + [b"nonscaling", b"NonScaling"]
CUCKOO_KEYS = [b"c:%d" % number for number in range(5)] + [b"MAXITERATIONS"]
# Filters that can't grow, so they refuse items: capacity, slots per bucket, maximum number of moves.
FIXED = {b"full:1": (60, 1, 3), b"full:2": (100, 2, 20), b"full:4": (64, 4, 500)}

ERROR_RATES = "0.01 .01 1.e-2 +0.05 0.1 0.5 0.999 1E-3 1e-13 2e-300 0x1p-7 0X.2 0x1.8P-4 0.0100000000000000000000001".split()
UNKNOWN = ["NONSC", "EXP", "x", "", "CAPACITY", "4", "SEEDS", "non scaling", "\xff"]


class Traffic:
    """Random commands with only a few keys and items, so that filters fill up, refuse items, grow, lose items and
    shrink."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def fixed(self) -> Iterator[list]:
        for key, (capacity, bucket, moves) in FIXED.items():
            yield ["CF.RESERVE", key, capacity, "BUCKETSIZE", bucket, "MAXITERATIONS", moves, "EXPANSION", 0]

    def commands(self, count: int) -> Iterator[list]:
        steps = [self.reserve] * 3 + [self.insert] * 6 + [self.add] * 6 + [self.forget] * 2
        steps += [self.cuckoo_reserve] * 3 + [self.cuckoo_insert] * 12 + [self.cuckoo_delete] * 24 + [self.cuckoo_compact]
        for _ in range(count):
            yield self.random.choice(steps)()

    # ---- parts ------------------------------------------------------------------------------------------------------

    def case(self, word: str) -> str:
        return self.random.choice([word, word, word.lower(), "".join(map(self.either_case, word))])

    def either_case(self, letter: str) -> str:
        return self.random.choice([letter.upper(), letter.lower()])

    def begins(self, letters: str) -> str:
        """A word that begins with these letters. INSERT looks only at them."""
        return self.case(letters + "".join(self.random.choices("ACEINOPSTX_9", k=self.random.choice([0, 0, 1, 5]))))

    def items(self, most: int) -> list[str]:
        return [str(self.random.randrange(600)) for _ in range(self.random.randint(1, most))]

    def expansion(self) -> str:
        # RedisBloom cuts the expansion to 32 bits.
        return self.random.choice(["1", "1", "2", "2", "3", "4", "8", str((1 << 32) + 3)])

    # ---- Bloom filters ----------------------------------------------------------------------------------------------

    def reserve(self) -> list:
        words = ["BF.RESERVE", self.random.choice(BLOOM_KEYS), self.random.choice(ERROR_RATES), self.random.randint(1, 60)]
        unknown = self.random.choice(UNKNOWN)
        options = [self.case("EXPANSION"), self.expansion()]
        tails = [[], [self.case("NONSCALING")], options, [unknown, *options], [*options, unknown], [unknown, "y"]]
        return words + self.random.choice(tails)

    def insert(self) -> list:
        words = ["BF.INSERT", self.random.choice(BLOOM_KEYS)]
        options = [
            lambda: [self.begins("C"), self.random.randint(1, 40)],
            lambda: [self.begins("ER"), self.random.choice(ERROR_RATES)],
            # ER… would mean ERROR.
            lambda: [self.case(self.random.choice(["E", "EX", "EXPANSION", "EQ"])), self.expansion()],
            lambda: [self.case(self.random.choice(["N", "NO", "NON", "NONSCALING", "NC", "NX"]))],
            lambda: [self.begins(self.random.choice(["NOC", "NXC"]))],
        ]
        for option in self.random.choices(options, k=self.random.choice([0, 0, 1, 2, 3])):
            words += option()
        return [*words, self.begins("I"), *self.items(8)]

    def add(self) -> list:
        if self.random.random() < 0.5:
            return ["BF.ADD", self.random.choice(BLOOM_KEYS), *self.items(1)]
        return ["BF.MADD", self.random.choice(BLOOM_KEYS), *self.items(12)]

    def forget(self) -> list:
        key, other = self.random.sample(self.random.choice([BLOOM_KEYS, CUCKOO_KEYS]), 2)
        return self.random.choice([["DEL", key], ["DEL", key], ["RENAME", key, other], ["PEXPIRE", key, 10_000_000]])

    # ---- cuckoo filters ---------------------------------------------------------------------------------------------

    def cuckoo_reserve(self) -> list:
        # The capacity must fill at least two buckets. RedisBloom refuses an even number of words.
        bucket = self.random.choice([1, 1, 2, 2, 3, 4, 8])
        words = ["CF.RESERVE", self.random.choice(CUCKOO_KEYS), self.random.randint(2 * bucket, 120)]
        options = [
            lambda: [self.case("BUCKETSIZE"), bucket],
            lambda: [self.case("MAXITERATIONS"), self.random.choice([1, 1, 2, 3, 7, 20, 500, 65535])],
            lambda: [self.case("EXPANSION"), self.random.choice([0, 0, 0, 1, 2, 3])],
            lambda: [self.random.choice(UNKNOWN), "y"],
        ]
        for option in self.random.choices(options, k=self.random.choice([0, 2, 3, 4, 5])):
            words += option()
        if self.random.random() < 0.1:  # shifts the options to odd positions
            words = [*words[:3], "x", *words[3:], "y"]
        return words

    def cuckoo_key(self) -> bytes:
        return self.random.choice([*CUCKOO_KEYS, *FIXED])

    def cuckoo_insert(self) -> list:
        match self.random.randrange(6):
            case 0:
                return ["CF.ADD", self.cuckoo_key(), *self.items(1)]
            case 1:
                return ["CF.ADDNX", self.cuckoo_key(), *self.items(1)]
        words = [self.random.choice(["CF.INSERT", "CF.INSERT", "CF.INSERTNX"]), self.cuckoo_key()]
        for _ in range(self.random.choice([0, 0, 1, 2])):
            words += self.random.choice([[self.begins("C"), self.random.randint(4, 300)], [self.begins("N")]])
        return [*words, self.begins("I"), *self.items(40)]

    def cuckoo_delete(self) -> list:
        return ["CF.DEL", self.cuckoo_key(), *self.items(1)]

    def cuckoo_compact(self) -> list:
        return ["CF.COMPACT", self.cuckoo_key()]


def encoded(words: list) -> list[bytes]:
    """The words as the bytes that are sent."""
    return [word if isinstance(word, bytes) else str(word).encode("latin-1") for word in words]
