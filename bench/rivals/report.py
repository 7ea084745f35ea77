"""Formats the results: tables, the verdict, the main rows of docs/PERFORMANCE.md and the measured rows of README.md."""

import re
import statistics

from kit.servers import ROOT

RESULTS = ROOT / "docs" / "benchmarks" / "rivals.json"
DOCUMENT = ROOT / "docs" / "PERFORMANCE.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- by scripts/bench --rivals -->\n", "<!-- end -->\n"

# The measured rows of README.md: a description, the topic and row, and go-zero's row if there is one. Times are per
# item, on filters of a million items.
FIRST = [
    ("test one item", ("BF-1M", "BF.EXISTS, absent"), "BF.EXISTS, half present"),
    ("add one item", ("BF-1M", "BF.ADD, new"), "BF.ADD, new"),
    ("test 1,000 items in a command", ("BF-1M", "BF.MEXISTS ×1000, present"), "BF.MEXISTS ×1000, half present"),
    ("add 1,000 items in a command", ("BF-1M", "BF.MADD ×1000, new"), "BF.MADD ×1000, new"),
    ("memory, grown from 100 to 10 million items", ("growth", "100 to 10,000,000, of the first add"), None),
]

# The main rows, which docs/PERFORMANCE.md shows: topic and row. The JSON file has all rows.
MAIN = [
    ("BF-1M", "BF.EXISTS, present"),
    ("BF-1M", "BF.EXISTS, absent"),
    ("BF-1M", "BF.ADD, new"),
    ("BF-1M", "BF.MEXISTS ×10, present"),
    ("BF-1M", "BF.MEXISTS ×1000, present"),
    ("BF-1M", "BF.MADD ×1000, new"),
    ("BF-1M", "BF.INSERT ×10, new"),
    ("CF-1M", "CF.EXISTS, present"),
    ("CF-1M", "CF.ADD, new"),
    ("CF-1M", "CF.INSERT ×1000, new"),
    ("CF-1M", "CF.MEXISTS ×1000, present"),
    ("CF-1M", "CF.DEL"),
    ("keys", "BF.ADD, new key"),
    ("keys", "BF.RESERVE 1,000"),
    ("keys", "BF.RESERVE 1 M NONSCALING"),
    ("others", "BF.INFO"),
    ("full", "CF.INSERT ×10 into a full filter of 1,000"),
    ("many", "SAVE, ns"),
    ("many", "restart, ns"),
    ("many", "used_memory, bytes"),
    ("memory", "100, MEMORY USAGE"),
    ("memory", "10,000, MEMORY USAGE"),
    ("memory", "1,000,000, MEMORY USAGE"),
    ("growth", "100 to 10,000,000, of the first add"),
    ("go-zero", "BF.EXISTS, half present"),
    ("go-zero", "BF.MEXISTS ×1000, half present"),
    ("go-zero", "BF.ADD, new"),
    ("go-zero", "BF.MADD ×1000, new"),
]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(row: dict) -> list[str]:
    ratio = f"{row['ratio']:.2f}"
    if row["least"] != row["most"]:
        ratio += f" ({row['least']:.2f}–{row['most']:.2f})"
    target = f"≥ {row['target']:.3g}"
    return [number(row["rival"]), number(row["ours"]), ratio, target, "" if row["met"] else "below"]


def table(header: list[str], lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *lines)]
    rule = ["-" * width for width in widths]
    rows = [[cell.ljust(width) for cell, width in zip(line, widths)] for line in (header, rule, *lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def of_topic(topic: dict) -> str:
    """The table of a topic. Its last line is the noise of the rows: Bloomery compared with itself."""
    rival = topic["rival"]
    lines = [[row["row"], *cells(row)] for row in topic["rows"]]
    if noises := [row["noise"] for row in topic["rows"] if row["noise"]]:
        noise = f"{statistics.median(noises):.2f} ({min(noises):.2f}–{max(noises):.2f} over the rows)"
        lines.append(["Bloomery beside itself", "", "", noise, "", ""])
    header = [topic["unit"], rival, "Bloomery", f"{rival} over Bloomery", "target", ""]
    return f"\n{topic['title']}\n\n{table(header, lines)}"


def verdict(results: dict) -> str:
    """A summary in one line, then a line for each row below its target."""
    rows = [(topic["name"], row) for topic in results["topics"] for row in topic["rows"]]
    below = [(name, row) for name, row in rows if not row["met"]]
    lines = [f"rivals: {len(rows)} rows, {len(below)} below their target{':' if below else ''}"]
    lines += [f"  {name}: {row['row']}: {row['ratio']:.2f}, target {row['target']:.3g}" for name, row in below]
    return "\n".join(lines)


def by_name(results: dict) -> dict:
    return {(topic["name"], row["row"]): (topic, row) for topic in results["topics"] for row in topic["rows"]}


def with_unit(value: float, words: str) -> str:
    return f"{value / 2**20:.2f} MiB" if words.startswith("memory") else f"{number(value)} ns"


def readme(text: str, results: dict) -> str:
    """Returns README.md with new numbers in the rows that are in FIRST. The cell for valkey-bloom is empty, because
    valkey-bloom has not been measured."""
    found = by_name(results)
    for words, name, of_gozero in FIRST:
        row, gozero = found[name][1], found["go-zero", of_gozero][1] if of_gozero else None
        other = with_unit(gozero["rival"], words) if gozero else "–"
        line = f"| {words} | {with_unit(row['ours'], words)} | {with_unit(row['rival'], words)} | | {other} |"
        text = re.sub(rf"(?m)^\| {re.escape(words)} \|.*$", line, text)
    return text


def section(results: dict) -> str:
    """The section of docs/PERFORMANCE.md with the main rows."""
    found = by_name(results)
    lines, before = [], None
    for name, what in MAIN:
        topic, row = found[name, what]
        lines.append(["" if name == before else topic["title"], f"{what}, {topic['unit']}", *cells(row)])
        before = name
    below = sum(not row["met"] for _, row in found.values())
    return (
        f"{results['server']}, {results['machine']}, {results['rounds']} rounds. Of the {len(found)} rows, {below} are "
        "below their target.\n\n" + table(["", "", "the other's", "Bloomery's", "ratio", "target", ""], lines)
    )


def document(text: str, results: dict) -> str:
    """Returns docs/PERFORMANCE.md with new numbers in its table of main rows."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{section(results)}\n{END}{after}"
