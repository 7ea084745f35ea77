"""Runs programs with node. scripts/test fetches the packages that they need."""

import os
import subprocess
from pathlib import Path

import pytest

from kit.servers import HANG_SECONDS, ROOT

PROGRAMS = ROOT / "tests" / "server" / "clients" / "node"
PACKAGES = ROOT / ".cache" / "node"


def run(words: list, folder: Path, **environment: str) -> str:
    """Runs a program in a folder, and returns what it printed. Fails the test unless its status is 0."""
    assert (PACKAGES / "node_modules").exists(), "the packages for node are missing; scripts/test fetches them"
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=HANG_SECONDS,
        text=True,
    )
    if done.returncode:
        pytest.fail(f"{words[0]} ended with status {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout
