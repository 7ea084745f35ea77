"""End to end: redis-benchmark with one client or several, one command in flight or several, with and without I/O
threads."""

import csv
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kit.servers import io_threads
from rivals.measure import CORES, Bench, Row, Scale, Series, Side, Topic, Wrong, cpu, encode
from rivals.rows import RATE, answer, fill

ITEM = "item:__rand_int__"  # redis-benchmark replaces __rand_int__ with twelve digits
COMMANDS = {
    "BF.EXISTS": ["BF.EXISTS", "BF", ITEM],
    "BF.ADD": ["BF.ADD", "BF", ITEM],
    "BF.MEXISTS ×10": ["BF.MEXISTS", "BF", *[ITEM] * 10],
    "CF.EXISTS": ["CF.EXISTS", "CF", ITEM],
}
CLIENTS = {"1 client": (1, 1), "50 clients": (50, 1), "50 clients, 16 in flight": (50, 16)}
THREADS = {"": 1, ", 2 I/O threads": 2}


def cases(scale: Scale) -> Iterator[tuple[str, list, int, int, int]]:
    for threads, count in THREADS.items():
        for clients, (connections, pipeline) in CLIENTS.items():
            for command, words in COMMANDS.items():
                yield f"{command}, {clients}{threads}", words, count, connections, pipeline


def topic(scale: Scale) -> Topic:
    size = scale.sizes["1M"]
    rows = [Row(name, 1.0) for name, *_ in cases(scale)]

    def run(bench: Bench, topic: Topic) -> dict[str, Series]:
        found = {}
        for threads in THREADS.values():
            # The server runs on one core, or on all cores if it has I/O threads.
            where = {} if threads == 1 else {"cores": set(CORES)}
            with bench.sides(config=io_threads(bench.spec, threads), **where) as sides:
                answer(sides, [encode("BF.RESERVE", "BF", RATE, size), encode("CF.RESERVE", "CF", 2 * size)])
                for family in ("BF", "CF"):
                    answer(sides, fill(family, family, range(size // 2)))
                for name, words, count, connections, pipeline in cases(scale):
                    if count == threads:
                        # A single client takes longer per request, because it waits for each reply. So it sends fewer
                        # requests.
                        requests = scale.requests // (4 if connections == 1 else 1)
                        options = ["-n", requests, "-c", connections, "-P", pipeline, "-r", size]
                        found[name] = rounds(bench, sides, [*options, *words])
        return found

    return Topic("clients", "redis-benchmark, server CPU", "ns per command", rows, run)


def rounds(bench: Bench, sides: list[Side], arguments: list) -> Series:
    series = Series([], [], [])
    for number in range(min(bench.rounds, 5)):
        turn = number % len(sides)
        for side in sides[turn:] + sides[:turn]:
            before = cpu(side.server)
            requests = redis_benchmark(bench, side, arguments)
            getattr(series, side.name).append((cpu(side.server) - before) / requests)
    return series


def redis_benchmark(bench: Bench, side: Side, arguments: list) -> int:
    """Runs the server's benchmark program against a side. Returns the number of requests."""
    tree: Path = bench.spec.program.parent
    name = f"{bench.spec.product}-benchmark"
    (loader,) = tree.glob("usr/lib/*/ld-linux-*.so.*")
    command = [loader, "--argv0", name, "--library-path", loader.parent, tree / "usr" / "bin" / name]
    command += ["-p", side.server.port, "--csv", "-e", *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    lines = list(csv.reader(done.stdout.splitlines()))
    # The output is a header, and a line with the test and its requests a second. With -e, an error adds another line.
    if done.returncode or len(lines) != 2 or not float(lines[1][1]) > 0:
        raise Wrong(f"{side.name}: {name} {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return int(arguments[1])
