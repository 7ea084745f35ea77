"""The examples of the program `bloomery` in the documentation: fenced blocks with the language `console`.

    $ bloomery test users ada
    yes ada

The blocks of one document run in order, in one folder that begins empty, against one server that begins empty. `bloomery`
and `redis-cli` are those of this build and of that server. What a command prints, on stdout and stderr, must be what
stands below it, with the wildcards of transcript.py: `<n>`, `<...>`, and a line `...` for any number of lines. A line
that ends in a backslash goes on in the next one.

    .cache/venv/bin/python tests/integration/test_console.py [--server NAME]

puts the real output into the examples, where it differs. Look at the difference before you keep it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from servers import ROOT, Server, matrix
from test_cli import CLI
from transcript import Exchange

DOCUMENTS = [path for path in sorted((ROOT / "docs").glob("*.md")) if "```console\n" in path.read_text()]

PROMPT = "$ "

pytestmark = pytest.mark.skipif(
    not CLI.exists(), reason=f"{CLI} is missing; run cargo build --release --features cli"
)


def commands(lines):
    """Every command of the blocks, in order, with the output that is expected."""
    found, inside, reading = [], False, None
    for index, line in enumerate(lines):
        if line.startswith("```"):
            inside, reading = line == "```console", None
        elif inside and line.startswith(PROMPT):
            reading = Exchange(line.removeprefix(PROMPT), index, index + 1)
            found.append(reading)
        elif inside and reading and not reading.expected and lines[index - 1].endswith("\\"):
            reading.command = reading.command.removesuffix("\\") + line.strip()
            reading.reply_start = reading.reply_end = index + 1
        elif inside and reading:
            reading.expected.append(line.rstrip())
            reading.reply_end = index + 1
    return found


def run(exchanges, server, folder):
    """What each command prints, line by line."""
    tools = folder / ".tools"
    tools.mkdir()
    (tools / "bloomery").symlink_to(CLI.resolve())
    client = tools / "redis-cli"
    client.write_text(f'#!/bin/sh\nexec {server.spec.cli} -p {server.port} "$@"\n')
    client.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BLOOMERY_")}
    environment |= {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "BLOOMERY_URL": f"redis://127.0.0.1:{server.port}",
        "LC_ALL": "C.UTF-8",
    }
    replies, status = [], 0
    for exchange in exchanges:
        done = subprocess.run(
            ["bash", "-c", f"(exit {status}); {exchange.command}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            text=True,
        )
        status = done.returncode
        output = done.stdout.replace(str(server.port), "6379").replace(f"{server.directory}", "/var/lib/redis")
        replies.append([line.rstrip() for line in output.splitlines()])
    return replies


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_console(server, tmp_path, path):
    exchanges = commands(path.read_text().splitlines())
    assert exchanges
    for exchange, actual in zip(exchanges, run(exchanges, server, tmp_path), strict=True):
        where = f"{path.name}:{exchange.first + 1}: {exchange.command}"
        shown, wanted = "\n".join(actual), "\n".join(exchange.expected)
        assert exchange.matches(actual), f"{where}\nprints:\n{shown}\nand not:\n{wanted}"


def main():
    parser = argparse.ArgumentParser(description="Put the real output into the examples of the documentation.")
    parser.add_argument("--server", metavar="NAME", default="redis-7.0", help="the server to run them on")
    name = parser.parse_args().server
    with Server(next(spec for spec in matrix() if spec.name == name)) as server:
        for path in DOCUMENTS:
            server.command("FLUSHALL")
            lines = path.read_text().splitlines()
            exchanges = commands(lines)
            with tempfile.TemporaryDirectory() as folder:
                replies = run(exchanges, server, Path(folder))
            # From the end, so that indexes stay true.
            for exchange, actual in reversed(list(zip(exchanges, replies, strict=True))):
                if not exchange.matches(actual):
                    lines[exchange.reply_start : exchange.reply_end] = actual
            path.write_text("\n".join(lines) + "\n")
        server.check()


if __name__ == "__main__":
    sys.exit(main())
