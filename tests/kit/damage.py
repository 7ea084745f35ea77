"""DUMP payloads of filters of every type, kind and state, and ways to damage them.

The damage is in places that a decoder reads: pieces and head fields in our own encoding, fields in other systems'
encodings, and bytes anywhere. One random generator decides everything, so the same seed causes the same damage.
"""

import dataclasses
import functools
import random
import struct

from kit.arrivals import BLOOM_V3, OLDEST, ORIGINALS, damaged_value, valkey_bloom_chain
from kit.filters import SMALL, adding, make_all
from kit.foreign import Bitmap, RedisBloomChain, Value, guava_32, guava_64, sealed
from kit.payload import PREFIX as CHUNK_PREFIX
from kit.payload import Payload, crc32c

LARGEST = 8192  # bytes in a payload: in a small one, a damaged byte is more likely to matter

EDGES = {
    "B": [0, 1, 2, 3, 4, 7, 8, 16, 127, 255],
    "H": [0, 1, 0x8000, 0xFFFF],
    "I": [0, 1, 2, 3, 63, 64, 65, 1023, 1024, 1025, 4096, 4097, 32_768, 32_769, 1 << 31, (1 << 32) - 1],
    "Q": [0, 1, 8, 63, 64, 512, 1 << 31, 1 << 32, 1 << 46, 1 << 48, (1 << 48) + 1, 1 << 49, (1 << 62) - 1, 1 << 62, 1 << 63, (1 << 64) - 1],
    "d": [0.0, -0.0, 5e-324, 1e-300, 1e-12, 9e-13, 1e-20, 0.5, 1 - 2**-53, 1.0, 2.0, -1.0, float("inf"), float("-inf"), float("nan")],
}  # fmt: skip

ITEMS = [f"item:{number}" for number in range(20)]


# ---- what to damage -------------------------------------------------------------------------------------------------


def sources(client) -> dict[str, bytes]:
    """Payloads by name. The server that makes them must not compress them, and is empty afterwards."""
    made = make_all(client, [seeded(kind) for kind in SMALL])
    client.hset("config", mapping={"size": 958, "hashIterations": 7})
    for name, command in imports().items():
        assert client.execute_command(*command) == b"OK"
        client.execute_command(*adding("BF", name, ITEMS))
        made.append(name)
    made += rebuilding(client, made)
    dumps = {name: client.dump(name) for name in made}
    dumps |= {name: sealed(value, OLDEST) for name, value in values().items()}
    client.flushall()
    return {name: dump for name, dump in dumps.items() if len(dump) <= LARGEST}


def rebuilding(client, made: list[str]) -> list[str]:
    """Copies some filters, and gives each copy a shadow with a few items."""
    keys = []
    for name in ["fixed/full", "scaling/overfull", "counting-4/full", "window-every/rotated", "go-zero", "guava/UTF16"]:
        assert name in made, name
        key = f"rebuilding {name}"
        client.copy(name, key)
        assert client.execute_command("BF.REBUILD", key, "BEGIN", "CAPACITY", 200, "SEED", 7) == b"OK"
        client.execute_command("BF.REBUILD", key, "ADD", *ITEMS)
        keys.append(key)
    client.execute_command("BF.DEL", "rebuilding counting-4/full", "member:1")
    return keys


def seeded(kind):
    """The kind with a fixed seed. Windows that rotate by the clock start at a fixed time."""
    options = kind.options.replace("{since}", "1700000000000")
    return dataclasses.replace(kind, options=f"{options} SEED 7")


def imports() -> dict[str, list]:
    """Commands that import a filter from each system whose filters are stored in our own encoding."""
    items = [item.encode() for item in ITEMS]
    funnels = {"BYTES": items, "UTF16": items, "LONG": [struct.pack("<q", 42)], "INT": [struct.pack("<i", 42)]}
    return {
        "go-zero": ["BF.IMPORT", "go-zero", "GOZERO", "none", "BITS", 1000],
        **{
            f"redisson/{codec}": ["BF.IMPORT", f"redisson/{codec}", "REDISSON", "none", "config", "CODEC", codec]
            for codec in ("STRING", "JSON", "KRYO5")
        },
        "bits-and-blooms": ["BF.IMPORT", "bits-and-blooms", "BLOOMV3", BLOOM_V3],
        **{
            f"sbbf/{name}": ["BF.IMPORT", f"sbbf/{name}", "SBBF", bytes(64), "TYPE", name]
            for name in ("BYTES", "LONG", "INT")
        },
        **{
            f"guava/{name}": ["BF.IMPORT", f"guava/{name}", "GUAVA", blob, "FUNNEL", name]
            for strategy, positions in enumerate([guava_32, guava_64])
            for name, encoded in list(funnels.items())[strategy::2]
            for blob in [Bitmap(positions, 640, 5, encoded).guava(strategy)]
        },
    }


@functools.cache
def values() -> dict[str, bytes]:
    """Values of RedisBloom's and valkey-bloom's types, in every version of their encodings that we read."""
    chain = RedisBloomChain(Value.parse(ORIGINALS[b"bf:empty"]))
    chain.links[0].capacity = 5
    for item in ITEMS:
        chain.add(item)
    fixed = dataclasses.replace(chain.value())
    fixed.fields = [*fixed.fields[:2], fixed.fields[2] | RedisBloomChain.NO_SCALING, *fixed.fields[3:]]
    table, larger = bytes([7, 0] * 8), bytes([0, 9] * 16)
    found = {f"MBbloom--/{encoding}": narrowed(chain.value(), encoding) for encoding in (0, 1, 3, 4)}
    found |= {
        "MBbloom--/fixed": fixed,
        "MBbloomCF/1": Value("MBbloomCF", 1, [1, 8, 3, table]),
        "MBbloomCF/3": Value("MBbloomCF", 3, [2, 8, 3, table, table]),
        "MBbloomCF/4": Value("MBbloomCF", 4, [2, 8, 3, 0, 2, 20, 2, 8, table, 16, larger]),
        "bloomfltr": valkey_bloom_chain(5, 20, 0.05, 0.5, 2)[0].value(),
        "bloomfltr/fixed": valkey_bloom_chain(64, 60, 0.001, 0.5, 0)[0].value(),
    }
    recorded = {f"redisbloom/{key.decode()}": value for key, value in ORIGINALS.items()}
    return {name: value.dump() for name, value in found.items()} | recorded


def narrowed(value: Value, encoding: int) -> Value:
    """Converts a RedisBloom chain to the given version of the encoding."""
    items, count, options, growth, *rest = value.fields
    fields = [items, count, *([options] if encoding >= 3 else []), *([growth] if encoding >= 4 else [])]
    for at in range(0, len(rest), 8):
        capacity, error_rate, probes, density, bits, n2, bitmap, added = rest[at : at + 8]
        # Encoding 0 lacks `bits` and `n2`: the number of bits follows from the link's capacity and density.
        place = [bits, n2] if encoding else []
        fields += [capacity, error_rate, probes, density if encoding else bits / capacity, *place, bitmap, added]
    return Value(value.type, encoding, fields)


# ---- damage ---------------------------------------------------------------------------------------------------------


def damaged(dumps: dict[str, bytes], chance: random.Random) -> tuple[str, bytes]:
    """A description of the damage, and the damaged value's bytes, without the payload's footer."""
    name = chance.choice(list(dumps))
    body = dumps[name][:-10]
    if chance.random() < 0.2:
        damage = chance.choice([anywhere, graft])
        return f"{name}, {damage.__name__}", damage(body, chance, dumps)
    if not is_native(body):
        return f"{name}, fields", damaged_value(Value.parse(body), chance)
    if chance.random() < 0.3 and not Value.parse(body).fields[0].startswith(b"BLMY"):
        return f"{name}, packed", packed(body, chance)
    payload, damage = Payload.parse(dumps[name]), chance.choice(DAMAGES)
    damage(payload, chance, dumps)
    return f"{name}, {damage.__name__}", payload.dump()[:-10]


def is_native(body: bytes) -> bool:
    return Value.parse(body).type in ("bloomery1", "bloomeryC")


def flip(data: bytes, chance: random.Random, start: int = 0) -> bytes:
    """Changes one to four bytes in various ways."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 4) if len(data) > start else 0):
        at = chance.randrange(start, len(data))
        data[at] = chance.choice([data[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0, 255])
    return bytes(data)


TYPE = 10  # bytes of a value's mark and type: if these were damaged, the value would belong to another module


def anywhere(body: bytes, chance: random.Random, dumps: dict) -> bytes:
    """Changes bytes anywhere, even in the lengths and marks of strings, or cuts off the end."""
    return body[: chance.randrange(TYPE, len(body))] if chance.random() < 0.2 else flip(body, chance, TYPE)


def graft(body: bytes, chance: random.Random, dumps: dict) -> bytes:
    """Joins the beginning of one value and the end of another."""
    other = chance.choice(list(dumps.values()))[:-10]
    return body[: chance.randrange(TYPE, len(body))] + other[chance.randrange(TYPE, len(other)) :]


def packed(body: bytes, chance: random.Random) -> bytes:
    """Changes, removes or adds bytes in a small filter's string, and corrects its checksum."""
    value = Value.parse(body)
    string = bytearray(flip(value.fields[0][:-4], chance))
    at = chance.randrange(len(string))
    match chance.randrange(4):
        case 0:
            del string[at]
        case 1:
            string.insert(at, chance.randrange(256))
        case 2:
            del string[at:]
    value.fields = [bytes(string) + struct.pack("<I", crc32c(string))]
    return value.dump()


def a_piece(payload: Payload, chance: random.Random, dumps: dict) -> None:
    """Damages a piece, whose checksum is then wrong."""
    index = chance.randrange(len(payload.pieces))
    payload.pieces[index] = flip(payload.pieces[index], chance)


def a_sealed_piece(payload: Payload, chance: random.Random, dumps: dict) -> None:
    a_piece(payload, chance, dumps)
    payload.seal()


def head_fields(payload: Payload, chance: random.Random, dumps: dict) -> None:
    """Sets one to three head fields to edge values, and corrects the checksums."""
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        name, code, _ = chance.choice(payload.fields())
        value = chance.choice(EDGES[code])
        if code != "d" and chance.random() < 0.3:
            size = struct.calcsize(code) * 8
            value = (payload.get(name) + chance.choice([-8, -1, 1, 8])) % (1 << size)
        payload.set(name, value)
    payload.seal()


def counts(payload: Payload, chance: random.Random, dumps: dict) -> None:
    """Changes fields that don't determine the geometry. Most payloads with such changes can be loaded."""
    names = [
        name
        for name, *_ in payload.fields()
        if name.endswith("items")
        or name in ("newest", "rotations", "since", "every", "deletes", "moves", "deletes missed")
    ]
    for name in chance.choices(names, k=2):
        most = 1 << 48 if name.endswith("items") else 1 << 62
        near = [most - 2, most - 1, most, most + 1]
        payload.set(
            name, chance.choice([*near, *near, *EDGES["Q"], chance.randrange(1 << 49), chance.randrange(1 << 63)])
        )
    payload.seal()


def cells(payload: Payload, chance: random.Random, dumps: dict) -> None:
    """Writes cells that no adds would produce. In most layouts, a decoder can't tell them from intact ones."""
    for index, chunk in enumerate(payload.pieces[1:], 1):
        size = len(chunk) - CHUNK_PREFIX
        payload.pieces[index] = chunk[:CHUNK_PREFIX] + chance.choice([chance.randbytes(size), b"\xff" * size])
    payload.seal()


def splice(payload: Payload, chance: random.Random, dumps: dict) -> None:
    """Drops, duplicates, shuffles or cuts pieces, or replaces one with a piece of another filter."""
    pieces, index = payload.pieces, chance.randrange(len(payload.pieces))
    match chance.randrange(5):
        case 0:
            del pieces[index]
        case 1:
            pieces.insert(index, pieces[index])
        case 2:
            chance.shuffle(pieces)
        case 3:
            pieces[index] = pieces[index][: chance.randrange(len(pieces[index]))]
        case 4:
            others = [dump for dump in dumps.values() if is_native(dump[:-10])]
            pieces[index] = chance.choice(Payload.parse(chance.choice(others)).pieces)
    if pieces and len(pieces[0]) >= 24 and chance.random() < 0.5:
        payload.seal()


DAMAGES = [a_piece, a_sealed_piece, head_fields, head_fields, counts, cells, splice]
