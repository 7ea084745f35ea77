"""Random commands: every write there is, those that are refused, and what servers do with keys besides.

The data that a run leaves behind does not matter; that a replica, or a replayed append-only file, ends with the same
data does. So refusals are part of it, and are counted: a run in which nothing was refused would show little.
"""

import collections
import random

import redis
from filters import pieces

# Runs each of its arguments' commands (a count, then that many words); a command that fails does not end the script.
SCRIPT = """
local at = 1
while at <= #ARGV do
    local words = tonumber(ARGV[at])
    redis.pcall(unpack(ARGV, at + 1, at + words))
    at = at + words + 1
end
"""

ITEMS = [b"", b"\0", b"a\r\nb", b"%s%n%p", b"\xff\xfe\x80", *(f"item:{number}".encode() for number in range(400))]

# Keys by the family whose commands go to them, most of the time.
KEYS = {
    "BF": [f"key:{number}" for number in range(36)],
    "CF": [f"cuckoo:{number}" for number in range(12)],
}

# Keys that keep their kind of filter, so that deletes and rotations have something to work on.
STEADY = {
    "counting:4": "BF.RESERVE 0.01 40 COUNTING",
    "counting:8": "BF.RESERVE 0.01 40 COUNTING 8 HASH SIPHASH",
    "counting:16": "BF.RESERVE 0.01 40 COUNTING 16 ONFULL SATURATE SEED 1",
    "window:0": "BF.RESERVE 0.01 30 WINDOW 3",
    "window:1": "BF.RESERVE 0.01 30 WINDOW 2 ONFULL ERROR EVERY 300",
    "window:2": "BF.RESERVE 0.01 30 WINDOW 4 EVERY 25 HASH SIPHASH",
    "cuckoos:0": "CF.RESERVE 20",
    "cuckoos:1": "CF.RESERVE 40 BUCKETSIZE 4 EXPANSION 2 HASH SIPHASH",
    "cuckoos:2": "CF.RESERVE 100 BUCKETSIZE 3 MAXITERATIONS 200 EXPANSION 0 SEED 2",
}

# How a filter is reserved, right and wrong. Small ones, so that they fill up.
RESERVATIONS = {
    "BF": """
    0.01 30
    0.01 30 NONSCALING
    0.001 20 EXPANSION 1
    0.05 10 EXPANSION 4 TIGHTENING 0.3
    0.01 40 ONFULL SATURATE SHARDS 2
    0.01 40 ONFULL ERROR LAYOUT CLASSIC
    0.0001 40 LAYOUT BLOCKED HASH SIPHASH
    0.01 30 SEED abc123
    0.01 40 COUNTING 8
    0.01 30 WINDOW 3
    0.01 30 WINDOW 2 ONFULL ERROR
    0.01 30 WINDOW 4 EVERY 20
    0.01 30 WINDOW 3 EVERY 150 HASH SIPHASH
    0.01 30 WINDOW 5 EVERY 1000 SINCE 1700000000000
    0.01 30 WINDOW 5 EVERY 7 SINCE 99999999999999
    2 30
    0.01 0
    0.01 30 WINDOW 65
    0.01 30 COUNTING WINDOW 3
    0.01 30 NONSENSE
""",
    "CF": """
    20
    30 EXPANSION 0
    8 BUCKETSIZE 4 EXPANSION 4
    7 BUCKETSIZE 3 MAXITERATIONS 1 EXPANSION 2
    20 BUCKETSIZE 1 MAXITERATIONS 65535
    30 EXPANSION 3 HASH SIPHASH
    20 HASH XXH3 SEED abc123
    40 BUCKETSIZE 8 MAXITERATIONS 100 EXPANSION 1 HASH SIPHASH SEED 0123456789abcdef0123456789abcdef
    0
    1
    30 BUCKETSIZE 0
    30 EXPANSION 32769
    30 MAXITERATIONS 65536
    30 NONSENSE 1
    30 EXPANSION
    many
""",
}

INSERTIONS = {
    "BF": [
        "",
        "CAPACITY 20",
        "ERROR 0.2 CAPACITY 15",
        "NONSCALING CAPACITY 10",
        "EXPANSION 0",
        "NOCREATE",
        "ERROR 7",
    ],
    "CF": ["", "CAPACITY 20", "CAPACITY 4", "NOCREATE", "CAPACITY 0", "NONSENSE"],
}


class Workload:
    """The same seed gives the same commands, but for what follows from the data and the time."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.refused: collections.Counter[str] = collections.Counter()
        self.did: collections.Counter[str] = collections.Counter()

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, client, count: int) -> None:
        steps = (
            [self.one] * 10
            + [self.reserve] * 2
            + [self.transaction, self.script, self.around, self.around, self.load, self.restore]
        )
        for key, arguments in STEADY.items():
            if not client.exists(key):
                command, *words = arguments.split()
                client.execute_command(command, key, *words)
        for _ in range(count):
            try:
                self.random.choice(steps)(client)
            except redis.ResponseError as error:
                self.refused[" ".join(str(error).split()[:3])] += 1
        self.settle(client)

    def settle(self, client) -> None:
        """Nothing that expires by itself is left: whoever compares two servers takes a moment to do so."""
        for key in client.keys():
            if client.ttl(key) in range(60):
                client.delete(key)

    # ---- steps ------------------------------------------------------------------------------------------------------

    def one(self, client) -> None:
        command = self.command()
        self.did[command[0]] += 1
        for reply in _elements(client.execute_command(*command)):
            if isinstance(reply, redis.ResponseError):
                self.refused["in an array: " + " ".join(str(reply).split()[:3])] += 1

    def reserve(self, client) -> None:
        """Another kind of filter in place of the one that is there."""
        family = self.family()
        key = self.key(family)
        client.execute_command("DEL", key)
        client.execute_command(f"{family}.RESERVE", key, *self.reservation(family))

    def transaction(self, client) -> None:
        with client.pipeline(transaction=True) as pipeline:
            for _ in range(self.random.randint(1, 6)):
                pipeline.execute_command(*self.command())
            pipeline.execute(raise_on_error=False)

    def script(self, client) -> None:
        words = []
        for _ in range(self.random.randint(1, 6)):
            command = self.command()
            words += [len(command), *command]
        keys = [*KEYS["BF"], *KEYS["CF"], *STEADY]
        client.execute_command("EVAL", SCRIPT, len(keys), *keys, *words)

    def around(self, client) -> None:
        """What servers do with keys, whatever is in them."""
        key, other = self.key(self.family()), self.key(self.family())
        choices = [
            ["DEL", key],
            ["UNLINK", key],
            ["RENAME", key, other],
            ["COPY", key, other, "REPLACE"],
            ["EXPIRE", key, 1000],
            ["PEXPIRE", key, self.random.randint(1, 30)],
            ["PERSIST", key],
            ["SET", key, "no filter"],
        ]
        client.execute_command(*self.random.choice(choices))

    def load(self, client) -> None:
        """SCANDUMP and LOADCHUNK, at times without the end."""
        family = self.family()
        source, target = self.key(family), self.key(family)
        found = pieces(client, source, family)
        if self.random.random() < 0.2:
            found.pop()
        if self.random.random() < 0.7:
            client.delete(target)
        if self.random.random() < 0.1:
            family = self.family()
        for iterator, piece in found:
            self.did[f"{family}.LOADCHUNK"] += 1
            client.execute_command(f"{family}.LOADCHUNK", target, iterator, piece)

    def restore(self, client) -> None:
        family = self.family()
        if payload := client.dump(self.key(family)):
            client.restore(self.key(family), 0, payload, replace=True)

    # ---- commands ---------------------------------------------------------------------------------------------------

    def family(self) -> str:
        return "CF" if self.random.random() < 0.3 else "BF"

    def key(self, family: str) -> str:
        if self.random.random() < 0.05:
            family = self.family()  # at times it is the other's
        # Some keys are popular, so that some filters live long enough to fill and grow.
        keys = KEYS[family]
        return keys[min(self.random.randrange(len(keys)), self.random.randrange(len(keys)))]

    def key_for(self, family: str, verb: str) -> str:
        steady = {"DEL": "counting", "MDEL": "counting", "COUNT": "counting", "ROTATE": "window", "AGE": "window"}
        if family == "CF":
            steady = {"DEL": "cuckoos", "COUNT": "cuckoos", "COMPACT": "cuckoos"}
        fitting = [
            key
            for key, command in STEADY.items()
            if command.startswith(family) and key.startswith(steady.get(verb, ""))
        ]
        chance = 0.8 if verb in steady else 0.2
        return self.random.choice(fitting) if self.random.random() < chance else self.key(family)

    def items(self, most: int = 12) -> list[bytes]:
        return self.random.choices(ITEMS, k=self.random.randint(1, most))

    def reservation(self, family: str) -> list[str]:
        return self.random.choice(RESERVATIONS[family].strip().splitlines()).split()

    def command(self) -> list:
        (command,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        family, verb = command.split(".")
        key = self.key_for(family, verb)
        match verb:
            case "RESERVE":
                arguments = self.reservation(family)
                if family == "BF" and self.random.random() < 0.1:
                    arguments = ["0.01", "30", "LIKE", self.key(family)]
            case "INSERT" | "INSERTNX":
                arguments = [*self.random.choice(INSERTIONS[family]).split(), "ITEMS", *self.items()]
            case "MADD" | "MDEL" | "MEXISTS":
                arguments = self.items()
            case "ROTATE" | "CLEAR" | "COMPACT" | "INFO" | "CARD" | "DEBUG":
                arguments = []
            case _:
                arguments = self.items(1)
        return [command, key, *arguments]


WEIGHTS = {
    "BF.ADD": 20, "BF.MADD": 20, "BF.ADDNX": 10, "BF.INSERT": 8, "BF.DEL": 10, "BF.MDEL": 8, "BF.RESERVE": 6,
    "BF.ROTATE": 8, "BF.CLEAR": 1, "BF.EXISTS": 2, "BF.MEXISTS": 2, "BF.INFO": 1, "BF.CARD": 1, "BF.COUNT": 1,
    "BF.AGE": 1,
    "CF.ADD": 12, "CF.ADDNX": 6, "CF.INSERT": 6, "CF.INSERTNX": 4, "CF.DEL": 16, "CF.COMPACT": 2, "CF.RESERVE": 4,
    "CF.EXISTS": 1, "CF.MEXISTS": 1, "CF.COUNT": 1, "CF.INFO": 1, "CF.DEBUG": 1,
}  # fmt: skip


def _elements(reply) -> list:
    return reply if isinstance(reply, list) else []


def digests(client) -> dict[bytes, tuple]:
    """Type, digest and time of expiry of every key."""
    return {
        key: (
            client.type(key),
            client.execute_command("DEBUG", "DIGEST-VALUE", key)[0],
            client.execute_command("PEXPIRETIME", key),
        )
        for key in sorted(client.keys())
    }
