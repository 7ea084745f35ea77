"""The expected state: what a server must still have after a crash.

A `Writer` is a client with its own keys. Each key is a `Track`, which knows which writes were acknowledged. Writes that
were sent but not answered are pending. After a crash the server must have all acknowledged writes. It may also have the
first few pending writes, in the order in which they were sent, each completely or not at all: an append-only file has
one order, and its end may be missing. A command with many items may run in pieces, so the last pending command may have
added only its first items.

Error rates are so small that a filter equals the set of its items. Where they can't be that small (cuckoo filters,
other systems' filters), absent items aren't checked.
"""

import abc
import contextlib
import copy
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import redis

from kit.filters import BY_NAME, pairs
from kit.foreign import Link, RedisBloomChain, ValkeyBloomChain, Value, sealed

WIDTH = 12  # digits in an item
RATE = "1e-9"
RDB_VERSION = 10  # of the oldest server, so that all servers accept the payloads


class Lost(AssertionError):
    """A server has lost something that it acknowledged."""


@dataclass
class Command:
    """A command, and its effect on the expected state. The server executes it between `sent` and `done` (in ms)."""

    words: list
    effect: Callable[["Command", list], None]  # applies the effect that the command has with these items
    items: list = field(default_factory=list)
    adds: int = 0
    sent: float = 0
    done: float = math.inf


@dataclass
class Unit:
    """A command or a transaction. After a crash, the server has all of it or none of it, unless it ran in pieces."""

    commands: list[Command]

    @property
    def requests(self) -> list[list]:
        words = [command.words for command in self.commands]
        return words if len(words) == 1 else [["MULTI"], *words, ["EXEC"]]

    @property
    def adds(self) -> int:
        return sum(command.adds for command in self.commands)

    def apply(self, done: float) -> None:
        for command in self.commands:
            command.done = done
            command.effect(command, command.items)

    def is_of(self, track: "Track") -> bool:
        return len(self.commands) == 1 and self.commands[0].words[1] == track.key


class Writer:
    """A client that records its writes. Everything it does depends only on its seed, and on how far it gets."""

    def __init__(self, number: int, seed: int, tracks: list["Track"]):
        self.chance = random.Random(f"{seed}/{number}")
        self.tracks = tracks
        self.pending: list[Unit] = []
        self.adds = self.units = 0  # acknowledged
        self.kept = self.dropped = 0  # pending units that survived a crash, and those that didn't
        self.next_item = number * 10**10
        for track in tracks:
            track.writer = self

    def fresh(self, count: int) -> list[bytes]:
        """Items that were never used before."""
        self.next_item += count
        return [b"%0*d" % (WIDTH, item) for item in range(self.next_item - count, self.next_item)]

    def write(self, client: redis.Redis, go_on: Callable[[], bool]) -> None:
        """Sends commands, a few at a time, until `go_on` returns false or the server is gone."""
        with contextlib.suppress(redis.ConnectionError):
            connection = client.connection_pool.get_connection()
            while go_on():
                self.pending = self.next_units()
                now = time.time() * 1000
                requests = [words for unit in self.pending for words in unit.requests]
                for unit in self.pending:
                    for command in unit.commands:
                        command.sent = now
                connection.send_packed_command(connection.pack_commands(requests))
                while self.pending:
                    for _ in self.pending[0].requests:
                        reply = connection.read_response()
                        if isinstance(reply, list):  # a nested error doesn't raise an exception
                            assert not [part for part in reply if isinstance(part, redis.ResponseError)], reply
                    unit = self.pending.pop(0)
                    unit.apply(time.time() * 1000)
                    self.adds += unit.adds
                    self.units += 1
            client.connection_pool.release(connection)

    def next_units(self) -> list[Unit]:
        """The units to send next. Their commands all have different keys, because a command depends on what was
        acknowledged for its key."""
        tracks = self.chance.sample(self.tracks, self.chance.randint(1, len(self.tracks)))
        units = []
        while tracks:
            size = self.chance.choice([1, 1, 1, 2, 3])
            units.append(Unit([track.next() for track in tracks[:size]]))
            del tracks[:size]
        return units

    def settle(self, client: redis.Redis) -> None:
        """Adopts the pending writes that the server has. Raises `Lost` if no number of pending writes makes the
        expected state equal to the server's."""
        observed = {track.key: track.observe(client) for track in self.tracks}
        wrong = []

        def differ() -> list[str]:
            return [line for track in self.tracks for line in track.differences(observed[track.key])]

        for cut in range(len(self.pending) + 1):
            if cut:
                self.pending[cut - 1].apply(time.time() * 1000)
            differences = differ()
            if differences and cut < len(self.pending):
                unlike = [track for track in self.tracks if track.differences(observed[track.key])]
                if unlike == [track for track in self.tracks if self.pending[cut].is_of(track)]:
                    differences = [] if unlike[0].take_part(self.pending[cut], observed[unlike[0].key]) else differences
            if not differences:
                self.kept += cut
                self.dropped += len(self.pending) - cut
                self.pending = []
                return
            wrong.append(f"if {cut} of {len(self.pending)} pending are there: " + "; ".join(differences[:5]))
        raise Lost("\n".join(wrong))


# ---- keys -----------------------------------------------------------------------------------------------------------


class Track(abc.ABC):
    """A key: the commands that create it, change it and delete it, and its expected content."""

    writer: Writer

    def __init__(self, key: str, creation: list, most: int = 1000, batch: int = 8):
        """The key gets new items, up to `batch` at a time. Once it has had `most` of them, it is deleted."""
        self.key, self.creation, self.most, self.batch = key, creation, most, batch
        self.exists = False
        self.used: list[bytes] = []  # all items since the key was created, acknowledged or not
        self.empty()

    @property
    def chance(self) -> random.Random:
        return self.writer.chance

    def next(self) -> Command:
        if not self.exists:
            return Command(self.creation_words(), self.created)
        if len(self.used) >= self.most:
            return Command(["DEL", self.key], self.deleted)
        return self.change()

    def creation_words(self) -> list:
        command, *words = self.creation
        return [command, self.key, *words]

    def created(self, *_) -> None:
        self.exists, self.used = True, []
        self.empty()

    def deleted(self, *_) -> None:
        self.exists = False

    def take_part(self, unit: Unit, seen) -> bool:
        """If a command was interrupted between two pieces, adopts the items that it added, and returns true."""
        (command,) = unit.commands
        command.done = time.time() * 1000
        before = {name: copy.copy(value) for name, value in vars(self).items() if name != "writer"}
        for count in self.counts_there(command.items, seen) if seen is not None else []:
            command.effect(command, command.items[:count])
            if not self.differences(seen):
                return True
            vars(self).update({name: copy.copy(value) for name, value in before.items()})
        return False

    def counts_there(self, items: list, _) -> Iterable[int]:
        """The possible values of the number of leading items that are present."""
        return range(1, len(items))

    def fresh(self) -> list[bytes]:
        items = self.writer.fresh(self.chance.randint(1, self.batch))
        self.used += items
        return items

    def observe(self, client):
        """Everything that `differences` needs from the server; None if the key doesn't exist."""
        return self.look(client) if client.exists(self.key) else None

    def differences(self, seen) -> list[str]:
        if (seen is not None) != self.exists:
            return [f"{self.key} should {'' if self.exists else 'not '}exist"]
        return [f"{self.key}: {line}" for line in self.compare(seen)] if self.exists else []

    @abc.abstractmethod
    def empty(self) -> None:
        """Sets the expected state to that of a key without items."""

    @abc.abstractmethod
    def change(self) -> Command:
        """A command that changes an existing key."""

    @abc.abstractmethod
    def look(self, client):
        """What the server says about an existing key."""

    @abc.abstractmethod
    def compare(self, seen) -> list[str]:
        """What is wrong with the state that `look` returned."""


def unequal(expected: dict, seen: dict) -> list[str]:
    return [
        f"{key!r} should be {expected.get(key)}, is {seen.get(key)}"
        for key in expected | seen
        if expected.get(key) != seen.get(key)
    ]


class Members(Track):
    """A set: any Bloom filter that doesn't count and isn't a window, ours or another system's."""

    ours = True

    def empty(self):
        self.items: set[bytes] = set()

    def change(self):
        items = self.fresh()
        if self.used[0] in self.items:
            items += self.chance.sample(self.used, 1)  # an item that might be there already
        blob = b"".join(items)
        forms = [
            ["BF.MADD", self.key, *items],
            ["BF.INSERT", self.key, "ITEMS", *items],
            ["BF.BULKADD", self.key, "FIXED", WIDTH, blob],
        ]
        if self.batch > 100:
            return self.adding(forms[-1], items)
        if self.chance.random() < 0.4:
            items = items[:1]
            forms = [["BF.ADD", self.key, *items], ["BF.ADDNX", self.key, *items]]
        elif self.ours and self.chance.random() < 0.02:
            return Command(["BF.CLEAR", self.key], lambda *_: self.empty())
        return self.adding(self.chance.choice(forms), items)

    def adding(self, words, items):
        return Command(words, lambda _, items: self.items.update(items), items, len(items))

    def counts_there(self, items, seen):
        """Only the number of items before the first missing one, since there may be thousands of items."""
        found, _ = seen
        return [sum(1 for _ in itertools.takewhile(found.__contains__, items))]

    def look(self, client):
        bitmap = client.execute_command("BF.BULKTEST", self.key, "FIXED", WIDTH, b"".join(self.used))
        found = {item for number, item in enumerate(self.used) if bitmap[number >> 3] << (number & 7) & 0x80}
        return found, client.execute_command("BF.CARD", self.key)

    def compare(self, seen):
        found, card = seen
        wrong = [f"{item} is missing" for item in self.items - found]
        wrong += [f"{item} should not be there" for item in found - self.items]
        if card != len(self.items):
            wrong.append(f"{card} items, and not {len(self.items)}")
        return wrong


class Foreign(Members):
    """Another system's filter. If it is small, it says yes to one absent item in a few thousand, whatever its error
    rate is."""

    ours = False

    def __init__(self, key: str, creation: Callable[[str], list], **options):
        super().__init__(key, creation, **options)

    def creation_words(self):
        return self.creation(self.key)

    def compare(self, seen):
        found, _ = seen
        return [f"{item} is missing" for item in self.items - found]


class Counting(Track):
    """A counting filter, which gets adds and deletes. Knows the count that each item must have."""

    def empty(self):
        self.counts: Counter[bytes] = Counter()

    def change(self):
        if len(self.counts) > 20 and self.chance.random() < 0.5:
            items = self.chance.sample(sorted(self.counts), self.chance.randint(1, 5))
            return Command(["BF.MDEL", self.key, *items], lambda _, items: self.remove(items), items)
        items = self.fresh() + self.chance.sample(sorted(self.counts), min(2, len(self.counts)))
        return Command(["BF.MADD", self.key, *items], lambda _, items: self.counts.update(items), items, len(items))

    def remove(self, items) -> None:
        self.counts = +(self.counts - Counter(items))

    def look(self, client):
        with client.pipeline(transaction=False) as pipeline:
            for item in self.used:
                pipeline.execute_command("BF.COUNT", self.key, item)
            return {item: count for item, count in zip(self.used, pipeline.execute(), strict=True) if count}

    def compare(self, seen):
        return unequal(self.counts, seen)


class Cuckoo(Counting):
    """A cuckoo filter: an item's count may be too high, but the total number of items is exact."""

    def change(self):
        if len(self.counts) > 20 and self.chance.random() < 0.4:
            (item,) = self.chance.sample(sorted(self.counts), 1)
            return Command(["CF.DEL", self.key, item], lambda *_: self.remove([item]))
        if self.chance.random() < 0.02:
            return Command(["CF.COMPACT", self.key], lambda *_: None)
        items = self.fresh()
        words = ["CF.INSERT", self.key, "ITEMS", *items]
        if self.chance.random() < 0.3:
            items = items[:1]
            words = ["CF.ADD", self.key, *items]
        return Command(words, lambda _, items: self.counts.update(items), items, len(items))

    def look(self, client):
        with client.pipeline(transaction=False) as pipeline:
            for item in self.used:
                pipeline.execute_command("CF.COUNT", self.key, item)
            counts = dict(zip(self.used, pipeline.execute(), strict=True))
        return counts, pairs(client.execute_command("CF.INFO", self.key))[b"Number of items inserted"]

    def compare(self, seen):
        counts, total = seen
        wrong = [f"{item}: {counts[item]}, and not {n}" for item, n in self.counts.items() if counts[item] < n]
        if total != self.counts.total():
            wrong.append(f"{total} items, and not {self.counts.total()}")
        return wrong


class Window(Track):
    """A window that is rotated by command. Records the generation in which each item was last added."""

    generations = 4

    def __init__(self, key: str, *words, **options):
        super().__init__(key, ["BF.RESERVE", RATE, 4000, "WINDOW", self.generations, *words], **options)

    def created(self, *command):
        super().created(*command)
        self.number = 0

    def empty(self):
        self.last_added: dict[bytes, int] = {}

    def change(self):
        if self.chance.random() < 0.1:
            return Command(["BF.ROTATE", self.key], lambda *_: self.rotate())
        items = self.fresh() + self.chance.sample(self.used, 1)
        return Command(["BF.MADD", self.key, *items], lambda _, items: self.add(items), items, len(items))

    def rotate(self) -> None:
        self.number += 1

    def add(self, items) -> None:
        self.last_added |= dict.fromkeys(items, self.number)

    def look(self, client):
        with client.pipeline(transaction=False) as pipeline:
            for item in self.used:
                pipeline.execute_command("BF.AGE", self.key, item)
            ages = {item: age for item, age in zip(self.used, pipeline.execute(), strict=True) if age >= 0}
        return ages, pairs(client.execute_command("BF.STATS", self.key))[b"Generation"]

    def compare(self, seen):
        ages, number = seen
        if number != self.number:
            return [f"generation {number}, and not {self.number}"]
        expected = {item: number - at for item, at in self.last_added.items() if number - at < self.generations}
        return unequal(expected, ages)


class ClockedWindow(Track):
    """A window that rotates by the clock. Knows which items must be present, and which must be gone."""

    generations, every = 4, 1000
    slack = 100  # ms; the server reads its clock only once for a batch of pending commands

    def __init__(self, key: str, *words, **options):
        creation = ["BF.RESERVE", RATE, 4000, "WINDOW", self.generations, "EVERY", self.every, "SINCE", 0, *words]
        super().__init__(key, creation, **options)

    def empty(self):
        self.added: dict[bytes, Command] = {}

    def change(self):
        items = self.fresh()
        return Command(["BF.MADD", self.key, *items], self.add, items, len(items))

    def add(self, command, items) -> None:
        self.added.update(dict.fromkeys(items, command))

    def look(self, client):
        before = time.time() * 1000
        found = client.execute_command("BF.MEXISTS", self.key, *self.used) if self.used else []
        return before, dict(zip(self.used, found, strict=True)), time.time() * 1000

    def compare(self, seen):
        before, found, after = seen
        wrong = []
        for item, there in found.items():
            add = self.added.get(item)
            if there and add is None:
                wrong.append(f"{item} should not be there")
            elif there and self.generation(before - self.slack) >= self.end(add.done):
                wrong.append(f"{item} should have gone")
            elif add and not there and self.generation(after) < self.end(add.sent - self.slack):
                wrong.append(f"{item} is missing")
        return wrong

    def generation(self, at: float) -> int:
        return int(at) // self.every

    def end(self, added: float) -> int:
        """The number of the first generation in which an item that was added at the time `added` is gone."""
        return self.generation(added) + self.generations


class StockSet(Track):
    """One of the server's own sets, as a control."""

    def __init__(self, key: str, **options):
        super().__init__(key, ["SADD", "first"], **options)

    def empty(self):
        self.items = {b"first"}

    def change(self):
        items = self.fresh()
        return Command(["SADD", self.key, *items], lambda _, items: self.items.update(items), items, len(items))

    def look(self, client):
        return client.smembers(self.key)

    def compare(self, seen):
        return [f"{item} is missing" for item in self.items - seen] + [
            f"{item} should not be there" for item in seen - self.items
        ]


# ---- tracks of every kind -------------------------------------------------------------------------------------------


def redisbloom_chain(key: str) -> list:
    """The RESTORE command for an empty chain as RedisBloom would write it, with an initial capacity of 50 items."""
    scaling = RedisBloomChain(Value("MBbloom--", 4, [0, 0, 4, 2]))  # flag 4: positions of 64-bit hashes
    scaling.links = [Link(0, bytearray(), capacity=25, error_rate=2 * float(RATE))]
    scaling.links = [scaling.next_link()]
    return ["RESTORE", key, 0, sealed(scaling.value().dump(), RDB_VERSION)]


def valkey_bloom_chain(key: str) -> list:
    return ["BF.LOAD", key, ValkeyBloomChain(50, float(RATE), 0.5, 2, bytes(range(32))).payload()]


def go_zero_bitmap(key: str) -> list:
    return ["BF.IMPORT", key, "GOZERO", "no:such:bitmap", "BITS", 400_000]


def every_kind(seed: int) -> list[Writer]:
    """Four clients that together have keys of every kind."""

    def reserve(kind, capacity):
        return BY_NAME[kind].creation(capacity, RATE)

    tracks = [
        Members("fixed", reserve("fixed", 4000)),
        Members("siphash", reserve("siphash", 4000)),
        Members("classic", reserve("classic", 4000)),
        Members("sharded", reserve("sharded", 80_000), most=60_000, batch=6000),
        Members("chain", reserve("scaling", 20), most=3000, batch=20),
        Members("steady chain", reserve("constant", 50)),
        Counting("counting", reserve("counting-4", 4000), most=400),
        Counting("counting 16", reserve("counting-16", 4000), most=400),
        Members("table", reserve("table", 20), most=3000, batch=20),
        Counting("counting table", reserve("counting-table", 20), most=400),
        Counting("counting table of fixed size", reserve("counting-table-fixed", 4000), most=400),
        Window("window", most=800),
        Window("window table", "LAYOUT", "QUOTIENT", most=800),
        ClockedWindow("clocked window", most=800),
        ClockedWindow("clocked window siphash", "HASH", "SIPHASH", most=800),
        ClockedWindow("clocked window table", "LAYOUT", "QUOTIENT", most=800),
        Cuckoo("cuckoo", reserve("cuckoo-constant", 20), most=600),
        Cuckoo("cuckoo of fixed size", reserve("cuckoo", 4000), most=600),
        Foreign("redisbloom", redisbloom_chain),
        Foreign("valkey-bloom", valkey_bloom_chain),
        Foreign("go-zero", go_zero_bitmap),
    ]
    return [Writer(number + 1, seed, tracks[number::4]) for number in range(4)]


def stock_sets(seed: int) -> list[Writer]:
    return [Writer(number, seed, [StockSet(f"set {number} {n}") for n in range(4)]) for number in range(1, 5)]
