"""How long each command holds the main thread, in which time no other client is served.

Every command runs on a filter of 1024 MiB, or of as many as given, with as many items as one command can have. --table
prints every command, as docs/RELIABILITY.md shows them. The time is processor time, and that of the longest hold: a
command in pieces holds the thread many times (kit/holds.py).
"""

import functools
import random
import struct

from kit.commands import COMMANDS
from kit.foreign import ValkeyBloomChain
from kit.holds import Clock, Hold
from kit.servers import option
from kit.suite import Server, options, run

MIB = 1 << 20
BULK = 500 * MIB  # most bytes of one argument, a little below the servers' limit
ARGUMENTS = 1_000_000  # most arguments of one command, about
# What takes no time in proportion to the filter, or to the items of one argument, is over in this time at any size.
SHORT = 0.1
# A CF.DEL compacts all of a filter of RedisBloom's, as RedisBloom does.
LONG = {"BF.BULKTEST", "BF.LOADCHUNK", "CF.LOADCHUNK", "CF.DEL"}


class Bench:
    """Every command, where it takes longest."""

    def __init__(self, server, mib: int, seed: int):
        self.clock, self.random = Clock(server), random.Random(seed)
        self.mib, self.bytes = mib, mib * MIB
        self.capacity = int(self.bytes * 8 / 9.92)  # of 1 %, in blocks
        self.blob = b"".join(self.random.randbytes(4 * MIB) for _ in range(min(BULK, self.bytes // 2) // (4 * MIB)))
        self.items = [self.random.randbytes(8) for _ in range(min(ARGUMENTS, 1000 * mib))]

    def all(self) -> dict[str, Hold]:
        parts = [self.bloom, self.rebuild, self.several, self.counting, self.window, self.pieces, self.imports, self.cuckoo]
        for part in parts:
            part()
            self.clock.quietly("FLUSHALL", "ASYNC")
        return self.clock.holds

    def fill(self, key: str) -> None:
        """So many items that every page of it is in use."""
        self.clock.quietly("BF.BULKADD", key, "FIXED", 8, self.blob[: self.bytes // 16])

    def bloom(self) -> None:
        clock, size, many = self.clock, f"{self.mib} MiB", f"{len(self.items):,} items"
        clock.run(size, "BF.RESERVE", "big", 0.01, self.capacity, "NONSCALING")
        self.fill("big")
        for command in ["BF.ADD", "BF.ADDNX", "BF.EXISTS", "BF.TEST"]:
            for item in self.items[:20]:
                clock.run(size, command, "big", item)
        for command in ["BF.MADD", "BF.MEXISTS", "BF.MTEST"]:
            clock.run(many, command, "big", *self.items)
        clock.run(many, "BF.INSERT", "big", "ITEMS", *self.items[::-1])
        for command in ["BF.CARD", "BF.INFO", "BF.DEBUG"]:
            clock.run(size, command, "big")
        clock.run(size, "BF.FEEDBACK", "big", 1000, 1)
        what = f"{len(self.blob) // 8:,} items in {len(self.blob) // MIB} MiB"
        clock.run(what, "BF.BULKADD", "big", "FIXED", 8, self.blob)
        clock.run(f"{what}, its client waiting", "BF.BULKTEST", "big", "FIXED", 8, self.blob)
        clock.quietly("CONFIG", "SET", option(clock.server.spec, "offload-min-items"), 1 << 40)
        clock.run(f"{what}, the server waiting", "BF.BULKTEST", "big", "FIXED", 8, self.blob)
        clock.run(size, "BF.CLEAR", "big")

    def rebuild(self) -> None:
        """Twice: the first shadow is dropped, the second takes the place of its filter."""
        clock, size = self.clock, f"{self.mib} MiB and as many again"
        clock.quietly("BF.RESERVE", "old", 0.01, self.capacity, "NONSCALING")
        self.fill("old")
        for end in ["ABORT", "COMMIT"]:
            clock.run(f"BEGIN with {size}", "BF.REBUILD", "old", "BEGIN")
            clock.run(f"ADD of {len(self.items):,} items", "BF.REBUILD", "old", "ADD", *self.items)
            clock.run(f"STATUS of {size}", "BF.REBUILD", "old", "STATUS")
            clock.run(f"{end} of {size}", "BF.REBUILD", "old", end)

    def several(self) -> None:
        clock, size = self.clock, f"filters of {self.mib} MiB"
        clock.quietly("BF.RESERVE", "a", 0.01, self.capacity, "NONSCALING")
        clock.quietly("BF.RESERVE", "b", 0.01, self.capacity, "LIKE", "a")
        self.fill("a")
        self.fill("b")
        clock.run(size, "BF.EQUAL", "a", "b")
        clock.run(size, "BF.INTERSECT", "c", "a", "b")
        clock.quietly("UNLINK", "c")
        clock.run(size, "BF.MERGE", "c", "a", "b")
        clock.run(size, "BF.MERGE", "a", "b")

    def counting(self) -> None:
        clock, size = self.clock, f"{self.mib} MiB"
        clock.quietly("BF.RESERVE", "counts", 0.01, self.capacity // 5, "COUNTING")
        clock.quietly("BF.MADD", "counts", *self.items)
        for item in self.items[:20]:
            clock.run(size, "BF.COUNT", "counts", item)
            clock.run(size, "BF.DEL", "counts", item)
        clock.run(f"{len(self.items):,} items", "BF.MDEL", "counts", *self.items)

    def window(self) -> None:
        clock, size = self.clock, f"{self.mib} MiB in 2 generations"
        clock.quietly("BF.RESERVE", "window", 0.01, int(self.capacity * 0.42), "WINDOW", 2)
        self.fill("window")
        for item in self.items[:20]:
            clock.run(size, "BF.AGE", "window", item)
        clock.run(size, "BF.ROTATE", "window")
        self.fill("window")
        clock.run(size, "BF.ROTATE", "window")
        clock.run(size, "BF.ROTATE", "window")

    def pieces(self) -> None:
        clock, size = self.clock, f"{self.mib} MiB"
        clock.quietly("BF.RESERVE", "source", 0.01, self.capacity, "NONSCALING")
        self.fill("source")
        iterator, piece = clock.run("the head", "BF.SCANDUMP", "source", 0)
        found = []
        while iterator:
            found.append((iterator, piece))
            scan = clock.quietly if len(found) > 5 else functools.partial(clock.run, "a piece")
            iterator, piece = scan("BF.SCANDUMP", "source", iterator)
        for iterator, piece in found[:-1]:
            clock.quietly("BF.LOADCHUNK", "target", iterator, piece)
        clock.run(f"the last piece of {size}", "BF.LOADCHUNK", "target", *found[-1])

    def imports(self) -> None:
        clock = self.clock
        longs = (len(self.blob) - 16) // 8
        guava = struct.pack(">BBI", 1, 7, longs) + self.blob[: longs * 8]
        clock.run(f"{len(guava) // MIB} MiB", "BF.IMPORT", "guava", "GUAVA", guava)
        clock.quietly("SET", "bits", self.blob)
        clock.run(f"{len(self.blob) // MIB} MiB", "BF.IMPORT", "gozero", "GOZERO", "bits", "BITS", len(self.blob) * 8)
        chain = ValkeyBloomChain(int(len(self.blob) * 0.8), 0.01, 0.5, 0, bytes(32))
        payload = chain.payload()
        clock.run(f"{len(payload) // MIB} MiB", "BF.LOAD", "valkey", payload)

    def cuckoo(self) -> None:
        clock, size, many = self.clock, f"{self.mib} MiB", f"{len(self.items):,} items"
        clock.run(size, "CF.RESERVE", "cuckoo", self.bytes, "BUCKETSIZE", 4)
        for command in ["CF.INSERT", "CF.INSERTNX"]:
            clock.run(many, command, "cuckoo", "ITEMS", *self.items)
        clock.run(many, "CF.MEXISTS", "cuckoo", *self.items)
        for item in self.items[:20]:
            for command in ["CF.ADD", "CF.ADDNX", "CF.EXISTS", "CF.COUNT"]:
                clock.run(size, command, "cuckoo", item)
        for command in ["CF.INFO", "CF.DEBUG"]:
            clock.run(size, command, "cuckoo")
        clock.quietly("UNLINK", "cuckoo")
        self.two_tables("large", self.bytes)
        clock.run(f"{size} in 2 sub-filters", "CF.COMPACT", "large")
        clock.quietly("UNLINK", "large")
        for mib in [4, self.mib]:  # the largest that compacts by itself, and one that does not
            self.two_tables("deletes", mib * MIB)
            item = next(item for item in self.items if clock.quietly("CF.EXISTS", "deletes", item))
            clock.run(f"{mib} MiB in 2 sub-filters, due for compaction", "CF.DEL", "deletes", item)
            clock.quietly("UNLINK", "deletes")

    def two_tables(self, key: str, size: int) -> None:
        """A cuckoo filter of two sub-filters, the older a quarter full, the newer half, and due for compaction."""
        clock, table = self.clock, size // 2
        sparse = [self.part(0.25, table), self.part(0.5, table)]
        part = len(sparse[0])
        head = struct.pack("<QQQQHHH", table // 4, table // 4, table, 2, 4, 20, 1)
        clock.run("the head", "CF.LOADCHUNK", key, 1, head)
        for end in range(part, 2 * table, part):
            clock.run(f"a piece of {part // MIB} MiB", "CF.LOADCHUNK", key, end + 1, sparse[end > table])
        clock.run(f"the last piece of {size // MIB} MiB", "CF.LOADCHUNK", key, 2 * table + 1, sparse[1])
        clock.run("a piece", "CF.SCANDUMP", key, 1)

    def part(self, fill: float, most_bytes: int) -> bytes:
        """Slots, some of them full."""
        most = int(256 * fill)
        return self.random.randbytes(min(16 * MIB, most_bytes)).translate(
            bytes(1 + byte * 254 // most if byte < most else 0 for byte in range(256))
        )


def latency(spec, arguments) -> str:
    with Server(spec, config={"proto-max-bulk-len": "512mb", "client-query-buffer-limit": "2gb"}) as server:
        holds = Bench(server, arguments.count, arguments.seed).all()
        server.check()
    missing = {command.name for command in COMMANDS} - holds.keys()
    assert not missing, f"not measured: {', '.join(sorted(missing))}"
    if arguments.table:
        for command, hold in holds.items():
            print(f"| {command} | {hold.what} | {1000 * hold.seconds:.1f} ms |")
    slow = {command: hold for command, hold in holds.items() if command not in LONG and hold.seconds > SHORT}
    assert not slow, f"held the main thread for more than {1000 * SHORT:.0f} ms: {slow}"
    longest = max(holds, key=lambda command: holds[command].seconds)
    short = max(hold.seconds for command, hold in holds.items() if command not in LONG)
    return (
        f"{len(holds)} commands at {arguments.count} MiB: longest {longest} {holds[longest].seconds:.2f} s "
        f"({holds[longest].what}); the {len(holds.keys() - LONG)} of fixed work at most {1000 * short:.1f} ms"
    )


def main() -> None:
    parser = options("latency", __doc__, 1024, "MiB of cells")
    parser.add_argument("--table", action="store_true", help="print every command")
    run(latency, parser)
