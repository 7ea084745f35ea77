"""The package clients/python: its description of itself agrees with the rest of the repository."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "clients" / "python"


def test_its_version_is_that_of_the_module():
    (version,) = re.findall(r'^version = "(.*?)"', (PACKAGE / "pyproject.toml").read_text(), flags=re.M)
    assert f'\nversion = "{version}"\n' in (ROOT / "Cargo.toml").read_text()


@pytest.mark.parametrize("name", ["LICENSE-MIT", "LICENSE-APACHE"])
def test_its_licences_are_those_of_the_repository(name):
    """The package has copies of the licences, because a source distribution contains nothing from outside its
    folder."""
    assert (PACKAGE / name).read_bytes() == (ROOT / name).read_bytes()


def test_it_has_the_syntax_of_the_oldest_python_that_it_names():
    (minor,) = re.findall(r'^requires-python = ">=3\.(\d+)"', (PACKAGE / "pyproject.toml").read_text(), flags=re.M)
    sources = sorted(PACKAGE.rglob("*.py"))
    assert sources
    for source in sources:
        ast.parse(source.read_text(), feature_version=(3, int(minor)))
