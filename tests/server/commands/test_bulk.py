"""BF.BULKADD and BF.BULKTEST: what a server does with them, and what can happen while a client waits for the pool.

BF.BULKTEST answers at once if it has fewer than `offload-min-items` items or its client can't wait. Otherwise its
client is blocked, the main thread serves other clients, and the answer is right whatever they do to the key meanwhile.
"""

import contextlib
import functools
import os
import random
import re
import select
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
import redis

from kit.clients import refusal
from kit.filters import KINDS
from kit.servers import ROOT, Server, option, wait_for

EVERY_SERVER = pytest.mark.every_server("the server blocks the client, and owns the argument that a worker reads")

WIDTH = 8
OFFLOADED = 16_384  # the default of offload-min-items
MILLION = 1_000_000
ROUNDS = int(os.environ.get("BLOOMERY_ROUNDS") or 3)


def fixed(numbers) -> bytes:
    """The numbers as items of eight digits."""
    return b"".join(b"%08d" % number for number in numbers)


def prefixed(items) -> bytes:
    return b"".join(len(item).to_bytes(4, "little") + item for item in items)


# ---- copies of the filters ------------------------------------------------------------------------------------------


@EVERY_SERVER
def test_replicas_and_the_append_only_file(new_server):
    """The filters are the same on a primary with three worker threads, on a replica without any, and after a restart.
    """
    primary = new_server(config={"appendonly": "yes"}, module_args=["THREADS", "3"])
    replica = primary.replica(module_args=["THREADS", "0", "OFFLOAD_MIN_ITEMS", "1"])
    kinds = [kind for kind in KINDS if kind.family == "BF"]
    with primary.client() as client, replica.client() as reader:
        for kind in kinds:
            client.execute_command(*kind.reservation(str(kind)))
            for number in range(3):
                with contextlib.suppress(redis.ResponseError):  # if the filter is full, the items that fit were added
                    client.execute_command("BF.BULKADD", str(kind), "FIXED", WIDTH, fixed(range(number, 9000)))
        client.execute_command("BF.RESERVE", "parallel", 0.01, 100_000, "SHARDS", 8)
        client.execute_command("BF.BULKADD", "parallel", "FIXED", WIDTH, fixed(range(90_000)))
        with client.pipeline(transaction=True) as pipeline:
            pipeline.execute_command("BF.BULKADD", "default", "PREFIXED", prefixed([b"ada", b"", b"x" * 70_000]))
            pipeline.execute_command("BF.BULKTEST", "default", "FIXED", 3, "adabob")
            assert pipeline.execute() == [3, b"\x80"]
        keys = sorted(client.keys())
        assert len(keys) == len(kinds) + 2
        expected = client.execute_command("DEBUG", "DIGEST-VALUE", *keys)
        primary.wait_for_replicas()
        assert reader.execute_command("DEBUG", "DIGEST-VALUE", *keys) == expected
        blob = fixed(range(20_000))
        for key in keys:
            asked = ["BF.BULKTEST", key, "FIXED", WIDTH, blob]
            assert reader.execute_command(*asked) == client.execute_command(*asked)
    primary.restart()
    with primary.client() as client:
        assert client.execute_command("DEBUG", "DIGEST-VALUE", *keys) == expected


# ---- where a client cannot wait -------------------------------------------------------------------------------------

SOME = 20_000


@pytest.fixture
def filled(server):
    """A server whose filter `seen` contains the numbers below SOME."""
    with server.client() as client:
        # The seed is fixed: with random seeds, some of 20,000 absent items would test positive in 1 of 50 filters.
        client.execute_command("BF.RESERVE", "seen", 0.000001, SOME, "SEED", 1)
        client.execute_command("BF.BULKADD", "seen", "FIXED", WIDTH, fixed(range(SOME)))
    return server


@EVERY_SERVER
def test_in_transactions_and_scripts(filled):
    blob = fixed(range(SOME - 5, 2 * SOME - 5))
    with filled.client() as client:
        with client.pipeline(transaction=True) as pipeline:
            pipeline.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob, "COUNT")
            pipeline.delete("seen")
            pipeline.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob, "COUNT")
            pipeline.execute_command("BF.BULKADD", "seen", "FIXED", WIDTH, blob)
            pipeline.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob)
            five, deleted, none, new, all_of_them = pipeline.execute()
        assert (five, deleted, none) == (5, 1, 0)
        assert SOME - 999 < new <= SOME and all_of_them == b"\xff" * (SOME // 8)
        script = "return {redis.call('BF.BULKTEST', KEYS[1], 'FIXED', 8, ARGV[1], 'COUNT'), redis.call('DEL', KEYS[1])}"
        assert client.eval(script, 1, "seen", blob) == [SOME, 1]
        script = "return redis.call('BF.BULKADD', KEYS[1], 'FIXED', 8, ARGV[1])"
        assert SOME - 999 < client.eval(script, 1, "seen", blob) <= SOME


@EVERY_SERVER
def test_a_pipeline_is_in_order(filled):
    """If a command in a pipeline waits, so do the commands after it."""
    blob, new = fixed(range(SOME)), fixed(range(SOME, SOME + 3))
    with filled.client() as client:
        for _ in range(20):
            with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob + new, "COUNT")
                pipeline.execute_command("BF.BULKADD", "seen", "FIXED", WIDTH, new)
                pipeline.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob + new, "COUNT")
                pipeline.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob)
                pipeline.rename("seen", "gone")
                pipeline.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob, "COUNT")
                pipeline.execute_command("BF.BULKTEST", "gone", "FIXED", WIDTH, blob, "COUNT")
                pipeline.execute_command("BF.CLEAR", "gone")
                pipeline.execute_command("BF.BULKTEST", "gone", "FIXED", WIDTH, blob, "COUNT")
                pipeline.execute_command("BF.BULKADD", "gone", "FIXED", WIDTH, blob)
                pipeline.rename("gone", "seen")
                pipeline.ping()
                replies = pipeline.execute()
            cleared, added = replies[7], replies.pop(9)
            assert cleared == b"OK" and SOME - 5 <= added <= SOME
            assert replies == [SOME, 3, SOME + 3, b"\xff" * (SOME // 8), True, 0, SOME, cleared, 0, True, True]


def conversation(server, *commands) -> redis.Connection:
    """A connection on which the commands have been sent in one packet."""
    connection = server.client().connection_pool.get_connection()
    connection.send_packed_command(connection.pack_commands(commands))
    return connection


@EVERY_SERVER
def test_replies_that_nobody_wants(filled):
    """A client that has switched replies off gets none, even for a command that waits. Later replies match their
    commands."""
    test = ("BF.BULKTEST", "seen", "FIXED", WIDTH, fixed(range(SOME)), "COUNT")
    connection = conversation(
        filled, ("CLIENT", "REPLY", "OFF"), test, ("BF.ADD", "seen", "ada"), test, ("CLIENT", "REPLY", "ON"),
        test, ("CLIENT", "REPLY", "SKIP"), test, ("BF.EXISTS", "seen", "ada"), test, ("RESET",), ("ECHO", "end"),
    )  # fmt: skip
    replies = [connection.read_response() for _ in range(6)]
    assert replies == [b"OK", SOME, 1, SOME, b"RESET", b"end"]
    connection.disconnect()


@EVERY_SERVER
def test_monitor_shows_it_once(filled):
    monitor = conversation(filled, ("MONITOR",))
    assert monitor.read_response() == b"OK"
    with filled.client() as client:
        client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, fixed(range(SOME)), "COUNT")
        client.echo("end")
    lines = []
    while not lines or b'"ECHO" "end"' not in lines[-1]:
        lines.append(monitor.read_response())
    assert len([line for line in lines if b'"BF.BULKTEST" "seen" "FIXED" "8" "00000000' in line]) == 1
    monitor.disconnect()


@EVERY_SERVER
def test_the_time_that_a_client_waited_counts(filled):
    with filled.client(decode_responses=True) as client:
        client.config_resetstat()
        for _ in range(20):
            client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, fixed(range(SOME)), "COUNT")
        figures = client.info("commandstats")["cmdstat_bf.bulktest"]
        assert (figures["calls"], figures["rejected_calls"], figures["failed_calls"]) == (20, 0, 0)
        # Testing an item takes more than 5 ns, however fast the machine is.
        assert 20 * SOME * 5e-3 < figures["usec"]


# ---- what happens while a client waits ------------------------------------------------------------------------------

BLOB = fixed(range(MILLION))


@pytest.fixture
def big(new_server):
    """A server whose filter `seen` has a million items and many probes per item, so testing all items takes a while."""
    server = new_server(module_args=["THREADS", "1"], config={"save": ["3600", "1000000000"]})
    with server.client() as client:
        restore(client, server.spec)
    return server


@functools.cache
def a_million(spec) -> bytes:
    """The DUMP payload of `seen`. It is cached, because making the filter takes twenty times as long as restoring it.
    """
    with Server(spec) as server, server.client() as client:
        client.execute_command("BF.RESERVE", "seen", 1e-9, MILLION, "LAYOUT", "CLASSIC", "NONSCALING")
        client.execute_command("BF.BULKADD", "seen", "FIXED", WIDTH, BLOB)
        return client.dump("seen")


class Waiting:
    """A client that has sent a BF.BULKTEST of a million items and is blocked, or in rare cases has its answer already.
    """

    def __init__(self, server):
        self.connection = server.client().connection_pool.get_connection()
        self.connection.send_command("CLIENT", "ID")
        self.id = self.connection.read_response()
        with server.client() as client:
            self.connection.send_command("BF.BULKTEST", "seen", "FIXED", WIDTH, BLOB, "COUNT")
            wait_for(lambda: self.answered() or self.blocked(client), "the client to be blocked")
            self.was_blocked = not self.answered()

    def answered(self) -> bool:
        return bool(select.select([self.connection._sock], [], [], 0)[0])

    def blocked(self, client) -> bool:
        return client.info("clients")["blocked_clients"] > 0

    def reply(self):
        """The number of items found, or None if the server has disconnected or unblocked the client."""
        try:
            return self.connection.read_response()
        except redis.ConnectionError:
            return None
        except redis.ResponseError as error:
            assert str(error).startswith("UNBLOCKED force unblock")
            return None
        finally:
            self.connection.disconnect()


def restore(client, spec) -> None:
    """Restores the filter and deletes all other keys."""
    client.flushdb()
    client.restore("seen", 0, a_million(spec))


def add(client, waiting):
    assert "is full" in refusal(client, "BF.BULKADD", "seen", "FIXED", WIDTH, fixed(range(MILLION, MILLION + 99)))


def overwrite(client, waiting):
    client.set("seen", "text")


def expire(client, waiting):
    client.pexpire("seen", 1)
    time.sleep(0.005)
    assert not client.exists("seen")


def unblock(client, waiting):
    for how in ("TIMEOUT", "ERROR"):
        assert client.execute_command("CLIENT", "UNBLOCK", waiting.id, how) == 0


def resize(client, waiting):
    (name,) = client.config_get("bf?threads")
    for threads in ("0", "8", "auto", "2", "0", "1"):
        client.config_set(name, threads)


def demote(client, waiting):
    client.replicaof("127.0.0.1", 1)
    client.replicaof("NO", "ONE")


def save(client, waiting):
    with contextlib.suppress(redis.ResponseError):  # a snapshot is in progress
        client.bgsave()
    wait_for(lambda: not client.info("persistence")["rdb_bgsave_in_progress"], "the snapshot")
    assert client.info("persistence")["rdb_last_bgsave_status"] == "ok"


DISTURBANCES = {
    "DEL": lambda client, waiting: client.delete("seen"),
    "UNLINK": lambda client, waiting: client.unlink("seen"),
    "FLUSHALL SYNC": lambda client, waiting: client.execute_command("FLUSHALL", "SYNC"),
    "FLUSHALL ASYNC": lambda client, waiting: client.execute_command("FLUSHALL", "ASYNC"),
    "RENAME": lambda client, waiting: client.rename("seen", "other"),
    "SWAPDB": lambda client, waiting: client.swapdb(0, 1),
    "SET": overwrite,
    "PEXPIRE": expire,
    "CLEAR": lambda client, waiting: client.execute_command("BF.CLEAR", "seen"),
    "ADD": add,
    "CLIENT UNBLOCK": unblock,
    "BGSAVE": save,
    "CONFIG SET threads": resize,
    "REPLICAOF": demote,
    "CLIENT KILL": lambda client, waiting: client.execute_command("CLIENT", "KILL", "ID", waiting.id),
}  # fmt: skip

# After these disturbances, the server might have disconnected the client.
FATAL = ("REPLICAOF", "CLIENT KILL")
# After these disturbances, the filter needn't be restored. After all others, it has changed or moved.
HARMLESS = ("ADD", "CLIENT UNBLOCK", "BGSAVE", "CONFIG SET threads", *FATAL)


@pytest.mark.parametrize("what", DISTURBANCES)
@EVERY_SERVER
def test_while_a_client_waits(big, what):
    """The answer is the one that was right when the command was sent. A disconnected client gets none. No memory leaks.
    """
    blocked, closed = 0, 0
    with big.client() as client:
        before = client.info("memory")["used_memory"]
        for _ in range(ROUNDS):
            waiting = Waiting(big)
            blocked += waiting.was_blocked
            time.sleep(random.uniform(0, 0.03))
            DISTURBANCES[what](client, waiting)
            reply = waiting.reply()
            closed += reply is None
            assert reply == MILLION or (reply is None and what in FATAL)
            if what not in HARMLESS:
                restore(client, big.spec)
        assert blocked > 0, "no client waited: this showed nothing"
        assert closed > 0 or what not in FATAL
        client.execute_command("FLUSHALL", "SYNC")
        restore(client, big.spec)
        # Both the blobs, of 8 million bytes each, and the filters have been freed.
        wait_for(lambda: client.info("memory")["used_memory"] < before + (2 << 20), "the memory to come back")
        assert client.info("clients")["blocked_clients"] == 0
        assert client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, BLOB, "COUNT") == MILLION


@EVERY_SERVER
def test_others_are_served(big):
    """Sends other commands while a client waits. Clients that wait at the same time each get their own
    answer."""
    with big.client() as client:
        served = 0
        for _ in range(ROUNDS):
            waiting = Waiting(big)
            while not waiting.answered():
                assert client.execute_command("BF.EXISTS", "seen", b"%08d" % served) == 1
                client.execute_command("BF.ADD", "other", served)
                served += 1
            assert waiting.reply() == MILLION
        assert served > 3 * ROUNDS, "one in each round may be served before or after the work"
        # More clients wait than there are workers.
        several = [Waiting(big) for _ in range(5)]
        client.delete("seen")
        assert [waiting.reply() for waiting in several] == [MILLION] * 5


def preloaded(folder: Path, source: str) -> dict[str, str]:
    """Compiles `source`, and returns the environment variables that preload the result into a server."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    (folder / "preloaded.c").write_text(source)
    words = ["-O1", "-fno-builtin", "-shared", "-fPIC", "-o", "preloaded.so", "preloaded.c"]
    subprocess.run([compiler, *words], cwd=folder, check=True)
    return {"LD_PRELOAD": str(folder / "preloaded.so")}


# Prints which workers still exist when the process exits. A leftover worker usually does no harm, so it would otherwise
# go unnoticed.
COUNTS = r"""
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int count(int is_last) {
    int left = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char name[300], text[64] = "";
        snprintf(name, sizeof name, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(name, "r");
        if (!file) continue;
        fgets(text, sizeof text, file);
        fclose(file);
        if (strncmp(text, "bloomery-", 9) || !isdigit(text[9])) continue;
        left++;
        if (is_last) fprintf(stderr, "left at exit: %s", text);
    }
    closedir(tasks);
    return left;
}
/* The kernel wakes whoever joins a thread before it takes the thread from the list. */
__attribute__((destructor)) static void count_at_exit(void) {
    for (int tries = 0; tries < 500 && count(0); tries++) usleep(10000);
    count(1);
    fprintf(stderr, "counted at exit\n");
}
"""


@pytest.mark.parametrize("how", ["SHUTDOWN NOSAVE", "SHUTDOWN SAVE", "SIGTERM"])
@EVERY_SERVER
def test_shutdown(new_server, tmp_path, how):
    """The workers end before the process, which exits by itself with status 0."""
    for round in range(3):
        threads = str(1 + 7 * (round % 2))
        server = new_server(module_args=["THREADS", threads], env=preloaded(tmp_path, COUNTS))
        with server.client() as client:
            restore(client, server.spec)
            waiting = [Waiting(server) for _ in range(1 + 2 * round)]
            wait_for(lambda: workers(server), "workers")  # noqa: B023
            time.sleep(random.uniform(0, 0.03))
            if how == "SIGTERM":
                server.process.terminate()
            else:
                with contextlib.suppress(redis.ConnectionError):
                    client.execute_command(*how.split())
        assert server.process.wait(20) == 0
        assert "counted at exit" in server.log() and "left at exit" not in server.log()
        assert {one.reply() for one in waiting} <= {MILLION, None}


def workers(server) -> list[str]:
    """The names of the pool's threads."""
    names = []
    for task in Path(f"/proc/{server.process.pid}/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            names.append(task.read_text().strip())
    return [name for name in names if re.fullmatch(r"bloomery-\d+", name)]


@EVERY_SERVER
def test_threads_come_at_first_use_and_go(new_server):
    server = new_server(module_args=["THREADS", "3"])
    threads = option(server.spec, "threads")
    blob = fixed(range(SOME))
    with server.client() as client:
        client.execute_command("BF.ADD", "seen", "ada")
        client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob[: 4096 * WIDTH])
        assert workers(server) == []
        for count in (3, 8, 1, 0, 2):
            client.config_set(threads, count)
            client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob)
            wait_for(lambda: len(workers(server)) == count, f"{count} workers")  # noqa: B023
        client.config_set(threads, "auto")
        client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, blob)
        wait_for(lambda: len(workers(server)) == min(8, len(os.sched_getaffinity(0)) - 1), "a thread less than cores")


# ---- many clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("io_threads", [1, 3])
@EVERY_SERVER
def test_many_clients_at_once(new_server, io_threads):
    """Clients send pipelines in which some commands wait and others don't. Each command gets its own answer."""
    config = {"io-threads": io_threads}
    if io_threads > 1 and new_server().command("CONFIG", "GET", "io-threads-do-reads"):
        config["io-threads-do-reads"] = "yes"
    server = new_server(config=config, module_args=["THREADS", "2"])
    blob = fixed(range(SOME))
    wrong = []
    with server.client() as client:
        client.execute_command("BF.RESERVE", "seen", 1e-9, 10 * SOME, "SHARDS", 4)
        client.execute_command("BF.BULKADD", "seen", "FIXED", WIDTH, blob)

    def work(number: int) -> None:
        chance = random.Random(number)
        for _ in range(12):
            with server.client(chance.choice((2, 3))) as client, client.pipeline(transaction=False) as pipeline:
                expected = []
                for _ in range(6):
                    count = chance.choice((0, 1, 100, 5000, SOME - 1, SOME))
                    words = ["BF.BULKTEST", "seen", "FIXED", WIDTH, blob[: count * WIDTH], "COUNT"]
                    for words, reply in chance.choice((
                        [(words, count)],
                        [(words, count), (["ECHO", f"{number}"], b"%d" % number)],
                        [(["BF.BULKADD", "seen", *words[2:5]], 0)],
                        [(["BF.BULKTEST", "seen", "PREFIXED", prefixed([b"%08d" % number])], b"\x80")],
                        [(["BF.EXISTS", "seen", b"%08d" % count], count < SOME)],
                    )):  # fmt: skip
                        pipeline.execute_command(*words)
                        expected.append(reply)
                replies = pipeline.execute(raise_on_error=False)
                if replies != expected:
                    wrong.append((number, replies, expected))

    clients = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert not wrong


@EVERY_SERVER
def test_clients_that_hang_up(filled):
    """Clients disconnect before they receive the reply, or in the middle of sending a blob."""
    test = ("BF.BULKTEST", "seen", "FIXED", WIDTH, fixed(range(SOME)), "COUNT")
    with filled.client() as client:
        before = client.info("memory")["used_memory"]
        for _ in range(100):
            conversation(filled, test, test).disconnect()
        whole = b"".join(conversation(filled).pack_command(*test))
        for _ in range(20):
            connection = conversation(filled)
            connection._sock.sendall(whole[: random.randrange(len(whole))])
            connection.disconnect()
        wait_for(lambda: client.info("memory")["used_memory"] < before + (2 << 20), "the memory to come back")
        assert client.execute_command(*test) == SOME


# A realloc() that always moves the block, and overwrites the memory where the block was.
MOVES = r"""
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
void *realloc(void *from, size_t size) {
    if (!from) return malloc(size);
    size_t old = malloc_usable_size(from);
    void *to = malloc(size);
    if (!to) return NULL;
    memcpy(to, from, old < size ? old : size);
    memset(from, 0xEE, old);
    free(from);
    return to;
}
"""


@EVERY_SERVER
def test_the_bytes_that_a_worker_reads_stay_where_they_are(new_server, tmp_path):
    """After a command returns, the server reallocates each argument that a module keeps, to give back unused space. A
    worker might already be reading that argument. The more data a client has sent, the more unused space its buffer
    has."""
    server = new_server(env=preloaded(tmp_path, MOVES), module_args=["THREADS", "1"])
    with server.client() as client:
        client.execute_command("BF.RESERVE", "seen", 0.0001, SOME)
        client.execute_command("BF.BULKADD", "seen", "FIXED", WIDTH, fixed(range(SOME)))
        for _ in range(20):
            client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, BLOB, "COUNT")
            assert client.execute_command("BF.BULKTEST", "seen", "FIXED", WIDTH, fixed(range(SOME)), "COUNT") == SOME


# ---- the documentation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document, library", [("README.md", "bloomery_redis"), ("docs/commands/bf.bulktest.md", "numpy")])
def test_the_example_in_python(server, monkeypatch, document, library):
    """Runs the example exactly as it is in the document. The example with numpy is skipped if numpy, which is a large
    package, isn't installed."""
    example = re.search(r"^```python\n(.*?)^```", (ROOT / document).read_text(), flags=re.M | re.S)[1]
    assert f"{library} import" in example or f"import {library}" in example
    as_list = pytest.importorskip(library).array if library == "numpy" else list
    ids, candidates = range(5, 1005), range(0, 2000, 2)
    with server.client() as client:
        if library == "numpy":
            client.execute_command("BF.RESERVE", "users", 0.000001, 1000)
        monkeypatch.setattr("redis.Redis", lambda: client)
        names = {"r": client, "ids": as_list(ids), "candidates": as_list(candidates)}
        exec(example, names)
        assert names["new"] == 1000
        assert list(names["known"]) == [number for number in candidates if number in ids]
