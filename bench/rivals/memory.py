"""Memory of filters beside RedisBloom's, on a real server.

    PYTHONPATH=tests .cache/venv/bin/python bench/rivals/memory.py [--server redis-8.0] [--quick]

Prints MEMORY USAGE of new filters and of filters that have grown, what a filter of default size costs in memory, in an RDB
file and in replication, and the ratio of each to RedisBloom's. `scripts/redisbloom` fetches RedisBloom, and BLOOMERY_MODULE
names another build of the module.
"""

import argparse

from kit.redisbloom import MODULE as REDISBLOOM
from kit.servers import MODULE, Server, matrix

CAPACITIES = [10, 30, 100, 300, 1_000, 3_000, 10_000, 40_000]
GROWTHS = [1, 2, 3, 5, 10, 30, 100, 300, 1_000]
ERROR_RATES = ["0.1", "0.01", "0.001"]
MANY = 100_000
BATCH = 1000


def pipelined(client, commands) -> None:
    pipeline, waiting = client.pipeline(transaction=False), 0
    for command in commands:
        pipeline.execute_command(*command)
        waiting += 1
        if waiting == BATCH:
            pipeline.execute()
            waiting = 0
    pipeline.execute()


def usage(client, *reserve) -> int:
    client.flushall()
    client.execute_command("BF.RESERVE", "key", *reserve)
    return client.memory_usage("key")


def grown(client, capacity: int, growths: list[int]) -> list[int]:
    """MEMORY USAGE of a filter for `capacity` items after as many items as each of `growths` times that."""
    client.flushall()
    client.execute_command("BF.RESERVE", "key", "0.01", capacity)
    sizes, added = [], 0
    for growth in growths:
        numbers = range(added, capacity * growth)
        pipelined(client, (["BF.MADD", "key", *numbers[at : at + BATCH]] for at in range(0, len(numbers), BATCH)))
        added = capacity * growth
        sizes.append(client.memory_usage("key"))
    return sizes


def defaults(server, client) -> dict[str, float]:
    """Bytes of each of many filters that BF.ADD made, with one item."""
    before = client.info("memory")["used_memory"]
    pipelined(client, (["BF.ADD", "filter:%06d" % number, "item"] for number in range(MANY)))
    costs = {"used_memory of a default filter": (client.info("memory")["used_memory"] - before) / MANY}
    client.save()
    costs["RDB bytes of a default filter"] = (server.directory / "dump.rdb").stat().st_size / MANY
    return costs


def replicated(server, client) -> float:
    """Bytes of the stream for a filter that BF.ADD made, with the transaction around them."""
    client.flushall()
    with server.replica(module=server.module):
        server.wait_for_replicas()
        before = client.info("replication")["master_repl_offset"]
        pipelined(client, (["BF.ADD", "filter:%06d" % number, "item"] for number in range(BATCH)))
        return (client.info("replication")["master_repl_offset"] - before) / BATCH


def measure(spec, module, growth: int) -> dict[str, list[float]]:
    """Numbers by the name of their row."""
    rows = {}
    with Server(spec, module=module) as server, server.client() as client:
        for rate in ERROR_RATES:
            rows[f"p = {rate}"] = [usage(client, rate, capacity) for capacity in CAPACITIES]
            rows[f"p = {rate}, NONSCALING"] = [usage(client, rate, capacity, "NONSCALING") for capacity in CAPACITIES]
        growths = [factor for factor in GROWTHS if factor <= growth]
        for capacity in CAPACITIES:
            within = [factor for factor in growths if factor * capacity <= 4_000_000 or factor <= 100]
            rows[f"{capacity} items, grown"] = grown(client, capacity, within)
    with Server(spec, module=module) as server, server.client() as client:
        for name, value in defaults(server, client).items():
            rows[name] = [value]
        rows["bytes replicated for a default filter"] = [replicated(server, client)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="redis-8.0")
    parser.add_argument("--quick", action="store_true", help="grow to 10 times the capacity only")
    arguments = parser.parse_args()
    (spec,) = [spec for spec in matrix() if str(spec) == arguments.server]
    growth = 10 if arguments.quick else 1000
    ours, theirs = (measure(spec, module, growth) for module in [MODULE, REDISBLOOM])
    print(f"capacities {CAPACITIES}, grown {GROWTHS} times")
    for name, mine in ours.items():
        print(f"{name}:")
        print("  ours   ", *(f"{number:>9.0f}" for number in mine))
        print("  theirs ", *(f"{number:>9.0f}" for number in theirs[name]))
        print("  ratio  ", *(f"{our / their:>9.3f}" for our, their in zip(mine, theirs[name], strict=True)))


if __name__ == "__main__":
    main()
