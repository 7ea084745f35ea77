"""Reads Bloomery's filters, including those imported from other systems, from their bytes alone. This is a second
implementation, written from the format's description and not from the code, with only the standard library and an
XXH3 that isn't ours.

    python wire_format.py FILE [ITEM...]    prints what is in the file, and the answer for each item

It is written for readability: slow, complete, and without tricks.
"""

import math
import re
import struct
import sys
from dataclasses import dataclass, field

import xxhash

MASK = (1 << 64) - 1
MASK32 = (1 << 32) - 1
POSITIVE = MASK >> 1  # a Java long without its sign
GOLDEN = 0x9E3779B97F4A7C15
MURMUR = 0xC4CEB9FE1A85EC53
SPREAD = 0x5BD1E995
BLOCK_BITS = 512
MAX_CHUNK = 16 << 20
POSITION_BITS = 51

FIXED, CHAIN, WINDOW, CUCKOO, FOREIGN, REBUILD = 1, 2, 3, 4, 5, 6
XXH3, SIPHASH = 1, 2
CUCKOO_REDISBLOOM, CUCKOO_REDISBLOOM_1 = 3, 4
CLASSIC, BLOCKED, QUOTIENT, FUSE, LIST, RIBBON, PARTITIONED = 1, 2, 3, 4, 5, 6, 7
BUILT = FUSE, RIBBON
STATIC = *BUILT, LIST
CELL_WIDTHS = (1, 4, 8, 16)
GO_ZERO, BLOOM_V3, GUAVA_64, GUAVA_32, REDISSON, REDISBLOOM, VALKEY_BLOOM, SBBF = range(1, 9)
FULL, FULL_OR_CUT, NARROW, NARROW_EITHER = range(4)
BYTES, UTF16, LONG, INT, JSON, KRYO5 = range(6)

ENVELOPE = struct.Struct("<4sBBHIQI")
FILTER_HEADER = struct.Struct("<QdQQBBBBHHIIdQQQQQ")
LAYER_HEADER = struct.Struct("<QdQQII")
CUCKOO_HEADER = struct.Struct("<QQQQQBBHHHII")
FOREIGN_HEADER = struct.Struct("<BBBBIII32sdd")
LINK_HEADER = struct.Struct("<QQQQQddII")
REBUILD_HEADER = struct.Struct("<QIBBH")
CHUNK_PREFIX = struct.Struct("<QIII")


class BadFilter(ValueError):
    """The bytes aren't a filter."""


def need(condition, what):
    if not condition:
        raise BadFilter(what)


# ---- hashes ---------------------------------------------------------------------------------------------------------


def crc32c_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


CRC_TABLE = list(crc32c_table())


def crc32c(data):
    """CRC-32C (Castagnoli), reflected, as in iSCSI: crc32c(b"123456789") == 0xE3069283."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def rotate(x, bits):
    return (x << bits | x >> 64 - bits) & MASK


def siphash(key_low, key_high, data, mark=0, compress=1, finish=3):
    """Runs SipHash (Aumasson, Bernstein) up to its output. Returns the state, and the function that mixes the state."""
    v = [
        key_low ^ 0x736F6D6570736575,
        key_high ^ 0x646F72616E646F6D ^ mark,
        key_low ^ 0x6C7967656E657261,
        key_high ^ 0x7465646279746573,
    ]

    def rounds(count):
        v0, v1, v2, v3 = v
        for _ in range(count):
            v0 = (v0 + v1) & MASK
            v1 = rotate(v1, 13) ^ v0
            v0 = rotate(v0, 32)
            v2 = (v2 + v3) & MASK
            v3 = rotate(v3, 16) ^ v2
            v0 = (v0 + v3) & MASK
            v3 = rotate(v3, 21) ^ v0
            v2 = (v2 + v1) & MASK
            v1 = rotate(v1, 17) ^ v2
            v2 = rotate(v2, 32)
        v[:] = v0, v1, v2, v3

    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(compress)
        v[0] ^= word
    v[2] ^= mark or 0xFF
    rounds(finish)
    return v, rounds


def siphash64(key_low, key_high, data, compress=1, finish=3):
    """SipHash with 64 bits of output."""
    v, _ = siphash(key_low, key_high, data, 0, compress, finish)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def siphash128(key_low, key_high, data, compress=1, finish=3):
    """SipHash with 128 bits of output, as two words in order."""
    v, rounds = siphash(key_low, key_high, data, 0xEE, compress, finish)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(finish)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


def murmur2(data, seed):
    """MurmurHash2 (Appleby), 32 bits."""
    h = seed ^ len(data) & MASK32
    whole = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * SPREAD & MASK32
        word = (word ^ word >> 24) * SPREAD & MASK32
        h = h * SPREAD & MASK32 ^ word
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * SPREAD & MASK32
    h = (h ^ h >> 13) * SPREAD & MASK32
    return h ^ h >> 15


def murmur64a(data, seed):
    """MurmurHash64A (Appleby)."""
    m = 0xC6A4A7935BD1E995
    h = seed ^ len(data) * m & MASK
    whole = len(data) - len(data) % 8
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        word = word * m & MASK
        h = (h ^ (word ^ word >> 47) * m & MASK) * m & MASK
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & MASK
    h = (h ^ h >> 47) * m & MASK
    return h ^ h >> 47


def finish(h):
    """MurmurHash3's finalizer."""
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
    h = (h ^ h >> 33) * MURMUR & MASK
    return h ^ h >> 33


def murmur3(data):
    """MurmurHash3 (Appleby) for 64-bit machines with seed 0, as two words in order."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
        h1 = (rotate(h1, 27) + h2) * 5 + 0x52DCE729 & MASK
        h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
        h2 = (rotate(h2, 31) + h1) * 5 + 0x38495AB5 & MASK
    k1, k2 = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
    h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK

    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & MASK
    h2 = h2 + h1 & MASK
    h1, h2 = finish(h1), finish(h2)
    h1 = h1 + h2 & MASK
    return h1, h2 + h1 & MASK


def highwayhash128(key, data):
    """HighwayHash (Alakuijala, Cox, Wassenberg) with 128 bits of output, as two words in order."""
    mul0 = [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3]
    mul1 = [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377]
    v0 = [mul ^ lane for mul, lane in zip(mul0, key, strict=True)]
    v1 = [mul ^ rotate(lane, 32) for mul, lane in zip(mul1, key, strict=True)]

    def zipper(low, high):
        """Mixes the bytes of two lanes."""
        source = struct.pack("<QQ", low, high)
        return struct.unpack("<QQ", bytes(source[i] for i in (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)))

    def update(lanes):
        for i in range(4):
            v1[i] = v1[i] + mul0[i] + lanes[i] & MASK
            mul0[i] ^= (v1[i] & MASK32) * (v0[i] >> 32)
            v0[i] = v0[i] + mul1[i] & MASK
            mul1[i] ^= (v0[i] & MASK32) * (v1[i] >> 32)
        for to, source in ((v0, v1), (v1, v0)):
            for i in (0, 2):
                low, high = zipper(source[i], source[i + 1])
                to[i], to[i + 1] = to[i] + low & MASK, to[i + 1] + high & MASK

    whole = len(data) - len(data) % 32
    for lanes in struct.iter_unpack("<4Q", data[:whole]):
        update(lanes)
    if rest := data[whole:]:
        size = len(rest)
        for i in range(4):
            v0[i] = v0[i] + (size << 32 | size) & MASK
            halves = (v1[i] & MASK32, v1[i] >> 32)
            low, high = ((half << size | half >> 32 - size) & MASK32 for half in halves)
            v1[i] = high << 32 | low
        packet = bytearray(rest[: size & ~3].ljust(32, b"\0"))
        behind = rest[size & ~3 :]
        if size & 16:
            packet[28:32] = rest[-4:]
        elif behind:
            packet[16:19] = behind[0], behind[len(behind) // 2], behind[-1]
        update(struct.unpack("<4Q", packet))
    for _ in range(6):
        update([rotate(v0[i], 32) for i in (2, 3, 0, 1)])
    return tuple(v0[i] + mul0[i] + v1[i + 2] + mul1[i + 2] & MASK for i in (0, 1))


# ---- probes ---------------------------------------------------------------------------------------------------------


def mix(x):
    return (x ^ x >> 32) * GOLDEN & MASK


def scale(random, n):
    """Maps 64 random bits to 0..n."""
    return random * n >> 64


@dataclass
class Layer:
    capacity: int
    error_rate: float
    cells: int
    items: int
    probes: int
    layout: int
    shards: int
    width: int
    generations: int = 0  # number of generations that share the layer
    newest: int = 0  # the newest of these generations
    data: bytes = b""
    leaves: dict = field(default_factory=dict)  # by the bits with which their hashes begin, and the number of these

    @property
    def bytes(self):
        if self.layout == QUOTIENT:
            return 1 << POSITION_BITS
        if self.layout == FUSE:
            return ((self.cells * self.probes + 63) // 64 + 1) * 8
        if self.layout == RIBBON:
            return (self.ribbon_word(self.cells // 64) + 1) * 8
        if self.layout == LIST:
            return self.cells * 8
        return self.cells * self.width // 8

    @property
    def payload(self):
        """The number of bits in a cell for a count or a generation number."""
        if self.generations:
            return (self.generations + (self.generations + 3) // 4 - 1).bit_length()
        return 0 if self.width == 1 else self.width

    def check_table(self):
        need(self.shards == 1, "shards of a table")
        need(1 <= self.cells <= 1 << 40 and (self.probes == 10 or self.cells == 1 and self.probes < 10), "leaves")

    def read_leaves(self, data, position):
        """Reads leaves, the first of which begins at a position. Returns the position at which the last one ends."""
        at = 0
        while at < len(data):
            leaf, at = read_leaf(data, at, self)
            step = 1 << POSITION_BITS >> leaf.depth
            need(position % step == 0 and position < 1 << POSITION_BITS, "position of a leaf")
            prefix = reversed_bits(position // step, leaf.depth)
            self.leaves[leaf.depth, prefix] = leaf
            position += step
        return position

    def find(self, low, high):
        """The leaf to which an item belongs, and the payload of the item's cell, or None."""
        bits = high << 64 | low
        for depth in {depth for depth, _ in self.leaves}:
            if leaf := self.leaves.get((depth, bits & (1 << depth) - 1)):
                return leaf, leaf.find(bits)
        raise BadFilter("no leaf for an item")

    def table_count(self, low, high):
        _, payload = self.find(low, high)
        return 0 if payload is None else payload or 1

    def age(self, low, high, current):
        """An item's age in a layer that generations share, or None if the item is absent. Its generation is, of those
        that are possible in the leaf, the latest one whose lowest bits are in the cell."""
        leaf, payload = self.find(low, high)
        if payload is None:
            return None
        latest = leaf.cleaned + 2**self.payload - self.generations
        generation = latest - (latest - payload) % 2**self.payload
        is_alive = generation >= current - self.generations + 1
        return max(0, current - generation) if is_alive else None

    def word(self, number):
        return int.from_bytes(self.data[number * 8 : number * 8 + 8], "little")

    def check_static(self):
        need(self.shards == 1 and self.width == 1, "shards or counters of a static filter")
        need(self.items <= self.capacity, "more items than a static filter is made for")
        if self.layout == LIST:
            need(self.probes == 1 and self.cells == self.capacity <= 1 << 43, "cells of a list")
        elif self.layout == RIBBON:
            columns = next((r for r in range(1, 33) if 0.5**r <= self.error_rate), None)
            need(self.probes == columns, "columns")
            need(192 <= self.cells <= 1 << 46 and self.cells % 64 == 0, "rows")
        else:
            need(4 <= self.probes <= 32, "bits of a cell")
            need(self.cells >= 12 and self.cells % 4 == 0, "cells of a static filter")

    @property
    def description(self):
        """For a fuse filter: the number of segments in which an item can begin, the number of cells in a segment, and
        the number of rounds of mixing."""
        word = self.description_word
        return word >> 16, 1 << (word >> 8 & 0xFF), word & 0xFF

    @property
    def wide(self):
        """For a ribbon filter: the number of blocks that have all columns."""
        blocks = self.cells // 64
        share = min(2 - self.error_rate * 2**self.probes, 1)
        return min(math.ceil((blocks - 2) * share) + 2, blocks)

    def ribbon_word(self, block):
        """The index of a block's first word."""
        return block * (self.probes - 1) + min(block, self.wide)

    def ribbon_contains(self, high):
        rounds = self.description_word & 0xFF
        for _ in range(rounds):
            high = finish(high)
        near = high * GOLDEN & MASK
        far = (high ^ high >> 32) * MURMUR & MASK
        start = scale(high, self.cells - 128)
        rows = (far ^ far >> 32) << 64 | near ^ near >> 32 | 1
        fingerprint = ((near ^ far >> 1) * MURMUR & MASK) >> 32
        blocks = range(start // 64, start // 64 + 3)
        for column in range(self.probes - (blocks[-1] >= self.wide)):
            words = [self.word(self.ribbon_word(block) + column) for block in blocks]
            bits = sum(word << 64 * place for place, word in enumerate(words)) >> start % 64
            if (bits & rows).bit_count() % 2 != fingerprint >> column & 1:
                return 0
        return int(rounds > 0)

    @property
    def description_word(self):
        return int.from_bytes(self.data[-8:], "little")

    def check_description(self):
        if self.layout == RIBBON:
            word = self.description_word
            need(word >> 8 == self.cells // 64, "blocks that are not the rows")
            need(word & 0xFF <= 64 and (word & 0xFF == 0) == (self.items == 0), "rounds of mixing")
            return
        starts, segment, rounds = self.description
        need(segment in {1 << i for i in range(2, 19)}, "cells of a segment")
        need((starts + 2) * segment == self.cells, "segments that are not the cells")
        need(rounds <= 64 and (rounds == 0) == (self.items == 0), "rounds of mixing")

    def fuse_contains(self, high):
        starts, segment, rounds = self.description
        for _ in range(rounds):
            high = finish(high)
        offsets = high * GOLDEN & MASK
        first = scale(high, starts * segment)
        second = first + segment ^ (offsets >> 44) % segment
        third = first + 2 * segment ^ (offsets >> 24) % segment
        content = int.from_bytes(self.data, "little")
        cells = [content >> cell * self.probes & (1 << self.probes) - 1 for cell in (first, second, third)]
        fingerprint = ((high ^ high >> 32) * MURMUR & MASK) >> 64 - self.probes
        return int(rounds > 0 and cells[0] ^ cells[1] ^ cells[2] == fingerprint)

    def check(self):
        if self.layout == QUOTIENT:
            self.check_table()
        if self.layout in STATIC:
            self.check_static()
        words = {BLOCKED: BLOCK_BITS // 64, PARTITIONED: self.probes}.get(self.layout, 1)
        unit = words * 64 // self.width
        need(1 <= self.capacity <= 1 << 48, "layer capacity")
        need(0 < self.error_rate < 1, "layer error rate")
        need(CLASSIC <= self.layout <= PARTITIONED, "layer layout")
        need(self.layout == QUOTIENT or 1 <= self.probes <= 72, "probes")
        need(self.cells > 0 and (self.layout == QUOTIENT or self.bytes <= 1 << 46), "cells")
        need(
            self.layout in (QUOTIENT, *STATIC) or self.cells % (unit * self.shards) == 0,
            "cells are no whole number of words, blocks or slices a shard",
        )
        need(self.items <= 1 << 48, "items")

    def value(self, cell):
        """The value of a cell. Cell i is in the 64-bit little-endian word i·width/64, rounded down. The first cell of a
        word is in the word's lowest bits."""
        bit = cell * self.width
        (word,) = struct.unpack_from("<Q", self.data, bit // 64 * 8)
        return word >> bit % 64 & (1 << self.width) - 1

    def probe_cells(self, low, high):
        """The cells of an item. A layer stores its shards one after the other."""
        per_shard = self.cells // self.shards
        shard = low & self.shards - 1
        position = low >> 10 << 10
        if self.layout == CLASSIC:
            for _ in range(self.probes):
                yield shard * per_shard + scale(mix(position), per_shard)
                position = position + (high | 1) & MASK
            return
        if self.layout == PARTITIONED:
            per_slice = per_shard // self.probes
            for probe in range(self.probes):
                point = mix(position + probe * (high | 1) & MASK)
                yield shard * per_shard + probe * per_slice + scale(point, per_slice)
            return
        per_block = BLOCK_BITS // self.width
        block = shard * per_shard + scale(position, per_shard // per_block) * per_block
        source = high
        for probe in range(self.probes):
            if probe and probe % 7 == 0:
                source = mix(source)
            yield block + (source >> probe % 7 * 9) % per_block

    def count(self, low, high):
        if self.layout == QUOTIENT:
            return self.table_count(low, high)
        if self.layout == FUSE:
            return self.fuse_contains(high)
        if self.layout == RIBBON:
            return self.ribbon_contains(high)
        if self.layout == LIST:
            return 0  # a list answers no tests
        return min(self.value(cell) for cell in self.probe_cells(low, high))

    def ones(self):
        if self.layout in (QUOTIENT, *STATIC):
            return self.items
        return sum(self.value(cell) > 0 for cell in range(self.cells))


# ---- leaves ---------------------------------------------------------------------------------------------------------


def reversed_bits(number, bits):
    return int(f"{number:0{bits}b}"[::-1], 2) if bits else 0


@dataclass
class Leaf:
    """The cells of a table whose hashes begin with the same bits."""

    depth: int  # number of these bits
    log2_quotients: int
    cleaned: int  # the generation at which the cells of expired generations were last freed
    runs: list  # for each quotient, its cells: the remainder's bits with a 1 after the last one, and the payload

    def find(self, bits):
        """The payload of the cell that has the first bits of a hash, or None."""
        quotient = bits >> self.depth & (1 << self.log2_quotients) - 1
        rest = bits >> self.depth + self.log2_quotients
        return next((payload for remainder, payload in self.runs[quotient] if is_prefix(remainder, rest)), None)


def is_prefix(remainder, bits):
    return (remainder ^ bits) & (1 << remainder.bit_length() - 1) - 1 == 0


def read_leaf(data, at, layer):
    """A leaf, and where it ends."""

    def take(bits):
        nonlocal at
        start, at = at, at + (bits + 63) // 64 * 8
        need(at <= len(data), "a leaf is cut short")
        return int.from_bytes(data[start:at], "little")

    head = take(64)
    cells, width, is_marked = head & 0xFFFF, head >> 16 & 0xFF, head >> 24 & 1
    depth, log2_quotients = head >> 32 & 0xFF, head >> 40 & 0xFF
    need(head & 0xFFFF_0000_FE00_0000 == 0, "bits of a leaf's head")
    need(cells <= 1 << 14 and depth <= 40 and log2_quotients <= 10 and width < 64, "a leaf's head")
    runs = [[] for _ in range(1 << log2_quotients)]
    if cells == 0:
        need(width == is_marked == 0, "width of no cells")
        return Leaf(depth, log2_quotients, 0, runs), at

    cleaned = take(64) if layer.generations else 0
    need(cleaned <= layer.newest, "a leaf cleaned in the future")
    ends = take(len(runs) + cells)
    words = (cells * width + 63) // 64 * 64
    content = take(words)
    need(content & (1 << words - cells * width) - 1 == 0, "padding before the last cell")
    quotient = read = 0
    for _ in range(len(runs) + cells):
        if ends & 1:
            need(read < cells and quotient < len(runs), "cells of a quotient")
            read += 1
            cell = content >> words - read * width & (1 << width) - 1
            remainder, payload = cell & (1 << width - layer.payload) - 1, cell >> width - layer.payload
            need(remainder > 0 or not is_marked, "a remainder without a mark")
            remainder |= 0 if is_marked else 1 << width - layer.payload
            runs[quotient].append((remainder, payload))
        else:
            quotient += 1
        ends >>= 1
    need(read == cells and ends == 0, "cells of the quotients")
    need(layer.width == 1 or all(payload for run in runs for _, payload in run), "a count of 0")
    lengths = {remainder.bit_length() - 1 for run in runs for remainder, _ in run}
    need(is_marked == (len(lengths) > 1) and width == max(lengths) + is_marked + layer.payload, "width of the cells")
    for run in runs:
        remainders = [remainder for remainder, _ in run]
        for one, next_ in zip(remainders, remainders[1:]):
            need(reversed_bits(one, 64) < reversed_bits(next_, 64), "order of the cells")
            need(not is_prefix(min(one, next_), max(one, next_)), "a cell for which another one stands")
    return Leaf(depth, log2_quotients, cleaned, runs), at


# ---- buckets --------------------------------------------------------------------------------------------------------


def nest(low):
    """An item's fingerprint and two buckets. The buckets aren't yet reduced modulo the number of buckets."""
    fingerprint = low % 255 + 1
    return fingerprint, low, low ^ fingerprint * SPREAD


def old_nest(low):
    """An item's fingerprint and two buckets in RedisBloom before 2.2.0. The buckets aren't yet reduced modulo the
    number of buckets."""
    fingerprint = low >> 24 or 7
    return fingerprint, low, low ^ fingerprint * SPREAD & MASK32


@dataclass
class Table:
    """A sub-filter of a cuckoo filter."""

    buckets: int
    slots: int  # in each bucket
    data: bytes = b""

    @property
    def bytes(self):
        """The size in bytes, rounded up to whole words of eight slots."""
        return (self.buckets * self.slots + 7) // 8 * 8

    def count(self, fingerprint, pair):
        """The number of slots in the two buckets with this fingerprint. If both buckets are the same one, its slots
        count twice."""
        buckets = [self.data[bucket % self.buckets * self.slots :][: self.slots] for bucket in pair]
        return sum(bucket.count(fingerprint) for bucket in buckets)

    def items(self):
        return len(self.data) - self.data.count(0)


# ---- other systems' bits --------------------------------------------------------------------------------------------


def encode(item, encoding):
    """An item's bytes as the original system hashed them, or None if that system can't have had such an item."""
    if encoding == BYTES:
        return item
    try:
        text = item.decode()
    except UnicodeDecodeError:
        return None
    if encoding in (LONG, INT):
        width = 8 if encoding == LONG else 4
        limit = 1 << 8 * width - 1
        if not re.fullmatch("[+-]?[0-9]+", text) or not -limit <= int(text) < limit:
            return None
        return int(text).to_bytes(width, "little", signed=True)
    return {UTF16: utf16, JSON: json, KRYO5: kryo5}[encoding](text)


def utf16(text):
    return text.encode("utf-16-le")


def json(text):
    """A string as Jackson writes it."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
    escaped = (named.get(letter) or (f"\\u{ord(letter):04X}" if letter < " " else letter) for letter in text)
    return f'"{"".join(escaped)}"'.encode()


def kryo5(text):
    """A string as Kryo 5 writes it, with its class."""
    if text.isascii() and 2 <= len(text) <= 32:
        return b"\3" + text[:-1].encode() + bytes([ord(text[-1]) | 0x80])
    units = [unit for (unit,) in struct.iter_unpack("<H", utf16(text))]
    length = len(units) + 1 if units else 1
    # The length: its lowest six bits, then seven at a time. In each byte, the bit above them says whether more follow.
    out = bytearray([0x80 | (0x40 if length > 0x3F else 0) | length & 0x3F])
    length >>= 6
    while length:
        out.append((0x80 if length > 0x7F else 0) | length & 0x7F)
        length >>= 7
    for unit in units:
        out += chr(unit).encode("utf-8", "surrogatepass")
    return b"\3" + out


def redisbloom_sums(plan, item):
    """Pairs a, b for sequences a, a + b, a + 2b …, each with the mask for its sums. Adds use the first pair."""
    seed, narrow_seed = 0xC6A4A7935BD1E995, 0x9747B28C
    a = murmur64a(item, seed)
    full = a, murmur64a(item, a), MASK
    a = murmur64a(item, seed & MASK32)
    cut = a, murmur64a(item, a & MASK32), MASK
    a = murmur2(item, narrow_seed)
    narrow, wrapped = ((a, murmur2(item, a), mask) for mask in (MASK, MASK32))
    return {
        FULL: [full],
        FULL_OR_CUT: [full, cut],
        NARROW: [narrow],
        NARROW_EITHER: [narrow, wrapped],
    }[plan]


SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def sequences(scheme, plan, seed, item, probes, modulus):
    """An item's probe sequences, before they are reduced to a link's bits. If the item is a member, all bits of at
    least one sequence are set."""
    if scheme == REDISBLOOM:
        for a, b, mask in redisbloom_sums(plan, item):
            yield (a + i * b & mask for i in range(probes))
    elif scheme == VALKEY_BLOOM:
        message = struct.pack("<Q", len(item)) + item
        a, b = (siphash64(*struct.unpack("<QQ", key), message) for key in (seed[:16], seed[16:]))
        yield (a if i == 0 else b if i == 1 else (a + i * b & MASK) % (2**64 - 59) for i in range(probes))
    elif scheme == GO_ZERO:
        yield (murmur3(item + bytes([i & 0xFF]))[0] for i in range(probes))
    elif scheme == BLOOM_V3:
        v = murmur3(item) + murmur3(item + b"\1")
        yield (v[i % 2] + i * v[(2, 3, 3, 2)[i % 4]] & MASK for i in range(probes))
    elif scheme == GUAVA_64:
        a, b = murmur3(item)
        yield (a + i * b & POSITIVE for i in range(probes))
    elif scheme == GUAVA_32:
        word = murmur3(item)[0]
        sums = ((word & MASK32) + i * (word >> 32) & MASK32 for i in range(1, probes + 1))
        yield (total ^ MASK32 if total >> 31 else total for total in sums)
    elif scheme == SBBF:
        found = xxhash.xxh64_intdigest(item)
        block = (found >> 32) * (modulus // 256) >> 32
        yield (256 * block + 32 * word + ((found * salt & MASK32) >> 27) for word, salt in enumerate(SALTS))
    else:
        key = (0x9E3779B97F4A7C15, 0xF39CC0605CEDC834, 0x1082276BF3A27251, 0xF86C6A11D0C18E95)
        a, b = highwayhash128(key, item)
        yield ((i // 2 + 1) * a + (i + 1) // 2 * b & POSITIVE for i in range(probes))


@dataclass
class Link:
    """A bit array of another system's filter."""

    modulus: int
    bits: int
    length: int  # number of bytes in the original
    capacity: int
    items: int
    error_rate: float
    bits_per_item: float
    probes: int
    log2: int
    data: bytes = b""

    @property
    def bytes(self):
        """The size in bytes, rounded up to whole words."""
        return (self.length + 7) // 8 * 8

    def check(self):
        need(self.modulus >= 1 and self.log2 <= 63, "bits")
        need(self.modulus <= 8 * self.length <= 8 << 46, "length of the bits")
        need(1 <= self.probes <= 10_000, "number of hashes")
        need(math.isfinite(self.error_rate) and self.error_rate > 0, "error rate")
        need(math.isfinite(self.bits_per_item) and self.bits_per_item >= 0, "bits per item")

    def holds(self, sequence):
        return all(self.data[at >> 3] >> (at & 7) & 1 for at in (probe % self.modulus for probe in sequence))

    def ones(self):
        return sum(byte.bit_count() for byte in self.data)


@dataclass
class Foreign:
    kind: int
    scheme: int
    plan: int
    random_seed: int
    encoding: int
    options: int
    growth: int
    seed: bytes
    error_rate: float
    tightening: float
    layers: list = field(default_factory=list)  # the links

    def contains(self, item):
        item = encode(item, self.encoding)
        if item is None:
            return False
        return any(
            link.holds(sequence)
            for link in self.layers
            for sequence in sequences(self.scheme, self.plan, self.seed, item, link.probes, link.modulus)
        )

    def count(self, _):
        return None

    def ones(self):
        return sum(link.ones() for link in self.layers)

    def items(self):
        return sum(link.items for link in self.layers)


# ---- the file -------------------------------------------------------------------------------------------------------


class Hashing:
    """Hashes items, for the filters that use one of our own hashes."""

    def hash_item(self, item):
        """The item's 128-bit hash as (low, high)."""
        if self.hash == SIPHASH:
            return siphash128(*self.seed, item)
        digest = xxhash.xxh3_128_intdigest(item, seed=self.seed[0])
        return digest & MASK, digest >> 64


@dataclass
class Filter(Hashing):
    kind: int
    capacity: int
    error_rate: float
    seed: tuple
    hash: int
    layout: int
    width: int
    overflow: int
    shards: int
    expansion: int
    tightening: float
    generations: int
    every_ms: int
    since_ms: int
    rotations: int
    newest: int
    layers: list = field(default_factory=list)

    def contains(self, item):
        low, high = self.hash_item(item)
        if self.layers[0].generations:
            return self.age(item) is not None
        return any(layer.count(low, high) for layer in self.layers)

    def count(self, item):
        """The item's count, which may be too high; None for a filter of bits."""
        if self.width == 1:
            return None
        low, high = self.hash_item(item)
        # In a chain, the oldest layer that has the item counts it.
        return next(filter(None, (layer.count(low, high) for layer in self.layers)), 0)

    def age(self, item, current=None):
        """In a window, the number of generations since the item's last add, as of generation `current`; None if the
        item is absent."""
        low, high = self.hash_item(item)
        current = self.newest if current is None else max(current, self.newest)
        if self.layers[0].generations:
            return self.layers[0].age(low, high, current)
        oldest = max(0, current - self.generations + 1)
        for number in range(self.newest, oldest - 1, -1):
            if self.layers[number % self.generations].count(low, high):
                return current - number
        return None

    def generation_at(self, now_ms):
        elapsed = max(0, now_ms - self.since_ms) // self.every_ms if self.every_ms else 0
        return max(self.newest, self.rotations + elapsed)

    def ones(self):
        return sum(layer.ones() for layer in self.layers)

    def items(self):
        return sum(layer.items for layer in self.layers)


@dataclass
class Cuckoo(Hashing):
    kind: int
    capacity: int
    seed: tuple
    hash: int
    slots: int
    max_iterations: int
    expansion: int
    deletes: int
    moves: int
    layers: list = field(default_factory=list)  # the sub-filters

    def count(self, item):
        """The item's count, which may be too high."""
        if self.hash == CUCKOO_REDISBLOOM:
            fingerprint, *pair = nest(murmur64a(item, 0))
        elif self.hash == CUCKOO_REDISBLOOM_1:
            fingerprint, *pair = old_nest(murmur2(item, 0))
        else:
            fingerprint, *pair = nest(self.hash_item(item)[0])
        return sum(table.count(fingerprint, pair) for table in self.layers)

    def contains(self, item):
        return self.count(item) > 0

    def items(self):
        """The number of slots in use."""
        return sum(table.items() for table in self.layers)


@dataclass
class Rebuild:
    """A filter that is being rebuilt: the live filter, which answers, and its shadow."""

    kind: int
    live: object
    shadow: Filter
    deletes_missed: int

    @property
    def layers(self):
        return self.live.layers + self.shadow.layers

    def contains(self, item):
        return self.live.contains(item)

    def count(self, item):
        return self.live.count(item)


def read(data):
    """The filter in a file's bytes."""
    filter_, body_len, stamp, rest = read_head(data)
    need(filter_.kind != CHAIN or filter_.layout not in BUILT, "a list that isn't a shadow")
    offset = 0
    while offset < body_len:
        rest, offset = read_chunk(rest, filter_, offset, stamp)
    need(not rest, "bytes behind the last chunk")
    check_body(filter_)
    return filter_


def check_body(filter_):
    for layer in filter_.layers:
        if filter_.kind == CUCKOO:
            need(not any(layer.data[layer.buckets * layer.slots :]), "padding")
        if getattr(layer, "layout", None) in BUILT:
            layer.check_description()


def read_head(data):
    need(data[:4] == b"BLMY", "not a Bloomery filter")
    need(len(data) >= ENVELOPE.size, "the envelope is cut short")
    _, version, kind, dump_number, header_len, body_len, checksum = ENVELOPE.unpack_from(data)
    need(version == 1, f"format version {version}")
    head, rest = data[: ENVELOPE.size + header_len], data[ENVELOPE.size + header_len :]
    header = head[ENVELOPE.size :]
    need(len(header) == header_len, "the header is cut short")
    need(crc32c(head[:20] + header) == checksum, "checksum of the head")
    filter_, stamp = read_header(kind, header)
    need(body_len == sum(layer.bytes for layer in filter_.layers), "length of the body")
    return filter_, body_len, stamp ^ dump_number, rest


def read_header(kind, header):
    """The filter without its cells, and the stamp."""
    readers = {CUCKOO: cuckoo_header, FOREIGN: foreign_header, REBUILD: rebuild_header}
    return readers.get(kind, bloom_header)(kind, header)


def rebuild_header(kind, header):
    need(len(header) >= REBUILD_HEADER.size, "the header is too short")
    deletes_missed, live_length, live_kind, shadow_kind, reserved = REBUILD_HEADER.unpack_from(header)
    need(live_kind in (FIXED, CHAIN, WINDOW, FOREIGN), "kind of the live filter")
    need(shadow_kind in (FIXED, CHAIN, WINDOW), "kind of the shadow")
    need(reserved == 0, "reserved")
    headers = header[REBUILD_HEADER.size :]
    live, live_stamp = read_header(live_kind, headers[:live_length])
    need(live_kind != CHAIN or live.layout not in BUILT, "a list that isn't a shadow")
    shadow, shadow_stamp = read_header(shadow_kind, headers[live_length:])
    can_delete = live_kind != FOREIGN and (live.width > 1 or live_kind == WINDOW and live.layout == QUOTIENT)
    need(deletes_missed <= (1 << 62 if can_delete else 0), "deletes missed")
    if live_kind == shadow_kind == WINDOW:
        times = [(f.every_ms, f.since_ms, f.rotations, f.newest) for f in (live, shadow)]
        need(times[0] == times[1], "schedule of the shadow")
    return Rebuild(kind, live, shadow, deletes_missed), crc32c(struct.pack("<II", live_stamp, shadow_stamp))


def cuckoo_header(kind, header):
    need(len(header) == CUCKOO_HEADER.size, "length of the header")
    fields = CUCKOO_HEADER.unpack(header)
    capacity, seed_low, seed_high, deletes, moves, hash_, slots, max_iterations, expansion = fields[:9]
    reserved, tables, reserved_too = fields[9:]
    need(hash_ in (XXH3, SIPHASH, CUCKOO_REDISBLOOM, CUCKOO_REDISBLOOM_1), "hash")
    need(hash_ == SIPHASH or seed_high == 0, "XXH3 has a seed of 64 bits")
    ours = hash_ in (XXH3, SIPHASH)
    need(ours or seed_low == 0, "RedisBloom has no seed")
    need(slots >= 1 and max_iterations >= 1, "slots and iterations")
    need((2 if ours else 1) * slots <= capacity <= 1 << 48, "capacity")
    need(expansion == 0 or expansion in {1 << i for i in range(16)}, "expansion")
    need(max(deletes, moves) <= 1 << 62, "counts")
    need(reserved == reserved_too == 0, "reserved")
    need(1 <= tables <= (65536 if expansion else 1), "sub-filters")
    need(2 * slots * tables <= 1 << 20, "slots that a test looks at")
    filter_ = Cuckoo(
        kind, capacity, (seed_low, seed_high), hash_, slots, max_iterations, expansion, deletes, moves
    )  # fmt: skip
    buckets = 1
    while buckets < capacity // slots:
        buckets *= 2
    for _ in range(tables):
        need(buckets * slots <= 1 << 46, "buckets")
        filter_.layers.append(Table(buckets, slots))
        buckets *= expansion
    return filter_, crc32c(header)


def foreign_header(kind, header):
    need(len(header) >= FOREIGN_HEADER.size, "the header is too short")
    scheme, plan, random_seed, encoding, links, *others = FOREIGN_HEADER.unpack_from(header)
    options, growth, seed, error_rate, tightening = others
    need(len(header) == FOREIGN_HEADER.size + links * LINK_HEADER.size, "length of the header")
    need(GO_ZERO <= scheme <= SBBF, "scheme")
    need(encoding <= KRYO5, "encoding")
    need(1 <= links <= (4096 if scheme in (REDISBLOOM, VALKEY_BLOOM) else 1), "links")
    if scheme == VALKEY_BLOOM:
        need(0 < error_rate < 1 and 0 < tightening < 1 and random_seed <= 1, "growth")
        need(plan == options == 0, "what valkey-bloom does not have")
    else:
        need(header[2] == 0 and header[16:64] == bytes(48), "what only valkey-bloom has")
        need(plan <= NARROW_EITHER, "plan")
        need(scheme == REDISBLOOM or plan == options == growth == 0, "what only chains have")
    filter_ = Foreign(
        kind, scheme, plan, random_seed, encoding, options, growth, seed, error_rate, tightening
    )  # fmt: skip
    stamped = bytearray(header)
    for i in range(links):
        at = FOREIGN_HEADER.size + i * LINK_HEADER.size
        link = Link(*LINK_HEADER.unpack_from(header, at))
        link.check()
        need(scheme != SBBF or (link.probes, link.modulus % 256) == (8, 0), "blocks")
        filter_.layers.append(link)
        stamped[at + 32 : at + 40] = bytes(8)  # the number of items
    need(sum(link.probes for link in filter_.layers) <= 589_824, "probes of all links")
    return filter_, crc32c(stamped)


def bloom_header(kind, header):
    need(len(header) >= FILTER_HEADER.size, "the header is too short")
    filter_, layer_count = filter_header(kind, header)
    layers_end = FILTER_HEADER.size + layer_count * LAYER_HEADER.size
    is_table = filter_.layout == QUOTIENT
    need(len(header) == layers_end + is_table * 8 * filter_.generations, "length of the header")
    stamped = bytearray(header[:layers_end])
    for i in range(layer_count):
        at = FILTER_HEADER.size + i * LAYER_HEADER.size
        generations = (filter_.generations, filter_.newest) if is_table else ()
        layer = Layer(*LAYER_HEADER.unpack_from(header, at), filter_.shards, filter_.width, *generations)
        layer.check()
        may_be_table = kind == CHAIN and layer_count > 1 and QUOTIENT not in [older.layout for older in filter_.layers]
        need(is_table or layer.layout != QUOTIENT or may_be_table and filter_.layout not in BUILT, "layer layout")
        need(layer.layout == QUOTIENT or not is_table, "layer layout")
        static = LIST if kind == CHAIN else filter_.layout
        need(layer.layout == static if filter_.layout in BUILT else layer.layout not in STATIC, "layer layout")
        filter_.layers.append(layer)
        stamped[at + 24 : at + 32] = bytes(8)  # the number of items
        if layer.layout == QUOTIENT:
            stamped[at + 16 : at + 24], stamped[at + 32 : at + 36] = bytes(8), bytes(4)  # leaves, quotients
    if is_table and kind == WINDOW:
        items = [int.from_bytes(header[at : at + 8], "little") for at in range(layers_end, len(header), 8)]
        need(sum(items) == filter_.layers[0].items, "items of the generations")
    share = max(1, filter_.layers[0].generations)
    need(any(layer.capacity == filter_.capacity * share for layer in filter_.layers), "capacity of the first layer")
    if kind == WINDOW:
        shapes = {(l.capacity, l.error_rate, l.cells, l.probes, l.layout) for l in filter_.layers}
        need(len(shapes) == 1, "generations of different shapes")
    return filter_, crc32c(stamped)


def filter_header(kind, header):
    fields = FILTER_HEADER.unpack_from(header)
    capacity, error_rate, seed_low, seed_high, hash_, layout, width, overflow, shards = fields[:9]
    sizes, expansion, generations, tightening, every_ms, since_ms, rotations, newest, layers = fields[9:]
    need(kind in (FIXED, CHAIN, WINDOW), "kind")
    need(1 <= capacity <= 1 << 48, "capacity")
    need(1e-12 <= error_rate < 1, "error rate")
    need(hash_ in (XXH3, SIPHASH), "hash")
    need(hash_ == SIPHASH or seed_high == 0, "XXH3 has a seed of 64 bits")
    need(layout in (0, CLASSIC, BLOCKED, QUOTIENT, *BUILT, PARTITIONED), "layout")
    need(width in CELL_WIDTHS, "cell")
    need(kind == FIXED or width == 1 or (kind, layout) == (CHAIN, QUOTIENT), "a filter that cannot count")
    need(overflow in (0, 1, 2), "overflow")
    need(overflow < 2 or (kind == WINDOW and layout == QUOTIENT), "only a table forgets when it is full")
    need(shards in {1 << i for i in range(11)}, "shards")
    need(sizes == 0, "formulas of another version")
    need(layout != QUOTIENT or (kind == WINDOW or overflow == 0) and shards == 1, "what a table cannot do")
    zero_bits = struct.pack("<d", tightening) == bytes(8)
    need(layout not in BUILT or (kind != WINDOW and overflow == 0 and shards == width == 1), "what static filters cannot do")
    need(layout not in BUILT or kind != CHAIN or (expansion == 2 and zero_bits), "how a list grows")
    if kind == CHAIN:
        need(1 <= expansion <= 32768 and overflow == 0, "expansion")
        need(zero_bits or 0 < tightening < 1, "tightening")
        need(1 <= layers <= (1 if layout == QUOTIENT else 4096), "layers")
    else:
        need(expansion == 0 and zero_bits, "only a chain expands")
    if kind == WINDOW:
        most, in_layers = (1000, 1) if layout == QUOTIENT else (64, generations)
        need(2 <= generations <= most and layers == in_layers, "generations")
        need(every_ms < 1 << 63 and max(since_ms, rotations, newest) <= 1 << 62, "schedule")
    else:
        need(not any((generations, every_ms, since_ms, rotations, newest)), "only a window rotates")
    need(kind != FIXED or layers == 1, "a fixed filter has one layer")
    filter_ = Filter(
        kind, capacity, error_rate, (seed_low, seed_high), hash_, layout, width, overflow, shards,
        expansion, tightening, generations, every_ms, since_ms, rotations, newest,
    )  # fmt: skip
    return filter_, layers


def read_chunk(rest, filter_, start, stamp):
    """Reads a chunk, which begins at the offset `start`. Returns what follows it, and the offset at which it ends."""
    need(len(rest) >= CHUNK_PREFIX.size, "a chunk is cut short")
    offset, length, its_stamp, checksum = CHUNK_PREFIX.unpack_from(rest)
    data = rest[CHUNK_PREFIX.size : CHUNK_PREFIX.size + length]
    need(len(data) == length and 0 < length <= MAX_CHUNK and length % 8 == 0, "length of a chunk")
    need(crc32c(rest[:16] + data) == checksum, "checksum of a chunk")
    need(its_stamp == stamp, "a chunk of another filter")
    need(offset == start, "a chunk out of order")
    begin = 0
    for layer in filter_.layers:
        if offset < begin + layer.bytes:
            break
        begin += layer.bytes
    is_table = getattr(layer, "layout", None) == QUOTIENT
    end = begin + layer.read_leaves(data, offset - begin) if is_table else offset + length
    need(end <= begin + layer.bytes, "a chunk across the end of a layer")
    layer.data += bytes(data)
    return rest[CHUNK_PREFIX.size + length :], end


def main(path, *items):
    with open(path, "rb") as file:
        filter_ = read(file.read())
    hidden = ("layers", "seed", "live", "shadow")
    print(filter_.__class__.__name__, {k: v for k, v in vars(filter_).items() if k not in hidden})
    for layer in filter_.layers:
        print("  layer", {k: v for k, v in vars(layer).items() if k != "data"}, f"bytes={layer.bytes}")
    for item in items:
        item = item.encode()
        print(item, filter_.contains(item), filter_.count(item), filter_.age(item) if filter_.kind == WINDOW else "")


if __name__ == "__main__":
    main(*sys.argv[1:])
