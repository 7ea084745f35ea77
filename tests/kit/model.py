"""What Bloomery should answer: a Python model of the BF.* and CF.* commands, and of others that touch keys.

A `Model` gets commands and returns the reply that a server should send to each, byte for byte. It shares no code with
the crate and knows nothing about bits:

- A Bloom filter is the set of its items. That is exact because there are no false positives: error rates are 1e-9 or
  less, and filters are never saturated. Values that depend on cells (sizes, fills, dumps) are masked.
- A cuckoo filter consists of fingerprints in buckets, by the rules of src/filter/cuckoo, with another implementation
  of XXH3. False positives, counts, growth, compaction and the bytes of a dump are exact. In CF.INFO, only the size is
  masked.

In replies, `<n>` matches a whole number, `<f>` any number, and `<...>` anything.
"""

import copy
import re
import struct
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from decimal import Decimal

import xxhash

from kit.wire_format import MASK, crc32c, siphash128

# ---- replies --------------------------------------------------------------------------------------------------------


class Simple(str):
    """A simple string."""


class Error(str):
    """An error. Its text may contain masks."""


@dataclass(frozen=True)
class Wire:
    """A reply that is the same in both protocols: the bytes that are sent, with masks."""

    text: bytes


@dataclass(frozen=True)
class Double:
    """A number: a bulk string in RESP2 and a double in RESP3. `value` is `None` if the model doesn't predict the
    number."""

    value: float | None


@dataclass(frozen=True)
class Placed:
    """CF.INSERT's answer for an item: 1 or -1 in RESP2, a boolean in RESP3."""

    value: bool


class Map(list):
    """Pairs: a map in RESP3, a flat array in RESP2."""


class Entry(tuple):
    """A pair: a map with one entry in RESP3, an array that contains only the value in RESP2."""


OK = Simple("OK")
NUMBER = Wire(b":<n>\r\n")
BYTES = Wire(b"$<n>\r\n<...>\r\n")
FIGURE = Double(None)
LINES = Wire(b"*<n>\r\n<...>")
NO_FEEDBACK = Map([("Checked", 0), ("False", 0), ("Share false", None), ("Observed error rate", None)])
WRONGTYPE = Error("WRONGTYPE Operation against a key holding the wrong kind of value")

MASKS = {b"<n>": rb"\d+", b"<f>": rb"(?:[-+.\deE]+|inf)", b"<...>": rb".*"}
MASKED = re.compile(b"(" + b"|".join(map(re.escape, MASKS)) + b")")


def encode(reply, protocol: int) -> bytes:
    """The reply as the bytes that are sent."""
    if reply is None:
        return b"_\r\n" if protocol == 3 else b"$-1\r\n"
    if isinstance(reply, bool):
        return (b"#t\r\n" if reply else b"#f\r\n") if protocol == 3 else b":%d\r\n" % reply
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%s\r\n" % (len(reply), reply)
    if isinstance(reply, Simple):
        return b"+%s\r\n" % reply.encode()
    if isinstance(reply, Error):
        return b"-%s\r\n" % reply.encode()
    if isinstance(reply, Placed):
        return encode(reply.value if protocol == 3 else 1 if reply.value else -1, protocol)
    if isinstance(reply, Wire):
        return reply.text
    if isinstance(reply, Double):
        if protocol == 3:
            return b",<f>\r\n"  # servers differ in the number of digits that they print
        return b"$<n>\r\n<f>\r\n" if reply.value is None else encode(decimal(reply.value).encode(), 2)
    if isinstance(reply, Map):
        body = b"".join(encode(Simple(name), protocol) + encode(value, protocol) for name, value in reply)
        return (b"%%%d\r\n" % len(reply) if protocol == 3 else b"*%d\r\n" % (2 * len(reply))) + body
    if isinstance(reply, Entry):
        return encode(Map([reply]) if protocol == 3 else [reply[1]], protocol)
    return b"*%d\r\n" % len(reply) + b"".join(encode(part, protocol) for part in reply)


def matches(expected: bytes, actual: bytes) -> bool:
    """Whether the actual bytes match the expected ones, which may contain masks."""
    if expected == actual:
        return True
    if b"<" not in expected:
        return False
    parts = MASKED.split(expected)
    return re.fullmatch(b"".join(MASKS.get(part) or re.escape(part) for part in parts), actual, re.DOTALL) is not None


def through_lua(reply, resp3: bool):
    """What the client gets if a script returns this reply, which it got from a command. The script uses RESP2 unless it
    has switched to RESP3."""
    if isinstance(reply, bool) and not resp3:
        return int(reply)
    if isinstance(reply, Placed):
        return reply.value if resp3 else 1 if reply.value else -1
    if isinstance(reply, Double):
        return Wire(encode(reply, 2))
    if isinstance(reply, Map):
        return [part for name, value in reply for part in (Simple(name), through_lua(value, resp3))]
    if isinstance(reply, Entry):
        return [through_lua(reply[1], resp3)]
    if isinstance(reply, list):
        return [through_lua(part, resp3) for part in reply]
    return reply


class Refused(Exception):
    """Raised by a command that returns this error and changes nothing."""


# ---- arguments ------------------------------------------------------------------------------------------------------

INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
FLOAT = re.compile(rb"[+-]?(?:inf|infinity|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)", re.IGNORECASE)


def integer(word: bytes) -> int | None:
    """Parses a 64-bit integer as the servers do."""
    value = int(word) if INTEGER.fullmatch(word) else None
    return value if value is not None and -(1 << 63) <= value < 1 << 63 else None


def integer_in(word: bytes, low: int, high: int) -> int | None:
    value = integer(word)
    return value if value is not None and low <= value <= high else None


def upper(word: bytes) -> str:
    """A word in upper case, to match it regardless of case. Only ASCII letters are converted."""
    return word.upper().decode("latin-1")


def number(word: bytes) -> float | None:
    value = float(word) if FLOAT.fullmatch(word) else None
    return value if value is not None and value == value else None


def decimal(value: float) -> str:
    """The shortest decimal without an exponent that reads back as the same number."""
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def printable(word: bytes) -> str:
    """Bytes from a client, as an error text shows them."""
    escapes = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    shown = (escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in word[:64])
    return "".join(shown) + ("…" if len(word) > 64 else "")


def next_power_of_two(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


# ---- Bloom filters --------------------------------------------------------------------------------------------------

NOT_COUNTING = "ERR not a counting filter; BF.RESERVE key error_rate capacity COUNTING creates one"
NOT_WINDOW = "ERR not a window; BF.RESERVE key error_rate capacity WINDOW generations creates one"
FULL = "ERR non scaling filter is full"


@dataclass(frozen=True)
class BloomSpec:
    """The parameters of a Bloom filter."""

    rate: float
    capacity: int
    kind: str = "fixed"  # as BF.STATS names it
    on_full: str = "ERROR"
    expansion: int = 0
    tightening: float | None = None
    width: int = 1
    generations: int = 0
    every: int = 0
    since: int = 0
    shards: int = 1
    layout: str = "AUTO"
    hash: str = "XXH3"


class Fixed:
    """One layer of bits or counters: each item with its count, which is always 1 for bits."""

    def __init__(self, spec: BloomSpec):
        self.spec = spec
        self.counts: dict[bytes, int] = {}

    def contains(self, item) -> bool:
        return item in self.counts

    def add(self, item, events) -> bool:
        """Adds an item. Returns whether it was absent."""
        known = self.counts.get(item, 0)
        if not known and self.spec.on_full == "ERROR" and len(self.counts) >= self.spec.capacity:
            events[f"{self.spec.kind} full"] += 1
            raise Refused(FULL)
        self.counts[item] = min(known + 1, (1 << self.spec.width) - 1)
        return not known

    def remove(self, item, events) -> bool:
        known = self.counts.get(item, 0)
        if known == (1 << self.spec.width) - 1:
            events["counter stuck"] += 1
        elif known > 1:
            self.counts[item] = known - 1
        elif known:
            del self.counts[item]
        return known > 0

    def layers(self) -> list[tuple[int, int]]:
        """The capacity and the number of items of each layer."""
        return [(self.spec.capacity, len(self.counts))]

    def alive(self) -> list[tuple[int | None, int, int]]:
        """The age, the capacity and the number of items of each layer that BF.STATS shows."""
        return [(None, *layer) for layer in self.layers()]

    def clear(self):
        self.counts.clear()


class Chain(Fixed):
    """A chain of layers. Each item is in only one layer, so the layers' sizes and a single set of items are enough."""

    def __init__(self, spec: BloomSpec):
        super().__init__(spec)
        self.sizes = [[spec.capacity, 0]]

    def add(self, item, events) -> bool:
        if item in self.counts:
            return False
        capacity, size = self.sizes[-1]
        if size >= capacity:
            self.sizes.append([capacity * self.spec.expansion, 0])
            events["scaling grown"] += 1
        self.sizes[-1][1] += 1
        self.counts[item] = 1
        return True

    def layers(self):
        return [(capacity, size) for capacity, size in self.sizes]

    def clear(self):
        super().clear()
        self.sizes = [[self.spec.capacity, 0]]


class Window:
    """Generations by number. Rotations and the clock determine which one is current. Generations that are too old don't
    count, even if they haven't been dropped yet."""

    def __init__(self, spec: BloomSpec, now: int):
        self.spec = spec
        self.now = now
        self.newest = self.rotations = 0
        self.sets: defaultdict[int, set] = defaultdict(set)

    def current(self) -> int:
        elapsed = max(0, self.now - self.spec.since) // self.spec.every if self.spec.every else 0
        return max(self.newest, self.rotations + elapsed)

    def open(self, generation: int):
        self.newest = max(self.newest, generation)
        for old in [number for number in self.sets if number <= self.newest - self.spec.generations]:
            del self.sets[old]

    def rotate(self):
        self.open(self.current() + 1)
        self.rotations += 1

    def age(self, item) -> int:
        current = self.current()
        ages = (current - number for number, items in self.sets.items() if item in items)
        return min((age for age in ages if age < self.spec.generations), default=-1)

    def contains(self, item) -> bool:
        return self.age(item) >= 0

    def add(self, item, events) -> bool:
        self.open(self.current())
        newest = self.sets[self.newest]
        if item not in newest and self.spec.on_full == "ERROR" and len(newest) >= self.spec.capacity:
            events["window full"] += 1
            raise Refused(FULL)
        absent = not self.contains(item)
        newest.add(item)
        return absent

    def layers(self):
        """The capacity and the number of items of each slot in the ring. Generation n is in slot n mod generations."""
        span = self.spec.generations
        sizes = {number % span: len(items) for number, items in self.sets.items()}
        return [(self.spec.capacity, sizes.get(slot, 0)) for slot in range(span)]

    def alive(self):
        current = self.current()
        oldest = max(0, current - self.spec.generations + 1)
        numbers = range(self.newest, oldest - 1, -1)
        return [(current - number, self.spec.capacity, len(self.sets.get(number, ()))) for number in numbers]

    def clear(self):
        self.sets.clear()


Bloom = (Fixed, Window)


def cardinality(filter_) -> int:
    return sum(size for _, size in filter_.layers())


def capacity(filter_) -> int:
    return sum(capacity for capacity, _ in filter_.layers())


# ---- cuckoo filters -------------------------------------------------------------------------------------------------

SPREAD = 0x5BD1E995
SEARCHED = 2048  # a search for room that has collected this many slots adds no more of them


@dataclass(frozen=True)
class CuckooSpec:
    """The parameters of a cuckoo filter."""

    capacity: int
    bucket_size: int
    max_iterations: int
    expansion: int
    hash: str = "XXH3"
    seed: int = 0


class Table:
    """A sub-filter: buckets of slots. A slot is a byte, which is 0 if the slot is free."""

    def __init__(self, buckets: int, bucket_size: int):
        self.buckets, self.bucket_size = buckets, bucket_size
        self.slots = bytearray((buckets * bucket_size + 7) // 8 * 8)  # padded to whole words, as in a dump

    def pair(self, base: int, fingerprint: int) -> tuple[int, int]:
        """The two buckets of a fingerprint. `base` is the item's hash, or either of the buckets."""
        return base & self.buckets - 1, (base ^ fingerprint * SPREAD) & self.buckets - 1

    def bucket(self, index: int) -> range:
        return range(index * self.bucket_size, (index + 1) * self.bucket_size)

    def find(self, pair, wanted: int) -> int:
        """The first slot in the two buckets that has this fingerprint, or -1."""
        for index in pair:
            start = index * self.bucket_size
            slot = self.slots.find(wanted, start, start + self.bucket_size)
            if slot >= 0:
                return slot
        return -1

    def replace(self, pair, old: int, new: int) -> bool:
        slot = self.find(pair, old)
        if slot >= 0:
            self.slots[slot] = new
        return slot >= 0

    def count(self, pair, fingerprint: int) -> int:
        """The number of slots with this fingerprint. If both buckets are the same bucket, its slots count twice."""
        return sum(self.slots[slot] == fingerprint for index in pair for slot in self.bucket(index))

    def make_room(self, pair, fingerprint: int, most: int) -> int:
        """Inserts the fingerprint by the shortest chain of moves. Returns the number of moves, or 0 if there is no such
        chain."""
        # Each step: a slot to empty, its bucket, the previous step, and the number of moves so far.
        steps = [(slot, index, None, 1) for index in dict.fromkeys(pair) for slot in self.bucket(index)]
        for step in steps:  # the loop appends to `steps`
            slot, index, _, depth = step
            _, other = self.pair(index, self.slots[slot])
            free = self.slots.find(0, other * self.bucket_size, (other + 1) * self.bucket_size)
            if free >= 0:
                while step:
                    self.slots[free] = self.slots[step[0]]
                    free, step = step[0], step[2]
                self.slots[free] = fingerprint
                return depth
            if depth < most and len(steps) < SEARCHED and other != index:
                steps += [(slot, other, step, depth + 1) for slot in self.bucket(other)]
        return 0


class Cuckoo:
    """A cuckoo filter: its sub-filters, the oldest first."""

    HEADER = struct.Struct("<Q2QQQBBHHHII")
    ENVELOPE = struct.Struct("<4sBBHIQ")
    CHUNK = struct.Struct("<QII")

    def __init__(self, spec: CuckooSpec):
        self.spec = spec
        self.tables: list[Table] = []
        self.deletes = self.moves = 0
        # The number that the server gives a dump of several chunks; 0 for a dump of one chunk. None if it isn't known.
        self.dump_number: int | None = None
        self.grow()

    def first_buckets(self) -> int:
        return next_power_of_two(max(1, self.spec.capacity // self.spec.bucket_size))

    def grow(self):
        factor = max(1, self.spec.expansion) ** len(self.tables)
        self.tables.append(Table(self.first_buckets() * factor, self.spec.bucket_size))
        self.dump_number = None if len(self.tables) > 1 else 0

    def hash(self, item: bytes) -> tuple[int, int]:
        """The item's hash and fingerprint."""
        if self.spec.hash == "SIPHASH":
            low, _ = siphash128(self.spec.seed & MASK, self.spec.seed >> 64, item)
        else:
            low = xxhash.xxh3_128_intdigest(item, seed=self.spec.seed) & MASK
        return low, low % 255 + 1

    def items(self) -> int:
        return sum(len(table.slots) - table.slots.count(0) for table in self.tables)

    def contains(self, item: bytes) -> bool:
        low, fingerprint = self.hash(item)
        return any(table.find(table.pair(low, fingerprint), fingerprint) >= 0 for table in self.tables)

    def count(self, item: bytes) -> int:
        low, fingerprint = self.hash(item)
        return sum(table.count(table.pair(low, fingerprint), fingerprint) for table in self.tables)

    def add(self, item: bytes, most_tables: int, events) -> None:
        low, fingerprint = self.hash(item)
        if any(table.replace(table.pair(low, fingerprint), 0, fingerprint) for table in reversed(self.tables)):
            return
        newest = self.tables[-1]
        moved = newest.make_room(newest.pair(low, fingerprint), fingerprint, self.spec.max_iterations)
        if moved:
            self.moves += moved
            events["cuckoo moved"] += 1
            return
        if self.spec.expansion == 0:
            events["cuckoo full"] += 1
            raise Refused("Filter is full")
        if len(self.tables) >= most_tables:
            events["cuckoo expanded to the limit"] += 1
            raise Refused("Maximum expansions reached")
        self.grow()
        events["cuckoo grown"] += 1
        newest = self.tables[-1]
        newest.replace(newest.pair(low, fingerprint), 0, fingerprint)

    def remove(self, item: bytes, events) -> bool:
        low, fingerprint = self.hash(item)
        removed = any(table.replace(table.pair(low, fingerprint), fingerprint, 0) for table in reversed(self.tables))
        if removed:
            self.deletes += 1
            if len(self.tables) > 1 and self.deletes > 0.1 * self.items():
                events["cuckoo compacted itself"] += 1
                self.compact(False, events)
        return removed

    def compact(self, everything: bool, events) -> None:
        """Moves items from newer sub-filters to older ones. An automatic compaction stops at the first sub-filter that
        it can't empty."""
        for index in range(len(self.tables) - 1, 0, -1):
            table = self.tables[index]
            for slot in range(table.buckets * table.bucket_size):
                fingerprint = table.slots[slot]
                base = slot // table.bucket_size
                older = self.tables[:index]
                if fingerprint and any(old.replace(old.pair(base, fingerprint), 0, fingerprint) for old in older):
                    table.slots[slot] = 0
                    self.moves += 1
                    events["cuckoo fingerprint compacted"] += 1
            empty = not any(table.slots)
            if empty and index + 1 == len(self.tables):
                self.tables.pop()
                if len(self.tables) == 1:
                    self.dump_number = 0
                events["cuckoo shrunk"] += 1
            if not empty and not everything:
                break
        if self.deletes and len(self.tables) > 1:
            self.dump_number = None
        self.deletes = 0

    # ---- the wire format

    def header(self) -> bytes:
        spec, kinds = self.spec, {"XXH3": 1, "SIPHASH": 2}
        return self.HEADER.pack(
            spec.capacity, spec.seed & MASK, spec.seed >> 64, self.deletes, self.moves, kinds[spec.hash],
            spec.bucket_size, spec.max_iterations, spec.expansion, 0, len(self.tables), 0,
        )  # fmt: skip

    def head(self) -> bytes:
        header, body = self.header(), sum(len(table.slots) for table in self.tables)
        envelope = self.ENVELOPE.pack(b"BLMY", 1, 4, self.dump_number, len(header), body)
        return envelope + struct.pack("<I", crc32c(envelope + header)) + header

    def chunk(self, offset: int) -> bytes:
        """A chunk with the rest of a sub-filter, from this offset in the body. Empty if the offset is at the end of the
        body, or isn't at the start of a word."""
        start = 0
        for table in self.tables:
            inside, start = offset - start, start + len(table.slots)
            if offset < start and offset % 8 == 0:
                data = bytes(table.slots[inside:])
                prefix = self.CHUNK.pack(offset, len(data), crc32c(self.header()) ^ (self.dump_number or 0))
                return prefix + struct.pack("<I", crc32c(prefix + data)) + data
        return b""


def another(value):
    """A copy, whose dumps get a number of their own."""
    made = copy.deepcopy(value)
    if isinstance(made, Cuckoo) and len(made.tables) > 1:
        made.dump_number = None
    return made


def dump_number_in(head: bytes) -> int:
    """The dump number in a head that CF.SCANDUMP key 0 returned."""
    _, _, _, dump_number, *_ = Cuckoo.ENVELOPE.unpack_from(head)
    return dump_number


def seed_in(head: bytes) -> int:
    """The seed in a head that CF.SCANDUMP key 0 returned."""
    _, low, high, *_ = Cuckoo.HEADER.unpack_from(head, 24)
    return high << 64 | low


# ---- scripts --------------------------------------------------------------------------------------------------------

CALL = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"
PCALL = "return redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, 2))"
PCALL_RESP3 = f"redis.setresp(3) {PCALL}"
# A script that copies a filter with the given family's SCANDUMP and LOADCHUNK.
TRANSFER = """
local iterator = 0
repeat
    local piece = redis.pcall(ARGV[1] .. '.SCANDUMP', KEYS[1], iterator)
    if piece.err then return piece end
    iterator = piece[1]
    if iterator ~= 0 then
        local loaded = redis.pcall(ARGV[1] .. '.LOADCHUNK', KEYS[2], iterator, piece[2])
        if loaded.err then return loaded end
    end
until iterator == 0
return redis.status_reply('OK')
"""

# ---- the model ------------------------------------------------------------------------------------------------------

# The number of words in each command, which the servers themselves check; negative for a minimum.
ARITY = {
    "BF.RESERVE": -4, "BF.INSERT": -4, "BF.ADD": 3, "BF.MADD": -3, "BF.ADDNX": 3, "BF.EXISTS": 3, "BF.MEXISTS": -3,
    "BF.TEST": 3, "BF.DEL": 3, "BF.MDEL": -3, "BF.COUNT": 3, "BF.ROTATE": -2, "BF.AGE": -3,
    "BF.CLEAR": 2, "BF.CARD": 2, "BF.INFO": -2, "BF.STATS": 2, "BF.DEBUG": 2, "BF.SCANDUMP": 3, "BF.LOADCHUNK": 4,
    "CF.RESERVE": -3, "CF.ADD": 3, "CF.ADDNX": 3, "CF.INSERT": -4, "CF.INSERTNX": -4, "CF.EXISTS": 3,
    "CF.MEXISTS": -3, "CF.COUNT": 3, "CF.DEL": 3, "CF.COMPACT": 2, "CF.SCANDUMP": 3, "CF.LOADCHUNK": 4, "CF.INFO": 2,
    "CF.STATS": 2, "CF.DEBUG": 2,
}  # fmt: skip

# Methods for commands whose names can't be method names.
NAMES = {"DEL": "delete"}

NOT_FOUND = "ERR not found"
EXISTS = "ERR item exists"
MAX_CAPACITY = 1 << 48
TOO_LARGE = f"ERR capacity must be at most {MAX_CAPACITY}"
MAX_TIME = 1 << 62
GENERATIONS = "2 to 64 generations, with LAYOUT FINGERPRINT 2 to 1000"
ONLY_TABLES_ROTATE = (
    "ERR ONFULL ROTATE drops the oldest generation early, so it is only for WINDOW generations LAYOUT FINGERPRINT; "
    "use ONFULL ERROR or SATURATE"
)
I64 = (1 << 63) - 1


def expects(option: str, what: str) -> str:
    return f"ERR {option} expects {what}"


@dataclass
class Settings:
    """The module's options in CONFIG, without the prefix `bf-`."""

    error_rate: float = 0.01
    initial_size: int = 100
    expansion_factor: int = 2
    cf_bucket_size: int = 2
    cf_initial_size: int = 1024
    cf_max_iterations: int = 20
    cf_expansion_factor: int = 1
    cf_max_expansions: int = 32


@dataclass
class Model:
    """A server, which is empty at first, and its only client."""

    settings: Settings = field(default_factory=Settings)
    # Heads that the server's CF.SCANDUMP key 0 returned, in order, by key. If the module chooses a filter's seed, the
    # test dumps the filter before it does anything else with the key. So the model finds the seed in the next head.
    heads: defaultdict[bytes, deque] = field(default_factory=lambda: defaultdict(deque))
    keys: dict[bytes, object] = field(default_factory=dict)
    events: Counter = field(default_factory=Counter)
    # Whether an error inside an array makes the whole script fail, as on Valkey 9.
    errors_escape: bool = False
    queue: list | None = None
    aborted: bool = False
    now: int = field(default_factory=lambda: int(time.time() * 1000))

    # ---- the server's part

    def run(self, argv: list[bytes]):
        """The reply to a client's command."""
        name = argv[0].decode().upper()
        if name == "MULTI":
            self.queue, self.aborted = [], False
            return OK
        if name in ("EXEC", "DISCARD"):
            queue, self.queue = self.queue, None
            if name == "DISCARD":
                return OK
            if self.aborted:
                self.events["transaction aborted"] += 1
                return Error("EXECABORT Transaction discarded because of previous errors.")
            return [self.execute(argv) for argv in queue]
        if self.queue is None:
            return self.execute(argv)
        if not self.arity_holds(argv):
            self.aborted = True
            return self.execute(argv)
        self.queue.append(argv)
        return Simple("QUEUED")

    def arity_holds(self, argv) -> bool:
        arity = ARITY.get(argv[0].decode().upper(), -1)
        return len(argv) == arity if arity > 0 else len(argv) >= -arity

    def arity_error(self, argv) -> Error:
        return Error(f"ERR wrong number of arguments for '{argv[0].decode().lower()}' command")

    def execute(self, argv):
        name = argv[0].decode().upper()
        if not self.arity_holds(argv):
            return self.arity_error(argv)
        self.events[name] += 1
        try:
            return getattr(self, NAMES.get(name, name.replace(".", "_").lower()))(*argv[1:])
        except Refused as refused:
            # A refusal without a text stands for an arity error that the module itself has found.
            error = Error(refused.args[0]) if refused.args else self.arity_error(argv)
            self.events[error] += 1
            return error

    def eval(self, script, numkeys, *arguments):
        keys, arguments = arguments[: int(numkeys)], arguments[int(numkeys) :]
        script = script.decode()
        if script == TRANSFER:
            return self.transfer(*keys, arguments[0].decode())
        argv = [arguments[0], *keys, *arguments[1:]]
        if self.arity_holds(argv):
            reply = through_lua(self.execute(argv), script == PCALL_RESP3)
        else:
            reply = Error("ERR Wrong number of args calling <...>ommand from script")
        if self.errors_escape and isinstance(reply, list):
            reply = next((part for part in reply if isinstance(part, Error)), reply)
        if isinstance(reply, Error) and script == CALL:
            # In the error, some servers name the script by its digest.
            return Error(f"{reply} script: <...>on @user_script:1.")
        return reply

    def flushdb(self):
        self.keys.clear()
        return OK

    def set(self, key, value):
        self.keys[key] = value
        return OK

    def get(self, key):
        value = self.keys.get(key)
        return value if value is None or isinstance(value, bytes) else WRONGTYPE

    def type(self, key):
        if key not in self.keys:
            return Simple("none")
        return Simple("string" if isinstance(self.keys[key], bytes) else "bloomery1")

    def delete(self, *keys):
        return sum(self.keys.pop(key, None) is not None for key in keys)

    def exists(self, key):
        return int(key in self.keys)

    def copy(self, source, target, *replace):
        if source not in self.keys or (target in self.keys and not replace):
            return 0
        self.keys[target] = another(self.keys[source])
        return 1

    def rename(self, source, target):
        if source not in self.keys:
            return Error("ERR no such key")
        self.keys[target] = self.keys.pop(source)
        return OK

    # ---- keys

    def filter(self, key, kinds):
        """The key's filter, or None. Raises `Refused` if the key has a value of another kind."""
        value = self.keys.get(key)
        if value is not None and not isinstance(value, kinds):
            raise Refused(WRONGTYPE)
        return value

    def bloom(self, key):
        return self.filter(key, Bloom)

    def cuckoo(self, key):
        return self.filter(key, Cuckoo)

    def found(self, filter_):
        if filter_ is None:
            raise Refused(NOT_FOUND)
        return filter_

    # ---- BF: creating

    def error_rate(self, word) -> float:
        rate = number(word)
        if rate is None:
            raise Refused("ERR bad error rate")
        if not 0 < rate < 1:
            raise Refused("ERR error rate must be in the range (0.000000, 1.000000)")
        if rate < 1e-12:
            raise Refused("ERR error rate must be at least 1e-12")
        return rate

    def capacity(self, word) -> int:
        items = integer(word)
        if items is None:
            raise Refused("ERR bad capacity")
        if items < 1:
            raise Refused("ERR capacity must be in the range [1, 1073741824]")
        if items > MAX_CAPACITY:
            raise Refused(TOO_LARGE)
        return items

    def new_bloom(self, spec: BloomSpec):
        if spec.kind == "window":
            return Window(spec, self.now)
        return Chain(spec) if spec.kind == "scaling" else Fixed(spec)

    def spec_for(self, rate, items, expansion) -> BloomSpec:
        """The parameters of a filter that BF.ADD or BF.INSERT creates."""
        if expansion == 0:
            return BloomSpec(rate, items)
        return BloomSpec(rate, items, "scaling", "SCALE", expansion)

    def bf_reserve(self, key, rate, items, *words):
        rate, items = self.error_rate(rate), self.capacity(items)
        options = self.reserve_options(list(words))
        if "LIKE" in options:
            spec = self.like(options["LIKE"], rate, items)
        else:
            spec = self.family(options, rate, items)
            self.check_seed(options, spec.hash)
        if self.bloom(key):
            raise Refused(EXISTS)
        self.keys[key] = self.new_bloom(spec)
        return OK

    def reserve_options(self, words) -> dict:
        options, count = {}, len(words)

        def value(name, what, read):
            found = read(words.pop(0)) if words else None
            if found is None:
                raise Refused(expects(name, what))
            options[name] = found

        def one_of(*names):
            return lambda word: upper(word) if upper(word) in names else None

        while words:
            word = words.pop(0)
            name = upper(word)
            if name == "EXPANSION":
                if not words:
                    raise Refused("ERR no expansion")
                options[name] = integer(words.pop(0))
                if options[name] is None:
                    raise Refused("ERR bad expansion")
            elif name == "NONSCALING":
                options[name] = True
            elif name == "COUNTING":
                width = integer(words[0]) if words else None
                if width is not None:
                    words.pop(0)
                if width not in (None, 4, 8, 16):
                    raise Refused(expects(name, "4, 8 or 16 bits per counter"))
                options[name] = width or 4
            elif name == "WINDOW":
                value(name, GENERATIONS, lambda word: integer_in(word, 2, 1000))
            elif name == "EVERY":
                value(name, "the milliseconds between rotations, at least 1", lambda word: integer_in(word, 1, I64))
            elif name == "SINCE":
                value(name, "a Unix time in milliseconds", lambda word: integer_in(word, 0, MAX_TIME))
            elif name == "SHARDS":
                shards = {b"%d" % (1 << power): 1 << power for power in range(11)}
                value(name, "a power of two from 1 to 1024", shards.get)
            elif name == "LAYOUT":
                layouts = ("AUTO", "BLOCKED", "CLASSIC", "FINGERPRINT", "PARTITIONED")
                value(name, "AUTO, BLOCKED, CLASSIC, FINGERPRINT, FUSE, PARTITIONED or RIBBON", one_of(*layouts))
            elif name == "HASH":
                value(name, "XXH3 or SIPHASH", one_of("XXH3", "SIPHASH"))
            elif name == "SEED":
                value(name, "hexadecimal digits", lambda word: word)
            elif name == "TIGHTENING":
                what = "a ratio between 0 and 1, both excluded"
                value(name, what, lambda word: number(word) if 0 < (number(word) or 0) < 1 else None)
            elif name == "ONFULL":
                value(name, "ERROR, SATURATE, SCALE or ROTATE", one_of("ERROR", "SATURATE", "SCALE", "ROTATE"))
            elif name == "LIKE":
                value(name, "the key of a filter", lambda word: word)
                if count != 2:
                    raise Refused("ERR LIKE copies every option of the other filter, so no other options can be given")
            else:
                raise Refused(f"ERR unknown option '{printable(word)}'")
        return options

    def family(self, options, rate, items) -> BloomSpec:
        expansion, on_full = options.get("EXPANSION"), options.get("ONFULL")
        counting, window = "COUNTING" in options, "WINDOW" in options
        if "NONSCALING" in options and expansion is not None:
            raise Refused("Nonscaling filters cannot expand")
        if expansion is not None and not 0 <= expansion <= 32768:
            raise Refused("ERR expansion must be in the range [0, 32768]")
        if "EVERY" in options and not window:
            raise Refused("ERR EVERY belongs to WINDOW generations")
        if "SINCE" in options and "EVERY" not in options:
            raise Refused("ERR SINCE belongs to WINDOW generations EVERY milliseconds")
        if counting and window:
            raise Refused(
                "ERR COUNTING and WINDOW exclude each other: a window's items leave with their generation, not one by "
                "one"
            )
        scales = bool(expansion) or "TIGHTENING" in options or on_full == "SCALE"
        if scales and counting and options.get("LAYOUT") in ("BLOCKED", "CLASSIC", "PARTITIONED"):
            raise Refused(
                "ERR a filter of counters has a fixed capacity: a delete could not tell which layer holds the item, "
                "so COUNTING with EXPANSION, TIGHTENING or ONFULL SCALE needs LAYOUT FINGERPRINT"
            )
        if scales and window:
            raise Refused(
                "ERR a window's generations have a fixed capacity, so EXPANSION, TIGHTENING and ONFULL SCALE cannot be "
                "combined with WINDOW"
            )
        common = {
            "shards": options.get("SHARDS", 1),
            "layout": options.get("LAYOUT", "AUTO"),
            "hash": options.get("HASH", "XXH3"),
        }
        if window and options["WINDOW"] > 64:
            raise Refused(expects("WINDOW", GENERATIONS))
        if on_full == "ROTATE":
            raise Refused(ONLY_TABLES_ROTATE)
        if window:
            every = options.get("EVERY", 0)
            since = options.get("SINCE", self.now) if every else 0
            ring = {"generations": options["WINDOW"], "every": every, "since": since}
            return BloomSpec(rate, items, "window", on_full or "SATURATE", **ring, **common)
        if counting:
            return BloomSpec(rate, items, "counting", on_full or "ERROR", width=options["COUNTING"], **common)
        fixed = "NONSCALING" in options or expansion == 0 or on_full in ("ERROR", "SATURATE")
        if fixed and scales:
            raise Refused("Nonscaling filters cannot expand")
        if expansion is None:
            # A filter that was explicitly asked to scale does so, even if filters don't scale by default.
            expansion = self.settings.expansion_factor or (2 if scales else 0)
        if fixed or expansion == 0:
            return BloomSpec(rate, items, "fixed", on_full or "ERROR", **common)
        tightening = options.get("TIGHTENING")
        return BloomSpec(rate, items, "scaling", "SCALE", expansion, tightening, **common)

    def check_seed(self, options, hash_) -> int | None:
        if "SEED" not in options:
            return None
        digits = 32 if hash_ == "SIPHASH" else 16
        if not re.fullmatch(rb"[0-9a-fA-F]{1,%d}" % digits, options["SEED"]):
            raise Refused(expects("SEED", f"1 to {digits} hexadecimal digits for {hash_}"))
        return int(options["SEED"], 16)

    def like(self, key, rate, items) -> BloomSpec:
        other = self.bloom(key)
        if other is None:
            raise Refused("ERR LIKE names a key that holds no filter")
        spec = other.spec
        if (spec.rate, spec.capacity) != (rate, items):
            raise Refused(
                f"ERR the filter named by LIKE has error rate {decimal(spec.rate)} and capacity {spec.capacity}; "
                "use those"
            )
        return spec

    def bf_insert(self, key, *words):
        settings, words = self.settings, list(words)
        rate, items, expansion = settings.error_rate, settings.initial_size, settings.expansion_factor
        create, nonscaling = True, False

        def value(text, read):
            if not words:
                raise Refused()
            try:
                return read(words.pop(0))
            except Refused:
                raise Refused(text) from None

        def expansion_of(word):
            found = integer_in(word, 0, 32768)
            if found is None:
                raise Refused()
            return found

        while True:
            if not words:
                raise Refused()
            name = upper(words.pop(0))
            if name == "ITEMS":
                break
            if name == "CAPACITY":
                items = value("Bad capacity", self.capacity)
            elif name == "ERROR":
                rate = value("Bad error rate", self.error_rate)
            elif name == "EXPANSION":
                expansion = value("Bad expansion", expansion_of)
            elif name == "NOCREATE":
                create = False
            elif name == "NONSCALING":
                nonscaling = True
            else:
                raise Refused("Unknown argument received")
        if not words:
            raise Refused()
        if not self.bloom(key):
            if not create:
                raise Refused(NOT_FOUND)
            self.keys[key] = self.new_bloom(self.spec_for(rate, items, 0 if nonscaling else expansion))
        return self.bf_madd(key, *words)

    # ---- BF: items

    def bloom_to_add_to(self, key):
        filter_ = self.bloom(key)
        if filter_ is None:
            settings = self.settings
            spec = self.spec_for(settings.error_rate, settings.initial_size, settings.expansion_factor)
            filter_ = self.keys[key] = self.new_bloom(spec)
        return filter_

    def bf_add(self, key, item):
        return self.bloom_to_add_to(key).add(item, self.events)

    def bf_addnx(self, key, item):
        filter_ = self.bloom_to_add_to(key)
        return False if filter_.contains(item) else filter_.add(item, self.events)

    def bf_madd(self, key, *items):
        filter_, answers = self.bloom_to_add_to(key), []
        for item in items:
            try:
                answers.append(filter_.add(item, self.events))
            except Refused as refused:
                return [*answers, Error(refused)]
        return answers

    def bf_mexists(self, key, *items):
        filter_ = self.keys.get(key)
        return [isinstance(filter_, Bloom) and filter_.contains(item) for item in items]

    def bf_exists(self, key, item):
        return self.bf_mexists(key, item)[0]

    bf_test = bf_exists

    def counting(self, key):
        filter_ = self.bloom(key)
        if filter_ is not None and filter_.spec.kind != "counting":
            raise Refused(NOT_COUNTING)
        return filter_

    def bf_mdel(self, key, *items):
        filter_ = self.counting(key)
        return [filter_ is not None and filter_.remove(item, self.events) for item in items]

    def bf_del(self, key, item):
        return self.bf_mdel(key, item)[0]

    def bf_count(self, key, item):
        filter_ = self.counting(key)
        return filter_.counts.get(item, 0) if filter_ else 0

    def bf_age(self, key, item, *words):
        if len(words) > 1:
            raise Refused()
        if words:
            raise Refused("ERR BF.AGE expects an item, and MS or nothing")  # the tests never ask for milliseconds
        filter_ = self.bloom(key)
        if filter_ is None:
            return -1
        if not isinstance(filter_, Window):
            raise Refused(NOT_WINDOW)
        return filter_.age(item)

    # ---- BF: whole filters

    def bf_rotate(self, key, *words):
        filter_ = self.found(self.bloom(key))
        if not isinstance(filter_, Window):
            raise Refused(NOT_WINDOW)
        if words and (words[0].upper() != b"AT" or len(words) > 3):
            raise Refused()
        if words:
            raise Refused("ERR AT is for replication only; to rotate, use BF.ROTATE key")
        filter_.rotate()
        return OK

    def bf_clear(self, key):
        self.found(self.bloom(key)).clear()
        return OK

    def bf_card(self, key):
        filter_ = self.bloom(key)
        return cardinality(filter_) if filter_ else 0

    def bf_info(self, key, *words):
        if len(words) > 1:
            raise Refused()
        filter_ = self.found(self.bloom(key))
        fields = {
            "CAPACITY": Entry(("Capacity", capacity(filter_))),
            "SIZE": Entry(("Size", NUMBER)),
            "FILTERS": Entry(("Number of filters", len(filter_.layers()))),
            "ITEMS": Entry(("Number of items inserted", cardinality(filter_))),
            "EXPANSION": Entry(("Expansion rate", filter_.spec.expansion or None)),
        }
        if not words:
            return Map(fields.values())
        word = upper(words[0])
        if word not in fields:
            raise Refused("Invalid information value")
        return fields[word]

    def bf_stats(self, key):
        filter_ = self.found(self.bloom(key))
        spec = filter_.spec
        fields = Map([
            ("Kind", spec.kind.encode()),
            ("Origin", b"bloomery"),
            ("Layout", spec.layout.encode()),
            ("Hash", spec.hash.encode()),
            ("Shards", spec.shards),
            ("Bits per cell", spec.width),
            ("On full", spec.on_full.encode()),
            ("Error rate", Double(spec.rate)),
            ("Error rate now", FIGURE),
            ("Capacity", capacity(filter_)),
            ("Number of items inserted", cardinality(filter_)),
            ("Approximate number of items", NUMBER),
            ("Number of filters", len(filter_.layers())),
            ("Cells", NUMBER),
            ("Cells set", NUMBER),
            ("Fill", FIGURE),
            ("Size", NUMBER),
            ("Memory", NUMBER),
        ])  # fmt: skip
        if spec.kind == "scaling":
            tightening = None if spec.tightening is None else Double(spec.tightening)
            fields += [("Expansion rate", spec.expansion), ("Tightening ratio", tightening)]
        if spec.kind == "window":
            fields += [
                ("Generations", spec.generations),
                ("Generation", filter_.current()),
                ("Rotates every ms", spec.every or None),
                ("Next rotation in ms", NUMBER if spec.every else None),
            ]
        if spec.kind == "counting":
            fields.append(("Saturated counters", NUMBER))
        # tests/commands/feedback.rs tests these fields.
        fields += [
            *((name, NUMBER) for name in ("Tests answered yes", "Tests answered no", "Adds", "Deletes")),
            ("Feedback", Map((span, NO_FEEDBACK) for span in ("Minute", "Hour", "Life"))),
            ("Advice", LINES),
        ]
        fields.append(("Layers", [self.layer_info(*layer) for layer in filter_.alive()]))
        fields += [("Rebuild", None), ("Identity", BYTES)]
        return fields

    def layer_info(self, age, items, size) -> Map:
        return Map([
            *([] if age is None else [("Age", age)]),
            ("Layout", BYTES),
            ("Capacity", items),
            ("Number of items inserted", size),
            ("Error rate", FIGURE),
            ("Error rate now", FIGURE),
            ("Cells", NUMBER),
            ("Probes", NUMBER),
            ("Fill", FIGURE),
        ])  # fmt: skip

    def bf_debug(self, key):
        filter_ = self.found(self.bloom(key))
        line = b"$<n>\r\nbytes:<n> bits:<n> hashes:<n> hashwidth:64 capacity:%d size:%d ratio:<f>\r\n"
        lines = [Wire(line % layer) for layer in filter_.layers()]
        return [b"size:%d" % cardinality(filter_), *lines]

    def bf_scandump(self, key, iterator):
        self.found(self.bloom(key))
        iterator = integer(iterator)
        if iterator is None:
            raise Refused("Second argument must be numeric")
        if iterator in (0, 1):
            return [1 if iterator == 0 else NUMBER, BYTES]
        return [0, b""]  # the model's filters are so small that they end before any other iterator in the tests

    def bf_loadchunk(self, key, iterator, data):
        iterator = integer(iterator)
        if iterator is None:
            raise Refused("ERR Second argument must be numeric")
        if self.bloom(key):
            if 9 < iterator < 1 << 20:
                raise Refused("ERR <...>")  # the model doesn't know where the filter ends
            raise Refused("ERR received bad data" if iterator <= 9 else "ERR invalid offset - no link found")
        if iterator == 1:
            why = ": wrong length of the head" if data.startswith(b"BLMY") else ""
            raise Refused(f"ERR received bad data{why}")
        raise Refused(NOT_FOUND)

    # ---- CF

    def new_cuckoo(self, key, spec: CuckooSpec, seed: int | None):
        """Creates a filter. If no seed is given, the filter gets the seed that the server chose, which is in the key's
        next head."""
        if seed is None:
            seed = seed_in(self.heads[key][0])
        filter_ = self.keys[key] = Cuckoo(CuckooSpec(**{**vars(spec), "seed": seed}))
        return filter_

    def cuckoo_spec(self) -> CuckooSpec:
        settings = self.settings
        expansion = settings.cf_expansion_factor and next_power_of_two(settings.cf_expansion_factor)
        return CuckooSpec(settings.cf_initial_size, settings.cf_bucket_size, settings.cf_max_iterations, expansion)

    def cf_reserve(self, key, items, *words):
        if len(words) % 2:
            raise Refused()
        items = integer(items)
        if items is None:
            raise Refused("Bad capacity")
        chosen, options = vars(self.cuckoo_spec()).copy(), {}
        largest = min(255, self.settings.cf_initial_size // 2)
        bounds = {
            "BUCKETSIZE": ("bucket_size", 1, largest),
            "MAXITERATIONS": ("max_iterations", 1, 65535),
            "EXPANSION": ("expansion", 0, 32768),
        }
        for word, value in zip(words[::2], words[1::2], strict=True):
            name = upper(word)
            if name in bounds:
                into, low, high = bounds[name]
                chosen[into] = integer(value)
                if chosen[into] is None:
                    raise Refused(f"Couldn't parse {name}")
                if not low <= chosen[into] <= high:
                    raise Refused(f"{name}: value must be in the range [{low}, {high}]")
            elif name == "HASH":
                chosen["hash"] = upper(value)
                if chosen["hash"] not in ("XXH3", "SIPHASH"):
                    raise Refused(expects(name, "XXH3 or SIPHASH"))
            elif name == "SEED":
                options["SEED"] = value
            else:
                raise Refused(f"ERR unknown option '{printable(word)}'")
        if items < 2 * chosen["bucket_size"]:
            raise Refused("Capacity must be in the range [2 * BUCKETSIZE, 1073741824]")
        if items > MAX_CAPACITY:
            raise Refused(TOO_LARGE)
        seed = self.check_seed(options, chosen["hash"])
        if self.cuckoo(key):
            raise Refused(EXISTS)
        chosen["expansion"] = chosen["expansion"] and next_power_of_two(chosen["expansion"])
        self.new_cuckoo(key, CuckooSpec(**{**chosen, "capacity": items}), seed)
        return OK

    def cuckoo_to_add_to(self, key):
        return self.cuckoo(key) or self.new_cuckoo(key, self.cuckoo_spec(), None)

    def cf_add(self, key, item):
        self.cuckoo_to_add_to(key).add(item, self.settings.cf_max_expansions, self.events)
        return True

    def cf_addnx(self, key, item):
        if self.cuckoo_to_add_to(key).contains(item):
            return False
        return self.cf_add(key, item)

    def insertion(self, key, words):
        """Parses CF.INSERT's words, creates the filter if necessary, and returns the items."""
        items, create, words = None, True, list(words)
        while True:
            if not words:
                raise Refused()
            name = upper(words.pop(0))
            if name == "ITEMS":
                break
            if name == "CAPACITY":
                if not words:
                    raise Refused()
                items = integer(words.pop(0))
                if items is None:
                    raise Refused("Bad capacity")
                if items < 2 * self.settings.cf_bucket_size:
                    raise Refused("Capacity must be in the range [cf-bucket-size * 2, 1073741824]")
            elif name == "NOCREATE":
                create = False
            else:
                raise Refused("Unknown argument received")
        if not words:
            raise Refused()
        if items is not None and items > MAX_CAPACITY:
            raise Refused(TOO_LARGE)
        if not self.cuckoo(key):
            if not create:
                raise Refused(NOT_FOUND)
            spec = vars(self.cuckoo_spec())
            self.new_cuckoo(key, CuckooSpec(**{**spec, "capacity": items or spec["capacity"]}), None)
        return words

    def cf_insert(self, key, *words):
        answers = []
        for item in self.insertion(key, words):
            try:
                answers.append(Placed(self.cf_add(key, item)))
            except Refused:
                answers.append(Placed(False))
        return answers

    def cf_insertnx(self, key, *words):
        answers = []
        for item in self.insertion(key, words):
            try:
                answers.append(int(self.cf_addnx(key, item)))
            except Refused:
                answers.append(-1)
        return answers

    def asked(self, key):
        """The key's filter, for commands that treat a key of another type like a missing key."""
        value = self.keys.get(key)
        return value if isinstance(value, Cuckoo) else None

    def cf_mexists(self, key, *items):
        filter_ = self.asked(key)
        return [filter_ is not None and filter_.contains(item) for item in items]

    def cf_exists(self, key, item):
        return self.cf_mexists(key, item)[0]

    def cf_count(self, key, item):
        filter_ = self.asked(key)
        return filter_.count(item) if filter_ else 0

    def cf_del(self, key, item):
        filter_ = self.asked(key)
        if filter_ is None:
            raise Refused("Not found")
        return filter_.remove(item, self.events)

    def cf_compact(self, key):
        filter_ = self.asked(key)
        if filter_ is None:
            raise Refused("Cuckoo filter was not found")
        filter_.compact(True, self.events)
        return OK

    def cf_info(self, key):
        return Map(self.cf_info_fields(self.found(self.cuckoo(key))))

    def cf_stats(self, key):
        filter_ = self.found(self.cuckoo(key))
        return Map([
            *self.cf_info_fields(filter_),
            ("Origin", b"bloomery"),
            ("Hash", filter_.spec.hash.encode()),
            ("Error rate", FIGURE),
            ("Error rate now", FIGURE),
            ("Capacity", NUMBER),
            ("Fill", FIGURE),
            ("Fill when full", FIGURE),
            ("Advice", LINES),
            ("Identity", BYTES),
        ])  # fmt: skip

    def cf_info_fields(self, filter_) -> list:
        return [
            ("Size", NUMBER),
            ("Number of buckets", filter_.first_buckets()),
            ("Number of filters", len(filter_.tables)),
            ("Number of items inserted", filter_.items()),
            ("Number of items deleted", filter_.deletes),
            ("Bucket size", filter_.spec.bucket_size),
            ("Expansion rate", filter_.spec.expansion),
            ("Max iterations", filter_.spec.max_iterations),
        ]  # fmt: skip

    def cf_debug(self, key):
        filter_ = self.found(self.cuckoo(key))
        spec = filter_.spec
        text = (
            f"bktsize:{spec.bucket_size} buckets:{filter_.first_buckets()} items:{filter_.items()} "
            f"deletes:{filter_.deletes} filters:{len(filter_.tables)} max_iterations:{spec.max_iterations} "
            f"expansion:{spec.expansion}"
        )
        return text.encode()

    def cf_scandump(self, key, iterator):
        iterator = integer_in(iterator, 0, I64)
        if iterator is None:
            raise Refused("Invalid position")
        filter_ = self.found(self.cuckoo(key))
        if iterator == 0:
            head = self.heads[key].popleft() if self.heads[key] else None
            if len(filter_.tables) > 1:
                filter_.dump_number = dump_number_in(head) if head else None
            return [1, BYTES if filter_.dump_number is None else filter_.head()]
        chunk = filter_.chunk(iterator - 1)
        shown = BYTES if filter_.dump_number is None else chunk
        return [iterator + len(chunk) - 20, shown] if chunk else [0, None]

    def cf_loadchunk(self, key, iterator, data):
        iterator = integer_in(iterator, 1, I64)
        if iterator is None:
            raise Refused("Invalid position")
        if self.cuckoo(key):
            raise Refused(EXISTS if iterator == 1 else "Couldn't load chunk!: the filter is complete already")
        if iterator == 1:
            why = ": wrong length of the head" if data.startswith(b"BLMY") else ""
            raise Refused(f"Invalid header{why}")
        raise Refused(NOT_FOUND)

    # ---- both

    def transfer(self, source, target, family):
        """Does what the script TRANSFER does, and returns its reply."""
        find = self.bloom if family == "BF" else self.cuckoo
        try:
            filter_ = self.found(find(source))
            if find(target):
                raise Refused("ERR received bad data" if family == "BF" else EXISTS)
        except Refused as refused:
            return Error(refused)
        self.keys[target] = another(filter_)
        self.events["transfer"] += 1
        return OK
