"""Tables of the documents are whole: a blank line within one ends it, and readers see the rest as text."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).split()
SEPARATOR = re.compile(r"\|( *:?-+:? *\|)+")


def cells(row: str) -> int:
    """How many cells a row has. In a cell, a bar is escaped."""
    return row.replace(r"\|", "").count("|") - 1


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_row_belongs_to_a_table(path):
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", (ROOT / path).read_text())
    for table in re.findall(r"(?m)(?:^ *\|.*\n)+", text):
        head, *rows = [row.strip() for row in table.splitlines()]
        assert rows and SEPARATOR.fullmatch(rows[0]), f"no table begins with {head!r}"
        assert {cells(row) for row in rows} == {cells(head)}, head
