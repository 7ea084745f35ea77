"""scripts/bench --rivals measures every command and refuses wrong replies. The documents show its results."""

import json
import re
import socket
import subprocess
import sys
import threading
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from rivals import charts, measure, report
from rivals.__main__ import as_json, topics
from rivals.measure import SMOKE, WHOLE, Row, Series, Side, Topic, Wrong, about, alternate, encode, form, same

# RedisBloom's commands, except BF.LOADCHUNK and CF.LOADCHUNK: a script puts these names together, so they aren't in the
# requests.
COMMANDS = {
    *(f"BF.{word}" for word in "RESERVE ADD MADD INSERT EXISTS MEXISTS CARD INFO DEBUG SCANDUMP".split()),
    *(
        f"CF.{word}"
        for word in "RESERVE ADD ADDNX INSERT INSERTNX EXISTS MEXISTS COUNT DEL COMPACT INFO DEBUG SCANDUMP".split()
    ),
}


# ---- what is asked --------------------------------------------------------------------------------------------------


def test_every_command_is_measured():
    rows = [row for topic in topics(SMOKE) for row in topic.rows if row.make and topic.name != "go-zero"]
    sent = b"".join(request for row in rows for request in row.make(1)[1]).decode("latin-1")
    assert {*re.findall(r"\b(?:BF|CF)\.[A-Z]+", sent)} == COMMANDS
    names = " ".join(row.name for row in rows)
    assert "LOADCHUNK, BF" in names and "LOADCHUNK, CF" in names


@pytest.mark.parametrize("family, size", [(family, size) for family in ("BF", "CF") for size in WHOLE.sizes])
def test_every_size_is_measured_with_every_number_of_items(family, size):
    (topic,) = [topic for topic in topics(SMOKE) if topic.name == f"{family}-{size}"]
    names = [row.name for row in topic.rows]
    for times in ("EXISTS", "MEXISTS ×10", "MEXISTS ×1000"):
        assert {f"{family}.{times}, present", f"{family}.{times}, absent"} <= {*names}
    for items in ("ADD", *(["MADD ×10", "MADD ×1000"] if family == "BF" else ["INSERT ×10", "INSERT ×1000"])):
        assert f"{family}.{items}, new" in names
    assert len({*names}) == len(names)


def test_results_have_every_row():
    results = json.loads(report.RESULTS.read_text())
    found = {topic["name"]: [row["row"] for row in topic["rows"]] for topic in results["topics"]}
    assert found == {topic.name: [row.name for row in topic.rows] for topic in topics(WHOLE)}


# ---- how it is measured ---------------------------------------------------------------------------------------------


def test_work_shorter_than_a_tick_is_measured():
    """Measures 1 ms of work, although the kernel updates the processor time of a running thread only every few ms."""
    replies_first = "import sys, time\nfor line in sys.stdin:\n    end = time.thread_time() + 0.001\n    print(flush=True)\n    while time.thread_time() < end: pass"
    least = []
    for _ in range(20):  # on a busy machine, work may be counted with what follows
        with subprocess.Popen([sys.executable, "-c", replies_first], stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
            server, took = SimpleNamespace(process=process), []
            for _ in range(5):
                before = measure.cpu(server)
                process.stdin.write("\n")
                process.stdout.readline()
                took.append(measure.cpu(server) - before)
            process.stdin.close()
        least.append(min(took))
        if least[-1] >= 900_000:
            return
    pytest.fail(str(least))


# ---- what is refused ------------------------------------------------------------------------------------------------


def side(name: str, replies: bytes) -> Side:
    """A side whose server answers every request with `replies`."""
    made = object.__new__(Side)
    made.name, made.server = name, None
    made.socket, server = socket.socketpair()
    made.socket.settimeout(20)

    def serve():
        while server.recv(1 << 16):
            server.sendall(replies)

    threading.Thread(target=serve, daemon=True).start()
    return made


def test_replies_are_taken():
    assert side("ours", b":1\r\n*2\r\n:0\r\n$2\r\nab\r\n").ask([encode("PING")] * 2) == [1, [0, b"ab"]]


@pytest.mark.parametrize("replies", [b"-ERR no\r\n", b"*2\r\n:1\r\n-ERR no\r\n"], ids=["alone", "in an array"])
def test_errors_are_refused(replies):
    with pytest.raises(Wrong, match="ours replied ERR no"):
        side("ours", replies).ask([encode("PING")])


def run(monkeypatch, rival: bytes, ours: bytes, alike) -> Series:
    clock = iter(range(100))
    monkeypatch.setattr(measure, "cpu", lambda server: next(clock) ** 2)
    sides = [side("rival", rival), side("ours", ours), side("control", ours)]
    bench = measure.Bench(None, SMOKE, 1, None)
    return alternate(bench, sides, Row("row", 1, lambda round: ([], [encode("PING")]), 1, alike))


def test_sides_that_agree_are_measured(monkeypatch):
    series = run(monkeypatch, b":1\r\n", b":1\r\n", same)
    assert [len(series.rival), len(series.ours), len(series.control)] == [1, 1, 1]


def test_sides_that_disagree_are_refused(monkeypatch):
    with pytest.raises(Wrong, match="the sides disagree: 1 of 1 answers differ"):
        run(monkeypatch, b":1\r\n", b":0\r\n", same)


def test_a_missing_row_is_refused():
    topic = Topic("topic", "", "ns", [Row("one", 1), Row("two", 1)], None)
    with pytest.raises(Wrong, match=r"not measured: \['two'\]"):
        topic.result({"one": Series([1.0], [1.0])})


def test_answers_that_are_alike():
    ones = [[1] * 1000]
    assert same(ones, ones) and not same(ones, [[1] * 999 + [0]])
    few, many = [[0] * 30 + [1] * 970], [[0] * 300 + [1] * 700]
    assert about(0.03)(ones, few) and not about(0.03)(ones, many)
    # Of ten items that are asked about a hundred times each, three may differ. Of a thousand that are asked about once
    # each, three hundred may not.
    assert about(0.03, 10)(ones, many) and not about(0.03, 1000)(ones, many)
    assert form([b"a", [1, b""]], [b"b", [2, b"long"]])
    assert not form([1], [b"1"]) and not form([1], [1, 2]) and not form(1, [1])


# ---- what is said ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rival, ours, control, target, met",
    [
        ([1.0], [1.0], [1.0], 1.0, True),
        ([0.98], [1.0], [1.0], 1.0, True),  # noise
        ([0.96], [1.0], [1.0], 1.0, False),
        ([98.0], [100.0], [], 1.0, False),  # rows about memory have no control
        ([98.0], [100.0], [], 0.95, True),
        ([1.0, 9.0, 2.0], [1.0, 3.0, 1.0], [1.0, 1.0, 1.0], 2.0, True),  # the median of the rounds
        ([1.0, 9.0, 2.0], [1.0, 3.0, 1.0], [1.0, 1.0, 1.0], 2.5, False),
    ],
)
def test_verdict(rival, ours, control, target, met):
    rows = Topic("topic", "", "ns", [Row("row", target)], None).result({"row": Series(rival, ours, control)})
    said = report.verdict({"topics": [{"name": "topic", "rows": rows}]})
    assert said.startswith(f"rivals: 1 rows, {int(not met)} below their target")
    assert ("topic: row:" in said) is not met


def test_documents_show_the_results():
    """`scripts/bench --rivals --docs` makes the pictures and the tables from the results."""
    text = report.RESULTS.read_text()
    results = json.loads(text)
    assert as_json(results) == text
    for name, chart in charts.CHARTS.items():
        assert (charts.PICTURES / name).read_text() == chart(results)
    assert report.document(report.DOCUMENT.read_text(), results) == report.DOCUMENT.read_text()
    assert report.readme(report.README.read_text(), results) == report.README.read_text()
