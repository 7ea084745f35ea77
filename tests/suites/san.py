"""Runs a server with a module that AddressSanitizer has instrumented.

The sanitizer's runtime is loaded first, and replaces the server's jemalloc, which is a shared library. So it watches
both the module's blocks, which the server allocates, and the server's own. To show that this works, the suite first
loads a module that writes one byte too many. scripts/san builds everything that the suite needs."""

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
# Reports must include an allocation's whole call stack, including the server's part, which has no frame pointers. The
# suite goes by the reports, not by the exit status.
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
        # For each thread that exists when the server exits, the dynamic loader leaks a table. That isn't our leak.
        found += [part for part in text.split("\n\n") if re.match(r"(Ind|D)irect leak", part) and "bloomery" in part]
    return found


def control(spec) -> None:
    try:
        Server(spec, module=BUILT / "libcontrol.so").destroy()
    except ServerFailed:
        pass  # the control module refuses to load
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
