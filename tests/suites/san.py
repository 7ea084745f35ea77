"""A server with a module that is instrumented by AddressSanitizer.

The sanitizer's runtime is loaded first, and replaces the server's jemalloc, which is a shared library. So it watches
the module's blocks, which come from the server, and the server's own. First, a module that writes a byte too many shows
that this works. scripts/san builds what this needs. """

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from kit import suite, under
from kit.servers import Server, ServerFailed

BUILT = Path(os.environ["BLOOMERY_ASAN"])
LOGS = Path(tempfile.mkdtemp(prefix="bloomery-asan-"))
# Reports include the whole call stack of an allocation, through the server, which has no frame pointers. The reports
# count, not the exit status.
OPTIONS = ":".join(
    [
        f"log_path={LOGS}/asan",
        *("detect_leaks=1", "fast_unwind_on_malloc=0", "malloc_context_size=40", "exitcode=0"),
        "allocator_may_return_null=1",
    ]
)


def reports() -> list[str]:
    """New reports: errors, and each leak of memory that the module allocated."""
    found = []
    for log in sorted(LOGS.iterdir()):
        text = log.read_text(errors="replace")
        log.unlink()
        if "LeakSanitizer" not in text:
            found.append(text)
        # For each thread that exists when the server exits, the program loader leaks a table; that isn't ours.
        found += [part for part in text.split("\n\n") if re.match(r"(Ind|D)irect leak", part) and "bloomery" in part]
    return found


def control(spec) -> None:
    try:
        Server(spec, module=BUILT / "libcontrol.so").destroy()
    except ServerFailed:
        pass  # it says that it will not load
    found = "\n\n".join(reports())
    assert "heap-buffer-overflow" in found and "RedisModule_OnLoad" in found, f"the control was not reported: {found}"


def san(spec, arguments) -> str:
    control(spec)
    made = under.tour(spec, arguments.seed, arguments.count)
    found = reports()
    assert not found, "\n\n".join(found)
    return f"control reported; {made} filters, {arguments.count:,} random commands; 0 reports"


def main() -> None:
    parser = suite.options("san", __doc__, 5000, "random commands")
    if "--server" not in " ".join(sys.argv):
        sys.argv += ["--server", "redis-7.0"]
    under.put_under(["env", f"LD_PRELOAD={BUILT / 'asan-runtime.so'}", f"ASAN_OPTIONS={OPTIONS}"])
    try:
        suite.run(san, parser)
    finally:
        shutil.rmtree(LOGS, ignore_errors=True)
