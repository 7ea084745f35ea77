"""Servers under a tool that watches their memory: valgrind, or the preloaded runtime of a sanitizer.

After a call of `put_under`, every server that is started runs under a tool. As a pytest plugin (`-p kit.under`), this
module does so for the server tests, if the environment variable BLOOMERY_UNDER contains words to put before the
server's command line.

`tour` goes through everything that the module does: each kind of filter, bulk commands with the pool, set algebra,
valid and damaged dumps, copies, saves, loads, and an orderly shutdown.
"""

import contextlib
import os
import random
import shlex

import redis

from kit import filters, servers
from kit.workload import Workload

PATIENCE = 30  # how many times slower a server is under the tool, on a busy machine


def put_under(words: list[str]) -> None:
    """Makes every server start under this tool, and raises the timeouts."""
    command_line = servers.Server.command_line
    client = servers.Server.client
    servers.Server.command_line = lambda server: [*words, *command_line(server)]
    servers.Server.client = lambda server, *arguments, **options: client(
        server, *arguments, **{"socket_timeout": 60 * PATIENCE, **options}
    )
    servers.START_SECONDS *= PATIENCE
    servers.STOP_SECONDS *= PATIENCE


def pytest_configure():
    if words := os.environ.get("BLOOMERY_UNDER"):
        put_under(shlex.split(words))


# All small kinds, except one whose states need tens of thousands of adds.
KINDS = [kind for kind in filters.SMALL if kind.name != "counting-16"]


def tour(spec: servers.Spec, seed: int, count: int, module=servers.MODULE) -> int:
    """Does everything once, runs `count` random commands, and shuts the server down normally. Returns the number of
    filters that `make_all` created."""
    settings = {"save": "", "appendonly": "no", "rdbcompression": "no"}
    with servers.Server(spec, config=settings, module=module, module_args=["threads", "2"]) as server:
        with server.client() as client:
            keys = filters.make_all(client, KINDS)
            bulk(client)
            algebra(client)
            dumps(client, keys, random.Random(seed))
            Workload(seed).run(client, count)
            before = {key: client.execute_command("DEBUG", "DIGEST-VALUE", key) for key in keys if client.exists(key)}
            client.execute_command("DEBUG", "RELOAD")
            client.execute_command("BGREWRITEAOF")
            servers.wait_for(lambda: not server.info("persistence")["aof_rewrite_in_progress"], "the rewrite", 600)
            client.save()
        # Restart, so that the server loads everything from the file.
        server.restart()
        with server.client() as client:
            after = {key: client.execute_command("DEBUG", "DIGEST-VALUE", key) for key in before}
            assert before and before == after
            client.flushall(asynchronous=True)
        server.stop()
        server.check()
    return len(keys)


def bulk(client) -> None:
    """Runs adds and tests that the main thread divides between itself and the pool, and tests that the pool runs while
    the client waits."""
    blob = b"".join(number.to_bytes(4, "little") for number in range(20_000))
    client.execute_command("BF.RESERVE", "bulk", "0.01", 40_000, "NONSCALING", "SHARDS", 4)
    assert client.execute_command("BF.BULKADD", "bulk", "FIXED", 4, blob) > 19_000
    assert client.execute_command("BF.BULKTEST", "bulk", "FIXED", 4, blob, "COUNT") == 20_000
    assert client.execute_command("BF.BULKTEST", "bulk", "FIXED", 4, blob[: 4 * 5000]) == b"\xff" * 625
    # Delete the key while a worker reads it.
    with client.pipeline(transaction=False) as pipeline:
        pipeline.execute_command("BF.BULKTEST", "bulk", "FIXED", 4, blob, "COUNT")
        pipeline.execute_command("UNLINK", "bulk")
        assert pipeline.execute() == [20_000, 1]


def algebra(client) -> None:
    for key in ("left", "right"):
        client.execute_command("BF.RESERVE", key, "0.01", 500, "COUNTING", "SEED", "1")
        client.execute_command("BF.MADD", key, key, "both")
    client.execute_command("BF.MERGE", "union", "left", "right")
    client.execute_command("BF.INTERSECT", "common", "left", "right")
    assert client.execute_command("BF.MEXISTS", "union", "left", "right", "both") == [1, 1, 1]
    assert client.execute_command("BF.EXISTS", "common", "both") == 1
    assert client.execute_command("BF.EQUAL", "left", "right") == 0


def dumps(client, keys: list[str], rng: random.Random) -> None:
    """Copies each filter by DUMP, by COPY and in pieces. A payload with a wrong byte is refused, or loads as a filter.
    """
    client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    for key in keys:
        payload = client.dump(key)
        client.restore("again", 0, payload, replace=True)
        client.copy(key, "copy", replace=True)
        prefix = filters.family(client, key)
        client.delete("again")
        filters.load_pieces(client, "again", prefix, filters.pieces(client, key, prefix))
        for _ in range(4):
            at = rng.randrange(len(payload) - 10)
            wrong = payload[:at] + bytes([payload[at] ^ 1 << rng.randrange(8)]) + payload[at + 1 :]
            with contextlib.suppress(redis.ResponseError):
                client.restore("wrong", 0, wrong, replace=True)
        client.execute_command(f"{prefix}.INFO", key)
    for key in ("window/rotated", "fixed/full"):
        client.execute_command("BF.CLEAR", key)
    client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 0)
