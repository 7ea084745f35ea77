"""Stops a server's workers while its other threads run, as a debugger would.

A test that needs a busy worker stops the worker instead, and so doesn't depend on timing. The server is a child of the
test's process, so Linux allows the test to trace it.
"""

import ctypes
import os
import re
import time
from pathlib import Path

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
ANY_THREAD = 0x40000000  # __WALL

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def trace(request: int, thread: int):
    if LIBC.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def workers(server, name: str = r"bloomery-\d+") -> list[int]:
    """The threads of a server's pool, whose names are numbered, or those with another name."""
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    return [int(task.name) for task in tasks if re.fullmatch(name + "\n", (task / "comm").read_text())]


def wait_until_asleep(server, thread: int) -> None:
    """Waits a moment for a worker to become idle. A worker that is stopped while busy might hold an allocator lock, and
    INFO would wait for it."""
    stat = Path(f"/proc/{server.process.pid}/task/{thread}/stat")
    for _ in range(200):
        if stat.read_text().rsplit(")", 1)[1].split()[0] == "S":
            return
        time.sleep(0.001)


class Still:
    """A server's workers, or its threads of another name, which are stopped until `go_on`. All calls must come from the
    same thread of the test."""

    def __init__(self, server, *name: str):
        self.threads = workers(server, *name)
        for thread in self.threads:
            wait_until_asleep(server, thread)
            trace(SEIZE, thread)
            trace(INTERRUPT, thread)
            os.waitpid(thread, ANY_THREAD)

    def go_on(self):
        for thread in self.threads:
            trace(DETACH, thread)
        self.threads = []
