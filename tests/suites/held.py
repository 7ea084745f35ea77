"""The worst that a client can do to others: searches for the command that blocks the main thread longest.

Each try creates a filter of some kind, shape and state, and measures how long one command blocks the thread without a
break, with default settings and at most --items items. The first tries are random. Later ones change something about a
try that blocked the server for a long time, or about the worst filter for another command. So the search climbs to
shapes that nobody thought of, such as chains of many layers, growth that is refused for each item, foreign chains that
need every probe, sources that are shorter than they declare, and thousands of sub-filters.

The suite fails if a command exceeds its bound: SHORT or its entry in BOUNDS, plus its time per item. --table
prints the worst try of every command and its recipe, which --recipe repeats.
"""

import contextlib
import json
import random
import struct

import redis

from kit.commands import COMMANDS
from kit.filters import load_pieces, pieces
from kit.foreign import Value, redisbloom, sealed
from kit.holds import Clock
from kit.suite import Server, options, progress, run

SHORT = 0.005  # seconds that a command may block the server, unless it is listed below
# Additional seconds per item, in the worst filter, for a command that isn't executed in pieces.
PER_ITEM = {"BF.BULKTEST": 20e-6}
# For filters that only a crafted payload can create (a chain that needs every probe, ten thousand sub-filters): seconds
# per item, and the number of items after which a command that is executed in pieces reads the clock.
CRAFTED = {"links": (20e-3, 32), "tables": (2e-3, 4)}
IN_PIECES = {
    "BF.MADD", "BF.INSERT", "BF.BULKADD", "BF.REBUILD", "BF.MDEL", "BF.MEXISTS",
    "CF.MEXISTS", "CF.INSERT", "CF.INSERTNX",
}  # fmt: skip
# Other commands that are allowed to take longer, and why.
BOUNDS = {
    "BF.EXISTS": 0.02, "BF.TEST": 0.02, "BF.ADD": 0.02, "BF.ADDNX": 0.02,  # 589,824 probes of a crafted chain
}  # fmt: skip

BLOOM = ["fixed", "saturate", "counting", "sharded", "window", "chain", "links", "go-zero", "rebuild"]
# The kinds of filters that a command is tried on. Filters of other kinds would only refuse it. LOADCHUNK isn't tried on
# filters in RedisBloom's format: the last piece causes the whole filter to be replicated, so its time has no bound.
KINDS = {"BF": BLOOM, "CF": ["cuckoo", "tables"]} | {
    "BF.DEL": ["counting"], "BF.MDEL": ["counting"], "BF.COUNT": ["counting"], "BF.AGE": ["window"],
    "BF.ROTATE": ["window"], "BF.REBUILD": ["rebuild"], "BF.CLEAR": ["fixed", "counting", "window", "chain", "sharded"],
    "BF.INTERSECT": ["fixed", "saturate", "counting"], "BF.EXPORT": ["go-zero"],
    "BF.LOADCHUNK": [kind for kind in BLOOM if kind != "links"], "CF.LOADCHUNK": ["cuckoo"],
}  # fmt: skip
LINK_BITS = 4096
# An item whose 1000 probes all hit different bits.
HELD = next(
    item
    for item in (b"held%d" % number for number in range(1000))
    if len(set(redisbloom(item, 1000, LINK_BITS))) == 1000
)
# The values of a recipe, each with the range, or the choices, that it is drawn from. Most ranges are of exponents: the
# code computes `10 ** value`.
GENES = {
    "capacity": (0, 6.5),
    "error": (-12, -0.1),
    "expansion": [1, 1, 2, 4, 32_768],
    "tightening": [0, 0, 0.5, 0.99],
    "generations": (2, 64),
    "held": (0, 5.3),  # items added to the filter
    "deleted": (0, 1),
    "refused": [False, True],  # whether the server has no memory for further growth
    "bits": (3, 32),  # size of an import, as a power of two
    "source": (0, 6),
    "links": (0, 3.6),
    "probes": (0, 3),
    "tables": (0, 4.8),
    "slots": (1, 255),
    "items": (0, 5),
    "known": (0, 1),
    "length": (0, 3),
}


def drawn(chance: random.Random, gene: str):
    choices = GENES[gene]
    return chance.choice(choices) if isinstance(choices, list) else round(chance.uniform(*choices), 3)


class Search:
    """A server, and the worst recipe of each command so far."""

    def __init__(self, server, items: int, seed: int):
        self.server, self.most = server, items
        self.clock, self.chance = Clock(server), random.Random(seed)
        self.client = self.clock.client
        self.rdb_version = struct.unpack("<H", self.dump_of_a_string()[-10:-8])[0]
        self.worst: dict[str, tuple[float, float, dict]] = {}

    def dump_of_a_string(self) -> bytes:
        self.client.set("string", "x")
        return self.client.dump("string")

    def next(self, number: int) -> dict:
        """The next recipe. Commands take turns, each with a random filter, or with the worst filter of some command
        and a few changed genes."""
        command = COMMANDS[number % len(COMMANDS)].name
        if not self.worst or self.chance.random() < 0.35:
            recipe = {gene: drawn(self.chance, gene) for gene in GENES}
        else:
            of = command if command in self.worst and self.chance.random() < 0.6 else None
            recipe = dict(self.worst[of or self.chance.choice(sorted(self.worst))][2])
            for gene in self.chance.sample(sorted(GENES), self.chance.randint(1, 4)):
                recipe[gene] = drawn(self.chance, gene)
            recipe.pop("reply", None)
        kinds = KINDS.get(command) or KINDS[command[:2]]
        kind = recipe.get("kind")
        if kind not in kinds or self.chance.random() < 0.1:
            kind = self.chance.choice(kinds)
        return recipe | {"command": command, "kind": kind}

    def attempt(self, recipe: dict) -> None:
        seconds, items, reply = self.measure(recipe)
        command, bound = recipe["command"], self.bound(recipe, items)
        # A measurement is never below the true time, but can be 4 ms above it (kit/holds.py). So the smallest is the
        # closest.
        for _ in range(8):
            if seconds <= bound:
                break
            seconds = min(seconds, self.measure(recipe)[0])
        excess = seconds / bound
        if command not in self.worst or excess > self.worst[command][0]:
            self.worst[command] = (excess, seconds, recipe | {"reply": str(reply)[:60]})

    def bound(self, recipe: dict, items: int) -> float:
        command = recipe["command"]
        crafted, step = CRAFTED.get(recipe["kind"], (0, 0))
        if command in IN_PIECES:
            items, per_item = min(items, step), crafted
        else:
            per_item = max(PER_ITEM[command], crafted) if command in PER_ITEM else 0
        return BOUNDS.get(command, SHORT) + per_item * items

    # ---- making the filter ------------------------------------------------------------------------------------------

    def measure(self, recipe: dict):
        self.client.config_set("maxmemory", 0)
        self.client.flushall(asynchronous=True)
        quietly = self.clock.quietly
        chance = random.Random(json.dumps(recipe, sort_keys=True))
        capacity, held = int(10 ** recipe["capacity"]), int(10 ** recipe["held"])
        error = f"{10 ** recipe['error']:.3g}"
        key, kind, blob = "key", recipe["kind"], b"".join(struct.pack("<Q", item) for item in range(held))
        reserve = ["BF.RESERVE", key, error, capacity]
        scaling = ["EXPANSION", recipe["expansion"]]
        if recipe["tightening"]:
            scaling += ["TIGHTENING", recipe["tightening"]]
        try:
            match kind:
                case "fixed":
                    quietly(*reserve, "NONSCALING")
                case "saturate":
                    quietly(*reserve, "NONSCALING", "ONFULL", "SATURATE")
                case "counting":
                    quietly(*reserve, "COUNTING", chance.choice([4, 8, 16]))
                case "sharded":
                    quietly(*reserve, "SHARDS", 1 << chance.randint(0, 10), *scaling)
                case "window":
                    quietly(*reserve, "WINDOW", int(recipe["generations"]))
                case "chain" | "rebuild":
                    quietly(*reserve, *scaling)
                case "cuckoo":
                    size = int(recipe["slots"])
                    quietly("CF.RESERVE", key, max(capacity, 2 * size), "BUCKETSIZE", size, "EXPANSION", recipe["expansion"])
                case "links":
                    quietly("RESTORE", key, 0, self.links(recipe))
                case "tables":
                    quietly("RESTORE", key, 0, self.tables(recipe, chance))
                case "go-zero":
                    quietly("BF.IMPORT", key, "GOZERO", "none", "BITS", 1 << int(recipe["bits"]))
            if kind in ("cuckoo", "tables"):
                items = [struct.pack("<Q", item) for item in range(min(held, 50_000))]
                quietly("CF.INSERT", key, "ITEMS", *items)
                gone = items[: int(recipe["deleted"] * min(len(items), 5000))]
                with self.client.pipeline(transaction=False) as pipe:
                    for item in gone:
                        pipe.execute_command("CF.DEL", key, item)
                    pipe.execute(raise_on_error=False)
            else:
                if kind == "rebuild":
                    quietly("BF.REBUILD", key, "BEGIN", "CAPACITY", max(1, capacity // 2))
                quietly("BF.BULKADD", key, "FIXED", 8, blob)
        except redis.ResponseError:
            pass  # the key now has a smaller filter than planned, or doesn't exist: both are worth a try
        if recipe["refused"]:
            self.client.config_set("maxmemory", self.client.info("memory")["used_memory"] + (1 << 20))
        words, items = self.words(recipe, key, held, chance)
        seconds, reply = self.clock.time(*words)
        return seconds, items, reply

    def links(self, recipe: dict) -> bytes:
        """A RedisBloom chain in which every link has all of HELD's bits except the last one, so that a test needs every
        probe."""
        links, probes = int(10 ** recipe["links"]), int(10 ** recipe["probes"])
        links = min(links, 589_824 // probes)
        bits = bytearray(b"\xff" * (LINK_BITS // 8))
        *_, last = redisbloom(HELD, probes, LINK_BITS)
        bits[last // 8] &= ~(1 << last % 8)
        fields = [links, links, 5, 2]
        for _ in range(links):
            fields += [100, 0.01, probes, 9.6, LINK_BITS, 0, bytes(bits), 100]
        return sealed(Value("MBbloom--", 4, fields).dump(), self.rdb_version)

    def tables(self, recipe: dict, chance: random.Random) -> bytes:
        """A RedisBloom cuckoo filter with many sub-filters, most of them full."""
        size = min(int(recipe["slots"]), 4)
        count = min(int(10 ** recipe["tables"]), 65_536)
        table = bytes(1 + chance.randrange(255) for _ in range(2 * size))
        hole = bytes(1) + table[1:]
        tables = [hole if chance.random() < recipe["deleted"] / 2 else table for _ in range(count)]
        fields = [count, 2, count * 2 * size, count, size, 20, 1]
        for table in tables:
            fields += [2, table]
        return sealed(Value("MBbloomCF", 4, fields).dump(), self.rdb_version)

    # ---- the command ------------------------------------------------------------------------------------------------

    def words(self, recipe: dict, key: str, held: int, chance: random.Random) -> tuple[list, int]:
        """The command's arguments, and its number of items."""
        command, count = recipe["command"], min(int(10 ** recipe["items"]), self.most)
        length = max(8, int(10 ** recipe["length"]))
        count = max(1, min(count, (16 << 20) // length))
        family = command[:2]

        def item(number: int) -> bytes:
            if recipe["kind"] == "links" and chance.random() < recipe["known"]:
                return HELD
            number = chance.randrange(held) if chance.random() < recipe["known"] else (1 << 40) + number
            # Long items are never in a filter: `measure` adds only 8-byte items.
            return struct.pack("<Q", number).ljust(length if length >= 1024 else 8, b".")

        one = item(0)
        match command.split(".")[1]:
            case "MADD" | "MEXISTS" | "MDEL":
                return [command, key, *map(item, range(count))], count
            case "INSERT" | "INSERTNX":
                return [command, key, "ITEMS", *map(item, range(count))], count
            case "BULKADD" | "BULKTEST":
                blob = b"".join(item(number).ljust(length, b".") for number in range(count))
                return [command, key, "FIXED", length, blob], count
            case "RESERVE":
                capacity = int(10 ** recipe["capacity"])
                if family == "CF":
                    return [command, "new", max(capacity, 512), "BUCKETSIZE", int(recipe["slots"])], 1
                return [command, "new", f"{10 ** recipe['error']:.3g}", capacity], 1
            case "INFO" | "STATS" | "ROTATE" | "CLEAR" | "CARD" | "DEBUG" | "COMPACT":
                return [command, key], 1
            case "FEEDBACK":
                return [command, key, 100, 1], 1
            case "EXPORT":
                return [command, key, "COUNT", 1 << 20], 1
            case "SCANDUMP":
                return [command, key, chance.choice([0, 1])], 1
            case "MERGE" if chance.random() < 0.3 and (data := self.client.dump(key)):
                return [command, chance.choice([key, "new"]), "BLOB", *[data] * chance.choice([1, 2])], 1
            case "MERGE" | "INTERSECT" | "EQUAL":
                self.client.copy(key, "other")
                sources = {"MERGE": ["other"], "INTERSECT": ["new", key, "other"], "EQUAL": ["other"]}
                words = sources[command.split(".")[1]]
                return [command, *([] if len(words) == 3 else [key]), *words], 1
            case "IMPORT":
                self.client.set("source", bytes(int(10 ** recipe["source"])))
                source = chance.choice(["none", "source"])
                return [command, "new", "GOZERO", source, "BITS", 1 << int(recipe["bits"])], 1
            case "LOAD":
                return [command, "new", bytes(int(10 ** recipe["source"]))], 1
            case "LOADCHUNK" if self.client.exists(key) and chance.random() < 0.9:
                *found, last = pieces(self.client, key, family)
                with contextlib.suppress(redis.ResponseError):  # there might be no memory for it
                    load_pieces(self.client, "new", family, found)
                return [command, "new", *last], 1
            case "LOADCHUNK":
                return [command, "new", 1, bytes(int(10 ** recipe["source"]))], 1
            case "REBUILD":
                what = chance.choice([["STATUS"], ["COMMIT"], ["ABORT"], ["BEGIN"], ["ADD", *map(item, range(count))]])
                return [command, key, *what], count
        return [command, key, one], 1  # one item


def held(spec, arguments) -> str:
    with Server(spec, config={"proto-max-bulk-len": "512mb", "maxmemory-policy": "noeviction"}) as server:
        search = Search(server, arguments.items, arguments.seed)
        if arguments.recipe:
            recipe = json.loads(arguments.recipe)
            seconds, items, reply = search.measure(recipe)
            return f"{recipe['command']} of {items} items: {1000 * seconds:.2f} ms, {str(reply)[:200]}"
        for number in range(arguments.count):
            search.attempt(search.next(number))
            progress(number + 1, arguments.count, "tries")
        server.check()
    late = {}
    for command, (excess, seconds, recipe) in sorted(search.worst.items(), key=lambda worst: -worst[1][1]):
        if arguments.table:
            print(f"{command:14} {1000 * seconds:9.2f} ms  {excess:7.0%} of its bound {json.dumps(recipe)}")
        if excess > 1:
            late[command] = f"{1000 * seconds:.1f} ms: --recipe '{json.dumps(recipe)}'"
    assert not late, "held the main thread for longer than they may:\n" + "\n".join(
        f"{command} {what}" for command, what in late.items()
    )
    nearest = max(search.worst, key=lambda command: search.worst[command][0])
    single = max((worst[1], command) for command, worst in search.worst.items() if command not in PER_ITEM)
    return (
        f"{len(search.worst)} commands in {arguments.count} tries; nearest to its bound {nearest} "
        f"({search.worst[nearest][0]:.0%}); longest without BF.BULKTEST {single[1]} {1000 * single[0]:.1f} ms"
    )


def main() -> None:
    parser = options("held", __doc__, 3000, "tries")
    parser.add_argument("--items", type=int, default=100_000, metavar="N", help="most items of a command (100,000)")
    parser.add_argument("--recipe", metavar="JSON", help="measure this one alone")
    parser.add_argument("--table", action="store_true", help="print the worst of every command, and its recipe")
    run(held, parser)
