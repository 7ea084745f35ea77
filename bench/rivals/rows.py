"""The rows of most topics: the commands to measure, on filters of every size, and those that prepare the filters."""

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator

import xxhash

from kit.servers import MODULE
from rivals.measure import Bench, Row, Scale, Series, Side, Topic, about, alternate, encode, form, same

RATE = 0.01
ABSENT = 500_000_000_000  # the first number whose item is in no filter
WIDTH = 17  # bytes of an item unless a row says otherwise

# Commands and their numbers of items: tests, adds of items that are new, and adds of items that are present.
TESTS = {
    family: [(f"{family}.EXISTS", 1), (f"{family}.MEXISTS", 10), (f"{family}.MEXISTS", 1000)] for family in ("BF", "CF")
}
NEW = {
    "BF": [("BF.ADD", 1), ("BF.MADD", 10), ("BF.MADD", 1000), ("BF.INSERT", 10)],
    "CF": [("CF.ADD", 1), ("CF.INSERT", 10), ("CF.INSERT", 1000)],
}
OLD = {
    "BF": NEW["BF"],
    "CF": [("CF.ADDNX", 1), ("CF.INSERTNX", 10), ("CF.INSERTNX", 1000)],
}

# Targets by command and number of items. The target of all other commands is 1: no slower than the rival.
TARGETS = {
    ("BF.EXISTS", 1): 1.2,
    ("BF.ADD", 1): 1.2,
    ("BF.MEXISTS", 10): 1.5,
    ("BF.MADD", 10): 1.5,
    ("BF.INSERT", 10): 1.5,
    ("BF.MEXISTS", 1000): 2.5,
    ("BF.MADD", 1000): 2.5,
    ("CF.MEXISTS", 10): 1.5,
    ("CF.MEXISTS", 1000): 1.5,
}

# The share of answers about absent items that may differ, because both sides have false positives: for a Bloom filter
# at RATE, and for a cuckoo filter of one sub-filter.
UNLIKE = {"BF": 0.03, "CF": 0.05}
UNLIKE_CHAIN = 0.3  # for a cuckoo filter of ten sub-filters


# ---- items and commands ---------------------------------------------------------------------------------------------


def item(number: int, width: int = WIDTH) -> bytes:
    return b"item:%0*d" % (width - 5, number)


def present(round: int, count: int, among: int) -> list[int]:
    return random.Random(round).choices(range(among), k=count)


def absent(round: int, count: int, among: int) -> list[int]:
    return [number + ABSENT for number in present(round, count, among)]


def requests(command: str, key, numbers, group: int = 1, *, options=(), width: int = WIDTH) -> list[bytes]:
    """Commands for the items with these numbers, with `group` items in each."""
    head = [command, key, *options, *(["ITEMS"] if "INSERT" in command else [])]
    items = [item(number, width) for number in numbers]
    return [encode(*head, *items[start : start + group]) for start in range(0, len(items), group)]


def call(script: str, *words) -> bytes:
    """A command that calls a script by its hash, as clients do. The server must already have the script."""
    return encode("EVALSHA", hashlib.sha1(script.encode()).hexdigest(), *words)


def load(*scripts: str) -> list[bytes]:
    return [encode("SCRIPT", "LOAD", script) for script in scripts]


def reserve(family: str, key, capacity: int) -> bytes:
    """A command that makes a filter with room for this number of items. A cuckoo filter gets a larger capacity, because
    some of its buckets fill up before all slots are used."""
    return encode("BF.RESERVE", key, RATE, capacity) if family == "BF" else encode("CF.RESERVE", key, capacity * 5 // 4)


def fill(family: str, key, numbers: range, width: int = WIDTH) -> Iterator[bytes]:
    command = "BF.MADD" if family == "BF" else "CF.INSERT"
    for start in range(0, len(numbers), 1000):
        yield from requests(command, key, numbers[start : start + 1000], 1000, width=width)


def both(size: int) -> Iterator[bytes]:
    """Commands that make and fill a Bloom filter at the key BF and a cuckoo filter at the key CF."""
    for family in ("BF", "CF"):
        yield reserve(family, family, size)
        yield from fill(family, family, range(size))


class Fresh:
    """Commands that add new items to filters for `capacity` items, which contain `filled` items at first. When a filter
    is full, another one is made."""

    def __init__(self, family: str, capacity: int, filled: int | None = None):
        self.family, self.capacity = family, capacity
        self.filled = capacity // 2 if filled is None else filled
        self.left, self.key, self.keys = 0, None, itertools.count()
        self.next = itertools.count(capacity)

    def add(self, command: str, group: int, count: int, **options) -> tuple[list, list]:
        """Returns commands that make filters, and commands that add `count` items to them."""
        before, measured = [], []
        for _ in range(count // group):
            if self.left < group:
                self.key = f"fresh:{self.family}:{self.capacity}:{self.filled}:{next(self.keys)}"
                self.left = max(self.capacity - self.filled, group)
                before.append(reserve(self.family, self.key, self.capacity))
                before += fill(self.family, self.key, range(self.filled))
            self.left -= group
            measured += requests(command, self.key, itertools.islice(self.next, group), group, **options)
        return before, measured


def times(command: str, group: int) -> str:
    return command if group == 1 else f"{command} ×{group}"


def row(name: str, target: float, count: int, measured: Callable, alike=same) -> Row:
    """A row that needs no commands before it."""
    return Row(name, target, lambda round: ([], measured(round)), count, alike)


def tested(command, group, key, size, mix, count, target, alike) -> Row:
    """A row of commands whose items are all in a filter of `size` items, or all absent, as `mix` says."""
    numbers = present if mix == "present" else absent
    return row(
        f"{times(command, group)}, {mix}",
        target,
        count,
        lambda round: requests(command, key, numbers(round, count, size), group),
        alike,
    )


# ---- by the size of the filter --------------------------------------------------------------------------------------


def of_size(family: str, label: str, scale: Scale) -> Topic:
    """Tests, adds, deletes and counts on a filter of this size, with one item, ten and a thousand per command."""
    size = scale.sizes[label]
    about_size = about(UNLIKE[family], size)
    fresh = Fresh(family, size)

    def rows() -> Iterator[Row]:
        for command, group in TESTS[family]:
            yield asked(command, group, "present", same)
            yield asked(command, group, "absent", about_size)
        for command, group in NEW[family]:
            yield added(command, group)
        for command, group in OLD[family]:
            yield asked(command, group, "present", same)
        if family == "CF":
            yield added("CF.ADDNX", 1)
            yield asked("CF.COUNT", 1, "present", about_size)
            yield deleted()

    def asked(command, group, mix, alike) -> Row:
        target = TARGETS.get((command, group), 1.0)
        return tested(command, group, "filled", size, mix, amount(scale, group), target, alike)

    def added(command, group) -> Row:
        count, target = amount(scale, group), TARGETS.get((command, group), 1.0)
        alike = same if command in ("CF.ADD", "CF.INSERT") else about(UNLIKE[family])
        # A thousand items exceed the capacity of a small filter, so both sides grow.
        return Row(f"{times(command, group)}, new", target, lambda _: fresh.add(command, group, count), count, alike)

    def deleted() -> Row:
        def make(_):
            before, measured = fresh.add("CF.DEL", 1, scale.items)
            # The items to delete are added first, by the same requests with another command.
            return before + [request.replace(b"CF.DEL", b"CF.ADD") for request in measured], measured

        return Row("CF.DEL", 1.0, make, scale.items, same)

    kind = "Bloom" if family == "BF" else "Cuckoo"
    title = f"{kind} filter of {size:,} items"
    filled = itertools.chain([reserve(family, "filled", size)], fill(family, "filled", range(size)))
    return topic(f"{family}-{label}", title, rows(), filled)


def grown(scale: Scale) -> Topic:
    """Tests of filters that were created by their first add, and that have grown since."""
    sizes = {"BF": scale.sizes["1M"] // 10, "CF": scale.sizes["10k"]}

    def rows() -> Iterator[Row]:
        for family, size in sizes.items():
            about_size = about(UNLIKE["BF"] if family == "BF" else UNLIKE_CHAIN, size)
            for command, group in (TESTS[family][0], TESTS[family][2]):
                yield tested(command, group, family, size, "present", scale.items, 1.0, same)
                yield tested(command, group, family, size, "absent", scale.items, 1.0, about_size)

    filled = (request for family, size in sizes.items() for request in fill(family, family, range(size)))
    return topic("grown", "Filters that grew from the default: BF to 100,000 items, CF to 10,000", rows(), filled)


def widths(scale: Scale) -> Topic:
    """Items from 10 bytes to 16 KiB, in filters of 10,000 items."""
    size = scale.sizes["10k"]
    widths = {"10 B": 10, "100 B": 100, "1 KiB": 1024, "16 KiB": 16384}
    fresh = {family: Fresh(family, size) for family in ("BF", "CF")}

    def rows() -> Iterator[Row]:
        for label, width in widths.items():
            count = max(scale.items // max(width // 100, 1) // 10 * 10, 100)
            for command, group in (("BF.EXISTS", 1), ("BF.MEXISTS", 10), ("CF.EXISTS", 1)):
                yield asked(label, width, command, group, count)
            for command in ("BF.ADD", "CF.ADD"):
                yield added(label, width, command, count)

    def asked(label, width, command, group, count) -> Row:
        def measured(round):
            numbers = present(round, count, 2 * size)
            return requests(command, f"{command[:2]}:{width}", numbers, group, width=width)

        name, target = f"{times(command, group)}, {label}", TARGETS.get((command, group), 1.0)
        return row(name, target, count, measured, about(UNLIKE[command[:2]], size))

    def added(label, width, command, count) -> Row:
        family, target = command[:2], TARGETS.get((command, 1), 1.0)
        return Row(
            f"{command}, {label}",
            target,
            lambda _: fresh[family].add(command, 1, count, width=width),
            count,
            about(UNLIKE[family]),
        )

    def filled() -> Iterator[bytes]:
        for width in widths.values():
            for family in ("BF", "CF"):
                yield reserve(family, f"{family}:{width}", size)
                yield from fill(family, f"{family}:{width}", range(size), width)

    title = "Items of 10 bytes to 16 KiB, filters of 10,000; tests of items half of which are absent, adds of new ones"
    return topic("items", title, rows(), filled())


def ways(scale: Scale) -> Topic:
    """Commands in transactions and scripts, with ten items in each."""
    size = scale.sizes["10k"]
    each = "for i = 2, #ARGV do ARGV[i] = redis.call(ARGV[1], KEYS[1], ARGV[i]) end return ARGV"
    all_at_once = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"
    groups = range(0, scale.items, 10)

    def numbers(round: int, command: str) -> list[int]:
        return present(round, scale.items, 2 * size if "EXISTS" in command else size)

    def transaction(command: str) -> Callable:
        def measured(round):
            inside = requests(command, command[:2], numbers(round, command))
            parts = [[encode("MULTI"), *inside[start : start + 10], encode("EXEC")] for start in groups]
            return list(itertools.chain(*parts))

        return measured

    def script(text: str, command: str) -> Callable:
        def measured(round):
            items = [item(number) for number in numbers(round, command)]
            return [call(text, 1, command[:2], command, *items[start : start + 10]) for start in groups]

        return measured

    def rows() -> Iterator[Row]:
        for command in ("BF.EXISTS", "BF.ADD", "CF.EXISTS", "CF.ADDNX"):
            yield row(f"MULTI, 10 {command}", 1.0, scale.items, transaction(command), about(UNLIKE[command[:2]], size))
            yield row(f"Lua, 10 {command}", 1.0, scale.items, script(each, command), about(UNLIKE[command[:2]], size))
        for command in ("BF.MEXISTS", "BF.MADD", "CF.MEXISTS"):
            yield row(
                f"Lua, {command} ×10", 1.0, scale.items, script(all_at_once, command), about(UNLIKE[command[:2]], size)
            )

    title = (
        "From MULTI and Lua, filters of 10,000; tests of items half of which are absent, adds of items that are present"
    )
    return topic("ways", title, rows(), itertools.chain(load(each, all_at_once), both(size)))


def large(scale: Scale) -> Topic:
    """Commands with a hundred thousand items, and with ten, on filters whose size lies between two of `scale.sizes`."""
    size, many = 3 * scale.sizes["100k"], scale.many
    half = {family: Fresh(family, size) for family in ("BF", "CF")}
    empty = {family: Fresh(family, size, 0) for family in ("BF", "CF")}  # filling takes longer than a large command

    def rows() -> Iterator[Row]:
        for command, group in (("BF.INSERT", 10), ("CF.INSERT", 10), ("BF.MADD", many), ("CF.INSERT", many)):
            yield added(command, group)
        for command, group in (("BF.INSERT", 10), ("CF.INSERTNX", 10), ("BF.MADD", many)):
            yield asked(command, group, "present", same)
        for command in ("BF.MEXISTS", "CF.MEXISTS"):
            yield asked(command, many, "present", same)
            yield asked(command, many, "absent", about(UNLIKE[command[:2]], size))

    def target(command: str, group: int) -> float:
        # An item costs as much in a command with a hundred thousand items as in one with a thousand.
        return TARGETS.get((command, min(group, 1000)), 1.0)

    def added(command: str, group: int) -> Row:
        count, family = max(amount(scale, 10), group), command[:2]
        alike = about(UNLIKE[family]) if family == "BF" else same
        fresh = (empty if group == many else half)[family]
        make = lambda _: fresh.add(command, group, count)
        return Row(f"{times(command, group)}, new", target(command, group), make, count, alike)

    def asked(command: str, group: int, mix: str, alike: Callable) -> Row:
        count = max(amount(scale, 10), group)
        return tested(command, group, command[:2], size, mix, count, target(command, group), alike)

    return topic("large", f"Filters of {size:,} items, up to {many:,} items per command", rows(), both(size))


# ---- by the life of a key -------------------------------------------------------------------------------------------


def over_new_keys(count: int, words: Callable, setup=lambda key: []) -> Callable:
    """Returns a `Row.make` for the commands `words(key)`, on keys that don't exist, or that only `setup(key)` made."""

    def make(_):
        names = [f"new:{number}" for number in range(count)]
        before = [encode("DEL", *names), *itertools.chain(*map(setup, names))]
        return before, [encode(*words(name)) for name in names]

    return make


def written(scale: Scale) -> Topic:
    """Commands that change something, on a server with an append-only file. The server has to write them to the file,
    as it would have to send them to replicas."""
    few = max(scale.items // 20, 20)
    ten = [item(number) for number in range(10)]
    makers = {
        "BF.ADD, new key": lambda key: ("BF.ADD", key, item(1)),
        "BF.MADD ×10, new key": lambda key: ("BF.MADD", key, *ten),
        "BF.RESERVE 1,000": lambda key: ("BF.RESERVE", key, 0.01, 1000),
        "CF.ADD, new key": lambda key: ("CF.ADD", key, item(1)),
        "CF.INSERT ×10, new key": lambda key: ("CF.INSERT", key, "ITEMS", *ten),
        "CF.RESERVE 1,000": lambda key: ("CF.RESERVE", key, 1000),
    }
    fresh = {family: Fresh(family, scale.sizes["10k"]) for family in ("BF", "CF")}
    rows = [Row(name, 1.0, over_new_keys(few, words), few, same) for name, words in makers.items()]
    for command, group in (("BF.ADD", 1), ("BF.MADD", 10), ("CF.ADD", 1), ("CF.INSERT", 10)):
        family, count = command[:2], amount(scale, group)
        make = lambda _, family=family, command=command, group=group, count=count: fresh[family].add(
            command, group, count
        )
        alike = about(UNLIKE[family]) if family == "BF" else same
        rows.append(Row(f"{times(command, group)}, new item", 1.0, make, count, alike))
    config = {"appendonly": "yes", "appendfsync": "no", "auto-aof-rewrite-percentage": "0"}
    return topic("written", "With an append-only file", rows, (), unit="ns per command or item", config=config)


def keys(scale: Scale) -> Topic:
    """Commands that make filters, and commands that delete them."""
    # With a quarter as many commands, results differed by a tenth from run to run.
    few = max(scale.items // 5, 20)
    ten = [item(number) for number in range(10)]
    makers = {
        "BF.ADD, new key": (few, lambda key: ("BF.ADD", key, item(1))),
        "BF.MADD ×10, new key": (few, lambda key: ("BF.MADD", key, *ten)),
        "BF.INSERT ×10, new key": (few, lambda key: ("BF.INSERT", key, "ITEMS", *ten)),
        "BF.INSERT ×10, new key for 1,000": (
            few,
            lambda key: ("BF.INSERT", key, "CAPACITY", 1000, "ERROR", 0.001, "ITEMS", *ten),
        ),
        "CF.ADD, new key": (few, lambda key: ("CF.ADD", key, item(1))),
        "CF.ADDNX, new key": (few, lambda key: ("CF.ADDNX", key, item(1))),
        "CF.INSERT ×10, new key": (few, lambda key: ("CF.INSERT", key, "ITEMS", *ten)),
        "BF.RESERVE 100": (few, lambda key: ("BF.RESERVE", key, 0.01, 100)),
        "BF.RESERVE 1,000": (few, lambda key: ("BF.RESERVE", key, 0.01, 1000)),
        "BF.RESERVE 1,000 to 2,000, each another": (
            few,
            lambda key: ("BF.RESERVE", key, 0.01, 1000 + int(key.removeprefix("new:"))),
        ),
        "BF.RESERVE 1,000 at 0.01%": (few, lambda key: ("BF.RESERVE", key, 0.0001, 1000)),
        "BF.RESERVE 100,000": (few // 5, lambda key: ("BF.RESERVE", key, 0.01, 100_000)),
        "BF.RESERVE 1 M NONSCALING": (20, lambda key: ("BF.RESERVE", key, 0.01, 1_000_000, "NONSCALING")),
        "CF.RESERVE 1,000": (few, lambda key: ("CF.RESERVE", key, 1000)),
        "CF.RESERVE 100,000": (few // 5, lambda key: ("CF.RESERVE", key, 100_000)),
    }
    made = {
        "DEL, BF of 100": (few, lambda key: [encode("BF.ADD", key, 1)]),
        "DEL, BF of 100,000": (few // 5, lambda key: [encode("BF.RESERVE", key, 0.01, 100_000)]),
        "DEL, CF of 1,000": (few, lambda key: [encode("CF.ADD", key, 1)]),
    }
    rows = [Row(name, 1.0, over_new_keys(count, words), count, same) for name, (count, words) in makers.items()]
    rows += [
        Row(name, 1.0, over_new_keys(count, lambda key: ("DEL", key), setup), count, same)
        for name, (count, setup) in made.items()
    ]
    return topic("keys", "Filters made and deleted", rows, (), unit="ns per command")


COPIED_BY_PIECES = """
    redis.call('DEL', KEYS[2])
    local at = 0
    repeat
        local piece = redis.call(ARGV[1] .. '.SCANDUMP', KEYS[1], at)
        at = piece[1]
        if at ~= 0 then redis.call(ARGV[1] .. '.LOADCHUNK', KEYS[2], at, piece[2]) end
    until at == 0"""
COPIED = "return redis.call('RESTORE', KEYS[2], 0, redis.call('DUMP', KEYS[1]), 'REPLACE')"


def others(scale: Scale) -> Topic:
    """Commands on missing keys and for absent items, questions about a whole filter, and copies of filters."""
    size, few = scale.sizes["10k"], max(scale.items // 4, 50)
    commands = {
        "BF.EXISTS, missing key": (same, "BF.EXISTS", "missing", "item"),
        "BF.MEXISTS ×10, missing key": (same, "BF.MEXISTS", "missing", *range(10)),
        "CF.EXISTS, missing key": (same, "CF.EXISTS", "missing", "item"),
        "CF.MEXISTS ×10, missing key": (same, "CF.MEXISTS", "missing", *range(10)),
        "CF.COUNT, missing key": (same, "CF.COUNT", "missing", "item"),
        "CF.COUNT, absent": (form, "CF.COUNT", "CF", "nothing"),
        "CF.DEL, absent": (form, "CF.DEL", "CF", "nothing"),
        "BF.CARD": (form, "BF.CARD", "BF"),  # the sides differ: a new item that is a false positive is not counted
        "BF.CARD, missing key": (same, "BF.CARD", "missing"),
        "BF.INFO": (form, "BF.INFO", "BF"),
        "BF.INFO CAPACITY": (same, "BF.INFO", "BF", "CAPACITY"),
        "BF.DEBUG": (form, "BF.DEBUG", "BF"),
        "CF.INFO": (form, "CF.INFO", "CF"),
        "CF.DEBUG": (form, "CF.DEBUG", "CF"),
        "BF.SCANDUMP, the first": (form, "BF.SCANDUMP", "BF", 0),
        "CF.SCANDUMP, the first": (form, "CF.SCANDUMP", "CF", 0),
        "DUMP, BF of 100": (form, "DUMP", "default"),
        "DUMP, BF of 10,000": (form, "DUMP", "BF"),
        "DUMP, CF of 10,000": (form, "DUMP", "CF"),
        "DUMP and RESTORE, BF of 100": (same, COPIED, 2, "default", "copy"),
        "DUMP and RESTORE, BF of 10,000": (same, COPIED, 2, "BF", "copy"),
        "DUMP and RESTORE, CF of 10,000": (same, COPIED, 2, "CF", "copy"),
        "SCANDUMP and LOADCHUNK, BF of 10,000": (same, COPIED_BY_PIECES, 2, "BF", "copy", "BF"),
        "SCANDUMP and LOADCHUNK, CF of 10,000": (same, COPIED_BY_PIECES, 2, "CF", "copy", "CF"),
        "CF.COMPACT": (same, "CF.COMPACT", "CF"),
    }
    scripts = (COPIED, COPIED_BY_PIECES)
    slow = ("DUMP", "SCANDUMP and", "CF.COMPACT")

    def rows() -> Iterator[Row]:
        for name, (alike, *words) in commands.items():
            count = few // 10 if name.startswith(slow) else few
            request = call(*words) if words[0] in scripts else encode(*words)
            yield row(name, 1.0, count, lambda _, request=request, count=count: [request] * count, alike)

    filled = itertools.chain(load(*scripts), [encode("BF.ADD", "default", "item")], both(size))
    return topic("others", "Other commands on filters of 10,000", rows(), filled, unit="ns per command")


def full(scale: Scale) -> Topic:
    """Adds to full cuckoo filters, which may not grow and so refuse new items."""
    filters = {
        "1,000": ("1000",),
        "1,000, MAXITERATIONS 500": ("1000", "MAXITERATIONS", "500"),
        "10,000, BUCKETSIZE 4": ("10000", "BUCKETSIZE", "4"),
        "100,000": ("100000",),
    }

    count = scale.items // 10  # few, because each refusal costs as many moves as are allowed

    def rows() -> Iterator[Row]:
        for label in filters:
            for group in (1, 10):  # not CF.ADD, because it refuses an item with an error
                name = f"{times('CF.INSERT', group)} into a full filter of {label}"
                yield row(
                    name,
                    1.0,
                    count,
                    lambda round, label=label, group=group: requests(
                        "CF.INSERT", label, absent(round, count, 10**9), group, options=["NOCREATE"]
                    ),
                    about(UNLIKE["CF"]),
                )

    def filled() -> Iterator[bytes]:
        for label, options in filters.items():
            yield encode("CF.RESERVE", label, *options, "EXPANSION", 0)
            yield from fill("CF", label, range(4 * int(options[0])))

    return topic("full", "New items for cuckoo filters that are full", rows(), filled())


# ---- go-zero --------------------------------------------------------------------------------------------------------

PROBES, BITS_PER_ITEM = 14, 20  # go-zero's constants
GOZERO_ADD = "for _, offset in ipairs(ARGV) do redis.call('setbit', KEYS[1], offset, 1) end"
GOZERO_TEST = (
    "for _, offset in ipairs(ARGV) do if tonumber(redis.call('getbit', KEYS[1], offset)) == 0 then return false end end "
    "return true"
)


def gozero(scale: Scale) -> Topic:
    """go-zero's scripts, which handle one item of a bitmap per call, compared with Bloomery's commands for one item or
    a thousand."""
    size = scale.sizes["1M"]
    bits, count = size * BITS_PER_ITEM, scale.items
    new = itertools.count(size)

    def offsets(number: int) -> list[int]:
        # These are as good as go-zero's fourteen hashes. The client computes them, so they cost the server nothing.
        first, second = divmod(xxhash.xxh3_128_intdigest(item(number)), 1 << 64)
        return [(first + probe * second) % bits for probe in range(PROBES)]

    def lua(script: str, numbers) -> list[bytes]:
        return [call(script, 1, "bitmap", *offsets(number)) for number in numbers]

    def asked(numbers: Callable, command: str, group: int) -> Callable:
        def make(round):
            chosen = numbers(round, count, size)
            return [], (lua(GOZERO_TEST, chosen), requests(command, "filter", chosen, group))

        return make

    def added(command: str, group: int) -> Callable:
        def make(_):
            chosen = list(itertools.islice(new, count))
            return [], (lua(GOZERO_ADD, chosen), requests(command, "filter", chosen, group))

        return make

    def half(round: int, count: int, among: int) -> list[int]:
        return [number + ABSENT * (index % 2) for index, number in enumerate(present(round, count, among))]

    def any_answer(rival, ours) -> bool:  # go-zero's script for adding returns nothing
        return True

    rows = [
        Row("BF.EXISTS, half present", 15, asked(half, "BF.EXISTS", 1), count, about(UNLIKE["BF"], size)),
        Row("BF.EXISTS, present", 1, asked(present, "BF.EXISTS", 1), count, about(UNLIKE["BF"], size)),
        Row("BF.EXISTS, absent", 1, asked(absent, "BF.EXISTS", 1), count, about(UNLIKE["BF"], size)),
        Row("BF.MEXISTS ×1000, half present", 80, asked(half, "BF.MEXISTS", 1000), count, about(UNLIKE["BF"], size)),
        Row("BF.ADD, new", 1, added("BF.ADD", 1), count, any_answer),
        Row("BF.MADD ×1000, new", 1, added("BF.MADD", 1000), count, any_answer),
    ]

    def run(bench: Bench, topic: Topic) -> dict[str, Series]:
        bitmap = bytearray(bits // 8 + 1)
        for number in range(size):
            for offset in offsets(number):
                bitmap[offset // 8] |= 0x80 >> offset % 8
        filled = [encode("BF.RESERVE", "filter", RATE, 2 * size), *fill("BF", "filter", range(size))]
        with bench.sides(rival=MODULE) as sides:
            sides[0].ask([encode("SET", "bitmap", bytes(bitmap)), *load(GOZERO_ADD, GOZERO_TEST)])
            answer(sides, filled)
            return {row.name: alternate(bench, sides, row) for row in topic.rows}

    title = "go-zero's Lua, one item per call, filter of 1 M items"
    return Topic("go-zero", title, "ns per item", rows, run, "go-zero")


# ---- all of them ----------------------------------------------------------------------------------------------------


def amount(scale: Scale, group: int) -> int:
    """Number of items in a round. It is larger for commands with many items, because these cost less per item."""
    return max(scale.items * {1: 1, 10: 2, 1000: 5}[group], group)


def topic(
    name: str, title: str, rows: Iterable[Row], filled: Iterable[bytes], unit: str = "ns per item", config=None
) -> Topic:
    """A topic whose rows run on servers that have executed `filled`."""

    def run(bench: Bench, topic: Topic) -> dict[str, Series]:
        with bench.sides(config=config) as sides:
            answer(sides, filled)
            return {row.name: alternate(bench, sides, row) for row in topic.rows}

    return Topic(name, title, unit, list(rows), run)


def answer(sides: list[Side], requests: Iterable[bytes]) -> None:
    """Sends all requests to every side, a thousand at a time, because together they may not fit into memory."""
    requests = iter(requests)
    while some := list(itertools.islice(requests, 1000)):
        for side in sides:
            side.ask(some)


def topics(scale: Scale) -> list[Topic]:
    sized = [of_size(family, label, scale) for family in ("BF", "CF") for label in scale.sizes]
    return [*sized, *(make(scale) for make in (large, grown, widths, ways, keys, written, others, full, gozero))]
