"""Clients that disconnect while they wait for worker threads. Their jobs must then stop and free their memory.

A job here would take minutes to complete, because it tests millions of items in hundreds of layers. So a job that ends
within seconds was stopped.
"""

import contextlib
import random
import resource
import socket
import time

import pytest
import redis

from kit.clients import refusal
from kit.metrics import figures
from kit.servers import option, wait_for
from kit.threads import Still

EVERY_SERVER = pytest.mark.every_server("the server says when a client has gone, and frees what it had")

LAYERS = 200
LARGE = 16 << 20  # bytes in a blob: 16 million one-byte items
SLOW = 1 << 17  # this many items take a second or two to test
# In seconds: long enough even if other programs keep the machine busy, but shorter than a job that isn't stopped.
SOON = 60


def bulk_test(blob: bytes, key="slow", *more) -> bytes:
    """A BF.BULKTEST command, encoded as a request."""
    words = [b"BF.BULKTEST", key.encode(), b"FIXED", b"1", blob, *more]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def send(server, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(data)
    return connection


@pytest.fixture
def slow(new_server):
    """A server with one worker, and a filter in which testing an item takes a few microseconds."""
    server = new_server(module_args=["THREADS", "1", "OFFLOAD_MAX_BYTES", "1gb"])
    with server.client() as client:
        client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC", "SEED", 1)
        client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(100 * LAYERS)))
    return server


def nothing_waits(client) -> bool:
    now = figures(client)
    gauges = ("clients_waiting", "waiting_bytes", "pool_jobs_queued", "pool_jobs_running")
    return not any(now[name] for name in gauges) and client.info("clients")["blocked_clients"] == 0


@EVERY_SERVER
def test_clients_that_send_much_and_close(slow):
    """When clients keep disconnecting without waiting for answers, memory is freed and writes are not refused."""
    with slow.client() as client:
        client.config_set("maxmemory", "200mb")
        before = client.info("memory")["used_memory"]
        for _ in range(20):
            send(slow, bulk_test(bytes(LARGE))).close()
        back = lambda: client.info("memory")["used_memory"] < before + (4 << 20)  # noqa: E731
        wait_for(lambda: back() and nothing_waits(client), "the memory to come back", SOON)
        client.set("key", "value")
        assert figures(client)["waiting_dropped"] > 0


@EVERY_SERVER
def test_clients_that_are_killed(slow):
    """Kills the client whose job is running and the clients whose jobs come next. The last client gets its answer."""
    with slow.client() as client:
        client.execute_command("BF.ADD", "fast", b"\0")
        running = send(slow, bulk_test(bytes(LARGE)))
        wait_for(lambda: figures(client)["pool_jobs_running"] == 1, "the job to begin")
        still = Still(slow)  # otherwise the next queued job would start
        queued = [send(slow, bulk_test(bytes(LARGE))) for _ in range(3)]
        patient = send(slow, bulk_test(bytes(20_000), "fast", b"COUNT"))
        wait_for(lambda: client.info("clients")["blocked_clients"] == 5, "all to wait")
        assert figures(client)["waiting_bytes"] == 4 * LARGE + 20_000
        for connection in [*queued, running]:
            assert figures(client)["pool_jobs_running"] == 1
            client.client_kill("%s:%d" % connection.getsockname())
        still.go_on()
        patient.settimeout(SOON)
        assert patient.recv(100) == b":20000\r\n"
        wait_for(lambda: nothing_waits(client), "all to be over", SOON)
        now = figures(client)
        # No worker started the killed clients' queued jobs.
        assert (now["waiting_dropped"], now["pool_jobs"], now["offloaded_items"]) == (4, 2, 20_000)


@pytest.mark.parametrize("how", ["SHUTDOWN NOSAVE", "SIGTERM"])
@EVERY_SERVER
def test_a_shutdown_waits_for_no_job(slow, how):
    waiting = [send(slow, bulk_test(bytes(LARGE))) for _ in range(5)]
    with slow.client() as client:
        wait_for(lambda: client.info("clients")["blocked_clients"] == 5, "all to wait")
        wait_for(lambda: figures(client)["pool_jobs_running"] == 1, "one to run")
        if how == "SIGTERM":
            slow.process.terminate()
        else:
            with contextlib.suppress(redis.ConnectionError):
                client.execute_command(*how.split())
        assert slow.process.wait(60) == 0, "one job lasts minutes"
    for connection in waiting:
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100) == b"", "no part of an answer is sent"


def test_more_bytes_than_may_wait_are_refused(slow):
    with slow.client() as client:
        client.config_set(option(slow.spec, "offload-max-bytes"), "20mb")
        connections = [send(slow, bulk_test(bytes(LARGE)))]
        wait_for(lambda: figures(client)["clients_waiting"] == 1, "it to wait")
        text = refusal(client, "BF.BULKTEST", "slow", "FIXED", 1, bytes(5 << 20))
        assert text.startswith("commands with 16.0 MiB of arguments are waiting for worker threads, and offload-max-bytes is 20.0 MiB.")
        # A client can still wait if its job fits. A command in a transaction, or with fewer items than
        # offload-min-items, never waits.
        connections.append(send(slow, bulk_test(bytes(4 << 20))))
        wait_for(lambda: figures(client)["clients_waiting"] == 2, "it to wait")
        assert client.execute_command("BF.BULKTEST", "slow", "FIXED", 1, bytes(100), "COUNT") == 0
        now = figures(client)
        assert (now["waiting_refused"], now["waiting_bytes"]) == (1, 20 << 20)
        assert (now["waiting_bytes_max"], now["clients_waiting_max"]) == (20 << 20, 1000)
        for connection in connections:
            connection.close()
        wait_for(lambda: nothing_waits(client), "all to be over", SOON)
        # A job of any size is accepted if no other job is waiting.
        client.config_set(option(slow.spec, "offload-max-bytes"), "0")
        client.execute_command("BF.ADD", "fast", b"\0")
        assert client.execute_command("BF.BULKTEST", "fast", "FIXED", 1, bytes(LARGE), "COUNT") == LARGE


def test_more_clients_than_may_wait_are_refused(new_server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    server = new_server(module_args=["THREADS", "1", "OFFLOAD_MIN_ITEMS", "1"])
    try:
        with server.client() as client:
            client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC", "SEED", 1)
            client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(100 * LAYERS)))
            connections = [send(server, bulk_test(bytes(LARGE)))]
            wait_for(lambda: figures(client)["pool_jobs_running"] == 1, "the worker to be busy")
            still = Still(server)
            connections += [send(server, bulk_test(b"x")) for _ in range(999)]
            wait_for(lambda: figures(client)["clients_waiting"] == 1000, "all to wait")
            text = refusal(client, "BF.BULKTEST", "slow", "FIXED", 1, b"x")
            assert text.startswith("1000 commands are waiting for worker threads, which is the maximum.")
            assert figures(client)["waiting_refused"] == 1
            connections.pop(0).close()
            still.go_on()
            for connection in connections:
                connection.settimeout(SOON)
                assert connection.recv(100) == b"$1\r\n\0\r\n"
                connection.close()
            assert nothing_waits(client)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@EVERY_SERVER
def test_clients_that_go_at_any_moment(new_server):
    """Clients disconnect or are killed before, during and after their jobs. Meanwhile, keys are deleted and the number
    of threads changes. Clients that stay get the right answer, and in the end no job or memory is left over."""
    chance = random.Random(seed := random.randrange(1 << 30))
    server = new_server(module_args=["THREADS", "2"])
    with server.client() as client:
        client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC", "SEED", 1)
        client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(100 * LAYERS)))
        client.execute_command("BF.ADD", "slow", b"\0")
        payload = client.dump("slow")
        before = client.info("memory")["used_memory"]
        threads, waiting, answered = option(server.spec, "threads"), [], 0
        for _ in range(300):
            what = chance.random()
            if what < 0.4 and len(waiting) < 12:
                count = chance.choice((16_384, 20_000, 100_000, SLOW))
                # The most recently added item is found first. An absent item is searched for in every layer.
                blob = b"x" * count if count == SLOW else bytes(count)
                waiting.append((send(server, bulk_test(blob, "slow", b"COUNT")), count))
            elif what < 0.5 and len(waiting) < 12:
                whole = bulk_test(bytes(100_000))
                send(server, whole[: chance.randrange(len(whole))]).close()
            elif what < 0.6 and waiting:
                waiting.pop(chance.randrange(len(waiting)))[0].close()
            elif what < 0.75 and waiting:
                connection, _ = waiting.pop(chance.randrange(len(waiting)))
                with contextlib.suppress(redis.ResponseError):  # the server may not have accepted it yet
                    client.client_kill("%s:%d" % connection.getsockname())
            elif what < 0.85 and waiting:
                connection, count = min(waiting, key=lambda one: one[1])
                if count < SLOW:
                    waiting.remove((connection, count))
                    connection.settimeout(120)
                    reply = connection.recv(100)
                    # 0 if the job ran after the key was deleted and before it was restored.
                    assert reply in (b":%d\r\n" % count, b":0\r\n"), (seed, reply, count)
                    answered += 1
            elif what < 0.9:
                client.execute_command(*chance.choice((["DEL", "slow"], ["FLUSHALL", "SYNC"], ["UNLINK", "slow"])))
                client.restore("slow", 0, payload)
            elif what < 0.95:
                client.config_set(threads, chance.choice((0, 1, 2, 3)))
            else:
                time.sleep(chance.random() / 50)
        for connection, _ in waiting:
            connection.close()
        client.config_set(threads, 2)
        wait_for(lambda: nothing_waits(client), f"all to be over (seed {seed})", SOON)
        wait_for(lambda: client.info("memory")["used_memory"] < before + (4 << 20), f"the memory (seed {seed})", SOON)
        assert answered > 0 and figures(client)["waiting_dropped"] > 0, seed
        assert figures(client)["panics"] == 0
