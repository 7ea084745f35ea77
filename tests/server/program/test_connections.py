"""What the program `bloomery` says to whom, and what it says about servers that it can't talk to. The subcommands and
their environment variables are those that its help lists."""

import contextlib
import functools
import re
import socket
import subprocess

import pytest

from kit.certificates import certificates, tls
from kit.program import MISSING, PROGRAM, SERVER, USAGE, command, run
from kit.proxy import FakeServer, Listener, bulk as text
from kit.servers import Server, free_port, matrix, wait_for

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

NOBODY = 1  # nothing listens on this port

# What each subcommand that talks to a server needs besides the server.
WORDS = {
    "load": ["k", "-"],
    "rebuild": ["k", "-"],
    "push": ["{file}", "k"],
    "pull": ["k", "{file}.pulled"],
    "backup": ["{file}.backup"],
    "restore": ["{file}.saved"],
    "migrate": ["redis://127.0.0.1:{source}"],
    "test": ["k", "ada"],
    "stats": ["k"],
    "top": ["--once", "-i", "0.1"],
    "exporter": ["--listen", "127.0.0.1:0"],
}

INFO = b"*4\r\n" + text("Kind") + text("fixed") + text("Identity") + text("0" * 16)

# The variables that other clients use, too.
FOREIGN = ["REDIS_URL", "REDISCLI_AUTH"]


@functools.cache
def helps() -> dict[str, str]:
    """The help of each subcommand that talks to a server."""
    names = re.findall(r"(?m)^  (\w+) +\S", run("--help")[0].partition("Commands:")[2].partition("Options:")[0])
    texts = {name: run(name, "--help")[0] for name in names if name != "help"}
    return {name: help for name, help in texts.items() if "--url" in help}


def variables(name: str) -> set[str]:
    return set(re.findall(r"\[env: (\w+)", helps()[name]))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file with a filter. Next to it, `file.saved` is a backup of a server that has this filter."""
    path = tmp_path_factory.mktemp("filters") / "file"
    run("build", path, "-", "-n", "10", "-e", "1%", input="ada\n")
    with Server(matrix()[0]) as server:
        run("push", path, "k", port=server.port)
        run("backup", f"{path}.saved", port=server.port)
    return path


def begin(name, file, *words, env, source=NOBODY) -> subprocess.Popen:
    words = [*(word.format(file=file, source=source) for word in WORDS[name]), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command(name, *words), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=env)


def test_every_subcommand_with_a_server_is_tried_here():
    assert set(helps()) == set(WORDS)


# ---- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORDS)
def test_a_secret_goes_to_the_server_that_it_is_for(name, file):
    """Each variable and option has the name of its server in its value. No server gets the other's."""
    if len(re.findall(r"--\S*password", helps()[name])) == 1:
        return  # it talks to one server
    ours = {name: ("source-" if "SOURCE" in name else "target-") + name for name in variables(name) - {"BLOOMERY_URL"}}
    replies = {"AUTH": b"+OK\r\n", "PING": b"+PONG\r\n"}
    target = {"REDIS_URL": f"redis://target-url:target-url@127.0.0.1:{NOBODY}", "REDISCLI_AUTH": "target-auth"}
    for env, options in [
        ({**ours, **target}, []),
        ({"REDISCLI_AUTH": "target-auth"}, []),
        ({}, ["--user", "target-user", "--password", "target-password"]),
        ({}, ["--source-user", "source-user", "--source-password", "source-password"]),
        (target, []),
    ]:
        with FakeServer(replies) as one, FakeServer(replies) as other:
            options = [*options, "-H", "127.0.0.1", "-p", other.port]
            process = begin(name, file, *map(str, options), env=env, source=one.port)
            errors = process.communicate(timeout=240)[1]
            assert [b"PING"] in one.sent and [b"PING"] in other.sent, errors
            assert not re.search(b"target", b" ".join(sum(one.sent, []))), (env, options, one.sent)
            assert not re.search(b"source", b" ".join(sum(other.sent, []))), (env, options, other.sent)


@pytest.mark.parametrize("name", WORDS)
def test_an_empty_variable_counts_as_unset(name, file):
    assert variables(name), "each of them has an address"
    outcomes = []
    for env in ({}, {variable: "" for variable in [*variables(name), *FOREIGN]}):
        with FakeServer({"BF.STATS": INFO, "PING": b"+PONG\r\n"}) as server:
            process = begin(name, file, "-p", str(server.port), env=env, source=server.port)
            if name == "exporter":
                wait_for(lambda: server.sent, "the exporter to look for filters")
                process.terminate()
            errors = process.communicate(timeout=240)[1]
            sent = {words[0] for words in server.sent}
            assert sent and b"AUTH" not in sent, (env, errors)
            # The exporter ends at some point, and keys of its own have random names.
            outcomes.append((process.returncode, b"SCAN" in sent if name == "exporter" else sent))
    assert outcomes[0] == outcomes[1], errors
    assert "[env: =]" not in run(name, "--help", env={variable: "" for variable in variables(name)})[0]


def test_a_user_without_a_password_is_not_the_default_user(server):
    server.command("ACL", "SETUSER", "guest", "on", "nopass", "~*", "+bf.stats", "+cf.stats")
    words = ["stats", "nothing", "-p", server.port, "--user"]
    assert "there is no filter" in run(*words, "guest", status=USAGE)[1]
    # The guest may do less than the default user.
    assert "NOPERM" in run("top", "--once", "-p", server.port, "--user", "guest", status=SERVER)[1]
    errors = run(*words, "nobody_there", status=SERVER)[1]
    assert f"cannot connect to 127.0.0.1:{server.port}: WRONGPASS" in errors
    source = f"redis://nobody_there@127.0.0.1:{server.port}"
    assert "the source: cannot connect" in run("migrate", source, "-p", server.port, status=SERVER)[1]
    server.command("ACL", "DELUSER", "guest")


@pytest.mark.parametrize(
    "options, sent",
    [
        (["--password", ""], [[b"AUTH", b""]]),
        (["--user", "ada"], [[b"AUTH", b"ada", b""]]),
        ([], []),
    ],
)
def test_an_empty_password_is_sent_as_by_redis_cli(options, sent):
    with FakeServer({"BF.STATS": INFO, "AUTH": b"+OK\r\n"}) as server:
        run("stats", "k", *options, port=server.port, env={"REDISCLI_AUTH": ""})
        assert [words for words in server.sent if words[0] == b"AUTH"] == sent


# ---- servers that can't be talked to --------------------------------------------------------------------------------


class Closing(Listener):
    """Closes each connection when something has arrived."""

    def _serve(self, client):
        with client:
            client.recv(1)


class Silent(Listener):
    """Never replies."""

    def _serve(self, client):
        with client:
            while client.recv(1 << 16):
                pass


def errors_of(name, file, *words) -> str:
    process = begin(name, file, *words, env={})
    if name == "exporter":
        lines = iter(process.stderr.readline, "")
        first = next(line for line in lines if "metrics are at" not in line)
        process.terminate()
        return first + process.communicate(timeout=240)[1]
    return process.communicate(timeout=240)[1]


@pytest.mark.parametrize("name", [name for name in WORDS if name != "migrate"])
def test_a_connection_that_fails_is_named(name, file):
    assert f"cannot connect to 127.0.0.1:{NOBODY}: Connection refused" in errors_of(name, file, "-p", str(NOBODY))
    with Closing() as server:
        errors = errors_of(name, file, "-p", str(server.port))
        assert f"127.0.0.1:{server.port}: the server has closed the connection without a reply; does it need --tls?" in errors
    with FakeServer({}) as server:
        server.replies = dict.fromkeys(["BF.STATS", "INFO", "SCAN", "GET", "TYPE", "BF.SCANDUMP"], lambda: iter(()))
        errors = errors_of(name, file, "-p", str(server.port), "--timeout", "1")
        assert f"127.0.0.1:{server.port}: the server took too long to reply" in errors


def test_a_socket_is_named(tmp_path):
    path = tmp_path / "socket"
    assert f"cannot connect to {path}: No such file" in run("stats", "k", "-u", f"unix://{path}", status=SERVER)[1]


def test_a_socket_whose_server_accepts_no_connection_is_named(tmp_path):
    with contextlib.ExitStack() as sockets:
        listener, *clients = [sockets.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(9)]
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            for client in clients:
                client.setblocking(False)
                client.connect(listener.getsockname())
        errors = run("stats", "k", "-u", f"unix://{tmp_path}/socket", "--timeout", "1", status=SERVER)[1]
        assert f"cannot connect to {tmp_path}/socket: the server took too long to reply" in errors


def test_a_server_with_or_without_tls(new_server, tmp_path):
    """The reply timeout is longer than any test may last, so these errors come earlier."""
    port = free_port()
    folder = certificates(tmp_path)
    server = new_server(config=tls(folder, port))
    stats = ["stats", "k", "--timeout", "1h", "-p"]
    errors = run(*stats, server.port, "--tls", status=SERVER)[1]
    assert f"cannot connect to 127.0.0.1:{server.port} with TLS: " in errors
    assert "perhaps it does not speak TLS" in errors
    errors = run(*stats, port, status=SERVER)[1]
    assert f"127.0.0.1:{port}: the server has closed the connection without a reply; does it need --tls?" in errors
    # A certificate that isn't trusted isn't a server without TLS.
    errors = run(*stats, port, "--tls", status=SERVER)[1]
    assert f"127.0.0.1:{port} with TLS: " in errors and "UnknownIssuer" in errors and "perhaps" not in errors
    with Silent() as silent:
        errors = run(*stats, silent.port, "--tls", status=SERVER)[1]
        assert "with TLS: the server took too long to reply; perhaps it does not speak TLS" in errors


def test_a_node_without_a_cluster_is_named():
    with FakeServer({"CLUSTER": b"*0\r\n"}) as server:
        errors = run("top", "--once", "--cluster", port=server.port, status=SERVER)[1]
        assert f"127.0.0.1:{server.port} knows no node with slots; name a node of a cluster" in errors


def test_a_redirect_that_does_not_end_is_followed_with_pauses():
    """20 ms each, for a second."""
    with FakeServer({"ASKING": b"+OK\r\n"}) as server:
        server.replies["BF.STATS"] = b"-ASK 1 127.0.0.1:%d\r\n" % server.port
        errors = run("test", "k", "ada", "--cluster", "--timeout", "1", port=server.port, status=SERVER)[1]
        assert f"ASK 1 127.0.0.1:{server.port}" in errors
        assert sum(words == [b"ASKING"] for words in server.sent) < 60


def test_a_part_on_a_node_that_is_down_is_named(tmp_path):
    """The node that is up sends everything to one that is down. The error says which node it is, which part of the
    filter, and how much was added before."""
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(100)))
    moved = b"-MOVED 1 127.0.0.1:%d\r\n" % NOBODY
    which = rf"part \{{k:\d/3:\d+\}}: cannot connect to 127.0.0.1:{NOBODY}: Connection refused"
    with FakeServer({"BF.STATS": moved}) as server:
        spread = ["--spread", 3, "--cluster"]
        for words, after in [
            (["load", "k", lines], r".*\. Nothing was added yet"),
            (["stats", "k"], ""),
            (["test", "k", "ada"], ""),
        ]:
            errors = run(*words, *spread, port=server.port, status=SERVER)[1]
            assert re.match(f"bloomery: {which}{after}", errors), errors
        server.replies = {"BF.STATS": INFO, "BF.BULKADD": moved}
        errors = run("load", "k", lines, *spread, port=server.port, status=SERVER)[1]
        assert re.match(rf"bloomery: {which}.*\. 0 items are in: all before byte 0 of ", errors), errors
