"""Cuckoo filters, and the commands CF.*: fingerprints in buckets, by the rules of src/filter/cuckoo."""

import copy
import struct
from dataclasses import dataclass
from functools import partial

import xxhash

from kit.model.bloom import MAX_CAPACITY
from kit.model.replies import (
    BYTES, FIGURE, LINES, NUMBER, OK, Map, Placed, Refused, Words, integer, next_power_of_two, one_of, seed, upper,
)  # fmt: skip
from kit.wire_format import MASK, crc32c, siphash128

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
            raise Refused()
        if len(self.tables) >= most_tables:
            events["cuckoo expanded to the limit"] += 1
            raise Refused()
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


# ---- commands -------------------------------------------------------------------------------------------------------

# CF.RESERVE's options, and how each is read. SEED depends on HASH.
OPTIONS = {
    "BUCKETSIZE": ("bucket_size", partial(integer, low=1)),
    "MAXITERATIONS": ("max_iterations", partial(integer, low=1, high=65535)),
    "EXPANSION": ("expansion", partial(integer, low=0, high=32768)),
    "HASH": ("hash", one_of("XXH3", "SIPHASH")),
    "SEED": ("seed", bytes),
}


class CuckooCommands:
    """The part of the model that answers the commands CF.*."""

    def cuckoo(self, key):
        return self.filter(key, Cuckoo)

    def new_cuckoo(self, key, parameters: dict):
        """Creates a filter. If no seed is given, the filter gets the seed that the server chose, which is in the key's
        next head."""
        if "seed" not in parameters:
            parameters["seed"] = seed_in(self.heads[key][0])
        filter_ = self.keys[key] = Cuckoo(CuckooSpec(**parameters))
        return filter_

    def cuckoo_defaults(self) -> dict:
        settings = self.settings
        return {
            "capacity": settings.cf_initial_size,
            "bucket_size": settings.cf_bucket_size,
            "max_iterations": settings.cf_max_iterations,
            "expansion": settings.cf_expansion_factor and next_power_of_two(settings.cf_expansion_factor),
        }

    def cf_reserve(self, key, items, *words):
        words, chosen = Words(words), self.cuckoo_defaults() | {"capacity": integer(items, high=MAX_CAPACITY)}
        while words:
            name = words.take(upper)
            if name not in OPTIONS:
                raise Refused()
            into, read = OPTIONS[name]
            chosen[into] = words.take(read)
        if chosen["bucket_size"] > min(255, self.settings.cf_initial_size // 2):
            raise Refused()
        if chosen["capacity"] < 2 * chosen["bucket_size"]:
            raise Refused()
        if "seed" in chosen:
            chosen["seed"] = seed(chosen["seed"], chosen.get("hash", "XXH3"))
        if self.cuckoo(key):
            raise Refused()
        chosen["expansion"] = chosen["expansion"] and next_power_of_two(chosen["expansion"])
        self.new_cuckoo(key, chosen)
        return OK

    def cuckoo_to_add_to(self, key):
        return self.cuckoo(key) or self.new_cuckoo(key, self.cuckoo_defaults())

    def cf_add(self, key, item):
        self.cuckoo_to_add_to(key).add(item, self.settings.cf_max_expansions, self.events)
        return True

    def cf_addnx(self, key, item):
        if self.cuckoo_to_add_to(key).contains(item):
            return False
        return self.cf_add(key, item)

    def insertion(self, key, words):
        """Parses CF.INSERT's words, creates the filter if necessary, and returns the items."""
        words, chosen, create = Words(words), self.cuckoo_defaults(), True
        while (name := words.take(upper)) != "ITEMS":
            if name == "CAPACITY":
                chosen["capacity"] = words.take(partial(integer, low=2 * chosen["bucket_size"], high=MAX_CAPACITY))
            elif name == "NOCREATE":
                create = False
            else:
                raise Refused()
        if not words:
            raise Refused()
        if not self.cuckoo(key):
            if not create:
                raise Refused()
            self.new_cuckoo(key, chosen)
        return words.left

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
            raise Refused()
        return filter_.remove(item, self.events)

    def cf_compact(self, key):
        filter_ = self.asked(key)
        if filter_ is None:
            raise Refused()
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
            *([("Capacity reserved", NUMBER)] if filter_.spec.expansion else []),
            ("Fill", FIGURE),
            ("Fill when full", FIGURE),
            ("Adds refused", Map((why, NUMBER) for why in ("Full", "Limit", "Memory"))),
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
        iterator = integer(iterator, 0)
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
        integer(iterator, 1)
        self.cuckoo(key)
        raise Refused()
