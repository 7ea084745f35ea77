"""Runs a server with the module under valgrind's memcheck.

Debian's servers allocate from a jemalloc that is a shared library. valgrind replaces it, so it sees all of the module's
blocks. To show that this works, the suite first loads a module that writes one byte too many and leaks a block."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kit import suite, under
from kit.servers import MODULE, ROOT, Server, ServerFailed

# Tests that depend on which commands the server runs, not on how many. The others measure time, restart often, or test
# clients.
FEASIBLE = [
    "commands/test_algebra.py", "commands/test_bulk.py", "commands/test_loadchunk.py", "operations/test_hostile.py",
    "persistence/test_persistence.py",
]  # fmt: skip

# Matches an error. "Possibly lost" blocks don't count: they are the server's strings, to which only interior pointers
# exist.
ERROR = re.compile(
    r"==\d+== (Invalid |Conditional jump|Use of uninit|Syscall param|Mismatched|Argument |Source and dest|Process term"
    r"|[\d,]+ .*bytes in .* definitely lost)"
)

LOGS = Path(tempfile.mkdtemp(prefix="bloomery-valgrind-"))

MEMCHECK = [
    *("valgrind", "--trace-children=yes", "--num-callers=30", f"--log-file={LOGS}/%p.log"),
    *("--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"),
]


def errors() -> list[str]:
    """The new reports. Each is a paragraph in a log."""
    found = []
    logs = {log.stem: log.read_text(errors="replace") for log in LOGS.glob("*.log")}
    for process, text in logs.items():
        reports = [part for part in re.split(r"\n==\d+== \n", text) if ERROR.search(part)]
        # A child that saves has the memory of its parent's threads, but not the threads, so it seems to leak.
        if re.search(r"== Parent PID: (\d+)", text)[1] in logs:
            reports = [report for report in reports if "definitely lost" not in report]
        found += reports
        (LOGS / f"{process}.log").unlink()
    return found


def control(spec) -> None:
    """Checks that valgrind reports a module that writes one byte too many and leaks a block."""
    source, module = Path(__file__).with_name("control.c"), LOGS / "control.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-g", "-O0", "-o", module, source], check=True)
    try:
        Server(spec, module=module).destroy()
    except ServerFailed:
        pass  # the control module refuses to load
    found = errors()
    assert any("Invalid write of size 1" in error for error in found), f"valgrind does not see the blocks: {found}"
    assert any("definitely lost" in error for error in found), f"valgrind does not see the leak: {found}"


def memcheck(spec, arguments) -> str:
    control(spec)
    made = under.tour(spec, arguments.seed, arguments.count)
    found = errors()
    assert not found, "\n\n".join(found)
    figure = f"control reported; {made} filters, {arguments.count:,} random commands"
    if arguments.full:
        tests = [str(ROOT / "tests" / "server" / name) for name in FEASIBLE]
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "kit.under", "--server", spec.name, *tests]
        environment = {**os.environ, "BLOOMERY_UNDER": shlex.join(MEMCHECK)}
        done = subprocess.run(pytest, env=environment, capture_output=True, text=True)
        found = errors()
        assert not found, "\n\n".join(found)
        assert done.returncode == 0, done.stdout[-5000:]
        figure += f"; server tests: {done.stdout.strip().splitlines()[-1]}"
    return f"{figure}; 0 errors, 0 bytes definitely lost"


def main() -> None:
    parser = suite.options("valgrind", __doc__, 200, "random commands")
    parser.add_argument("--full", action="store_true", help=f"and {', '.join(FEASIBLE)} of the server tests")
    if "--server" not in " ".join(sys.argv):
        # One server is enough: the oldest handles memory like the others, and valgrind makes it thirty times slower.
        sys.argv += ["--server", "redis-7.0"]
    under.put_under(MEMCHECK)
    print(f"module {MODULE}", file=sys.stderr)
    try:
        suite.run(memcheck, parser)
    finally:
        shutil.rmtree(LOGS, ignore_errors=True)
