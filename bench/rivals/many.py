"""Many filters of the default size: what it costs to make, save, load, replicate, delete, expire and evict them."""

import os
import re
import time

from rivals.measure import Bench, Row, Scale, Series, Side, Topic, Wrong, cpu, encode, settle

PART = 10_000  # number of commands that are sent at a time
ROWS = {
    "BF.ADD, new key": "ns",
    "used_memory": "bytes",
    "SAVE": "ns",
    "RDB file": "bytes",
    "restart": "ns",
    "full sync: primary, its child and replica": "ns",
    "DEL": "ns",
    "found expired": "ns",
}


def topic(scale: Scale) -> Topic:
    count = scale.default_filters
    rows = [Row(f"{name}, {unit}", 1.0) for name, unit in ROWS.items()]
    rows.append(Row(f"bytes for each filter that fits into {scale.memory} under allkeys-lru", 1.0))

    def run(bench: Bench, topic: Topic) -> dict[str, Series]:
        found = {row.name: Series([], [], []) for row in rows}
        # A round with a million filters lasts half a minute, so there is only one. With fewer filters, there are up to
        # three rounds, each of which begins with a different side.
        for turn in range(1 if count >= 1_000_000 else min(bench.rounds, 3)):
            with bench.sides(config={"repl-diskless-sync": "yes"}) as sides:
                for side in sides[turn:] + sides[:turn]:
                    for (name, unit), value in zip(ROWS.items(), life(side, count), strict=True):
                        getattr(found[f"{name}, {unit}"], side.name).append(value / count)
        with bench.sides(config={"maxmemory": scale.memory, "maxmemory-policy": "allkeys-lru"}) as sides:
            for side in sides:
                getattr(found[rows[-1].name], side.name).append(evicted(side))
        return found

    return Topic("many", f"{count:,} filters of the default size", "for each", rows, run)


def make(side: Side, numbers: range) -> int:
    """Makes filters with one item each. Returns the CPU time in nanoseconds."""
    return over_all(side, numbers, "BF.ADD", 1, "item")


def life(side: Side, count: int) -> list[float]:
    """Returns the measurements that ROWS names, in that order, for all of the filters together."""
    empty, before = cpu(side.server), figure(side, "memory", "used_memory")  # the server has just started
    created = make(side, range(count))
    memory = figure(side, "memory", "used_memory") - before
    saved, _ = side.cost([encode("SAVE")])
    size = os.path.getsize(side.server.directory / "dump.rdb")
    side.server.kill()
    side.server.start()
    loaded = cpu(side.server) - empty
    side.connect()
    must_have(side, count)
    synced = full_sync(side, count) - empty
    deleted = over_all(side, range(count), "DEL", 1)
    make(side, range(count))
    side.ask([encode("DEBUG", "SET-ACTIVE-EXPIRE", 0)])
    over_all(side, range(count), "PEXPIRE", 1, 1)
    time.sleep(0.01)
    expired = over_all(side, range(count), "EXISTS", 0)
    must_have(side, 0)
    return [created, memory, saved, size, loaded, synced, deleted, expired]


def over_all(side: Side, numbers: range, command: str, reply: int, *options) -> int:
    """Sends a command for the filter of each number. Every reply must be `reply`. Returns nanoseconds of CPU time."""
    ns = 0
    for start in range(0, len(numbers), PART):
        part = [encode(command, f"filter:{number}", *options) for number in numbers[start : start + PART]]
        spent, replies = side.cost(part)
        ns += spent
        if replies != [reply] * len(part):
            raise Wrong(f"{side.name}: {command} did not reply {reply} for each filter")
    return ns


def full_sync(side: Side, count: int) -> float:
    """Starts a replica, waits until it is in sync, and stops it. Returns CPU time in nanoseconds: the sum for the
    primary, the child that the primary forks to send the data, and the replica since its start."""
    before = cpu(side.server) + children(side)
    replica = side.server.replica()
    settle(replica)
    spent = cpu(side.server) + children(side) - before + cpu(replica)
    with replica.client() as client:
        if client.dbsize() != count or not client.execute_command("BF.EXISTS", "filter:0", "item"):
            raise Wrong(f"{side.name}: the replica lacks filters")
    replica.destroy()
    side.server.replicas.clear()
    return spent


def children(side: Side) -> float:
    """Nanoseconds of CPU time that the server's child processes used. Only children that have ended are counted."""
    return sum(figure(side, "cpu", name) for name in ("used_cpu_user_children", "used_cpu_sys_children")) * 1e9


def evicted(side: Side) -> float:
    """Makes filters until a third of them have been evicted. Returns `maxmemory` in bytes, divided by the number of
    filters that remain."""
    limit = figure(side, "memory", "maxmemory")
    made = 0
    while figure(side, "stats", "evicted_keys") < made / 3 or not made:
        make(side, range(made, made + PART))
        made += PART
    return limit / side.ask([encode("DBSIZE")])[0]


def must_have(side: Side, count: int) -> None:
    (keys,) = side.ask([encode("DBSIZE")])
    if keys != count:
        raise Wrong(f"{side.name} has {keys} filters, not {count}")
    if count and side.ask([encode("BF.EXISTS", f"filter:{count - 1}", "item")]) != [1]:
        raise Wrong(f"{side.name}: a filter has lost its item")


def figure(side: Side, section: str, name: str) -> float:
    (text,) = side.ask([encode("INFO", section)])
    return float(re.search(rf"(?m)^{name}:([\d.]+)", text.decode()).group(1))
