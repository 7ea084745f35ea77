"""Static filters in a server: built while other clients are served, equal on replicas, and kept by every form of
persistence.
"""

import struct
import threading
import time

import pytest
import redis

from kit.metrics import figures
from kit.servers import APPEND_ONLY, wait_for

EVERY_LAYOUT = pytest.mark.parametrize("layout", ["FUSE", "RIBBON"])
EVERY_SERVER = pytest.mark.every_server("the server saves and replicates, and blocks clients")

MANY = 400_000  # enough items for the filter to be built in the background


def blob(first: int, count: int) -> bytes:
    return struct.pack(f"<{count}Q", *range(first, first + count))


def build(client, key, layout, count, *options) -> None:
    assert client.execute_command("BF.REBUILD", key, "BEGIN", "LAYOUT", layout, *options) == b"OK"
    assert client.execute_command("BF.REBUILD", key, "ADDBULK", "FIXED", 8, blob(0, count)) == b"OK"


def found(client, key, first, count) -> int:
    answer = client.execute_command("BF.BULKTEST", key, "FIXED", 8, blob(first, count))
    return sum(byte.bit_count() for byte in answer)


def digest(client, key) -> bytes:
    return client.execute_command("DEBUG", "DIGEST-VALUE", key)[0]


@EVERY_LAYOUT
@EVERY_SERVER
def test_through_every_way_of_keeping_data(new_server, layout):
    server = new_server(config={**APPEND_ONLY, "save": ""})
    with server.client() as client:
        for key, count in [("small", 100), ("large", MANY)]:
            build(client, key, layout, count, "ERROR", 0.004)
            if key == "small":
                client.copy("small", "list")  # still being rebuilt
            assert client.execute_command("BF.REBUILD", key, "COMMIT") == b"OK"
            assert found(client, key, 0, count) == count
            assert client.execute_command("BF.CARD", key) == count
        client.copy("large", "copied")
        client.restore("restored", 0, client.dump("large"))
        position = 0
        while True:
            position, piece = client.execute_command("BF.SCANDUMP", "large", position)
            if position == 0:
                break
            client.execute_command("BF.LOADCHUNK", "loaded", position, piece)
        keys = ["small", "list", "large", "copied", "restored", "loaded"]
        assert len({digest(client, key) for key in keys[2:]}) == 1
        before = [digest(client, key) for key in keys]
        client.execute_command("DEBUG", "RELOAD")
        assert [digest(client, key) for key in keys] == before
    server.restart()
    with server.client() as client:
        assert [digest(client, key) for key in keys] == before
        for preamble in ["no", "yes"]:
            client.config_set("aof-use-rdb-preamble", preamble)
            client.bgrewriteaof()
            while client.info("persistence")["aof_rewrite_in_progress"] or client.info("persistence").get(
                "aof_rewrite_scheduled"
            ):
                time.sleep(0.05)
            client.execute_command("DEBUG", "LOADAOF")
            assert [digest(client, key) for key in keys] == before
        assert client.execute_command("BF.REBUILD", "list", "COMMIT") == b"OK"
        assert found(client, "list", 0, 100) == 100


@EVERY_LAYOUT
@EVERY_SERVER
def test_replicas_build_the_same_bits(new_server, layout):
    server = new_server()
    replica = server.replica()
    with server.client() as client, replica.client() as other:
        build(client, "apart", layout, MANY)
        client.execute_command("BF.REBUILD", "apart", "COMMIT")
        with client.pipeline(transaction=True) as transaction:
            transaction.execute_command("BF.REBUILD", "whole", "BEGIN", "LAYOUT", layout, "SEED", "7")
            transaction.execute_command("BF.REBUILD", "whole", "ADDBULK", "FIXED", 8, blob(0, MANY))
            transaction.execute_command("BF.REBUILD", "whole", "COMMIT")
            assert transaction.execute() == [b"OK"] * 3
        server.wait_for_replicas()
        for key in ["apart", "whole"]:
            assert digest(client, key) == digest(other, key)
            assert found(other, key, 0, MANY) == MANY


@EVERY_LAYOUT
@EVERY_SERVER
def test_others_are_served_while_it_is_built(server, layout):
    """Only adds to the rebuild wait until COMMIT has ended, because otherwise the filter would lack their items."""
    with server.client() as client, server.client() as other, server.client() as late:
        build(client, "built", layout, 4 * MANY)
        served, replies = 0, {}
        commit = threading.Thread(
            target=lambda: replies.update(commit=client.execute_command("BF.REBUILD", "built", "COMMIT"))
        )
        commit.start()
        wait_for(lambda: figures(other)["pool_jobs_running"] == 1 or not commit.is_alive(), "the work to begin")
        adding = threading.Thread(target=lambda: replies.update(add=add(late)))
        adding.start()
        while commit.is_alive():
            assert other.ping()
            served += 1
        adding.join()
        assert replies["commit"] == b"OK" and "no rebuild is running" in replies["add"]
        assert served > 3
        assert found(client, "built", 0, 4 * MANY) == 4 * MANY


def add(client) -> str:
    with pytest.raises(redis.ResponseError) as refused:
        client.execute_command("BF.REBUILD", "built", "ADD", "late")
    return str(refused.value)
