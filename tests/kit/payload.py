"""Parses and writes DUMP payloads, so that a test can change any part and correct the checksums.

A payload is an RDB value: the type byte, the module type's id, one string per piece, an end mark, and a footer of RDB
version and checksum. Tests tell the server not to verify that checksum. The pieces are those of the wire format: one
head, then chunks, each with a CRC-32C of its own. A small filter is packed into one string; `Payload` splits it into
pieces, which can be loaded as well. Strings must not be compressed: `CONFIG SET rdbcompression no`.
"""

import dataclasses
import struct

from kit import packed
from kit.wire_format import crc32c

STRING, END = 5, 0  # opcodes of a module's value

ENVELOPE = 24  # bytes in the head before the header
PREFIX = 20  # bytes in a chunk before the data

# Fields of the head: name, struct format, offset. After the filter's fields, the layer fields follow once per layer.
ENVELOPE_FIELDS = [
    ("version", "B", 4),
    ("kind", "B", 5),
    ("dump number", "H", 6),
    ("header length", "I", 8),
    ("body length", "Q", 12),
]
FILTER_FIELDS = [
    ("capacity", "Q", 0), ("error rate", "d", 8), ("seed low", "Q", 16), ("seed high", "Q", 24), ("hash", "B", 32),
    ("layout", "B", 33), ("cell", "B", 34), ("overflow", "B", 35), ("shards", "I", 36), ("expansion", "I", 40),
    ("generations", "I", 44), ("tightening", "d", 48), ("every", "Q", 56), ("since", "Q", 64), ("rotations", "Q", 72),
    ("newest", "Q", 80), ("layers", "Q", 88),
]  # fmt: skip
FILTER_SIZE = 96
LAYER_FIELDS = [
    ("capacity", "Q", 0),
    ("error rate", "d", 8),
    ("cells", "Q", 16),
    ("items", "Q", 24),
    ("probes", "I", 32),
    ("layout", "I", 36),
]
LAYER_SIZE = 40
QUOTIENT = 3  # the layout of tables
CUCKOO = 4  # the kind's number; lower numbers are kinds of Bloom filters
CUCKOO_FIELDS = [
    ("capacity", "Q", 0), ("seed low", "Q", 8), ("seed high", "Q", 16), ("deletes", "Q", 24), ("moves", "Q", 32),
    ("hash", "B", 40), ("bucket size", "B", 41), ("max iterations", "H", 42), ("expansion", "H", 44),
    ("reserved", "H", 46), ("tables", "I", 48), ("reserved too", "I", 52),
]  # fmt: skip
FOREIGN = 5  # another system's Bloom filter
FOREIGN_FIELDS = [
    ("scheme", "B", 0), ("plan", "B", 1), ("random seed", "B", 2), ("encoding", "B", 3), ("links", "I", 4),
    ("options", "I", 8), ("growth", "I", 12), ("seed", "Q", 16), ("seed's end", "Q", 40), ("error rate", "d", 48),
    ("tightening", "d", 56),
]  # fmt: skip
FOREIGN_SIZE = 64
LINK_FIELDS = [
    ("modulus", "Q", 0), ("bits", "Q", 8), ("bytes", "Q", 16), ("capacity", "Q", 24), ("items", "Q", 32),
    ("error rate", "d", 40), ("bits per item", "d", 48), ("probes", "I", 56), ("log2", "I", 60),
]  # fmt: skip
LINK_SIZE = 64
REBUILD = 6  # a filter being rebuilt: the fields below, then the headers of the live filter and of its shadow
REBUILD_FIELDS = [
    ("deletes missed", "Q", 0),
    ("live length", "I", 8),
    ("live kind", "B", 12),
    ("shadow kind", "B", 13),
    ("rebuild reserved", "H", 14),
]
REBUILD_SIZE = 16


@dataclasses.dataclass
class Payload:
    start: bytes
    pieces: list[bytes]
    footer: bytes

    @classmethod
    def parse(cls, dump: bytes) -> "Payload":
        body, footer = dump[:-10], dump[-10:]
        _, at = read_length(body, 1)
        start, pieces = body[:at], []
        while body[at] == STRING:
            length, at = read_length(body, at + 1)
            pieces.append(body[at : at + length])
            at += length
        assert body[at:] == bytes([END]), "a string of the payload is compressed"
        if not pieces[0].startswith(b"BLMY"):
            pieces = packed.pieces(pieces[0])
        return cls(start, pieces, footer)

    def dump(self) -> bytes:
        strings = b"".join(bytes([STRING]) + write_length(len(piece)) + piece for piece in self.pieces)
        return self.start + strings + bytes([END]) + self.footer

    # ---- the head ---------------------------------------------------------------------------------------------------

    def fields(self) -> list[tuple[str, str, int]]:
        """Every field in the head: name, format, offset."""
        head = self.pieces[0]
        fields = ENVELOPE_FIELDS + [(name, code, ENVELOPE + at) for name, code, at in self.header_fields()]
        # If a test has changed the head's kind, the head may be too short for some of the fields.
        return [(name, code, at) for name, code, at in fields if at + struct.calcsize("<" + code) <= len(head)]

    def header_fields(self) -> list[tuple[str, str, int]]:
        return header_fields(self.kind, self.pieces[0][ENVELOPE:])

    @property
    def kind(self) -> int:
        return self.pieces[0][5]

    def set(self, name: str, value) -> None:
        code, at = next((code, at) for field, code, at in self.fields() if field == name)
        head = bytearray(self.pieces[0])
        struct.pack_into("<" + code, head, at, value)
        self.pieces[0] = bytes(head)

    def get(self, name: str):
        code, at = next((code, at) for field, code, at in self.fields() if field == name)
        return struct.unpack_from("<" + code, self.pieces[0], at)[0]

    def seal(self) -> None:
        """Corrects all checksums, and the stamps that say which head the chunks belong to."""
        head, *chunks = self.pieces
        header = bytearray(head[ENVELOPE:])
        head = head[: ENVELOPE - 4] + struct.pack("<I", crc32c(head[: ENVELOPE - 4] + header)) + header
        dump_number = int.from_bytes(head[6:8], "little")
        stamp = struct.pack("<I", stamp_of(self.kind, bytes(header)) ^ dump_number)
        self.pieces = [head, *(seal_chunk(chunk, stamp) for chunk in chunks)]


def both(header: bytes) -> list[tuple[str, int, int, bytes]]:
    """The two filters in the header of a filter being rebuilt: name, offset, kind, header."""
    own = header[:REBUILD_SIZE].ljust(REBUILD_SIZE, b"\0")
    _, length, live, shadow, _ = struct.unpack("<QIBBH", own)
    middle = min(REBUILD_SIZE + length, len(header))
    # A rebuild inside a rebuild is refused, whatever it contains.
    kinds = [kind if kind != REBUILD else 0 for kind in (live, shadow)]
    return [
        ("live", REBUILD_SIZE, kinds[0], header[REBUILD_SIZE:middle]),
        ("shadow", middle, kinds[1], header[middle:]),
    ]


def header_fields(kind: int, header: bytes) -> list[tuple[str, str, int]]:
    if kind == CUCKOO:
        return CUCKOO_FIELDS
    if kind == REBUILD:
        return REBUILD_FIELDS + [
            (f"{word} {name}", code, start + at)
            for word, start, inner, part in both(header)
            for name, code, at in header_fields(inner, part)
        ]
    fields, of_part, word = FILTER_FIELDS, LAYER_FIELDS, "layer"
    if kind == FOREIGN:
        fields, of_part, word = FOREIGN_FIELDS, LINK_FIELDS, "link"
    starts = parts(kind, header)
    return (
        fields
        + [(f"{word} {n}: {name}", code, start + at) for n, start in enumerate(starts) for name, code, at in of_part]
        # A window in a table: the number of items in each generation.
        + [(f"items at {at}", "Q", at) for at in range(starts.stop, len(header), 8) if kind < CUCKOO and starts]
    )


def parts(kind: int, header: bytes) -> range:
    """The offsets at which layers or links begin in the header. A cuckoo filter has none."""
    length = len(header)
    if kind == CUCKOO:
        return range(0)
    if kind == FOREIGN:
        return range(FOREIGN_SIZE, length - LINK_SIZE + 1, LINK_SIZE)
    layers = min(int.from_bytes(header[88:92], "little"), (length - FILTER_SIZE) // LAYER_SIZE)
    return range(FILTER_SIZE, FILTER_SIZE + layers * LAYER_SIZE, LAYER_SIZE)


def stamp_of(kind: int, header: bytes) -> int:
    """The stamp of a head. It doesn't depend on item counts, nor on a table's size, which change while a filter is
    dumped."""
    if kind == REBUILD:
        return crc32c(b"".join(struct.pack("<I", stamp_of(inner, part)) for _, _, inner, part in both(header)))
    starts, items = parts(kind, header), 32 if kind == FOREIGN else 24
    header = bytearray(header[: starts.stop] if kind < CUCKOO else header)
    for part in starts:
        header[part + items : part + items + 8] = bytes(8)
        if kind < CUCKOO and header[part + 36] == QUOTIENT:
            header[part + 16 : part + 24], header[part + 32 : part + 36] = bytes(8), bytes(4)
    return crc32c(bytes(header))


def seal_chunk(chunk: bytes, stamp: bytes) -> bytes:
    if len(chunk) < PREFIX:
        return chunk
    prefix = chunk[:12] + stamp
    return prefix + struct.pack("<I", crc32c(prefix + chunk[PREFIX:])) + chunk[PREFIX:]


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """A length in an RDB file, and where it ends."""
    match data[at] >> 6:
        case 0:
            return data[at] & 63, at + 1
        case 1:
            return (data[at] & 63) << 8 | data[at + 1], at + 2
    size = {0x80: 4, 0x81: 8}[data[at]]
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def write_length(length: int) -> bytes:
    if length < 64:
        return bytes([length])
    if length < 1 << 14:
        return struct.pack(">H", 0x4000 | length)
    return b"\x80" + struct.pack(">I", length)
