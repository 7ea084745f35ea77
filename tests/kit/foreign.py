"""Other systems' filters, made and read without any of the module's code: a second opinion on imports.

- RDB values: reads and writes the fields of a module's value in DUMP payloads and RDB files.
- Positions: where each system sets its bits. The hashes are those of wire_format.py.
- Models: chains of links that grow as RedisBloom's and valkey-bloom's do, and the files of the systems whose filters
  don't grow. A model stands in for the original where nothing was recorded from it.
"""

import dataclasses
import math
import struct
from collections.abc import Callable, Iterable

import xxhash

from kit.packed import power
from kit.payload import read_length, write_length
from kit.wire_format import SALTS, highwayhash128, murmur2, murmur3, murmur64a, siphash64

WORD = (1 << 64) - 1
POSITIVE = WORD >> 1  # a Java long without its sign


# ---- RDB values -----------------------------------------------------------------------------------------------------

MODULE = 7  # type byte of a module's value
SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@dataclasses.dataclass
class Value:
    """A module's value: the nine characters of its type, the version of the encoding, and the fields as Python types.
    """

    type: str
    encoding: int
    fields: list

    @classmethod
    def parse(cls, data: bytes) -> "Value":
        value, end = cls.read(data, 1)
        assert data[0] == MODULE and end == len(data)
        return value

    @classmethod
    def read(cls, data: bytes, at: int) -> tuple["Value", int]:
        """The value after the type byte, and where it ends."""
        module_id, at = read_length(data, at)
        name = "".join(SYMBOLS[module_id >> 10 + 6 * place & 63] for place in range(8, -1, -1))
        fields = []
        while data[at]:
            opcode, at = data[at], at + 1
            match opcode:
                case 2:
                    field, at = read_length(data, at)
                case 4:
                    (field,), at = struct.unpack_from("<d", data, at), at + 8
                case 5:
                    field, at = read_string(data, at)
            fields.append(field)
        return cls(name, module_id & 1023, fields), at + 1

    def dump(self) -> bytes:
        module_id = sum(SYMBOLS.index(symbol) << 10 + 6 * place for place, symbol in enumerate(reversed(self.type)))
        data = bytes([MODULE]) + long_length(module_id | self.encoding)
        for field in self.fields:
            match field:
                case int():
                    data += b"\2" + (write_length(field) if field < 1 << 32 else long_length(field))
                case float():
                    data += b"\4" + struct.pack("<d", field)
                case bytes():
                    data += b"\5" + write_length(len(field)) + field
        return data + b"\0"


def long_length(length: int) -> bytes:
    return b"\x81" + struct.pack(">Q", length)


def read_string(data: bytes, at: int) -> tuple[bytes, int]:
    """A string in an RDB file, and where it ends. The string may be stored as is, as an integer, or compressed."""
    if data[at] < 0xC0:
        length, at = read_length(data, at)
        return data[at : at + length], at + length
    if data[at] < 0xC3:
        size = 1 << (data[at] & 3)
        return b"%d" % int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True), at + 1 + size
    length, at = read_length(data, at + 1)
    _, at = read_length(data, at)
    return decompressed(data[at : at + length]), at + length


def decompressed(data: bytes) -> bytes:
    """Decompresses LZF, which consists of runs of literal bytes and references to earlier bytes."""
    out, at = bytearray(), 0
    while at < len(data):
        control, at = data[at], at + 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length, at = length + data[at], at + 1
        start, at = len(out) - ((control & 31) << 8 | data[at]) - 1, at + 1
        for offset in range(length + 2):  # the reference may overlap its own output
            out.append(out[start + offset])
    return bytes(out)


def values_of(rdb: bytes) -> dict[bytes, bytes]:
    """The module values in an RDB file, each from its type byte to its end mark. The file must contain no other values.
    """
    at, values = len("REDIS0000"), {}
    while rdb[at] != 0xFF:
        kind, at = rdb[at], at + 1
        match kind:
            case 0xFA:  # metadata about the file
                _, at = read_string(rdb, at)
                _, at = read_string(rdb, at)
            case 0xFE:  # a database
                _, at = read_length(rdb, at)
            case 0xFB:  # the database's size
                _, at = read_length(rdb, at)
                _, at = read_length(rdb, at)
            case 7:
                key, start = read_string(rdb, at)
                _, at = Value.read(rdb, start)
                values[key] = bytes([kind]) + rdb[start:at]
            case _:
                raise ValueError(f"type {kind}")
    return values


def sealed(value: bytes, version: int) -> bytes:
    """A DUMP payload: the value, the RDB version, and a checksum."""
    data = value + struct.pack("<H", version)
    return data + struct.pack("<Q", crc64(data))


def version_of(payload: bytes) -> int:
    return struct.unpack("<H", payload[-10:-8])[0]


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x95AC9329AC4BC9B5 if value & 1 else 0)
        table.append(value)
    return table


TABLE = _table()


def crc64(data: bytes) -> int:
    """CRC-64 with the polynomial 0xad93d23594c935a9, reflected."""
    crc = 0
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc


assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA  # the check value of its definition


# ---- where bits are set ---------------------------------------------------------------------------------------------


Positions = Callable[[bytes, int, int], Iterable[int]]  # (item, probes, bits) -> positions of the item's bits


def redisbloom(item: bytes, probes: int, bits: int) -> Iterable[int]:
    a = murmur64a(item, 0xC6A4A7935BD1E995)
    b = murmur64a(item, a)
    return ((a + i * b & WORD) % bits for i in range(probes))


def redisbloom_2017(item: bytes, probes: int, bits: int) -> Iterable[int]:
    """The 32-bit positions of versions before 1.1.1."""
    a = murmur2(item, 0x9747B28C)
    b = murmur2(item, a)
    return ((a + i * b & 0xFFFFFFFF) % bits for i in range(probes))


def valkey_bloom(seed: bytes) -> Positions:
    keys = struct.unpack("<4Q", seed)

    def positions(item: bytes, probes: int, bits: int) -> Iterable[int]:
        message = struct.pack("<Q", len(item)) + item
        a, b = siphash64(*keys[:2], message), siphash64(*keys[2:], message)
        steps = [a, b, *((a + i * b & WORD) % 0xFFFFFFFFFFFFFFC5 for i in range(2, probes))]
        return (step % bits for step in steps[:probes])

    return positions


def go_zero(item: bytes, probes: int, bits: int) -> Iterable[int]:
    return (murmur3(item + bytes([i]))[0] % bits for i in range(probes))


def guava_64(item: bytes, probes: int, bits: int) -> Iterable[int]:
    a, b = murmur3(item)
    return ((a + i * b & POSITIVE) % bits for i in range(probes))


def guava_32(item: bytes, probes: int, bits: int) -> Iterable[int]:
    word, _ = murmur3(item)
    a, b = word & 0xFFFFFFFF, word >> 32
    for i in range(1, probes + 1):
        total = a + i * b & 0xFFFFFFFF
        yield (total ^ 0xFFFFFFFF if total >> 31 else total) % bits


def sbbf(item: bytes, probes: int, bits: int) -> Iterable[int]:
    found = xxhash.xxh64_intdigest(item)
    block, low = (found >> 32) * (bits // 256) >> 32, found & 0xFFFFFFFF
    return (256 * block + 32 * word + ((low * salt & 0xFFFFFFFF) >> 27) for word, salt in enumerate(SALTS))


def redisson(item: bytes, probes: int, bits: int) -> Iterable[int]:
    steps = highwayhash128((0x9E3779B97F4A7C15, 0xF39CC0605CEDC834, 0x1082276BF3A27251, 0xF86C6A11D0C18E95), item)
    total = 0
    for i in range(probes):
        total += steps[i % 2]
        yield (total & POSITIVE) % bits


# Positions recorded from the originals, to check that the functions above compute the same ones.
for positions, item, bits, recorded in [
    (redisbloom, b"0123456789abcdef", 1152, [239, 623, 1007, 367, 751, 1135, 367, 751]),
    (redisbloom, b"", 1152, [366, 1077, 764, 451, 138, 849, 536, 223]),
    (redisbloom_2017, b"hello", 958, [14, 33, 327, 346, 640, 659, 953]),
    (valkey_bloom(bytes(range(32))), b"hello", 960, [845, 632, 893, 309, 941, 613, 29]),
    (go_zero, b"", 64, [53, 22, 50, 25, 45, 56, 51, 23, 62, 37, 24, 39, 49, 38]),
    (guava_64, b"hello", 960, [898, 91, 244, 525, 678, 831, 152]),
    (guava_32, b"hello", 960, [245, 535, 356, 78, 257, 436, 344]),
    (sbbf, b"hello", 1024, [20, 41, 74, 103, 137, 191, 220, 251]),
    (redisson, b"hello", 958, [635, 186, 859, 410, 125, 634, 349]),
]:
    found = list(positions(item, len(recorded), bits))
    assert recorded in (found, sorted(found)), (positions, item)


# ---- models ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Link:
    """A bit array. Bit p is in byte p/8, lowest bit first."""

    probes: int
    bits: bytearray
    capacity: int = 0
    error_rate: float = 0.0
    bits_per_item: float = 0.0
    modulus: int = 0  # modulus of the positions; the number of bits if 0
    items: int = 0

    def __post_init__(self):
        self.modulus = self.modulus or 8 * len(self.bits)

    def has(self, item: bytes, positions: Positions) -> bool:
        return all(self.bits[at >> 3] >> (at & 7) & 1 for at in positions(item, self.probes, self.modulus))

    def add(self, item: bytes, positions: Positions) -> None:
        for at in positions(item, self.probes, self.modulus):
            self.bits[at >> 3] |= 1 << (at & 7)
        self.items += 1


class Full(Exception):
    pass


class Chain:
    """A chain of links. Adds go to the newest link. If it is full, the add first appends a new link."""

    links: list[Link]
    positions: Positions

    def next_link(self) -> Link:
        raise Full

    def has(self, item: str) -> bool:
        return any(link.has(item.encode(), self.positions) for link in reversed(self.links))

    def add(self, item: str) -> bool:
        if self.has(item):
            return False
        if self.links[-1].items >= self.links[-1].capacity:
            self.links.append(self.next_link())
        self.links[-1].add(item.encode(), self.positions)
        return True

    def answers(self, items) -> list[int]:
        return [int(self.has(item)) for item in items]


class RedisBloomChain(Chain):
    """A chain that grows by the rule that RedisBloom has used since 2.2.0."""

    NO_SCALING = 8
    positions = staticmethod(redisbloom)

    def __init__(self, value: Value):
        assert (value.type, value.encoding) == ("MBbloom--", 4)
        _, count, self.options, self.growth, *rest = value.fields
        self.links = []
        for number in range(count):
            capacity, error_rate, probes, bits_per_item, bits, n2, bitmap, items = rest[8 * number : 8 * number + 8]
            assert (bits, n2) == (8 * len(bitmap), 0)
            self.links.append(Link(probes, bytearray(bitmap), capacity, error_rate, bits_per_item, items=items))

    def next_link(self) -> Link:
        if self.options & self.NO_SCALING:
            raise Full
        last = self.links[-1]
        capacity, error_rate = last.capacity * self.growth, last.error_rate * 0.5
        bits_per_item = abs(math.log(error_rate) / 0.480453013918201)
        words = math.ceil(max(1, int(capacity * bits_per_item)) / 64)
        probes = math.ceil(0.693147180559945 * bits_per_item)
        return Link(probes, bytearray(8 * words), capacity, error_rate, bits_per_item)

    @property
    def items(self) -> int:
        return sum(link.items for link in self.links)

    def value(self) -> Value:
        fields = [self.items, len(self.links), self.options, self.growth]
        for link in self.links:
            fields += [link.capacity, link.error_rate, link.probes, link.bits_per_item]
            fields += [8 * len(link.bits), 0, bytes(link.bits), link.items]
        return Value("MBbloom--", 4, fields)


class ValkeyBloomChain(Chain):
    """A chain that grows as valkey-bloom's does."""

    def __init__(self, capacity: int, error_rate: float, tightening: float, expansion: int, seed: bytes):
        self.expansion, self.error_rate, self.tightening, self.seed = expansion, error_rate, tightening, seed
        self.positions = valkey_bloom(seed)
        self.links = []
        self.links.append(self.link(capacity))

    def link(self, capacity: int) -> Link:
        error_rate = self.error_rate * power(self.tightening, len(self.links))
        size = math.ceil(capacity * math.log(error_rate) / (-8 * math.log(2) ** 2))
        # Rounded, with halves away from zero.
        probes = max(1, math.floor(8 * size / capacity * math.log(2) + 0.5))
        return Link(probes, bytearray(size), capacity, error_rate)

    def next_link(self) -> Link:
        if self.expansion == 0:
            raise Full
        return self.link(self.links[-1].capacity * self.expansion)

    def blob(self, link: Link) -> bytes:
        return struct.pack("<BQI", 1, len(link.bits), link.probes) + self.seed + link.bits

    def value(self) -> Value:
        fields = [len(self.links), self.expansion, self.error_rate, self.tightening, 1]
        for link in self.links:
            fields += [link.capacity, *([link.items] if link is self.links[-1] else []), self.blob(link)]
        return Value("bloomfltr", 1, fields)

    def payload(self) -> bytes:
        """The payload that BF.LOAD accepts."""
        payload = struct.pack("<BIddBQ", 1, self.expansion, self.error_rate, self.tightening, 1, len(self.links))
        for link in self.links:
            blob = self.blob(link)
            payload += struct.pack("<Q", len(blob)) + blob + struct.pack("<qq", link.items, link.capacity)
        return payload


def redisbloom_head(size: int) -> bytes:
    """The head of a filter of one layer of `size` bytes in RedisBloom's format."""
    link = struct.pack("<QQQddIQB", size, 8 * size, 5, 0.01, 9.585, 7, size * 8 // 10, 0)
    return struct.pack("<QIII", 5, 1, 5, 2) + link


def redisbloom_cuckoo_head(size: int) -> bytes:
    """The head of a cuckoo filter of `size` bytes in RedisBloom's format."""
    return struct.pack("<QQQQHHH", 5, size // 2, 0, 1, 2, 20, 1)


class Bitmap(Chain):
    """One link, which never becomes full."""

    def __init__(self, positions: Positions, bits: int, probes: int, items: Iterable[bytes] = ()):
        self.positions = positions
        self.links = [Link(probes, bytearray(-(-bits // 64) * 8), modulus=bits)]
        for item in items:
            self.links[0].add(item, positions)

    def bitmap(self) -> bytes:
        """The bits as in a string that SETBIT made: highest bit first, and no longer than necessary."""
        return reversed_bits(self.links[0].bits).rstrip(b"\0")

    def big_endian_words(self) -> bytes:
        bits = self.links[0].bits
        return b"".join(bits[at : at + 8][::-1] for at in range(0, len(bits), 8))

    def sbbf(self) -> bytes:
        """The bits, preceded by Parquet's header."""
        bits = bytes(self.links[0].bits)
        zigzag, varint = 2 * len(bits), b""
        while zigzag > 0x7F:
            varint, zigzag = varint + bytes([zigzag & 0x7F | 0x80]), zigzag >> 7
        return b"\x15" + varint + bytes([zigzag]) + b"\x1c\x1c\0\0" * 3 + b"\0" + bits

    def guava(self, strategy: int) -> bytes:
        words = self.big_endian_words()
        return struct.pack(">BBI", strategy, self.links[0].probes, len(words) // 8) + words


def reversed_bits(data: bytes) -> bytes:
    return bytes(int(f"{byte:08b}"[::-1], 2) for byte in data)
