"""Measures how long each command, on each kind of filter, blocks the main thread, and thus all other clients.

A round uses a filter of one kind and of the given size, with new pages or with all pages in use, while the worker is
idle or busy. Every command in kit/commands.py runs with its example's arguments, made as large or as many as possible:
20,000 items, pieces of SCANDUMP, a second filter of the same kind, or 2048 tiny filters. No hold may be longer than 5 ms, plus the step of the
clock and the time for freeing the arguments. REASONS lists the exceptions. Other programs on the machine can make a hold
seem longer, so the tests run this suite with --unbounded, which measures everything and compares nothing.

The time of a command is the CPU time of its longest hold of the main thread. A command that is executed in pieces holds
that thread many times (kit/holds.py). --short tries each kind in one of the four states. --table prints the longest
hold of every command.
"""

import contextlib
import dataclasses
import functools
import itertools
import random
import struct
import threading
from collections.abc import Callable, Iterator

import redis

from kit.commands import COMMANDS, Command
from kit.filters import KINDS, pairs
from kit.foreign import Value, ValkeyBloomChain, sealed
from kit.foreign import redisbloom as probes_of_redisbloom
from kit.holds import Clock
from kit.suite import Server, options, progress, run

MIB = 1 << 20
SHORT = 0.005
TICK = 0.004  # the clock's step: a hold can seem longer by this much
MANY = 20_000  # items in a command
SOURCES = 2048  # the maximum in a command
# The server frees all arguments of a command in one step, for our commands as for EXISTS and SET. That takes 14 ns for
# each argument, and 0.1 ms for each MiB. The limits here leave a margin.
PER_ARGUMENT, PER_MIB = 20e-9, 0.15e-3
# Additional seconds for which commands may block the server on some kinds of filters, and why.
REASONS = {
    # An add makes 65,535 moves, and undoes all of them. Each move waits for the previous one, and for memory.
    # RedisBloom's walk can't be split. If the measuring client has to wait for the CPU, it sees the holds of two items
    # as one.
    (command, kind): 0.06
    for command in ("CF.ADD", "CF.ADDNX", "CF.INSERT", "CF.INSERTNX")
    for kind in ("cuckoo of RedisBloom without room", "cuckoo of RedisBloom without room, 255 slots")
} | {
    # Only a crafted payload can create these filters. An item needs 589,824 probes, or looks into 65,536 sub-filters.
    # A command with several items reads the clock after 32 items of the first, and after 4 of the second.
    (command.name, kind): seconds if command.example == "item" else steps * seconds
    for command in COMMANDS
    for kind, steps, seconds in (("crafted links", 32, 0.02), ("crafted sub-filters", 4, 0.002))
}

Make = Callable[["Round", str], None]
Words = Iterator[list]


# ---- kinds of filters -----------------------------------------------------------------------------------------------


def native(kind) -> Make:
    """Makes a filter of the round's size. Its capacity is estimated from a smaller filter."""

    def make(round: "Round", key: str) -> None:
        capacity = round.capacities.get(kind.name)
        if capacity is None:
            command, *words = kind.creation(1_000_000, kind.error_rate)
            round.quietly(command, "probe", *words)
            size = pairs(round.quietly(f"{kind.family}.INFO", "probe"))[b"Size"]
            round.quietly("UNLINK", "probe")
            capacity = round.capacities[kind.name] = int(1_000_000 * round.bytes / size * 0.98)
        command, *words = kind.creation(capacity, kind.error_rate)
        if "LIKE" not in words and "CF" not in command:
            words += ["SEED", 1]
        round.quietly(command, key, *words)

    return make


def layers(round: "Round", key: str) -> None:
    """Makes a chain of 60 layers of different shapes."""
    capacity = round.bytes // 90
    round.quietly("BF.RESERVE", key, 0.01, capacity, "SEED", 1)
    for number in range(60):
        round.quietly("BF.RESERVE", "layer", 0.01, capacity + 1000 * number, "SEED", 1, "NONSCALING")
        round.quietly("BF.ADD", "layer", b"%d" % number)
        with contextlib.suppress(redis.ResponseError):
            round.quietly("BF.MERGE", key, "layer")
        round.quietly("UNLINK", "layer")


def outgrown(round: "Round", key: str) -> None:
    """Makes a default filter that has grown from 100 items to a quarter of the round's size."""
    round.quietly("BF.RESERVE", key, 0.01, 100, "SEED", 1)
    for start in range(0, round.bytes // 8, MIB):
        items = b"".join(number.to_bytes(8, "little") for number in range(start, start + MIB))
        round.quietly("BF.BULKADD", key, "FIXED", 8, items)


def rebuild(round: "Round", key: str) -> None:
    native(KINDS[0])(round, key)
    round.quietly("BF.REBUILD", key, "BEGIN")


def go_zero(round: "Round", key: str) -> None:
    round.quietly("SET", "bits", round.random.randbytes(MIB) * round.mib)
    round.quietly("BF.IMPORT", key, "GOZERO", "bits", "BITS", 8 * round.bytes)
    round.quietly("UNLINK", "bits")


def redisbloom(links: int) -> Make:
    def make(round: "Round", key: str) -> None:
        size = round.bytes // links // 8 * 8
        head = struct.pack("<QIII", 0, links, 5, 2)
        for _ in range(links):
            head += struct.pack("<QQQddIQB", size, 8 * size, 0, 0.01, 9.6, 7, int(size * 8 / 9.6), 0)
        round.quietly("BF.LOADCHUNK", key, 1, head)
        # A piece lies within one link.
        part = min(size, 16 * MIB)
        for end in (first + at for first in range(0, size * links, size) for at in range(part, size + 1, part)):
            round.quietly("BF.LOADCHUNK", key, end + 1, bytes(part))

    return make


def valkey_bloom(round: "Round", key: str) -> None:
    round.quietly("BF.LOAD", key, round.valkey)


def cuckoo_of_redisbloom(round: "Round", key: str) -> None:
    """Makes a filter that is due for compaction. It has two sub-filters: the older one is a quarter full, and the newer
    one is half full."""
    table = round.bytes // 2
    round.quietly("CF.LOADCHUNK", key, 1, struct.pack("<QQQQHHH", table // 4, table // 4, table, 2, 4, 20, 1))
    part = min(table, 16 * MIB)
    for end in range(part, 2 * table + 1, part):
        round.quietly("CF.LOADCHUNK", key, end + 1, round.slots(0.5 if end > table else 0.25, part))


def cuckoo_without_room(slots: int) -> Make:
    """Makes a filter with one free slot and RedisBloom's maximum number of moves."""

    def make(round: "Round", key: str) -> None:
        buckets = 1 << (round.bytes // slots).bit_length() - 1
        size = buckets * slots
        head = struct.pack("<QQQQHHH", size - 1, buckets, 0, 1, slots, 65_535, 0)
        round.quietly("CF.LOADCHUNK", key, 1, head)
        for at in range(0, size, 16 * MIB):
            part = bytearray(round.slots(1, min(16 * MIB, size - at)))
            part[-1] = 0 if at + len(part) == size else part[-1]
            round.quietly("CF.LOADCHUNK", key, at + len(part) + 1, bytes(part))

    return make


LINK_BITS = 4096
# An item whose 1000 probes all hit different bits.
CRAFTED = next(
    item
    for item in (b"held%d" % number for number in range(1000))
    if len(set(probes_of_redisbloom(item, 1000, LINK_BITS))) == 1000
)


def crafted_links(round: "Round", key: str) -> None:
    """Makes a RedisBloom chain with as many probes as a payload may have. Every link has all bits of one item but the
    last, so a test of the item needs every probe."""
    links, probes = 589, 1000
    bits = bytearray(b"\xff" * (LINK_BITS // 8))
    *_, last = probes_of_redisbloom(CRAFTED, probes, LINK_BITS)
    bits[last // 8] &= ~(1 << last % 8)
    fields = [links, links, 5, 2] + links * [100, 0.01, probes, 9.6, LINK_BITS, 0, bytes(bits), 100]
    round.restore(key, Value("MBbloom--", 4, fields))


def crafted_sub_filters(round: "Round", key: str) -> None:
    """Makes a RedisBloom cuckoo filter of full sub-filters, as many as a payload may have."""
    count, slots = 65_536, bytes(range(1, 9))
    round.restore(key, Value("MBbloomCF", 4, [count, 2, count * 8, count, 4, 20, 1] + count * [2, slots]))


def small(round: "Round", creation: str, *words) -> None:
    """Makes a sketch to be merged many times, unless there is one."""
    with contextlib.suppress(redis.ResponseError):
        round.quietly(creation, "small", *words)


def count_min(round: "Round", key: str) -> None:
    round.quietly("CMS.INITBYDIM", key, round.bytes // 20, 5)
    small(round, "CMS.INITBYDIM", 100, 5)


def top_k(round: "Round", key: str) -> None:
    round.quietly("TOPK.RESERVE", key, 1000, round.bytes // 40, 5, 0.9)


def t_digest(round: "Round", key: str) -> None:
    round.quietly("TDIGEST.CREATE", key, "COMPRESSION", 1000)
    round.quietly("TDIGEST.ADD", key, *range(10_000))
    small(round, "TDIGEST.CREATE")


# One of KINDS for each set of options.
NATIVE = {kind.options: kind for kind in reversed(KINDS)}.values()
FILTERS: dict[str, tuple[str, Make]] = {kind.name: (kind.family, native(kind)) for kind in NATIVE} | {
    "many layers": ("BF", layers),
    "outgrown": ("BF", outgrown),
    "rebuild": ("BF", rebuild),
    "go-zero": ("BF", go_zero),
    "RedisBloom": ("BF", redisbloom(1)),
    "RedisBloom, 8 links": ("BF", redisbloom(8)),
    "valkey-bloom": ("BF", valkey_bloom),
    "cuckoo of RedisBloom": ("CF", cuckoo_of_redisbloom),
    "cuckoo of RedisBloom without room": ("CF", cuckoo_without_room(4)),
    "cuckoo of RedisBloom without room, 255 slots": ("CF", cuckoo_without_room(255)),
    "crafted links": ("BF", crafted_links),
    "crafted sub-filters": ("CF", crafted_sub_filters),
    "count-min sketch": ("CMS", count_min),
    "Top-K": ("TOPK", top_k),
    "t-digest": ("TDIGEST", t_digest),
}


# In these filters, an item takes as long as it can: an add walks as far as it is allowed to.
FULL = [name for name in FILTERS if "without room" in name or "crafted" in name]


# ---- commands -------------------------------------------------------------------------------------------------------


@functools.cache
def valkey_payload(size: int) -> bytes:
    return ValkeyBloomChain(int(size * 8 / 9.6), 0.01, 0.5, 0, bytes(32)).payload()


class Round:
    """A filter, and all commands that can be sent to it."""

    def __init__(self, clock: Clock, mib: int, seed: int, capacities: dict[str, int], many: int):
        self.many_items = many
        self.clock, self.mib, self.bytes, self.capacities = clock, mib, mib * MIB, capacities
        self.quietly = clock.quietly
        self.random = random.Random(seed)
        self.held = [CRAFTED, *self.items(2_000, 0)]
        self.strange = self.items(2_000, 1 << 40)

    def restore(self, key: str, value: Value) -> None:
        self.quietly("SET", key, "x")
        version = struct.unpack("<H", self.quietly("DUMP", key)[-10:-8])[0]
        self.quietly("RESTORE", key, 0, sealed(value.dump(), version), "REPLACE")

    @property
    def valkey(self) -> bytes:
        return valkey_payload(self.bytes)

    def items(self, count: int, first: int) -> list[bytes]:
        return [struct.pack("<Q", number) for number in range(first, first + count)]

    def slots(self, fill: float, length: int) -> bytes:
        most = int(256 * fill)
        slots = bytes(1 + byte * 254 // most if byte < most else 0 for byte in range(256))
        some = self.random.randbytes(MIB).translate(slots)
        return (some * (length // MIB + 1))[:length]

    def touch(self, key: str, family: str) -> None:
        """Adds enough items to touch nearly every page."""
        count = self.bytes // 4096 * 8
        items = self.items(count, 1 << 32)
        with contextlib.suppress(redis.ResponseError):  # the filter might be full
            if family == "BF":
                self.quietly("BF.BULKADD", key, "FIXED", 8, b"".join(items))
            elif family == "CF":
                self.quietly("CF.INSERT", key, "ITEMS", *items)

    # These methods yield the largest arguments, in place of the examples in kit/commands.py.

    def one(self, _) -> Words:
        yield from ([item] for item in [*self.held[:4], *self.strange[:4]])

    def many(self, _, *before) -> Words:
        half = self.many_items // 2
        yield [*before, *self.items(half, 0), *self.items(half, self.random.randrange(1 << 41, 1 << 60))]

    def blob(self, _) -> Words:
        for count in (MANY, 16_000, 20 * MANY) if self.many_items == MANY else (self.many_items,):
            items = self.items(count, self.random.randrange(1 << 41, 1 << 60))
            yield ["FIXED", 8, b"".join(items)]
            yield ["PREFIXED", b"".join(b"\x08\0\0\0" + item for item in items)]

    def pieces(self, command: Command) -> Words:
        """Arguments that make SCANDUMP return each piece, and LOADCHUNK load it."""
        iterator, key = 0, "copy"
        while True:
            if command.reads:
                yield [iterator]
            next, piece = self.quietly(f"{command.name[:2]}.SCANDUMP", "k", iterator)
            if not next:
                return
            if not command.reads:
                yield [key, next, piece]
            iterator = next

    def sources(self, command: Command) -> Words:
        if command.name.endswith("EQUAL"):
            yield ["k", "other"]
            return
        yield ["new", "k", "other"]
        yield ["new", *(b"tiny:%d" % number for number in range(SOURCES))]
        if command.name.endswith("MERGE"):
            yield ["other", "k"]
            data = self.quietly("DUMP", "k")
            yield ["other", "BLOB", data]
            yield ["another", "BLOB", data]
            yield ["tiny:0", "BLOB", *SOURCES * [self.quietly("DUMP", "tiny:1")]]

    def payloads(self, command: Command) -> Words:
        if command.name == "BF.LOAD":
            yield ["new", self.valkey]
            return
        bitmap = self.random.randbytes(MIB) * self.mib
        self.quietly("SET", "bits", bitmap)
        yield ["new", "GOZERO", "bits", "BITS", 8 * self.bytes]
        self.quietly("UNLINK", "bits")
        yield ["new", "GOZERO", "none", "BITS", 8 * self.bytes]
        yield ["new", "GUAVA", struct.pack(">BBI", 1, 7, self.bytes // 8) + bitmap]

    def reservations(self, command: Command) -> Words:
        if command.name.startswith("CF"):
            yield ["new", self.bytes]
            return
        yield ["new", 0.01, self.bytes // 10 * 8]
        yield ["new", 0.01, self.bytes // 10 * 8, "LIKE", "k"]

    def rebuilds(self, _) -> Words:
        for end in ("ABORT", "COMMIT"):
            yield ["BEGIN"]
            yield from self.many(None, "ADD")
            yield ["STATUS"]
            yield [end]

    def increments(self, _) -> Words:
        yield [word for item in self.items(self.many_items, 0) for word in (item, 100_000)]

    def merges(self, _) -> Words:
        """Many sources that take long to open, and few that take long to merge."""
        yield ["k", 1, "other"]
        yield ["k", 20, *20 * ["other"]]
        yield ["small", SOURCES, *SOURCES * ["small"]]

    def numbers(self, _) -> Words:
        yield [*range(self.many_items)]

    def sketches(self, command: Command) -> Words:
        yield {
            "CMS.INITBYDIM": ["new", self.bytes // 20, 5],
            "CMS.INITBYPROB": ["new", 40 / self.bytes, 0.04],
            "TOPK.RESERVE": ["new", 1000, self.bytes // 40, 5, 0.9],
        }[command.name]

    def nothing(self, command: Command) -> Words:
        yield []

    # Keyed by the example in kit/commands.py. A new command must use one of these examples, or add an entry that makes
    # its arguments as large as possible.
    ARGUMENTS = {
        "item": one,
        "item item": many,
        "ITEMS item": lambda self, command: self.many(command, "ITEMS"),
        "FIXED 1 item": blob,
        "0": pieces,
        "1 data": pieces,
        "{key}": sources,
        "{key} {key}": sources,
        "data": payloads,
        "BLOOMV3 data": payloads,
        "0.01 100": reservations,
        "100": reservations,
        "STATUS": rebuilds,
        "1 0": lambda self, _: iter([[1, 0]]),
        "COUNT 1048576": lambda self, _: iter([["COUNT", MIB]]),
        "": nothing,
        "20 5": sketches,
        "0.01 0.01": sketches,
        "10": sketches,
        "item 1": increments,
        "1 {key}": merges,
        "1 2": numbers,
        "1": numbers,
        "0.5": lambda self, _: iter([[0.5] * self.many_items]),
        "0 1": lambda self, _: iter([[0, 1]]),
    }
    # Examples whose arguments above include the key.
    OTHER_KEY = (
        "1 data", "{key}", "{key} {key}", "data", "BLOOMV3 data", "0.01 100", "100", "20 5", "0.01 0.01", "10", "1 {key}",
    )  # fmt: skip
    # Examples of commands that only create a filter, regardless of the existing ones.
    NEW = ("data", "BLOOMV3 data", "0.01 100", "100", "20 5", "0.01 0.01", "10")
    # Commands that change the filter for later ones, so they run last.
    LAST = ("DEL", "MDEL", "COMPACT", "REBUILD", "ROTATE", "CLEAR", "RESET")

    def commands(self, family: str, news: bool) -> Iterator[tuple[Command, list]]:
        """Every command of the family. Commands that only create a filter are included if `news` is true."""
        chosen = [command for command in COMMANDS if command.name.startswith(family)]
        news = news or family not in ("BF", "CF")  # of the others, there is one kind each
        place = {verb: number for number, verb in enumerate(self.LAST, 1)}
        for command in sorted(chosen, key=lambda command: place.get(command.name.split(".")[1], 0)):
            if command.example in self.NEW and not news:
                continue
            for words in self.ARGUMENTS[command.example](self, command):
                if command.name == "CF.COMPACT":
                    key = ["other"]  # k was compacted by CF.DEL
                else:
                    key = [] if command.example in self.OTHER_KEY else ["k"]
                yield command, [command.name, *key, *words]
                self.quietly("UNLINK", "new")
            self.quietly("UNLINK", "copy")


class Busy:
    """A context manager that keeps the worker busy with something else if `is_busy` is true."""

    def __init__(self, server, is_busy: bool):
        self.server, self.is_busy, self.stop = server, is_busy, threading.Event()

    def __enter__(self) -> None:
        if self.is_busy:
            self.thread = threading.Thread(target=self.work)
            self.thread.start()

    def work(self) -> None:
        with self.server.client() as client:
            while not self.stop.is_set():
                client.execute_command("BF.BULKTEST", "slow", "FIXED", 8, bytes(1 << 17))

    def __exit__(self, *_) -> None:
        if self.is_busy:
            self.stop.set()
            self.thread.join()


@dataclasses.dataclass
class Hold:
    """The longest hold of a command, in seconds and as a fraction of the limit."""

    seconds: float
    part: float
    what: str


def most(command: str, words: list, kind: str) -> float:
    """The seconds for which the command may block the server."""
    length = sum(len(word) for word in words if isinstance(word, bytes))
    return SHORT + TICK + PER_ARGUMENT * len(words) + PER_MIB * length / MIB + REASONS.get((command, kind), 0)


class Bench:
    """Measures every command on every kind of filter."""

    def __init__(self, server, arguments):
        self.server, self.arguments = server, arguments
        self.clock, self.capacities = Clock(server), {}
        self.clock.quietly("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC")
        self.clock.quietly("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % number for number in range(500)))
        for number in range(SOURCES):
            self.clock.quietly("BF.RESERVE", b"tiny:%d" % number, 0.01, 1, "NONSCALING", "SEED", 1)
        self.worst: dict[str, Hold] = {}
        self.commands = self.refused = 0

    def rounds(self) -> list[tuple[str, str, bool]]:
        # The crafted filters take minutes, and nothing is learnt from them without the bounds.
        usual = [name for name in FILTERS if not (self.arguments.unbounded and "crafted" in name)]
        names = self.arguments.kind or usual
        states = list(itertools.product(("new", "old"), (False, True)))
        if self.arguments.short:
            return [(name, *states[(number + self.arguments.seed) % 4]) for number, name in enumerate(names)]
        return [(name, *state) for name in names for state in states]

    def run(self, number: int, name: str, age: str, is_busy: bool) -> None:
        """Runs a round. If a hold was too long, the round is repeated up to twice, and each command's shortest hold
        counts: it is closest to the true one."""
        found: dict[int, tuple[str, Hold]] = {}
        for _ in range(3):
            for place, hold in enumerate(self.measure(name, age, is_busy, number % 8 == 0)):
                known = found.get(place)
                found[place] = hold if known is None or hold[1].part < known[1].part else known
            if self.arguments.unbounded or all(hold.part <= 1 for _, hold in found.values()):
                break
        for command, hold in found.values():
            if command not in self.worst or hold.part > self.worst[command].part:
                self.worst[command] = hold
        self.commands += len(found)

    def measure(self, name: str, age: str, is_busy: bool, news: bool) -> Iterator[tuple[str, Hold]]:
        family, make = FILTERS[name]
        mib, seed = self.arguments.count, self.arguments.seed
        one = Round(self.clock, mib, seed, self.capacities, 50 if name in FULL else MANY)
        for key in ("k", "other"):
            make(one, key)
            if age == "old" and name not in FULL:
                one.touch(key, family)
        with contextlib.suppress(redis.ResponseError):
            for item in one.held[:100]:
                self.clock.quietly(f"{family}.ADD", "k", item)
        where = f"{name}, {age} pages, worker {'busy' if is_busy else 'idle'}"
        with Busy(self.server, is_busy):
            for command, words in one.commands(family, news):
                seconds, reply = self.clock.time(*words)
                self.refused += isinstance(reply, Exception)
                shown = " ".join(str(word)[:12] for word in words[1:4])
                part = seconds / most(command.name, words, name)
                yield command.name, Hold(seconds, part, f"{shown}: {where}: {str(reply)[:30]}")
        self.clock.quietly("UNLINK", "k", "other", "small")


def latency(spec, arguments) -> str:
    config = {"proto-max-bulk-len": "512mb", "client-query-buffer-limit": "2gb", "save": ""}
    with Server(spec, module_args=["THREADS", "1", "OFFLOAD_MAX_BYTES", "1gb"], config=config) as server:
        bench = Bench(server, arguments)
        rounds = bench.rounds()
        for number, one in enumerate(rounds):
            bench.run(number, *one)
            progress(number + 1, len(rounds), "rounds")
        server.check()
    missing = {command.name for command in COMMANDS} - bench.worst.keys()
    assert arguments.kind or not missing, f"not measured: {', '.join(sorted(missing))}"
    by_time = sorted(bench.worst.items(), key=lambda item: -item[1].seconds)
    if arguments.table:
        for command, hold in by_time:
            print(f"| {command} | {1000 * hold.seconds:.1f} | {hold.part:.0%} | {hold.what} |")
    slow = [f"{command} {1000 * hold.seconds:.1f} ms: {hold.what}" for command, hold in by_time if hold.part > 1]
    assert arguments.unbounded or not slow, "held the main thread for longer than they may:\n" + "\n".join(slow)
    command, hold = by_time[0]
    return (
        f"{bench.commands:,} commands ({bench.refused:,} refused) on {len(rounds)} filters of {arguments.count} MiB: "
        f"longest {command} {1000 * hold.seconds:.1f} ms ({hold.what})"
    )


def main() -> None:
    parser = options("latency", __doc__, 128, "MiB of cells")
    parser.add_argument("--table", action="store_true", help="print the longest hold of every command")
    parser.add_argument("--short", action="store_true", help="each kind of filter in one state instead of four")
    parser.add_argument("--unbounded", action="store_true", help="compare nothing with the bounds")
    parser.add_argument("--kind", action="append", metavar="NAME", choices=list(FILTERS), help="this kind only")
    run(latency, parser)
