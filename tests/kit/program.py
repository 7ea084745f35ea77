"""The program `bloomery`: where it is, and how to run it."""

import json
import os
import subprocess
from pathlib import Path

from kit.servers import ROOT

# BLOOMERY_PROGRAM names another build.
PROGRAM = Path(os.environ.get("BLOOMERY_PROGRAM") or ROOT / "target" / "debug" / "bloomery")
MISSING = f"{PROGRAM} is missing; run cargo build -p bloomery-cli"

HANG_SECONDS = 240  # after which the program is considered hung; long, because the machine may be busy with other tests

DONE, NO, USAGE, SERVER, INTERRUPTED = 0, 1, 2, 3, 130


def command(*words, port=None):
    address = ["--url", f"redis://127.0.0.1:{port}"] if port else []
    return [str(PROGRAM), *map(str, words), *address]


def run(*words, port=None, status=DONE, **options):
    """Runs the program, which must exit with this status. Returns its stdout and stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BLOOMERY_")}
    environment |= options.pop("env", {})
    done = subprocess.run(
        command(*words, port=port), capture_output=True, text=True, timeout=HANG_SECONDS, env=environment, **options
    )
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def as_json(*words, **options):
    out, _ = run(*words, "--json", **options)
    return json.loads(out)
