"""A server with the module that AddressSanitizer has instrumented.

The sanitizer's runtime is loaded before everything else, and so takes the place of the server's jemalloc, a shared
library: the module's blocks, which it has from the server, are watched, and so are the server's. That they are is shown
first, by a module that writes a byte too many. scripts/san builds what this needs.
"""

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
# The whole way to an allocation is in its report, through the server, which has no frame pointers. What counts are the
# reports, not the exit status.
OPTIONS = ":".join(
    [
        f"log_path={LOGS}/asan",
        *("detect_leaks=1", "fast_unwind_on_malloc=0", "malloc_context_size=40", "exitcode=0"),
        "allocator_may_return_null=1",
    ]
)


def reports() -> list[str]:
    """The reports since the last time: errors, and leaks of what the module has asked for, each by itself."""
    found = []
    for log in sorted(LOGS.iterdir()):
        text = log.read_text(errors="replace")
        log.unlink()
        if "LeakSanitizer" not in text:
            found.append(text)
        # The loader of programs leaks a table of each thread that is there when the server exits; that is not ours.
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
