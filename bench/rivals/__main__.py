"""Compares Bloomery with RedisBloom and go-zero's Lua in everything that people do with filters, in one run.

Prints a table for each topic, with the ratio of the rival's cost to ours: below 1, ours is higher. Then lists the rows
below their target; if there are any, the exit status is 1. A run of all topics without --quick or --smoke writes
docs/benchmarks/rivals.json, the charts docs/pictures/rivals*.svg, the table of docs/PERFORMANCE.md, and the measured
rows of README.md.
"""

import argparse
import json
import os
import platform
import re
import sys
import time
from pathlib import Path

from kit.redisbloom import MODULE as REDISBLOOM
from kit.servers import ROOT, matrix
from rivals import charts, clients, many, memory, report, rows
from rivals.measure import CLIENT_CORE, FULL, QUICK, SMOKE, WHOLE, Bench, Scale, Topic, Wrong, place


def topics(scale: Scale) -> list[Topic]:
    return [*rows.topics(scale), many.topic(scale), memory.reserved(scale), memory.grown(scale), clients.topic(scale)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench --rivals", description=__doc__)
    parser.add_argument("--server", default="redis-8.0", choices=[spec.name for spec in matrix()])
    parser.add_argument("--rounds", type=int, help="rounds that count (7)")
    parser.add_argument("--only", default="", metavar="TOPIC,...", help="these topics; --list shows them")
    parser.add_argument("--list", action="store_true", help="list topics and rows")
    parser.add_argument(
        "--docs", action="store_true", help="only make pictures and table of docs/benchmarks/rivals.json"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_const", dest="size", const=FULL, help="also filters of 100 M items")
    size.add_argument("--quick", action="store_const", dest="size", const=QUICK, help="few items: in minutes")
    size.add_argument(
        "--smoke", action="store_const", dest="size", const=SMOKE, help="only that it works: no time makes it fail"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    arguments = parser.parse_args()
    if arguments.docs:
        return publish(json.loads(report.RESULTS.read_text()))
    scale = arguments.size or WHOLE
    every = topics(scale)
    names = arguments.only.split(",") if arguments.only else [topic.name for topic in every]
    if unknown := set(names) - {topic.name for topic in every}:
        parser.error(f"no topic {', '.join(unknown)}; --list shows them")
    chosen = [topic for topic in every if topic.name in names]
    if arguments.list:
        for topic in chosen:
            print(topic.name, *(f"    {row.name}" for row in topic.rows), sep="\n")
        return
    rounds = arguments.rounds or {QUICK.items: 3, SMOKE.items: 1}.get(scale.items, 7)
    spec = next(spec for spec in matrix() if spec.name == arguments.server)
    results = measure(Bench(spec, scale, rounds, REDISBLOOM), chosen)
    print(f"\n{report.verdict(results)}")
    if arguments.json:
        arguments.json.write_text(as_json(results))
    if scale in (WHOLE, FULL) and chosen == every:
        report.RESULTS.write_text(as_json(results))
        publish(results)
    if scale is not SMOKE:
        sys.exit(any(not row["met"] for topic in results["topics"] for row in topic["rows"]))


def measure(bench: Bench, chosen: list[Topic]) -> dict:
    """Measures the topics, prints their tables, and returns the results."""
    place(0, CLIENT_CORE)
    results = {
        "server": f"{bench.spec.product} {version(bench)}",
        "machine": machine(),
        "rounds": bench.rounds,
        "topics": [],
    }
    print(f"{results['server']}, {results['machine']}, {bench.rounds} rounds")
    for topic in chosen:
        started = time.monotonic()
        try:
            found = topic.result(topic.run(bench, topic))
        except Wrong as error:
            sys.exit(f"rivals: {topic.name}: {error}")
        results["topics"].append(
            {"name": topic.name, "title": topic.title, "unit": topic.unit, "rival": topic.rival, "rows": found}
        )
        print(
            report.of_topic(results["topics"][-1]), f"\n[{topic.name}: {time.monotonic() - started:.0f} s]", flush=True
        )
    return results


def version(bench: Bench) -> str:
    return ".".join(map(str, bench.spec.version))


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} × {model.group(1) if model else platform.machine()}"


def as_json(results: dict) -> str:
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def publish(results: dict) -> None:
    """Draws the charts, and updates the tables of the documents."""
    for name, chart in charts.CHARTS.items():
        (charts.PICTURES / name).write_text(chart(results))
    report.DOCUMENT.write_text(report.document(report.DOCUMENT.read_text(), results))
    report.README.write_text(report.readme(report.README.read_text(), results))
    print(f"wrote {', '.join(charts.CHARTS)} and the table of {report.DOCUMENT.relative_to(ROOT)} and README.md")


if __name__ == "__main__":
    main()
