"""examples/clients: the same short session in every popular client. test_clients.py and test_node_redis.py test the
methods that some clients have for these commands. A program whose client isn't installed is skipped. After
scripts/clients has installed all clients, no program may be skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kit.servers import ROOT

pytestmark = pytest.mark.every_server("clients talk to the server, which converts the module's replies")

PROGRAMS = ROOT / "examples" / "clients"
PAGE = ROOT / "docs" / "CLIENTS.md"

# Where scripts/clients installs clients: a folder for each version of a PyPI package, and folders for npm packages.
INSTALLED = ROOT / ".cache" / "clients"

# What each program prints. Adding ada adds one item. Of ada and grace, one is new. Of ada and barbara, the first is
# present: a bitmap with only its first bit set is 80 in hexadecimal. In the end, there are two items.
SAYS = "1 1 80 2\n"


def pythons(program: str) -> list[tuple[str, list]]:
    """A name and a command for each installed version of the package that the program's first line names."""
    package = re.match(r"# pip install (\S+)\n", (PROGRAMS / program).read_text())[1]
    found = [(path.name, [path / "bin" / "python", PROGRAMS / program]) for path in INSTALLED.glob(f"{package}-[0-9]*")]
    is_ours = package in ("redis", "valkey")  # packages that the tests themselves need
    return found or [(package, [sys.executable, PROGRAMS / program] if is_ours else [])]


def node(program: str) -> list[tuple[str, list]]:
    """A name and a command for each installed version of the package that the program's first line names. Node.js
    searches for modules next to the program, so the command runs a copy of the program beside the modules."""
    package = re.match(r"// npm install (\S+)\n", (PROGRAMS / program).read_text())[1]
    folders = [path for path in INSTALLED.glob("npm*") if (path / "node_modules" / package).exists()]
    return [(f"{package} {folder.name}", ["node", folder / program]) for folder in folders] or [(package, [])]


def cases() -> list:
    found = []
    for path in sorted(PROGRAMS.iterdir()):
        match path.suffix:
            case ".py":
                found += [(path.name, *case) for case in pythons(path.name)]
            case ".mjs":
                found += [(path.name, *case) for case in node(path.name)]
            case ".php" | ".rb" | ".pl" | ".lua" | ".go" | ".c":
                run = {".php": "php", ".rb": "ruby", ".pl": "perl", ".lua": "lua5.1", ".go": "go", ".c": "cc"}[path.suffix]
                has = shutil.which(run) and is_installed(path.suffix, path.stem)
                found.append((path.name, run, [run, path] if has else []))
            case _:
                raise AssertionError(f"{path} isn't a program that this test knows")
    return found


def is_installed(suffix: str, stem: str) -> bool:
    """Whether the client's library is installed where Debian puts it."""
    asks = {
        ".php": ["php", "-r", "exit(class_exists('Redis') && stream_resolve_include_path('Predis/autoload.php') ? 0 : 1);"],
        ".rb": ["ruby", "-e", "require 'redis'"],
        ".pl": ["perl", "-MRedis", "-e", "1"],
        ".lua": ["lua5.1", "-e", "require 'redis'"],
        ".go": ["test", "-d", "/usr/share/gocode/src/github.com/gomodule/redigo"],
        ".c": ["test", "-f", "/usr/include/hiredis/hiredis.h"],
    }
    return subprocess.run(asks[suffix], capture_output=True).returncode == 0


def built(command: list, folder: Path) -> list:
    """Compiles or copies the program if that is necessary, and returns the command that runs it."""
    run, source, program = command[0], command[1], folder / "program"
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(folder)}
    if run == "go":
        subprocess.run(["go", "build", "-o", program, source], check=True, env=environment)
    elif run == "cc":
        subprocess.run(["cc", source, "-lhiredis", "-o", program], check=True)
    elif run == "node":
        shutil.copy(PROGRAMS / source.name, source)
        return command
    else:
        return command
    return [program]


@pytest.mark.parametrize("program, client, command", cases(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_session(server, tmp_path, program, client, command):
    if not command:
        assert "BLOOMERY_ALL_CLIENTS" not in os.environ, f"the client of {program} is missing"
        pytest.skip(f"the client of {program} is not installed; scripts/clients does it")
    words = [*built(command, tmp_path), str(server.port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, SAYS), done.stdout + done.stderr


def test_the_page_shows_the_programs():
    """The page links to every program. Each block of code on the page is a whole program."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)
    programs = [path.read_text() for path in PROGRAMS.iterdir()]
    linked = set(re.findall(r"\(\.\./examples/clients/([\w.]+)\)", PAGE.read_text()))
    assert linked == {path.name for path in PROGRAMS.iterdir()}
    assert blocks and all(block in programs for block in blocks)
