"""Transcripts: what a user types into redis-cli, and what redis-cli prints, as text files under tests/transcripts.

    # Deleting from a counting filter.
    > BF.RESERVE seen 0.01 1000 COUNTING
    OK
    > BF.ADD seen ada
    (integer) 1

    # A comment, or an empty line, ends a reply.
    > BF.INFO seen
    ...
    Size
    (integer) <n>

- The prompt is `> `, or as copied from a terminal: `127.0.0.1:6379> `. A command that ends in a backslash continues on
the next line. redis-cli parses a command as usual: "quoted", "\\x00 bytes", 'single'.
- `<n>` matches one integer, `<...>` anything within a line, and a line `...` any number of lines.
- Every file starts on an empty server, and uses one connection. `DEBUG SLEEP 0.1` lets time pass.
- Lines at the start of the file that begin with `#!` say how to run it:
      #! resp3                        redis-cli -3
      #! only valkey                  only on servers of this product
      #! needs redis>=7.2 valkey>=8.1 only on servers at least this new; a product that is not named is accepted
      #! needs redis<8                only on servers older than this
      #! config maxmemory 100mb       CONFIG SET first, and restored afterwards

`scripts/transcript FILE` runs a transcript and prints it with the real replies; `--write` puts them into the file.

A reply that contains an empty line, or a line that looks like a comment or a prompt, can only be written as `...`.
"""

import argparse
import difflib
import re
import secrets
import sys
from pathlib import Path

from kit.servers import ROOT, Server, Spec, matrix

TRANSCRIPTS = ROOT / "tests" / "transcripts"

PROMPT = re.compile(r"(?:[\w.:\[\]-]+(?:\(\w+\))?)?> (?=\S)")
WILDCARD = re.compile(r"(<n>|<\.\.\.>)")
# redis-cli appends this to the reply if a command took half a second or more.
ELAPSED = re.compile(r"\(\d+\.\d\ds\)")
# redis-cli handles `:word` itself, without contacting the server. So this line marks the end of a reply without being a
# command. An ECHO would be queued inside MULTI, would be counted, and would need permission.
MARKER = r"\n?(?:\x1b\[[\d;]*m)?unknown redis-cli internal command ':{token}'\n"


class Exchange:
    """One command and its expected reply. `first` and the reply's bounds are line indexes; the end is exclusive."""

    def __init__(self, command: str, first: int, reply_start: int):
        self.command = command
        self.first = first
        self.reply_start = self.reply_end = reply_start
        self.expected: list[str] = []

    def matches(self, actual: list[str]) -> bool:
        pattern = "".join(_line_pattern(line) for line in self.expected)
        return re.fullmatch(pattern, "".join(f"{line}\n" for line in actual)) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*"
    pieces = {"<n>": r"-?\d+", "<...>": r".*"}
    return "".join(pieces.get(part) or re.escape(part) for part in WILDCARD.split(line)) + r"\n"


class Transcript:
    """A file of exchanges."""

    def __init__(self, path: Path):
        self.path = path
        self.lines = path.read_text().rstrip("\n").split("\n")
        self.directives: list[list[str]] = []
        self.exchanges: list[Exchange] = []
        self._parse()

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path)

    def _parse(self) -> None:
        reading = None  # the exchange whose reply may continue
        index = 0
        while index < len(self.lines):
            line = self.lines[index]
            if prompt := PROMPT.match(line):
                first, command = index, line[prompt.end() :]
                while command.endswith("\\") and index + 1 < len(self.lines):
                    index += 1
                    command = command[:-1] + self.lines[index].strip()
                reading = Exchange(command, first, index + 1)
                self.exchanges.append(reading)
            elif line.startswith("#!"):
                if self.exchanges:
                    raise SyntaxError(f"{self}:{index + 1}: directives belong at the head of the file")
                self.directives.append(line[2:].split())
            elif not line.strip() or line.startswith("#"):
                reading = None
            elif reading is None:
                raise SyntaxError(f"{self}:{index + 1}: a reply without a command; does the command start with '> '?")
            else:
                reading.expected.append(line.rstrip())
                reading.reply_end = index + 1
            index += 1

    # ---- directives -------------------------------------------------------------------------------------------------

    def reason_to_skip(self, spec: Spec) -> str | None:
        for word, *arguments in self.directives:
            if word == "only" and spec.product not in arguments:
                return f"only for {' and '.join(arguments)}"
            if word == "needs":
                for requirement in arguments:
                    product, relation, version = re.fullmatch(r"(\w+)(>=|<)([\d.]+)", requirement).groups()
                    is_older = spec.version < tuple(map(int, version.split(".")))
                    if product == spec.product and is_older == (relation == ">="):
                        return f"needs {requirement}"
            if word not in ("resp3", "only", "needs", "config"):
                raise SyntaxError(f"{self}: unknown directive '#! {word}'")
        return None

    def settings(self) -> dict[str, str]:
        return {name: value for word, *rest in self.directives if word == "config" for name, value in [rest]}

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, server: Server) -> list[list[str]]:
        """Feeds the whole file to one redis-cli. Returns the lines of each reply."""
        token = secrets.token_hex(8)
        script = "".join(f"{exchange.command}\n:{token}\n" for exchange in self.exchanges)
        options = ["--no-raw", *(["-3"] if ["resp3"] in self.directives else [])]
        with server.configured(self.settings()):
            output = server.cli(*options, input=script, timeout=240)
        *replies, rest = re.split(MARKER.format(token=token), output)
        if len(replies) != len(self.exchanges) or rest:
            raise RuntimeError(f"{self}: redis-cli answered {len(replies)} of {len(self.exchanges)} commands:\n{output}")
        return [_reply_lines(reply) for reply in replies]

    def with_replies(self, replies: list[list[str]]) -> list[str]:
        """The lines of the file, with every reply that doesn't match replaced by the real one."""
        lines, done = [], 0
        for exchange, actual in zip(self.exchanges, replies, strict=True):
            lines += self.lines[done : exchange.reply_start]
            matched = exchange.matches(actual)
            lines += self.lines[exchange.reply_start : exchange.reply_end] if matched else actual
            done = exchange.reply_end
        return lines + self.lines[done:]

    def mismatches(self, replies: list[list[str]], source: str) -> str:
        """The commands whose replies don't match, and a unified diff with the file's line numbers. Empty if all match.
        """
        places = [
            f"{self}:{exchange.first + 1}: {exchange.command}"
            for exchange, actual in zip(self.exchanges, replies, strict=True)
            if not exchange.matches(actual)
        ]
        diff = difflib.unified_diff(
            self.lines, self.with_replies(replies), fromfile=str(self), tofile=source, lineterm=""
        )
        return "\n".join([*places, *diff]) if places else ""


def _reply_lines(reply: str) -> list[str]:
    lines = [line.rstrip() for line in reply.rstrip("\n").split("\n")] if reply.strip() else []
    if len(lines) > 1 and ELAPSED.fullmatch(lines[-1]):
        lines.pop()
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/transcript", description="Run a transcript; print the real replies.")
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--server", metavar="NAME", help="the server to run it on (default: the first of the matrix)")
    parser.add_argument("--write", action="store_true", help="put the replies into the file instead of printing them")
    arguments = parser.parse_args()
    specs = {spec.name: spec for spec in matrix()}
    name = arguments.server or next(iter(specs), None)
    if name not in specs:
        parser.error(f"no such server; there are: {', '.join(specs) or 'none, run scripts/servers'}")
    status = 0
    with Server(specs[name]) as server:
        for path in arguments.file:
            server.command("FLUSHALL")
            transcript = Transcript(path.resolve())
            replies = transcript.run(server)
            text = "\n".join(transcript.with_replies(replies)) + "\n"
            path.write_text(text) if arguments.write else print(text, end="")
            if wrong := transcript.mismatches(replies, name):
                status = 1
                print(wrong, file=sys.stderr)
        server.check()
    return status


if __name__ == "__main__":
    sys.exit(main())
