"""`bloomery load --resume`, with something going wrong between any two steps.

A proxy stands between the program and the server. At a random script call of a load, before it or after it, the
connection is cut or the program is killed, and something happens to the server. Then the same command is run again until
it ends. It must end with 0 exactly if every item is in, and then every item was added exactly once; and it must not fail
unless something was lost.
"""

import json
import random
import signal
import subprocess

import pytest

from kit.filters import pairs
from kit.program import DONE, HANG_SECONDS, MISSING, PROGRAM, SERVER, USAGE, command, run
from kit.proxy import Proxy
from kit.servers import wait_for

EVERY_SERVER = pytest.mark.every_server("scripts, persistence and replication are the server's")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

ITEMS = [f"item:{number}" for number in range(400)]
BATCH = 20

RESERVATIONS = {
    "scaling": ["BF.RESERVE", "k", "0.000001", "100"],
    "counting": ["BF.RESERVE", "k", "0.000001", "1000", "COUNTING", "8"],
    "cuckoo": ["CF.RESERVE", "k", "2000", "BUCKETSIZE", "4"],
    "rebuild": ["BF.REBUILD", "k", "BEGIN", "CAPACITY", "1000", "ERROR", "0.000001", "COUNTING", "8"],
}


class Filter:
    """The filter that is loaded, and what happens to it."""

    def __init__(self, server, kind: str, rng):
        self.server, self.kind, self.rng = server, kind, rng
        self.make(rng.getrandbits(60))

    def make(self, seed: int) -> None:
        if self.kind == "rebuild":
            self.server.command("BF.RESERVE", "k", "0.01", "100")
        self.server.command(*RESERVATIONS[self.kind], "SEED", f"{seed:x}")
        self.seed = seed

    def counts(self) -> list[int]:
        """How often each item was added, or 0 and 1 if the filter doesn't count."""
        if self.kind == "rebuild":
            self.server.command("COPY", "k", "{k}seen", "REPLACE")
            self.server.command("BF.REBUILD", "{k}seen", "COMMIT")
        with self.server.client() as client, client.pipeline(transaction=False) as pipeline:
            name = {"scaling": "BF.EXISTS", "cuckoo": "CF.EXISTS"}.get(self.kind, "BF.COUNT")
            for item in ITEMS:
                pipeline.execute_command(name, "{k}seen" if self.kind == "rebuild" else "k", item)
            return pipeline.execute()

    def is_exact(self) -> bool:
        """Whether every item is in once. A cuckoo filter confuses some items, so what counts there is their number."""
        if self.server.command("EXISTS", "k") == 0:
            return False
        if self.kind == "rebuild" and not pairs(self.server.command("BF.INFO", "k", "FULL"))[b"Rebuild"]:
            return False
        if self.kind == "cuckoo":
            inserted = pairs(self.server.command("CF.INFO", "k"))[b"Number of items inserted"]
            return inserted == len(ITEMS) and self.counts() == [1] * len(ITEMS)
        return self.counts() == [1] * len(ITEMS)

    # What can happen. Nothing is lost:

    def nothing(self):
        pass

    def renamed(self):
        self.server.command("RENAME", "k", "{k}elsewhere")
        self.server.command("RENAME", "{k}elsewhere", "k")

    def copied(self):
        self.server.command("COPY", "k", "{k}copy")
        self.server.command("RENAME", "{k}copy", "k")

    def reloaded(self):
        self.server.command("DEBUG", "RELOAD")

    def restored(self):
        """As it was when the server last saved: filter and account are both older."""
        self.server.command("DEBUG", "RELOAD", "NOSAVE")

    def no_memory(self):
        self.server.command("CONFIG", "SET", "maxmemory", "1")

    # Something is lost:

    def deleted(self):
        self.server.command("DEL", "k")

    def flushed(self):
        self.server.command("FLUSHALL", "SYNC")

    def made_again(self):
        self.server.command("DEL", "k")
        # A cuckoo filter with the same seed can't be told from the first.
        self.make(self.seed + (self.kind == "cuckoo"))

    def replaced(self):
        if self.kind == "rebuild":
            self.server.command("BF.REBUILD", "k", "ABORT")
            self.server.command(*RESERVATIONS[self.kind])
        else:
            self.deleted()
            self.make(self.rng.getrandbits(60))

    def cleared(self):
        if self.kind in ("scaling", "counting"):
            self.server.command("BF.CLEAR", "k")
        else:
            self.replaced()

    def account_deleted(self):
        for key in self.server.command("KEYS", "*:bloomery-load:*"):
            self.server.command("DEL", key)


HARMLESS = ["nothing", "nothing", "nothing", "renamed", "copied", "reloaded", "restored", "no_memory"]
LOSSES = ["deleted", "flushed", "made_again", "replaced", "cleared", "account_deleted"]


def attempt(words, proxy, rng, event) -> tuple[int, int]:
    """Runs the command with one fault, at a random script call or none. Its exit code, and the calls after the fault."""
    calls, since, at = 0, 0, rng.randint(1, len(ITEMS) // BATCH + 2)
    where, how = rng.choice(["before", "after"]), rng.choice(["cut", "kill", "interrupt", "go on"])
    process = subprocess.Popen(command(*words, port=proxy.port), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def fault(words, side):
        nonlocal calls, since, at
        if words[0].upper() != b"EVAL":
            return False
        calls += side == "before"
        since += side == "after"
        if calls != at or side != where:
            return False
        at = 0  # only once
        event()
        since = 0
        if how == "kill":
            process.kill()
        elif how == "interrupt":
            process.send_signal(signal.SIGINT)
        return how in ("cut", "kill")

    proxy.before, proxy.after = (lambda words: fault(words, "before")), (lambda words: fault(words, "after"))
    _, errors = process.communicate(timeout=HANG_SECONDS)
    proxy.before = proxy.after = lambda words: False
    assert process.returncode in (0, 1, 2, 3, 130, -signal.SIGKILL), errors
    assert b"panicked" not in errors, errors
    return process.returncode, since


def scenario(server, proxy, path, state, kind, rng, more=()) -> int:
    """One load with faults; how it ended."""
    server.command("FLUSHALL", "SYNC")
    state.unlink(missing_ok=True)
    filter = Filter(server, kind, rng)
    server.command("SAVE")
    words = ["load", "k", path, "--resume", state, "--batch", str(BATCH), "-q", *more]
    words += ["--rebuild"] if kind == "rebuild" else []
    story, lost, calls_since = [], False, 0
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(HARMLESS + (LOSSES if not lost else []))
        if rng.random() < 0.3:
            server.command("SAVE")

        def event(name=name):
            nonlocal lost, calls_since
            if server.command("EXISTS", "k"):
                getattr(filter, name)()
            if name in LOSSES or (name == "restored" and not server.command("KEYS", "*:bloomery-load:*")):
                lost, calls_since = True, 0

        code, calls = attempt(words, proxy, rng, event)
        calls_since += calls
        server.command("CONFIG", "SET", "maxmemory", "0")
        story.append(f"{name} {code}")
        if code == DONE:
            break
    else:
        run = subprocess.run(command(*words, port=proxy.port), capture_output=True, timeout=HANG_SECONDS)
        code, calls_since = run.returncode, calls_since + 1
        story.append(f"at last {code} {run.stderr.decode()}")
    text = f"{kind}: {', '.join(story)}"
    assert code in (DONE, SERVER, USAGE), text
    if code == DONE:
        # What is lost after the last batch is not the load's business.
        assert filter.is_exact() or (lost and calls_since == 0), text
    else:
        assert lost, f"nothing was lost, but it failed: {text}"
    return code


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "items.txt"
    path.write_text("".join(item + "\n" for item in ITEMS))
    return path, tmp_path / "state"


@pytest.mark.parametrize("kind", RESERVATIONS)
@EVERY_SERVER
def test_whatever_happens_between_two_steps(new_server, files, kind):
    server, rng = new_server(config={"enable-debug-command": "yes"}), random.Random(kind)
    done = refused = 0
    with Proxy(server.port) as proxy:
        for _ in range(40):
            code = scenario(server, proxy, *files, kind, rng)
            done, refused = done + (code == DONE), refused + (code != DONE)
    assert done > 5 and refused > 5, "the scenarios are not mixed"


@pytest.mark.parametrize("kind", RESERVATIONS)
def test_a_cluster_client_sends_nothing_twice(new_server, files, kind):
    """A command whose connection broke may have been executed."""
    with Proxy(0) as proxy:
        settings = {"cluster-enabled": "yes", "cluster-announce-port": proxy.port, "enable-debug-command": "yes"}
        server, rng = new_server(config=settings), random.Random(kind)
        server.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: b"cluster_state:ok" in server.command("CLUSTER", "INFO"), "the cluster to form")
        proxy.target = server.port
        for _ in range(10):
            scenario(server, proxy, *files, kind, rng, ["--cluster"])


@pytest.mark.parametrize("kind", ["counting", "cuckoo"])
@EVERY_SERVER
def test_a_failover_loses_account_and_items_alike(new_server, files, kind):
    """The replica that takes over may lack the last batches, and then its account lacks them, too."""
    path, state = files
    primary = new_server()
    replica = primary.replica()
    primary.command(*RESERVATIONS[kind])
    primary.wait_for_replicas()
    words = ["load", "k", path, "--resume", state, "--batch", str(BATCH), "-q"]
    calls = 0

    def count(words):
        nonlocal calls
        calls += words[0].upper() == b"EVAL"
        if calls == 6:
            # From now on the replica hears nothing of what is added.
            replica.command("REPLICAOF", "NO", "ONE")
        return calls == 10

    with Proxy(primary.port) as proxy:
        proxy.before = count
        run(*words, port=proxy.port, status=SERVER)
        proxy.before = lambda words: False
        primary.kill()
        proxy.target = replica.port
        _, errors = run(*words, port=proxy.port)
        assert "continuing after byte" in errors
    assert Filter.is_exact(Existing(replica, kind))


class Existing(Filter):
    """A filter that exists already."""

    def __init__(self, server, kind):
        self.server, self.kind = server, kind


@pytest.mark.parametrize("reserve", ["CF.RESERVE k 200 EXPANSION 0", "CF.RESERVE k 100 EXPANSION 1"])
def test_items_that_a_cuckoo_filter_refused_are_not_in_the_account(new_server, files, reserve):
    """It has room for some of those that come after the first refused one. Room is made, and the load goes on."""
    server = new_server()
    path, state = files
    server.command(*reserve.split())
    if "EXPANSION 1" in reserve:
        limit = "cf-max-expansions" if server.spec.name.startswith("redis-8") else "bf.cf-max-expansions"
        server.command("CONFIG", "SET", limit, "1")
    for batch in (400, 150, 70, 1):
        words = ["load", "k", path, "--resume", state, "--batch", batch, "-q"]
        _, errors = run(*words, port=server.port, status=SERVER)
        assert "the filter is full: no room for" in errors
    kept = json.loads(state.read_text())
    inserted = pairs(server.command("CF.INFO", "k"))[b"Number of items inserted"]
    assert kept["items"] == inserted < len(ITEMS) and kept["offset"] < path.stat().st_size
    # A larger filter takes the place of the full one, item by item: what was in stays in.
    removed = [item for item in ITEMS[:100] if server.command("CF.DEL", "k", item)]
    done = subprocess.run(command("load", "k", path, "--resume", state, "-q", port=server.port), capture_output=True)
    now = pairs(server.command("CF.INFO", "k"))[b"Number of items inserted"]
    kept = json.loads(state.read_text())
    assert kept["items"] == now + len(removed)
    assert (done.returncode == DONE) == (kept["items"] == len(ITEMS)), done.stderr


@pytest.mark.parametrize("keys", [["{a}1", "{a}2"], ["{a}3", "{a}3"]], ids=["one hash tag", "one key"])
def test_two_loads_side_by_side(new_server, tmp_path, keys):
    """Each has an account of its own: both are stopped in the middle, and gone on with."""
    server = new_server()
    for key in {*keys}:
        server.command("BF.RESERVE", key, "0.000001", "1000", "COUNTING", "8")
    loads = []
    for number, key in enumerate(keys):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(f"{number}:{item}\n" for item in range(400)))
        loads.append(["load", key, path, "--resume", tmp_path / f"{number}.state", "--batch", "20", "-q"])
    calls = [0, 0]
    with Proxy(server.port) as first, Proxy(server.port) as second:

        def of_first(words):
            calls[0] += words[0].upper() == b"EVAL"
            if calls[0] == 5:
                calls[0] += 1
                run(*loads[1], port=second.port, status=SERVER)
            return calls[0] == 10

        def of_second(words):
            calls[1] += words[0].upper() == b"EVAL"
            return calls[1] == 8

        first.after, second.after = of_first, of_second
        run(*loads[0], port=first.port, status=SERVER)
    for words in loads:
        run(*words, port=server.port)
    for number, key in enumerate(keys):
        with server.client() as client, client.pipeline(transaction=False) as pipeline:
            for item in range(400):
                pipeline.execute_command("BF.COUNT", key, f"{number}:{item}")
            assert pipeline.execute() == [1] * 400, key
    assert server.command("KEYS", "*bloomery-load*") == []


def test_a_second_program_with_the_same_file_is_refused(new_server, files):
    """The account is further than the first program knows, so its next batch is in."""
    path, state = files
    server = new_server()
    server.command(*RESERVATIONS["counting"])
    words = ["load", "k", path, "--resume", state, "--batch", str(BATCH), "-q"]
    calls = [0, 0]
    with Proxy(server.port) as first, Proxy(server.port) as second:

        def of_first(words_sent):
            calls[0] += words_sent[0].upper() == b"EVAL"
            if calls[0] == 5:
                calls[0] += 1
                run(*words, port=second.port, status=SERVER)
            return False

        def of_second(words_sent):
            calls[1] += words_sent[0].upper() == b"EVAL"
            return calls[1] == 4

        first.before, second.after = of_first, of_second
        _, errors = run(*words, port=first.port, status=SERVER)
    assert "another program continues it" in errors
    run(*words, port=server.port)
    assert Existing(server, "counting").is_exact()


def test_a_load_without_an_account_notices_that_its_filter_was_replaced(new_server, files):
    path, _ = files
    server = new_server()
    for replace, says in [
        (["DEL k"], "not found"),
        (["DEL k", "BF.RESERVE k 0.01 1000"], "was replaced or deleted during the load"),
        (["FLUSHALL"], "not found"),
    ]:
        server.command("FLUSHALL")
        server.command("BF.RESERVE", "k", "0.01", "1000")
        calls = 0

        def fault(words, replace=replace):
            nonlocal calls
            calls += words[0].upper() == b"BF.BULKADD"
            if calls == 5:
                calls += 1
                for line in replace:
                    server.command(*line.split())
            return False

        with Proxy(server.port) as proxy:
            proxy.before = fault
            _, errors = run("load", "k", path, "--batch", str(BATCH), port=proxy.port, status=SERVER)
        assert says in errors
        assert server.command("EXISTS", "k") == len(replace) - 1, "the load created a filter"


def test_accounts_of_an_older_version_are_refused(new_server, files):
    path, state = files
    server = new_server()
    server.command(*RESERVATIONS["counting"])
    older = {"key": "k", "input": str(path), "form": "lines", "offset": 70, "skip": 0, "items": 7, "new": 7, "blank": 0}
    state.write_text(json.dumps(older))
    words = ["load", "k", path, "--resume", state]
    _, errors = run(*words, port=server.port, status=USAGE)
    assert "was written by an older version" in errors
    state.unlink()
    server.command("HSET", "{k}:bloomery-load", "state", json.dumps(older), "skip", "0")
    _, errors = run(*words, port=server.port, status=USAGE)
    assert "an older version has begun to load k" in errors
    server.command("HSET", "{k}:bloomery-load", "state", json.dumps(older | {"key": "{k}2"}))
    run(*words, port=server.port)
    assert Existing(server, "counting").is_exact()
