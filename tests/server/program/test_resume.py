"""`bloomery load --resume`, with a fault between any two steps.

A proxy is between the program and the server. Before or after a random script call of a load, something happens to the
server. The connection may also be cut, or the program may be killed or interrupted. Then the same command runs again.
If its exit code is 0, every item must have been added exactly once. It must not fail unless something was lost.
"""

import base64
import json
import random
import signal
import subprocess

import pytest

from kit.arrivals import MANIFEST
from kit.filters import pairs
from kit.program import DONE, HANG_SECONDS, MISSING, PROGRAM, SERVER, USAGE, as_json, command, run
from kit.proxy import Proxy
from kit.servers import wait_for

EVERY_SERVER = pytest.mark.every_server("scripts, persistence and replication are the server's")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

ITEMS = [f"item:{number}" for number in range(400)]
BATCH = 20

RESERVATIONS = {
    "scaling": ["BF.RESERVE", "k", "0.000001", "100"],
    "counting": ["BF.RESERVE", "k", "0.000001", "10000", "COUNTING", "8"],
    "cuckoo": ["CF.RESERVE", "k", "20000", "BUCKETSIZE", "4"],
    "window": ["BF.RESERVE", "k", "0.000001", "10000", "WINDOW", "4"],
    "rebuild": ["BF.REBUILD", "k", "BEGIN", "CAPACITY", "10000", "ERROR", "0.000001", "COUNTING", "8"],
}
OTHERS = [f"other:{number}" for number in range(450)]
SEED = "8"  # with this seed, a cuckoo filter confuses none of the items here


class Filter:
    """The filter that is loaded, and what may happen to it."""

    def __init__(self, server, kind: str, rng):
        self.server, self.kind, self.rng = server, kind, rng
        self.make(rng.getrandbits(60))

    def make(self, seed: int) -> None:
        if self.kind == "rebuild":
            self.server.command("BF.RESERVE", "k", "0.01", "100")
        self.server.command(*RESERVATIONS[self.kind], "SEED", f"{seed:x}")
        self.seed, self.others = seed, 0
        self.older = self.server.command("DUMP", "k"), self.others

    def counts(self) -> list[int]:
        """How often each item was added, or, if the filter doesn't count items, whether it was added."""
        if self.kind == "rebuild":
            self.server.command("COPY", "k", "{k}seen", "REPLACE")
            self.server.command("BF.REBUILD", "{k}seen", "COMMIT")
        with self.server.client() as client, client.pipeline(transaction=False) as pipeline:
            names = {"scaling": "BF.EXISTS", "window": "BF.EXISTS", "cuckoo": "CF.EXISTS"}
            name = names.get(self.kind, "BF.COUNT")
            for item in ITEMS:
                pipeline.execute_command(name, "{k}seen" if self.kind == "rebuild" else "k", item)
            return pipeline.execute()

    def is_exact(self) -> bool:
        """Whether every item was added once. A cuckoo filter confuses some items, so its number of items must also be
        right."""
        if self.server.command("EXISTS", "k") == 0:
            return False
        if self.kind == "rebuild" and not pairs(self.server.command("BF.STATS", "k"))[b"Rebuild"]:
            return False
        if self.kind == "cuckoo":
            inserted = pairs(self.server.command("CF.INFO", "k"))[b"Number of items inserted"]
            return inserted == len(ITEMS) + self.others and self.counts() == [1] * len(ITEMS)
        return self.counts() == [1] * len(ITEMS)

    # Faults after which nothing is lost:

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
        """Loads the data that the server last saved. The filter and the load's account are then both older."""
        self.server.command("DEBUG", "RELOAD", "NOSAVE")

    def no_memory(self):
        self.server.command("CONFIG", "SET", "maxmemory", "1")

    def others_add(self, count=20):
        add = "CF.INSERT" if self.kind == "cuckoo" else "BF.INSERT"
        self.server.command(add, "k", "ITEMS", *OTHERS[:count])
        self.others += count

    def dumped(self):
        """Keeps a copy of the filter, which may replace it later."""
        self.older = self.server.command("DUMP", "k"), self.others

    def rotated(self):
        """Rotates a window. A scenario does so at most three times, so the window still has all items."""
        if self.kind == "window":
            self.server.command("BF.ROTATE", "k")

    # Faults after which something is lost:

    def deleted(self):
        self.server.command("DEL", "k")

    def flushed(self):
        self.server.command("FLUSHALL", "SYNC")

    def made_again(self):
        self.server.command("DEL", "k")
        self.make(self.seed)

    def replaced(self):
        if self.kind == "rebuild":
            self.server.command("BF.REBUILD", "k", "ABORT")
            self.server.command(*RESERVATIONS[self.kind])
        else:
            self.deleted()
            self.make(self.rng.getrandbits(60))

    def cleared(self):
        if self.kind == "cuckoo":
            self.replaced()
        else:
            self.server.command("BF.CLEAR", "k")

    def cleared_and_filled_by_others(self):
        """Others add more items than were lost, so the number of items doesn't show the loss. A rebuild's shadow can't
        be tested for items, so another rebuild replaces it."""
        if self.kind == "rebuild":
            self.replaced()
        else:
            self.cleared()
        self.others = 0
        self.others_add(len(OTHERS))

    def older_copy(self):
        """The account stays, but an older copy replaces the filter, and others add items to it."""
        payload, self.others = self.older
        self.server.command("RESTORE", "k", "0", payload, "REPLACE")
        self.rotated()
        self.others_add(len(OTHERS))

    def account_deleted(self):
        for key in self.server.command("KEYS", "*:bloomery-load:*"):
            self.server.command("DEL", key)


HARMLESS = ["nothing", "nothing", "nothing", "renamed", "copied", "reloaded", "restored", "no_memory"]
HARMLESS += ["others_add", "dumped", "rotated"]
LOSSES = ["deleted", "flushed", "made_again", "replaced", "cleared", "account_deleted"]
LOSSES += ["cleared_and_filled_by_others", "cleared_and_filled_by_others"]


def attempt(words, proxy, rng, event) -> tuple[int, int]:
    """Runs the command with one fault, at a random script call, or without a fault. Returns its exit code, and the
    number of calls after the fault."""
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
    """Runs one load with faults until it ends, and returns its exit code."""
    server.command("FLUSHALL", "SYNC")
    state.unlink(missing_ok=True)
    filter = Filter(server, kind, rng)
    server.command("SAVE")
    words = ["load", "k", path, "--resume", state, "--batch", str(BATCH), "-q", *more]
    words += ["--rebuild"] if kind == "rebuild" else []
    story, lost, calls_since = [], False, 0
    # An older copy of a rebuild can't be distinguished from the newer one.
    losses = LOSSES + (["older_copy", "older_copy"] if kind != "rebuild" else [])
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(HARMLESS + (losses if not lost else []))
        if rng.random() < 0.3:
            server.command("SAVE")

        def event(name=name):
            nonlocal lost, calls_since
            if server.command("EXISTS", "k"):
                getattr(filter, name)()
            if name in losses or (name == "restored" and not server.command("KEYS", "*:bloomery-load:*")):
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
        # The load doesn't notice losses after its last batch.
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
    """A command whose connection broke isn't sent again, because it may have been executed."""
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
    """The replica that takes over may lack the last batches, and then its account also lacks them."""
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
            # From now on, adds don't reach the replica.
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
        self.server, self.kind, self.others = server, kind, 0


@pytest.mark.parametrize("reserve", ["CF.RESERVE k 200 EXPANSION 0", "CF.RESERVE k 100 EXPANSION 1"])
def test_items_that_a_cuckoo_filter_refused_are_not_in_the_account(new_server, files, reserve):
    """After the first refused item, there is still room for some of the others. Deletes make room, and the load
    continues."""
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
    # After deletes, the load continues with the items that are missing, and doesn't add the deleted items again.
    removed = [item for item in ITEMS[:100] if server.command("CF.DEL", "k", item)]
    done = subprocess.run(command("load", "k", path, "--resume", state, "-q", port=server.port), capture_output=True)
    now = pairs(server.command("CF.INFO", "k"))[b"Number of items inserted"]
    kept = json.loads(state.read_text())
    assert kept["items"] == now + len(removed)
    assert (done.returncode == DONE) == (kept["items"] == len(ITEMS)), done.stderr


@pytest.mark.parametrize("keys", [["{a}1", "{a}2"], ["{a}3", "{a}3"]], ids=["one hash tag", "one key"])
def test_two_loads_side_by_side(new_server, tmp_path, keys):
    """Both loads are stopped in the middle and resumed. Each has its own account."""
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
    """The second program has already added the first program's next batch, so the first program must stop."""
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


FORMS = {
    "lines": ([], "", lambda item: f"{item}\n"),
    "lines with CR LF": ([], "", lambda item: f"{item}\r\n"),
    "NUL": (["--null"], "", lambda item: f"{item}\0"),
    "empty lines": (["--keep-blank"], "", lambda item: f"{item}\n"),
    "CSV": (["--column", "item"], "id,item\n", lambda item: f"1,{item}\n"),
    "CSV with more columns": (["--column", "1"], "", lambda item: f"{item},{item}\r\n"),
    "quoted CSV": (["--column", "item"], 'item,"id\n"\r\n', lambda item: '"' + item.replace('"', '""') + '",7\r\n'),
}


def items_of(form) -> list[str]:
    """Items of equal length, so that none is the beginning of another."""
    items = [f"item:{number:03}" for number in range(60)]
    return [f'{item},\n\r"!' for item in items] if form == "quoted CSV" else items


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["counting", "cuckoo"])
def test_a_file_that_grows_at_any_byte(new_server, tmp_path, kind, form):
    """Each run sees more of the file, and ends or is stopped somewhere. In the end, every item is in the filter once.
    If the file ended within an item, the beginning of the item may be in the filter as well."""
    server, rng = new_server(), random.Random(f"{kind} {form}")
    path, state = tmp_path / "items", tmp_path / "state"
    options, head, line = FORMS[form]
    items = items_of(form)
    content = (head + "".join(map(line, items))).encode()
    words = ["load", "k", path, "--resume", state, "-q", *options]
    for _ in range(6):
        server.command("FLUSHALL")
        server.command(*RESERVATIONS[kind], "SEED", SEED)
        state.unlink(missing_ok=True)
        for end in [*sorted(rng.sample(range(len(head), len(content)), 12)), len(content), len(content)]:
            path.write_bytes(content[:end])
            calls, at = 0, rng.randint(1, 5)

            def cut(words, at=at):
                nonlocal calls
                calls += words[0].upper() == b"EVAL"
                return calls == at and end < len(content)

            with Proxy(server.port) as proxy:
                setattr(proxy, rng.choice(["before", "after"]), cut)
                batch = rng.choice([1, 3, 7, 100])
                done = subprocess.run(command(*words, "--batch", batch, port=proxy.port), capture_output=True)
                # A record that ends before the column can't be loaded yet.
                is_short = end < len(content) and b"so there is no column" in done.stderr
                assert done.returncode == DONE or is_short or calls >= at, done.stderr
        with server.client() as client:
            name = "CF.COUNT" if kind == "cuckoo" else "BF.COUNT"
            counts = [client.execute_command(name, "k", item) for item in items]
        assert counts == [1] * len(items), f"{form}: {counts}"


CHANGES = {
    "other content": lambda text, end: text[: end // 2] + ("0" if text[end // 2] != "0" else "1") + text[end // 2 + 1 :],
    "the last byte": lambda text, end: text[: end - 2] + "x" + text[end - 1 :],
    "longer": lambda text, end: text.replace("item", "another") + text,
    "edited in front": lambda text, end: "new\n" + text,
    "a line less": lambda text, end: text[text.index("\n") + 1 :],
    "cut": lambda text, end: text[: end - 1],
    "empty": lambda text, end: "",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stopped", ["complete", "cut", "full"])
def test_another_input_is_refused(new_server, tmp_path, stopped, change):
    """No item of the other input is added, and the load can continue with the first input."""
    server = new_server()
    path, state = tmp_path / "items", tmp_path / "state"
    text = "".join(f"{item}\n" for item in ITEMS)
    path.write_text(text)
    words = ["load", "k", path, "--resume", state, "--batch", BATCH]
    server.command("BF.RESERVE", "k", "0.000001", "130" if stopped == "full" else "1000", "COUNTING", "8")
    calls = 0

    def cut(words):
        nonlocal calls
        calls += words[0].upper() == b"EVAL"
        return stopped == "cut" and calls == 8

    with Proxy(server.port) as proxy:
        proxy.after = cut
        run(*words, port=proxy.port, status=DONE if stopped == "complete" else SERVER)
    count = server.command("BF.CARD", "k")
    # If the load was cut, the server has added a batch that the program doesn't know about. If the filter is full, the
    # server has added part of a batch.
    end = len("".join(f"{item}\n" for item in ITEMS[:count]))
    path.write_text(CHANGES[change](text, end))
    _, errors = run(*words, port=server.port, status=USAGE)
    assert "it is not the same input" in errors
    assert server.command("BF.CARD", "k") == count
    path.unlink()
    for item in ITEMS[:count]:
        server.command("BF.DEL", "k", item)
    # The content counts, not the file's name or the way it is read.
    if stopped == "full":
        run(*words[:2], "-", *words[3:], port=server.port, input=text, status=SERVER)
        assert server.command("BF.COUNT", "k", ITEMS[count]) == 1
    elif stopped == "complete":
        run(*words[:2], "-", *words[3:], port=server.port, input=text)
        assert server.command("BF.CARD", "k") == 0
    else:
        run(*words[:2], "-", *words[3:], port=server.port, input=text)
        assert [server.command("BF.COUNT", "k", item) for item in ITEMS] == [0] * count + [1] * (len(ITEMS) - count)


def test_empty_lines_that_are_items_are_another_form(new_server, files):
    path, state = files
    server = new_server()
    server.command(*RESERVATIONS["counting"])
    run("load", "k", path, "--resume", state, port=server.port)
    _, errors = run("load", "k", path, "--resume", state, "--keep-blank", port=server.port, status=USAGE)
    assert "another form of the items" in errors


def test_an_empty_field_at_the_end_of_a_file_is_counted(new_server, tmp_path):
    server = new_server()
    server.command(*RESERVATIONS["counting"])
    path, state = tmp_path / "items.csv", tmp_path / "state"
    words = ["load", "k", path, "--column", "2", "--resume", state]
    for content, items, blank in [("1,a\n2,", 1, 1), ("1,a\n2,", 1, 1), ("1,a\n2,\n3,b", 2, 1), ("1,a\n2,\n3,b\n4,", 2, 2)]:
        path.write_text(content)
        report = as_json(*words, port=server.port)
        assert (report["items_read"], report["blank_lines"], report["input_bytes"]) == (items, blank, len(content))
    assert [server.command("BF.COUNT", "k", item) for item in "ab"] == [1, 1]


def in_the_middle(server, words) -> int:
    """Loads nearly half of the items, and returns how many were added."""
    calls = 0

    def cut(words):
        nonlocal calls
        calls += words[0].upper() == b"EVAL"
        return calls == len(ITEMS) // BATCH // 2

    with Proxy(server.port) as proxy:
        proxy.after = cut
        run(*words, port=proxy.port, status=SERVER)
    return BATCH * (calls - 1)


def test_another_filter_of_another_system(new_server, files):
    """The filter has no identity, and has enough items. So the load must test whether the filter has the items of the
    last batch."""
    path, state = files
    server = new_server()
    empty = base64.b64decode(MANIFEST["bf:empty"]["dump_base64"])
    server.command("RESTORE", "k", "0", empty)
    words = ["load", "k", path, "--resume", state, "--batch", BATCH]
    in_the_middle(server, words)
    server.command("RESTORE", "k", "0", empty, "REPLACE")
    server.command("BF.MADD", "k", *OTHERS)
    _, errors = run(*words, port=server.port, status=SERVER)
    assert "items of the last batch are not in it" in errors


@pytest.mark.parametrize("rotations, is_older", [(0, True), (3, True), (3, False), (4, False), (9, False), (9, True)])
def test_a_window_may_lack_what_is_too_old(new_server, files, rotations, is_older):
    """After four rotations, no item of the last batch would be left in any case, so the load doesn't require them."""
    path, state = files
    server = new_server()
    server.command(*RESERVATIONS["window"])
    older = server.command("DUMP", "k")
    words = ["load", "k", path, "--resume", state, "--batch", BATCH]
    count = in_the_middle(server, words)
    if is_older:
        server.command("RESTORE", "k", "0", older, "REPLACE")
        server.command("BF.MADD", "k", *OTHERS)
    for _ in range(rotations):
        server.command("BF.ROTATE", "k")
    is_refused = is_older and rotations < 4
    _, errors = run(*words, port=server.port, status=SERVER if is_refused else DONE)
    if is_refused:
        assert "items of the last batch are not in it" in errors
    else:
        assert all(server.command("BF.MEXISTS", "k", *ITEMS[count:]))


def test_a_window_may_lack_what_made_room(new_server, files):
    """If a window drops a generation early, to make room for another client's items, its generation number stays the
    same. Nevertheless, the load continues."""
    path, state = files
    server = new_server()
    server.command(*RESERVATIONS["window"][:3], "150", "WINDOW", "4", "LAYOUT", "FINGERPRINT", "ONFULL", "ROTATE")
    server.command("BF.MADD", "k", *(f"old:{number}" for number in range(300)))
    server.command("BF.ROTATE", "k")
    words = ["load", "k", path, "--resume", state, "--batch", BATCH]
    count = in_the_middle(server, words)
    before = pairs(server.command("BF.STATS", "k"))
    server.command("BF.MADD", "k", *OTHERS[:180])
    after = pairs(server.command("BF.STATS", "k"))
    assert after[b"Early rotations"] > 0 and after[b"Generation"] == before[b"Generation"]
    assert after[b"Number of items inserted"] < before[b"Number of items inserted"]
    run(*words, port=server.port)
    assert all(server.command("BF.MEXISTS", "k", *ITEMS[count:]))


def test_a_batch_may_go_in_over_several_generations(new_server, files):
    """Between two rotations, the window accepts ten items of a batch. It drops them after three rotations."""
    path, state = files
    server = new_server()
    server.command("BF.RESERVE", "k", "0.000001", "10", "WINDOW", "3", "ONFULL", "ERROR")
    words = ["load", "k", path, "--resume", state, "--batch", "45"]
    for run_number in range(1, 40):
        _, errors = run(*words, port=server.port, status=SERVER)
        assert "filter is full" in errors
        assert server.command("BF.MEXISTS", "k", *ITEMS[10 * run_number - 10 : 10 * run_number]) == [1] * 10
        server.command("BF.ROTATE", "k")
    run(*words, port=server.port)


@pytest.mark.parametrize("kind", ["counting", "cuckoo"])
def test_deleted_items_are_not_lost(new_server, files, kind):
    """Missing items don't count as lost if there were at least as many deletes. Deletes after the end of a load don't
    matter, and neither does a restart."""
    path, state = files
    server = new_server()
    server.command(*RESERVATIONS[kind], "SEED", SEED)
    words = ["load", "k", path, "--resume", state, "--batch", BATCH]
    count = in_the_middle(server, words)
    family = "CF" if kind == "cuckoo" else "BF"
    for item in ITEMS[:count]:
        assert server.command(f"{family}.DEL", "k", item) == 1
    run(*words, port=server.port)
    counts = [server.command(f"{family}.COUNT", "k", item) for item in ITEMS]
    assert counts == [0] * count + [1] * (len(ITEMS) - count)
    for item in ITEMS[count:]:
        server.command(f"{family}.DEL", "k", item)
    server.command("SAVE")
    server.restart()
    with path.open("a") as file:
        file.write("".join(f"{item}\n" for item in OTHERS))
    run(*words, port=server.port)
    assert [server.command(f"{family}.COUNT", "k", item) for item in OTHERS] == [1] * len(OTHERS)
