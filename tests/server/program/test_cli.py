"""The program `bloomery` against real servers: every subcommand, with small data."""

import contextlib
import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
import redis

from kit.metrics import figures
from kit.program import DONE, HANG_SECONDS, INTERRUPTED, MISSING, NO, PROGRAM, SERVER, USAGE, as_json, command, run
from kit.servers import ROOT, wait_for

EVERY_SERVER = pytest.mark.every_server("the server writes the files and payloads that the program reads")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)


@pytest.fixture
def port(server):
    return server.port


@pytest.fixture
def lines(tmp_path):
    """The path of a file with 5000 items, and the items."""
    items = [f"user:{number}" for number in range(5000)]
    path = tmp_path / "items.txt"
    path.write_text("".join(item + "\n" for item in items))
    return path, items


def present(server, key, items, command="BF.MEXISTS"):
    with server.client() as client:
        return client.execute_command(command, key, *items)


# ---- plan, completions, help: without a server ----------------------------------------------------------------------


def test_plan_says_what_the_server_will_say(server, port):
    """The capacity, cells, memory and probes that plan prints are those of the filter that the planned command creates.
    A table has the memory when it has the items, and in a window those that have expired."""
    for options in (["--nonscaling"], [], ["--counting=8"], ["--window", "5"], ["--ttl", "24h"], ["--shards", "4", "--layout", "classic"]):
        plan = as_json("plan", "-n", "100k", "-e", "0.1%", *options)["filter"]
        server.command(*plan["command"].replace("KEY", "planned").split())
        [row] = as_json("top", "--once", "-i", "0.1", port=port)["filters"]
        info = row["info"]
        assert (plan["capacity"], plan["cells"]) == (info["capacity"], info["cells"]), options
        if plan["layout"] == "QUOTIENT":
            server.command("BF.BULKADD", "planned", "FIXED", 8, b"".join(b"%08d" % item for item in range(100_000)))
            alive = 0.8 if "--ttl" in options else 1
            assert 0.9 < server.command("BF.INFO", "planned", "SIZE")[0] / plan["memory_bytes"] / alive < 1.1
        else:
            assert plan["memory_bytes"] <= info["size"] <= plan["memory_bytes"] + 8192
        assert {layer["probes"] for layer in info["layers"]} <= {plan["probes"]}
        server.command("DEL", "planned")


def test_the_guide_has_the_bits_and_layouts_of_plan():
    guide = " ".join((ROOT / "docs/guides/how-it-works.md").read_text().split())
    ((fixed, growing),) = re.findall(r"up to ([0-9.]+) in a fixed filter, ([0-9.]+) in one that grows", guide)
    ((kib, more),) = re.findall(r"above ([0-9]+) KiB, .* \(at 1%, ([0-9]+)%\)", guide)
    small, large = [], []
    for options, bits in ((["--nonscaling"], fixed), ([], growing)):
        plans = [as_json("plan", "-n", f"{k}k", "-e", "1%", *options)["filter"] for k in (1, 30, 300, 500, 1000, 9000)]
        assert f"{max(plan['bits_per_item'] for plan in plans):.1f}" == bits
        for plan in plans:
            (large if plan["memory_bytes"] > int(kib) << 10 else small).append(plan)
    assert {plan["layout"] for plan in small} == {"CLASSIC"} and {plan["layout"] for plan in large} == {"BLOCKED"}
    assert f"{large[0]['bits_per_item'] / small[1]['bits_per_item'] - 1:.0%}" == f"{more}%"


def test_mistakes_of_use_have_status_2():
    for words in (
        ["plan", "-n", "100"],
        ["plan", "-n", "100", "-e", "2"],
        ["plan", "-n", "100", "-e", "1%", "--counting=5"],
        ["frobnicate"],
        ["load"],
        ["build", "x.bloom", "/nonexistent", "-n", "10", "-e", "1%"],
        ["test", "--filter", "/nonexistent", "ada"],
    ):
        _, errors = run(*words, status=USAGE)
        assert errors, words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell):
    out, _ = run("completions", shell)
    assert "inspect" in out and "--capacity" in out.replace(" -l capacity", "--capacity")


def commands():
    """The names of all commands, as `--help` lists them."""
    out, _ = run("--help")
    names = re.findall(r"^  ([a-z]+) ", out.split("Commands:")[1].split("Options:")[0], flags=re.M)
    assert len(names) >= 10
    return [name for name in names if name != "help"]


def test_every_command_has_help_with_examples():
    for name in commands():
        text, _ = run(name, "--help")
        assert "Examples:" in text and f"bloomery {name}" in text, name


def test_numbers_in_the_examples_of_help_are_numbers():
    examples = [line for name in commands() for line in re.findall(r"^  bloomery.*", run(name, "--help")[0], flags=re.M)]
    capacities = {number for line in examples for number in re.findall(r" -n (\d\S*)", line)}
    assert len(capacities) >= 3
    for capacity in capacities:
        run("plan", "-n", capacity, "-e", "1%")


def test_every_command_has_a_manual_page(tmp_path):
    run("man", tmp_path)
    assert {page.name for page in tmp_path.iterdir()} == {"bloomery.1", *(f"bloomery-{name}.1" for name in commands())}
    assert "Add items from a file" in (tmp_path / "bloomery-load.1").read_text()
    _, errors = run("man", tmp_path / "absent", status=USAGE)
    assert "cannot write to" in errors


# ---- load -----------------------------------------------------------------------------------------------------------


def test_load_makes_a_filter_and_fills_it(server, port, lines):
    path, items = lines
    out, _ = run("load", "users", path, "-n", "5000", "-e", "0.01", port=port)
    assert re.fullmatch(r"users: 5,000 items in, \d,\d+ of them new, in [\d.]+ s\n", out)
    assert all(present(server, "users", items))
    again = as_json("load", "users", path, port=port)
    assert (again["items_read"], again["items_new"]) == (5000, 0)


def test_load_takes_stdin_csv_and_nul(server, port, tmp_path):
    server.command("BF.RESERVE", "seen", "0.001", "100")
    run("load", "seen", port=port, input="ada\r\n\ngrace\nedsger")
    assert as_json("load", "seen", port=port, input="a\n\n\nb\n")["blank_lines"] == 2
    table = tmp_path / "table.csv"
    table.write_text('id;name\n1;"barbara; l"\n2;tony\n')
    run("load", "seen", table, "--column", "name", "--delimiter", ";", port=port)
    run("load", "seen", "-0", port=port, input="two\nlines\0")
    found = present(server, "seen", ["ada", "grace", "edsger", "barbara; l", "tony", "two\nlines", "", "name", "two"])
    assert found == [1, 1, 1, 1, 1, 1, 0, 0, 0]


def test_load_over_several_connections(server, port, lines):
    path, items = lines
    run("load", "users", path, "-n", "5000", "-e", "0.01", "--connections", "4", "--batch", "100", port=port)
    assert all(present(server, "users", items))


def test_a_load_that_was_interrupted_goes_on(server, port, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{number}\n" for number in range(1_000_000)))
    # These 20,000 commands take long enough to be interrupted on any machine.
    words = ["load", "users", path, "--resume", "--batch", "50"]
    server.command("BF.RESERVE", "users", "0.01", "1000000")
    process = subprocess.Popen(
        command(*words, "--interval", "0.1", port=port), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    first = process.stderr.readline()
    assert re.match(r"bloomery: [\d,]+ items, ", first), first
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == INTERRUPTED, errors
    assert "interrupted: " in errors and "run the same command to continue" in errors
    [bookmark] = server.command("KEYS", "{users}:bloomery-load:*")
    kept = json.loads(server.command("GET", bookmark))
    assert 0 < kept["offset"] < path.stat().st_size
    # All items before this offset have been added.
    before = path.read_bytes()[: kept["offset"]].split()
    assert len(before) == kept["items"]
    assert all(present(server, "users", before[-1000:]))
    _, errors = run(*words, port=port)
    assert f"continuing after byte {kept['offset']}" in errors
    assert all(present(server, "users", range(0, 1_000_000, 97)))
    # The load is complete, so the next one starts again.
    assert server.command("EXISTS", bookmark) == 0
    assert as_json(*words, port=port)["resumed_from"] == 0


def test_who_interrupts_waits_for_the_command_under_way_and_who_insists_does_not(server, port, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{number}\n" for number in range(1_000_000)))
    words = ["load", "users", path, "--batch", "50", "--interval", "0.1"]
    server.command("BF.RESERVE", "users", "0.01", "1000000")
    for insists in (False, True):
        process = subprocess.Popen(
            command(*words, port=port), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert " items, " in process.stderr.readline()
        server.command("CLIENT", "PAUSE", "60000", "WRITE")
        time.sleep(0.2)  # by now, the program is waiting for a reply
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        if insists:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=45)
            server.command("CLIENT", "UNPAUSE")
        else:
            server.command("CLIENT", "UNPAUSE")
            _, errors = process.communicate(timeout=45)
            assert "interrupted: " in errors
        assert process.returncode == INTERRUPTED, errors


def test_progress_is_lines_in_a_pipe(port, server, tmp_path):
    server.command("BF.RESERVE", "users", "0.01", "1000000")
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{number}\n" for number in range(300_000)))
    # On any machine, 15,000 commands one after the other take longer than the interval.
    _, errors = run("load", "users", path, "--batch", "20", "--interval", "0.1", port=port)
    assert re.search(r"^bloomery: [\d,]+ items, \d+%, [\d,]+/s, \d+ s left$", errors, flags=re.M), errors
    _, errors = run("load", "users", path, "-q", port=port)
    assert errors == ""


def test_progress_is_a_bar_on_a_terminal(port, server, tmp_path):
    server.command("BF.RESERVE", "users", "0.01", "1000000")
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{number}\n" for number in range(300_000)))
    terminal, stderr = pty.openpty()
    fcntl.ioctl(stderr, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    words = command("load", "users", path, "--batch", "200", port=port)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True)
    os.close(stderr)
    seen = b""
    with contextlib.suppress(OSError):  # the program has closed the terminal
        while more := os.read(terminal, 65536):
            seen += more
    os.close(terminal)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == DONE and "300,000 items in" in out
    assert re.search(rb"\d+%  [\d,]+ items, [\d,]+/s  [\d.]+ [KM]iB/s  \S+ left", seen), seen


@pytest.mark.parametrize("words", [["load", "users"], ["build", "out.bloom", "-n", "100", "-e", "1%"]], ids=["load", "build"])
def test_a_command_that_waits_for_a_terminal_says_so(port, server, tmp_path, words):
    server.command("BF.RESERVE", "users", "0.01", "100")
    terminal, stdin = pty.openpty()
    try:
        words = command(*words, **({"port": port} if words[0] == "load" else {}))
        process = subprocess.Popen(
            words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        os.write(terminal, b"ada\ngrace\n\x04")  # Ctrl-D
        out, errors = process.communicate(timeout=60)
    finally:
        os.close(terminal)
        os.close(stdin)
    assert errors.startswith("bloomery: reading items from the terminal"), errors
    assert process.returncode == DONE and "2" in out


def test_a_full_filter_ends_the_load_and_says_where(server, port, lines):
    path, _ = lines
    server.command("BF.RESERVE", "small", "0.01", "100", "NONSCALING")
    _, errors = run("load", "small", path, port=port, status=SERVER)
    # The error message names the cause first.
    assert re.match(r"bloomery: ERR non scaling filter is full; .*\. [\d,]+ items are in: all before byte 0 of", errors), errors
    server.command("SET", "text", "x")
    _, errors = run("load", "text", path, port=port, status=SERVER)
    assert "WRONGTYPE" in errors
    _, errors = run("load", "nothing", path, port=port, status=USAGE)
    assert "use --capacity and --error-rate to create it" in errors
    _, errors = run("load", "users", path, "--url", "redis://127.0.0.1:1", status=SERVER)
    assert "cannot connect to 127.0.0.1:1" in errors


def test_load_backfills_a_rebuild(server, port, lines):
    path, items = lines
    server.command("BF.RESERVE", "users", "0.01", "100", "ONFULL", "SATURATE")
    server.command("BF.REBUILD", "users", "BEGIN", "CAPACITY", "10000", "ERROR", "0.0001")
    # So few items that the command isn't split into pieces, even on a busy machine. The server would count each piece
    # as a call.
    few = path.with_name("few.txt")
    few.write_text("\n".join(items[:200]))
    server.command("CONFIG", "RESETSTAT")
    run("load", "users", few, "--rebuild", port=port)
    with server.client() as client:
        assert client.info("commandstats")["cmdstat_bf.rebuild"]["calls"] == 1, "the items are one blob"
    run("load", "users", path, "--rebuild", port=port)
    assert sum(present(server, "users", items)) == 0
    server.command("BF.REBUILD", "users", "COMMIT")
    assert all(present(server, "users", items))


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_filter_is_built_pushed_pulled_and_tested(server, port, tmp_path, lines):
    path, items = lines
    built, pulled = tmp_path / "built.bloom", tmp_path / "pulled.bloom"
    kinds = ["-e 0.01", "-e 0.01 --counting", "-e 0.01 --window 3", "-e 0.01 --static", "--cuckoo"]
    for kind in map(str.split, kinds):
        run("build", built, path, "-n", "5000", "--replace", *kind)
        run("push", built, "users", "--replace", port=port)
        exists = "CF.MEXISTS" if kind == ["--cuckoo"] else "BF.MEXISTS"
        assert all(present(server, "users", items, exists)), kind
        run("pull", "users", pulled, "--replace", port=port)
        # Each piece says which filter it belongs to, so the bytes of the two files differ.
        assert pulled.stat().st_size == built.stat().st_size, kind
        out, _ = run("test", "--filter", pulled, "--from", path, "--count")
        assert out == "5,000 of 5,000 items test positive\n"
        counted = as_json("test", "users", "--from", path, "--count", port=port)
        assert counted == {"items": 5000, "yes": 5000, "no": 0}


def test_push_merges_what_goes_together(server, port, tmp_path):
    """After two separate filters are merged, one contains the items of both. If filters can't be merged, nothing
    changes, and no temporary key is left."""
    path, other = tmp_path / "f.bloom", tmp_path / "other.bloom"
    server.command("BF.RESERVE", "paris", "0.01", "1000")
    server.command("BF.RESERVE", "rome", "0.01", "1000", "LIKE", "paris")
    server.command("BF.ADD", "paris", "ada")
    server.command("BF.ADD", "rome", "bob")
    run("pull", "paris", path, port=port)
    for _ in range(2):
        out, _ = run("push", path, "rome", "--merge", port=port)
        assert out.startswith("rome: merged with ")
    out, _ = run("push", path, "new", "--merge", port=port)
    assert out.startswith("new: created from ")
    for key, expected in {"paris": [1, 0], "rome": [1, 1], "new": [1, 0]}.items():
        assert present(server, key, ["ada", "bob"]) == expected, key
    run("build", other, "-n", "100", "-e", "0.01", input="ada\n")
    _, errors = run("push", other, "rome", "--merge", port=port, status=SERVER)
    assert "rome is unchanged" in errors and "a different seed" in errors
    run("build", other, "-n", "100", "--cuckoo", "--replace", input="ada\n")
    run("push", other, "rome", "--merge", port=port, status=USAGE)
    server.command("SET", "text", "x")
    run("push", path, "text", "--merge", port=port, status=USAGE)
    run("push", path, "rome", "--merge", "--replace", port=port, status=USAGE)
    assert present(server, "rome", ["ada", "bob"]) == [1, 1]
    with server.client() as client:
        assert sorted(client.keys()) == [b"new", b"paris", b"rome", b"text"]


@pytest.mark.parametrize(("capacity", "commands"), [(800_000, 1), (900_000, 4)])
def test_push_merges_a_short_file_by_one_command(server, port, tmp_path, capacity, commands):
    """A file of up to 1 MiB, the size of a piece of a load, is merged by one command. Longer files are uploaded first.
    """
    path = tmp_path / "f.bloom"
    run("build", path, "-n", str(capacity), "-e", "0.01", "--nonscaling", input="ada\n")
    server.command("CONFIG", "RESETSTAT")
    run("push", path, "rome", "--merge", port=port)
    with server.client() as client:
        calls = client.info("commandstats")
        pushed = {name: found["calls"] for name, found in calls.items() if name.startswith("cmdstat_bf.")}
        assert sum(pushed.values()) == commands, pushed
        assert client.keys() == [b"rome"] and present(server, "rome", ["ada"]) == [1]


def test_push_keeps_the_time_to_live_and_what_is_no_filter(server, port, tmp_path):
    path = tmp_path / "f.bloom"
    run("build", path, "-n", "100", "-e", "0.01", input="ada\n")
    server.command("BF.RESERVE", "users", "0.01", "100")
    _, errors = run("push", path, "users", port=port, status=USAGE)
    assert "--replace" in errors
    server.command("PEXPIRE", "users", "900000")
    run("push", path, "users", "--replace", port=port)
    assert 800_000 < server.command("PTTL", "users") <= 900_000
    assert present(server, "users", ["ada"]) == [1]
    run("push", path, "users", "--replace", "--ttl", "50", port=port)
    assert 0 < server.command("TTL", "users") <= 50
    run("push", path, "users", "--replace", "--ttl", "0", port=port)
    assert server.command("TTL", "users") == -1
    server.command("SET", "text", "hello")
    _, errors = run("push", path, "text", "--replace", port=port, status=USAGE)
    assert "holds a string" in errors and server.command("GET", "text") == b"hello"
    assert sorted(server.command("KEYS", "*")) == [b"text", b"users"]


def test_a_time_to_live_that_no_server_takes_changes_nothing(server, port, tmp_path):
    """A time to live that is too long for every server is refused before anything is sent. One that is too long for
    only some servers is refused before the key is replaced."""
    path = tmp_path / "f.bloom"
    run("build", path, "-n", "100", "-e", "0.01", input="ada\n")
    server.command("BF.RESERVE", "users", "0.01", "100")
    server.command("BF.ADD", "users", "bob")
    server.command("EXPIRE", "users", "900")
    before = server.info("commandstats").get("cmdstat_bf.loadchunk", {"calls": 0})
    for seconds in [9_000_000_000_001, (1 << 63) // 1000, 1 << 63, (1 << 64) - 1]:
        _, errors = run("push", path, "users", "--replace", "--ttl", seconds, port=port, status=USAGE)
        assert "--ttl" in errors
    assert server.info("commandstats").get("cmdstat_bf.loadchunk", {"calls": 0}) == before
    assert present(server, "users", ["ada", "bob"]) == [0, 1] and 0 < server.command("TTL", "users") <= 900
    run("push", path, "users", "--replace", "--ttl", 9_000_000_000_000, port=port)
    assert present(server, "users", ["ada", "bob"]) == [1, 0]
    assert server.command("TTL", "users") > 8_999_999_999_000


@pytest.mark.parametrize("end", ["interrupted", "refused", "not swapped"])
def test_a_push_that_ends_early_leaves_nothing(server, port, tmp_path, end):
    path = tmp_path / "f.bloom"
    run("build", path, "-n", "60M", "-e", "0.01", "--nonscaling", input="ada\n")
    with server.client() as client:
        process = subprocess.Popen(
            command("push", path, "users", port=port), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: figures(client)["loads"] == 1, "the load to begin")
        client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        assert figures(client)["loads"] == 1, "the filter was too small for this test"
        match end:
            case "interrupted":
                process.send_signal(signal.SIGINT)
                time.sleep(0.2)
                expected = INTERRUPTED, "interrupted; users is unchanged"
            case "refused":
                client.config_set("maxmemory", 1000)  # ending a load is still allowed
                expected = SERVER, "users is unchanged"
            case "not swapped":
                client.execute_command("ACL", "SETUSER", "default", "-eval")
                expected = SERVER, "the filter was uploaded, but users is unchanged"
        client.execute_command("CLIENT", "UNPAUSE")
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+eval")
            client.config_set("maxmemory", 0)
        assert expected[1] in errors and process.returncode == expected[0], errors
        assert (figures(client)["loads"], client.keys()) == (0, [])


def test_push_under_traffic_never_says_no(server, port, tmp_path, lines):
    """Another connection tests an item while filters are swapped. Each answer comes from one of two filters, and both
    contain the item."""
    path, _ = lines
    file = tmp_path / "f.bloom"
    run("build", file, path, "-n", "2M", "-e", "0.001")
    run("push", file, "users", port=port)
    asked, pushes = 0, 0
    with server.client() as client:
        # On a busy machine, only a few tests complete during one push.
        while pushes < 3 or asked <= 30:
            process = subprocess.Popen(
                command("push", file, "users", "--replace", port=port), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            while process.poll() is None:
                assert client.execute_command("BF.EXISTS", "users", "user:77") == 1
                asked += 1
            assert (process.returncode, process.communicate()[1]) == (0, b"")
            pushes += 1
            assert pushes < 30, f"{asked} tests in {pushes} pushes"


@pytest.mark.parametrize("pull", [True, False], ids=["pull", "build"])
def test_only_regular_files_are_replaced(server, port, tmp_path, pull):
    """A link stays, and the file that it names is replaced."""
    server.command("BF.ADD", "users", "ada")
    write = lambda path, **how: (  # noqa: E731
        run("pull", "users", path, "--replace", port=port, **how)
        if pull
        else run("build", path, "-n", "10", "-e", "1%", "--replace", input="ada\n", **how)
    )
    fifo, dangling, link, file = (tmp_path / name for name in ("fifo", "dangling", "link", "file"))
    os.mkfifo(fifo)
    dangling.symlink_to("nothing")
    link.symlink_to("file")
    file.write_text("old")
    for path, why in ((fifo, "is not a regular file"), (tmp_path, "is not a regular file"), (dangling, "is a link to a file")):
        _, errors = write(path, status=USAGE)
        assert f"{path} {why}" in errors
    assert fifo.is_fifo() and dangling.is_symlink()
    write(link)
    assert link.readlink().name == "file" and run("test", "--filter", file, "ada")[0] == "yes ada\n"
    _, errors = run("pull", "users", "/dev/stdout", port=port, status=USAGE)
    assert "/dev/stdout is not a regular file" in errors


def test_damaged_files_are_refused(server, port, tmp_path):
    path = tmp_path / "f.bloom"
    run("build", path, "-n", "1000", "-e", "0.01", input="ada\n")
    whole = path.read_bytes()
    for place in (1, 5, 40, len(whole) - 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        out, _ = run("inspect", path, status=NO if place > 3 else USAGE)
        if place > 3:
            assert "DAMAGED at byte" in out
        _, errors = run("push", path, "users", port=port, status=USAGE)
        assert "is not a complete filter" in errors
        assert server.command("EXISTS", "users") == 0
    path.write_bytes(whole[:-1])
    run("inspect", path, status=NO)


def test_an_answer_that_nobody_reads_is_in_the_status(server, port, tmp_path):
    path = tmp_path / "f.bloom"
    run("build", path, "-n", "1000", "-e", "0.01", input="ada\n")
    path.write_bytes(path.read_bytes()[:-1])
    server.command("BF.ADD", "users", "ada")
    target, source = (f"redis://127.0.0.1:{port}/{database}" for database in (0, 1))
    with server.client(db=1) as one:
        one.execute_command("BF.ADD", "users", "grace")  # differs from the filter at the target
    reader, writer = os.pipe()
    os.close(reader)
    for words, status in [
        (["inspect", path], NO),
        (["inspect", path, "--json"], NO),
        (["test", "users", "eve", "--url", target], NO),
        (["test", "users", "eve", "--url", target, "--json"], NO),
        (["test", "users", "ada", "--url", target], DONE),
        (["migrate", source, "--url", target, "-q"], NO),
        (["migrate", source, "--url", target, "-q", "--json"], NO),
    ]:
        done = subprocess.run(command(*words), stdout=writer, stderr=subprocess.PIPE, timeout=HANG_SECONDS)
        assert (done.returncode, done.stderr) == (status, b""), words
    os.close(writer)


def test_pull_in_the_format_of_the_original(server, port, tmp_path):
    """The file has the bytes that BF.EXPORT returns, in one reply or in several. Native filters are refused."""
    path = tmp_path / "pulled"
    with server.client() as client:
        guava = struct.pack(">BBI", 1, 7, 3 << 15) + random.Random(1).randbytes(3 << 18)
        sbbf = random.Random(2).randbytes(5 << 18)
        client.execute_command("BF.IMPORT", "guava", "GUAVA", guava)
        client.execute_command("BF.IMPORT", "sbbf", "SBBF", sbbf)
        run("pull", "guava", path, "--format", "original", port=port)
        assert path.read_bytes() == guava == client.execute_command("BF.EXPORT", "guava")
        run("pull", "sbbf", path, "--format", "original", "--replace", "--snapshot", port=port)
        assert path.read_bytes()[-len(sbbf) :] == sbbf
        pieces, length = b"", 1 << 20
        while length == 1 << 20:
            piece = client.execute_command("BF.EXPORT", "sbbf", "OFFSET", len(pieces), "COUNT", 1 << 20)
            pieces, length = pieces + piece, len(piece)
        assert pieces == path.read_bytes()
        client.execute_command("BF.RESERVE", "own", 0.01, 100)
    _, errors = run("pull", "own", tmp_path / "no", "--format", "original", port=port, status=USAGE)
    assert "own has no format but Bloomery's" in errors and not (tmp_path / "no").exists()


def test_pull_while_items_are_added(server, port, tmp_path):
    """The file is complete and contains every item that was added before the pull. --snapshot leaves no key behind."""
    server.command("BF.RESERVE", "users", "0.001", "2000000", "NONSCALING")
    with server.client() as client:
        client.execute_command("BF.MADD", "users", *range(1000))
        for words in ([], ["--snapshot"]):
            path = tmp_path / f"users{len(words)}.bloom"
            process = subprocess.Popen(command("pull", "users", path, *words, port=port), stdout=subprocess.PIPE)
            number = 10_000
            while process.poll() is None:
                client.execute_command("BF.ADD", "users", number)
                number += 1
            assert process.returncode == 0
            out, _ = run("test", "--filter", path, *range(1000), "--count")
            assert out == "1,000 of 1,000 items test positive\n"
    assert server.command("KEYS", "*") == [b"users"]
    _, errors = run("pull", "nothing", tmp_path / "no.bloom", port=port, status=USAGE)
    assert "there is no filter nothing" in errors and not (tmp_path / "no.bloom").exists()


REDISBLOOM_HEAD = (
    b"\x01\0\0\0\0\0\0\0\x01\0\0\0\x05\0\0\0\x02\0\0\0\x08\0\0\0\0\0\0\0@\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
    b"\x9a\x99\x99\x99\x99\x99\xb9?\x88\x16\x8a\xc5\x8c+\x13@\x04\0\0\0\x03\0\0\0\0\0\0\0\0"
)


@EVERY_SERVER
def test_redisblooms_filters_travel(server, port, tmp_path):
    path = tmp_path / "moved.bloom"
    server.command("BF.LOADCHUNK", "moved", 1, REDISBLOOM_HEAD)
    server.command("BF.LOADCHUNK", "moved", 9, b"\0 \0\x80\x10\0@\0")
    run("pull", "moved", path, port=port)
    run("push", path, "again", port=port)
    assert server.command("TYPE", "again") == b"MBbloom--"
    assert present(server, "again", ["user:42", "user:43"]) == [1, 0]
    assert "redisbloom" in run("inspect", path)[0]
    watched = as_json("top", "--once", "-i", "0.1", "--sort", "key", port=port)["filters"]
    assert [(row["key"], row["info"]["origin"]) for row in watched] == [("again", "redisbloom"), ("moved", "redisbloom")]
    assert run("test", "--filter", path, "user:42")[0] == "yes user:42\n"


# ---- inspect --------------------------------------------------------------------------------------------------------


def fill_with_everything(server):
    """Creates keys of every type and encoding that this server has, including filters, and saves them. Returns what
    INFO says about the keyspace."""
    with server.client() as client:
        call = client.execute_command
        long = "x" * 100
        call("SET", "string", "hello")
        call("SET", "number", 12345)
        call("SET", "compressed", "a" * 2000)
        call("SET", "expires", "soon", "EX", 1000)
        call("RPUSH", "list", *range(2000))
        call("RPUSH", "short", "a", "b", long)
        call("SADD", "integers", *range(10))
        call("SADD", "words", "a", long)
        call("SADD", "set", *[f"member:{i}" for i in range(1000)])
        call("ZADD", "sorted", 1.5, "a", "inf", "b")
        call("ZADD", "large", *[part for i in range(500) for part in (i / 3, f"member:{i}")])
        call("HSET", "hash", "field", "value")
        call("HSET", "wide", *[part for i in range(1000) for part in (f"field:{i}", i)])
        call("XADD", "stream", "*", "field", "value")
        call("XGROUP", "CREATE", "stream", "group", "0")
        call("XREADGROUP", "GROUP", "group", "consumer", "STREAMS", "stream", ">")
        call("PFADD", "loglog", *range(100))
        call("FUNCTION", "LOAD", "REPLACE", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
        for key in ("hash", "wide"):
            try:
                call("HEXPIRE", key, 1000, "FIELDS", 1, "field" if key == "hash" else "field:7")
            except redis.ResponseError:
                pass  # this server doesn't have the command
        call("CMS.INITBYDIM", "counts", 100, 5)
        call("TOPK.RESERVE", "top", 3)
        call("TDIGEST.CREATE", "digest")
        call("SELECT", 3)
        call("SET", "other", "database")
        call("BF.RESERVE", "fixed", "0.01", "1000", "NONSCALING")
        call("BF.ADD", "fixed", "ada")
        call("SELECT", 0)
        call("BF.RESERVE", "counting", "0.01", "1000", "COUNTING")
        call("BF.RESERVE", "window", "0.01", "1000", "WINDOW", "4", "EVERY", "60000")
        call("BF.MADD", "scaling", *range(1000))
        call("CF.ADD", "cuckoo", "ada")
        call("BF.LOADCHUNK", "moved", 1, REDISBLOOM_HEAD)
        call("BF.LOADCHUNK", "moved", 9, b"\0 \0\x80\x10\0@\0")
        call("PEXPIRE", "counting", 1_000_000)
        call("BF.REBUILD", "scaling", "BEGIN", "CAPACITY", "5000")
        call("SAVE")
        return client.info("keyspace")


@EVERY_SERVER
def test_inspect_reads_whatever_this_server_saves(server, tmp_path):
    keyspace = fill_with_everything(server)
    path = server.directory / "dump.rdb"
    report = as_json("inspect", path)
    assert report["error"] is None and report["checksum"]
    assert report["keys"] == sum(database["keys"] for database in keyspace.values())
    assert server.spec.product in report["server"].lower()
    filters = {entry["key"]: entry for entry in report["filters"]}
    assert set(filters) == {"fixed", "counting", "window", "scaling", "cuckoo", "moved", "counts", "top", "digest"}
    assert all(entry["error"] is None for entry in filters.values())
    assert filters["fixed"]["database"] == 3 and filters["fixed"]["filter"]["items"] == 1
    assert abs(filters["counting"]["expires_ms"] - time.time() * 1000 - 1_000_000) < 100_000
    assert filters["scaling"]["filter"]["rebuild"]["capacity"] == 5000
    assert filters["moved"]["key_type"] == "MBbloom--"
    out, _ = run("inspect", path)
    assert "9 of them filters or sketches; its checksum is correct" in out and re.search("0:top +Top-K", out)
    # Damage is found wherever it is, at the latest when the checksum is verified.
    whole = path.read_bytes()
    rng = random.Random(3)
    for _ in range(40):
        place = rng.randrange(len(whole))
        damaged = tmp_path / "damaged.rdb"
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(8))]) + whole[place + 1 :])
        run("inspect", damaged, status=NO)
    for length in rng.sample(range(len(whole)), 10):
        damaged.write_bytes(whole[:length])
        run("inspect", damaged, status=NO)


@EVERY_SERVER
def test_inspect_reads_a_dump(server, port, tmp_path):
    server.command("BF.MADD", "users", *range(90))
    path = tmp_path / "users.dump"
    path.write_bytes(server.command("DUMP", "users"))
    report = as_json("inspect", path)
    assert report["format"] == "dump"
    assert report["filters"][0]["filter"]["items"] == server.command("BF.CARD", "users")
    server.command("TDIGEST.CREATE", "times")
    sketch = tmp_path / "times.dump"
    sketch.write_bytes(server.command("DUMP", "times"))
    assert "kind            t-digest" in run("inspect", sketch)[0]
    for damaged in (path, sketch):
        *whole, last = damaged.read_bytes()
        damaged.write_bytes(bytes([*whole, last ^ 1]))
        _, errors = run("inspect", damaged, status=USAGE)
        assert "intact DUMP payload" in errors


# ---- test -----------------------------------------------------------------------------------------------------------


def test_test_answers_like_grep(server, port, tmp_path):
    server.command("BF.MADD", "users", "ada", "grace")
    assert run("test", "users", "ada", port=port) == ("yes ada\n", "")
    assert run("test", "users", "eve", port=port, status=NO) == ("no  eve\n", "")
    assert run("test", "users", "ada", "eve", port=port) == ("yes ada\nno  eve\n", "")
    assert run("test", "users", "ada", "eve", "-q", port=port, status=NO) == ("", "")
    assert run("test", "users", "ada", "grace", "-q", port=port) == ("", "")
    out, _ = run("test", "users", "--from", "-", "--only", "no", port=port, input="ada\neve\nmallory\n")
    assert out == "eve\nmallory\n"
    answers = as_json("test", "users", "ada", "eve", port=port)
    assert answers == [{"item": "ada", "answer": True}, {"item": "eve", "answer": False}]
    (tmp_path / "bytes").write_bytes(b"\xff\x00\n\xfe\x00\nff00\n\xef\xbf\xbd\n")
    assert as_json("test", "users", "--from", tmp_path / "bytes", "--binary", port=port) == [
        {"item_hex": "ff00", "answer": False},
        {"item_hex": "fe00", "answer": False},
        {"item": "ff00", "answer": False},
        {"item": "\ufffd", "answer": False},
    ]
    run("test", "nothing", "ada", port=port, status=USAGE)
    run("test", "users", port=port, status=USAGE)


# ---- stats ----------------------------------------------------------------------------------------------------------


def test_stats_has_everything_and_the_advice_first(server, port):
    server.command("BF.RESERVE", "users", "0.01", "3", "ONFULL", "SATURATE", "SEED", "1")
    server.command("BF.MADD", "users", *range(1, 11))
    out, _ = run("stats", "users", port=port)
    assert out.startswith("! over capacity: it holds 10 items of 3; BF.REBUILD users BEGIN CAPACITY 20 makes room\n")
    assert re.search(r"(?m)^capacity +3 \(333% full\)$", out), out
    full = as_json("stats", "users", port=port)
    assert (full["items"], full["capacity"], full["layers"][0]["items"]) == (10, 3, 10)
    server.command("CF.RESERVE", "stock", "1000")
    server.command("CF.ADD", "stock", "bolt")
    cuckoo = as_json("stats", "stock", port=port)
    assert (cuckoo["kind"], cuckoo["origin"], cuckoo["items"], cuckoo["capacity"]) == ("cuckoo", "bloomery", 1, 1024)
    assert (cuckoo["cells"], cuckoo["cells_set"]) == (1024, 1)
    assert run("stats", "nothing", port=port, status=USAGE) == ("", "bloomery: there is no filter nothing\n")
    server.command("SET", "text", "x")
    run("stats", "text", port=port, status=SERVER)


def test_the_variables_of_redis_cli_name_the_server(server, port):
    server.command("ACL", "SETUSER", "ada", "on", ">secret", "~*", "+@all")
    url = {"REDIS_URL": f"redis://ada@127.0.0.1:{port}", "REDISCLI_AUTH": "secret"}
    words = ["stats", "nothing"]
    assert "no filter" in run(*words, env=url, status=USAGE)[1]
    assert "no filter" in run(*words, "-u", url["REDIS_URL"], "-a", "secret", status=USAGE)[1]
    # The program's own variables, and credentials in the address, take precedence.
    run(*words, env={**url, "BLOOMERY_PASSWORD": "wrong"}, status=SERVER)
    whole = f"redis://ada:secret@127.0.0.1:{port}"
    assert "no filter" in run(*words, env={"REDIS_URL": whole, "REDISCLI_AUTH": "wrong"}, status=USAGE)[1]
    assert "no filter" in run(*words, env={**url, "BLOOMERY_URL": whole, "REDIS_URL": "nonsense"}, status=USAGE)[1]
    _, errors = run(*words, env={**url, "REDIS_URL": "http://ada:hush@example.org"}, status=USAGE)
    assert "REDIS_URL is not the address of a server" in errors and "hush" not in errors
    server.command("ACL", "DELUSER", "ada")


# ---- top, and who may do what ---------------------------------------------------------------------------------------


def test_the_permissions_that_the_page_names_are_enough_for_parts(server, port):
    page = (ROOT / "docs" / "CLI.md").read_text().partition("**Spread over a cluster.**")[2].partition("\n\n")[0]
    commands = re.findall(r"BF\.[A-Z]+", page)
    server.command("ACL", "SETUSER", "loader", "on", "nopass", "~*", "-@all", *(f"+{name}" for name in commands))
    spread = ["whole", "--spread", "3", "--user", "loader"]
    run("load", *spread, "-n", "100", "-e", "1%", port=port, input="ada\n")
    assert run("test", *spread, "ada", port=port)[0] == "yes ada\n"
    assert as_json("stats", *spread, port=port)["items"] == 1
    server.command("ACL", "DELUSER", "loader")


def test_top_shows_the_memory_of_sketches(server, port):
    for words in ("CMS.INITBYDIM counts 100 5", "TOPK.RESERVE best 3", "TDIGEST.CREATE times", "BF.ADD users ada"):
        server.command(*words.split())
    rows = {row["key"]: row["info"] for row in as_json("top", "--once", "-i", "0.1", port=port)["filters"]}
    assert {key: info["kind"] for key, info in rows.items()} == {
        "counts": "cms", "best": "topk", "times": "tdigest", "users": "scaling",
    }  # fmt: skip
    assert all(abs(info["size"] - server.command("MEMORY", "USAGE", key)) < 200 for key, info in rows.items())
    out, _ = run("top", "--once", "-i", "0.1", port=port)
    assert re.search(r"counts +cms +- +- +- .* 2\.\d\d KiB", out)


def test_top_with_a_user_who_may_only_read(server, port):
    server.command("BF.RESERVE", "over", "0.01", "10", "ONFULL", "SATURATE")
    server.command("BF.MADD", "over", *range(40))
    server.command("CF.ADD", "cuckoo", "ada")
    server.command("SET", "text", "x")
    rules = ["on", ">secret", "%R~*", "-@all", "+scan", "+bf.stats", "+cf.stats"]
    server.command("ACL", "SETUSER", "watcher", *rules)
    environment = {"BLOOMERY_PASSWORD": "secret"}
    words = ["top", "--once", "-i", "0.1", "--user", "watcher"]
    out, _ = run(*words, port=port, env=environment)
    header, *rows = out.splitlines()
    assert header.split()[:4] == ["key", "kind", "items", "capacity"]
    assert any(re.match(r"over +fixed +\d+ +10 +[34]\d\d%", row) for row in rows), out
    assert any(row.startswith("cuckoo  ") for row in rows) and "text" not in out
    assert any(row.startswith("! over: over capacity") for row in rows)
    run(*words, port=port, env={"BLOOMERY_PASSWORD": "wrong"}, status=SERVER)
    server.command("ACL", "DELUSER", "watcher")


def test_top_counts_what_happens_between_two_looks(server, port):
    server.command("BF.RESERVE", "busy", "0.01", "100000")
    process = subprocess.Popen(
        command("top", "--once", "--json", "-i", "1", port=port), stdout=subprocess.PIPE, text=True
    )
    with server.client() as client:
        until = time.monotonic() + 3
        while process.poll() is None and time.monotonic() < until:
            client.execute_command("BF.MADD", "busy", *range(100))
            client.execute_command("BF.MEXISTS", "busy", *range(200))
            time.sleep(0.02)
    [row] = json.loads(process.communicate()[0])["filters"]
    assert 0 < row["adds_per_second"] < row["tests_per_second"], row


def test_top_copes_with_thousands(server, port):
    with server.client() as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(3000):
            pipeline.execute_command("BF.RESERVE", f"filter:{number:04}", "0.01", "10")
        pipeline.execute()
    rows = as_json("top", "--once", "-i", "0.1", "--keys", "filter:1*", "--sort", "key", port=port)["filters"]
    assert [row["key"] for row in rows] == [f"filter:{number}" for number in range(1000, 2000)]
    assert len(as_json("top", "--once", "-i", "0.1", port=port)["filters"]) == 3000


def test_top_draws_a_terminal(server, port):
    """On a real terminal, `top` draws its frame, and q ends it."""
    server.command("BF.MADD", "users", "ada")
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 150, 0, 0))
        words = command("top", "-i", "0.2", port=port)
        os.execve(words[0], words, {"TERM": "xterm-256color", "PATH": os.environ["PATH"]})
    seen, status, until = b"", None, time.monotonic() + 60
    try:
        while status is None and time.monotonic() < until:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    seen += os.read(terminal, 65536)
                except OSError:  # the program has ended
                    until = min(until, time.monotonic() + 2)
            if b"users" in seen and b"quit" in seen:
                os.write(terminal, b"q")
            ended, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if ended else None
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(terminal)
    assert b"users" in seen and status == 0, (status, seen[-2000:])
