"""Tests the transcript runner itself, because a runner that cannot fail would prove nothing. Needs no server."""

import pytest

from kit.servers import Spec
from kit.transcript import Transcript


def read(tmp_path, text: str) -> Transcript:
    path = tmp_path / "example.txt"
    path.write_text(text)
    return Transcript(path)


@pytest.mark.parametrize(
    "expected, actual, matches",
    [
        ("OK", "OK", True),
        ("OK", "(error) ERR no", False),
        ("OK", "OK\nOK", False),
        ("OK", "", False),
        ("", "", True),
        ("", "OK", False),
        ("(integer) <n>", "(integer) -17", True),
        ("(integer) <n>", "(integer) 1.5", False),
        ("(integer) <n>", "(integer) ", False),
        ("(error) ERR <...> key", "(error) ERR wrong key", True),
        ("(error) ERR <...>", "(error) WRONGTYPE", False),
        ("<...>", "one\ntwo", False),
        ("...", "", True),
        ("...", "one\ntwo", True),
        ("one\n...\nthree", "one\ntwo\ntwo\nthree", True),
        ("one\n...\nthree", "one\ntwo", False),
        ("a.c", "abc", False),  # a dot is a dot
    ],
)
def test_matching(tmp_path, expected, actual, matches):
    (exchange,) = read(tmp_path, f"> COMMAND\n{expected}\n").exchanges
    assert exchange.matches(actual.split("\n") if actual else []) is matches


def test_parsing(tmp_path):
    transcript = read(tmp_path, "#! resp3\n# Words.\n> ONE \\\n    1\nOK\n\n127.0.0.1:6379(TX)> TWO\n1) a\n2) b\n# End.\n")
    assert [exchange.command for exchange in transcript.exchanges] == ["ONE 1", "TWO"]
    assert [exchange.expected for exchange in transcript.exchanges] == [["OK"], ["1) a", "2) b"]]
    assert transcript.directives == [["resp3"]]


@pytest.mark.parametrize("text", ["OK\n", "> A\nOK\n\nOK\n", "> A\nOK\n#! resp3\n"])
def test_a_file_that_makes_no_sense_says_where(tmp_path, text):
    with pytest.raises(SyntaxError, match=r"example\.txt:\d+: "):
        read(tmp_path, text)


def test_a_mismatch_shows_where_and_what(tmp_path):
    transcript = read(tmp_path, "# Two.\n> ONE\n(integer) <n>\n> TWO\n(integer) 2\n")
    assert transcript.mismatches([["(integer) 1"], ["(integer) 2"]], "redis-9.9") == ""
    shown = transcript.mismatches([["(integer) 1"], ["(nil)"]], "redis-9.9")
    assert "example.txt:4: TWO" in shown
    assert "ONE" not in shown.splitlines()[0]
    assert "\n-(integer) 2\n+(nil)" in shown
    assert "+++ redis-9.9" in shown


def test_rewriting_keeps_what_matches(tmp_path):
    transcript = read(tmp_path, "# Two.\n> ONE\n(integer) <n>\n\n> TWO\n# End.\n")
    rewritten = transcript.with_replies([["(integer) 1"], ["1) a", "2) b"]])
    assert rewritten == ["# Two.", "> ONE", "(integer) <n>", "", "> TWO", "1) a", "2) b", "# End."]


@pytest.mark.parametrize(
    "directive, skipped",
    [
        ("only valkey", True),
        ("only redis", False),
        ("needs redis>=7.2", True),
        ("needs redis>=7.0", False),
        ("needs redis>=7.0.16", True),
        ("needs valkey>=8.1", False),
        ("needs redis<8", False),
        ("needs redis<7", True),
        ("needs valkey<7", False),
    ],
)
def test_directives(tmp_path, directive, skipped):
    spec = Spec("redis-7.0", "redis", (7, 0, 15), tmp_path, tmp_path)
    assert bool(read(tmp_path, f"#! {directive}\n> PING\nPONG\n").reason_to_skip(spec)) is skipped


def test_unknown_directives_are_refused(tmp_path):
    spec = Spec("redis-7.0", "redis", (7, 0, 15), tmp_path, tmp_path)
    with pytest.raises(SyntaxError, match="unknown directive"):
        read(tmp_path, "#! resp4\n> PING\nPONG\n").reason_to_skip(spec)
