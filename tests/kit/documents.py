"""The documents, and the examples in them: fenced blocks of the language `redis-cli`, in the format of transcript.py.

Each example starts on an empty server. But the examples of a page that is read from its beginning to its end are one
session. Words after the language are arguments for redis-cli, as in ```redis-cli -3.

    PYTHONPATH=tests .cache/venv/bin/python -m kit.documents [--server NAME]

writes what the server says about each command into the command's page, and the real replies into the examples, where
they differ. Review the diff before you keep it.
"""

import argparse
import re
import sys

from kit.servers import ROOT, Server, matrix
from kit.transcript import Transcript

README = ROOT / "README.md"
COMMANDS = ROOT / "docs" / "commands"
COMPATIBILITY = ROOT / "docs" / "COMPATIBILITY.md"
MOVING = ROOT / "docs" / "MOVING.md"
MEMORY = ROOT / "docs" / "MEMORY.md"
CONFIGURATION = ROOT / "redis.conf.example"



class Page:
    """What describes a command: a page of its own, or a section of its family's page."""

    def __init__(self, path, heading):
        self.path = path
        self.heading = heading

    def __str__(self):
        return f"{self.path}: {self.heading}"

    @property
    def bounds(self):
        """Where it begins and ends in the file."""
        document = self.path.read_text()
        start = f"\n{document}".index(f"\n{self.heading}\n")
        end = document.find("\n## ", start + 1) if self.heading.startswith("## ") else -1
        return start, len(document) if end < 0 else end

    @property
    def text(self):
        return self.path.read_text()[slice(*self.bounds)]

    def write(self, text):
        document, (start, end) = self.path.read_text(), self.bounds
        self.path.write_text(document[:start] + text + document[end:])

    @property
    def is_redisblooms(self):
        return "\n*RedisBloom" in self.path.read_text()


def pages():
    """The page of each command, by its name."""
    own = sorted(COMMANDS.glob("?f.*.md"))
    found = {path.stem.upper(): Page(path, f"# {path.stem.upper()}") for path in own}
    for path in sorted(COMMANDS.glob("*.md")):
        for heading in re.findall(r"^## [A-Z]+\.[A-Z_]+$", path.read_text(), flags=re.M):
            found[heading.removeprefix("## ")] = Page(path, heading)
    return found


PAGES = pages()
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))

WITH_EXAMPLES = (README, *sorted(COMMANDS.glob("*.md")), COMPATIBILITY, MEMORY, MOVING, *GUIDES)

READ_THROUGH = {README, MOVING, *GUIDES}

# Versions of Bloomery that added commands of its own. No version of RedisBloom has one of these numbers.
OUR_VERSIONS = {"0.1.0"}

FENCE = re.compile(r"```(\S*) *(.*)")


class Example(Transcript):
    """One fenced block. Its line numbers refer to the whole document, which `with_replies` returns."""

    def __init__(self, path, first, last, arguments):
        self.path = path
        self.first = first
        document = path.read_text().rstrip("\n").split("\n")
        self.lines = [line if first <= index < last else "" for index, line in enumerate(document)]
        self.directives = [["resp3"]] if "-3" in arguments else []
        self.exchanges = []
        self._parse()
        self.lines = document


def examples(path):
    """The `redis-cli` blocks in a document, in order."""
    found, start, language, arguments = [], None, "", []
    for index, line in enumerate(path.read_text().splitlines()):
        if not (fence := FENCE.fullmatch(line)):
            continue
        if start is None:
            start, language, arguments = index + 1, fence[1], fence[2].split()
        else:
            if language == "redis-cli":
                found.append(Example(path, start, index, arguments))
            start = None
    return found


def sessions(path):
    """The examples in a document, as lists of those that run on the same server."""
    found = examples(path)
    return [found] if found and path in READ_THROUGH else [[example] for example in found]


# ---- what the server says about a command ---------------------------------------------------------------------------


def with_facts(client, name, text):
    """A command's page, with three rows of its first table filled in from the server: flags, ACL categories, and the
    first version that had the command."""
    _, _, flags, *_, categories = client.execute_command("COMMAND INFO", name)[0][:7]
    _, docs = client.execute_command("COMMAND DOCS", name)
    since = docs[docs.index("since") + 1]
    facts = {
        # The server adds `module` to the flags of every module command.
        "flags": listed(set(flags) - {"module"}),
        "ACL categories": listed(categories),
        "since": f"{'Bloomery' if since in OUR_VERSIONS else 'RedisBloom'} {since}",
    }
    rows = [f"| {what} | {told} |" for what, told in facts.items()]
    lines = [line for line in text.split("\n") if not line.startswith(tuple(f"| {what} |" for what in facts))]
    last = next(number for number, line in enumerate(lines) if line.startswith("| complexity |"))
    return "\n".join([*lines[: last + 1], *rows, *lines[last + 1 :]])


def listed(words):
    return ", ".join(f"`{word}`" for word in sorted(words))


# ---- filling in -----------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description="Put the real replies into the examples of the documentation.")
    parser.add_argument("--server", metavar="NAME", default="redis-8.0", help="the server to run them on")
    name = parser.parse_args().server
    with Server(next(spec for spec in matrix() if spec.name == name)) as server:
        with server.client(decode_responses=True) as client:
            for command, page in PAGES.items():
                page.write(with_facts(client, command, page.text))
        for path in WITH_EXAMPLES:
            replies = []
            for session in sessions(path):
                server.command("FLUSHALL")
                replies += [example.run(server) for example in session]
            for place in reversed(range(len(replies))):  # from the end, so that line numbers stay correct
                path.write_text("\n".join(examples(path)[place].with_replies(replies[place])) + "\n")
        server.check()


if __name__ == "__main__":
    sys.exit(main())
