"""Numbers that several documents repeat are the same in all of them. The first place is the source: most of these are
sessions, whose output tests/server/documents compares with a server's."""

import json
import math
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").rglob("*.md")]

README, PLAN, MEMORY, PERFORMANCE = "README.md", "docs/CLI.md", "docs/MEMORY.md", "docs/PERFORMANCE.md"
CHOOSING, SIZING, REBUILD = "docs/guides/choosing-a-kind.md", "docs/guides/sizing.md", "docs/commands/bf.rebuild.md"
NULLS, LIMITATIONS, DECISIONS = "docs/guides/null-values.md", "docs/LIMITATIONS.md", "docs/decisions/layouts.md"

NUMBER = r"([\d.]+)"


def cell(row: str, column: int) -> str:
    """A pattern for the number that begins a cell of the row that begins like this; the row's title is column 0."""
    return rf"(?m)^\| {row}" + r"[^|\n]*\|" * column + f" {NUMBER}"


def second(row: str, column: int) -> str:
    """Like `cell`, for the number after a comma."""
    return cell(row, column).removesuffix(NUMBER) + rf"[\d.]+, {NUMBER}"


def planned(kind: str) -> str:
    """A pattern for the bits per item in the table that `bloomery plan` prints for 10 million items at 1%."""
    return rf"(?m)^  {kind} +\S+ [KM]iB +{NUMBER}"


def session(rate: str, column: int) -> str:
    """A pattern for the output of the session that computes the bits per item of each kind, for a million items."""
    return rf"(?m)^{re.escape(rate)}:(?: [\d.]+){{{column}}} {NUMBER}"


def theory(error_rate: float) -> float:
    """The bits per item that an ideal Bloom filter needs."""
    return math.log(1 / error_rate) / math.log(2) ** 2


def grown() -> float:
    """The MiB of a filter that has grown from 100 to 10 million items, as measured."""
    topics = json.loads((ROOT / "docs/benchmarks/rivals.json").read_text())["topics"]
    (growth,) = (topic["rows"] for topic in topics if topic["name"] == "growth")
    (ours,) = (row["ours"] for row in growth if row["row"].startswith("100 to 10,000,000, of the first add"))
    return ours / 2**20


# The source, a number or a place, then the other places: a document, and a pattern whose group is the number. A number
# is rounded to the decimals that the place shows.
SAME = {
    "fixed, 1%": [
        (PLAN, planned("fixed +BLOCKED")),
        (README, cell("bits at 1%, 0.1%, fixed", 1)),
        (MEMORY, cell("bits per item at 1%, AUTO", 1)),
        (CHOOSING, cell("1% ", 2)),
        (SIZING, cell("1% ", 1)),
        (NULLS, cell("filter ", 2)),
    ],
    "fixed, 0.1%": [
        (CHOOSING, session("0.001", 0)),
        (README, second("bits at 1%, 0.1%, fixed", 1)),
        (CHOOSING, cell("0.1% ", 2)),
        (SIZING, cell("0.1% ", 1)),
    ],
    "scaling, 1%": [
        (PLAN, planned("scaling +BLOCKED")),
        (README, cell("bits at 1%, 0.1%, by default", 1)),
        (MEMORY, cell("bits per item of a scaling filter", 1)),
        (CHOOSING, cell("1% ", 3)),
    ],
    "scaling, 0.1%": [
        (CHOOSING, session("0.001", 1)),
        (README, second("bits at 1%, 0.1%, by default", 1)),
        (CHOOSING, cell("0.1% ", 3)),
    ],
    "RedisBloom, 1%": [
        theory(0.01),
        (README, cell("bits at 1%, 0.1%, fixed", 2)),
        (README, cell("bits at 1%, 0.1%, fixed", 3)),
        (PLAN, planned("RedisBloom fixed +CLASSIC")),
        (MEMORY, cell("bits per item at 1%, CLASSIC", 1)),
    ],
    "RedisBloom, 0.1%": [
        theory(0.001),
        (README, second("bits at 1%, 0.1%, fixed", 2)),
        (README, second("bits at 1%, 0.1%, fixed", 3)),
        (README, r"`CLASSIC` \| [\d.]+, ([\d.]+) at 0.1%"),
        (MEMORY, cell("bits per item at 0.1%, CLASSIC", 1)),
    ],
    "RedisBloom, scaling, 1%": [
        theory(0.005),
        (README, cell("bits at 1%, 0.1%, by default", 2)),
        (PLAN, planned("RedisBloom scaling +CLASSIC")),
    ],
    "RedisBloom, scaling, 0.1%": [
        theory(0.0005),
        (README, second("bits at 1%, 0.1%, by default", 2)),
    ],
    "tables, 0.1%": [
        (CHOOSING, session("0.001", 5)),
        (README, cell("… with `LAYOUT QUOTIENT`", 1)),
        (CHOOSING, cell("0.1% ", 8)),
    ],
    "counting, 1%": [
        (CHOOSING, session("0.01", 2)),
        (README, cell("delete items", 1)),
        (CHOOSING, cell("1% ", 5)),
    ],
    "cuckoo, default": [
        (CHOOSING, cell("2, the default ", 2)),
        (README, cell("delete items from cuckoo", 2)),
    ],
    "cuckoo, 4 slots": [
        (CHOOSING, cell("4 ", 2)),
        (MEMORY, cell("bits per item of a cuckoo", 1)),
    ],
    "TTL, 1%": [
        ("docs/guides/recipes.md", r"memory +903 MiB, ([\d.]+) bits"),
        (README, cell("forget items", 1)),
    ],
    "FUSE, 1%": [
        (PERFORMANCE, cell("1 million ", 2)),
        (CHOOSING, r"(?m)^0.0001: 25.*\n(?:.*\n)*0.01: ([\d.]+)$"),
        (README, cell("bits at 1%, 0.1%, built", 1)),
        (CHOOSING, cell("1% ", 1)),
        (REBUILD, cell("FUSE ", 2)),
        (DECISIONS, f"at 1% instead of {NUMBER}\\."),
    ],
    "FUSE, 0.1%": [
        (REBUILD, cell("FUSE ", 3)),
        (README, second("bits at 1%, 0.1%, built", 1)),
        (CHOOSING, cell("0.1% ", 1)),
    ],
    "RIBBON, 1%": [
        (REBUILD, cell("RIBBON ", 2)),
        (README, f"`LAYOUT RIBBON` {NUMBER},"),
        (CHOOSING, rf"smaller \({NUMBER},"),
        (PERFORMANCE, r"\| \| RIBBON \| ([\d.]+) \| 99 "),
        (DECISIONS, f"less memory: {NUMBER} bits"),
    ],
    "RIBBON, 0.1%": [
        (REBUILD, cell("RIBBON ", 3)),
        (README, rf"`LAYOUT RIBBON` [\d.]+, {NUMBER}"),
        (CHOOSING, rf"smaller \([\d.]+, {NUMBER} "),
    ],
    "memory, 10 million, fixed": [
        (PLAN, rf"(?m)^  fixed +BLOCKED +{NUMBER} MiB"),
        (PERFORMANCE, rf"10 million items at 1% \({NUMBER} MiB\)"),
        (NULLS, cell("1,000 ", 6)),
    ],
    "memory, 10 million, scaling": [
        (PLAN, rf"(?m)^  scaling +BLOCKED +{NUMBER} MiB"),
        (LIMITATIONS, f"reserved at that size, {NUMBER} MiB"),
        ("docs/guides/recipes.md", f"names need {NUMBER} MiB"),
    ],
    "memory, grown": [
        grown(),
        (README, cell("memory, grown", 1)),
        (MEMORY, cell("memory after growing", 1)),
        (LIMITATIONS, f"it occupies {NUMBER} MiB"),
        (DECISIONS, f"they need {NUMBER} MiB"),
    ],
    "BF.BULKTEST": [
        (PERFORMANCE, rf"it costs {NUMBER} ns \(\[measured"),
        (README, cell("test items in bulk", 1)),
    ],
}


def found(document: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / document).read_text())
    assert match, f"{document} has nothing like {pattern}"
    return match[1]


@pytest.mark.parametrize("name", SAME)
def test_a_number_is_the_same_in_all_documents(name):
    source, *places = SAME[name]
    value = source if isinstance(source, float) else float(found(*source))
    for document, pattern in places:
        number = found(document, pattern)
        half = 0.5 * 10.0 ** -len(number.partition(".")[2])
        assert abs(float(number) - value) <= half + 1e-9, f"{document}: {name} is {value}, not {number}"


MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
OLDEST_GLIBC = found("scripts/release", r"(?m)^OLDEST_GLIBC=(\S+)")

# Versions: a pattern, and the only text that its group may match, in any document.
VERSIONS = [
    (r"glibc ([\d.]*\d)", OLDEST_GLIBC),
    (r"Rust\]?(?:\(https://rustup.rs\))?(?: \|)? ([\d.]*\d)", MANIFEST["rust-version"]),
    (r"bloomery[-_](?:redis[-_])?(\d[\d.]*\d)", MANIFEST["version"]),
]


@pytest.mark.parametrize("pattern, text", VERSIONS)
def test_a_version_is_the_same_in_all_documents(pattern, text):
    named = [(path.name, version) for path in DOCUMENTS for version in re.findall(pattern, path.read_text())]
    assert len(named) > 2
    assert not [place for place in named if place[1] != text]
