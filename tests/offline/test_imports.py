"""No test imports another test: what several of them need is in tests/kit."""

import ast
from pathlib import Path

import pytest

TESTS = sorted(Path(__file__).resolve().parents[1].glob("*/test_*.py"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_test_imports_no_other_test(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    assert not [name for name in found if name.split(".")[-1].startswith("test_")]
