"""What the suites in tests/suites share: their options, their seed, and the line with the result.

A suite is a function that gets a server of the matrix and the options. It does its work `count` times, raises an
exception if something goes wrong (AssertionError, ServerFailed, …), and returns its result in words. `run` calls it for
every server:

    $ scripts/suite kill9 --server redis-8.0 --count 200
    kill9: redis-8.0: 200 kills, 51,233 acknowledged adds, 0 lost (seed 1, 251 s)

A failure is reported with its server, its seed, and the command that repeats it.
"""

import argparse
import contextlib
import sys
import threading
import time
import traceback
from pathlib import Path

from kit.servers import BUILDS, MODULE, Server, matrix

# Suites that need a special build or tool, which a script with the same name provides.
WITH_SCRIPT = ("panics", "redisbloom", "san", "valgrind")


def options(name: str, description: str, count: int, unit: str) -> argparse.ArgumentParser:
    """The options that all suites have. A suite may add its own."""
    parser = argparse.ArgumentParser(
        prog=f"scripts/{name}" if name in WITH_SCRIPT else f"scripts/suite {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [spec.name for spec in matrix()]
    parser.add_argument(
        "--server", action="append", choices=names, help="this server of the matrix only (may be repeated)"
    )
    parser.add_argument("--count", type=int, default=count, metavar="N", help=f"{unit} for each server ({count:,})")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of all that is random (1)")
    parser.add_argument(
        "--other", type=Path, metavar="MODULE", help="load this build into every second server that starts"
    )
    parser.set_defaults(suite=name)
    return parser


def run(suite, parser: argparse.ArgumentParser) -> None:
    """Runs `suite(spec, arguments)` for every chosen server and prints each result. Exits with 1 if a run failed."""
    arguments = parser.parse_args()
    if arguments.other:
        BUILDS.append(arguments.other.resolve(strict=True))
    if not MODULE.exists():
        parser.error(f"{MODULE} is missing; run cargo build --release")
    specs = [spec for spec in matrix() if not arguments.server or spec.name in arguments.server]
    if not specs:
        parser.error("there are no servers to test against; run scripts/servers")
    failed = False
    for spec in specs:
        started = time.monotonic()
        try:
            result, verdict = suite(spec, arguments), ""
        except Exception:
            traceback.print_exc()
            print(f"to repeat it: {again(parser, arguments, spec)}", file=sys.stderr)
            result, verdict, failed = "see above", "FAILED: ", True
        seconds = time.monotonic() - started
        print(f"{arguments.suite}: {spec}: {verdict}{result} (seed {arguments.seed}, {seconds:.0f} s)", flush=True)
    sys.exit(failed)


def again(parser: argparse.ArgumentParser, arguments: argparse.Namespace, spec) -> str:
    """The command that repeats the run, on one server."""
    words = [parser.prog, "--server", spec.name]
    for name, value in vars(arguments).items():
        if name not in ("server", "suite") and value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return " ".join(words)


@contextlib.contextmanager
def clients(server: Server, works: list):
    """A context manager that runs a client for each of `works`, a function that gets the client and `go_on`. On exit,
    `go_on` returns false, and the functions must return. If a function has raised an exception, the exit raises it
    again.
    """
    failures, over = [], threading.Event()

    def client(work) -> None:
        try:
            with server.client() as client:
                work(client, lambda: not over.is_set())
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=client, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def progress(done: int, count: int, what: str) -> None:
    """Shows the progress if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{done:,} of {count:,} {what}", end="" if done < count else "\n", file=sys.stderr, flush=True)
