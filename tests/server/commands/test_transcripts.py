"""Runs every file in tests/transcripts through the real redis-cli, on every server. kit/transcript.py describes their
syntax.
"""

import pytest

from kit.transcript import TRANSCRIPTS, Transcript

pytestmark = pytest.mark.every_server("a pass of every command, with replies as redis-cli prints them")


@pytest.mark.parametrize(
    "path", sorted(TRANSCRIPTS.rglob("*.txt")), ids=lambda path: str(path.relative_to(TRANSCRIPTS).with_suffix(""))
)
def test_transcript(server, path):
    transcript = Transcript(path)
    assert transcript.exchanges, f"{transcript} holds no command"
    if reason := transcript.reason_to_skip(server.spec):
        pytest.skip(reason)
    if wrong := transcript.mismatches(transcript.run(server), server.spec.name):
        pytest.fail(wrong, pytrace=False)
