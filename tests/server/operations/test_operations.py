"""What an operator deals with: memory and its limits, deletion, eviction, notifications, transactions, and hostile
bytes. Each refusal must say what was wrong and leave the key unchanged,
"""

import socket
import time
from pathlib import Path

import pytest
import redis

from kit.clients import refusal
from kit.commands import COMMANDS
from kit.filters import make_all
from kit.metrics import figures
from kit.servers import option, wait_for
from kit.threads import Still
from kit.workload import Workload

EVERY_SERVER = pytest.mark.every_server("memory, eviction, events, transactions and the log are the server's")

# ---- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "COUNTING 16", "WINDOW 64", "LAYOUT CLASSIC SHARDS 1024"])
def test_a_filter_larger_than_the_machine_is_refused(server, more):
    with server.client() as client:
        text = refusal(client, "BF.RESERVE", "huge", 0.01, 100_000_000_000_000, *more.split())
        assert text.startswith("Insufficient memory to create filter: it needs ")
        assert " TiB, and the memory of this machine is " in text or " PiB, and the memory of this machine is " in text
        assert client.exists("huge") == 0
        assert refusal(client, "BF.INSERT", "huge", "CAPACITY", 100_000_000_000_000, "ITEMS", "a") == text or more
        assert client.exists("huge") == 0


@pytest.mark.parametrize("reserve", ["BF.RESERVE source 0.01 20000000", "CF.RESERVE source 20000000"])
def test_a_large_filter_is_copied_on_all_threads(new_server, reserve):
    with new_server(module_args=["THREADS", "1"]).client() as client:
        client.execute_command(*reserve.split())
        before = figures(client)["pool_forks"]
        assert client.copy("source", "target")
        assert figures(client)["pool_forks"] == before + 1
        source, target = client.execute_command("DEBUG", "DIGEST-VALUE", "source", "target")
        assert source == target


def test_a_gigabyte_is_reserved_seen_and_freed(server):
    with server.client() as client:
        before = client.info("memory")["used_memory"]
        client.execute_command("BF.RESERVE", "big", 0.01, 800_000_000)
        size = client.execute_command("BF.INFO", "big", "SIZE")[0]
        assert 900 << 20 < size < 1100 << 20
        assert 0 <= client.execute_command("MEMORY", "USAGE", "big") - size < 1000
        # The allocator rounds up, by a quarter at most.
        assert size <= client.info("memory")["used_memory"] - before < 1.26 * size
        client.unlink("big")
        wait_for(lambda: client.info("memory")["used_memory"] < before + (10 << 20), "the memory to come back")


def test_a_ttl_keeps_a_burst_and_gives_its_memory_back(server):
    """The capacity is a hint: no item leaves early if ten times as many come. When they have expired, adds free them.
    """
    hint, ttl = 2000, 3
    blob = b"".join(b"%08d" % number for number in range(11 * hint))
    with server.client() as client:

        def present(end):
            return client.execute_command("BF.BULKTEST", "recent", "FIXED", 8, blob[:end], "COUNT")

        client.execute_command("BF.RESERVE", "recent", 0.01, hint, "TTL", ttl * 1000)
        start = time.monotonic()
        for end in range(8 * hint, 80 * hint + 1, 8 * hint):
            client.execute_command("BF.BULKADD", "recent", "FIXED", 8, blob[end - 8 * hint : end])
            assert present(end) == end // 8 or time.monotonic() - start > ttl
        (large,) = client.execute_command("BF.INFO", "recent", "SIZE")
        wait_for(lambda: present(80 * hint) == 0, "the items to expire")
        time.sleep(ttl / 10)  # a leaf of the table is cleaned a generation later
        client.execute_command("BF.BULKADD", "recent", "FIXED", 8, blob[80 * hint :])
        (small,) = client.execute_command("BF.INFO", "recent", "SIZE")
        assert small < 0.3 * large


@pytest.mark.parametrize("reserve", [("BF.RESERVE", 0.01, 100_000), ("CF.RESERVE", 100_000)], ids=["BF", "CF"])
def test_a_new_filter_touches_no_page_of_its_cells(new_server, reserve):
    """Touching a page costs more than everything else that creating a filter does, because the kernel must handle a
    page fault and clear the page."""
    command, *options = reserve
    server, count = new_server(), 2000
    with server.client() as client:
        before = resident_pages(server)
        pipeline = client.pipeline(transaction=False)
        for number in range(count):
            pipeline.execute_command(command, f"filter:{number}", *options)
        pipeline.execute()
        assert resident_pages(server) - before < count


def resident_pages(server) -> int:
    """The current number of pages that the server has in memory. The number in INFO is as old as the last timer tick.
    """
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])


@pytest.mark.parametrize("way", ["UNLINK", "FLUSHALL ASYNC", "expiry", "SET"])
@EVERY_SERVER
def test_the_server_frees_large_filters_on_its_own_thread(new_server, way):
    server = new_server(config={"lazyfree-lazy-expire": "yes", "lazyfree-lazy-server-del": "yes"})
    with server.client() as client:
        client.execute_command("BF.RESERVE", "big", 0.01, 80_000_000)
        client.config_resetstat()
        match way:
            case "expiry":
                client.pexpire("big", 1)
                wait_for(lambda: not client.exists("big"), "the key to expire")
            case "FLUSHALL ASYNC":
                client.flushall(asynchronous=True)
            case "SET":
                client.set("big", "small")
            case _:
                client.unlink("big")
        wait_for(lambda: client.info("memory")["lazyfreed_objects"] == 1, "the filter to be freed")


@pytest.mark.parametrize("way", ["DEL", "BF.CLEAR", "BF.ROTATE"])
def test_the_module_frees_large_filters_on_its_own_thread(new_server, way):
    server = new_server()
    with server.client() as client:
        before = client.info("memory")["used_memory"]
        window = ["WINDOW", 2] if way == "BF.ROTATE" else []
        for key in ("first", "big"):
            client.execute_command("BF.RESERVE", key, 0.01, 80_000_000, *window)
        client.delete("first")  # starts the thread
        wait_for(lambda: figures(client)["freeing_bytes"] == 0, "the first filter to be freed")
        client.execute_command("BF.ADD", "big", "x")  # an empty filter has nothing to free
        if way == "BF.ROTATE":
            client.execute_command("BF.ROTATE", "big")  # the next rotation drops the item's generation
        still = Still(server, "bloomery-free")
        client.execute_command(way, "big")
        freeing = figures(client)["freeing_bytes"]
        still.go_on()
        assert freeing > 40 << 20
        client.delete("big")
        wait_for(lambda: client.info("memory")["used_memory"] < before + (10 << 20), "the memory to come back")


@EVERY_SERVER
def test_unlink_counts_the_effort(server):
    """If a value costs some effort to free, the server frees it on another thread, and counts it."""
    with server.client() as client:
        client.config_resetstat()
        client.execute_command("BF.RESERVE", "small", 0.01, 1000)
        client.execute_command("BF.RESERVE", "large", 0.01, 1_000_000)
        client.execute_command("CF.RESERVE", "cuckoo", 1_000_000)
        client.unlink("small")
        assert client.info("memory")["lazyfreed_objects"] == 0
        client.unlink("large", "cuckoo")
        wait_for(lambda: client.info("memory")["lazyfreed_objects"] == 2, "both to be freed")


def test_max_filter_bytes(server):
    name = option(server.spec, "max-filter-bytes")
    with server.client() as client, server.configured({name: "20kb"}):
        text = refusal(client, "BF.RESERVE", "large", 0.01, 100_000)
        assert text == "Insufficient memory to create filter: it needs 130.1 KiB, and max-filter-bytes is 20.0 KiB"
        assert "max-filter-bytes" in refusal(client, "BF.INSERT", "large", "CAPACITY", 100_000, "ITEMS", "a")
        assert client.exists("large") == 0
        # The generations of a window count together.
        client.execute_command("BF.RESERVE", "fits", 0.01, 2000, "WINDOW", 2)
        assert "max-filter-bytes" in refusal(client, "BF.RESERVE", "not", 0.01, 2000, "WINDOW", 64)


@EVERY_SERVER
def test_maxmemory_without_eviction(new_server):
    server = new_server(config={"maxmemory-policy": "noeviction"})
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (20 << 20))
        text = refusal(client, "BF.RESERVE", "large", 0.01, 100_000_000)
        assert text.startswith("Insufficient memory to create filter: it needs 1") and "maxmemory" in text
        assert client.exists("large") == 0
        client.execute_command("BF.RESERVE", "fits", 0.01, 10_000_000)
        assert "maxmemory leaves" in refusal(client, "BF.RESERVE", "second", 0.01, 10_000_000)
        assert client.execute_command("BF.ADD", "fits", "a") == 1
        client.config_set("maxmemory", "1mb")  # more is in use, so the server itself refuses writes
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.execute_command("BF.ADD", "fits", "b")
        assert client.execute_command("BF.MEXISTS", "fits", "a", "b") == [1, 0]


@EVERY_SERVER
def test_maxmemory_that_changes(new_server):
    """The configured limits are read once, and again after each change of the configuration."""
    server = new_server(config={"maxmemory-policy": "noeviction"})
    with server.client() as client:
        client.setrange("filler", 5 << 20, "x")
        used = client.info("memory")["used_memory"]
        tight, roomy = used + (10 << 20), used + (60 << 20)
        for maxmemory, policy, fits in [
            (0, "noeviction", True),
            (tight, "noeviction", False),
            (roomy, "noeviction", True),
            (tight, "noeviction", False),
            (tight, "volatile-lru", True),
            (tight, "noeviction", False),
            (0, "noeviction", True),
        ]:
            client.config_set("maxmemory", maxmemory)
            client.config_set("maxmemory-policy", policy)
            words = ["BF.RESERVE", "filter", 0.01, 10_000_000]  # 12 MiB
            if fits:
                assert client.execute_command(*words) == b"OK", (maxmemory, policy)
                client.delete("filter")
                wait_for(lambda: client.info("memory")["used_memory"] < used + (1 << 20), "the memory to come back")
            else:
                assert "Insufficient memory" in refusal(client, *words), (maxmemory, policy)


@EVERY_SERVER
def test_everything_goes_at_once(server):
    with server.client() as client:
        before = client.info("memory")["used_memory"]
        for way in ["ASYNC", "SYNC"]:
            make_all(client)
            client.execute_command("FLUSHALL", way)
            wait_for(lambda: client.info("memory")["used_memory"] < before + (2 << 20), "the memory to come back")


# ---- who is told about a change -------------------------------------------------------------------------------------

# A command, and the events that it causes. Each command finds the filters as earlier ones left them.
WRITES = [
    ("BF.RESERVE plain 0.01 3 NONSCALING SEED 1", ["bf.reserve"]),
    ("BF.RESERVE counting 0.01 100 COUNTING", ["bf.reserve"]),
    ("BF.RESERVE window 0.01 100 WINDOW 2", ["bf.reserve"]),
    ("BF.RESERVE plain 0.01 3", []),
    ("BF.ADD fresh a", ["bf.reserve", "bf.add"]),
    ("BF.ADD plain a", ["bf.add"]),
    ("BF.ADD plain a", []),
    ("BF.ADDNX plain a", []),
    ("BF.ADDNX plain b", ["bf.add"]),
    ("BF.MADD plain a c", ["bf.add"]),
    ("BF.MADD plain a b", []),
    ("BF.BULKADD bulk FIXED 1 ab", ["bf.reserve", "bf.add"]),
    ("BF.BULKADD bulk FIXED 1 ba", []),
    ("BF.ADD plain d", []),
    ("BF.INSERT plain ITEMS a d", []),
    ("BF.INSERT another ITEMS a", ["bf.reserve", "bf.add"]),
    ("BF.INSERT missing NOCREATE ITEMS a", []),
    ("BF.MADD counting a a", ["bf.add"]),
    ("BF.ADDNX counting a", []),
    ("BF.DEL counting a", ["bf.del"]),
    ("BF.DEL counting never", []),
    ("BF.MDEL counting never a", ["bf.del"]),
    ("BF.MDEL counting a never", []),
    ("BF.DEL missing a", []),
    ("BF.DEL plain a", []),
    ("BF.ADD window a", ["bf.add"]),
    ("BF.ADD window a", []),
    ("BF.ROTATE window", ["bf.rotate"]),
    ("BF.ADD window a", ["bf.add"]),
    ("BF.ROTATE plain", []),
    ("BF.CLEAR plain", ["bf.clear"]),
    ("BF.CLEAR plain", []),
    ("BF.CLEAR missing", []),
    ("BF.EXISTS plain a", []),
    ("BF.MEXISTS missing a", []),
    ("BF.TEST window a", []),
    ("BF.COUNT counting a", []),
    ("BF.AGE window a", []),
    ("BF.CARD plain", []),
    ("BF.STATS plain", []),
    ("BF.DEBUG plain", []),
    ("BF.FEEDBACK plain 1 0", []),
    ("BF.SCANDUMP plain 0", []),
    ("BF.EXPORT plain", []),
]


def attempt(client, command: str) -> None:
    try:
        client.execute_command(*command.split())
    except redis.ResponseError:
        pass


@EVERY_SERVER
def test_keyspace_events(server):
    """Changes cause events of the class for modules, `d`. A command that changes nothing causes none."""
    with server.configured({"notify-keyspace-events": "Ed"}), server.client() as client:
        with server.client() as listener, listener.pubsub() as events:
            events.psubscribe("__keyevent@0__:*")
            events.get_message(timeout=60)
            for command, expected in WRITES:
                attempt(client, command)
                client.publish("__keyevent@0__:done", command)
                seen = []
                while (message := events.get_message(timeout=60))["channel"] != b"__keyevent@0__:done":
                    seen.append(message["channel"].decode().split(":", 1)[1])
                    assert message["data"].decode() == command.split()[1]
                assert seen == expected, command


@EVERY_SERVER
def test_a_chunked_load_is_an_event_when_it_is_complete(server):
    with server.configured({"notify-keyspace-events": "Ed"}), server.client() as client:
        client.execute_command("BF.ADD", "source", "a")
        _, head = client.execute_command("BF.SCANDUMP", "source", 0)
        end, chunk = client.execute_command("BF.SCANDUMP", "source", 1)
        with server.client() as listener, listener.pubsub() as events:
            events.psubscribe("__keyevent@0__:*")
            events.get_message(timeout=60)
            client.execute_command("BF.LOADCHUNK", "target", 1, head)
            assert events.get_message(timeout=0.1) is None
            client.execute_command("BF.LOADCHUNK", "target", end, chunk)
            assert events.get_message(timeout=60)["channel"].endswith(b":bf.load")


@EVERY_SERVER
def test_a_transaction_that_watches_is_aborted_by_changes_only(server):
    with server.client() as client, server.client() as other:
        for command, events in WRITES:
            key = command.split()[1]
            with client.pipeline(transaction=True) as pipeline:
                pipeline.watch(key)
                attempt(other, command)
                pipeline.multi()
                pipeline.ping()
                try:
                    pipeline.execute()
                    aborted = False
                except redis.WatchError:
                    aborted = True
            assert aborted == bool(events), command


# ---- bytes that are no text -----------------------------------------------------------------------------------------

ODD = [b"", b"\0", b"\0\0%s", b"%s%n%p%x%x", b"a\r\nb", b"\r\n$5\r\n", b"\xff\xfe\x80", b"\n-ERR no\r\n", b"x" * 10_000]


OPTIONS = {
    "BF.RESERVE key 0.01 100": "EXPANSION COUNTING WINDOW EVERY SINCE SHARDS LAYOUT HASH SEED TIGHTENING ONFULL LIKE",
    "CF.RESERVE key 100": "BUCKETSIZE MAXITERATIONS EXPANSION HASH SEED",
    "BF.INSERT key ITEMS item": "CAPACITY ERROR EXPANSION",
    "BF.IMPORT key": "GOZERO REDISSON BLOOMV3 GUAVA SBBF",
}


def with_odd(odd: bytes):
    """Every command, with an odd word in each place, and once more at its end."""
    lines = [command.words() for command in COMMANDS]
    for line, options in OPTIONS.items():
        first, *rest = line.split("ITEMS")
        lines += [[*first.split(), option, odd, *(word for more in rest for word in ["ITEMS", more.strip()])] for option in options.split()]
    for words in lines:
        for place in range(1, len(words) + 1):
            yield [*words[:place], odd, *words[place + 1 :]]


@pytest.mark.parametrize("protocol", [2, 3])
def test_odd_bytes_everywhere(server, protocol):
    """Sends odd bytes as keys, items, options, values of options, and data. Every command still gets its own reply."""
    with server.client(protocol) as client:
        client.set("text", "x")
        for reservation in (
            "BF.RESERVE bloom 0.01 100", "BF.RESERVE counting 0.01 100 COUNTING", "BF.RESERVE window 0.01 100 WINDOW 2",
            "CF.RESERVE cuckoo 100", "BF.IMPORT foreign GOZERO none BITS 1000",
        ):  # fmt: skip
            client.execute_command(*reservation.split())
        for odd in ODD:
            for key in ["bloom", "counting", "window", "cuckoo", "foreign", "text", "missing"]:
                commands = [[key if word == "key" else word for word in words] for words in with_odd(odd)]
                with client.pipeline(transaction=False) as pipeline:
                    for words in commands:
                        pipeline.execute_command(*words)
                        pipeline.execute_command("ECHO", b"in step")
                    replies = pipeline.execute(raise_on_error=False)
                assert not [words for words, echo in zip(commands, replies[1::2], strict=True) if echo != b"in step"]
            # Odd bytes are valid items, too.
            client.execute_command("DEL", "fresh")
            assert client.execute_command("BF.ADD", "fresh", odd) == client.execute_command("BF.EXISTS", "fresh", odd) == 1
            assert client.execute_command("BF.ADD", "fresh", odd + b"\0") == 1


LONGEST = 512 << 20  # bytes of the longest argument that a server accepts by default


@pytest.mark.large
def test_the_longest_argument(new_server):
    """Sends the longest argument as a key, an item, an option, and data. Each command gets one reply, and the
    connection can still be used."""
    server, piece = new_server(), bytes(1 << 20)
    for words in [
        ["BF.ADD", "key", None],
        ["BF.EXISTS", "key", None],
        ["BF.ADD", None, "item"],
        ["BF.RESERVE", "new", "0.01", "100", None],
        ["BF.RESERVE", "new", "0.01", "100", "SEED", None],
        ["BF.BULKADD", "key", "PREFIXED", None],
        ["BF.BULKTEST", "key", "FIXED", str(LONGEST), None],
        ["BF.LOADCHUNK", "new", "1", None],
        ["BF.LOAD", "new", None],
        ["BF.IMPORT", "new", "GUAVA", None],
        ["CF.ADD", "cuckoo", None],
    ]:
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
            connection.sendall(b"*%d\r\n" % len(words))
            for word in words:
                if word is not None:
                    connection.sendall(b"$%d\r\n%s\r\n" % (len(word), word.encode()))
                    continue
                connection.sendall(b"$%d\r\n" % LONGEST)
                for _ in range(LONGEST // len(piece)):
                    connection.sendall(piece)
                connection.sendall(b"\r\n")
            connection.sendall(b"*1\r\n$4\r\nPING\r\n")
            replies = b""
            while not replies.endswith(b"+PONG\r\n"):
                received = connection.recv(1 << 16)
                assert received, words
                replies += received
        # There is one reply before PING's, and it is short: the error doesn't repeat all of the refused argument.
        assert replies[:1] in b":-$" and len(replies) < 300, words
    with server.client() as client:
        assert client.exists("new") == 0
        client.flushall()


@EVERY_SERVER
def test_log_lines_from_hostile_bytes_are_harmless(server):
    """Refused text is logged, and if it were used as a printf format, the server could crash."""
    with server.client() as client:
        client.execute_command("BF.ADD", "%s%n%p", "%s%n%p")
        payload = bytearray(client.dump("%s%n%p"))
        payload[12] ^= 0x55
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
        try:
            for key in ODD[1:]:
                with pytest.raises(redis.ResponseError, match="Bad data format"):
                    client.restore(key, 0, bytes(payload))
        finally:
            client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 0)
        wait_for(lambda: "refused to load a filter" in server.log(), "the log to say so")


@EVERY_SERVER
def test_with_rust_backtrace(new_server):
    """Many developers' machines set this variable. Printing a backtrace inside a module has killed servers."""
    server = new_server(env={"RUST_BACKTRACE": "1"})
    with server.client() as client:
        Workload(2).run(client, 2000)
        assert client.ping()
