"""Runs the shell sessions that documents show: fenced blocks of the language `console`.

    $ bloomery test users nobody
    no nobody
    (status 1)

A document's blocks, in order, are one session on a server that is initially empty, in a folder that contains only
examples/. In a block, a command follows `$ `, and its other lines follow `> `, as in a terminal. Below each command is
its output, including stderr, and its exit status unless that is 0. The wildcards are those of transcript.py: `<n>`,
`<...>`, and `...` for any lines.

    PYTHONPATH=tests .cache/venv/bin/python -m kit.console [--server NAME] [FILE...]

writes the real output into the documents where it differs. Review the diff before you keep it."""

import argparse
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kit.program import PROGRAM
from kit.servers import ROOT, Server, free_port, matrix, redis_cli
from kit.transcript import Exchange, Transcript

DOCUMENTS = sorted(path for path in (ROOT / "docs").glob("**/*.md") if "```console\n" in path.read_text())

PROMPT, CONTINUED = "$ ", "> "
SERVICE_PORT = "8000"  # the port of services in documents; the test replaces it with a free one
SECONDS = 120  # for all commands in a document

# Scripts that replace the programs named in documents. redis-cli has one format for a terminal and one for a pipe. Here
# it never has a terminal, so the script requests the terminal's format, unless the document pipes the output.
STAND_INS = {
    "redis-cli": '[ -p /dev/stdout ] || set -- --no-raw "$@"\nexec "{redis_cli}" -p {port} "$@"',
    "python3": 'exec "{python}" "$@"',
    "bloomery": 'exec "{bloomery}" "$@"',
}


class Session(Transcript):
    """All `console` blocks in a document."""

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
        """Runs the commands. Returns each one's output, including stderr, and its exit status unless that was 0."""
        with tempfile.TemporaryDirectory(prefix="bloomery-console-") as folder:
            home, token, port = Path(folder), secrets.token_hex(8), str(free_port())
            (home / "examples").symlink_to(ROOT / "examples")
            commands = [re.sub(rf"\b{SERVICE_PORT}\b", port, exchange.command) for exchange in self.exchanges]
            mark = f"printf '\\n{token} %d\\n' $?"
            text = "".join(f"{{ {command}\n}} </dev/null 2>&1\n{mark}\n" for command in commands)
            (home / ".script").write_text(text)
            with open(home / ".output", "w+") as output:
                self._shell(server, home, output)
                output.seek(0)
                printed = output.read().replace(f":{port}", f":{SERVICE_PORT}").replace(f":{server.port}", ":6379")
                printed = printed.replace(str(server.directory), "/var/lib/redis")
        *parts, rest = re.split(rf"\n{token} (\d+)\n", printed)
        if len(parts) != 2 * len(self.exchanges):
            done = len(parts) // 2
            pytest.fail(f"{self}:{self.exchanges[done].first + 1}: the session ended here\n{rest}", pytrace=False)
        return [_lines(said, int(status)) for said, status in zip(parts[::2], parts[1::2], strict=True)]

    def _shell(self, server: Server, home: Path, output) -> None:
        (home / ".bin").mkdir()
        for name, script in STAND_INS.items():
            program = home / ".bin" / name
            script = script.format(redis_cli=redis_cli(), port=server.port, python=sys.executable, bloomery=PROGRAM)
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        url = f"redis://127.0.0.1:{server.port}"
        environment = {
            "PATH": f"{home}/.bin:{os.environ['PATH']}",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT / "clients" / "python"),  # as if it were installed
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
            pass  # the output shows where it hangs
        finally:
            try:
                os.killpg(shell.pid, signal.SIGKILL)  # including everything it left running
            except ProcessLookupError:
                pass
            shell.wait()


def _lines(said: str, status: int) -> list[str]:
    lines = [line.rstrip() for line in said.rstrip("\n").split("\n")] if said.strip() else []
    return lines + ([f"(status {status})"] if status else [])


def main():
    parser = argparse.ArgumentParser(description="Put what is really printed into the documents.")
    parser.add_argument("file", type=Path, nargs="*", default=DOCUMENTS)
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
