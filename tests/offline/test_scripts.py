"""The scripts: `--help` prints a manual and does nothing else, and scripts/README.md lists all of them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and os.access(path, os.X_OK))
# The programs that a script needs to find its folder and to print the comment at its head.
PROGRAMS = ["bash", "dirname", "mkdir", "sed"]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory) -> Path:
    """A folder to use as PATH and as home, without cargo, apt and servers."""
    folder = tmp_path_factory.mktemp("sandbox")
    for program in PROGRAMS:
        (folder / program).symlink_to(shutil.which(program))
    # The program itself, not a shim such as pyenv's, which needs more programs than these.
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    return folder


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the scripts in another tree, because other tests and the compiler write to the original tree."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".cache").mkdir()
    return root


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_help_only_prints(script, sandbox, copy):
    before = sorted(copy.rglob("*"))
    done = subprocess.run(
        [copy / "scripts" / script.name, "--help"],
        env={"PATH": str(sandbox), "HOME": str(sandbox)},
        cwd=sandbox,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"scripts/{script.name}"), done.stdout
    assert sorted(copy.rglob("*")) == before


def test_the_map_has_every_script():
    listed = re.findall(r"^\| `(\S+?)[` ]", (ROOT / "scripts" / "README.md").read_text(), flags=re.M)
    assert sorted(listed) == [script.name for script in SCRIPTS]
