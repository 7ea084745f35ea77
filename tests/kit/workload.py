"""Random commands: every write command, commands that are refused, and the server's own commands on keys. The resulting
data doesn't matter. What matters is that a replica, or a replayed append-only file, has the same data in the end.
Refused commands are included and counted, because a run without them would prove little."""

import collections
import random

import redis

from kit.filters import pieces
from kit.foreign import Bitmap, ValkeyBloomChain, Value, guava_64, redisbloom_2017, sbbf, sealed

# A script that runs the commands in its arguments, each given as a number of words followed by the words. If a command
# fails, the script continues.
SCRIPT = """
local at = 1
while at <= #ARGV do
    local words = tonumber(ARGV[at])
    redis.pcall(unpack(ARGV, at + 1, at + words))
    at = at + words + 1
end
"""

ITEMS = [b"", b"\0", b"a\r\nb", b"%s%n%p", b"\xff\xfe\x80", *(f"item:{number}".encode() for number in range(400))]

# Keys, by the family of most commands that are sent to them.
KEYS = {
    "BF": [f"key:{number}" for number in range(36)],
    "CF": [f"cuckoo:{number}" for number in range(12)],
}

# Keys that usually have their own kind of filter, so that deletes and rotations find something to work on.
STEADY = {
    "counting:4": "BF.RESERVE 0.01 40 COUNTING LAYOUT BLOCKED",
    "counting:8": "BF.RESERVE 0.01 40 COUNTING 8 HASH SIPHASH LAYOUT CLASSIC",
    "counting:16": "BF.RESERVE 0.01 40 COUNTING 16 ONFULL SATURATE SEED 1",
    "counting:table": "BF.RESERVE 0.01 20 COUNTING HASH SIPHASH",
    "counting:table:8": "BF.RESERVE 0.01 40 COUNTING 8 NONSCALING",
    "window:0": "BF.RESERVE 0.01 30 WINDOW 3",
    "window:1": "BF.RESERVE 0.01 30 WINDOW 2 ONFULL ERROR EVERY 300",
    "window:3": "BF.RESERVE 0.01 30 WINDOW 4 EVERY 40 LAYOUT QUOTIENT",
    "window:4": "BF.RESERVE 0.01 10 WINDOW 20 LAYOUT QUOTIENT HASH SIPHASH",
    "window:5": "BF.RESERVE 0.01 10 WINDOW 3 ONFULL FORGET",
    "window:6": "BF.RESERVE 0.01 10 TTL 200",
    "window:2": "BF.RESERVE 0.01 30 WINDOW 4 EVERY 25 HASH SIPHASH",
    "cuckoos:0": "CF.RESERVE 20",
    "cuckoos:1": "CF.RESERVE 40 BUCKETSIZE 4 EXPANSION 2 HASH SIPHASH",
    "cuckoos:2": "CF.RESERVE 100 BUCKETSIZE 3 MAXITERATIONS 200 EXPANSION 0 SEED 2",
    "bulk:0": "BF.RESERVE 0.01 60000 SHARDS 8 ONFULL SATURATE",
    # Filters of the same kind can be combined by BF.MERGE and BF.INTERSECT.
    "twin:fixed:0": "BF.RESERVE 0.01 60 ONFULL SATURATE SEED 7",
    "twin:fixed:1": "BF.RESERVE 0.01 60 ONFULL SATURATE SEED 7",
    "twin:fixed:2": "BF.RESERVE 0.01 60 ONFULL SATURATE SEED 7",
    "twin:chain": "BF.RESERVE 0.05 20 SEED 7",
    "twin:counting:0": "BF.RESERVE 0.01 40 COUNTING ONFULL SATURATE SEED 7",
    "twin:counting:1": "BF.RESERVE 0.01 40 COUNTING ONFULL SATURATE SEED 7",
    # Tables needn't have the same size.
    "twin:table:0": "BF.RESERVE 0.01 80 COUNTING SEED 7",
    "twin:table:1": "BF.RESERVE 0.02 10 COUNTING SEED 7",
    "twin:table:2": "BF.RESERVE 0.01 80 COUNTING NONSCALING SEED 7",
    "twin:plain:0": "BF.RESERVE 0.01 80 LAYOUT QUOTIENT SEED 7",
    "twin:plain:1": "BF.RESERVE 0.001 10 LAYOUT QUOTIENT SEED 7",
    "twin:ring:0": "BF.RESERVE 0.01 20 WINDOW 3 LAYOUT QUOTIENT SEED 7",
    "twin:ring:1": "BF.RESERVE 0.001 40 WINDOW 3 LAYOUT QUOTIENT SEED 7",
    "twin:window:0": "BF.RESERVE 0.01 40 WINDOW 3 EVERY 60 SINCE 1700000000000 SEED 7",
    "twin:window:1": "BF.RESERVE 0.01 40 WINDOW 3 EVERY 60 SINCE 1700000000000 SEED 7",
}

# Valid and invalid reservations. The filters are small, so they fill up.
RESERVATIONS = {
    "BF": """
    0.01 30
    0.01 30 NONSCALING
    0.001 20 EXPANSION 1
    0.05 10 EXPANSION 4 TIGHTENING 0.3
    0.01 40 ONFULL SATURATE SHARDS 2
    0.01 40 ONFULL ERROR LAYOUT CLASSIC
    0.0001 40 LAYOUT BLOCKED HASH SIPHASH
    0.01 30 LAYOUT PARTITIONED
    0.01 40 COUNTING LAYOUT PARTITIONED
    0.01 30 WINDOW 3 LAYOUT PARTITIONED
    0.01 30 SEED abc123
    0.01 40 COUNTING 8
    0.01 10 COUNTING EXPANSION 0
    0.01 10 LAYOUT QUOTIENT
    0.01 10 TTL 100 ONFULL ERROR
    0.01 30 WINDOW 3
    0.01 30 WINDOW 2 ONFULL ERROR
    0.01 30 WINDOW 4 EVERY 20
    0.01 30 WINDOW 3 EVERY 150 HASH SIPHASH
    0.01 30 WINDOW 5 EVERY 1000 SINCE 1700000000000
    0.01 30 WINDOW 5 EVERY 7 SINCE 99999999999999
    2 30
    0.01 0
    0.01 30 WINDOW 65
    0.01 30 WINDOW 65 LAYOUT CLASSIC
    0.01 40 NONSCALING LAYOUT QUOTIENT
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

# Valid and invalid ways to begin a rebuild. Some shadows are too small for the live filter's adds.
REBUILDS = """
    BEGIN
    BEGIN
    BEGIN CAPACITY 60
    BEGIN ERROR 0.001
    BEGIN CAPACITY 4 NONSCALING
    BEGIN COUNTING 8
    BEGIN WINDOW 4
    BEGIN COUNTING LAYOUT QUOTIENT
    BEGIN LAYOUT PARTITIONED
    BEGIN WINDOW 4 ONFULL FORGET
    BEGIN WINDOW 3 EVERY 40
    BEGIN EXPANSION 2 HASH SIPHASH SHARDS 2
    BEGIN SEED 7
    BEGIN CAPACITY 0
    BEGIN NONSENSE
"""

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

# The keys that BF.IMPORT reads: a bitmap, and Redisson's configuration.
BITS = 2048
SOURCES = {"bitmap": "SETBIT 99 1", "config": f"HSET size {BITS} hashIterations 5"}


def _arrivals() -> dict[str, list[list]]:
    """For each command that imports another system's filter, a list of possible arguments after the key."""
    members = ITEMS[5:65]
    guava = Bitmap(guava_64, 640, 5, members)
    header = b"".join(number.to_bytes(8, "big") for number in (640, 5, 640))
    valkey = ValkeyBloomChain(20, 0.05, 0.5, 2, bytes(range(32)))
    for item in members:
        valkey.add(item.decode())
    old = bytes(Bitmap(redisbloom_2017, 958, 7, members).links[0].bits)
    chain = Value("MBbloom--", 0, [len(members), 1, 100, 0.01, 7, 9.585058378055, old, len(members)])
    cuckoo = Value("MBbloomCF", 3, [1, 512, 1, bytes(1024)])
    return {
        "BF.IMPORT": [
            ["GOZERO", "bitmap", "BITS", BITS, "MAPS", 5],
            ["REDISSON", "bitmap", "config", "CODEC", "JSON"],
            ["BLOOMV3", header + guava.big_endian_words()],
            ["GUAVA", guava.guava(1)],
            ["GUAVA", b"no filter"],
            ["SBBF", Bitmap(sbbf, 1024, 8, members).sbbf()],
            ["GOZERO", "bitmap", "BITS", 8],
        ],
        "BF.LOAD": [[valkey.payload()], [valkey.payload()[:-1]]],
        # 10 is the RDB version of the oldest server.
        "RESTORE": [[0, sealed(value.dump(), 10), "REPLACE"] for value in (chain, cuckoo)],
    }


class Workload:
    """Random commands from a seed. The same seed gives the same commands, unless they depend on the data or the time.
    """

    def __init__(self, seed: int | str):
        self.random = random.Random(seed)
        self.arrivals = _arrivals()
        self.steps = (
            [self.one] * 10
            + [self.reserve] * 2
            + [self.transaction, self.script, self.around, self.around, self.load, self.restore]
            + [self.bring_in, self.begin_anew, self.exchange]
        )
        self.refused: collections.Counter[str] = collections.Counter()
        self.did: collections.Counter[str] = collections.Counter()

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, client, count: int) -> None:
        for key, arguments in (STEADY | SOURCES).items():
            if not client.exists(key):
                command, *words = arguments.split()
                try:
                    client.execute_command(command, key, *words)
                except redis.ResponseError as why:
                    if "item exists" not in str(why):  # another client has just created it
                        raise
        for _ in range(count):
            self.step(client)
        self.settle(client)

    def step(self, client) -> None:
        try:
            self.random.choice(self.steps)(client)
        except redis.ResponseError as error:
            self.refused[" ".join(str(error).split()[:3])] += 1

    def settle(self, client) -> None:
        """Deletes the keys that would expire soon, because comparing two servers takes a moment."""
        for key in client.keys():
            if client.ttl(key) in range(60):
                client.delete(key)

    # ---- steps ------------------------------------------------------------------------------------------------------

    def one(self, client) -> None:
        command = self.command()
        for reply in _elements(client.execute_command(*command)):
            if isinstance(reply, redis.ResponseError):
                self.refused["in an array: " + " ".join(str(reply).split()[:3])] += 1

    def reserve(self, client) -> None:
        """Deletes a key, and reserves a random filter in its place."""
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
        """Sends one of the server's own commands, which work on a key whatever its content."""
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
        """Copies a filter with SCANDUMP and LOADCHUNK, sometimes without the last piece."""
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

    def bring_in(self, client) -> None:
        """Imports another system's filter."""
        client.setbit("bitmap", self.random.randrange(BITS), 1)
        command = self.random.choice(list(self.arrivals))
        key = self.key("BF")
        client.delete(key)
        client.execute_command(command, key, *self.random.choice(self.arrivals[command]))

    def exchange(self, client) -> None:
        """Merges DUMP payloads, which are sometimes damaged."""
        key = self.key_for("BF", "MERGE")
        dumps = [client.dump(self.twin_of(key)) or b"" for _ in range(self.random.randint(1, 2))]
        if self.random.random() < 0.1:
            dumps[-1] = dumps[-1][:-1]
        self.did["BF.MERGE"] += 1
        client.execute_command("BF.MERGE", key, "BLOB", *dumps)

    def begin_anew(self, client) -> None:
        """Creates one of the STEADY Bloom filters again, because BF.INTERSECT may have replaced it, or a rebuild may
        have changed its kind."""
        key = self.random.choice([key for key, command in STEADY.items() if command.startswith("BF")])
        client.delete(key)
        command, *words = STEADY[key].split()
        client.execute_command(command, key, *words)

    def restore(self, client) -> None:
        family = self.family()
        if payload := client.dump(self.key(family)):
            client.restore(self.key(family), 0, payload, replace=True)

    # ---- commands ---------------------------------------------------------------------------------------------------

    def family(self) -> str:
        return "CF" if self.random.random() < 0.3 else "BF"

    def key(self, family: str) -> str:
        if self.random.random() < 0.05:
            family = self.family()  # sometimes a key of the other family
        # Some keys are popular, so that some filters live long enough to fill and grow.
        keys = KEYS[family]
        return keys[min(self.random.randrange(len(keys)), self.random.randrange(len(keys)))]

    def key_for(self, family: str, verb: str) -> str:
        steady = {"DEL": "counting", "MDEL": "counting", "COUNT": "counting", "ROTATE": "window", "AGE": "window"}
        steady |= {"MERGE": "twin", "INTERSECT": "twin", "EQUAL": "twin"}
        if family == "CF":
            steady = {"DEL": "cuckoos", "COUNT": "cuckoos", "COMPACT": "cuckoos"}
        fitting = [
            key
            for key, command in STEADY.items()
            if command.startswith(family) and key.startswith(steady.get(verb, ""))
        ]
        chance = 0.8 if verb in steady else 0.4
        return self.random.choice(fitting) if self.random.random() < chance else self.key(family)

    def twin_of(self, key: str) -> str:
        """The key of a filter that can usually be combined with this one."""
        kind = "twin:fixed" if key == "twin:chain" else key.rpartition(":")[0]
        twins = [twin for twin in STEADY if twin.startswith("twin") and twin.startswith(kind)]
        return self.random.choice(twins) if twins and self.random.random() < 0.9 else self.key_for("BF", "MERGE")

    def items(self, most: int = 12) -> list[bytes]:
        return self.random.choices(ITEMS, k=self.random.randint(1, most))

    def reservation(self, family: str) -> list[str]:
        return self.random.choice(RESERVATIONS[family].strip().splitlines()).split()

    def blob(self) -> list:
        """The items of a bulk command: sometimes enough for several threads, and sometimes cut short."""
        if self.random.random() < 0.05:
            return ["FIXED", 2, self.random.randbytes(2 * 5000)]
        if self.random.random() < 0.5:
            blob = b"".join(item for item in self.items(100) if len(item) == 8)
            form = ["FIXED", 8]
        else:
            blob = b"".join(len(item).to_bytes(4, "little") + item for item in self.items(100))
            form = ["PREFIXED"]
        return [*form, blob[:-1] if self.random.random() < 0.05 else blob]

    def command(self) -> list:
        (command,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        family, verb = command.split(".")
        key = self.key_for(family, verb)
        self.did[command] += 1
        match verb:
            case "RESERVE":
                arguments = self.reservation(family)
                if family == "BF" and self.random.random() < 0.1:
                    arguments = ["0.01", "30", "LIKE", self.key(family)]
            case "INSERT" | "INSERTNX":
                arguments = [*self.random.choice(INSERTIONS[family]).split(), "ITEMS", *self.items()]
            case "MADD" | "MDEL" | "MEXISTS":
                arguments = self.items()
            case "BULKADD" | "BULKTEST":
                arguments = self.blob()
            case "REBUILD":
                begin = self.random.choice(REBUILDS.strip().splitlines()).split()
                others = [["ADD", *self.items()], ["COMMIT"], ["ABORT"], ["STATUS"]]
                arguments = self.random.choice([begin, begin, *others])
            case "MERGE" | "INTERSECT":
                fewest = 1 if verb == "MERGE" else 2
                arguments = [self.twin_of(key) for _ in range(self.random.randint(fewest, 3))]
            case "EQUAL":
                arguments = [self.twin_of(key)]
            case "FEEDBACK":
                arguments = self.random.choice([[10, 1], [0, 0], [1, 2]])
            case "IMPORT" | "LOAD":
                arguments = self.random.choice(self.arrivals[command])
            case "ROTATE" | "CLEAR" | "COMPACT" | "INFO" | "CARD" | "DEBUG" | "EXPORT":
                arguments = []
            case _:
                arguments = self.items(1)
        return [command, key, *arguments]


WEIGHTS = {
    "BF.ADD": 20, "BF.MADD": 20, "BF.ADDNX": 10, "BF.INSERT": 8, "BF.DEL": 10, "BF.MDEL": 8, "BF.RESERVE": 6,
    "BF.ROTATE": 8, "BF.CLEAR": 3, "BF.EXISTS": 2, "BF.MEXISTS": 2, "BF.INFO": 1, "BF.CARD": 1, "BF.COUNT": 1,
    "BF.AGE": 1, "BF.BULKADD": 12, "BF.BULKTEST": 2, "BF.MERGE": 8, "BF.INTERSECT": 4, "BF.EQUAL": 2, "BF.IMPORT": 2,
    "BF.LOAD": 2, "BF.EXPORT": 1, "BF.REBUILD": 14, "BF.FEEDBACK": 1,
    "CF.ADD": 12, "CF.ADDNX": 6, "CF.INSERT": 6, "CF.INSERTNX": 4, "CF.DEL": 16, "CF.COMPACT": 2, "CF.RESERVE": 4,
    "CF.EXISTS": 1, "CF.MEXISTS": 1, "CF.COUNT": 1, "CF.INFO": 1, "CF.DEBUG": 1,
}  # fmt: skip


def _elements(reply) -> list:
    return reply if isinstance(reply, list) else []


def digests(client) -> dict[bytes, tuple]:
    """Every key's type, digest and expiry time."""
    return {
        key: (
            client.type(key),
            client.execute_command("DEBUG", "DIGEST-VALUE", key)[0],
            client.execute_command("PEXPIRETIME", key),
        )
        for key in sorted(client.keys())
    }
