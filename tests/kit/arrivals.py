"""Filters that other systems made, and the answers they must give. An `Arrival` is loaded by RESTORE, BF.IMPORT or
BF.LOAD.

The filters of RedisBloom, go-zero and bits-and-blooms were recorded from the originals, each with its members and the
absent items that tested positive, which the manifests in tests/fixtures list. For Guava, Parquet, Redisson,
valkey-bloom and old versions of RedisBloom, `foreign` makes filters by rules that were checked against recorded
positions.
"""

import dataclasses
import functools
import json
import random
import struct
from collections.abc import Callable

import redis

from kit.filters import batches
from kit.foreign import (
    Bitmap,
    ValkeyBloomChain,
    Value,
    guava_32,
    guava_64,
    redisbloom_2017,
    sealed,
    values_of,
)
from kit.foreign import redisson as redisson_positions
from kit.foreign import sbbf as positions_of_sbbf
from kit.servers import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
REDISBLOOM_RDB = FIXTURES / "redisbloom" / "dump.rdb"
MANIFEST = {entry["key"]: entry for entry in json.loads((FIXTURES / "redisbloom" / "manifest.json").read_text())}
ORIGINALS = values_of(REDISBLOOM_RDB.read_bytes())

OLDEST = 10  # RDB version of the oldest server, so that all servers accept the payloads


@dataclasses.dataclass(frozen=True)
class Arrival:
    """A filter from another system, and the answers it must give."""

    name: str
    type: bytes  # TYPE's reply for the loaded filter
    move_in: Callable[[redis.Redis, str], None]
    members: list[str]
    strangers: list[str]
    positives: list[str] | None  # strangers that test positive; None if unknown

    def __str__(self) -> str:
        return self.name

    @property
    def family(self) -> str:
        return "CF" if self.type == b"MBbloomCF" else "BF"

    def answers(self, client, key: str) -> bytes:
        """The answers for all members, then for all absent items."""
        answers = bytearray()
        for items in batches([*self.members, *self.strangers], 2000):
            answers += bytes(map(int, client.execute_command(f"{self.family}.MEXISTS", key, *items)))
        return bytes(answers)

    @functools.cached_property
    def blob(self) -> bytes:
        """All members, then all absent items, in BF.BULKTEST's PREFIXED format."""
        items = [item.encode() for item in (*self.members, *self.strangers)]
        return b"".join(len(item).to_bytes(4, "little") + item for item in items)

    def answers_at_once(self, client, key: str) -> bytes:
        """Returns what `answers` returns. For a Bloom filter, BF.BULKTEST provides it at a tenth of the cost."""
        if self.family == "CF":
            return self.answers(client, key)
        bitmap = client.execute_command("BF.BULKTEST", key, "PREFIXED", self.blob)
        number = int.from_bytes(bitmap, "big")
        bits = f"{number:0{8 * len(bitmap)}b}".encode()
        return bits[: len(self.members) + len(self.strangers)].translate(bytes.maketrans(b"01", b"\0\1"))

    def expected(self) -> bytes:
        positives = set(self.positives)
        return b"\1" * len(self.members) + bytes(stranger in positives for stranger in self.strangers)


def restores(value: bytes):
    return lambda client, key: client.restore(key, 0, sealed(value, OLDEST))


def imports(*words, **source):
    """A `move_in` that runs BF.IMPORT. It first creates the keys that BF.IMPORT reads, and deletes them afterwards."""

    def move_in(client, key):
        for name, content in source.items():
            client.hset(name, mapping=content) if isinstance(content, dict) else client.set(name, content)
        assert client.execute_command("BF.IMPORT", key, *words) == b"OK"
        client.delete(*source or ["none"])

    return move_in


def numbered(prefix: str, first: int, count: int) -> list[str]:
    return [f"{prefix}:{number}" for number in range(first, first + count)]


def modelled(name: str, type: bytes, model, members, move_in, strangers=None) -> Arrival:
    """An arrival whose model says which absent items test positive."""
    strangers = strangers or numbered("stranger", 0, 3000)
    return Arrival(name, type, move_in, list(members), strangers, [item for item in strangers if model.has(item)])


def fixtures():
    for key, entry in MANIFEST.items():
        prefix, first = entry["prefix"], entry["absent_first"]
        yield Arrival(
            key,
            {"BF": b"MBbloom--", "CF": b"MBbloomCF"}[entry["type"]],
            restores(ORIGINALS[key.encode()]),
            numbered(prefix, entry["first"], entry["last"] + 1 - entry["first"]),
            numbered(prefix, first, entry["absent_count"]),
            [f"{prefix}:{number}" for number in entry["absent_answered_yes"]],
        )
    manifest = json.loads((FIXTURES / "go-zero" / "manifest.json").read_text())
    yield Arrival(
        "go-zero",
        b"bloomery1",
        imports(
            *["GOZERO", "source", "BITS", manifest["bits"], "MAPS", manifest["maps"]],
            source=(FIXTURES / "go-zero" / "bitmap.bin").read_bytes(),
        ),
        numbered("order", 0, 2000),
        numbered("order", 10_000_000, 200_000),
        [f"order:{number}" for number in manifest["absent_answered_yes"]],
    )
    manifest = json.loads((FIXTURES / "bits-and-blooms" / "manifest.json").read_text())
    for name, blob in bits_and_blooms().items():
        yield Arrival(
            f"bits-and-blooms/{name}",
            b"bloomery1",
            imports("BLOOMV3", blob),
            numbered("user", 0, 10_000),
            numbered("user", 10_000_000, 20_000),
            [f"user:{number}" for number in manifest["absent_answered_yes"]],
        )


def bits_and_blooms() -> dict[str, bytes]:
    """The recorded file in both byte orders: as programs usually write it, and as they write it after calling
    `bitset.LittleEndian()`."""
    blob = (FIXTURES / "bits-and-blooms" / "filter.bin").read_bytes()
    swapped = b"".join(blob[at : at + 8][::-1] for at in range(16, len(blob), 8))
    return {"big-endian": blob, "little-endian": blob[:16] + swapped}


# A filter made by RedisBloom 2.0.1 (in Redis 7.0.15 on Linux), which cut seeds to 32 bits: BF.RESERVE 0.2 3, with
# user:42 added.
CUT = "07813016e5a289bef8030201020102040204049a9999999999c93f020304906b7ed875cc0a40020002040502038002010005"
CUT = bytes.fromhex(CUT[:-2] + "00")


def old_redisbloom():
    """Filters from old versions of RedisBloom. Today's version refuses them, or loads them but doesn't find their
    members."""
    yield Arrival("redisbloom/2.0.1", b"MBbloom--", restores(CUT), ["user:42"], numbered("x", 0, 300), None)
    members = numbered("old", 0, 90)
    model = Bitmap(redisbloom_2017, 1024, 7, map(str.encode, members))
    fields = [90, 1, 106, 0.01, 7, 9.585058378055, 0, 10, bytes(model.links[0].bits), 90]
    yield modelled("redisbloom/1.0", b"MBbloom--", model, members, restores(Value("MBbloom--", 1, fields).dump()))
    model = Bitmap(redisbloom_2017, 958, 7, map(str.encode, members))
    fields = [90, 1, 100, 0.01, 7, 9.585058378055, bytes(model.links[0].bits), 90]
    # Once this filter has been saved again, it looks like one from a later version, which placed items by a different
    # rule. So absent items may get the answer of either rule.
    value = Value("MBbloom--", 0, fields)
    yield Arrival("redisbloom/2017", b"MBbloom--", restores(value.dump()), members, numbered("stranger", 0, 3000), None)
    table = bytearray(1024)
    table[918] = 229  # `hello` in bucket 459 of 512, two slots each
    value = Value("MBbloomCF", 3, [1, 512, 1, bytes(table)])
    yield Arrival("redisbloom/cuckoo-2.0", b"MBbloomCF", restores(value.dump()), ["hello"], ["hi"], [])


def guava():
    text = numbered("text", 0, 1000)
    numbers = [str(number) for number in (0, 1, -1, 42, 1 << 31, -(1 << 63), *range(1000, 1900))]
    small = [number for number in numbers if abs(int(number)) < 1 << 31]
    for strategy, positions in enumerate([guava_32, guava_64]):
        for funnel, members, encode in [
            ("BYTES", text, str.encode),
            ("UTF16", [*text, "", "naïve 🎈"], lambda item: item.encode("utf-16-le")),
            ("LONG", numbers, lambda item: struct.pack("<q", int(item))),
            ("INT", small, lambda item: struct.pack("<i", int(item))),
        ]:
            model = Bitmap(positions, 64 * 120, 5, map(encode, members))
            strangers = list(map(str, range(10_000, 14_000)))
            # The model hashes the bytes that the funnel makes from an item.
            positives = [item for item in strangers if model.links[0].has(encode(item), positions)]
            assert len(positives) > 10
            move_in = imports("GUAVA", model.guava(strategy), "FUNNEL", funnel)
            yield Arrival(f"guava/{strategy}/{funnel}", b"bloomery1", move_in, members, strangers, positives)


def sbbf():
    text = numbered("text", 0, 1000)
    numbers = [str(number) for number in (0, 1, -1, 42, *range(1000, 1900))]
    for kind, members, encode in [
        ("BYTES", text, str.encode),
        ("LONG", [*numbers, str(-(1 << 63))], lambda item: struct.pack("<q", int(item))),
        ("INT", numbers, lambda item: struct.pack("<i", int(item))),
    ]:
        model = Bitmap(positions_of_sbbf, 256 * 35, 8, map(encode, members))
        strangers = list(map(str, range(10_000, 14_000)))
        positives = [item for item in strangers if model.links[0].has(encode(item), positions_of_sbbf)]
        assert len(positives) > 10
        for form, blob in {"header": model.sbbf(), "bitset": bytes(model.links[0].bits)}.items():
            move_in = imports("SBBF", blob, "TYPE", kind)
            yield Arrival(f"sbbf/{form}/{kind}", b"bloomery1", move_in, members, strangers, positives)


def redisson():
    config = {"size": "9585", "hashIterations": "5", "expectedInsertions": "1000", "falseProbability": "0.01"}
    members = numbered("user", 0, 1000)  # 2 to 32 ASCII characters, which Kryo encodes in a special form
    strangers = numbered("stranger", 0, 2000)
    for codec, encode in {
        "STRING": str.encode,
        "JSON": lambda item: f'"{item}"'.encode(),
        "KRYO5": lambda item: b"\3" + item[:-1].encode() + bytes([ord(item[-1]) | 0x80]),
    }.items():
        model = Bitmap(redisson_positions, 9585, 5, map(encode, members))
        positives = [item for item in strangers if model.links[0].has(encode(item), redisson_positions)]
        words = ["REDISSON", "source", "config", "CODEC", codec]
        move_in = imports(*words, source=model.bitmap(), config=config)
        yield Arrival(f"redisson/{codec}", b"bloomery1", move_in, members, strangers, positives)


@functools.cache
def valkey_bloom_chain(capacity: int, count: int, error_rate: float, tightening: float, expansion: int):
    chain = ValkeyBloomChain(capacity, error_rate, tightening, expansion, bytes(range(7, 39)))
    members = numbered("v", 0, count)
    for item in members:
        chain.add(item)
    return chain, members


def valkey_bloom():
    for name, shape in {
        "fixed": (500, 400, 0.02, 0.5, 0),
        "scaled": (100, 1000, 0.05, 0.5, 2),
        # This ratio isn't a finite binary fraction, so the rates of successive links are rounded.
        "tightened": (20, 1000, 0.1, 0.7, 2),
    }.items():
        chain, members = valkey_bloom_chain(*shape)
        payload = chain.payload()
        for way, move_in in {
            "BF.LOAD": lambda client, key, payload=payload: client.execute_command("BF.LOAD", key, payload),
            "RESTORE": restores(chain.value().dump()),
        }.items():
            yield modelled(f"valkey-bloom/{name}/{way}", b"bloomfltr", chain, members, move_in)


@functools.cache
def arrivals() -> dict[str, Arrival]:
    groups = [fixtures(), old_redisbloom(), guava(), sbbf(), redisson(), valkey_bloom()]
    return {arrival.name: arrival for group in groups for arrival in group}


def move_all_in(client) -> None:
    for name, arrival in arrivals().items():
        arrival.move_in(client, name)


# Small files to damage.
GUAVA = Bitmap(guava_64, 64, 3, [b"user:42"]).guava(1)
SBBF = Bitmap(positions_of_sbbf, 256, 8, [b"user:42"]).sbbf()
BLOOM_V3 = bytes.fromhex("0000000000000030 0000000000000004 0000000000000030 0000000109020000")


# ---- damage ---------------------------------------------------------------------------------------------------------

EDGES = {
    int: [0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 1100, 1101, 65_535, 65_536, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 48,
          1 << 62, 1 << 63, (1 << 64) - 1],
    float: [0.0, -0.0, 5e-324, 1e-300, 1e-12, 0.5, 1 - 2**-53, 1.0, 2.0, -1.0, 1e300, float("inf"), float("nan")],
}  # fmt: skip


def damaged_value(value: Value, chance: random.Random) -> bytes:
    """Damages a few fields: sets them to edge values, or drops, duplicates, replaces or cuts them. Sometimes also
    changes the encoding, or a few bytes."""
    fields = list(value.fields)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(fields))
        field = fields[at]
        match chance.randrange(8):
            case 0:
                del fields[at]
            case 1:
                fields.insert(at, field)
            case 2:
                fields[at] = chance.choice(fields)
            case _ if isinstance(field, bytes):
                cut, longer = field[: chance.randrange(len(field) + 1)], field + b"\xff" * 8
                fields[at] = chance.choice([cut, longer, flipped(field, chance), chance.randbytes(len(field))])
            case _:
                fields[at] = chance.choice(EDGES[type(field)])
                if isinstance(field, int) and chance.random() < 0.3:
                    fields[at] = (field + chance.choice([-8, -1, 1, 8])) % (1 << 64)
        if not fields:
            break
    encoding = value.encoding if chance.random() < 0.9 else chance.randrange(6)
    data = Value(value.type, encoding, fields).dump()
    return flipped(data, chance, 10) if chance.random() < 0.2 else data


def flipped(data: bytes, chance: random.Random, start: int = 0) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4) if len(data) > start else 0):
        changed[chance.randrange(start, len(data))] = chance.choice([0, 1, 255, chance.randrange(256)])
    return bytes(changed)
