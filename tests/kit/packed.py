"""Reads small filters as RDB files and DUMP payloads store them: in one string, with the shortest possible header.
Like `wire_format`, it is written from the format's description, not from the code.
"""

import struct

from kit import wire_format
from kit.wire_format import (
    CHAIN,
    CHUNK_PREFIX,
    ENVELOPE,
    FILTER_HEADER,
    FIXED,
    LAYER_HEADER,
    QUOTIENT,
    WINDOW,
    BadFilter,
    crc32c,
    need,
)

LEAVES = 2  # the form of a table's cells
MOST = 2048  # maximum size of the cells, in bytes
LEAST_RATE = 1e-20
# The fields of a packed header, in the order of their bits in the mask.
FILTER_FIELDS = ("capacity", "error_rate", "seed_low", "hash", "cell", "shards", "layers", "expansion", "overflow",
    "layout", "generations", "every", "since", "rotations", "newest", "seed_high", "tightening", "sizes")  # fmt: skip
LAYER_FIELDS = ("cells", "probes", "layout", "items", "capacity", "error_rate")


def read(data):
    """The filter in a packed string."""
    kind, header, body = unpack(data)
    filter_, _ = wire_format.read_header(kind, header)
    for layer, (_, _, part) in zip(filter_.layers, parts(filter_, body), strict=True):
        layer.data = part
        if getattr(layer, "layout", None) == QUOTIENT:
            need(layer.read_leaves(part, 0) == layer.bytes, "length of the body")
    wire_format.check_body(filter_)
    return filter_


def parts(filter_, body):
    """For each layer: where it begins and ends in the whole body, and its bytes. A table is alone, and has any length.
    """
    start = 0
    for layer in filter_.layers:
        length = len(body) if getattr(layer, "layout", None) == QUOTIENT else layer.bytes
        yield start, start + layer.bytes, body[start : start + length]
        start += layer.bytes


def pieces(data):
    """The filter in a packed string, as a head and chunks."""
    kind, header, body = unpack(data)
    filter_, stamp = wire_format.read_header(kind, header)
    filter_parts = list(parts(filter_, body))
    envelope = ENVELOPE.pack(b"BLMY", 1, kind, 0, len(header), filter_parts[-1][1], 0)[:-4]
    found = [envelope + struct.pack("<I", crc32c(envelope + header)) + header]
    for start, _, part in filter_parts:
        prefix = CHUNK_PREFIX.pack(start, len(part), stamp, 0)[:-4]
        found.append(prefix + struct.pack("<I", crc32c(prefix + part)) + part)
    return found


def unpack(data):
    """The filter's kind, its header in the form that a head contains, and its body."""
    need(len(data) >= 4 and crc32c(data[:-4]) == int.from_bytes(data[-4:], "little"), "checksum")
    need(len(data) > 6, "too short")
    kind, form = data[0], data[1]
    length, at = number(data[:-4], 2)
    header, cells = data[at : at + length], data[at + length : -4]
    need(len(data) - 4 >= at + length, "the header is cut short")
    if kind in (FIXED, CHAIN, WINDOW):
        header = long_header(kind, header)
    filter_, _ = wire_format.read_header(kind, header)
    if any(getattr(layer, "layout", None) == QUOTIENT for layer in filter_.layers):
        need(form == LEAVES and len(filter_.layers) == 1, "form")
        return kind, header, bytes(cells)
    size = sum(layer.bytes for layer in filter_.layers)
    need(size <= MOST, "length of the body")
    need(form in (0, 1), "form")
    body = positions(cells, size) if form == 1 else bytes(cells)
    need(len(body) == size, "length of the body")
    need((sum(byte.bit_count() for byte in body) < size) == (form == 1), "form")
    return kind, header, body


def positions(cells, size):
    body, at, position = bytearray(size), 0, -1
    while at < len(cells):
        gap, at = number(cells, at)
        position += gap + 1
        need(position < 8 * size, "a cell behind the last")
        body[position // 8] |= 1 << position % 8
    return bytes(body)


def number(data, at):
    """A number stored in seven bits per byte, lowest bits first, and where it ends."""
    value = shift = 0
    while True:
        need(at < len(data) and shift < 64, "a number is cut short")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            need(value < 1 << 64 and (byte or shift == 7), "a number is longer than it has to be")
            return value, at


def fields(data, at, names):
    """The named fields, and where they end. A mask says which of them aren't 0 and are therefore stored."""
    mask, at = number(data, at)
    need(mask < 1 << len(names), "fields that there are not")
    found = dict.fromkeys(names, 0)
    for index, name in enumerate(names):
        if mask >> index & 1:
            found[name], at = number(data, at)
            need(found[name], "a field that is 0")
    return found, at


def double(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def long_header(kind, header):
    """Converts a packed header to the form that a head contains."""
    f, at = fields(header, 0, FILTER_FIELDS)
    need(f["layers"] <= MOST // 8, "layers")
    try:
        found = FILTER_HEADER.pack(
            f["capacity"], double(f["error_rate"]), f["seed_low"], f["seed_high"], f["hash"], f["layout"], f["cell"],
            f["overflow"], f["shards"], f["sizes"], f["expansion"], f["generations"], double(f["tightening"]), f["every"],
            f["since"], f["rotations"], f["newest"], f["layers"],
        )  # fmt: skip
        capacities = []
        for index in range(f["layers"]):
            layer, at = fields(header, at, LAYER_FIELDS)
            capacity, rate = planned(kind, f, capacities)
            if layer["capacity"] == layer["error_rate"] == 0:
                layer |= {"capacity": capacity}
            else:
                need((layer["capacity"], double(layer["error_rate"])) != (capacity, rate), "layer")
                rate = double(layer["error_rate"])
            capacities.append(layer["capacity"])
            found += LAYER_HEADER.pack(
                layer["capacity"], rate, layer["cells"], layer["items"], layer["probes"], layer["layout"]
            )  # fmt: skip
        if f["layout"] == QUOTIENT:
            for _ in range(f["generations"]):
                items, at = number(header, at)
                found += struct.pack("<Q", items)
    except (struct.error, ZeroDivisionError) as error:
        raise BadFilter("a field is too large") from error
    need(at == len(header), "length of the header")
    return found


def planned(kind, f, before):
    """The default capacity and error rate of the layer that follows layers with the capacities in `before`."""
    capacity, rate, index = f["capacity"], double(f["error_rate"]), len(before)
    if kind == WINDOW:
        if f["layout"] == QUOTIENT:
            return capacity * f["generations"], rate
        return capacity, rate / f["generations"]
    if kind == FIXED or f["layout"] == QUOTIENT:
        return capacity, rate
    if before:
        capacity = min(max(before[-1] * f["expansion"], sum(before) // 8), 1 << 48)
    if f["tightening"]:
        ratio = double(f["tightening"])
        share = (1 - ratio) * power(ratio, index)
    else:
        share = 6 / ((3 * index + 2) * (3 * index + 5))
    return capacity, max(rate * share, LEAST_RATE)


def power(base, exponent):
    """Computes a power by squaring, so that all implementations round in the same way."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
