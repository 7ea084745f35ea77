"""If a server has no listeners (replicas or an append-only file), the module builds no commands for them. It remembers
that there are none until the server forks, changes its role, or turns an append-only file on. A listener that begins
later must not miss anything.
"""

import contextlib
import itertools
import threading

import pytest
import redis

from kit.background import imports, redisblooms
from kit.servers import wait_for
from kit.workload import Workload, digests

pytestmark = pytest.mark.every_server("the server tells who listens, and of its forks and its role")

numbers = itertools.count()


def make(client) -> None:
    """Creates filters in all the ways that are replicated as a command other than the client's."""
    key = f"filter:{next(numbers)}"
    client.execute_command("BF.ADD", key, "ada")
    client.execute_command("BF.INSERT", key, "ITEMS", "ada", "bob")
    client.execute_command("BF.RESERVE", f"{key}:reserved", 0.001, 10)
    client.execute_command("CF.ADD", f"{key}:cuckoo", "ada")


def must_be_equal(primary, replica) -> None:
    wait_for(
        lambda: (
            replica.info("replication")["slave_repl_offset"] >= primary.info("replication")["master_repl_offset"]
        ),
        "the replica to catch up",
    )
    with primary.client() as client, replica.client() as other:
        expected = digests(client)
        assert expected and digests(other) == expected


def test_replicas_come_and_go_while_filters_are_made(new_server):
    """There is a second between a replica's first message and its snapshot. Filters are also created in that time."""
    config = {"repl-diskless-sync": "yes", "repl-diskless-sync-delay": 1, "repl-backlog-ttl": 1}
    primary = new_server(config=config)
    has_ended = threading.Event()

    def make_until_the_end():
        with primary.client() as client:
            while not has_ended.wait(0.001):
                make(client)

    maker = threading.Thread(target=make_until_the_end)
    maker.start()
    try:
        for _ in range(2):
            replica = primary.replica()
            before = primary.info("keyspace")["db0"]["keys"]
            wait_for(lambda: primary.info("keyspace")["db0"]["keys"] > before + 50, "filters after the sync")  # noqa: B023
            with primary.client() as client:
                client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
                must_be_equal(primary, replica)
                client.execute_command("CLIENT", "UNPAUSE")
            replica.destroy()
            primary.replicas.clear()
            # Without the backlog, no replica can resume, so the module remembers again that there are no listeners.
            wait_for(lambda: not primary.info("replication")["repl_backlog_active"], "the backlog's end")
            before = primary.info("keyspace")["db0"]["keys"]
            wait_for(lambda: primary.info("keyspace")["db0"]["keys"] > before + 50, "filters for nobody")  # noqa: B023
    finally:
        has_ended.set()
        maker.join()


def test_a_replica_that_takes_over(new_server):
    """A server without replicas becomes a replica, and later a primary. Another replica then follows it without a
    snapshot."""
    first, second, third = new_server(), new_server(), new_server()
    with first.client() as client, second.client() as other:
        make(client)
        make(other)  # its module now remembers that nobody listens
        for replica in (second, third):
            replica.command("REPLICAOF", "127.0.0.1", first.port)
            first.wait_until_online(replica)
        make(client)
        for replica in (second, third):
            must_be_equal(first, replica)
        other.execute_command("REPLICAOF", "NO", "ONE")
        make(other)
        third.command("REPLICAOF", "127.0.0.1", second.port)
        second.wait_until_online(third)
        assert second.info("stats")["sync_partial_ok"] == 1, "it got a snapshot, so this shows nothing"
        must_be_equal(second, third)


def test_an_append_only_file_that_is_turned_on(new_server):
    server = new_server()
    with server.client() as client:
        make(client)
        client.config_set("appendfsync", "always")
        client.config_set("appendonly", "yes")
        make(client)
        wait_for(lambda: not server.info("persistence")["aof_rewrite_in_progress"], "the file")
        make(client)
        expected = digests(client)
    server.config["appendonly"] = "yes"
    server.restart(kill=True)
    with server.client() as client:
        assert digests(client) == expected


def test_what_nobody_gets_counts_as_a_change(new_server):
    """The server saves a snapshot after a certain number of changes, so it must count them even if nobody listens."""
    server = new_server()
    with server.client() as client:

        def changes() -> int:
            return server.info("persistence")["rdb_changes_since_last_save"]

        for command in (
            "BF.ADD added a",
            "BF.RESERVE reserved 0.01 10",
            "BF.INSERT added ITEMS a b",
            "CF.ADD cuckoo a",
            "CF.RESERVE another 10",
        ):
            before = changes()
            client.execute_command(*command.split())
            assert changes() > before, command
        before = changes()
        client.execute_command("BF.ADD", "added", "a")
        with pytest.raises(redis.ResponseError, match="exists"):
            client.execute_command("BF.RESERVE", "reserved", 0.01, 10)
        assert changes() == before


def changes(client) -> int:
    """The number of changes since the last snapshot. After a certain number, the server saves the next snapshot."""
    return client.info("persistence")["rdb_changes_since_last_save"]


def test_every_filter_that_is_put_into_its_key_whole_counts_as_a_change(new_server):
    """A filter is put into its key by the command itself, by a worker, or by the last of RedisBloom's pieces."""
    server = new_server()
    with server.client() as client:
        for size in (256, 4 << 20):
            client.set("bitmap", bytes(range(256)) * (size // 256))
            client.hset("config", mapping={"size": size * 8, "hashIterations": 7})
            loads = {
                prefix: [f"{prefix}.LOADCHUNK", "new", 1 + size, bytes(size)] for prefix in redisblooms(size)
            }
            for name, command in (imports(size) | loads).items():
                client.delete("new")
                if name in loads:
                    client.execute_command(command[0], "new", 1, redisblooms(size)[name])
                before = changes(client)
                assert client.execute_command(*command) == b"OK"
                assert client.exists("new") and changes(client) > before, (name, size)


def test_whatever_a_command_changes_counts(new_server):
    """Runs random commands. If one changes a key, the server's number of changes must have increased."""
    server = new_server()
    workload = Workload(1)
    with server.client() as client:
        workload.run(client, 0)
        now = digests(client)
        for _ in range(300):
            command, before, was = workload.command(), changes(client), now
            with contextlib.suppress(redis.ResponseError):
                client.execute_command(*command)
            now = digests(client)
            assert now == was or changes(client) > before, command
