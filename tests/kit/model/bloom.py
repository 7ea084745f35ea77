"""Bloom filters, and the commands BF.*: a filter is the set of its items."""

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

from kit.model.replies import (
    BYTES, FIGURE, LINES, NUMBER, OK, Double, Entry, Error, Map, Refused, Wire, Words, integer, number, one_of, seed, upper,
)  # fmt: skip

REFUSED = Map((why, NUMBER) for why in ("Full", "Limit", "Memory"))
NO_FEEDBACK = Map([("Checked", 0), ("False", 0), ("Share false", None), ("Observed error rate", None)])
MAX_CAPACITY = 1 << 48
MAX_TIME = 1 << 62


@dataclass(frozen=True)
class BloomSpec:
    """The parameters of a Bloom filter."""

    rate: float
    capacity: int
    kind: str = "fixed"  # as BF.STATS names it
    on_full: str = "ERROR"
    expansion: int = 0
    tightening: float | None = None
    width: int = 1
    generations: int = 0
    every: int = 0
    since: int = 0
    shards: int = 1
    layout: str = "AUTO"
    hash: str = "XXH3"


class Fixed:
    """One layer of bits or counters: each item with its count, which is always 1 for bits."""

    def __init__(self, spec: BloomSpec):
        self.spec = spec
        self.counts: dict[bytes, int] = {}

    def contains(self, item) -> bool:
        return item in self.counts

    def add(self, item, events) -> bool:
        """Adds an item. Returns whether it was absent."""
        known = self.counts.get(item, 0)
        if not known and self.spec.on_full == "ERROR" and len(self.counts) >= self.spec.capacity:
            events[f"{self.spec.kind} full"] += 1
            raise Refused()
        self.counts[item] = min(known + 1, (1 << self.spec.width) - 1)
        return not known

    def remove(self, item, events) -> bool:
        known = self.counts.get(item, 0)
        if known == (1 << self.spec.width) - 1:
            events["counter stuck"] += 1
        elif known > 1:
            self.counts[item] = known - 1
        elif known:
            del self.counts[item]
        return known > 0

    def layers(self) -> list[tuple[int, int]]:
        """The capacity and the number of items of each layer."""
        return [(self.spec.capacity, len(self.counts))]

    def alive(self) -> list[tuple[int | None, int, int]]:
        """The age, the capacity and the number of items of each layer that BF.STATS shows."""
        return [(None, *layer) for layer in self.layers()]

    def clear(self):
        self.counts.clear()


class Chain(Fixed):
    """A chain of layers. Each item is in only one layer, so the layers' sizes and a single set of items are enough."""

    def __init__(self, spec: BloomSpec):
        super().__init__(spec)
        self.sizes = [[spec.capacity, 0]]

    def add(self, item, events) -> bool:
        if item in self.counts:
            return False
        capacity, size = self.sizes[-1]
        if size >= capacity:
            self.sizes.append([self.next_capacity(capacity), 0])
            events["scaling grown"] += 1
        self.sizes[-1][1] += 1
        self.counts[item] = 1
        return True

    def next_capacity(self, last):
        return last * self.spec.expansion

    def layers(self):
        return [(capacity, size) for capacity, size in self.sizes]

    def clear(self):
        super().clear()
        self.sizes = [[self.spec.capacity, 0]]


class WithTable(Chain):
    """A chain whose second layer is a table, which takes all further items."""

    def next_capacity(self, last):
        return math.inf

    def layers(self):
        return [(1 if capacity == math.inf else capacity, size) for capacity, size in self.sizes]

    def alive(self):
        return [(None, NUMBER if capacity == math.inf else capacity, size) for capacity, size in self.sizes]


class Table(Fixed):
    """A set of items with their counts that may grow. The capacity that it is sized for isn't known."""

    def alive(self):
        return [(None, shown_capacity(self), len(self.counts))]


class Window:
    """Generations by number. Rotations and the clock determine which one is current. Generations that are too old don't
    count, even if they haven't been dropped yet."""

    def __init__(self, spec: BloomSpec, now: int):
        self.spec = spec
        self.now = now
        self.newest = self.rotations = 0
        self.sets: defaultdict[int, set] = defaultdict(set)

    def current(self) -> int:
        elapsed = max(0, self.now - self.spec.since) // self.spec.every if self.spec.every else 0
        return max(self.newest, self.rotations + elapsed)

    def open(self, generation: int):
        self.newest = max(self.newest, generation)
        for old in [number for number in self.sets if number <= self.newest - self.spec.generations]:
            del self.sets[old]

    def rotate(self):
        self.open(self.current() + 1)
        self.rotations += 1

    def age(self, item) -> int:
        current = self.current()
        ages = (current - number for number, items in self.sets.items() if item in items)
        return min((age for age in ages if age < self.spec.generations), default=-1)

    def contains(self, item) -> bool:
        return self.age(item) >= 0

    def add(self, item, events) -> bool:
        self.open(self.current())
        newest = self.sets[self.newest]
        if item not in newest and self.spec.on_full == "ERROR" and len(newest) >= self.spec.capacity:
            events["window full"] += 1
            raise Refused()
        absent = not self.contains(item)
        newest.add(item)
        return absent

    def layers(self):
        """The capacity and the number of items of each slot in the ring. Generation n is in slot n mod generations."""
        span = self.spec.generations
        sizes = {number % span: len(items) for number, items in self.sets.items()}
        return [(self.spec.capacity, sizes.get(slot, 0)) for slot in range(span)]

    def alive(self):
        current = self.current()
        oldest = max(0, current - self.spec.generations + 1)
        numbers = range(self.newest, oldest - 1, -1)
        return [(current - number, self.spec.capacity, len(self.sets.get(number, ()))) for number in numbers]

    def clear(self):
        self.sets.clear()


class TableWindow(Window):
    """A window whose generations share a table: an item is in only one of them, and can be deleted."""

    def add(self, item, events) -> bool:
        self.open(self.current())
        absent = not self.contains(item)
        ((capacity, size),) = self.layers()
        if absent and self.spec.on_full == "ERROR" and size >= capacity:
            events["window full"] += 1
            raise Refused()
        self.take_out(item)
        self.sets[self.newest].add(item)
        return absent

    def take_out(self, item):
        for items in self.sets.values():
            items.discard(item)

    def remove(self, item, events) -> bool:
        self.open(self.current())
        known = self.contains(item)
        self.take_out(item)
        return known

    def layers(self):
        return [(self.spec.capacity * self.spec.generations, sum(map(len, self.sets.values())))]


Bloom = (Fixed, Window)


def cardinality(filter_) -> int:
    return sum(size for _, size in filter_.layers())


def capacity(filter_) -> int:
    return sum(capacity for capacity, _ in filter_.layers())


def shown_capacity(filter_):
    """The capacity in replies. The model doesn't know what a growing table is sized for."""
    return NUMBER if grows(filter_.spec) or has_added_table(filter_) else capacity(filter_)


def has_added_table(filter_) -> bool:
    return isinstance(filter_, WithTable) and len(filter_.sizes) > 1


def grows(spec) -> bool:
    """Whether this is a table for which the capacity is only a hint."""
    return spec.layout == "QUOTIENT" and spec.on_full == "SCALE"


# ---- parameters -----------------------------------------------------------------------------------------------------


def error_rate(word) -> float:
    rate = number(word, 0, 1)
    if rate < 1e-12:
        raise Refused()
    return rate


items_of = partial(integer, low=1, high=MAX_CAPACITY)
expansion_of = partial(integer, low=0, high=32768)


def flag(_) -> bool:
    return True


def shards(word) -> int:
    powers = {b"%d" % (1 << power): 1 << power for power in range(11)}
    if word not in powers:
        raise Refused()
    return powers[word]


def new_bloom(spec: BloomSpec, now: int):
    if spec.kind == "window":
        return TableWindow(spec, now) if spec.layout == "QUOTIENT" else Window(spec, now)
    if spec.layout == "QUOTIENT":
        return Table(spec)
    if spec.kind == "scaling":
        adds_layers = spec.layout != "AUTO" or spec.shards > 1 or spec.tightening is not None
        return Chain(spec) if adds_layers else WithTable(spec)
    return Fixed(spec)


def default_spec(rate, items, expansion) -> BloomSpec:
    """The parameters of a filter that BF.ADD or BF.INSERT creates."""
    if expansion == 0:
        return BloomSpec(rate, items)
    return BloomSpec(rate, items, "scaling", "SCALE", expansion)


# BF.RESERVE's options with a value, and how each is read.
OPTIONS = {
    "EXPANSION": expansion_of,
    "WINDOW": partial(integer, low=2, high=1000),
    "EVERY": partial(integer, low=1),
    "SINCE": partial(integer, low=0, high=MAX_TIME),
    "SHARDS": shards,
    "LAYOUT": one_of("AUTO", "BLOCKED", "CLASSIC", "PARTITIONED", "QUOTIENT"),
    "HASH": one_of("XXH3", "SIPHASH"),
    "SEED": bytes,
    "TIGHTENING": partial(number, low=0, high=1),
    "ONFULL": one_of("ERROR", "SATURATE", "SCALE", "FORGET"),
    "LIKE": bytes,
}


def reserve_options(words: Words) -> dict:
    options, count = {}, len(words.left)
    while words:
        name = words.take(upper)
        if name == "NONSCALING":
            options[name] = True
        elif name == "COUNTING":
            options[name] = 4
            if words and words.left[0].isdigit():
                options[name] = int(words.take(one_of("4", "8", "16")))
        elif name in OPTIONS and (name != "LIKE" or count == 2):
            options[name] = words.take(OPTIONS[name])
        else:
            raise Refused()
    return options


def spec_of(options: dict, rate: float, items: int, default_expansion: int, now: int) -> BloomSpec:
    """The parameters of the filter that these options of BF.RESERVE describe."""
    expansion, on_full, layout = options.get("EXPANSION"), options.get("ONFULL"), options.get("LAYOUT", "AUTO")
    counting, window, tightening = options.get("COUNTING"), options.get("WINDOW"), options.get("TIGHTENING")
    scales = bool(expansion) or tightening is not None or on_full == "SCALE"
    fixed = "NONSCALING" in options or expansion == 0 or on_full in ("ERROR", "SATURATE")
    shards = options.get("SHARDS", 1)
    if layout == "AUTO" and ((counting and shards == 1 and on_full != "SATURATE") or (window or 0) > 64):
        layout = "QUOTIENT"
    is_table = layout == "QUOTIENT"
    if (
        ("NONSCALING" in options and expansion is not None)
        or ("EVERY" in options and not window)
        or ("SINCE" in options and "EVERY" not in options)
        or (counting and window)
        or (scales and counting and not is_table)
        or (window and (expansion or tightening is not None or (scales and not is_table)))
        or (window and window > 64 and not is_table)
        or on_full == "FORGET"  # the sequences don't use it
        or (is_table and (shards > 1 or on_full == "SATURATE"))
    ):
        raise Refused()
    common = {"shards": shards, "layout": layout, "hash": options.get("HASH", "XXH3")}
    if window:
        every = options.get("EVERY", 0)
        since = options.get("SINCE", now) if every else 0
        ring = {"generations": window, "every": every, "since": since}
        return BloomSpec(rate, items, "window", on_full or ("SCALE" if is_table else "SATURATE"), **ring, **common)
    if counting and not is_table:
        return BloomSpec(rate, items, "counting", on_full or "ERROR", width=counting, **common)
    if fixed and scales:
        raise Refused()
    if expansion is None:
        # A filter that was explicitly asked to scale does so, even if filters don't scale by default.
        expansion = default_expansion or (2 if scales else 0)
    kinds = ("counting", "counting") if counting else ("fixed", "scaling")
    width = counting or 1
    if fixed or expansion == 0:
        return BloomSpec(rate, items, kinds[0], on_full or "ERROR", width=width, **common)
    return BloomSpec(rate, items, kinds[1], "SCALE", expansion, tightening, width, **common)


# ---- commands -------------------------------------------------------------------------------------------------------


class BloomCommands:
    """The part of the model that answers the commands BF.*."""

    def bloom(self, key):
        return self.filter(key, Bloom)

    def bf_reserve(self, key, rate, items, *words):
        rate, items = error_rate(rate), 0 if items == b"0" else items_of(items)
        options = reserve_options(Words(words))
        if "LIKE" in options:
            spec = self.found(self.bloom(options["LIKE"])).spec
            if (spec.rate, spec.capacity) != (rate, items):
                raise Refused()
        else:
            spec = spec_of(options, rate, items or 1, self.settings.expansion_factor, self.now)
            if items == 0 and not grows(spec):
                raise Refused()
            if "SEED" in options:
                seed(options["SEED"], spec.hash)
        if self.bloom(key):
            raise Refused()
        self.keys[key] = new_bloom(spec, self.now)
        return OK

    def bf_insert(self, key, *words):
        settings, words = self.settings, Words(words)
        chosen = {"CAPACITY": settings.initial_size, "ERROR": settings.error_rate, "EXPANSION": settings.expansion_factor}
        readers = {"CAPACITY": items_of, "ERROR": error_rate, "EXPANSION": expansion_of}
        create, nonscaling = True, False
        while (name := words.take(upper)) != "ITEMS":
            if name in readers:
                chosen[name] = words.take(readers[name])
            elif name == "NOCREATE":
                create = False
            elif name == "NONSCALING":
                nonscaling = True
            else:
                raise Refused()
        if not words:
            raise Refused()
        if not self.bloom(key):
            if not create:
                raise Refused()
            spec = default_spec(chosen["ERROR"], chosen["CAPACITY"], 0 if nonscaling else chosen["EXPANSION"])
            self.keys[key] = new_bloom(spec, self.now)
        return self.bf_madd(key, *words.left)

    # ---- items

    def bloom_to_add_to(self, key):
        filter_ = self.bloom(key)
        if filter_ is None:
            settings = self.settings
            spec = default_spec(settings.error_rate, settings.initial_size, settings.expansion_factor)
            filter_ = self.keys[key] = new_bloom(spec, self.now)
        return filter_

    def bf_add(self, key, item):
        return self.bloom_to_add_to(key).add(item, self.events)

    def bf_addnx(self, key, item):
        filter_ = self.bloom_to_add_to(key)
        return False if filter_.contains(item) else filter_.add(item, self.events)

    def bf_madd(self, key, *items):
        filter_, answers = self.bloom_to_add_to(key), []
        for item in items:
            try:
                answers.append(filter_.add(item, self.events))
            except Refused as refused:
                return [*answers, Error(*refused.args)]
        return answers

    def bf_mexists(self, key, *items):
        filter_ = self.keys.get(key)
        return [isinstance(filter_, Bloom) and filter_.contains(item) for item in items]

    def bf_exists(self, key, item):
        return self.bf_mexists(key, item)[0]

    bf_test = bf_exists

    def counting(self, key):
        filter_ = self.bloom(key)
        if filter_ is not None and filter_.spec.kind != "counting":
            raise Refused()
        return filter_

    def bf_mdel(self, key, *items):
        filter_ = self.bloom(key)
        if not isinstance(filter_, TableWindow):
            filter_ = self.counting(key)
        return [filter_ is not None and filter_.remove(item, self.events) for item in items]

    def bf_del(self, key, item):
        return self.bf_mdel(key, item)[0]

    def bf_count(self, key, item):
        filter_ = self.counting(key)
        return filter_.counts.get(item, 0) if filter_ else 0

    def bf_age(self, key, item, *words):
        if words:
            raise Refused()  # the tests never ask for milliseconds
        filter_ = self.bloom(key)
        if filter_ is None:
            return -1
        return self.window(filter_).age(item)

    # ---- whole filters

    def window(self, filter_) -> Window:
        if not isinstance(filter_, Window):
            raise Refused()
        return filter_

    def bf_rotate(self, key, *words):
        filter_ = self.window(self.found(self.bloom(key)))
        if words:
            raise Refused()
        filter_.rotate()
        return OK

    def bf_clear(self, key):
        self.found(self.bloom(key)).clear()
        return OK

    def bf_card(self, key):
        filter_ = self.bloom(key)
        return cardinality(filter_) if filter_ else 0

    def bf_info(self, key, *words):
        if len(words) > 1:
            raise Refused()
        filter_ = self.found(self.bloom(key))
        fields = {
            "CAPACITY": Entry(("Capacity", shown_capacity(filter_))),
            "SIZE": Entry(("Size", NUMBER)),
            "FILTERS": Entry(("Number of filters", len(filter_.layers()))),
            "ITEMS": Entry(("Number of items inserted", cardinality(filter_))),
            "EXPANSION": Entry(("Expansion rate", filter_.spec.expansion or None)),
        }
        if not words:
            return Map(fields.values())
        word = upper(words[0])
        if word not in fields:
            raise Refused()
        return fields[word]

    def bf_stats(self, key):
        filter_ = self.found(self.bloom(key))
        spec = filter_.spec
        scales = spec.on_full == "SCALE" and spec.kind != "window"
        fields = Map([
            ("Kind", spec.kind.encode()),
            ("Origin", b"bloomery"),
            ("Layout", spec.layout.encode()),
            ("Hash", spec.hash.encode()),
            ("Shards", spec.shards),
            ("Bits per cell", NUMBER if spec.layout == "QUOTIENT" else spec.width),
            ("On full", spec.on_full.encode()),
            ("Error rate", Double(spec.rate)),
            ("Error rate now", FIGURE),
            ("Capacity", shown_capacity(filter_)),
            *([("Capacity reserved", NUMBER)] if scales else []),
            ("Number of items inserted", cardinality(filter_)),
            ("Approximate number of items", NUMBER),
            ("Number of filters", len(filter_.layers())),
            ("Cells", NUMBER),
            ("Cells set", NUMBER),
            ("Fill", FIGURE),
            ("Size", NUMBER),
            ("Memory", NUMBER),
        ])  # fmt: skip
        if scales:
            tightening = None if spec.tightening is None else Double(spec.tightening)
            fields += [("Expansion rate", spec.expansion), ("Tightening ratio", tightening)]
        if spec.kind == "window":
            fields += [
                ("Generations", spec.generations),
                ("Generation", filter_.current()),
                ("Rotates every ms", spec.every or None),
                ("Next rotation in ms", NUMBER if spec.every else None),
            ]
        if spec.kind == "counting":
            fields.append(("Saturated counters", NUMBER))
        # tests/commands/feedback.rs tests these fields.
        fields += [
            *((name, NUMBER) for name in ("Tests answered yes", "Tests answered no", "Adds", "Deletes")),
            ("Adds refused", REFUSED),
            ("Feedback", Map((span, NO_FEEDBACK) for span in ("Minute", "Hour", "Life"))),
            ("Advice", LINES),
        ]
        fields.append(("Layers", [self.layer_info(*layer) for layer in filter_.alive()]))
        fields += [("Rebuild", None), ("Identity", BYTES)]
        return fields

    def layer_info(self, age, items, size) -> Map:
        return Map([
            *([] if age is None else [("Age", age)]),
            ("Layout", BYTES),
            ("Capacity", items),
            ("Number of items inserted", size),
            ("Error rate", FIGURE),
            ("Error rate now", FIGURE),
            ("Cells", NUMBER),
            ("Probes", NUMBER),
            ("Fill", FIGURE),
        ])  # fmt: skip

    def bf_debug(self, key):
        filter_ = self.found(self.bloom(key))
        line = b"$<n>\r\nbytes:<n> bits:<n> hashes:<n> hashwidth:64 capacity:%d size:%d ratio:<f>\r\n"
        lines = [Wire(line % layer) for layer in filter_.layers()]
        return [b"size:%d" % cardinality(filter_), *lines]

    def bf_scandump(self, key, iterator):
        self.found(self.bloom(key))
        iterator = integer(iterator)
        if iterator in (0, 1):
            return [1 if iterator == 0 else NUMBER, BYTES]
        return [0, b""]  # the model's filters are so small that they end before any other iterator in the tests

    def bf_loadchunk(self, key, iterator, data):
        integer(iterator)
        self.bloom(key)
        raise Refused()
