"""The golden filters through the eyes of another language: the same answers, from the bytes alone."""

import json
import re
import struct
from pathlib import Path

import pytest

import reader

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(GOLDEN.glob("*.bin"))
ITEMS = [bytes.fromhex(item) for item in json.loads((GOLDEN / "items.json").read_text())]


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request):
    """A golden file: its bytes, and what its maker says of it."""
    return request.param.read_bytes(), json.loads(request.param.with_suffix(".json").read_text())


def test_there_are_files_of_every_kind():
    every = [reader.read(path.read_bytes()) for path in FILES]
    assert {f.kind for f in every} == {reader.FIXED, reader.CHAIN, reader.WINDOW, reader.CUCKOO}
    cuckoo = [f for f in every if f.kind == reader.CUCKOO]
    assert {f.hash for f in cuckoo} == {reader.XXH3, reader.SIPHASH}
    assert {f.slots for f in cuckoo} == {2, 3, 4, 255}
    assert {f.expansion for f in cuckoo} == {0, 1, 2, 32768}
    assert max(len(f.layers) for f in cuckoo) > 4
    filters = [f for f in every if f.kind != reader.CUCKOO]
    assert {f.hash for f in filters} == {reader.XXH3, reader.SIPHASH}
    assert {f.width for f in filters} == set(reader.CELL_WIDTHS)
    assert {layer.layout for f in filters for layer in f.layers} == {reader.CLASSIC, reader.BLOCKED}
    assert len({f.shards for f in filters}) > 2
    assert len(set(ITEMS)) == len(ITEMS) == 600


def test_answers(golden):
    data, says = golden
    filter_ = reader.read(data)
    assert "".join(str(int(filter_.contains(item))) for item in ITEMS) == says["contains"]
    assert filter_.items() == says["items"]
    if filter_.kind != reader.CUCKOO:
        assert filter_.ones() == says["ones"]
    if says["counts"] is None:
        assert filter_.count(ITEMS[0]) is None
    else:
        assert [filter_.count(item) for item in ITEMS] == says["counts"]
    if says["ages"] is None:
        assert filter_.kind != reader.WINDOW
    else:
        ages = [filter_.age(item) for item in ITEMS]
        assert [-1 if age is None else age for age in ages] == says["ages"]
        # Generations that the clock has dropped since are gone, though their cells are in the file.
        assert all(filter_.age(item, filter_.newest + filter_.generations) is None for item in ITEMS)


def test_the_clock_of_a_window():
    filter_ = reader.read((GOLDEN / "window-timed-siphash.bin").read_bytes())
    minutes = [filter_.generation_at(1_700_000_000_000 + 60_000 * minute) for minute in (-1, 0, 2, 3, 9)]
    assert minutes == [6, 6, 6, 7, 13]


def test_damage_is_noticed(golden):
    data, _ = golden
    for cut in range(0, len(data), 7):
        with pytest.raises(reader.BadFilter):
            reader.read(data[:cut])
    for bit in range(0, len(data) * 8, 61):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(reader.BadFilter):
            reader.read(bytes(flipped))
    with pytest.raises(reader.BadFilter):
        reader.read(data + bytes(8))


FORMAT = (GOLDEN.parent.parent / "docs" / "FORMAT.md").read_text()


def worked(heading):
    """The filter whose bytes a section of the documentation lists, sixteen a line."""
    section = FORMAT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^ *\d+ ((?: [0-9a-f]{2}){1,16})(?:   |$)", section, re.MULTILINE)
    return reader.read(bytes.fromhex("".join(lines)))


def test_the_worked_example():
    filter_ = worked("A worked example")
    assert (filter_.kind, filter_.items(), filter_.ones()) == (reader.FIXED, 2, 14)
    assert filter_.contains(b"ada") and filter_.contains(b"grace") and not filter_.contains(b"hedy")


def test_the_worked_cuckoo_filter():
    filter_ = worked("A cuckoo filter worked")
    assert (filter_.kind, filter_.items(), filter_.deletes, filter_.moves) == (reader.CUCKOO, 4, 0, 0)
    assert [filter_.count(item) for item in (b"ada", b"grace", b"hedy")] == [2, 3, 0]


def test_cuckoo_vectors():
    rows = re.findall(r"^\| `0x([0-9a-f]{16})` \| (\d+) \| (\d+) \| (\d+) \|$", FORMAT, re.MULTILINE)
    assert len(rows) == 3
    for low, *says in rows:
        fingerprint, *pair = reader.nest(int(low, 16))
        assert [fingerprint, *(bucket % 512 for bucket in pair)] == [int(number) for number in says]


def test_what_lies_behind_the_slots_is_refused():
    data = bytearray((GOLDEN / "cuckoo-padded.bin").read_bytes())
    data[-1] = 1
    chunk = len(data) - reader.CHUNK_PREFIX.size - 16
    checksum = reader.crc32c(data[chunk : chunk + 16] + data[chunk + 20 :])
    data[chunk + 16 : chunk + 20] = struct.pack("<I", checksum)
    with pytest.raises(reader.BadFilter, match="padding"):
        reader.read(bytes(data))


def test_checksum_vectors():
    """From RFC 3720, B.4."""
    assert reader.crc32c(b"123456789") == 0xE3069283
    assert reader.crc32c(bytes(32)) == 0x8A9136AA
    assert reader.crc32c(bytes([0xFF] * 32)) == 0x62A8AB43
    assert reader.crc32c(bytes(range(32))) == 0x46DD794E


def test_siphash_vectors():
    """The reference implementation publishes vectors for 2 and 4 rounds; ours differs from that in their number alone."""
    key = struct.unpack("<QQ", bytes(range(16)))
    digest = struct.pack("<QQ", *reader.siphash128(*key, b"", compress=2, finish=4))
    assert digest.hex() == "a3817f04ba25a8e66df67214c7550293"
    digest = struct.pack("<QQ", *reader.siphash128(*key, b"\x00", compress=2, finish=4))
    assert digest.hex() == "da87c1d86b99af44347659119b22fc45"
