"""The documents' `console` blocks, typed into a shell: each command runs, and must print what the document shows.

kit/console.py describes the blocks, and how to fill in the real output. test_docs.py runs the fenced blocks in the
language `redis-cli`.
"""


import pytest

from kit.console import DOCUMENTS, Session


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_console(server, document):
    session = Session(document)
    assert session.exchanges
    if wrong := session.mismatches(session.run(server), server.spec.name):
        pytest.fail(wrong, pytrace=False)
