"""The method of measurement: every side gets the same commands in every round, and what counts is the CPU time of its
server.

The sides are servers of the same version, all on one core, and this program runs on another core. The first side is the
rival, and the second is Bloomery. The third side is Bloomery again: the ratio of its cost to that of the second side is
the noise of the run. A row's ratio, of the rival's cost to Bloomery's, is the median over the rounds.
"""

import contextlib
import dataclasses
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hiredis

from kit.servers import HANG_SECONDS, MODULE, Server, Spec

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = {CORES[0]}, {CORES[-1]}
PRIORITY = -10  # nice value of servers and client, if permitted, so that other programs on the machine wait
NOISE = 0.97  # a ratio of times may be lower than its target by this factor


class Wrong(Exception):
    """The measurement means nothing: a reply is an error, the sides disagree, or a row wasn't measured."""


@dataclasses.dataclass(frozen=True)
class Row:
    """Something that people do with filters. A target of 1 means as fast, or as small, as the rival."""

    name: str
    target: float
    make: Callable = None  # given a round's number, returns the commands to send first, and those to measure
    items: int = 1  # number of items in a round's measured commands
    alike: Callable = None  # given the rival's replies and ours, returns whether they agree well enough

    def result(self, series: "Series") -> dict:
        ratios = series.ratios()
        ratio = statistics.median(ratios)
        # A row without a control is about memory, which has no noise.
        allowed = self.target * (NOISE if series.control else 1)
        return {
            "row": self.name,
            "rival": statistics.median(series.rival),
            "ours": statistics.median(series.ours),
            "ratio": ratio,
            "least": min(ratios),
            "most": max(ratios),
            "target": self.target,
            "met": ratio >= allowed,
            "noise": series.noise() if series.control else None,
        }


@dataclasses.dataclass
class Series:
    """The values of each side, one for each round."""

    rival: list[float]
    ours: list[float]
    control: list[float] = dataclasses.field(default_factory=list)

    def ratios(self) -> list[float]:
        return [rival / ours for rival, ours in zip(self.rival, self.ours, strict=True)]

    def noise(self) -> float:
        """The median of the control's values divided by ours: 1 on a machine without noise."""
        return statistics.median(control / ours for control, ours in zip(self.control, self.ours, strict=True))


@dataclasses.dataclass(frozen=True)
class Topic:
    """The rows of one table. `run` returns the series of each row, by the row's name."""

    name: str
    title: str
    unit: str
    rows: list[Row]
    run: Callable
    rival: str = "RedisBloom"

    def result(self, found: dict[str, Series]) -> list[dict]:
        """Returns every row with its measurements. A row that wasn't measured is an error."""
        if missing := [row.name for row in self.rows if row.name not in found or not found[row.name].rival]:
            raise Wrong(f"{self.name}: not measured: {missing}")
        return [row.result(found[row.name]) for row in self.rows]


@dataclasses.dataclass(frozen=True)
class Scale:
    """Sizes of a run."""

    items: int  # in a round of commands with one item each; rows of slow commands have fewer
    sizes: dict[str, int]  # names of filters, and their numbers of items
    many: int  # items in the largest commands
    most: int  # items in the largest filter that grows
    default_filters: int
    memory: str  # maxmemory when filters of the default size are evicted
    requests: int  # of redis-benchmark


SIZES = {"100": 100, "10k": 10_000, "100k": 100_000, "1M": 1_000_000}
WHOLE = Scale(20_000, SIZES, 100_000, 10_000_000, 1_000_000, "60mb", 20_000)
FULL = dataclasses.replace(WHOLE, sizes={**SIZES, "100M": 100_000_000})
QUICK = Scale(4_000, SIZES, 20_000, 100_000, 20_000, "10mb", 5_000)
# Only to check that everything runs: the numbers mean nothing.
SMOKE = Scale(1_000, dict(zip(SIZES, (100, 1_000, 2_000, 4_000))), 2_000, 10_000, 1_000, "3mb", 1_000)


class Side:
    """A server with a module, and a pipelined connection to it."""

    def __init__(self, name: str, server: Server, cores=SERVER_CORE):
        self.name, self.server, self.cores = name, server, cores
        self.connect()

    def connect(self) -> None:
        """Connects to the server, for the first time or after a restart."""
        settle(self.server, self.cores)
        self.socket = socket.create_connection(("127.0.0.1", self.server.port), timeout=HANG_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, requests: list[bytes]) -> list:
        """Sends commands and returns their replies, which it reads while it is sending. No reply may be an error."""
        if not requests:
            return []
        reader, replies = hiredis.Reader(), []
        sending = threading.Thread(target=self.socket.sendall, args=[b"".join(requests)])
        sending.start()
        while len(replies) < len(requests):
            received = self.socket.recv(1 << 18)
            if not received:
                raise Wrong(self.server.explain("closed the connection"))
            reader.feed(received)
            while (reply := reader.gets()) is not False:
                replies.append(reply)
        sending.join()
        for reply in flat(replies):
            if isinstance(reply, hiredis.ReplyError):
                raise Wrong(f"{self.name} replied {reply}")
        return replies

    def cost(self, requests: list[bytes]) -> tuple[int, list]:
        """Sends commands. Returns nanoseconds of CPU time of all the server's threads, and the replies."""
        before = cpu(self.server)
        replies = self.ask(requests)
        # On a busy machine, the kernel may add a short row's time later. A cost of 0 would have no ratio.
        return max(cpu(self.server) - before, 1), replies


@dataclasses.dataclass(frozen=True)
class Bench:
    """What every topic gets when it runs."""

    spec: Spec
    scale: Scale
    rounds: int
    rival: Path

    @contextlib.contextmanager
    def sides(self, *, config=None, rival=None, cores=SERVER_CORE) -> Iterator[list[Side]]:
        """Starts three servers: one with the rival's module, one with ours, and one with ours again as the control."""
        modules = [rival or self.rival, MODULE, MODULE]
        config = {"proto-max-bulk-len": "1gb", **(config or {})}
        with contextlib.ExitStack() as stack:
            yield [
                Side(name, stack.enter_context(Server(self.spec, config=config, module=module)), cores)
                for name, module in zip(("rival", "ours", "control"), modules)
            ]


def tasks(server: Server) -> list[Path]:
    return list(Path(f"/proc/{server.process.pid}/task").iterdir())


def settle(server: Server, cores=SERVER_CORE) -> None:
    """Puts a server on these cores. Threads and processes that it starts later inherit them."""
    for task in tasks(server):
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            place(int(task.name), cores)


def place(thread: int, cores: set[int]) -> None:
    """Puts a thread (0 is this one) on these cores, and gives it priority over other programs, if permitted."""
    os.sched_setaffinity(thread, cores)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, thread, PRIORITY)


def cpu(server: Server) -> int:
    """Nanoseconds of processor time that all threads of the server have used. Waits until they sleep: while a thread
    runs, the kernel adds to its time only every 4 ms, which is longer than some rows take."""
    deadline = time.monotonic() + 0.1
    while any(map(runs, tasks(server))) and time.monotonic() < deadline:
        time.sleep(0.0001)
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks(server))


def runs(task: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    return False


def encode(*words) -> bytes:
    """A command as it is sent."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def flat(reply) -> Iterator:
    """Flattens arrays, however deep they are."""
    if isinstance(reply, list):
        for part in reply:
            yield from flat(part)
    else:
        yield reply


def same(rival: list, ours: list) -> bool:
    return rival == ours


def about(share: float, among: int | None = None) -> Callable:
    """Returns a check that at most about this share of the answers differ. Some do, since each side has its own false
    positives. If there are only `among` different items, answers repeat, so the share varies more."""

    def alike(rival: list, ours: list) -> bool:
        pairs = list(zip(flat(rival), flat(ours), strict=True))
        expected, again = share * len(pairs), max(len(pairs) / (among or len(pairs)), 1)
        return sum((theirs or 0) != (mine or 0) for theirs, mine in pairs) <= expected + 5 * (expected * again) ** 0.5

    return alike


def form(rival, ours) -> bool:
    """Checks that both replies have the same types in the same places. Sizes and bytes of filters may differ between
    the sides."""
    if isinstance(rival, list) and isinstance(ours, list):
        return len(rival) == len(ours) and all(map(form, rival, ours))
    return type(rival) is type(ours)


def alternate(bench: Bench, sides: list[Side], row: Row) -> Series:
    """Runs a row on all sides in each round, after a round that warms up and isn't counted."""
    series = Series([], [], [])
    for number in range(bench.rounds + 1):
        before, measured = row.make(number)
        # All sides get the same commands, unless the rival needs different ones.
        theirs, mine = measured if isinstance(measured, tuple) else (measured, measured)
        turn = number % len(sides)
        order = sides[turn:] + sides[:turn]
        replies = {}
        for side in order if number % 2 else reversed(order):
            side.ask(before)
            ns, replies[side.name] = side.cost(theirs if side.name == "rival" else mine)
            if number:
                getattr(series, side.name).append(ns / row.items)
        for name in ("ours", "control"):
            if not row.alike(replies["rival"], replies[name]):
                raise Wrong(f"{row.name}: the sides disagree: {disagreement(replies['rival'], replies[name])}")
    return series


def disagreement(rival: list, ours: list) -> str:
    pairs = list(zip(flat(rival), flat(ours)))
    unlike = [pair for pair in pairs if pair[0] != pair[1]]
    return f"{len(unlike)} of {len(pairs)} answers differ, such as {str(unlike[:1])[:300]}"
