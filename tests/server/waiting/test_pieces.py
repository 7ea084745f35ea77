"""Commands with many items: the server executes them in pieces, and serves other clients in between.

A command with many items does what several commands with fewer items each would do. In a transaction, it runs as a
whole. Pieces are so short that another client's command comes in between only by chance. So the tests that change
something in the middle use commands that last for a second: they add items to a cuckoo filter that is nearly full.
"""

import socket
import struct
import threading
import time

import pytest
import redis

from kit.background import calls
from kit.clusters import Cluster, set_slot, tag_in
from kit.servers import APPEND_ONLY, option, rewrite, wait_for

pytestmark = pytest.mark.every_server("clients wait, timers and propagation are the server's")

MANY = 60_000
ITEMS = [b"item:%07d" % number for number in range(MANY)]
FIXED = b"".join(ITEMS)
PREFIXED = b"".join(struct.pack("<I", len(item)) + item for item in ITEMS)

# A reservation, and commands on the filter, in order.
CASES = {
    "chain": (["BF.RESERVE", "k", "0.01", 100], ["BF.MADD", "BF.MEXISTS", "BF.MEXISTS"]),
    "missing": ([], ["BF.MEXISTS", "BF.MDEL", "CF.MEXISTS"]),
    "full": (["BF.RESERVE", "k", "0.01", 50_000, "NONSCALING"], ["BF.MADD", "BF.INSERT", "FIXED", "PREFIXED"]),
    "counting": (["BF.RESERVE", "k", "0.01", MANY, "COUNTING", 4], ["BF.INSERT", "BF.MDEL", "BF.MDEL"]),
    "window": (["BF.RESERVE", "k", "0.01", MANY, "WINDOW", 3], ["FIXED", "BF.MADD", "BF.MEXISTS"]),
    "sharded": (["BF.RESERVE", "k", "0.01", MANY, "SHARDS", 8], ["PREFIXED", "FIXED", "BF.MEXISTS"]),
    "foreign": (["BF.IMPORT", "k", "GOZERO", "none", "BITS", 1 << 20], ["BF.MADD", "FIXED", "BF.MEXISTS"]),
    "cuckoo": (["CF.RESERVE", "k", MANY], ["CF.INSERT", "CF.INSERTNX", "CF.MEXISTS"]),
    "small cuckoo": (["CF.RESERVE", "k", 1000, "EXPANSION", 0], ["CF.INSERT", "CF.INSERTNX"]),
}


def words(command: str, key: str = "k") -> list:
    match command:
        case "FIXED":
            return ["BF.BULKADD", key, "FIXED", len(ITEMS[0]), FIXED]
        case "PREFIXED":
            return ["BF.BULKADD", key, "PREFIXED", PREFIXED]
        case "BF.INSERT" | "CF.INSERT" | "CF.INSERTNX":
            return [command, key, "ITEMS", *ITEMS]
        case "BF.REBUILD":
            return [command, key, "ADD", *ITEMS]
    return [command, key, *ITEMS]


def outcome(client, *command):
    """The reply or error of a command, in a form that can be compared."""
    try:
        reply = client.execute_command(*command)
    except redis.ResponseError as error:
        return str(error)
    return [str(answer) if isinstance(answer, Exception) else answer for answer in reply] if isinstance(reply, list) else reply


def whole(client, *command):
    """The reply or error of a command that runs as a whole, in a transaction, in a form that can be compared."""
    client.execute_command("MULTI")
    client.execute_command(*command)
    (reply,) = client.execute_command("EXEC")
    if isinstance(reply, Exception):
        return str(reply)
    return [str(answer) if isinstance(answer, Exception) else answer for answer in reply] if isinstance(reply, list) else reply


def digest(client, key: str = "k"):
    return client.execute_command("DEBUG", "DIGEST-VALUE", key)[0]


@pytest.mark.parametrize("case", ["chain", "full", "counting", "small cuckoo"])  # every shape of a reply
@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_and_filters_are_those_of_the_whole_command(server, case, protocol):
    reservation, commands = CASES[case]
    with server.client(protocol=protocol, single_connection_client=True) as client:
        if reservation:
            client.execute_command(*reservation)
            client.copy("k", "whole")
        for command in commands:
            expected = whole(client, *words(command, "whole"))
            assert outcome(client, *words(command)) == expected, command
            assert digest(client) == digest(client, "whole"), command
        # In a full filter, a command may end with its first piece. Tests, deletes and adds to shards are so fast that
        # one piece may be enough.
        if case not in ("full", "missing", "sharded"):
            for command in {"BF.MADD", "CF.INSERT", "CF.INSERTNX"} & set(commands):
                assert goes_in_pieces(client, command), command


@pytest.mark.parametrize("command", ["BF.MADD", "BF.MEXISTS", "BF.MDEL", "CF.MEXISTS", "CF.INSERT"])
def test_long_items_are_divided_too(server, command):
    """A command with 31 long items is divided, although it wouldn't read the clock again after 31 short items."""
    long = [bytes([number]) * (1 << 20) for number in range(31)]
    with server.client(single_connection_client=True) as client:
        match command:
            case "CF.MEXISTS" | "CF.INSERT":
                client.execute_command("CF.RESERVE", "k", 1000)
            case "BF.MDEL":
                client.execute_command("BF.RESERVE", "k", "0.01", 1000, "COUNTING", 8, "HASH", "SIPHASH")
            case _:
                client.execute_command("BF.RESERVE", "k", "0.01", 1000, "SCHEME", "GUAVA", "FUNNEL", "UTF16")
        before = calls(client, command)
        reply = client.execute_command(command, "k", *(["ITEMS"] if command == "CF.INSERT" else []), *long)
        assert reply == [int(command in ("BF.MADD", "CF.INSERT"))] * 31
        assert calls(client, command) - before > 1


def goes_in_pieces(client, command: str) -> bool:
    """Whether the command needs several pieces in one of ten tries. If the system takes the processor away before the
    first item, the first piece is longer (`SLICE_PER_HEAD`), and may be enough."""
    for _ in range(10):
        before = calls(client, command)
        outcome(client, *words(command))
        if calls(client, command) - before > 1:
            return True
    return False


def test_scripts_run_it_whole(server):
    client = server.client()
    client.config_resetstat()
    script = "return redis.call('BF.BULKADD', KEYS[1], 'FIXED', ARGV[1], ARGV[2])"
    assert client.eval(script, 1, "k", len(ITEMS[0]), FIXED) > 59_000
    assert calls(client, "BF.BULKADD") == 1


SOME = ITEMS[:20_000]
LONG_NAME = b"k" * (16 << 20)
HEADS = {
    "options": ["BF.INSERT", "k", *["CAPACITY", 1000] * 50_000, "ITEMS", *SOME],
    "a long name": ["BF.MADD", LONG_NAME, *SOME],
    "a long name of a full cuckoo filter": ["CF.INSERT", LONG_NAME, "ITEMS", *(b"%d" % number for number in range(80_000))],
    "a long name and a string": ["BF.BULKADD", LONG_NAME, "FIXED", len(ITEMS[0]), b"".join(SOME)],
}


@pytest.mark.parametrize("head", HEADS)
def test_what_comes_before_the_items_takes_long(server, head):
    """If the words before the items take long, pieces are longer, so there are fewer of them. With pieces of the usual
    length, there would be at least 85, however quiet the machine is. On a busy machine, the server may be stopped in
    the middle of a piece, so the test tries three times."""
    client = server.client(socket_timeout=100)

    def pieces() -> int:
        client.flushall()
        if "cuckoo" in head:
            client.execute_command("CF.RESERVE", LONG_NAME, 60_000, "EXPANSION", 0, "BUCKETSIZE", 4)
        client.config_resetstat()
        client.execute_command(*HEADS[head])
        return calls(client, HEADS[head][0])

    assert any(pieces() < 60 for _ in range(3))


# ---- in the middle ---------------------------------------------------------------------------------------------------


class Long:
    """A command that lasts for a second or more, sent by its own client: each of its items finds a cuckoo filter full,
    and searches for room. In a `with` statement, the command has begun when the body is entered, and has ended when the
    statement is left."""

    COUNT = 300_000

    def __init__(self, server, key: str = "k", command: str = "CF.INSERT", **options):
        self.server, self.key, self.reply = server, key, None
        self.words = [command, key, "NOCREATE", "ITEMS", *(b"long:%06d" % number for number in range(self.COUNT))]
        self.client = server.client(single_connection_client=True, socket_timeout=100, **options)
        self.id = self.client.client_id()
        self.watch = server.client()

    def run(self) -> None:
        try:
            self.reply = self.client.execute_command(*self.words)
        except (redis.RedisError, OSError) as error:
            self.reply = error

    def is_running(self) -> bool:
        return bool(waiting(self.watch))

    def __enter__(self) -> "Long":
        self.watch.execute_command("CF.RESERVE", self.key, 60_000, "EXPANSION", 0, "BUCKETSIZE", 4)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        wait_for(self.is_running, "the first piece")
        return self

    def __exit__(self, *_) -> None:
        self.thread.join(100)
        assert not self.thread.is_alive(), "the command has no reply"


def waiting(client) -> int:
    return int(client.info("everything")["bf_clients_in_pieces"])


def test_others_are_served_in_between(server):
    served = []
    for number in range(3):  # the test itself may have to wait for a processor
        with Long(server, f"k{number}") as long:
            served.append(0)
            while long.is_running():
                served[-1] += 1
        assert len(long.reply) == Long.COUNT and set(long.reply) == {1, -1}
        if served[-1] > 20:
            break
    assert max(served) > 20


class Longer(Long):
    """A command that lasts until two others have begun, or a slot has moved."""

    COUNT = 900_000


CHANGES = {
    "deleted": (["DEL", "k"], "ERR not found"),
    "renamed": (["RENAME", "k", "other"], "ERR not found"),
    "replaced": (["SET", "k", "text"], "WRONGTYPE Operation against a key holding the wrong kind of value"),
    "expired": (["PEXPIRE", "k", 1], "ERR not found"),
    "flushed": (["FLUSHALL"], "ERR not found"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_key_changes_in_the_middle(server, change):
    command, text = CHANGES[change]
    with Long(server) as long:
        server.command(*command)
    *answers, last = long.reply
    assert 0 < len(answers) < Long.COUNT and set(answers) <= {1, -1}
    assert isinstance(last, redis.ResponseError) and str(last) == text.removeprefix("ERR ")
    client = server.client()
    assert not client.exists("k") if change != "replaced" else client.get("k") == b"text"
    assert client.ping() and not waiting(client)


@pytest.mark.parametrize("how", ["killed", "hung up"])
def test_the_client_goes_in_the_middle(server, how):
    client = server.client()
    with Long(server) as long:
        client.client_kill_filter(_id=long.id) if how == "killed" else long.client.connection._sock.shutdown(socket.SHUT_RDWR)
        wait_for(lambda: not waiting(client), "the server to forget the client")
        seen = digest(client)
        time.sleep(0.05)
        assert digest(client) == seen
    assert client.info("everything")["bf_waiting_bytes"] == 0


def test_the_user_is_deleted_in_the_middle(server):
    client = server.client()
    client.execute_command("ACL", "SETUSER", "adder", "on", ">secret", "~*", "+@all")
    with Long(server, username="adder", password="secret") as long:
        client.execute_command("ACL", "DELUSER", "adder")
        wait_for(lambda: not waiting(client), "the server to forget the client")
    assert isinstance(long.reply, redis.ConnectionError)


def test_any_number_of_them_at_once(server):
    client = server.client()
    client.config_resetstat()
    # Fewer bytes than the arguments of one command.
    with server.configured({option(server.spec, "offload-max-bytes"): "1mb"}):
        longs = [Longer(server, key) for key in "klm"]
        with longs[0], longs[1], longs[2]:
            pass
    assert [len(long.reply) for long in longs] == [Longer.COUNT] * 3
    assert calls(client, "CF.INSERT") > 30, "three that run whole are three calls"


def test_a_pause_of_writes(server):
    client = server.client()
    with Long(server):
        client.execute_command("CLIENT", "PAUSE", 100_000, "WRITE")
        seen = digest(client)
        time.sleep(0.1)
        assert digest(client) == seen and waiting(client) == 1
        client.execute_command("CLIENT", "UNPAUSE")
        wait_for(lambda: digest(client) != seen, "the next piece")


@pytest.mark.parametrize(("policy", "is_refused"), [("volatile-lru", False), ("noeviction", True)])
def test_memory_runs_short_in_the_middle(new_server, policy, is_refused):
    """The command ends early only on a server that evicts nothing. A server that evicts keys completes the command,
    although it is always above its limit between a write and the next command."""
    server = new_server(config={"maxmemory-policy": policy})
    with server.client() as client:
        for number in range(1000):
            client.set(f"other:{number}", bytes(10_000), ex=1000)
        with Long(server) as long:
            used = client.info("memory")["used_memory"]
            client.config_set("maxmemory", used // 2 if is_refused else used)
            while long.is_running():
                if not is_refused:
                    client.set("more", bytes(200_000), ex=1000)  # the next command evicts something else for it
        *answers, last = long.reply
        if is_refused:
            assert len(answers) < Long.COUNT and isinstance(last, redis.exceptions.OutOfMemoryError)
        else:
            assert len(long.reply) == Long.COUNT and set(long.reply) == {1, -1}


def test_shutdown_in_the_middle(new_server):
    server = new_server(config=APPEND_ONLY)
    with Long(server) as long:
        server.stop()
    assert isinstance(long.reply, redis.ConnectionError)
    server.start()
    assert server.client().exists("k")


def equal_on(primary, replica, keys) -> None:
    primary.wait_for_replicas()
    client, follower = primary.client(), replica.client()
    for key in keys:
        assert digest(client, key) == digest(follower, key)


def test_replicas_and_the_file(new_server):
    server = new_server(config=APPEND_ONLY)
    replica = server.replica()
    client = server.client()
    for case, (reservation, commands) in CASES.items():
        if reservation:
            client.execute_command(reservation[0], case, *reservation[2:])
        for command in commands:
            outcome(client, *words(command, case))
    with Long(server, "long"):
        pass
    keys = [case for case in [*CASES, "long"] if client.exists(case)]
    assert len(keys) == len(CASES)
    equal_on(server, replica, keys)
    before = [digest(client, key) for key in keys]
    server.restart(kill=True)
    assert [digest(server.client(), key) for key in keys] == before
    rewrite(server, server.client())
    server.restart(kill=True)
    assert [digest(server.client(), key) for key in keys] == before


def test_the_server_becomes_a_replica_in_the_middle(new_server):
    server, other = new_server(), new_server()
    with Long(server) as long:
        server.command("REPLICAOF", "127.0.0.1", other.port)
    assert isinstance(long.reply, redis.RedisError), long.reply
    assert not waiting(server.client())
    server.command("REPLICAOF", "NO", "ONE")


def test_failover_in_the_middle(new_server):
    server = new_server()
    replica = server.replica()
    with Long(server) as long:
        server.command("FAILOVER")
        wait_for(lambda: server.client().info("replication")["role"] == "slave", "the failover")
    assert isinstance(long.reply, redis.RedisError), long.reply
    wait_for(lambda: server.client().info("replication")["master_link_status"] == "up", "the link")
    equal_on(replica, server, ["k"])


# ---- clusters --------------------------------------------------------------------------------------------------------


def test_a_slot_that_moves_away_in_the_middle(spec):
    with Cluster(spec) as cluster:
        # On a busy machine the command may end before the slot has moved.
        for slot in range(1000, 1010):
            key = f"{{{tag_in([slot])}}}k"
            owner = cluster.owner(slot)
            target = cluster.other_primary(slot)
            with Longer(owner, key) as long:
                cluster.move_slot(slot, target)
            *answers, last = long.reply
            if isinstance(last, redis.ResponseError):
                break
        assert 0 < len(answers) < Longer.COUNT
        assert isinstance(last, redis.ResponseError) and "non local key" in str(last), last
        assert not owner.client().execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)
        assert target.client().exists(key)


def test_a_client_that_says_asking(spec):
    """The node that a slot moves to runs the command as a whole, because it serves the key only to the command that
    follows ASKING."""
    with Cluster(spec) as cluster:
        slot = 1000
        key = f"{{{tag_in([slot])}}}k"
        source, target = cluster.owner(slot), cluster.other_primary(slot)
        cluster.begin_move(slot, source, target)
        with target.client(single_connection_client=True) as client:
            client.execute_command("ASKING")
            reply = client.execute_command("BF.MADD", key, *ITEMS)
            assert len(reply) == MANY and sum(reply) > 59_000
        set_slot(source, slot, "STABLE")
        set_slot(target, slot, "STABLE")


@pytest.mark.parametrize("command", ["CF.INSERT", "CF.INSERTNX"])
def test_items_that_search_for_long_are_pieces_of_their_own(server, command):
    """One slot is free. Each item's search takes 65,535 steps back and forth, about 10 ms. The clock of each piece,
    including the first, starts before its first item."""
    size, items = 16 << 20, 8
    part = bytes(range(1, 256)) * (size // 255 + 1)
    with server.client(socket_timeout=200) as client:
        client.execute_command("CF.LOADCHUNK", "k", 1, struct.pack("<QQQQHHH", 0, size // 4, 0, 1, 4, 65_535, 0))
        client.execute_command("CF.LOADCHUNK", "k", 1 + size, part[: size - 1] + b"\0")
        client.config_resetstat()
        assert client.execute_command(command, "k", "ITEMS", *(f"item {n}" for n in range(items))) == [-1] * items
        assert client.info("commandstats")[f"cmdstat_{command.lower()}"]["calls"] == items
