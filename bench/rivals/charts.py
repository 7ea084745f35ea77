"""Charts of the results, as SVG that is legible on both light and dark pages."""

import math
import re
from html import escape

from kit.servers import ROOT

PICTURES = ROOT / "docs" / "pictures"

STYLE = """<style>
  text { font-family: sans-serif; font-size: 13px; fill: #59636e } .title { font-weight: bold } .line { stroke: #8b949e; fill: none }
  .faster { fill: #1a7f37; stroke: #1a7f37 } .slower { fill: #bc4c00; stroke: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9da7b1 } .faster { fill: #3fb950; stroke: #3fb950 } .slower { fill: #f0883e; stroke: #f0883e }
  }
</style>"""

# The bars of the README's chart: topic, row, label.
BARS = [
    ("BF-1M", "BF.EXISTS, absent", "BF.EXISTS"),
    ("BF-1M", "BF.ADD, new", "BF.ADD"),
    ("BF-1M", "BF.MEXISTS ×1000, absent", "BF.MEXISTS, 1000 items"),
    ("BF-1M", "BF.MADD ×1000, new", "BF.MADD, 1000 items"),
    ("CF-1M", "CF.MEXISTS ×1000, present", "CF.MEXISTS, 1000 items"),
    ("CF-1M", "CF.INSERT ×1000, new", "CF.INSERT, 1000 items"),
    ("keys", "BF.ADD, new key", "BF.ADD that makes a filter"),
    ("growth", "100 to 10,000,000, of the first add", "memory, grown from 100 to 10 M"),
]


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, STYLE, text(8, 20, title, kind="title"), *parts, "</svg>\n"])


def text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(*points: tuple[float, float], kind: str = "line") -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" style="fill: none" points="{joined}"/>'


def side(ratio: float) -> str:
    return "faster" if ratio >= 1 else "slower"


def bars(results: dict) -> str:
    """Draws a bar for the ratio of each row in BARS."""
    rows = {(topic["name"], row["row"]): row for topic in results["topics"] for row in topic["rows"]}
    chosen = [(words, rows[name, what]["ratio"]) for name, what, words in BARS if (name, what) in rows]
    left, scale, bottom = 250, 400 / max(ratio for _, ratio in chosen), 44 + 26 * len(chosen)
    parts = []
    for index, (words, ratio) in enumerate(chosen):
        y = 40 + 26 * index
        parts.append(text(left - 8, y + 14, words, anchor="end"))
        parts.append(f'<rect x="{left}" y="{y}" width="{ratio * scale:.1f}" height="18" class="{side(ratio)}"/>')
        parts.append(text(left + max(ratio, 1) * scale + 6, y + 14, f"{ratio:.2f} ×"))
    parts.append(line((left + scale, 34), (left + scale, bottom)))
    parts.append(text(left + scale, bottom + 14, "RedisBloom", anchor="middle"))
    return svg(720, bottom + 22, "RedisBloom's cost over Bloomery's: longer is better", parts)


def rows(results: dict) -> str:
    """Draws a dot for each row that is compared with RedisBloom. The dots of a topic are on one line."""
    topics = [topic for topic in results["topics"] if topic["rival"] == "RedisBloom"]
    left, right, low, high = 130, 690, 1 / 64, 16

    def place(ratio: float) -> float:
        ratio = min(max(ratio, low), high)
        return left + (right - left) * math.log(ratio / low) / math.log(high / low)

    bottom = 46 + 24 * len(topics)
    parts = []
    for tick in (1 / 64, 1 / 16, 1 / 4, 1, 4, 16):
        parts.append(line((place(tick), 34), (place(tick), bottom)))
        parts.append(text(place(tick), bottom + 14, f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}", anchor="middle"))
    for index, topic in enumerate(topics):
        y = 48 + 24 * index
        parts.append(text(left - 10, y + 4, topic["name"], anchor="end"))
        for row in topic["rows"]:
            label = f"<title>{escape(row['row'])}: {row['ratio']:.2f}</title>"
            parts.append(
                f'<circle cx="{place(row["ratio"]):.1f}" cy="{y}" r="4" class="{side(row["ratio"])}" '
                f'fill-opacity="0.5">{label}</circle>'
            )
    return svg(720, bottom + 22, "RedisBloom's cost over Bloomery's, every row; right of 1 is better", parts)


def memory(results: dict) -> str:
    """Draws the ratio of RedisBloom's memory to ours against the number of items, for filters as reserved and for
    filters that grew."""
    topics = {topic["name"]: topic["rows"] for topic in results["topics"]}
    lines = {
        "as reserved": [
            (int(words[0].replace(",", "")), row)
            for row in topics["memory"]
            if (words := re.findall(r"^([\d,]+), MEMORY USAGE$", row["row"]))
        ],
    }
    for row in topics["growth"]:
        first, _, growth = row["row"].partition(" ×")
        if growth:
            lines.setdefault(f"grown from {first}", []).append((int(first.replace(",", "")) * int(growth), row))
    left, right, top, bottom = 60, 560, 40, 300
    most = max(row["ratio"] for points in lines.values() for _, row in points) * 1.05
    largest = max(items for points in lines.values() for items, _ in points)

    def place(items: float, ratio: float) -> tuple[float, float]:
        x = left + (right - left) * math.log10(items / 10) / math.log10(largest / 10)
        return x, bottom - (bottom - top) * ratio / most

    parts = [line(place(10, ratio), place(largest, ratio)) for ratio in (0, 1)]
    parts += [text(left - 8, place(10, ratio)[1] + 4, str(ratio), anchor="end") for ratio in (0, 1)]
    for power in range(1, int(math.log10(largest)) + 1):
        parts.append(text(place(10**power, 0)[0], bottom + 18, f"{10**power:,}", anchor="middle"))
    parts.append(text((left + right) / 2, bottom + 38, "items", anchor="middle"))
    colours = ["#0969da", "#bf8700", "#8250df", "#1a7f37", "#cf222e"]
    for (label, points), colour in zip(lines.items(), colours):
        joined = " ".join("{:.1f},{:.1f}".format(*place(items, row["ratio"])) for items, row in points)
        parts.append(f'<polyline points="{joined}" style="fill: none; stroke: {colour}; stroke-width: 2"/>')
    for index, (label, colour) in enumerate(zip(lines, colours)):
        parts.append(f'<rect x="{right + 20}" y="{top + 22 * index}" width="12" height="12" style="fill: {colour}"/>')
        parts.append(text(right + 38, top + 11 + 22 * index, label))
    return svg(740, bottom + 48, "RedisBloom's memory over Bloomery's (MEMORY USAGE, at 1%): higher is better", parts)


CHARTS = {"rivals.svg": bars, "rivals-rows.svg": rows, "rivals-memory.svg": memory}
