"""Runs random sequences of commands, and compares every reply, byte for byte, with that of an exact model. Of an error,
only its first word is compared, and only if other programs act on it.

Each sequence begins with an empty database. Its seed determines the configuration and the commands. Commands are
correct or contain mistakes, and are sent alone, in transactions, and through scripts. A sequence ends with commands
that read everything about every key. Sequences use RESP2 and RESP3 in turn. BLOOMERY_SEQUENCES is the number of
sequences to run on each server:

    BLOOMERY_SEQUENCES=20000 .cache/venv/bin/python -m pytest tests/server/commands/test_model.py

A failure prints the seed and the commands so far. BLOOMERY_SEED=seed replays only that sequence. Cuckoo filters that
are created without a seed get a different one in each run, so a failure also prints these seeds."""

import os
import random
import re
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial

import pytest

from kit.model import CALL, PCALL, PCALL_RESP3, TRANSFER, Model, Settings
from kit.model.cuckoo import seed_in
from kit.model.replies import encode, matches
from kit.servers import option
from kit.suite import clients

SEQUENCES = int(os.environ.get("BLOOMERY_SEQUENCES", "1500"))
SEED = os.environ.get("BLOOMERY_SEED")

# ---- what sequences are made of -------------------------------------------------------------------------------------

CONFIGURATIONS = [
    Settings(error_rate=1e-9),
    Settings(error_rate=1e-10, initial_size=6, expansion_factor=1, cf_initial_size=8, cf_max_expansions=3),
    Settings(error_rate=1e-9, initial_size=9, expansion_factor=0, cf_initial_size=12, cf_bucket_size=3),
    Settings(error_rate=1e-9, initial_size=4, expansion_factor=3, cf_initial_size=16, cf_expansion_factor=0),
    Settings(error_rate=1e-12, cf_initial_size=10, cf_bucket_size=4, cf_max_iterations=2, cf_expansion_factor=3),
]


def alternatives(text: str) -> list[list[str]]:
    """The words of each entry, from a text in which entries are separated by bars and line ends."""
    return [part.split() for part in re.split(r"[|\n]", text.strip())]


# Some keys and items are words of commands, and some aren't text.
KEYS = ["a", "b", "nonscaling", "\xff\r\n\0"]
ITEMS = ["", "\0", "a\r\nb", "%s%n", "ITEMS", "1", "\xff\xfe", "long" * 300, *(f"item:{n}" for n in range(30))]

# These filters have no false positives. `predictable` says which other reservations the model can answer for.
RESERVATIONS = alternatives("""
    1e-9 5 | 1e-9 20 | 1e-10 100 | .00000000001 1 | 1e-9 10 NONSCALING | 1e-9 12 EXPANSION 0 | 1e-9 4 EXPANSION 1 LAYOUT CLASSIC
    1e-9 4 EXPANSION 4 | 1e-9 1 EXPANSION 32768 LAYOUT CLASSIC | 1e-9 5 TIGHTENING 0.5 | 1e-9 9 SHARDS 2 EXPANSION 2
    1e-9 100 ONFULL SATURATE | 1e-9 8 ONFULL ERROR LAYOUT CLASSIC | 1e-12 3 NONSCALING LAYOUT BLOCKED SEED fF
    1e-9 6 LAYOUT PARTITIONED EXPANSION 2 | 1e-12 20 COUNTING 8 LAYOUT PARTITIONED | 1e-9 9 NONSCALING LAYOUT PARTITIONED
    1e-9 6 ONFULL SCALE HASH SIPHASH | 1e-12 20 COUNTING LAYOUT BLOCKED | 1e-12 20 COUNTING 8 HASH SIPHASH LAYOUT CLASSIC | 1e-12 9 COUNTING 8 LAYOUT CLASSIC
    1e-12 9 COUNTING 16 SEED 1f LAYOUT CLASSIC | 1e-9 5 COUNTING | 1e-9 4 COUNTING EXPANSION 1 | 1e-9 5 COUNTING 8 ONFULL ERROR
    1e-9 5 LAYOUT QUOTIENT | 1e-9 9 NONSCALING LAYOUT QUOTIENT HASH SIPHASH | 1e-9 4 WINDOW 3 LAYOUT QUOTIENT
    1e-9 3 WINDOW 4 LAYOUT QUOTIENT ONFULL ERROR | 1e-9 0 WINDOW 80 | 1e-9 0 COUNTING | 1e-12 64 COUNTING ONFULL SATURATE | 1e-9 100 WINDOW 3 | 1e-9 64 WINDOW 2
    1e-9 6 WINDOW 2 ONFULL ERROR | 1e-9 3 WINDOW 4 ONFULL ERROR LAYOUT CLASSIC | 1e-9 100 WINDOW 4 EVERY 360000000
    1e-9 70 WINDOW 3 EVERY 1099511627776 SINCE 0 | 1e-9 5 WINDOW 2 ONFULL ERROR EVERY 1099511627776 SINCE 0
    1e-9 100 WINDOW 2 EVERY 4611686018427387904 SINCE 4611686018427387904 | 1e-9 5 LIKE a | 1e-12 20 LIKE b | 1e-9 100 LIKE a
""")
REFUSED_RESERVATIONS = alternatives("""
    x 10 | nan 10 | inf 10 | 0 10 | 1 10 | -1 10 | 1e-13 10 | 1e-9 x | 1e-9 0 | 1e-9 -5 | 1e-9 1.5
    1e-9 281474976710657 | 1e-9 10 EXPANSION | 1e-9 10 EXPANSION x | 1e-9 10 EXPANSION 32769 | 1e-9 10 EXPANSION -1
    1e-9 10 EXPANSION 2 NONSCALING | 1e-9 10 NONSCALING TIGHTENING 0.5 | 1e-9 10 ONFULL ERROR EXPANSION 2
    1e-9 10 EXPANSION 0 TIGHTENING 0.5 | 1e-9 10 EXPANSION 0 ONFULL SCALE | 1e-9 10 COUNTING 5
    1e-9 10 COUNTING WINDOW 3 | 1e-9 10 COUNTING EXPANSION 2 LAYOUT BLOCKED | 1e-9 10 COUNTING 8 ONFULL SCALE LAYOUT CLASSIC
    1e-9 10 COUNTING EXPANSION 2 LAYOUT PARTITIONED | 1e-9 10 WINDOW 65 LAYOUT PARTITIONED
    1e-9 10 WINDOW 65 LAYOUT BLOCKED | 1e-9 10 WINDOW | 1e-9 10 EVERY 5 | 1e-9 10 WINDOW 2 SINCE 5 | 1e-9 10 WINDOW 2 EVERY 0
    1e-9 10 WINDOW 2 EVERY 9 SINCE -1 | 1e-9 10 WINDOW 3 ONFULL SCALE
    1e-9 10 SHARDS 3 | 1e-9 10 LAYOUT ROUND | 1e-9 10 HASH MD5 | 1e-9 10 SEED | 1e-9 10 SEED xyz | 1e-9 10 TIGHTENING 1
    1e-9 10 HASH SIPHASH SEED 123456789012345678901234567890123 | 1e-9 10 SEED 12345678901234567 | 1e-9 10 ONFULL MAYBE
    1e-9 10 NONSENSE | 1e-9 7 LIKE a | 1e-9 5 LIKE nothing | 1e-9 5 LIKE | 1e-9 5 LIKE a NONSCALING
""")

INSERTIONS = alternatives("""
    ||| CAPACITY 5 | ERROR 1e-10 | EXPANSION 3 CAPACITY 4 | NOCREATE | NONSCALING CAPACITY 6 | EXPANSION 0 CAPACITY 7
    nocreate capacity 9 | NONSCALING EXPANSION 2 | CAPACITY 3 CAPACITY 8 | ERROR 7 | ERROR x | CAPACITY 0 | CAPACITY
    EXPANSION 99999 | EXPANSION x | NOPE
""")

CUCKOO_RESERVATIONS = alternatives("""
    8 SEED 1 | 4 SEED 2 | 6 BUCKETSIZE 3 SEED 3 | 40 BUCKETSIZE 4 SEED 4 | 8 EXPANSION 0 SEED 5
    20 BUCKETSIZE 1 MAXITERATIONS 3 SEED 6 | 12 BUCKETSIZE 2 EXPANSION 3 SEED 7 | 16 HASH SIPHASH SEED 8
    16 HASH SIPHASH EXPANSION 0 SEED 123456789abcdef0123456789abcdef0 | 10 SEED ABCDEF EXPANSION 4 BUCKETSIZE 2
    4 BUCKETSIZE 2 MAXITERATIONS 500 EXPANSION 2 SEED 9 | 32 BUCKETSIZE 1 EXPANSION 0 SEED a | 8 | 16 HASH SIPHASH
    16 BUCKETSIZE 4 MAXITERATIONS 1 SEED b | 2 BUCKETSIZE 1 EXPANSION 1 SEED c
""")
REFUSED_CUCKOOS = alternatives("""
    x | 0 | -1 | 1 | 3 | 281474976710657 | 8 BUCKETSIZE 0 | 8 BUCKETSIZE 256 | 8 BUCKETSIZE x | 8 MAXITERATIONS 0
    8 MAXITERATIONS 65536 | 8 MAXITERATIONS x | 8 EXPANSION -1 | 8 EXPANSION x | 8 EXPANSION 32769 | 8 BUCKETSIZE
    8 HASH MD5 | 8 SEED xyz | 8 NONSENSE 1 | 7 BUCKETSIZE 4 | 8 SEED 12345678901234567 | x NONSENSE 1
""")

CUCKOO_INSERTIONS = alternatives("CAPACITY 6 | NOCREATE | nocreate CAPACITY 30 | CAPACITY 8 CAPACITY 16 | | |")
REFUSED_CUCKOO_INSERTIONS = alternatives("""
    CAPACITY 3 | CAPACITY x | CAPACITY -1 | CAPACITY 281474976710657 | NOPE 1 | CAPACITY
""")

INFO_FIELDS = alternatives("capacity | SIZE | FILTERS | Items | EXPANSION | NOPE | SIZE SIZE | | |")
CUCKOO_INFO_FIELDS = alternatives("SIZE | | | |")
ROTATIONS = alternatives("AT | AT 5 | at 5 MANUAL | x | AT 5 MANUAL more | | | | | |")
# The model doesn't know the length of a Bloom filter's dump, so no iterator points to the middle of a dump.
ITERATORS = alternatives("1 | 1 | -1 | 100000000 | 9223372036854775807 | 9223372036854775808 | x")
CUCKOO_ITERATORS = [*ITERATORS, *alternatives("2 | 9 | 17 | 33")]
LOAD_ITERATORS = alternatives("0 | 1 | -1 | 100000000 | x")

# Words that `mistake` puts into commands.
WORDS = """
    0 -1 1 2 3 300 x 1.5 +1 01 -0 9223372036854775807 9223372036854775808 -9223372036854775809 ITEMS items NOCREATE
    NONSCALING EXPANSION CAPACITY ERROR COUNTING SEED HASH XXH3 BUCKETSIZE MAXITERATIONS LIKE ONFULL SCALE a
""".split() + ["", "\0\xff\t\"'\\", "y" * 70]  # fmt: skip

# Verbs with their weights.
BLOOM = {
    "RESERVE": 8, "ADD": 12, "MADD": 14, "ADDNX": 6, "INSERT": 8, "EXISTS": 6, "MEXISTS": 6, "TEST": 4,
    "DEL": 9, "MDEL": 6, "COUNT": 4, "ROTATE": 6, "AGE": 4, "CLEAR": 2, "CARD": 3, "INFO": 6, "STATS": 3, "DEBUG": 3,
    "SCANDUMP": 2, "LOADCHUNK": 2,
}  # fmt: skip
CUCKOO = {
    "RESERVE": 8, "ADD": 14, "ADDNX": 8, "INSERT": 12, "INSERTNX": 6, "EXISTS": 6, "MEXISTS": 6, "COUNT": 6, "DEL": 26,
    "COMPACT": 3, "INFO": 3, "STATS": 3, "DEBUG": 4, "SCANDUMP": 3, "LOADCHUNK": 2,
}  # fmt: skip
# Kinds of Bloom filters to which little happens by chance, each with its verbs. Some sequences reserve only filters of
# one such kind, and use its verbs more often.
THEMES = {"COUNTING": ["DEL", "MDEL", "MADD", "COUNT"], "WINDOW": ["ROTATE", "ROTATE", "MADD", "AGE"]}
ONE_ITEM = {"ADD", "ADDNX", "EXISTS", "TEST", "DEL", "COUNT", "AGE"}
MANY_ITEMS = {"MADD", "MEXISTS", "MDEL"}

# What must happen at least once in a thousand sequences. Otherwise, the sequences test too little.
EVENTS = [
    *(f"BF.{verb}" for verb in BLOOM), *(f"CF.{verb}" for verb in CUCKOO), "fixed full", "counting full", "window full",
    "scaling grown", "counter stuck", "cuckoo moved", "cuckoo full", "cuckoo grown", "cuckoo expanded to the limit",
    "cuckoo compacted itself", "cuckoo fingerprint compacted", "cuckoo shrunk", "transfer", "transaction aborted",
    "WRONGTYPE",
    *(f"BF.{verb} refused" for verb in ("RESERVE", "INSERT", "DEL", "COUNT", "ROTATE", "AGE", "INFO", "SCANDUMP", "LOADCHUNK")),
    *(f"CF.{verb} refused" for verb in ("RESERVE", "ADD", "INSERT", "DEL", "COMPACT", "INFO", "SCANDUMP", "LOADCHUNK")),
]  # fmt: skip


def predictable(argv: list[str]) -> bool:
    """Whether the model can answer for the filter that this command may create. It can't if the filter may get more
    items than its capacity, because that causes false positives. It can't if a counting filter is tiny, because several
    probes of an item then share a counter, and a 4-bit counter reaches its maximum after eight adds. And it can't if
    the clock rotates the filter, because the result depends on how long the test takes."""
    name, *words = (word.upper() for word in argv)
    if name != "BF.RESERVE" or len(words) < 3:
        return True
    capacity = int(words[2]) if words[2].isascii() and words[2].isdigit() else 0
    saturates = "SATURATE" in words or ("WINDOW" in words and "ERROR" not in words)
    wide = any(width in words for width in ("8", "16"))
    if "COUNTING" in words and (words[1] != "1E-12" or capacity < (8 if wide else 20)):
        return False
    return not (saturates and capacity < 64) and "EVERY" not in words


class Sequence:
    """Random commands that follow from a seed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.settings = self.random.choice(CONFIGURATIONS)
        # Some sequences use only one family, so that filters fill.
        self.families = self.random.choice([["BF"], ["CF"], ["BF", "CF"]])
        self.theme = self.random.choice([*THEMES, None, None]) if "BF" in self.families else None
        self.keys = self.random.sample(KEYS, self.random.randint(1, len(KEYS)))
        # With only a few different items, each is chosen often, so counters rise. Many different items fill filters.
        self.universe = self.random.sample(ITEMS, self.random.choice([2, 6, 15, len(ITEMS)]))
        self.commands = [["FLUSHDB"]]
        for key in self.keys:
            # Some keys have a filter from the start. The others get one from the first command that adds to them or
            # reserves one.
            if self.happens(0.8 if self.theme else 0.5):
                family = self.random.choice(self.families)
                self.commands += self.with_dump([f"{family}.RESERVE", key, *self.reservation(family, refused=0)])
        for _ in range(self.random.randint(10, 40)):
            self.step()
        for key in self.keys:
            self.commands += self.snapshot(key)

    @staticmethod
    def settings_of(seed: int) -> Settings:
        """The configuration that the seed's sequence runs under."""
        return random.Random(seed).choice(CONFIGURATIONS)

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def step(self) -> None:
        """Appends a command, or a transaction of several commands."""
        if not self.happens(0.08):
            self.commands += self.something()
            return
        self.commands.append(["MULTI"])
        for _ in range(self.random.randint(1, 5)):
            self.commands += self.something()
        self.commands.append(["EXEC" if self.happens(0.9) else "DISCARD"])

    def something(self) -> list[list[str]]:
        return [self.around()] if self.happens(0.1) else self.command()

    def around(self) -> list[str]:
        """A command for keys of any type, or a script that transfers a filter."""
        key, other = self.random.choice(self.keys), self.random.choice(self.keys)
        transfer = ["EVAL", TRANSFER, "2", key, other, self.random.choice(self.families)]
        choices = [
            ["SET", key, "text"], ["DEL", key], ["DEL", key, other], ["GET", key], ["TYPE", key], ["EXISTS", key],
            transfer, transfer, transfer, ["RENAME", key, other], ["COPY", key, other], ["COPY", key, other, "REPLACE"],
        ]  # fmt: skip
        # A key is not copied onto itself.
        return self.random.choice(choices if key != other else choices[:-2])

    def command(self) -> list[list[str]]:
        family = self.random.choice(self.families)
        table = BLOOM if family == "BF" else CUCKOO
        (verb,) = self.random.choices(list(table), list(table.values()))
        if family == "BF" and self.theme and self.happens(0.25):
            verb = self.random.choice(THEMES[self.theme])
        argv = [f"{family}.{verb}", self.random.choice(self.keys), *self.arguments(family, verb)]
        if self.happens(0.12):
            changed = self.mistake(argv)
            argv = changed if predictable(changed) else argv
        if self.happens(0.1):
            argv[0] = argv[0].lower()
        if len(argv) == 1 or verb == "SCANDUMP" or not self.happens(0.12):
            return self.with_dump(argv)
        # In RESP3 a script gets maps, which Lua doesn't keep in order.
        script = self.random.choice([CALL, PCALL] if verb in ("INFO", "STATS") else [CALL, PCALL, PCALL_RESP3])
        _, *dump = self.with_dump(argv)
        return [["EVAL", script, "1", argv[1], argv[0], *argv[2:]], *dump]

    def with_dump(self, argv: list[str]) -> list[list[str]]:
        """The command. If it may create a cuckoo filter, a dump that shows the filter's seed follows."""
        family, verb = argv[0].upper().split(".")
        makes = family == "CF" and verb in ("RESERVE", "ADD", "ADDNX", "INSERT", "INSERTNX") and len(argv) > 1
        return [argv, ["CF.SCANDUMP", argv[1], "0"]] if makes else [argv]

    def mistake(self, argv: list[str]) -> list[str]:
        """A command with a word that is missing, repeated, moved, in another case, or replaced."""
        argv = argv.copy()
        at = self.random.randrange(1, len(argv))
        match self.random.randrange(6):
            case 0:
                del argv[at]
            case 1:
                argv.insert(at, argv[at])
            case 2:
                argv.insert(self.random.randrange(1, len(argv)), argv.pop(at))
            case 3:
                argv[at] = argv[at].encode("latin-1").swapcase().decode("latin-1")
            case 4:
                argv[at] = self.random.choice(WORDS)
            case 5:
                argv.insert(self.random.randrange(1, len(argv) + 1), self.random.choice(WORDS))
        return argv

    def item(self) -> str:
        """A random item. Some items are chosen much more often, so that earlier commands with the same item matter."""
        return self.universe[int(len(self.universe) * self.random.random() ** 3)]

    def items(self) -> list[str]:
        if self.happens(0.06):
            return [self.item()] * self.random.randint(14, 20)  # about as many as a 4-bit counter can count
        most = 40 if self.happens(0.05) else 12
        return self.random.choices(self.universe, k=self.random.randint(1, most))

    def reservation(self, family: str, refused: float) -> list[str]:
        if self.happens(refused):
            return self.random.choice(REFUSED_RESERVATIONS if family == "BF" else REFUSED_CUCKOOS)
        if family == "CF":
            return self.random.choice(CUCKOO_RESERVATIONS)
        return self.random.choice([words for words in RESERVATIONS if self.theme in words] or RESERVATIONS)

    def arguments(self, family: str, verb: str) -> list[str]:
        if verb in ONE_ITEM:
            return [self.item()]
        if verb in MANY_ITEMS:
            return self.items()
        match verb:
            case "RESERVE":
                return self.reservation(family, refused=0.5)
            case "INSERT" | "INSERTNX" if family == "CF":
                refused = self.happens(0.15)
                options = self.random.choice(REFUSED_CUCKOO_INSERTIONS if refused else CUCKOO_INSERTIONS)
                return [*options, "ITEMS", *self.items()]
            case "INSERT":
                return [*self.random.choice(INSERTIONS), "ITEMS", *self.items()]
            case "SCANDUMP":
                return self.random.choice(ITERATORS if family == "BF" else CUCKOO_ITERATORS)
            case "LOADCHUNK":
                return [*self.random.choice(LOAD_ITERATORS), self.random.choice(["junk", "BLMY", ""])]
            case "INFO":
                return self.random.choice(INFO_FIELDS if family == "BF" else CUCKOO_INFO_FIELDS)
            case "ROTATE":
                return self.random.choice(ROTATIONS)
        return []

    def snapshot(self, key: str) -> list[list[str]]:
        """Commands that read everything about a key."""
        counts = [[f"{family}.COUNT", key, item] for family in self.families for item in self.universe[:8]]
        return [
            ["TYPE", key],
            *([f"{family}.MEXISTS", key, *ITEMS] for family in ("BF", "CF")),
            *([f"{family}.{verb}", key] for family in ("BF", "CF") for verb in ("INFO", "STATS", "DEBUG")),
            ["BF.CARD", key],
            *counts,
            *(["BF.AGE", key, item] for item in self.universe[:4] if "BF" in self.families),
            *(["CF.SCANDUMP", key, at] for at in ("0", "1", "9", "17", "33", "65") if "CF" in self.families),
        ]


# ---- running them ---------------------------------------------------------------------------------------------------


class Connection:
    """Sends a sequence in one go, and returns the bytes of each reply."""

    def __init__(self, port: int, protocol: int, database: int = 0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")
        self.protocol = protocol
        self.ask([["HELLO", str(protocol)], ["SELECT", str(database)]])

    def ask(self, commands: list[list[str]]) -> list[bytes]:
        sent = []
        for command in commands:
            words = [word.encode("latin-1") for word in command]
            sent.append(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        self.socket.sendall(b"".join(sent))
        return [self.reply() for _ in commands]

    def reply(self) -> bytes:
        line = self.file.readline()
        assert line, "the server is gone"
        kind, count = line[:1], line[1:-2]
        if kind == b"$" and count != b"-1":
            return line + self.file.read(int(count) + 2)
        return line + b"".join(self.reply() for _ in range(parts(kind, count)))

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def parts(kind: bytes, count: bytes) -> int:
    """The number of replies that are directly inside a reply whose first line has this type and count."""
    size = {b"*": 1, b"~": 1, b"%": 2}.get(kind, 0)
    return size * max(0, int(count)) if size else 0


def split(reply: bytes) -> list[bytes]:
    """The replies inside an array."""

    def end(start: int) -> int:
        at = reply.index(b"\r\n", start) + 2
        kind, count = reply[start : start + 1], reply[start + 1 : at - 2]
        if kind == b"$" and count != b"-1":
            return at + int(count) + 2
        for _ in range(parts(kind, count)):
            at = end(at)
        return at

    at, found = reply.index(b"\r\n") + 2, []
    while reply[:1] == b"*" and at < len(reply):
        found.append(reply[at : end(at)])
        at += len(found[-1])
    return found


def note_heads(model: Model, commands, replies) -> None:
    """Tells the model the heads that CF.SCANDUMP key 0 returned, including those inside transactions."""
    queue = None
    for command, reply in zip(commands, replies, strict=True):
        match command[0].upper():
            case "MULTI":
                queue = []
            case "EXEC" | "DISCARD":
                if reply[:1] == b"*":
                    note_heads(model, queue, split(reply))
                queue = None
            case _ if queue is not None:
                if reply == b"+QUEUED\r\n":
                    queue.append(command)
            case "CF.SCANDUMP" if command[2:] == ["0"] and reply[:1] == b"*":
                _, head = split(reply)
                model.heads[command[1].encode("latin-1")].append(head[head.index(b"\r\n") + 2 : -2])


def compare(seed: int, connection: Connection, errors_escape: bool) -> Model:
    """Runs a sequence, compares the replies with the model's, and returns the model."""
    sequence = Sequence(seed)
    replies = connection.ask(sequence.commands)
    model = Model(sequence.settings, errors_escape=errors_escape)
    note_heads(model, sequence.commands, replies)
    chosen = {key: [f"{seed_in(head):x}" for head in heads] for key, heads in model.heads.items()}
    for at, (command, reply) in enumerate(zip(sequence.commands, replies, strict=True)):
        try:
            expected = encode(model.run([word.encode("latin-1") for word in command]), connection.protocol)
        except LookupError as missing:  # a filter that the server should have made, and did not
            expected = f"something that the model cannot tell without: {missing!r}".encode()
        if not matches(expected, reply):
            history = "\n".join(" ".join(map(shown, argv)) for argv in sequence.commands[: at + 1])
            pytest.fail(
                f"BLOOMERY_SEED={seed}, RESP{connection.protocol}, {sequence.settings}, hash seeds in the order of "
                f"dumps: {chosen}\n{history}\ngot      {reply!r}\nexpected {expected!r}",
                pytrace=False,
            )
    return model


def shown(word: str) -> str:
    return repr(word) if len(word) < 80 else f"{word[:60]!r}…"


def configure(client, spec, settings: Settings) -> None:
    """Sets every option."""
    values = {field.name.replace("_", "-"): getattr(settings, field.name) for field in fields(settings)}
    for name in ("cf-bucket-size", "cf-initial-size"):  # one bounds the other, so each step must be allowed
        client.config_set(cuckoo_option(spec, name), {"cf-bucket-size": 1}.get(name, values[name]))
    for name, value in values.items():
        client.config_set(cuckoo_option(spec, name), value)


def cuckoo_option(spec, name: str) -> str:
    """The name of an option in CONFIG. If the server lets the module choose names, options for cuckoo filters begin
    with cf-."""
    found = option(spec, name)
    return found.removeprefix("bf-") if name.startswith("cf-") else found


@pytest.mark.timeout(3600)
def test_every_reply_is_the_models(server):
    seeds = [int(SEED)] if SEED else range(SEQUENCES)
    events = Counter()
    connections = [Connection(server.port, protocol) for protocol in (2, 3)]
    errors_escape = server.spec.product == "valkey" and server.spec.version >= (9,)
    with server.client() as client:
        try:
            # Changing the configuration costs more than a sequence, so sequences with the same configuration run
            # together.
            for settings in CONFIGURATIONS:
                configure(client, server.spec, settings)
                for seed in seeds:
                    if Sequence.settings_of(seed) is settings:
                        events += compare(seed, connections[seed % 2], errors_escape).events
        finally:
            configure(client, server.spec, Settings())
            for connection in connections:
                connection.close()
    if len(seeds) >= 1000:
        missing = [event for event in EVENTS if not events[event]]
        assert not missing, f"none of the sequences came to {missing}"


def read_on(database: int, client, go_on) -> None:
    """Reads the keys of a sequence with commands that may work in the background. While such a command holds the keys,
    the sequence's writes to them wait, but their replies must be the same."""
    chance = random.Random(database)
    keys = [key.encode("latin-1") for key in KEYS]
    client.execute_command("SELECT", database)
    while go_on():
        sources = chance.choices(keys, k=2)
        command = chance.choice([["BF.MERGE", "read"], ["BF.MERGE", "read", "BLOB"], ["BF.INTERSECT", "read"], ["BF.EQUAL"]])
        if "BLOB" in command:
            sources = [client.dump(source) or b"" for source in sources]
        with client.pipeline(transaction=False) as pipeline:
            pipeline.delete("read")
            pipeline.execute_command(*command, *sources)
            _, reply = pipeline.execute(raise_on_error=False)
        assert "internal error" not in str(reply), reply


@pytest.mark.timeout(3600)
def test_every_reply_is_the_models_beside_others(new_server, spec):
    """Runs three clients at a time, each with its own sequences and database, and other clients that read their keys.
    """
    server, databases = new_server(), range(3)
    errors_escape = spec.product == "valkey" and spec.version >= (9,)

    def check(database: int, seeds: list[int]) -> None:
        connection = Connection(server.port, 2 + database % 2, database)
        for seed in seeds:
            compare(seed, connection, errors_escape)
        connection.close()

    with server.client() as client, ThreadPoolExecutor() as pool:
        for settings in CONFIGURATIONS:
            configure(client, spec, settings)
            seeds = [seed for seed in range(SEQUENCES // 3) if Sequence.settings_of(seed) is settings]
            with clients(server, [partial(read_on, database) for database in databases]):
                list(pool.map(check, databases, [seeds[database::3] for database in databases]))
