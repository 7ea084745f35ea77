"""Filters of every kind, in every state that a filter can have, and snapshots: everything that a client can see of a
filter.

Two filters with the same snapshot count as equal. The tests of persistence, replication and hostile bytes all compare
snapshots, taken before and after, or on two servers.
"""

import dataclasses
import itertools
import time

import redis

HOUR = 3_600_000

# Fields of BF.STATS that don't describe the filter itself. They depend on the clock, the key or the server, or count
# this server's commands since it loaded the filter.
NOT_ITS_OWN = {
    *(b"Next rotation in ms", b"Items forgotten early", b"Advice", b"Memory"),
    *(b"Tests answered yes", b"Tests answered no", b"Adds", b"Deletes", b"Adds refused", b"Feedback"),
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way to reserve a filter. `states` names the `Grower` methods that bring the filter into the states to test."""

    name: str
    capacity: int
    options: str
    states: tuple[str, ...] = ("empty", "one", "full")
    error_rate: str = "0.01"
    # The number of each client's latest items that are certain to be present: a window that is full may drop its oldest
    # generation. None means all accepted items.
    latest: int | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def family(self) -> str:
        """The prefix of the kind's commands."""
        return "CF" if self.name.startswith("cuckoo") else "BF"

    def reservation(self, key: str) -> list:
        command, *words = self.creation(self.capacity, self.error_rate)
        return [command, key, *words]

    def creation(self, capacity: int, error_rate: str) -> list:
        """The command, without the key, that creates a filter of this kind with the given capacity and error rate."""
        promise = [error_rate] if self.family == "BF" else []
        options = self.options.format(since=mid_period()).split()
        return [f"{self.family}.RESERVE", *promise, capacity, *options]


def mid_period() -> int:
    """A time five and a half days ago. A window that started then and rotates daily won't rotate during the tests."""
    return int(time.time() * 1000) - 132 * HOUR


CHAIN = ("empty", "one", "full", "grown")
WINDOW = ("empty", "one", "full", "rotated")
COUNTING = ("empty", "one", "full", "saturated")
TABLE = ("empty", "one", "full", "large")
DELETED = ("empty", "one", "full", "deleted")
COMPACTED = ("empty", "one", "full", "grown", "compacted")

KINDS = [
    Kind("fixed", 500, "NONSCALING"),
    Kind("saturate", 200, "ONFULL SATURATE", ("empty", "one", "full", "overfull")),
    Kind("siphash", 300, "NONSCALING HASH SIPHASH"),
    Kind("blocked", 300, "NONSCALING LAYOUT BLOCKED", error_rate="0.0001"),
    Kind("classic", 300, "NONSCALING LAYOUT CLASSIC", error_rate="0.0001"),
    Kind("partitioned", 300, "NONSCALING LAYOUT PARTITIONED SHARDS 2"),
    Kind("partitioned-scaling", 20, "EXPANSION 2 LAYOUT PARTITIONED", CHAIN),
    Kind("sharded", 2000, "NONSCALING SHARDS 8"),
    Kind("several-chunks", 3_000_000, "NONSCALING", ("one",)),
    Kind("scaling", 20, "EXPANSION 2", ("empty", "one", "full", "overfull", "large")),
    Kind("constant", 20, "EXPANSION 1 HASH SIPHASH LAYOUT CLASSIC", CHAIN),
    Kind("tightening", 20, "EXPANSION 3 TIGHTENING 0.5", CHAIN),
    Kind("counting-4", 300, "COUNTING LAYOUT BLOCKED", COUNTING),
    Kind("counting-8", 300, "COUNTING 8 HASH SIPHASH LAYOUT CLASSIC", COUNTING),
    Kind("counting-16", 300, "COUNTING 16 SHARDS 2 ONFULL SATURATE", COUNTING),
    Kind("table", 20, "LAYOUT QUOTIENT", TABLE),
    Kind("table-fixed", 300, "NONSCALING LAYOUT QUOTIENT HASH SIPHASH"),
    Kind("counting-table", 20, "COUNTING HASH SIPHASH", (*COUNTING, "large", "shrunk")),
    Kind("counting-table-fixed", 300, "COUNTING 8 NONSCALING", COUNTING),
    Kind("window", 100, "WINDOW 4", WINDOW),
    Kind("window-strict", 100, "WINDOW 3 ONFULL ERROR HASH SIPHASH", WINDOW),
    Kind("window-table", 100, "WINDOW 4 LAYOUT QUOTIENT ONFULL ERROR", WINDOW),
    Kind("window-rotate", 100, "WINDOW 2 ONFULL FORGET", (*WINDOW, "overfull"), latest=5),
    Kind("window-ttl", 310, f"TTL {24 * HOUR * 310} HASH SIPHASH", (*WINDOW, "aged")),
    Kind("window-every", 100, f"WINDOW 5 EVERY {24 * HOUR} SINCE {{since}}", WINDOW),
    Kind("cuckoo", 500, "EXPANSION 0", DELETED),
    Kind("cuckoo-siphash", 500, "BUCKETSIZE 4 HASH SIPHASH", DELETED),
    Kind("cuckoo-widest", 2000, "BUCKETSIZE 255 EXPANSION 0", DELETED),
    Kind("cuckoo-several-chunks", 3_000_000, "BUCKETSIZE 4", ("one",)),
    Kind("cuckoo-constant", 20, "EXPANSION 1", COMPACTED),
    Kind("cuckoo-scaling", 20, "BUCKETSIZE 4 MAXITERATIONS 500 EXPANSION 2 HASH SIPHASH", COMPACTED),
    # Six slots at first, which is less than a word, and then twelve, which isn't a whole number of words either.
    Kind("cuckoo-padded", 7, "BUCKETSIZE 3 MAXITERATIONS 1 EXPANSION 2", COMPACTED),
]

BY_NAME = {kind.name: kind for kind in KINDS}
# The kinds whose filters are small in all of their states.
SMALL = [kind for kind in KINDS if kind.capacity <= 2000]


def members(count: int, prefix: str = "member") -> list[str]:
    return [f"{prefix}:{number}" for number in range(count)]


class Grower:
    """Brings a freshly reserved filter into a state."""

    def __init__(self, client, kind: Kind, key: str):
        self.client, self.kind, self.key = client, kind, key
        self.added: list[str] = []

    def add(self, items) -> None:
        for batch in batches(items, 1000):
            self.client.execute_command(*adding(self.kind.family, self.key, batch))
            self.added += batch

    def delete(self, items) -> None:
        with self.client.pipeline(transaction=False) as pipeline:
            for item in items:
                pipeline.execute_command(f"{self.kind.family}.DEL", self.key, item)
            assert set(pipeline.execute()) == {1}

    def empty(self) -> None:
        pass

    def one(self) -> None:
        self.add(members(1))

    def full(self) -> None:
        self.add(members(self.kind.capacity))

    def overfull(self) -> None:
        self.add(members(3 * self.kind.capacity))

    def grown(self) -> None:
        """Adds items until there are at least six layers."""
        for count in itertools.count(1):
            self.add(members(self.kind.capacity, f"grown:{count}"))
            if pairs(self.client.execute_command(f"{self.kind.family}.INFO", self.key))[b"Number of filters"] >= 6:
                return

    def rotated(self) -> None:
        """Rotates more often than there are generations, and leaves one generation empty."""
        for rotation in range(7):
            if rotation != 5:
                self.add(members(20 + rotation, f"rotated:{rotation}"))
            self.client.execute_command("BF.ROTATE", self.key)
        self.add(members(5))

    def saturated(self) -> None:
        """Brings counters to their maximum and just below it, and decrements some counters."""
        most = {"counting-8": 255, "counting-table-fixed": 255, "counting-16": 65_535}.get(self.kind.name, 15)
        self.add(["stuck"] * (most + 2) + ["nearly"] * (most - 1) + ["back"] * 9)
        self.client.execute_command("BF.MDEL", self.key, *["back"] * 5, *["stuck"] * 5)
        self.full()

    def large(self) -> None:
        """Adds items until a table has several leaves."""
        self.add(members(4000))

    def shrunk(self) -> None:
        """Deletes most items of a large table."""
        self.large()
        self.delete(members(4000)[300:])

    def aged(self) -> None:
        """Makes a table large, and rotates it until a part of its items has expired."""
        for rotation in range(50):
            self.add(members(2000 if rotation < 3 else 50, f"rotated:{rotation % 8}"))
            self.client.execute_command("BF.ROTATE", self.key)

    def deleted(self) -> None:
        """Deletes items from a single table. Deletes don't compact it, so the filter's count of deletes isn't reset."""
        self.add(members(100) + ["back"] * 3)
        self.delete(members(20) + ["back"] * 2)

    def compacted(self) -> None:
        """Deletes all but a quarter of the items that made the filter grow. Some of the deletes compact the filter, and
        CF.COMPACT compacts it at the end."""
        self.grown()
        self.delete(item for number, item in enumerate(self.added) if number % 4)
        self.client.execute_command("CF.COMPACT", self.key)


def adding(family: str, key: str, items) -> list:
    """The command that adds several items."""
    return ["BF.MADD", key, *items] if family == "BF" else ["CF.INSERT", key, "ITEMS", *items]


def family(client, key) -> str:
    """The prefix of the filter's commands."""
    try:
        client.execute_command("BF.INFO", key)
    except redis.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return "CF"
    return "BF"


def batches(items, size):
    items = list(items)
    return (items[start : start + size] for start in range(0, len(items), size))


def make_all(client, kinds=KINDS) -> list[str]:
    """Makes a filter of every kind in each of the kind's states. Returns the keys."""
    keys = []
    for kind in kinds:
        for state in kind.states:
            key = f"{kind.name}/{state}"
            assert client.execute_command(*kind.reservation(key)) == b"OK"
            getattr(Grower(client, kind, key), state)()
            keys.append(key)
    return keys


# Items that some filters have, and items that no filter has. Two equal filters answer each of them alike.
PROBES = [
    *members(600),
    *(item for number in range(8) for item in members(30, f"grown:{number}") + members(30, f"rotated:{number}")),
    *("stuck", "nearly", "back"),
    *members(1500, "stranger"),
]


def snapshot(client, key) -> dict:
    """Everything that a client can see of a filter, except what depends on the clock."""
    prefix = family(client, key)
    bloom = prefix == "BF"
    info = pairs(client.execute_command(f"{prefix}.STATS", key))
    answers = client.execute_command(f"{prefix}.MEXISTS", key, *PROBES)
    seen = {
        "digest": client.execute_command("DEBUG", "DIGEST-VALUE", key)[0],
        "info": {name: value for name, value in info.items() if name not in NOT_ITS_OWN},
        "lines": client.execute_command(f"{prefix}.DEBUG", key),
        "answers": bytes(map(int, answers)),
    }
    if bloom:
        seen["card"] = client.execute_command("BF.CARD", key)
        seen["five"] = pairs(client.execute_command("BF.INFO", key))
    if any(b"QUOTIENT" in layer for layer in info.get(b"Layers", ())):  # how much memory a table has to spare depends on its past
        del seen["info"][b"Size"], seen["five"][b"Size"], seen["lines"]
    per_item = {b"counting": "BF.COUNT", b"window": "BF.AGE"}.get(info[b"Kind"]) if bloom else "CF.COUNT"
    if per_item:
        with client.pipeline(transaction=False) as pipeline:
            for item in PROBES[:1000]:
                pipeline.execute_command(per_item, key, item)
            seen[per_item] = pipeline.execute()
    return seen


def snapshots(client, keys) -> dict[str, dict]:
    return {key: snapshot(client, key) for key in keys}


def pieces(client, key, prefix: str) -> list[tuple[int, bytes]]:
    """Runs SCANDUMP from beginning to end. Returns each piece with the iterator that loads it."""
    found = []
    iterator, piece = client.execute_command(f"{prefix}.SCANDUMP", key, 0)
    while iterator:
        found.append((iterator, piece))
        iterator, piece = client.execute_command(f"{prefix}.SCANDUMP", key, iterator)
    assert not piece
    return found


def load_pieces(client, key, prefix: str, found) -> None:
    for iterator, piece in found:
        assert client.execute_command(f"{prefix}.LOADCHUNK", key, iterator, piece) == b"OK"


def pairs(flat: list) -> dict:
    """The map in a RESP2 reply, which is a flat list."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def differences(before: dict[str, dict], after: dict[str, dict]) -> list[str]:
    """A line for each difference between two sets of snapshots."""
    return [
        f"{key}: {part} was {_short(before[key][part])}, is {_short(after.get(key, {}).get(part))}"
        for key in before
        for part in before[key]
        if before[key][part] != after.get(key, {}).get(part)
    ]


def _short(value) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "…"
