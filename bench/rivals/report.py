"""Writes the results: tables, the verdict, and the section of docs/PERFORMANCE.md."""

import statistics

from kit.servers import ROOT

RESULTS = ROOT / "docs" / "benchmarks" / "rivals.json"
DOCUMENT = ROOT / "docs" / "PERFORMANCE.md"
BEGIN, END = "<!-- by scripts/bench --rivals -->\n", "<!-- end -->\n"

# The rows of the document: topic and row. The others are in the JSON.
MAIN = [
    ("BF-1M", "BF.EXISTS, present"),
    ("BF-1M", "BF.EXISTS, absent"),
    ("BF-1M", "BF.ADD, new"),
    ("BF-1M", "BF.MEXISTS ×10, present"),
    ("BF-1M", "BF.MEXISTS ×1000, present"),
    ("BF-1M", "BF.MEXISTS ×1000, absent"),
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
    """A table, with the noise of its rows at the end: Bloomery beside itself."""
    rival = topic["rival"]
    lines = [[row["row"], *cells(row)] for row in topic["rows"]]
    if noises := [row["noise"] for row in topic["rows"] if row["noise"]]:
        noise = f"{statistics.median(noises):.2f} ({min(noises):.2f}–{max(noises):.2f} over the rows)"
        lines.append(["Bloomery beside itself", "", "", noise, "", ""])
    header = [topic["unit"], rival, "Bloomery", f"{rival} over Bloomery", "target", ""]
    return f"\n{topic['title']}\n\n{table(header, lines)}"


def verdict(results: dict) -> str:
    """One line, and a line for each row below its target."""
    rows = [(topic["name"], row) for topic in results["topics"] for row in topic["rows"]]
    below = [(name, row) for name, row in rows if not row["met"]]
    lines = [f"rivals: {len(rows)} rows, {len(below)} below their target{':' if below else ''}"]
    lines += [f"  {name}: {row['row']}: {row['ratio']:.2f}, target {row['target']:.3g}" for name, row in below]
    return "\n".join(lines)


def section(results: dict) -> str:
    """The main rows, as they are in docs/PERFORMANCE.md."""
    found = {(topic["name"], row["row"]): (topic, row) for topic in results["topics"] for row in topic["rows"]}
    lines = []
    for name, what in MAIN:
        topic, row = found[name, what]
        lines.append([topic["title"], f"{what}, {topic['unit']}", *cells(row)])
    below = sum(not row["met"] for _, row in found.values())
    return (
        f"{results['server']}, {results['machine']}, {results['rounds']} rounds. Of {len(found)} rows {below} are below "
        "their target.\n\n" + table(["", "", "the other's", "Bloomery's", "ratio", "target", ""], lines)
    )


def document(text: str, results: dict) -> str:
    """The document with a new section."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{section(results)}\n{END}{after}"
