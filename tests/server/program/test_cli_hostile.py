"""The program `bloomery` with servers and files that aren't what it expects: slow, changing, lying, or hostile."""

import collections
import contextlib
import random
import re
import resource
import select
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from kit.arrivals import arrivals
from kit.damage import damaged, sources
from kit.filters import adding, batches, pairs
from kit.foreign import sealed, version_of
from kit.monitoring import Exporter
from kit.payload import Payload
from kit.wire_format import BadFilter
from kit.program import DONE, MISSING, NO, PROGRAM, SERVER, USAGE, command, run
from kit.proxy import FakeServer, Listener, Proxy, bulk as text, read_request
from kit.servers import wait_for

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

# Escape sequences that set a colour and a title, two characters that change the direction of text, and an 8-bit escape
# sequence.
ESCAPES = "\x1b[31m\x1b]0;title\x07\u202e\u2066\x9b2J"


def is_harmless(text: str) -> bool:
    return not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", text)


INFO = b"*4\r\n" + text("Kind") + text("fixed") + text("Identity") + text("0" * 16)


@pytest.mark.parametrize(
    "reply",
    [
        *(b"$-1\r\n", b"+OK\r\n", b"*-1\r\n", b"$3\r\n1.5\r\n", b"*0\r\n", b":-1\r\n", b"+QUEUED\r\n"),
        *(b"*1\r\n:1\r\n", b"*2\r\n:1\r\n:0\r\n", b"*2\r\n:1\r\n$-1\r\n"),
    ],
    ids=bytes.decode,
)
@pytest.mark.parametrize("name, words", [("BF.BULKADD", []), ("BF.REBUILD", ["--rebuild"]), ("CF.INSERT", [])])
def test_an_unexpected_reply_is_no_success(name, words, reply):
    """If a proxy answers +OK, or a transaction was left open, nothing was added, so the program must fail."""
    if (name, reply) == ("BF.REBUILD", b"+OK\r\n"):
        reply = b":2\r\n"
    with FakeServer({f"{name[:2]}.STATS": INFO, name: reply}) as server:
        _, errors = run("load", "k", *words, port=server.port, input="ada\ngrace\n", status=SERVER)
        assert f"unexpected reply to {name}" in errors


def test_items_without_room_are_counted():
    with FakeServer({"CF.STATS": INFO, "CF.INSERT": b"*3\r\n:1\r\n:-1\r\n:1\r\n"}) as server:
        _, errors = run("load", "k", port=server.port, input="ada\ngrace\nedsger\n", status=SERVER)
        assert "the filter is full: no room for 1 items" in errors


@pytest.mark.parametrize("reply", [b"$-1\r\n", b"+OK\r\n", b":1\r\n", b"$2\r\n\xff\xff\r\n", b"$0\r\n\r\n", b"*0\r\n"], ids=repr)
def test_an_unexpected_reply_is_no_answer(reply, tmp_path):
    """A reply such as nil must not be taken for "no"."""
    with FakeServer({"BF.STATS": INFO, "BF.BULKTEST": reply, "BF.SCANDUMP": reply}) as server:
        _, errors = run("test", "k", "ada", "grace", port=server.port, status=SERVER)
        assert "unexpected reply to BF.BULKTEST" in errors
        run("pull", "k", tmp_path / "file", port=server.port, status=SERVER)
    with FakeServer({"BF.STATS": reply}) as server:
        for words in (["test", "k", "ada"], ["load", "k"], ["pull", "k", tmp_path / "file"], ["stats", "k"]):
            _, errors = run(*words, port=server.port, input="", status=SERVER)
            assert "unexpected reply to BF.STATS" in errors


@pytest.mark.parametrize("reply", [b"$-1\r\n", b"+OK\r\n", b":0\r\n", b":-1\r\n", b"*0\r\n"], ids=bytes.decode)
def test_an_unexpected_reply_to_the_script_is_no_success(reply):
    with FakeServer({"BF.STATS": INFO, "GET": b"$-1\r\n", "BF.BULKADD": b":1\r\n", "EVAL": reply}) as server:
        run("load", "k", "--resume", port=server.port, input="ada\n", status=SERVER)


@pytest.mark.parametrize("reply", [b":1\r\n", b"$2\r\n{}\r\n", b"$1\r\n{\r\n"], ids=bytes.decode)
def test_an_unexpected_bookmark_is_no_position(reply):
    with FakeServer({"BF.STATS": INFO, "GET": reply}) as server:
        _, errors = run("load", "k", "--resume", port=server.port, input="ada\n", status=USAGE)
        assert "is not the bookmark of a load" in errors


def test_what_a_server_says_does_not_reach_the_terminal_raw(tmp_path):
    advice = b"*1\r\n" + text(f"advice{ESCAPES}")
    info = b"*6\r\n" + text("Kind") + text(f"fixed{ESCAPES}") + text("Advice") + advice + text("Origin") + text(ESCAPES)
    error = f"-ERR refused{ESCAPES}\r\n".encode()
    scan = b"*2\r\n" + text("0") + b"*1\r\n" + text(f"key{ESCAPES}")
    with FakeServer({"BF.STATS": info, "BF.BULKADD": error, "SCAN": scan, "BF.BULKTEST": error}) as server:
        for words, status in [
            (["load", "k"], SERVER),
            (["test", "k", "ada"], SERVER),
            (["pull", "k", tmp_path / "file"], SERVER),
            (["top", "--once", "-i", "0.1"], DONE),
        ]:
            out, errors = run(*words, port=server.port, input="ada\n", status=status)
            assert is_harmless(out) and is_harmless(errors), (words, out, errors)
            assert "\\x1b" in out + errors or words[0] == "pull", (words, out, errors)
    refusing = {name: error for name in ("BF.STATS", "CF.STATS", "SCAN", "INFO", "CLUSTER")}
    with FakeServer(refusing) as server:
        for words in (["load", "k"], ["top", "--once"], ["top", "--once", "--cluster"], ["pull", "k", tmp_path / "file"]):
            _, errors = run(*words, port=server.port, input="", status=SERVER)
            assert is_harmless(errors) and "refused\\x1b[31m" in errors, (words, errors)
        with Exporter("--port", server.port) as exporter:
            assert exporter.value("bloomery_up") == 0
            assert is_harmless(exporter.log()) and "refused\\x1b[31m" in exporter.log()


def test_what_a_server_says_is_not_printed_at_any_length():
    long = "x" * 60_000
    info = b"*4\r\n" + text("Kind") + text(long) + text("Advice") + b"*1\r\n" + text(long)
    with FakeServer({"BF.STATS": info}) as server:
        assert len(run("stats", "k", port=server.port)[0]) < 3000
    with FakeServer({"BF.STATS": f"-ERR {long}\r\n".encode()}) as server:
        assert len(run("stats", "k", port=server.port, status=SERVER)[1]) < 11_000


def endless(part: bytes, begin: bytes = b""):
    def reply():
        yield begin
        while True:
            yield part * 1000

    return reply


@pytest.mark.parametrize(
    "reply",
    [b"*2147483647\r\n", b"$9223372036854775807\r\n", endless(b"+x"), endless(b"*1\r\n"), endless(b":1\r\n", b"*99999999\r\n")],
    ids=["a long array", "a long string", "a line without end", "nested arrays", "many elements"],
)
def test_a_reply_without_end_does_not_take_all_memory(reply):
    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    with FakeServer({"BF.STATS": reply}) as server:
        words = command("load", "k", "--timeout", "20", port=server.port)
        done = subprocess.run(words, capture_output=True, text=True, input="", timeout=100, preexec_fn=limited)
        assert done.returncode == SERVER, (done.returncode, done.stderr)


def test_a_long_name_does_not_make_every_row_long(new_server):
    server = new_server()
    long = "鍵" * 2000 + "\u202e"
    with server.client() as client:
        for number in range(200):
            client.execute_command("BF.RESERVE", f"filter:{number}", "0.01", "10")
        client.execute_command("BF.RESERVE", long, "0.01", "10")
        client.execute_command("BF.RESERVE", "e\u0301" * 3000, "0.01", "10")
    out, _ = run("top", "--once", "-i", "0.1", port=server.port)
    assert is_harmless(out) and "鍵鍵…" in out
    assert len(out) < 60_000 and max(map(len, out.splitlines())) < 300


# ---- a filter that changes while it is pulled -----------------------------------------------------------------------


def test_a_pull_of_redisblooms_cuckoo_filter_that_is_compacted_meanwhile(new_server, tmp_path):
    """A compaction can move fingerprints from pieces not yet read to pieces already read. The pieces don't show this,
    so the program reads the filter again if its shape has changed."""
    server, path = new_server(), tmp_path / "file"
    arrival = arrivals()["cf:default"]
    added = [f"new:{number}" for number in range(3000)]
    with server.client() as client:

        def fill():
            client.delete("k")
            arrival.move_in(client, "k")
            for batch in batches(added, 500):
                client.execute_command(*adding("CF", "k", batch))
            assert client.type("k") == b"MBbloomCF"
            assert pairs(client.execute_command("CF.INFO", "k"))[b"Number of filters"] >= 4

        def pull(*words, status) -> str:
            fill()
            calls = 0

            def change(words_sent):
                nonlocal calls
                calls += words_sent[0].upper() == b"CF.SCANDUMP"
                if calls == 3:
                    calls += 1
                    for item in added[:60]:
                        client.execute_command("CF.DEL", "k", item)
                    client.execute_command("CF.COMPACT", "k")
                return False

            with Proxy(server.port) as proxy:
                proxy.after = change
                return run("pull", "k", path, *words, port=proxy.port, status=status)[1]

        assert "changed its shape during each of 1 attempts; use --snapshot" in pull("--tries", "1", status=USAGE)
        assert not path.exists()
        for words in ([], ["--snapshot"]):
            pull(*words, "--replace", status=DONE)
            kept = tmp_path / "kept"
            kept.write_text("".join(f"{item}\n" for item in [*arrival.members, *added[60:]]))
            out, _ = run("test", "--filter", path, "--from", kept, "--count")
            whole, present = re.match(r"([\d,]+) of ([\d,]+) items", out).groups()
            assert whole == present, out


# ---- the exporter ---------------------------------------------------------------------------------------------------


def threads(exporter) -> int:
    return len(list(Path(f"/proc/{exporter.process.pid}/task").iterdir()))


def test_a_server_that_trickles_does_not_hold_the_exporter():
    def trickle():
        yield b"*1000\r\n"
        while True:
            yield b":1\r\n"
            time.sleep(0.2)

    with FakeServer({"INFO": trickle, "SCAN": trickle}) as server, Exporter("--port", server.port, "--timeout", 1) as exporter:
        assert exporter.value("bloomery_up") == 0  # the exporter answers although the reply doesn't end
        before = threads(exporter)
        clients = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(40)]
        for client in clients:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.5)
        assert threads(exporter) < before + 8, "a thread for each request"
        for client in clients:
            client.close()
        wait_for(lambda: threads(exporter) <= before + 2, "the threads of abandoned requests to end")


def test_idle_clients_do_not_keep_others_out(new_server):
    with Exporter("--port", new_server().port) as exporter:
        idle = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(100)]
        for client in idle[::2]:
            client.sendall(b"GET /metrics HTTP/1.1\r\n")  # the request never ends
        assert exporter.get("/-/healthy")[0] == 200
        assert exporter.value("bloomery_up") == 1
        for client in idle:
            client.close()


def test_requests_that_wait_for_the_server_leave_room_for_others():
    never = threading.Event()

    def hang():
        never.wait()
        yield b""

    with FakeServer({"INFO": hang, "SCAN": hang}) as server, Exporter("--port", server.port, "--timeout", 3600) as exporter:
        clients = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(64)]
        for client in clients:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: len(answered(clients)) == 64 - 48, "those to be refused that are too many")
        assert all(client.recv(12) == b"HTTP/1.1 503" for client in answered(clients))
        for path in ("/-/healthy", "/-/ready"):
            assert exporter.get(path)[0] == 200
        assert exporter.get("/metrics")[0] == 503
        for client in clients:
            client.close()
        never.set()


def answered(clients) -> list:
    return select.select(clients, [], [], 0)[0]


def test_the_first_search_shows_what_it_has_found_so_far():
    """This search never ends, because the server always says that there are more keys."""
    info = b"# bf_filters\r\nbf_fixed_filters:1\r\n"
    scan = b"*2\r\n" + text("1") + b"*1\r\n" + text("users")
    replies = {"INFO": b"$%d\r\n%s\r\n" % (len(info), info), "SCAN": scan, "BF.STATS": INFO, "CF.STATS": INFO}
    with FakeServer(replies) as server, Exporter("--port", server.port) as exporter:
        wait_for(lambda: exporter.keys() == ["users"], "the filter to have metrics")
        assert "bloomery_exporter_survey_success" not in exporter.samples()
        assert "bloomery_filters" not in exporter.samples(), "a total that isn't one"


def test_a_file_without_certificates_is_refused(tmp_path):
    for content in ("", "not PEM\n", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        file = tmp_path / "ca.pem"
        file.write_text(content)
        for words in (["test", "k", "ada"], ["exporter"]):
            _, errors = run(*words, "--host", "localhost", "--cacert", file, status=USAGE)
            assert "contains no certificate in PEM" in errors


# ---- files ----------------------------------------------------------------------------------------------------------


def test_crafted_files(new_server, tmp_path):
    """Filter files and DUMP payloads that are damaged but have correct checksums are read or refused within seconds,
    without a panic and with little memory, whatever sizes they declare."""

    def is_little():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    server = new_server(config={"rdbcompression": "no"})
    with server.client() as client:
        client.set("string", "x")
        version = version_of(client.dump("string"))
        dumps = sources(client)
    file, chance, statuses = tmp_path / "filter", random.Random(1), collections.Counter()
    for _ in range(150):
        what, body = damaged(dumps, chance)
        payload = sealed(body, version)
        file.write_bytes(payload)
        if chance.random() < 0.5:
            with contextlib.suppress(AssertionError, IndexError, struct.error, BadFilter):
                file.write_bytes(b"".join(Payload.parse(payload).pieces))
        done = subprocess.run(
            command("inspect", file), capture_output=True, text=True, timeout=60, preexec_fn=is_little
        )
        assert done.returncode in (DONE, NO, USAGE), (what, done.returncode, done.stderr)
        statuses[done.returncode == DONE] += 1
    assert min(statuses.values()) > 7, statuses
