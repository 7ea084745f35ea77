"""The guides, typed in: each command of their `console` blocks runs in a shell, and prints what the guide shows.

The blocks of a guide are one session, in its order, on a server that is empty at first, in an empty folder that has
examples/ as a fresh clone has. In them are commands behind `$ `, which go on behind `> `, as in a terminal, and below
each what it prints, with the wildcards of transcript.py: `<n>`, `<...>`, and `...` for any lines. Fenced blocks of the
language `redis-cli` are run by test_docs.py, as those of all documents. What the guides say of failures is below.

    .cache/venv/bin/python tests/integration/test_guides.py [--server NAME] [FILE...]

puts what is really printed into the guides, where it differs. Look at the difference before you keep it.
"""

import argparse
import concurrent.futures
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from servers import ROOT, Server, free_port, matrix, redis_cli, wait_for
from transcript import Exchange, Transcript

sys.path += [str(ROOT / "examples" / name) for name in ("cache_penetration", "deny_list")]
import nightly  # noqa: E402
from fill import Implausible, fill  # noqa: E402
from guard import FILTER, READY, Guard, connect  # noqa: E402
from service import Users  # noqa: E402
from store import Store  # noqa: E402

GUIDES = sorted(path for path in (ROOT / "docs" / "guides").glob("*.md") if "```console" in path.read_text())
CLI = Path(os.environ.get("BLOOMERY_CLI") or ROOT / "target" / "release" / "bloomery")

PROMPT, CONTINUED = "$ ", "> "
GUIDE_PORT = "8000"  # where guides start services; the test takes a free one
SECONDS = 120  # for all commands of a guide

# What stands for the programs that a guide names. On a terminal redis-cli shows a reply otherwise than in a pipe; here
# it is never on a terminal, so it is told, unless it is in a pipe.
STAND_INS = {
    "redis-cli": '[ -p /dev/stdout ] || set -- --no-raw "$@"\nexec "{redis_cli}" -p {port} "$@"',
    "python3": 'exec "{python}" "$@"',
    "bloomery": 'exec "{bloomery}" "$@"',
}


class Session(Transcript):
    """All `console` blocks of a guide."""

    def _parse(self) -> None:
        inside, reading, index = False, None, 0
        while index < len(self.lines):
            line = self.lines[index]
            if line.startswith("```"):
                inside, reading = line == "```console", None
            elif inside and line.startswith(PROMPT):
                first, command = index, line.removeprefix(PROMPT)
                while self.lines[index + 1].startswith(CONTINUED):
                    index += 1
                    command += "\n" + self.lines[index].removeprefix(CONTINUED)
                reading = Exchange(command, first, index + 1)
                self.exchanges.append(reading)
            elif inside:
                if reading is None:
                    raise SyntaxError(f"{self}:{index + 1}: output without a command")
                reading.expected.append(line.rstrip())
                reading.reply_end = index + 1
            index += 1

    def run(self, server: Server) -> list[list[str]]:
        """What each command printed, stderr included, and how it ended unless that was well."""
        with tempfile.TemporaryDirectory(prefix="bloomery-guide-") as folder:
            home, token, port = Path(folder), secrets.token_hex(8), str(free_port())
            (home / "examples").symlink_to(ROOT / "examples")
            commands = [re.sub(rf"\b{GUIDE_PORT}\b", port, exchange.command) for exchange in self.exchanges]
            mark = f"printf '\\n{token} %d\\n' $?"
            text = "".join(f"{{ {command}\n}} </dev/null 2>&1\n{mark}\n" for command in commands)
            (home / ".script").write_text(text)
            with open(home / ".output", "w+") as output:
                self._shell(server, home, output)
                output.seek(0)
                printed = output.read().replace(f":{port}", f":{GUIDE_PORT}").replace(f":{server.port}", ":6379")
        *parts, rest = re.split(rf"\n{token} (\d+)\n", printed)
        if len(parts) != 2 * len(self.exchanges):
            done = len(parts) // 2
            pytest.fail(f"{self}:{self.exchanges[done].first + 1}: the session ended here\n{rest}", pytrace=False)
        return [_lines(said, int(status)) for said, status in zip(parts[::2], parts[1::2], strict=True)]

    def _shell(self, server: Server, home: Path, output) -> None:
        (home / ".bin").mkdir()
        for name, script in STAND_INS.items():
            program = home / ".bin" / name
            script = script.format(redis_cli=redis_cli(), port=server.port, python=sys.executable, bloomery=CLI)
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        url = f"redis://127.0.0.1:{server.port}"
        environment = {
            "PATH": f"{home}/.bin:{os.environ['PATH']}",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "REDIS_URL": f"{url}?socket_timeout=10",  # patient: the machine may be busy with other tests
            "BLOOMERY_URL": url,
            "REDISCLI_RCFILE": os.devnull,
        }
        shell = subprocess.Popen(
            ["bash", ".script"], cwd=home, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            shell.wait(SECONDS)
        except subprocess.TimeoutExpired:
            pass  # what it printed says where
        finally:
            try:
                os.killpg(shell.pid, signal.SIGKILL)  # with all that the guide left running
            except ProcessLookupError:
                pass
            shell.wait()


def _lines(said: str, status: int) -> list[str]:
    lines = [line.rstrip() for line in said.rstrip("\n").split("\n")] if said.strip() else []
    return lines + ([f"(status {status})"] if status else [])


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_guide(server, guide):
    session = Session(guide)
    if wrong := session.mismatches(session.run(server), server.spec.name):
        pytest.fail(wrong, pytrace=False)


# ---- what the guide on cache penetration says of failures ------------------------------------------------------------


@pytest.fixture
def users(new_server, tmp_path):
    """The service of the example, and its server: one that forgets nothing."""
    server = new_server(config={"appendonly": "yes", "appendfsync": "always"})
    guard = Guard(connect(f"redis://127.0.0.1:{server.port}?socket_timeout=10"))
    users = Users(Store(str(tmp_path / "users.db"), query_seconds=0), guard)
    users.server = server
    users.create("ada", "Ada")
    return users


def asked(users, id: str) -> tuple[dict | None, int]:
    """The answer, and how many queries it took."""
    before = users.store.queries
    return users.find(id), users.store.queries - before


def is_rebuilt(client, key: str) -> bool:
    """Whether a rebuild runs; the reply is a map in RESP3."""
    reply = client.execute_command("BF.REBUILD", key, "STATUS")
    return (reply["Status"] if isinstance(reply, dict) else reply[1]) != "none"


def names(users, prefix: str, count: int) -> list[str]:
    """Creates users."""
    ids = [f"{prefix}-{number}" for number in range(count)]
    for id in ids:
        users.create(id, id)
    return ids


def test_a_guard_without_a_full_filter_lets_everything_through(users):
    assert asked(users, "eve") == (None, 1)  # no filter yet
    fill(users.store, users.guard.client)
    assert asked(users, "eve") == (None, 0)
    assert asked(users, "ada")[0]
    users.guard.client.unlink(READY)
    assert asked(users, "eve") == (None, 1)  # not yet filled
    users.guard.client.set(READY, "yes")
    users.guard.client.unlink(FILTER)
    assert asked(users, "eve") == (None, 1)  # gone, as after an eviction
    users.create("grace", "Grace")
    assert not users.guard.client.exists(FILTER), "an add has made a filter without the others"
    fill(users.store, users.guard.client)
    assert asked(users, "eve") == (None, 0)
    assert asked(users, "grace")[0]


def test_a_guard_without_a_server_lets_everything_through(users):
    fill(users.store, users.guard.client)
    users.drain()
    users.server.kill()
    assert asked(users, "ada") == ({"id": "ada", "name": "Ada"}, 1)
    assert asked(users, "eve") == (None, 1)
    users.create("grace", "Grace")  # the filter does not get to know of it
    assert users.store.outbox() == ["grace"]
    users.server.start()
    wait_for(lambda: asked(users, "eve") == (None, 0), "the guard to try the server again")
    assert asked(users, "grace") == (None, 0), "the one wrong answer, which the guide names"
    users.drain()
    assert users.store.outbox() == []
    assert asked(users, "grace")[0]


def test_no_user_is_lost_while_the_filter_is_rebuilt(users):
    """Users come from two threads, and rebuilds follow one another. A slow commit shows that the order matters."""
    insert = users.store.insert

    def insert_slowly(rows):
        time.sleep(0.005)
        insert(rows)

    users.store.insert = insert_slowly
    with concurrent.futures.ThreadPoolExecutor() as pool:
        writers = [pool.submit(names, users, name, 300) for name in ("left", "right")]
        rebuilds = 0
        while not all(writer.done() for writer in writers) or rebuilds < 3:
            fill(users.store, users.guard.client)
            rebuilds += 1
        created = [id for writer in writers for id in writer.result()]
    assert len(created) == 600
    assert [id for id in created if not users.find(id)] == []
    assert asked(users, "eve") == (None, 0)


def test_a_rebuild_that_fails_leaves_the_filter_as_it_was(users, monkeypatch):
    fill(users.store, users.guard.client)

    def some(self):
        yield ["ada"]
        raise OSError("the disk is gone")

    monkeypatch.setattr(Store, "all_ids", some)
    names(users, "other", 5)
    with pytest.raises(OSError):
        fill(users.store, users.guard.client)
    monkeypatch.setattr(Store, "count", lambda self: 2)  # of six
    with pytest.raises(Implausible):
        fill(users.store, users.guard.client)
    assert not is_rebuilt(users.guard.client, FILTER)
    assert users.find("other-4")


# ---- what the guide on deny lists says of failures -------------------------------------------------------------------


def test_a_deny_list_that_cannot_be_read_leaves_the_filter_as_it_was(server, tmp_path, monkeypatch):
    """Also if that shows only when the rebuild is under way."""
    with server.client(decode_responses=True) as client:
        good = tmp_path / "good.txt"
        good.write_text("".join(f"bot-{number}\n" for number in range(3000)))
        assert nightly.rebuild(client, good, shrinks_to=0.8) == 3000
        entries, read = nightly.entries, []

        def some(path):
            read.append(path)
            for number, entry in enumerate(entries(path)):
                if len(read) == 2 and number == 2500:
                    raise OSError("the disk is gone")
                yield entry

        monkeypatch.setattr(nightly, "entries", some)
        with pytest.raises(OSError):
            nightly.rebuild(client, good, shrinks_to=0.8)
        assert not is_rebuilt(client, nightly.KEY)
        assert client.execute_command("BF.MEXISTS", nightly.KEY, "bot-0", "bot-2999", "good") == [1, 1, 0]


# ---- filling in -----------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description="Put what is really printed into the guides.")
    parser.add_argument("file", type=Path, nargs="*", default=GUIDES)
    parser.add_argument("--server", metavar="NAME", default="redis-7.0", help="the server to run them on")
    arguments = parser.parse_args()
    with Server(next(spec for spec in matrix() if spec.name == arguments.server)) as server:
        for path in arguments.file:
            server.command("FLUSHALL")
            session = Session(path.resolve())
            path.write_text("\n".join(session.with_replies(session.run(server))) + "\n")
        server.check()


if __name__ == "__main__":
    sys.exit(main())
