"""Filters under maxmemory: each policy refuses or evicts as documented, and all memory is freed in the end.

Without free memory, the server refuses every command that might allocate, and no other. A filter of 1024 MiB (or the
given size) is reserved, filled, and freed in every possible way. If it has 1024 MiB or more, neither reserving nor
freeing it blocks the main thread for 100 ms. Afterwards the server uses as much memory as before, within 1%.
"""

import random
import time

import redis

from kit.commands import COMMANDS
from kit.filters import members
from kit.foreign import ValkeyBloomChain
from kit.metrics import figures, gauges
from kit.servers import option, wait_for
from kit.suite import Server, options, run

MIB = 1 << 20
HELD = 0.1  # seconds: neither reserving nor freeing a filter may block the main thread for this long
POLICIES = [
    f"{keys}-{order}" for keys in ["allkeys", "volatile"] for order in ["lru", "lfu", "random", *["ttl"][keys != "volatile" :]]
]
# The module itself refuses these commands, instead of the server, because some of their forms free memory.
CHECK_THEMSELVES = {"BF.LOADCHUNK", "CF.LOADCHUNK"}
VALKEY = ValkeyBloomChain(100, 0.01, 0.5, 2, bytes(32)).payload()


def used(client) -> int:
    return client.info("memory")["used_memory"]


def evicting(spec, policy: str) -> int:
    """Checks that filters are evicted like other keys, and that the remaining ones are complete. Returns how many were
    evicted."""
    with Server(spec, config={"maxmemory-policy": policy, "lazyfree-lazy-eviction": "no"}) as server:
        client = server.client()
        client.config_set("maxmemory", used(client) + 20 * MIB)
        for number in range(60):  # 69 MiB in all
            client.execute_command("BF.RESERVE", f"filter:{number}", 0.01, 1_000_000)
            client.expire(f"filter:{number}", 1000 + number)
            client.execute_command("BF.MADD", f"filter:{number}", *members(10))
        assert used(client) <= client.info("memory")["maxmemory"] + 3 * MIB, policy
        client.config_set("maxmemory", 0)  # end the eviction, so that the keys no longer change
        left, evicted = client.keys(), client.info("stats")["evicted_keys"]
        assert evicted >= 40, f"{policy}: {evicted} keys were evicted"
        counted = sum(figures(client, "bf_filters").values())
        # If a filter is evicted before its first item arrives, BF.MADD creates it again, and it counts twice.
        assert counted == len(left) >= 60 - evicted, f"{policy}: {counted} filters, {len(left)} keys, {evicted} evicted"
        for key in left:
            assert client.execute_command("BF.MEXISTS", key, *members(10)) == [1] * 10
        if policy.startswith("volatile"):
            for key in left:
                client.persist(key)
            client.config_set("maxmemory", used(client))
            refused_for_memory(client, "BF.RESERVE", "more", 0.01, 20_000_000)
            assert sorted(client.keys()) == sorted(left)
        server.check()
        return evicted


def refused_for_memory(client, *command) -> None:
    try:
        reply = client.execute_command(*command)
    except redis.exceptions.OutOfMemoryError:
        return
    except redis.ResponseError as error:
        assert "Insufficient memory" in str(error), (command, error)
        return
    raise AssertionError(f"{command[0]} was done without memory: {reply}")


def deny_oom(spec) -> int:
    """Checks that without free memory, every command that might need some is refused and changes nothing, and that
    all others work. Returns how many were refused."""
    with Server(spec, config={"maxmemory-policy": "noeviction"}) as server:
        client = server.client()
        for command in [
            "BF.RESERVE bloom 0.01 100 COUNTING", "BF.RESERVE plain 0.01 100", "BF.RESERVE window 0.01 100 WINDOW 2",
            "CF.RESERVE cuckoo 100", "BF.RESERVE foreign 0.1 10 SCHEME GUAVA", "SET bits x",
            "BF.MADD bloom item item item", "CF.INSERT cuckoo ITEMS item item",
            "CMS.INITBYDIM cms 20 5", "TOPK.RESERVE topk 10", "TDIGEST.CREATE tdigest",
        ]:  # fmt: skip
            client.execute_command(*command.split())
        words = {
            "BF.MERGE": ["BF.MERGE", "new", "plain"],
            "BF.INTERSECT": ["BF.INTERSECT", "new", "plain", "plain"],
            "BF.LOADCHUNK": ["BF.LOADCHUNK", "new", *client.execute_command("BF.SCANDUMP", "plain", 0)],
            "CF.LOADCHUNK": ["CF.LOADCHUNK", "new", *client.execute_command("CF.SCANDUMP", "cuckoo", 0)],
            "BF.IMPORT": ["BF.IMPORT", "new", "GOZERO", "bits", "BITS", 1024],
            "BF.LOAD": ["BF.LOAD", "new", VALKEY],
        }
        client.config_set("maxmemory", "1mb" if used(client) > MIB else "100kb")
        before = gauges(client), sorted(client.keys())
        for command in COMMANDS:
            key = {"BF.ROTATE": "window", "BF.AGE": "window", "BF.EXPORT": "foreign"}.get(command.name)
            line = words.get(command.name) or command.words("new" if command.creates else key or command.family)
            if "denyoom" in command.flags or command.name in CHECK_THEMSELVES:
                refused_for_memory(client, *line)
                assert (gauges(client), sorted(client.keys())) == before, command.name
            elif command.reads:
                client.execute_command(*line)
        for line in ["BF.DEL bloom item", "BF.MDEL bloom item", "CF.DEL cuckoo item", "CF.COMPACT cuckoo"]:
            client.execute_command(*line.split())
        for line in ["BF.ROTATE window", "BF.CLEAR bloom", "DEL bloom"]:
            client.execute_command(*line.split())
        server.check()
        return sum("denyoom" in command.flags or command.name in CHECK_THEMSELVES for command in COMMANDS)


WAYS = ["DEL", "UNLINK", "FLUSHALL ASYNC", "expiry", "SET", "RENAME", "BF.CLEAR", "BF.ROTATE"]


def come_and_go(spec, mib: int, seed: int) -> tuple[float, float]:
    """Creates the largest allowed filter and frees it, in every way. Returns the longest hold, and the largest relative
    difference in memory."""
    name, random_bytes = option(spec, "max-filter-bytes"), random.Random(seed).randbytes
    with Server(spec) as server:
        client = server.client()
        longest, off = (0.0, ""), (0.0, "")

        def hold(what: str, *words):
            nonlocal longest
            before = server.processor()
            client.execute_command(*words)
            longest = max(longest, (server.processor() - before, what))

        def come_and_go_once(way: str, size: int) -> None:
            nonlocal longest
            client.config_set(name, size)
            window = ["WINDOW", 2] if way == "BF.ROTATE" else ["NONSCALING"]
            hold("RESERVE", "BF.RESERVE", "big", 0.01, int(size * (8 if way != "BF.ROTATE" else 3.3) / 9.93), *window)
            # Add enough items to touch every page. The query buffer is freed together with `command`'s own connection.
            server.command("BF.BULKADD", "big", "FIXED", 8, random_bytes(size // 16))
            refused_for_memory(client, "BF.RESERVE", "larger", 0.01, int(size * 8 / 9.8))
            match way:
                case "expiry":
                    client.pexpire("big", 1)
                    before = server.processor()
                    time.sleep(0.1)
                    assert not client.exists("big")
                    longest = max(longest, (server.processor() - before, way))
                case "SET":
                    hold(way, "SET", "big", "small")
                case "RENAME":
                    client.set("small", "small")
                    hold(way, "RENAME", "small", "big")
                case "BF.CLEAR" | "BF.ROTATE":
                    hold(way, way, "big")
                    client.execute_command("UNLINK", "big")
                case "FLUSHALL ASYNC":
                    hold(way, *way.split())
                case _:
                    hold(way, way, "big")
            client.execute_command("DEL", "big", "small")
            wait_for(lambda: not any(gauges(client).values()), f"all to be freed after {way}")

        for way in WAYS:  # warms up: the server creates threads and tables only once
            come_and_go_once(way, 16 * MIB)
        for way in WAYS:
            baseline = used(client)
            come_and_go_once(way, mib * MIB)
            wait_for(lambda start=baseline: abs(used(client) - start) <= 0.01 * start, f"the memory of {way}")
            off = max(off, (abs(used(client) - baseline) / baseline, way))
        server.check()
    assert mib < 1024 or longest[0] < HELD, f"{longest[1]} of {mib} MiB held the main thread for {1000 * longest[0]:.0f} ms"
    return longest[0], off[0]


def memory(spec, arguments) -> str:
    evicted = [evicting(spec, policy) for policy in POLICIES]
    denied = deny_oom(spec)
    longest, off = come_and_go(spec, arguments.count, arguments.seed)
    return (
        f"{len(POLICIES)} policies evicted {sum(evicted)} filters, the rest whole; {denied} of "
        f"{len(COMMANDS)} commands refused without memory; {arguments.count} MiB came and went in {len(WAYS)} ways, held at "
        f"most {1000 * longest:.1f} ms, memory back to {100 * off:.2f} %"
    )


def main() -> None:
    run(memory, options("memory", __doc__, 1024, "MiB of the largest filter"))
