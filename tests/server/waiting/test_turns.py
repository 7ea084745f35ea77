"""A plain command doesn't wait for another client's long command. The pool gives each job its turn, so a long job that
holds one key doesn't delay a short job that holds another. These tests compare no times: they see which reply comes
first. A busy machine may delay the shorter command, so there are several tries. If each job ran to its end in one turn,
the shorter command would come last in all of them.
"""

import array
import re
import struct
from pathlib import Path

import pytest

from kit.background import Replies, valkey_payload
from kit.metrics import figures
from kit.servers import wait_for

SMALL = 2_000_000  # capacity at an error rate of 1%: 2.3 MiB of cells, enough for a merge in the background
LARGE = 128 << 20  # bytes of the filters that long commands work on
CLIENTS = 4  # clients that send the same long command
TRIES = 20


def reserve(client, name, *like):
    client.execute_command("BF.RESERVE", name, 0.01, SMALL, *(like or ["NONSCALING"]))


@pytest.fixture
def crowded(new_server):
    server = new_server(module_args=["THREADS", "1", "OFFLOAD_MAX_BYTES", "4gb"])
    with server.client() as client:
        client.execute_command("BF.RESERVE", "deep", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC")
        client.execute_command("BF.BULKADD", "deep", "FIXED", 8, b"".join(b"%08d" % n for n in range(20_000)))
        client.execute_command("BF.RESERVE", "large", 0.001, LARGE * 8 // 15, "NONSCALING")
        client.execute_command("BF.RESERVE", "larger", 0.001, LARGE * 8 // 15, "LIKE", "large")
        reserve(client, "a")
        for name in ("b", "c", "plain"):
            reserve(client, name, "LIKE", "a")
        client.execute_command("BF.MADD", "a", *range(1000))
        client.execute_command("CF.RESERVE", "cuckoo", 1000)
    return server


# Not BF.EQUAL: it reads memory that was never written, and four of them last hardly longer than a short merge.
LONG = {
    "test": lambda n: ["BF.BULKTEST", "deep", "FIXED", 1, bytes(8 << 20)],
    "merge": lambda n: ["BF.MERGE", f"merged:{n}", "large", "larger"],
    "intersect": lambda n: ["BF.INTERSECT", f"intersection:{n}", "large", "larger"],
}

# Short commands that hold a key (in most cases, there are none), and the command that is sent after them and timed.
PLAIN = {
    "other-filter": ([], ["BF.ADD", "plain", "x"]),
    "test": ([], ["BF.EXISTS", "large", "x"]),
    "cuckoo": ([], ["CF.ADD", "cuckoo", "x"]),
    "string": ([], ["SET", "string", "x"]),
    "destination": (["BF.MERGE b a"], ["BF.ADD", "b", "x"]),
    "source": (["BF.MERGE b a"], ["BF.ADD", "a", "x"]),
    "shared-source": (["BF.MERGE b a", "BF.MERGE c a"], ["BF.ADD", "c", "x"]),
    "bulk-test": ([], ["BF.BULKTEST", "plain", "FIXED", 1, bytes(20_000), "COUNT"]),
    "equal": ([], ["BF.EQUAL", "a", "b"]),
}


def overtakes(server, client, kind, plain) -> bool:
    """Whether the plain command is answered before the last of several long ones, which were sent before."""
    before, words = PLAIN[plain]
    long = [Replies(server, [LONG[kind](number)]) for number in range(CLIENTS)]
    wait_for(lambda: figures(client)["pool_jobs_running"] > 0 or long[-1].has_come(), "the work to begin")
    holds = [Replies(server, [command.split()]) for command in before]
    if holds:
        client.ping()  # so that the server has received them
    one = Replies(server, [words])
    one()
    is_first = not all(reply.has_come(0) for reply in long)
    for hold in holds:
        assert hold() == b"OK"
    for reply in long:
        reply.connection.disconnect()
    wait_for(lambda: figures(client)["clients_waiting"] == 0, "all to be gone")
    client.delete(*(f"{name}:{n}" for name in ("merged", "intersection") for n in range(CLIENTS)))
    return is_first


@pytest.mark.parametrize("kind", LONG)
def test_a_plain_write_does_not_wait_for_long_work(crowded, kind):
    with crowded.client() as client:
        for plain in PLAIN:
            assert any(overtakes(crowded, client, kind, plain) for _ in range(TRIES)), plain


def test_many_clients_that_wait_have_few_threads(new_server):
    """A container may limit the number of threads, and a server that has reached the limit can't fork. Each job lasts
    several turns, so without a limit, all jobs would be paused, each on a thread of its own. Later jobs begin when
    earlier ones have ended."""
    server = new_server(module_args=["THREADS", "1"], config={"maxclients": 2000})
    with server.client() as client:
        client.execute_command("BF.RESERVE", "deep", 0.01, 1, "EXPANSION", 1, "LAYOUT", "CLASSIC")
        client.execute_command("BF.BULKADD", "deep", "FIXED", 8, b"".join(b"%08d" % n for n in range(100_000)))
        own = threads(server)
        test = ["BF.BULKTEST", "deep", "FIXED", 8, b"".join(b"-%07d" % n for n in range(16_384)), "COUNT"]
        clients = [Replies(server, [test]) for _ in range(300)]
        most, paused = 0, 0
        while paused < 32 or not clients[40].has_come():
            now = figures(client)
            most, paused = max(most, threads(server) - own), max(paused, now["pool_jobs_paused"])
            assert now["pool_threads"] <= 1 + 32
        # jemalloc starts up to four threads of its own. A thread that leaves is counted until the system has removed
        # it.
        assert paused == 32 and most <= 1 + paused + 4 + 2, (most, paused)
        for one in clients:
            one.connection.disconnect()
        wait_for(lambda: figures(client)["pool_threads"] == 1, "the threads to leave")
        wait_for(lambda: threads(server) - own <= 1 + 4, "the system to remove them")


def threads(server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"Threads:\s+(\d+)", status)[1])


IMPORTS = {
    "import": ["BF.IMPORT", "new", "GOZERO", "none", "BITS", 8 * LARGE, "DATA", b"\x55" * LARGE],
    "load": ["BF.LOAD", "new", valkey_payload(LARGE)],
}


def begun(server, client, command) -> tuple[Replies, int]:
    """Starts a job that takes 0.1 s. While the job runs, returns the object for its reply, and the number of jobs that
    have ended before it. If the job ends too early to be seen, tries again."""
    for _ in range(20):
        before = figures(client)["pool_jobs"]
        reply = Replies(server, [command])
        wait_for(lambda: figures(client)["pool_jobs_running"] == 1 or figures(client)["pool_jobs"] > before, "it to begin")
        now = figures(client)
        if (now["pool_jobs"], now["pool_jobs_running"]) == (before, 1):
            return reply, before
        assert reply() == b"OK"
        client.delete("new")
    raise AssertionError("no job was seen while it ran")


@pytest.mark.parametrize("kind", IMPORTS)
def test_imports_give_others_their_turn(new_server, kind):
    server = new_server(module_args=["THREADS", "1", "OFFLOAD_MAX_BYTES", "1gb"])
    with server.client() as client:
        client.execute_command("BF.ADD", "plain", b"\0")
        test = ["BF.BULKTEST", "plain", "FIXED", 1, bytes(20_000), "COUNT"]
        jobs = lambda: figures(client)["pool_jobs"]  # noqa: E731
        for _ in range(TRIES):
            long, before = begun(server, client, IMPORTS[kind])
            assert client.execute_command(*test) == 20_000
            wait_for(lambda: jobs() > before, "the test to end")
            is_first = jobs() == before + 1
            assert long() == b"OK"
            wait_for(lambda: jobs() == before + 2, "both to be counted")
            client.delete("new")
            if is_first:
                return
        raise AssertionError("the test waits for the import")


def test_compactions_give_others_their_turn_and_end_with_their_client(new_server):
    """A search to the end would take seconds here, because it visits all seven sub-filters, whose buckets
    have one slot each. Nothing can be moved: even buckets are full of even fingerprints, whose other bucket is also
    even, and odd buckets are empty."""
    server, tables, size = new_server(module_args=["THREADS", "1"]), 7, 16 << 20
    with server.client() as client:
        cells = b"".join(b"%c\0" % (2 + 2 * (n % 126)) for n in range(size // 2))
        head = struct.pack("<QQQQHHH", tables * size // 2, size, size * tables, tables, 1, 20, 1)
        client.execute_command("CF.LOADCHUNK", "f", 1, head)
        for end in range(size, size * tables + 1, size):
            client.execute_command("CF.LOADCHUNK", "f", 1 + end, cells)
        client.execute_command("BF.ADD", "plain", b"\0")
        gives_turns_and_ends_with_its_client(server, client, ["CF.COMPACT", "f"])


@pytest.mark.parametrize("layout", ["FUSE", "RIBBON"])
def test_static_filters_are_built_in_turns_and_end_with_their_client(new_server, layout):
    """Part of the work can't be divided, and takes 0.3 s or more: finding each item's cell or row, one after the other.
    """
    server, items = new_server(module_args=["THREADS", "1"]), 5_000_000
    with server.client() as client:
        client.execute_command("BF.RESERVE", "f", 0.01, 100)
        client.execute_command("BF.REBUILD", "f", "BEGIN", "LAYOUT", layout)
        for first in range(0, items, 500_000):
            blob = array.array("Q", range(first, first + 500_000)).tobytes()
            client.execute_command("BF.REBUILD", "f", "ADDBULK", "FIXED", 8, blob)
        client.execute_command("BF.ADD", "plain", b"\0")
        gives_turns_and_ends_with_its_client(server, client, ["BF.REBUILD", "f", "COMMIT"])


def gives_turns_and_ends_with_its_client(server, client, command):
    """Sends a command that works for a second or more. A short test of `plain` is answered before it. The command's work
    ends after its client has disconnected, and a shutdown doesn't wait for it."""
    running = lambda: figures(client)["pool_jobs_running"]  # noqa: E731
    wait_for(lambda: running() == 0, "other work to end")
    first = Replies(server, [command])
    wait_for(lambda: running() == 1, "the work to begin")
    assert client.execute_command("BF.BULKTEST", "plain", "FIXED", 1, bytes(20_000), "COUNT") == 20_000
    assert not first.has_come()
    first.connection.disconnect()
    wait_for(lambda: running() == 0, "the work to end")
    last = Replies(server, [command])
    wait_for(lambda: running() == 1, "the work to begin")
    server.restart()
    last.connection.disconnect()
