"""Memory: what MEMORY USAGE reports for a filter, and by how much the server's used_memory grows."""

from rivals.measure import Bench, Row, Scale, Series, Side, Topic, encode
from rivals.rows import RATE, answer, fill

CAPACITIES = [digit * 10**power for power in range(1, 6) for digit in (1, 2, 4, 7)] + [1_000_000]
GROWTHS = [2, 3, 4, 7, 10, 20, 40, 100, 200, 400, 1000]
OPTIONS = ["", " NONSCALING"]
COPIES = 8 << 20  # used_memory is averaged over copies of a filter, which take up about this many bytes in total

# Targets for the rival's memory over ours. The most common filters, which can grow and are for up to SMALL items, may
# not be a byte larger than the rival's.
SMALL = 40_000
RESERVED, LARGE, FIXED, GROWN = 1.0, 1 / 1.05, 1 / 1.05, 1 / 1.08
FROM_DEFAULT = 53.5 / 37  # from 100 to 10 million items: RedisBloom's 53.5 million bytes over ours, at most 37 million


def usage(side: Side, key: str) -> int:
    return side.ask([encode("MEMORY", "USAGE", key, "SAMPLES", 0)])[0]


def used(side: Side) -> int:
    (text,) = side.ask([encode("INFO", "memory")])
    return int(text.split(b"used_memory:")[1].split()[0])


def each(sides: list[Side], value) -> Series:
    rival, ours = (float(value(side)) for side in sides)
    return Series([rival], [ours])


def reserved(scale: Scale) -> Topic:
    """Memory of new filters, by used_memory and by MEMORY USAGE."""

    def target(capacity: int, option: str = "") -> float:
        return FIXED if option else RESERVED if capacity <= SMALL else LARGE

    capacities = [capacity for capacity in CAPACITIES if capacity <= max(scale.most, 1000)]
    rows = [Row("BF.ADD, used_memory", RESERVED), Row("CF.ADD, used_memory", RESERVED)]
    for option in OPTIONS:
        for kind in ("MEMORY USAGE", "used_memory"):
            rows += [Row(f"{capacity:,}{option}, {kind}", target(capacity, option)) for capacity in capacities]
    rows += [Row(f"CF {capacity:,}, MEMORY USAGE", target(capacity)) for capacity in capacities]

    def run(bench: Bench, topic: Topic) -> dict[str, Series]:
        def by_used_memory(words) -> Series:
            def value(side: Side) -> float:
                side.ask([encode("FLUSHALL", "SYNC"), encode(*words("first"))])
                # The size of the server's table of keys is a power of two, and a full table may be doubled at any time.
                # So the number of copies is one less than a power of two.
                copies = min(COPIES // usage(side, "first"), scale.default_filters)
                copies = max((1 << (copies.bit_length() - 1)) - 1, 1)
                side.ask([encode("FLUSHALL", "SYNC")])
                before = used(side)
                side.ask([encode(*words(f"key:{number:05}")) for number in range(copies)])
                return (used(side) - before) / copies

            return each(sides, value)

        found = {}
        with bench.sides(config={"activerehashing": "no"}) as (*sides, _):
            for family in ("BF", "CF"):
                found[f"{family}.ADD, used_memory"] = by_used_memory(lambda key: (f"{family}.ADD", key, "item"))
            for capacity in capacities:
                for option in OPTIONS:
                    reserve = ["BF.RESERVE", "key", RATE, capacity, *option.split()]
                    name = f"{capacity:,}{option}"
                    found[f"{name}, used_memory"] = by_used_memory(lambda key: [reserve[0], key, *reserve[2:]])
                    answer(sides, [encode("DEL", "key"), encode(*reserve)])
                    found[f"{name}, MEMORY USAGE"] = each(sides, lambda side: usage(side, "key"))
                answer(sides, [encode("DEL", "key"), encode("CF.RESERVE", "key", capacity)])
                found[f"CF {capacity:,}, MEMORY USAGE"] = each(sides, lambda side: usage(side, "key"))
        return found

    return Topic("memory", f"Memory of filters as reserved, at {RATE:.0%}", "bytes", rows, run)


def grown(scale: Scale) -> Topic:
    """Memory of filters that have grown from their first capacity."""
    starts = {first: [times for times in GROWTHS if first * times <= scale.most] for first in (10, 100, 1_000, 10_000)}
    rows = [Row(f"{first:,} ×{times}", GROWN) for first, growths in starts.items() for times in growths]
    last = f"100 to {scale.most:,}, of the first add"
    rows.append(Row(last, FROM_DEFAULT if scale.most == 10_000_000 else GROWN))

    def run(bench: Bench, topic: Topic) -> dict[str, Series]:
        found = {}
        with bench.sides() as (*sides, _):
            for first, growths in starts.items():
                answer(sides, [encode("BF.RESERVE", "key", RATE, first)])
                added = 0
                for times in growths:
                    answer(sides, fill("BF", "key", range(added, first * times)))
                    added = first * times
                    found[f"{first:,} ×{times}"] = each(sides, lambda side: usage(side, "key"))
                answer(sides, [encode("DEL", "key")])
            answer(sides, fill("BF", "default", range(scale.most)))
            found[last] = each(sides, lambda side: usage(side, "default"))
        return found

    return Topic("growth", f"Memory of filters that grew, at {RATE:.0%}, MEMORY USAGE", "bytes", rows, run)
