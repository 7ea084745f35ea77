"""The documents, typed in: each command of their `console` blocks runs in a shell, and prints what the document shows.

kit/console.py says what the blocks look like, and how to fill in what is really printed. Fenced blocks of the language
`redis-cli` are run by test_docs.py.
"""


import pytest

from kit.console import DOCUMENTS, Session


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_console(server, document):
    session = Session(document)
    assert session.exchanges
    if wrong := session.mismatches(session.run(server), server.spec.name):
        pytest.fail(wrong, pytrace=False)
