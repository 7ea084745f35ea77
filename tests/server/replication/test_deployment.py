"""Situations from production: TLS, Sentinel, FAILOVER, WAITAOF, the ACL log, client limits, and servers without the
module."""

import contextlib
import re
import shutil
import socket
import subprocess
import threading

import pytest
import redis

from kit.certificates import certificates, tls
from kit.clusters import Cluster, key_slot
from kit.filters import SMALL, differences, make_all, snapshots
from kit.metrics import figures
from kit.servers import APPEND_ONLY, MODULE, ROOT, Server, ServerFailed, free_port, redis_cli, wait_for
from kit.snippets import blocks

pytestmark = pytest.mark.every_server("the server does it, with the module in it")


def test_replication_over_tls(new_server, tmp_path):
    """Replicates filters, and sends a BF.BULKTEST that a worker answers, because the server handles TLS connections
    differently while their clients wait."""
    folder, port = certificates(tmp_path), free_port()
    primary = new_server(config={**tls(folder, port), "tls-replication": "yes"})
    config = {**tls(folder, free_port()), "tls-replication": "yes", "replicaof": ["127.0.0.1", port]}
    replica = new_server(config=config)
    wait_for(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to be in sync")
    with primary.client() as client, replica.client() as there:
        keys = make_all(client, SMALL)
        client.execute_command("BF.REBUILD", "scaling/overfull", "BEGIN", "CAPACITY", 500)
        written = primary.info("replication")["master_repl_offset"]
        wait_for(lambda: replica.info("replication")["slave_repl_offset"] >= written, "the replica to catch up")
        assert not differences(snapshots(client, keys), snapshots(there, keys))
    files = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
    with redis.Redis("127.0.0.1", port, ssl=True, **{name: str(folder / file) for name, file in files.items()}) as client:
        items = b"".join(b"%08d" % number for number in range(300_000))
        assert client.execute_command("BF.BULKADD", "bulk", "FIXED", 8, items) > 290_000
        assert client.execute_command("BF.BULKTEST", "bulk", "FIXED", 8, items, "COUNT") == 300_000


@contextlib.contextmanager
def sentinel(spec, primary, folder):
    """A client of a single Sentinel, which declares `primary` dead when it hasn't answered for half a second."""
    port = free_port()
    file = folder / "sentinel.conf"
    file.write_text(
        f"port {port}\ndir {folder}\nsentinel monitor filters 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds filters 500\nsentinel failover-timeout filters 5000\n"
    )
    process = subprocess.Popen([spec.program, file, "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port, decode_responses=True) as client:
            wait_for(lambda: answers(client), "Sentinel to start")
            yield client
    finally:
        process.kill()
        process.wait()


def answers(client) -> bool:
    try:
        return client.ping()
    except redis.ConnectionError:
        return False


def replication(server, field: str):
    """A field of INFO replication, or None if the server doesn't answer: when Sentinel reconfigures a server, it makes
    the server disconnect its clients."""
    try:
        return server.info("replication").get(field)
    except redis.ConnectionError:
        return None


def test_sentinel_replaces_a_killed_primary(spec, new_server, tmp_path):
    primary = new_server()
    replica = primary.replica()
    with primary.client() as client:
        keys = make_all(client, SMALL)
        client.execute_command("BF.REBUILD", "scaling/overfull", "BEGIN", "CAPACITY", 500)
        before = snapshots(client, keys)
    primary.wait_for_replicas()
    with sentinel(spec, primary, tmp_path) as watcher:
        wait_for(lambda: watcher.execute_command("SENTINEL", "REPLICAS", "filters"), "Sentinel to find the replica")
        primary.kill()
        wait_for(lambda: replication(replica, "role") == "master", "Sentinel to promote the replica")
        there = replica.client()
        assert not differences(before, snapshots(there, keys))
        assert there.execute_command("BF.MADD", "scaling/overfull", *map(str, range(300)))
        assert there.execute_command("BF.REBUILD", "scaling/overfull", "COMMIT") == b"OK"
        after = snapshots(there, keys)
        # The old primary comes back without data, and Sentinel makes it a replica of the new one.
        primary.start()
        wait_for(lambda: replication(primary, "master_link_status") == "up", "it to be a replica")
        with primary.client() as client:
            assert not differences(after, snapshots(client, keys))


GUIDE = ROOT / "docs" / "UPGRADING.md"


def typed(script: str, ports: dict[str, int]) -> str:
    """Runs commands of the guide with these ports, and returns what they print."""
    script = re.sub(r"(?<=-p |.1 )\d+", lambda port: str(ports[port[0]]), script)
    words = ["bash", "-ec", script.replace("redis-cli", str(redis_cli()))]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_commands_of_the_upgrade_guide(spec, new_server, tmp_path):
    """Upgrades two servers, lets Sentinel promote the first one again, and promotes a replica of a cluster. Nothing that
    was acknowledged is lost."""
    new = shutil.copy(MODULE, tmp_path / "new.so")
    restart, fail_over, by_sentinel, in_cluster = blocks(GUIDE, "sh")
    stop, start, *checks = restart.splitlines()
    assert start == "redis-server replica.conf"
    first = new_server()
    second = first.replica()
    with first.client() as client:
        keys = make_all(client, SMALL)
        before = snapshots(client, keys)

    def upgrade(replica, primary) -> None:
        ports = {"6380": replica.port}
        typed(stop, ports)
        replica.process.wait()
        replica.module = new
        replica.start()
        primary.wait_until_online(replica)
        assert "bf" in typed("\n".join(checks), ports)

    upgrade(second, first)
    typed(fail_over, {"6379": first.port, "6380": second.port})
    wait_for(lambda: replication(first, "master_link_status") == "up", "the primary to be a replica")
    first.config["replicaof"] = ["127.0.0.1", second.port]
    upgrade(first, second)
    with sentinel(spec, second, tmp_path) as watcher:
        wait_for(lambda: watcher.execute_command("SENTINEL", "REPLICAS", "filters"), "Sentinel to find the replica")
        port = watcher.connection_pool.connection_kwargs["port"]
        # Sentinel doesn't know at once that the replica can take over.
        wait_for(lambda: "OK" in typed(by_sentinel, {"26379": port}), "Sentinel to accept the replica")
        wait_for(lambda: replication(first, "role") == "master", "Sentinel to promote the replica")
    with first.client() as client:
        assert not differences(before, snapshots(client, keys))
    with Cluster(spec) as cluster:
        replica = cluster.replica_of(cluster.primaries()[0])
        typed(in_cluster, {"7004": replica.port})
        wait_for(lambda: replication(replica, "role") == "master", "the replica to be promoted")


def test_failover_while_many_items_are_added_and_tested(new_server):
    """FAILOVER pauses clients. If a module wrote during the pause, the server would abort."""
    primary = new_server()
    replica = primary.replica()
    acknowledged, stop = [], threading.Event()

    def add(number: int) -> None:
        with primary.client() as client:
            for start in range(number * 10_000_000, (number + 1) * 10_000_000, 20_000):
                items = [b"%08d" % item for item in range(start, start + 20_000)]
                words = ["FIXED", 8, b"".join(items)] if number else items
                try:
                    client.execute_command("BF.BULKADD" if number else "BF.MADD", f"filter:{number}", *words)
                except redis.RedisError:
                    return
                acknowledged.append((f"filter:{number}", items))
                if stop.is_set():
                    return

    threads = [threading.Thread(target=add, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(acknowledged) >= 6, "some adds")
    with primary.client() as client:
        client.execute_command("BF.REBUILD", "filter:1", "BEGIN", "CAPACITY", 2_000_000)
        client.execute_command("FAILOVER", "TO", "127.0.0.1", replica.port, "TIMEOUT", 30_000)
        wait_for(lambda: primary.info("replication")["role"] == "slave", "the primary to be a replica")
    stop.set()
    for thread in threads:
        thread.join()
    wait_for(lambda: replica.info("replication")["role"] == "master", "the replica to be the primary")
    with replica.client() as client:
        for key, items in acknowledged:
            assert client.execute_command("BF.BULKTEST", key, "FIXED", 8, b"".join(items), "COUNT") == len(items)


def test_failover_in_a_cluster_during_a_rebuild_and_bulk_jobs(spec):
    with Cluster(spec) as cluster:
        key, slot = "filter", key_slot(b"filter")
        first = cluster.owner(slot)
        items = b"".join(b"%08d" % item for item in range(400_000))
        with first.client() as client:
            client.execute_command("BF.BULKADD", key, "FIXED", 8, items)
            client.execute_command("BF.REBUILD", key, "BEGIN", "CAPACITY", 500_000)
            client.execute_command("BF.REBUILD", key, "ADD", *(b"%08d" % item for item in range(50_000)))
            with socket.create_connection(("127.0.0.1", first.port)) as waits:
                words = [b"BF.BULKTEST", key.encode(), b"FIXED", b"8", items]
                request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
                for _ in range(5):
                    waits.sendall(request)
                cluster.promote(cluster.replica_of(first))
        second = cluster.owner(slot)
        assert second is not first
        with second.client() as client:
            client.execute_command("BF.REBUILD", key, "ADD", *(b"%08d" % item for item in range(50_000, 400_000)))
            assert client.execute_command("BF.REBUILD", key, "COMMIT") == b"OK"
            assert client.execute_command("BF.BULKTEST", key, "FIXED", 8, items, "COUNT") == 400_000
        cluster.check()


def test_waitaof_means_that_an_add_is_on_disk(spec, new_server):
    if spec.product == "redis" and spec.version < (7, 2):
        pytest.skip("WAITAOF came with Redis 7.2")
    server = new_server(config={**APPEND_ONLY, "appendfsync": "everysec"})
    with server.client() as client:
        client.execute_command("BF.ADD", "filter", "ada")
        client.execute_command("CF.ADD", "cuckoo", "ada")
        assert client.execute_command("WAITAOF", 1, 0, 60_000) == [1, 0]
    server.restart(kill=True)
    with server.client() as client:
        assert client.execute_command("BF.EXISTS", "filter", "ada") == 1
        assert client.execute_command("CF.EXISTS", "cuckoo", "ada") == 1


def test_the_acls_log_says_what_was_denied(server):
    with server.client() as client:
        client.acl_log_reset()
        client.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~own:*", "+client", "+bf.exists", "+bf.merge")
        try:
            with server.client(username="reader", password="") as reader:
                for words in (["BF.ADD", "own:a", "x"], ["BF.EXISTS", "other", "x"], ["BF.MERGE", "own:a", "source"]):
                    with pytest.raises(redis.exceptions.NoPermissionError):
                        reader.execute_command(*words)
            denied = [(entry["reason"], entry["object"]) for entry in client.acl_log()]
            assert denied[::-1] == [("command", "bf.add"), ("key", "other"), ("key", "source")]
        finally:
            client.execute_command("ACL", "DELUSER", "reader")


def test_a_client_that_waits_with_much_memory_is_evicted(new_server):
    """With `maxmemory-clients`, the server disconnects clients that use a lot of memory, even if they wait for a
    worker. Their jobs then end."""
    server = new_server(module_args=["threads", 1], config={"maxmemory-clients": "32mb"})
    with server.client() as client:
        client.execute_command("BF.RESERVE", "filter", 0.001, 1_000_000, "NONSCALING")
        before = server.info("memory")["used_memory"]
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        items = bytes(16 << 20)
        request = b"*5\r\n$11\r\nBF.BULKTEST\r\n$6\r\nfilter\r\n$5\r\nFIXED\r\n$1\r\n4\r\n$%d\r\n" % len(items)
        for other in clients:
            with contextlib.suppress(ConnectionError):
                other.sendall(request + items + b"\r\n")
        wait_for(lambda: server.info("stats")["evicted_clients"] > 0, "a client to be evicted")
        for other in clients:
            other.close()
        wait_for(lambda: figures(client)["clients_waiting"] == 0, "no client to wait")
        wait_for(lambda: server.info("memory")["used_memory"] < before + (8 << 20), "the memory to be free")
        assert client.execute_command("BF.ADD", "filter", "ada") == 1


def test_a_server_without_the_module_leaves_the_data_as_it_is(spec, new_server):
    """If the dump file contains filters, the server refuses to start without the module. With the module, all filters
    are there again."""
    server = new_server(config={"save": ["3600", "1"]})
    with server.client() as client:
        keys = make_all(client, SMALL)
        before = snapshots(client, keys)
    server.stop()
    file = server.directory / "dump.rdb"
    saved = file.read_bytes()
    module, server.module = server.module, None
    with pytest.raises(ServerFailed, match="(?i)module"):
        server.start()
    assert file.read_bytes() == saved
    server.module = module
    server.start()
    with server.client() as client:
        assert not differences(before, snapshots(client, keys))
        with pytest.raises(redis.ResponseError):
            client.execute_command("MODULE", "UNLOAD", "bf")
        assert not differences(before, snapshots(client, keys))


def test_a_replica_without_the_module_ends(new_server):
    """A replica without the module can't load what its primary sends, and exits. The primary is unaffected. A replica
    with the module syncs."""
    primary = new_server()
    with primary.client() as client:
        client.execute_command("BF.ADD", "filter", "ada")
    config = {"replicaof": ["127.0.0.1", primary.port]}
    with pytest.raises(ServerFailed, match="no matching module type 'bloomery1'|module type.*bloomery1"):
        replica = Server(primary.spec, module=None, config=config)
        try:
            wait_for(lambda: not replica.alive(), "the replica to end")
            raise ServerFailed(replica.log())
        finally:
            replica.destroy()
    assert primary.command("BF.EXISTS", "filter", "ada") == 1
    assert primary.replica().command("BF.EXISTS", "filter", "ada") == 1
