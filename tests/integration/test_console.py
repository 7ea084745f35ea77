"""The documents, typed in: each command of their `console` blocks runs in a shell, and prints what the document shows.
See console.py for the form. Fenced blocks of the language `redis-cli` are run by test_docs.py.

    .cache/venv/bin/python tests/integration/test_console.py [--server NAME] [FILE...]

puts what is really printed into the documents, where it differs. Look at the difference before you keep it.
"""

import argparse
import sys
from pathlib import Path

import pytest
from console import DOCUMENTS, Session
from servers import Server, matrix


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_console(server, document):
    session = Session(document)
    assert session.exchanges
    if wrong := session.mismatches(session.run(server), server.spec.name):
        pytest.fail(wrong, pytrace=False)


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
