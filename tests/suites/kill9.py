"""kill -9 under `appendfsync always`: after a restart, no acknowledged write is missing.

Four clients write to filters of every kind, with transactions and pipelines. Two more keep the worker pool busy with
offloaded tests, and the server rewrites its append-only file as it grows. At a random moment the server is killed, and
then restarted from its files. The expected state (kit/expected.py) says which items must be there. Then the server is
killed once more, while idle: every digest after the second restart must equal the one after the first.

The page cache survives a killed process. So this suite tests that the server writes before it answers, and that it can
load its files; it doesn't test power loss. 200 kills take about ten minutes for each server.
"""

import contextlib
import functools
import random
import time

import redis

from kit.expected import every_kind, stock_sets
from kit.servers import io_threads
from kit.suite import Server, clients, options, progress, run
from kit.workload import digests

MEMBERS = b"".join(b"%08d" % number for number in range(20_000))


def kill9(spec, arguments) -> str:
    chance = random.Random(arguments.seed)
    control = arguments.control
    writers = (stock_sets if control else every_kind)(arguments.seed)
    tests = []
    config = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-min-size": "2mb", **io_threads(spec, 2)}
    module = {"module": None} if control else {"module_args": ["THREADS", 2, "OFFLOAD_MIN_ITEMS", 5000]}
    with Server(spec, config=config, **module) as server:
        if not control:
            server.command("BF.RESERVE", "tested", 0.001, 20_000, "NONSCALING")
            server.command("BF.BULKADD", "tested", "FIXED", 8, MEMBERS)
        for number in range(arguments.count):
            with traffic(server, writers, [] if control else [tests, tests]):
                time.sleep(chance.uniform(0.02, 1.5))
                server.kill()
            server.config["aof-use-rdb-preamble"] = chance.choice(["yes", "no"])
            server.start_somewhere()
            with server.client() as client:
                for writer in writers:
                    writer.settle(client)
                before = digests(client)
            server.kill()
            server.start_somewhere()
            with server.client() as client:
                assert digests(client) == before, "a second restart found other data"
            progress(number + 1, arguments.count, "kills")
        server.check()
        rewrites = server.log().count("Background AOF rewrite finished successfully")
    kept, dropped = sum(writer.kept for writer in writers), sum(writer.dropped for writer in writers)
    return (
        f"{'control, SADD without the module: ' if control else ''}{arguments.count} kills, "
        f"{sum(writer.units for writer in writers):,} acknowledged commands and transactions with "
        f"{sum(writer.adds for writer in writers):,} adds, 0 lost; of {kept + dropped} without an answer {kept} were "
        f"there, whole; {rewrites} rewrites" + ("" if control else f", {len(tests):,} offloaded tests")
    )


def traffic(server, writers, testers=()):
    """A context manager for clients that write and test until it exits or the server is killed."""
    return clients(
        server, [writer.write for writer in writers] + [functools.partial(test_members, tests) for tests in testers]
    )


def test_members(tests: list, client, go_on) -> None:
    """Runs offloaded tests in which every item is a member."""
    with contextlib.suppress(redis.ConnectionError):
        while go_on():
            assert client.execute_command("BF.BULKTEST", "tested", "FIXED", 8, MEMBERS, "COUNT") == 20_000
            tests.append(1)
            time.sleep(0.01)


def main() -> None:
    parser = options("kill9", __doc__, 200, "kills")
    parser.add_argument("--control", action="store_true", help="SADD, on the servers without the module")
    run(kill9, parser)
