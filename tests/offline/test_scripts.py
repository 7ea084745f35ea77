"""The scripts: `--help` prints a manual and does nothing else, and scripts/README.md lists all of them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and os.access(path, os.X_OK))
# All that a script needs to find itself and to print the comment at its head.
PROGRAMS = ["bash", "dirname", "mkdir", "python3", "sed"]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory) -> Path:
    """A folder to be the PATH and the home: without cargo, apt and servers."""
    folder = tmp_path_factory.mktemp("sandbox")
    for program in PROGRAMS:
        (folder / program).symlink_to(shutil.which(program))
    return folder


def files() -> str:
    """What git sees in the tree, what it ignores included."""
    words = ["git", "status", "--porcelain", "--ignored"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_help_only_prints(script, sandbox):
    before = files()
    environment = {"PATH": str(sandbox), "HOME": str(sandbox)}
    done = subprocess.run(
        [script, "--help"], env=environment, cwd=sandbox, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"scripts/{script.name}"), done.stdout
    assert files() == before


def test_the_map_has_every_script():
    listed = re.findall(r"^\| `(\S+?)[` ]", (ROOT / "scripts" / "README.md").read_text(), flags=re.M)
    assert sorted(listed) == [script.name for script in SCRIPTS]
