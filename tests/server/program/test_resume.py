"""`bloomery load --resume`, with a fault between any two steps.

A proxy is between the program and the server. Before or after a random command of a load, something happens to the
server. The connection may also be cut, or the program may be killed or interrupted. Then the same command runs again.
If its exit code is 0, no item may be missing. It must not fail unless something was lost.
"""

import random
import re
import signal
import subprocess

import pytest

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
    "window": ["BF.RESERVE", "k", "0.000001", "10000", "WINDOW", "4"],
    "rebuild": ["BF.REBUILD", "k", "BEGIN", "CAPACITY", "10000", "ERROR", "0.000001"],
}
OTHERS = [f"other:{number}" for number in range(20)]


def missing(server, items) -> list[str]:
    with server.client() as client:
        return [item for item, is_in in zip(items, client.execute_command("BF.MEXISTS", "k", *items)) if not is_in]


class Filter:
    """The filter that is loaded, and what may happen to it."""

    def __init__(self, server, kind: str, rng):
        self.server, self.kind = server, kind
        self.seed = f"{rng.getrandbits(60):x}"
        self.make(self.seed)

    def make(self, *seed: str) -> None:
        if self.kind == "rebuild":
            self.server.command("BF.RESERVE", "k", "0.01", "100")
        self.server.command(*RESERVATIONS[self.kind], *(["SEED", *seed] if seed else []))

    def is_complete(self) -> bool:
        if self.kind == "rebuild":
            if not self.server.command("EXISTS", "k") or not pairs(self.server.command("BF.STATS", "k"))[b"Rebuild"]:
                return False
            self.server.command("BF.REBUILD", "k", "COMMIT")
        return missing(self.server, ITEMS) == []

    def has_most(self) -> bool:
        """Whether at most as many items are missing as can be on their way at once."""
        return len(missing(self.server, ITEMS)) <= 4 * BATCH

    # Faults after which nothing is lost, or the bookmark is lost with the items:

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
        """Loads the data that the server last saved. The filter and the bookmark are then both older. If the bookmark
        hasn't moved since, the next load may find that items are missing, and refuses."""
        self.server.command("DEBUG", "RELOAD", "NOSAVE")

    def no_memory(self):
        self.server.command("CONFIG", "SET", "maxmemory", "1")

    def others_add(self):
        self.server.command("BF.INSERT", "k", "ITEMS", *OTHERS)

    def rotated(self):
        """Rotates a window. A scenario does so at most three times, so the window still has all items."""
        if self.kind == "window":
            self.server.command("BF.ROTATE", "k")

    def bookmark_deleted(self):
        for key in self.server.command("KEYS", "*:bloomery-load:*"):
            self.server.command("DEL", key)

    # Faults after which something is lost:

    def deleted(self):
        self.server.command("DEL", "k")

    def flushed(self):
        self.server.command("FLUSHALL", "SYNC")

    def replaced(self):
        self.server.command("DEL", "k")
        self.make()

    # The program notices these only by the number of items, which doesn't fall in the filters of this kind:

    def made_again(self):
        self.server.command("DEL", "k")
        self.make(self.seed)

    def cleared(self):
        self.server.command("BF.CLEAR", "k")


HARMLESS = ["nothing", "nothing", "nothing", "renamed", "copied", "reloaded", "restored", "no_memory"]
HARMLESS += ["others_add", "rotated", "bookmark_deleted"]
LOSSES = {kind: ["deleted", "flushed", "replaced"] for kind in RESERVATIONS}
BY_NUMBER = ["made_again", "cleared"]
LOSSES["scaling"] += BY_NUMBER
# The number of items of the others may fall, so a load can't see that an older copy took their place.
UNSEEN = {kind: [] if kind == "scaling" else ["restored"] for kind in RESERVATIONS}


def attempt(words, proxy, rng, event) -> tuple[int, int]:
    """Runs the program with one fault, at a random command, or without a fault. Returns its exit code, and the number
    of commands after the fault."""
    calls, since, at = 0, 0, rng.randint(1, 2 * len(ITEMS) // BATCH + 6)
    where, how = rng.choice(["before", "after"]), rng.choice(["cut", "kill", "interrupt", "go on"])
    process = subprocess.Popen(command(*words, port=proxy.port), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def fault(words, side):
        nonlocal calls, since, at
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


def scenario(server, proxy, path, kind, rng, more=()) -> int:
    """Runs one load with faults until it ends, and returns its exit code."""
    server.command("FLUSHALL", "SYNC")
    filter = Filter(server, kind, rng)
    server.command("SAVE")
    words = ["load", "k", path, "--resume", "--batch", BATCH, "-q", *more]
    words += ["--rebuild"] if kind == "rebuild" else []
    story, lost, calls_since = [], False, 0
    for _ in range(rng.randint(1, 3)):
        faults = [name for name in HARMLESS + LOSSES[kind] if name not in UNSEEN[kind]]
        name = rng.choice(faults if not lost else ["nothing"])
        if rng.random() < 0.3 and not lost:
            server.command("SAVE")

        def event(name=name):
            nonlocal lost, calls_since
            if server.command("EXISTS", "k"):
                getattr(filter, name)()
                if name in LOSSES[kind]:
                    lost, calls_since = True, 0

        code, calls = attempt(words, proxy, rng, event)
        calls_since += calls
        server.command("CONFIG", "SET", "maxmemory", "0")
        story.append(f"{name} {code}")
        if code == DONE:
            break
    else:
        last = subprocess.run(command(*words, port=proxy.port), capture_output=True, timeout=HANG_SECONDS)
        code, calls_since = last.returncode, calls_since + 1
        story.append(f"at last {code} {last.stderr.decode()}")
    text = f"{kind}: {', '.join(story)}"
    assert code in (DONE, SERVER, USAGE), text
    if code == DONE:
        # The program doesn't notice losses after its last look at the filter. By the number of items alone, it doesn't
        # notice the loss of the first batches either, if others were on their way.
        is_seen = not any(name in text for name in BY_NUMBER)
        assert filter.is_complete() or (lost and calls_since <= 1) or (not is_seen and filter.has_most()), text
        assert lost or server.command("KEYS", "*bloomery-load*") == [], text
    else:
        assert lost or "restored" in text, f"nothing was lost, but it failed: {text}"
    return code


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "items.txt"
    path.write_text("".join(item + "\n" for item in ITEMS))
    return path


@pytest.mark.parametrize("kind", RESERVATIONS)
@EVERY_SERVER
def test_whatever_happens_between_two_steps(new_server, path, kind):
    server, rng = new_server(config={"enable-debug-command": "yes"}), random.Random(kind)
    done = refused = 0
    with Proxy(server.port) as proxy:
        for _ in range(40):
            code = scenario(server, proxy, path, kind, rng)
            done, refused = done + (code == DONE), refused + (code != DONE)
    assert done > 5 and refused > 5, "the scenarios are not mixed"


@pytest.mark.parametrize("kind", RESERVATIONS)
def test_a_load_through_a_cluster_client(new_server, path, kind):
    with Proxy(0) as proxy:
        settings = {"cluster-enabled": "yes", "cluster-announce-port": proxy.port, "enable-debug-command": "yes"}
        server, rng = new_server(config=settings), random.Random(kind)
        server.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: b"cluster_state:ok" in server.command("CLUSTER", "INFO"), "the cluster to form")
        proxy.target = server.port
        for _ in range(10):
            scenario(server, proxy, path, kind, rng, ["--cluster"])


@EVERY_SERVER
def test_a_failover_loses_bookmark_and_items_alike(new_server, path):
    """The replica that takes over may lack the last batches, and then its bookmark is before them."""
    primary = new_server()
    replica = primary.replica()
    primary.command(*RESERVATIONS["scaling"])
    primary.wait_for_replicas()
    words = ["load", "k", path, "--resume", "--batch", BATCH, "-q"]
    moves = 0

    def count(words):
        nonlocal moves
        is_move = words[0].upper() == b"EVAL"
        moves += is_move
        if is_move and moves == 6:
            # From now on, nothing reaches the replica.
            primary.wait_for_replicas()
            replica.command("REPLICAOF", "NO", "ONE")
        return is_move and moves == 10

    with Proxy(primary.port) as proxy:
        proxy.before = count
        run(*words, port=proxy.port, status=SERVER)
        proxy.before = lambda words: False
        primary.kill()
        proxy.target = replica.port
        _, errors = run(*words, port=proxy.port)
        assert "continuing after byte" in errors
    assert missing(replica, ITEMS) == []


@pytest.mark.parametrize(
    "reserve, more, way_out",
    [
        ("BF.RESERVE k 0.01 100 COUNTING", [], "start again in a new key, or in a rebuild"),
        ("CF.RESERVE k 100", [], "start again in a new key"),
        ("BF.RESERVE k 0.01 100 COUNTING\nBF.REBUILD k BEGIN", ["--rebuild"], "start again in another rebuild"),
    ],
    ids=["counting", "cuckoo", "rebuild"],
)
def test_filters_that_count_are_refused(new_server, path, reserve, more, way_out):
    """The error says how to load them instead, and so does a load without --resume that ends early."""
    server = new_server()
    for line in reserve.splitlines():
        server.command(*line.split())
    before = server.command("DUMP", "k")
    _, errors = run("load", "k", path, "--resume", *more, port=server.port, status=USAGE)
    assert "k counts its items, so --resume could count some of them twice" in errors and way_out in errors
    assert server.command("DUMP", "k") == before and server.command("DBSIZE") == 1
    server.command("CONFIG", "SET", "maxmemory", "1")
    _, errors = run("load", "k", path, *more, port=server.port, status=SERVER)
    assert "0 items are in" in errors and way_out in errors
    assert "--resume" not in errors


def stopped(server, words, calls: int) -> None:
    """Runs a load, and cuts its connection after this number of batches."""
    seen = 0

    def cut(words):
        nonlocal seen
        is_batch = words[0].upper() == b"BF.BULKADD"
        seen += is_batch
        return is_batch and seen == calls

    with Proxy(server.port) as proxy:
        proxy.after = cut
        run(*words, port=proxy.port, status=SERVER)


def test_two_loads_side_by_side(new_server, tmp_path):
    """Each input has its own bookmark."""
    server = new_server()
    server.command(*RESERVATIONS["scaling"])
    loads, items = [], []
    for name in "ab":
        items.append([f"{name}:{number}" for number in range(400)])
        (tmp_path / name).write_text("".join(f"{item}\n" for item in items[-1]))
        loads.append(["load", "k", tmp_path / name, "--resume", "--batch", BATCH, "-q"])
        stopped(server, loads[-1], 8)
    assert len(server.command("KEYS", "{k}:bloomery-load:*")) == 2
    for words in loads:
        _, errors = run(*words, port=server.port)
        assert "140 items are in" in errors
    assert missing(server, items[0] + items[1]) == [] and server.command("KEYS", "*bloomery-load*") == []


def test_a_second_program_with_the_same_input(new_server, path):
    """The second program has moved the bookmark, so the first program stops."""
    server = new_server()
    server.command(*RESERVATIONS["scaling"])
    words = ["load", "k", path, "--resume", "--batch", BATCH, "-q"]
    calls = 0

    def of_first(words_sent):
        nonlocal calls
        calls += words_sent[0].upper() == b"EVAL"
        if calls == 5:
            calls += 1
            stopped(server, words, 4)
        return False

    with Proxy(server.port) as first:
        first.before = of_first
        _, errors = run(*words, port=first.port, status=SERVER)
    assert "another program continues this load" in errors
    run(*words, port=server.port)
    assert missing(server, ITEMS) == []


def test_a_load_without_a_bookmark_notices_that_its_filter_was_replaced(new_server, path):
    server = new_server()
    for replace, says in [
        (["DEL k"], "not found"),
        (["DEL k", "BF.RESERVE k 0.01 1000"], "was replaced, emptied or deleted during the load"),
        (["BF.CLEAR k"], "was replaced, emptied or deleted during the load"),
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
            _, errors = run("load", "k", path, "--batch", BATCH, port=proxy.port, status=SERVER)
        assert says in errors
        assert server.command("EXISTS", "k") == (replace not in (["DEL k"], ["FLUSHALL"])), "the load created a filter"


FORMS = {
    "lines": ([], "", lambda item: f"{item}\n"),
    "lines with CR LF": ([], "", lambda item: f"{item}\r\n"),
    "NUL": (["--null"], "", lambda item: f"{item}\0"),
    "empty lines": (["--keep-blank"], "", lambda item: f"{item}\n"),
    "CSV": (["--column", "item"], "id,item\n", lambda item: f"1,{item}\n"),
    "CSV with more columns": (["--column", "1"], "", lambda item: f"{item},{item}\r\n"),
    "quoted CSV": (["--column", "item"], 'item,"id\n"\r\n', lambda item: '"' + item.replace('"', '""') + '",7\r\n'),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_grows_at_any_byte(new_server, tmp_path, form):
    """Each run sees more of the file, and ends or is stopped somewhere. In the end, no item is missing, although the
    file may have ended within an item."""
    server, rng = new_server(), random.Random(form)
    path = tmp_path / "items"
    options, head, line = FORMS[form]
    items = [f"item:{number:03}" for number in range(60)]
    items = [f'{item},\n\r"!' for item in items] if form == "quoted CSV" else items
    content = (head + "".join(map(line, items))).encode()
    words = ["load", "k", path, "--resume", "-q", *options]
    for _ in range(6):
        server.command("FLUSHALL")
        server.command(*RESERVATIONS["scaling"])
        for end in [*sorted(rng.sample(range(len(head), len(content)), 8)), len(content)]:
            path.write_bytes(content[:end])
            calls, at = 0, rng.randint(3, 8)

            def cut(words, at=at):
                nonlocal calls
                calls += 1
                return calls == at and end < len(content)

            with Proxy(server.port) as proxy:
                setattr(proxy, rng.choice(["before", "after"]), cut)
                batch = rng.choice([1, 3, 7, 100])
                done = subprocess.run(command(*words, "--batch", batch, port=proxy.port), capture_output=True)
                # A record that ends before the column, or within quotes, can't be loaded yet.
                is_short = end < len(content) and re.search(b"so there is no column|never ends; close its quote", done.stderr)
                assert done.returncode == DONE or is_short or calls >= at, done.stderr
        assert missing(server, items) == []


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
def test_another_input_is_refused(new_server, path, change):
    """No item of the other input is added, and the load can continue with the first input, or start again."""
    server, text = new_server(), path.read_text()
    server.command(*RESERVATIONS["scaling"])
    words = ["load", "k", path, "--resume", "--batch", BATCH]
    stopped(server, words, 8)
    # The bookmark is after seven batches, because the program hasn't seen the reply to the eighth.
    end = len("".join(f"{item}\n" for item in ITEMS[: 7 * BATCH]))
    before = server.command("BF.CARD", "k")
    path.write_text(CHANGES[change](text, end))
    _, errors = run(*words, port=server.port, status=USAGE)
    [bookmark] = server.command("KEYS", "*bloomery-load*")
    assert ("bytes, but" in errors) == (len(path.read_text()) < end), errors
    assert f"it is not the same input. To load everything again, delete the key {bookmark.decode()}" in errors
    assert server.command("BF.CARD", "k") == before
    path.write_text(text)
    assert as_json(*words, port=server.port)["resumed_from"] == end
    assert missing(server, ITEMS) == []
