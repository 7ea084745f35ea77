"""Names of keys are chosen by clients: of any bytes, and of any length. Whatever the program prints of them is bounded,
harmless on a terminal, and different for different names."""

import hashlib
import json
import re
import subprocess

import pytest
import redis

from kit.monitoring import Exporter
from kit.program import DONE, MISSING, NO, PROGRAM, USAGE, as_json, command, run
from kit.servers import wait_for

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

ESCAPES = "\x1b[31m\x1b]0;title\x07\u202e"
QUOTES = 'say "hi"\n{and more}\\'
# The longest that Linux accepts as an argument of a program has 128 KiB.
ARGUMENT = "a" * 100_000

SHORT = 100 + 1 + 16  # characters of a name in text: its start, an ellipsis, and a hash
LONG = 1000 + 1 + 16  # in JSON


def cut(name: bytes, characters: int = 100) -> str:
    return f"{name[:characters].decode()}…{hashlib.sha256(name).hexdigest()[:16]}"


# Each name, and how text shows it.
NAMES = {
    ESCAPES.encode(): r"\x1b[31m\x1b]0;title\x07\xe2\x80\xae",
    QUOTES.encode(): r'say "hi"\x0a{and more}\\',
    b"\xff\x00raw": r"\xff\x00raw",
    "鍵".encode() * 100: "鍵" * 100,
    b"a" * 10_000: cut(b"a" * 10_000),
    b"a" * 9_999 + b"b": cut(b"a" * 9_999 + b"b"),
    b"\x1b" * 200: "\\x1b" * 25 + cut(b"\x1b" * 200, 0),
}
# Longer than a search for filters reads.
UNREAD = [b"b" * 1_000_000, b"c" * 20_000]


def is_harmless(text: str) -> bool:
    return not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", text)


def assert_bounded(text: str, line: int, lines: int) -> None:
    assert is_harmless(text), text[:10_000]
    assert max(map(len, text.splitlines())) <= line and text.count("\n") <= lines, (len(text), text[:10_000])


@pytest.fixture
def server(new_server):
    server = new_server()
    with server.client() as client:
        for name in [*NAMES, *UNREAD]:
            client.execute_command("BF.ADD", name, "ada")
    return server


def test_labels_are_short_and_a_name_that_is_too_long_ends_no_search(server):
    with server.client() as client:
        # The reply to a SCAN may have 64 MiB: one name is longer, and others are together.
        client.execute_command("BF.ADD", b"d" * 68_000_000, "ada")
        for number in range(700):
            client.execute_command("CF.ADD", b"%03d" % number * 33_333, "ada")
    with Exporter("--port", server.port) as exporter:
        samples = exporter.wait_for_filters(len(NAMES))
        assert exporter.keys() == sorted(NAMES.values())
        assert samples["bloomery_filters_without_label"] == {frozenset(): len(UNREAD) + 701}
        wait_for(lambda: exporter.value("bloomery_exporter_survey_success") == 1, "a search")
        assert_bounded(exporter.page(), line=400, lines=1000)
    out, _ = run("top", "--once", "-i", "0.1", port=server.port)
    assert_bounded(out, line=300, lines=50)
    assert f"{len(UNREAD) + 701} filters are not shown: the name is longer than 16 KiB" in out
    shown = as_json("top", "--once", "-i", "0.1", port=server.port)
    keys = [row["key"] for row in shown["filters"]]
    assert len(set(keys)) == len(NAMES) and max(map(len, keys)) == LONG
    assert cut(b"a" * 10_000, 1000) in keys


def test_pages_with_many_long_names_stay_small(new_server):
    server = new_server()
    with server.client() as client:
        for number in range(300):
            client.execute_command("BF.ADD", b"%03d" % number * 5_000, "ada")
    with Exporter("--port", server.port) as exporter:
        exporter.wait_for_filters(300)
        assert len(exporter.page()) < 2_000_000


def test_an_rdb_file_with_long_names_is_shown_in_short_rows(server, tmp_path):
    with server.client() as client:
        client.set(b"e" * 1_000_000, "no filter")
        client.execute_command("BF.ADD", b"f" * 2_000_000, "ada")
        for number in range(200):
            client.execute_command("BF.ADD", f"filter:{number}", "ada")
        client.save()
    file = server.directory / "dump.rdb"
    assert file.stat().st_size < 400_000, "the server packs the names"
    out, _ = run("inspect", file)
    assert_bounded(out, line=450, lines=220)
    for shown in [*NAMES.values(), *map(cut, [*UNREAD, b"f" * 2_000_000])]:
        assert re.search(f"^{re.escape(shown)}  ", out, re.MULTILINE), shown
    keys = {row["key"] for row in as_json("inspect", file)["filters"]}
    assert max(map(len, keys)) == LONG and cut(UNREAD[0], 1000) in keys


def test_a_migration_copies_filters_of_any_name_and_names_what_it_skips(server, new_server):
    target = new_server()
    skipped = [*(ESCAPES * 2, QUOTES * 2, b"\xfe", b"g" * 1_000_000), *(f"text:{number}" for number in range(96))]
    with server.client() as client:
        for name in skipped:
            client.set(name, "no filter")
        client.rpush("list", "no filter")
    at = f"redis://127.0.0.1:{server.port}"
    count = len(NAMES) + len(UNREAD)
    out, errors = run("migrate", at, "--dry-run", port=target.port)
    assert_bounded(out + errors, line=1000, lines=count + 2)
    out, errors = run("migrate", at, port=target.port)
    assert_bounded(out + errors, line=1000, lines=10)
    assert f"{count} keys copied" in out and f"; {count} answers compared" in out
    assert re.search(r"^skipped 1 key of type list: list$", out, re.MULTILINE)
    assert re.search(r"^skipped 100 keys of type string: (.*, ){5}…$", out, re.MULTILINE)
    with target.client() as client:
        assert set(client.keys("*")) == {*NAMES, *UNREAD}
        for name in NAMES:
            client.execute_command("BF.ADD", name, "grace")
    out, errors = run("migrate", at, port=target.port, status=NO)
    assert_bounded(out + errors, line=1000, lines=20)
    assert all(f"{shown}: is at the target already, and differs" in out for shown in NAMES.values())
    report = json.loads(run("migrate", at, "--json", port=target.port, status=NO)[0])
    assert [row["key"] for row in report["failed"]].count(cut(b"a" * 10_000, 1000)) == 1
    (strings,) = [row for row in report["skipped"] if row["type"] == "string"]
    assert strings["keys"] == 100 and len(strings["names"]) == 5
    assert (report["answers"], report["unasked"]) == (2, 0)


@pytest.mark.parametrize("name", [ESCAPES, QUOTES, ARGUMENT], ids=["escapes", "quotes", "long"])
def test_commands_show_their_key_in_short(new_server, tmp_path, name):
    port, file = new_server().port, tmp_path / "file"
    items = tmp_path / "items"
    items.write_text("ada\n")
    for words in (["stats", name], ["pull", name, file], ["test", name, "ada"], ["load", name, items], ["rebuild", name, items]):
        out, errors = run(*words, port=port, status=USAGE)
        assert_bounded(out + errors, line=400, lines=3)
    said = []
    for words, status in [
        (["load", name, items, "-n", 100, "-e", 0.01], DONE),
        (["load", name, items], DONE),
        (["stats", name], DONE),
        (["stats", name, "--json"], DONE),
        (["test", name, "ada"], DONE),
        (["pull", name, file, "--json"], DONE),
        (["push", file, name], USAGE),
        (["push", file, name, "--replace"], DONE),
        (["rebuild", name, items], DONE),
        (["rebuild", name, items, "--json"], DONE),
    ]:
        out, errors = run(*words, port=port, status=status)
        assert_bounded(out + errors, line=LONG + 100, lines=100)
        said.append(out + errors)
    shown = {ESCAPES: NAMES[ESCAPES.encode()], QUOTES: NAMES[QUOTES.encode()], ARGUMENT: cut(ARGUMENT.encode())}[name]
    assert sum(shown in text for text in said) >= 5, said


@pytest.mark.parametrize("words", [["stats", "name"], ["load", "name", "-n", 100, "-e", 0.01], ["test", "name", "ada"]], ids=lambda words: words[0])
def test_parts_show_their_names_in_short(new_server, words):
    port = new_server().port
    for name in ("\x1b[31m", ARGUMENT):
        line = command(*[name if word == "name" else word for word in words], "--spread", 2, port=port)
        for _ in range(2):
            done = subprocess.run(line, capture_output=True, text=True, input="ada\n")
            assert done.returncode in (DONE, USAGE)
            assert_bounded(done.stdout + done.stderr, line=400, lines=20)


def test_an_argument_that_is_not_text_is_refused():
    for words in ([b"stats", b"\xff"], [b"pull", b"\xff", b"file"], [b"test", b"\xff", b"ada"]):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
        assert done.returncode == USAGE and "UTF-8" in done.stderr
