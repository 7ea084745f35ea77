"""Random commands: every write there is, those that are refused, and what servers do with keys besides.

The data that a run leaves behind does not matter; that a replica, or a replayed append-only file, ends with the same
data does. So refusals are part of it, and are counted: a run in which nothing was refused would show little.
"""

import collections
import random

import redis

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
KEYS = [f"key:{number}" for number in range(36)]

# Keys that keep their kind of filter, so that deletes and rotations have something to work on.
STEADY = {
    "counting:4": "0.01 40 COUNTING",
    "counting:8": "0.01 40 COUNTING 8 HASH SIPHASH",
    "counting:16": "0.01 40 COUNTING 16 ONFULL SATURATE SEED 1",
    "window:0": "0.01 30 WINDOW 3",
    "window:1": "0.01 30 WINDOW 2 ONFULL ERROR EVERY 300",
    "window:2": "0.01 30 WINDOW 4 EVERY 25 HASH SIPHASH",
}

# How a filter is reserved, right and wrong. Small ones, so that they fill up.
RESERVATIONS = """
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
""".strip().splitlines()

INSERTIONS = [
    "",
    "CAPACITY 20",
    "ERROR 0.2 CAPACITY 15",
    "NONSCALING CAPACITY 10",
    "EXPANSION 0",
    "NOCREATE",
    "ERROR 7",
]


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
                client.execute_command("BF.RESERVE", key, *arguments.split())
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
        key, arguments = self.key(), self.random.choice(RESERVATIONS)
        client.execute_command("DEL", key)
        client.execute_command("BF.RESERVE", key, *arguments.split())

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
        keys = [*KEYS, *STEADY]
        client.execute_command("EVAL", SCRIPT, len(keys), *keys, *words)

    def around(self, client) -> None:
        """What servers do with keys, whatever is in them."""
        key, other = self.key(), self.key()
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
        source, target = self.key(), self.key()
        iterator, pieces = 0, []
        while True:
            iterator, piece = client.execute_command("BF.SCANDUMP", source, iterator)
            if not iterator:
                break
            pieces.append((iterator, piece))
        if self.random.random() < 0.2:
            pieces.pop()
        if self.random.random() < 0.7:
            client.delete(target)
        for iterator, piece in pieces:
            self.did["BF.LOADCHUNK"] += 1
            client.execute_command("BF.LOADCHUNK", target, iterator, piece)

    def restore(self, client) -> None:
        if payload := client.dump(self.key()):
            client.restore(self.key(), 0, payload, replace=True)

    # ---- commands ---------------------------------------------------------------------------------------------------

    def key(self) -> str:
        # Some keys are popular, so that some filters live long enough to fill and grow.
        return KEYS[min(self.random.randrange(len(KEYS)), self.random.randrange(len(KEYS)))]

    def key_for(self, verb: str) -> str:
        steady = {"DEL": "counting", "MDEL": "counting", "COUNT": "counting", "ROTATE": "window", "AGE": "window"}
        fitting = [key for key in STEADY if key.startswith(steady.get(verb, ""))]
        return self.random.choice(fitting) if self.random.random() < (0.8 if verb in steady else 0.2) else self.key()

    def items(self, most: int = 12) -> list[bytes]:
        return self.random.choices(ITEMS, k=self.random.randint(1, most))

    def command(self) -> list:
        (verb,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        key = self.key_for(verb)
        match verb:
            case "RESERVE":
                arguments = self.random.choice(RESERVATIONS).split()
                if self.random.random() < 0.1:
                    arguments = ["0.01", "30", "LIKE", self.key()]
            case "INSERT":
                arguments = [*self.random.choice(INSERTIONS).split(), "ITEMS", *self.items()]
            case "MADD" | "MDEL" | "MEXISTS":
                arguments = self.items()
            case "ROTATE" | "CLEAR" | "INFO" | "CARD":
                arguments = []
            case _:
                arguments = self.items(1)
        return [f"BF.{verb}", key, *arguments]


WEIGHTS = {
    "ADD": 20, "MADD": 20, "ADDNX": 10, "INSERT": 8, "DEL": 10, "MDEL": 8, "RESERVE": 6, "ROTATE": 8, "CLEAR": 1,
    "EXISTS": 2, "MEXISTS": 2, "INFO": 1, "CARD": 1, "COUNT": 1, "AGE": 1,
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
