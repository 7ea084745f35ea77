"""What `bloomery` reads items from: compressed and marked text, and what isn't text. Needs no real server."""

import bz2
import gzip
import io
import lzma
import resource
import struct
import subprocess
import zipfile
import zlib

import pytest

from kit.program import DONE, MISSING, PROGRAM, USAGE, as_json, command, run
from kit.proxy import FakeServer, bulk

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

# The reply to BF.STATS.
INFO = b"*4\r\n" + bulk("Kind") + bulk("fixed") + bulk("Identity") + bulk("0" * 16)

LINES = "".join(f"user:{number},é\n" for number in range(3000))
MARK = b"\xef\xbb\xbf"


def zipped(text: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ids.txt", text)
    return file.getvalue()


def zstd(*blocks: tuple[int, bytes, int]) -> bytes:
    """A frame with a window of 2 MiB. Each block has a type (0: raw, 1: a repeated byte), bytes, and a length."""
    last = len(blocks) - 1
    heads = [struct.pack("<I", (at == last) | kind << 1 | length << 3)[:3] for at, (kind, _, length) in enumerate(blocks)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(head + block[1] for head, block in zip(heads, blocks))


def raw_zstd(text: bytes) -> bytes:
    parts = [text[at : at + 1000] for at in range(0, len(text), 1000)] or [b""]
    return zstd(*((0, part, len(part)) for part in parts))


# What isn't text, and what the error calls it.
OTHERS = {
    "xz": (lzma.compress(LINES.encode()), "xz data"),
    "bzip2": (bz2.compress(LINES.encode()), "bzip2 data"),
    "an empty bzip2": (bz2.compress(b""), "bzip2 data"),
    "zip": (zipped(LINES.encode()), "a zip archive"),
    "an empty zip": (b"PK\x05\x06" + bytes(18), "an empty zip archive"),
    "UTF-16": (LINES.encode("utf-16"), "UTF-16 text"),
    "UTF-16, big-endian": (b"\xfe\xff" + LINES.encode("utf-16-be"), "UTF-16 text"),
    "UTF-16 without a mark": (LINES.encode("utf-16-le"), "data with NUL bytes"),
    "UTF-32": (LINES.encode("utf-32"), "UTF-32 text"),
    "UTF-32, big-endian": (b"\0\0\xfe\xff" + LINES.encode("utf-32-be"), "UTF-32 text"),
    "an executable": (PROGRAM.read_bytes()[:10_000] if PROGRAM.exists() else b"", "data with NUL bytes"),
    "gzip in gzip": (gzip.compress(gzip.compress(LINES.encode())), "gzip data inside"),
    "UTF-16 in gzip": (gzip.compress(LINES.encode("utf-16")), "UTF-16 text"),
    "xz in zstd": (raw_zstd(lzma.compress(LINES.encode())), "xz data"),
    "gzip that ends early": (gzip.compress(LINES.encode())[:-9], "gzip data is damaged, or ends early"),
    "zstd that ends early": (raw_zstd(LINES.encode())[:-9], "zstd data is damaged, or ends early"),
}

# Text that is stored in another way.
TEXTS = {
    "plain": LINES.encode(),
    "marked": MARK + LINES.encode(),
    "gzip": gzip.compress(LINES.encode()),
    "gzip of marked text": gzip.compress(MARK + LINES.encode()),
    "gzip in three members": gzip.compress(LINES[:100].encode()) + gzip.compress(b"") + gzip.compress(LINES[100:].encode()),
    "zstd": raw_zstd(LINES.encode()),
    "zstd in frames": b"\x50\x2a\x4d\x18\x03\0\0\0abc" + raw_zstd(LINES[:100].encode()) + raw_zstd(LINES[100:].encode()),
}

READERS = {
    "build": ["build", "{filter}", "{file}", "-n", "10k", "-e", "1%"],
    "build of a column": ["build", "{filter}", "{file}", "-n", "10k", "-e", "1%", "--column", "1"],
    "load": ["load", "k", "{file}"],
    "load --resume": ["load", "k", "{file}", "--resume"],
    "load --spread": ["load", "k", "{file}", "--spread", "2", "-n", "10k", "-e", "1%"],
    "rebuild": ["rebuild", "k", "{file}"],
    "rebuild from two": ["rebuild", "k", "{good}", "{file}"],
    "test": ["test", "k", "--from", "{file}"],
    "test of a file": ["test", "--filter", "{made}", "--from", "{file}"],
    "migrate": ["migrate", "redis://127.0.0.1:1", "--check", "{file}"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A filter with the lines."""
    path = tmp_path_factory.mktemp("input") / "made.bloom"
    run("build", path, "-", "-n", "10k", "-e", "0.0001%", "--seed", 7, input=LINES)
    return path


def arguments(reader, tmp_path, made, file):
    good = tmp_path / "good.txt"
    good.write_text("ada\n")
    return [
        word.format(filter=tmp_path / "new.bloom", made=made, good=good, file=file)
        for word in READERS[reader]
    ]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_text_is_refused(reader, kind, tmp_path, made):
    """Nothing is sent for such a file, not even to create a filter."""
    content, name = OTHERS[kind]
    file = tmp_path / "ids.txt"
    file.write_bytes(content)
    words = arguments(reader, tmp_path, made, file)
    # Whole files are decompressed only while items are sent.
    late = "ends early" in kind
    with FakeServer({"BF.STATS": INFO, "BF.REBUILD": b"+OK\r\n", "BF.BULKADD": b":1\r\n"}) as server:
        port = None if words[0] == "build" or "--filter" in words else server.port
        done = subprocess.run(command(*words, port=port), capture_output=True, text=True)
        if not (late and reader in ("rebuild", "rebuild from two", "load --resume", "load --spread", "migrate")):
            assert done.returncode == USAGE and name in done.stderr, done
        if not late:
            assert "--binary" in done.stderr and str(file) in done.stderr, done
            assert {sent[0] for sent in server.sent} <= {b"BF.STATS"}
    assert not (tmp_path / "new.bloom").exists()


@pytest.mark.parametrize("kind", OTHERS)
def test_stdin_that_is_not_text_is_refused(kind, tmp_path, made):
    content, name = OTHERS[kind]
    for words in (["build", tmp_path / "x", "-n", "10k", "-e", "1%"], ["test", "--filter", made, "--from", "-"]):
        done = subprocess.run(command(*words), input=content, capture_output=True)
        assert done.returncode == USAGE and name in done.stderr.decode(), done
        assert b"cannot read stdin" in done.stderr


@pytest.mark.parametrize("form", [[], ["--column", "1", "--delimiter", ";"]], ids=["lines", "csv"])
@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_read_however_it_is_stored(kind, form, tmp_path, made):
    file = tmp_path / "ids"
    file.write_bytes(TEXTS[kind])
    assert run("test", "--filter", made, "--from", file, *form, "--count")[0] == "3,000 of 3,000 items test positive\n"
    with file.open("rb") as stdin:
        out, _ = run("test", "--filter", made, "--from", "-", *form, "--count", stdin=stdin)
    assert out == "3,000 of 3,000 items test positive\n"


def test_binary_reads_the_bytes_as_they_are(tmp_path):
    for kind, content in [(kind, content) for kind, (content, _) in OTHERS.items()] + list(TEXTS.items()):
        file, built = tmp_path / "ids", tmp_path / "x.bloom"
        file.write_bytes(content)
        lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
        report = as_json("build", built, file, "--binary", "-n", "10k", "-e", "1%", "--replace")
        assert report["items_read"] == len([line for line in lines if line]), kind


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "byte, options, status, said",
    [
        (b"\n", [], DONE, f'"blank_lines": {288 << 20}'),
        (b"x", [], USAGE, "an item has 16 MiB or more"),
        (b'"', ["--column", "1"], USAGE, "an item has 16 MiB or more"),
    ],
    ids=["lines", "one line", "one quoted field"],
)
def test_a_bomb_needs_little_memory(pack, byte, options, status, said, tmp_path):
    """288 MiB of empty lines, or of one item, in 290 KB and 9 KB."""
    length = 288 << 20
    if pack == "gzip":
        packer = zlib.compressobj(9, wbits=31)
        block = byte * (16 << 20)
        content = b"".join(packer.compress(block) for _ in range(length // len(block))) + packer.flush()
    else:
        content = zstd(*[(1, byte, 128 << 10)] * (length >> 17))
    file = tmp_path / "bomb"
    file.write_bytes(content)
    words = command("build", tmp_path / "x.bloom", file, "-n", "1k", "-e", "1%", "--json", *options)

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))

    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == status and said in done.stdout + done.stderr, done
