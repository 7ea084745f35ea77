"""Reads filters of Bloomery from their bytes alone: a second implementation, written from the format and not from the
code, with nothing but the standard library and an XXH3 that is not ours.

    python reader.py FILE [ITEM...]     prints what is in the file, and the answer for each item

It is made to be read: slow, whole, and without a trick.
"""

import struct
import sys
from dataclasses import dataclass, field

import xxhash

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
SPREAD = 0x5BD1E995
BLOCK_BITS = 512
MAX_CHUNK = 16 << 20

FIXED, CHAIN, WINDOW, CUCKOO = 1, 2, 3, 4
XXH3, SIPHASH = 1, 2
CLASSIC, BLOCKED = 1, 2
CELL_WIDTHS = (1, 4, 8, 16)

ENVELOPE = struct.Struct("<4sBBHIQI")
FILTER_HEADER = struct.Struct("<QdQQBBBBIIIdQQQQII")
LAYER_HEADER = struct.Struct("<QdQQII")
CUCKOO_HEADER = struct.Struct("<QQQQQBBHHHII")
CHUNK_PREFIX = struct.Struct("<QIII")


class BadFilter(ValueError):
    """The bytes are not a filter."""


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


def siphash128(key_low, key_high, data, compress=1, finish=3):
    """SipHash with 128 bits of output (Aumasson, Bernstein): two words, the first one first."""
    v = [
        key_low ^ 0x736F6D6570736575,
        key_high ^ 0x646F72616E646F6D ^ 0xEE,
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
    v[2] ^= 0xEE
    rounds(finish)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(finish)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


# ---- probes ---------------------------------------------------------------------------------------------------------


def mix(x):
    return (x ^ x >> 32) * GOLDEN & MASK


def scale(random, n):
    """Maps 64 random bits onto 0..n."""
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
    data: bytes = b""

    @property
    def bytes(self):
        return self.cells * self.width // 8

    def check(self):
        unit = BLOCK_BITS // self.width if self.layout == BLOCKED else 64 // self.width
        need(1 <= self.capacity <= 1 << 48, "layer capacity")
        need(0 < self.error_rate < 1, "layer error rate")
        need(self.layout in (CLASSIC, BLOCKED), "layer layout")
        need(1 <= self.probes <= 72, "probes")
        need(self.cells > 0 and self.bytes <= 1 << 46, "cells")
        need(self.cells % (unit * self.shards) == 0, "cells are no whole number of words or blocks a shard")
        need(self.items <= 1 << 48, "items")

    def value(self, cell):
        """Cell i is in the 64-bit little-endian word i·width/64, cell 0 in its lowest bits."""
        bit = cell * self.width
        (word,) = struct.unpack_from("<Q", self.data, bit // 64 * 8)
        return word >> bit % 64 & (1 << self.width) - 1

    def probe_cells(self, low, high):
        """The cells of an item, in a layer whose shards follow one another."""
        per_shard = self.cells // self.shards
        shard = low & self.shards - 1
        position = low >> 10 << 10
        if self.layout == CLASSIC:
            for _ in range(self.probes):
                yield shard * per_shard + scale(mix(position), per_shard)
                position = position + (high | 1) & MASK
            return
        per_block = BLOCK_BITS // self.width
        block = shard * per_shard + scale(position, per_shard // per_block) * per_block
        source = high
        for probe in range(self.probes):
            if probe and probe % 7 == 0:
                source = mix(source)
            yield block + (source >> probe % 7 * 9) % per_block

    def count(self, low, high):
        return min(self.value(cell) for cell in self.probe_cells(low, high))

    def ones(self):
        return sum(self.value(cell) > 0 for cell in range(self.cells))


# ---- buckets --------------------------------------------------------------------------------------------------------


def nest(low):
    """Fingerprint of an item and its two buckets, which are to be taken modulo the number of buckets."""
    fingerprint = low % 255 + 1
    return fingerprint, low, low ^ fingerprint * SPREAD


@dataclass
class Table:
    """A sub-filter of a cuckoo filter."""

    buckets: int
    slots: int  # of each bucket
    data: bytes = b""

    @property
    def bytes(self):
        """Whole words of eight slots."""
        return (self.buckets * self.slots + 7) // 8 * 8

    def count(self, fingerprint, pair):
        """Slots with the fingerprint in the two buckets; all of them twice where the two are one."""
        buckets = [self.data[bucket % self.buckets * self.slots :][: self.slots] for bucket in pair]
        return sum(bucket.count(fingerprint) for bucket in buckets)

    def items(self):
        return len(self.data) - self.data.count(0)


# ---- the file -------------------------------------------------------------------------------------------------------


class Hashing:
    """What a filter of any kind does with an item first."""

    def hash_item(self, item):
        """128 bits as (low, high)."""
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
        return any(layer.count(low, high) for layer in self.layers)

    def count(self, item):
        """How often the item was added, at most; None for a filter of bits."""
        return None if self.width == 1 else self.layers[0].count(*self.hash_item(item))

    def age(self, item, current=None):
        """In a window: generations since the last add as of generation `current`; None when it is absent."""
        low, high = self.hash_item(item)
        current = self.newest if current is None else max(current, self.newest)
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
    layers: list = field(default_factory=list)  # its sub-filters

    def count(self, item):
        """How often the item was added, at most."""
        fingerprint, *pair = nest(self.hash_item(item)[0])
        return sum(table.count(fingerprint, pair) for table in self.layers)

    def contains(self, item):
        return self.count(item) > 0

    def items(self):
        """Slots in use."""
        return sum(table.items() for table in self.layers)


def read(data):
    """The filter in the bytes of a file."""
    filter_, body_len, stamp, rest = read_head(data)
    body = bytearray()
    while len(body) < body_len:
        rest = read_chunk(rest, filter_, body, stamp)
    need(not rest, "bytes behind the last chunk")
    start = 0
    for layer in filter_.layers:
        layer.data = bytes(body[start : start + layer.bytes])
        start += layer.bytes
        if filter_.kind == CUCKOO:
            need(not any(layer.data[layer.buckets * layer.slots :]), "padding")
    return filter_


def read_head(data):
    need(data[:4] == b"BLMY", "not a Bloomery filter")
    need(len(data) >= ENVELOPE.size, "the envelope is cut short")
    _, version, kind, flags, header_len, body_len, checksum = ENVELOPE.unpack_from(data)
    need(version == 1, f"format version {version}")
    head, rest = data[: ENVELOPE.size + header_len], data[ENVELOPE.size + header_len :]
    header = head[ENVELOPE.size :]
    need(len(header) == header_len, "the header is cut short")
    need(crc32c(head[:20] + header) == checksum, "checksum of the head")
    need(flags == 0, "flags")
    read_header = cuckoo_header if kind == CUCKOO else bloom_header
    filter_, stamp = read_header(kind, header)
    need(body_len == sum(layer.bytes for layer in filter_.layers), "length of the body")
    return filter_, body_len, stamp, rest


def cuckoo_header(kind, header):
    need(len(header) == CUCKOO_HEADER.size, "length of the header")
    fields = CUCKOO_HEADER.unpack(header)
    capacity, seed_low, seed_high, deletes, moves, hash_, slots, max_iterations, expansion = fields[:9]
    reserved, tables, reserved_too = fields[9:]
    need(hash_ in (XXH3, SIPHASH), "hash")
    need(hash_ == SIPHASH or seed_high == 0, "XXH3 has a seed of 64 bits")
    need(slots >= 1 and max_iterations >= 1, "slots and iterations")
    need(2 * slots <= capacity <= 1 << 48, "capacity")
    need(expansion == 0 or expansion in {1 << i for i in range(16)}, "expansion")
    need(max(deletes, moves) <= 1 << 62, "counts")
    need(reserved == reserved_too == 0, "reserved")
    need(1 <= tables <= (4096 if expansion else 1), "sub-filters")
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


def bloom_header(kind, header):
    need(len(header) >= FILTER_HEADER.size, "the header is too short")
    filter_, layer_count = filter_header(kind, header)
    need(len(header) == FILTER_HEADER.size + layer_count * LAYER_HEADER.size, "length of the header")
    stamped = bytearray(header)
    for i in range(layer_count):
        at = FILTER_HEADER.size + i * LAYER_HEADER.size
        layer = Layer(*LAYER_HEADER.unpack_from(header, at), filter_.shards, filter_.width)
        layer.check()
        filter_.layers.append(layer)
        stamped[at + 24 : at + 32] = bytes(8)  # the number of items
    first = filter_.layers[0]
    need(first.capacity == filter_.capacity, "capacity of the first layer")
    if kind == WINDOW:
        shapes = {(l.capacity, l.error_rate, l.cells, l.probes, l.layout) for l in filter_.layers}
        need(len(shapes) == 1, "generations of different shapes")
    return filter_, crc32c(stamped)


def filter_header(kind, header):
    fields = FILTER_HEADER.unpack_from(header)
    capacity, error_rate, seed_low, seed_high, hash_, layout, width, overflow, shards = fields[:9]
    expansion, generations, tightening, every_ms, since_ms, rotations, newest, layers, reserved = fields[9:]
    need(kind in (FIXED, CHAIN, WINDOW), "kind")
    need(1 <= capacity <= 1 << 48, "capacity")
    need(1e-12 <= error_rate < 1, "error rate")
    need(hash_ in (XXH3, SIPHASH), "hash")
    need(hash_ == SIPHASH or seed_high == 0, "XXH3 has a seed of 64 bits")
    need(layout in (0, CLASSIC, BLOCKED), "layout")
    need(width in CELL_WIDTHS, "cell")
    need(kind == FIXED or width == 1, "only a fixed filter counts")
    need(overflow in (0, 1), "overflow")
    need(shards in {1 << i for i in range(11)}, "shards")
    need(reserved == 0, "reserved")
    zero_bits = struct.pack("<d", tightening) == bytes(8)
    if kind == CHAIN:
        need(1 <= expansion <= 32768 and overflow == 0, "expansion")
        need(zero_bits or 0 < tightening < 1, "tightening")
        need(1 <= layers <= 4096, "layers")
    else:
        need(expansion == 0 and zero_bits, "only a chain expands")
    if kind == WINDOW:
        need(2 <= generations <= 64 and layers == generations, "generations")
        need(every_ms < 1 << 63 and max(since_ms, rotations, newest) <= 1 << 62, "schedule")
    else:
        need(not any((generations, every_ms, since_ms, rotations, newest)), "only a window rotates")
    need(kind != FIXED or layers == 1, "a fixed filter has one layer")
    filter_ = Filter(
        kind, capacity, error_rate, (seed_low, seed_high), hash_, layout, width, overflow, shards,
        expansion, tightening, generations, every_ms, since_ms, rotations, newest,
    )  # fmt: skip
    return filter_, layers


def read_chunk(rest, filter_, body, stamp):
    need(len(rest) >= CHUNK_PREFIX.size, "a chunk is cut short")
    offset, length, its_stamp, checksum = CHUNK_PREFIX.unpack_from(rest)
    data = rest[CHUNK_PREFIX.size : CHUNK_PREFIX.size + length]
    need(len(data) == length and 0 < length <= MAX_CHUNK and length % 8 == 0, "length of a chunk")
    need(crc32c(rest[:16] + data) == checksum, "checksum of a chunk")
    need(its_stamp == stamp, "a chunk of another filter")
    need(offset == len(body), "a chunk out of order")
    end = 0
    for layer in filter_.layers:
        end += layer.bytes
        if offset < end:
            break
    need(offset + length <= end, "a chunk across the end of a layer")
    body += data
    return rest[CHUNK_PREFIX.size + length :]


def main(path, *items):
    with open(path, "rb") as file:
        filter_ = read(file.read())
    print(filter_.__class__.__name__, {k: v for k, v in vars(filter_).items() if k not in ("layers", "seed")})
    for layer in filter_.layers:
        print("  layer", {k: v for k, v in vars(layer).items() if k != "data"}, f"bytes={layer.bytes}")
    for item in items:
        item = item.encode()
        print(item, filter_.contains(item), filter_.count(item), filter_.age(item) if filter_.kind == WINDOW else "")


if __name__ == "__main__":
    main(*sys.argv[1:])
