"""`bloomery rebuild` against real servers: the old filter serves until COMMIT, and a failure leaves it unchanged."""

import contextlib
import itertools
import signal
import subprocess
import time

import pytest

from kit.filters import pairs
from kit.program import DONE, INTERRUPTED, MISSING, PROGRAM, SERVER, USAGE, as_json, command, run
from kit.proxy import Proxy
from kit.servers import wait_for

EVERY_SERVER = pytest.mark.every_server("replies, connections and what holds a key are the server's")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

OLD = [f"old:{number}" for number in range(1000)]
NEW = [f"new:{number}" for number in range(5000)]
SMALL = "0.000000001"  # an error rate so low that no test here gets a false positive


def text(items) -> str:
    return "".join(f"{item}\n" for item in items)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "items.txt"
    path.write_text(text(NEW))
    return path


@pytest.fixture
def key(server):
    """The key of a filter with the old items."""
    server.command("BF.RESERVE", "k", SMALL, 1000)
    server.command("BF.MADD", "k", *OLD)
    return "k"


def found(server, items, key="k") -> int:
    return sum(server.command("BF.MEXISTS", key, *items))


def is_running(server, key="k") -> bool:
    return pairs(server.command("BF.REBUILD", key, "STATUS"))[b"Status"] == b"running"


def backfilled(server) -> int:
    return pairs(server.command("BF.REBUILD", "k", "STATUS")).get(b"Number of items inserted", 0)


@contextlib.contextmanager
def begun(server, *words, subcommand="rebuild", stderr=subprocess.PIPE):
    """A context manager that runs `bloomery rebuild`. On entry, the program has sent several commands with items and is
    waiting for more input."""
    process = subprocess.Popen(
        command(subcommand, "k", "-", *words, port=server.port),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        process.stdin.write(text(range(100_000)))
        process.stdin.flush()
        wait_for(lambda: backfilled(server) >= 98_304, "the first items")
        yield process
    finally:
        process.kill()
        process.communicate()


@EVERY_SERVER
def test_a_filter_is_rebuilt_and_serves_meanwhile(server, key, path):
    server.command("EXPIRE", key, 5000)
    with begun(server) as process:
        assert found(server, OLD) == 1000 and found(server, range(1000)) == 0
        server.command("BF.ADD", key, "live")
        out, errors = process.communicate(text(NEW))
        assert (process.returncode, errors) == (DONE, "")
        assert out.startswith("k: rebuilt from 105,000 items, and has 105,001 now, "), out
    assert found(server, [*NEW, "live"]) == 5001 and found(server, OLD) == 0
    assert server.command("TTL", key) > 4000 and not is_running(server)
    # Rebuild from several files, with options that differ from the filter's.
    other = path.with_name("other.txt")
    other.write_text(text(OLD) + "\n\n")
    words = "-n", "10k", "-e", SMALL, "--counting", "--seed", "7", "--at-least", "1"
    report = as_json("rebuild", key, path, other, *words, port=server.port)
    assert (report["items_read"], report["items"], report["blank_lines"]) == (6000, 6000, 2)
    assert found(server, OLD + NEW) == 6000
    info = pairs(server.command("BF.STATS", key))
    assert (info[b"Kind"], info[b"Capacity"]) == (b"counting", 10_000)


def test_a_static_filter_is_made_and_made_again(server, path):
    """The key needn't exist at first. Items that occur several times count once."""
    words = "--static", "-e", SMALL
    for items, words in [(NEW, words), (NEW[:100] * 7, [*words, "--at-least", 1]), (OLD, [])]:
        path.write_text(text(items))
        out, _ = run("rebuild", "k", path, *words, port=server.port)
        assert f"from {len(items):,} items, and has {len(set(items)):,} now" in out
        assert found(server, set(items)) == len(set(items)) and found(server, ["absent"]) == 0
        assert pairs(server.command("BF.STATS", "k"))[b"Kind"] == b"static"


@pytest.mark.parametrize(
    "words, content, status, why",
    [
        ([], "", USAGE, "0 items were read, and --at-least is 1"),
        ([], "\n\n", USAGE, "0 items were read"),
        (["--static"], "", USAGE, "0 items were read"),
        (["--at-least", "6k"], text(NEW), USAGE, "5,000 items were read, and --at-least is 6,000"),
        ([], text(NEW[:99]), USAGE, "the new filter has 99 items, less than a tenth of the old one's 1,000"),
        ([], text(NEW[:9] * 100), USAGE, "the new filter has 9 items"),
        (["--static", "-e", "1%"], text(NEW[:99]), USAGE, "the new filter has 99 items"),
        (["--column", "2"], "1,ada\n2\n", USAGE, "there is no column 2"),
        (["-n", "100", "--nonscaling"], text(NEW), SERVER, "non scaling filter is full"),
    ],
)
def test_what_fails_leaves_the_filter_as_it_was(server, key, path, words, content, status, why):
    before = server.command("DUMP", key)
    path.write_text(content)
    _, errors = run("rebuild", key, path, *words, port=server.port, status=status)
    assert why in errors and "the rebuild was aborted, and k serves as before" in errors
    assert server.command("DUMP", key) == before and not is_running(server)
    if not content:  # --at-least 0 allows an empty filter
        run("rebuild", key, path, *words, "--at-least", 0, port=server.port)
        assert server.command("BF.CARD", key) == 0


def test_what_cannot_begin_is_refused(server, key, path):
    before = server.command("DUMP", key)
    server.command("CF.ADD", "cuckoo", "ada")
    server.command("SET", "string", "x")
    for words, status, why in [
        (["nothing", path], USAGE, "there is no filter nothing; create it"),
        (["cuckoo", path], USAGE, "is a cuckoo filter"),
        (["string", path], SERVER, "WRONGTYPE"),
        ([key, path, "/nonexistent"], USAGE, "cannot read /nonexistent"),
        ([key, path, "--cuckoo"], USAGE, "cuckoo filters cannot be rebuilt"),
        ([key, path, "--static", "--counting"], USAGE, "cannot be combined with"),
        ([key, path, "--static", "--ttl", "1h"], USAGE, "cannot be combined with"),
        ([key, path, "--window", "65", "--layout", "blocked"], SERVER, "generations"),
    ]:
        _, errors = run("rebuild", *words, port=server.port, status=status)
        assert why in errors and "aborted" not in errors, errors
    assert server.command("DUMP", key) == before
    server.command("BF.REBUILD", key, "BEGIN")
    _, errors = run("rebuild", key, path, port=server.port, status=USAGE)
    assert "k is being rebuilt; BF.REBUILD k ABORT ends that" in errors and is_running(server)


def test_a_stderr_that_cannot_be_written(server, key):
    """Neither progress nor an error that can't be printed ends the program early."""
    with open("/dev/full", "w") as full:
        with begun(server, "--interval", "0.1", stderr=full) as process:
            time.sleep(0.1)  # so that the last items are reported
            process.communicate(text(NEW))
            assert process.returncode == DONE
        assert found(server, NEW) == 5000 and not is_running(server)
        assert subprocess.run(command("stats", "nothing", port=server.port), stderr=full).returncode == USAGE


@EVERY_SERVER
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [[], ["--static"]])
def test_interrupted(server, key, stop, words):
    before = server.command("DUMP", key)
    with begun(server, *words) as process:
        process.send_signal(stop)
        process.wait(30)  # although its input hasn't ended
        assert process.returncode == INTERRUPTED
        assert "interrupted: the rebuild was aborted, and k serves as before" in process.stderr.read()
    assert server.command("DUMP", key) == before and not is_running(server)


@pytest.mark.parametrize("words", [[], ["--static"]])
def test_every_reply_may_be_lost(server, path, words):
    """Loses the n-th reply, for every n. Afterwards the old or the new filter serves, as the program reports, and no
    rebuild is left running."""
    ends = set()
    for lost in range(100):
        server.command("FLUSHALL")
        server.command("BF.RESERVE", "k", SMALL, 1000)
        server.command("BF.MADD", "k", *OLD)
        replies = itertools.count()
        with Proxy(server.port) as proxy:
            proxy.after = lambda _, lost=lost, replies=replies: next(replies) == lost
            done = subprocess.run(command("rebuild", "k", path, *words, port=proxy.port), capture_output=True, text=True)
        assert done.returncode in (DONE, SERVER), done
        is_new = done.returncode == DONE or "k was rebuilt" in done.stderr
        assert (found(server, OLD), found(server, NEW)) == ((0, 5000) if is_new else (1000, 0)), (lost, done)
        assert not is_running(server), (lost, done)
        ends.add((done.returncode, is_new))
        if next(replies) <= lost:
            break
    # The lost replies include those before BEGIN, those while the filter was being filled, the reply to COMMIT, and
    # those for the report.
    assert ends == {(SERVER, False), (DONE, True), (SERVER, True)} and done.returncode == DONE


def test_another_rebuild_is_left_alone(server, key):
    """If another rebuild has replaced the program's own, the program must add nothing to it, and neither commit nor abort
    it."""
    with begun(server) as process, server.client() as client:
        # In one transaction, so that the program never sees the key without a rebuild.
        both = client.pipeline(transaction=True)
        both.execute_command("BF.REBUILD", key, "ABORT")
        both.execute_command("BF.REBUILD", key, "BEGIN", "CAPACITY", 1_000_000)
        both.execute()
        _, errors = process.communicate(text(NEW))
        assert process.returncode == SERVER and "another rebuild has begun" in errors
    assert backfilled(server) == 0 and is_running(server) and found(server, OLD) == 1000


def test_a_load_into_a_rebuild_leaves_another_alone(server, key):
    server.command("BF.REBUILD", key, "BEGIN")
    with begun(server, "--rebuild", subcommand="load") as process:
        server.command("BF.REBUILD", key, "ABORT")
        server.command("BF.REBUILD", key, "BEGIN")
        _, errors = process.communicate(text(NEW))
        assert process.returncode == SERVER and "another rebuild has begun" in errors
    assert backfilled(server) == 0


def test_a_rebuild_that_ends_by_itself(server, key):
    with begun(server) as process:
        server.command("DEL", key)
        _, errors = process.communicate()
        assert process.returncode == SERVER and "not found" in errors
    assert server.command("EXISTS", key) == 0


def test_a_server_that_goes_away(new_server):
    server = new_server()
    server.command("BF.RESERVE", "k", SMALL, 1000)
    with begun(server) as process:
        server.kill()
        _, errors = process.communicate()
        assert process.returncode == SERVER and "the rebuild of k could not be aborted" in errors
