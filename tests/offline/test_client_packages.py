"""The packages clients/python and clients/javascript: what they say about themselves agrees with the rest of the
repository."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "clients" / "python"
JAVASCRIPT = ROOT / "clients" / "javascript"


def test_their_versions_are_that_of_the_module():
    (python,) = re.findall(r'^version = "(.*?)"', (PYTHON / "pyproject.toml").read_text(), flags=re.M)
    javascript = json.loads((JAVASCRIPT / "package.json").read_text())["version"]
    for version in (python, javascript):
        assert f'\nversion = "{version}"\n' in (ROOT / "Cargo.toml").read_text()


@pytest.mark.parametrize("package", [PYTHON, JAVASCRIPT], ids=lambda path: path.name)
@pytest.mark.parametrize("name", ["LICENSE-MIT", "LICENSE-APACHE"])
def test_their_licences_are_those_of_the_repository(package, name):
    """The packages have copies of the licences, because what is made from them contains nothing from outside their
    folders."""
    assert (package / name).read_bytes() == (ROOT / name).read_bytes()


def test_python_has_the_syntax_of_the_oldest_version_that_it_names():
    (minor,) = re.findall(r'^requires-python = ">=3\.(\d+)"', (PYTHON / "pyproject.toml").read_text(), flags=re.M)
    sources = sorted(PYTHON.rglob("*.py"))
    assert sources
    for source in sources:
        ast.parse(source.read_text(), feature_version=(3, int(minor)))


def test_the_declared_methods_in_javascript_are_the_methods():
    """Node.js runs the sources, and TypeScript reads the declarations. Methods that begin with _ are for the package."""
    sources = "".join((JAVASCRIPT / f"{name}.js").read_text() for name in ("filter", "bloom", "cuckoo"))
    methods = re.findall(r"^    (?:async )?([a-z]\w*)\(.*\) \{$", sources, flags=re.M)
    declared = re.findall(r"^    (\w+)\(", (JAVASCRIPT / "index.d.ts").read_text(), flags=re.M)
    assert "rebuild" in declared and set(methods) == set(declared)
