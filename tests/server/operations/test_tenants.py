"""Limits for the filters under a prefix of keys, and what counts towards them. test_metrics checks the sums after every
way to change a filter."""

import time

import pytest

from kit.clients import refusal
from kit.filters import make_all, members
from kit.metrics import tenants
from kit.monitoring import Exporter, one
from kit.servers import APPEND_ONLY, option, wait_for

EVERY_SERVER = pytest.mark.every_server("the server calls the module for each key, and scans its keys")

CREATIONS = [
    "BF.ADD {} a", "BF.RESERVE {} 0.01 100", "BF.INSERT {} CAPACITY 9 ITEMS a", "BF.REBUILD {} BEGIN CAPACITY 9 LAYOUT FUSE",
    "BF.MERGE {} shop:1", "BF.IMPORT {} GOZERO empty BITS 1024", "CF.ADD {} a", "CF.RESERVE {} 100", "CMS.INITBYDIM {} 9 5",
    "CMS.INITBYPROB {} 0.01 0.01", "TOPK.RESERVE {} 3", "TDIGEST.CREATE {}", "TDIGEST.MERGE {} 1 digest",
]  # fmt: skip


@pytest.fixture
def limited(new_server):
    """A server with a tenant that may have two filters, and has them, and one that may have 10 kB."""
    server = new_server(config=APPEND_ONLY, module_args=["TENANTS", "shop: 0 2 small: 10k 0"])
    with server.client() as client:
        client.execute_command("BF.RESERVE", "shop:1", 0.01, 100, "NONSCALING")
        client.execute_command("TDIGEST.CREATE", "shop:2")
        client.execute_command("TDIGEST.CREATE", "digest")
    return server


@pytest.mark.parametrize("creation", CREATIONS, ids=lambda creation: creation.split()[0])
def test_no_command_creates_more_filters_than_a_tenant_may_have(limited, creation):
    with limited.client() as client:
        words = creation.format("shop:3").split()
        assert refusal(client, *words) == "tenant shop: has 2 filters, and its limit in the option tenants is 2"
        assert not client.exists("shop:3") and tenants(client)["shop:"]["refused"] == 1
        assert client.execute_command("BF.MADD", "shop:1", "a", "b") == [1, 1]
        client.execute_command(*creation.format("shared:3").split())
        client.delete("shop:2")
        client.execute_command(*words)


def test_no_filter_makes_a_tenant_exceed_its_bytes(limited):
    with limited.client() as client:
        assert refusal(client, "BF.RESERVE", "small:1", 0.01, 10_000) == (
            "the filters of tenant small: have 0 bytes, and 13.0 KiB more are needed. Its limit in the option tenants is 9.8 KiB"
        )
        client.execute_command("BF.RESERVE", "small:1", 0.01, 100, "SEED", 2)
        added = client.execute_command("BF.MADD", "small:1", *members(20_000))
        assert sum(answer == 1 for answer in added) > 1000
        assert {str(answer) for answer in added[-100:]} <= {"0", str(added[-1])} and "Its limit" in str(added[-1])
        assert 5000 < tenants(client)["small:"]["bytes"] <= 10_000
        with limited.configured({option(limited.spec, "tenants"): "shop: 0 2 small: 1mb 0"}):
            assert client.execute_command("BF.ADD", "small:1", "one more") == 1


def test_a_table_counts_as_large_as_its_capacity(limited):
    """It is created small, and then grows without being asked for."""
    with limited.client() as client:
        client.execute_command("BF.RESERVE", "small:1", 0.01, 5000, "LAYOUT", "QUOTIENT")
        reserved = tenants(client)["small:"]["bytes"]
        client.execute_command("BF.RESERVE", "elsewhere", 0.01, 5000, "LAYOUT", "QUOTIENT")
        head = client.execute_command("BF.SCANDUMP", "elsewhere", 0)
        for words in (("BF.RESERVE", "small:2", 0.01, 5000, "LAYOUT", "QUOTIENT"), ("BF.LOADCHUNK", "small:2", *head)):
            assert "Its limit in the option tenants is" in refusal(client, *words)
        blob = client.dump("elsewhere")
        assert "Its limit in the option tenants is" in refusal(client, "BF.MERGE", "small:2", "BLOB", blob)
        assert set(client.execute_command("BF.MADD", "small:1", *members(4900))) <= {0, 1}
        assert 5000 < reserved <= tenants(client)["small:"]["bytes"] <= 10_000


def test_no_sketch_makes_a_tenant_exceed_its_bytes(limited):
    """A t-digest grows with its observations, and the list of a Top-K sketch with the length of its items."""
    with limited.client() as client:
        for key in ("small:1", "small:2"):
            client.execute_command("TDIGEST.CREATE", key)
        client.execute_command("TDIGEST.ADD", "small:1", *range(300))
        before = client.dump("small:2")
        assert "Its limit in the option tenants is" in refusal(client, "TDIGEST.ADD", "small:2", *range(600))
        assert client.dump("small:2") == before
        client.delete("small:1", "small:2")
        client.execute_command("TOPK.RESERVE", "small:3", 10)
        for number in range(7):
            client.execute_command("TOPK.ADD", "small:3", f"{number:01000}")
        assert "Its limit in the option tenants is" in refusal(client, "TOPK.ADD", "small:3", f"{7:01000}")
        known = [f"{number:01000}" for number in range(7)]
        assert client.execute_command("TOPK.ADD", "small:3", *known) == [None] * 7  # they are in the list already
        assert 5000 < tenants(client)["small:"]["bytes"] <= 10_000


@EVERY_SERVER
def test_limits_bind_neither_replicas_nor_files_nor_copies(limited):
    """What they bring counts, and is the same everywhere."""
    replica = limited.replica(module_args=["TENANTS", "shop: 1 1"])
    with limited.client() as client:
        assert client.copy("shop:1", "shop:3") and client.restore("shop:4", 0, client.dump("shop:1")) == b"OK"
        client.execute_command("CF.ADD", "small:1", "a")
        before = {prefix: (has["bytes"], has["filters"]) for prefix, has in tenants(client).items()}
        assert before["shop:"][1] == 4
        limited.wait_for_replicas()
    with replica.client() as client:
        has = tenants(client)["shop:"]
        assert (has["bytes"], has["filters"], has["refused"]) == (*before["shop:"], 0)
    for kill in (True, False):
        limited.restart(kill=kill)
        with limited.client() as client:
            assert {prefix: (has["bytes"], has["filters"]) for prefix, has in tenants(client).items()} == before


@EVERY_SERVER
def test_filters_are_counted_again_when_prefixes_change(new_server, spec):
    server = new_server()
    with server.client() as client:
        client.mset({f"text:{number}": number for number in range(5000)})
        keys = make_all(client)
        client.select(1)
        client.execute_command("BF.ADD", "also", "a")
        client.config_set(option(spec, "tenants"), "a 0 0 also 0 0 " + " ".join(f"{key} 0 0" for key in keys if key > "b"))
        wait_for(lambda: not client.info("bf_tenants")["bf_tenants_being_counted"], "all keys to be counted")
        found = tenants(client)
        assert sum(has["filters"] for has in found.values()) == len(keys) + 1
        assert found["also"]["filters"] == 1
        client.rename("also", "renamed")
        assert tenants(client)["also"]["filters"] == 1
        client.config_set(option(spec, "tenants"), "renamed 0 0")
        wait_for(lambda: tenants(client)["renamed"]["filters"], "the filter to be counted under its new name")
        client.flushall()
        wait_for(lambda: not any(tenants(client)["renamed"].values()), "all sums to be 0")
        client.config_set(option(spec, "tenants"), "none")
        assert not client.info("bf_tenants")


def test_keys_that_move_while_they_are_counted_are_counted(new_server, spec):
    filters = 3000
    server = new_server()
    with server.client() as client:
        for database in (0, 1):
            client.select(database)
            pipe = client.pipeline(transaction=False)
            for number in range(filters):
                pipe.execute_command("BF.ADD", f"a:{number}", "item")
            pipe.execute()
        client.config_set(option(spec, "tenants"), "a: 0 0")
        for _ in range(101):
            client.swapdb(0, 1)
            time.sleep(0.01)  # so that the server counts some keys
        wait_for(lambda: not client.info("bf_tenants")["bf_tenants_being_counted"], "all keys to be counted")
        assert tenants(client)["a:"]["filters"] == 2 * filters


def test_a_key_that_moves_to_where_the_count_has_been_is_counted(new_server, spec):
    """Though the count finds nothing to change."""
    server = new_server()
    with server.client() as client:

        def configure(value, meanwhile) -> float:
            """Seconds until all keys are counted."""
            begun = time.monotonic()
            client.config_set(option(spec, "tenants"), value)
            meanwhile()
            wait_for(lambda: not client.info("bf_tenants")["bf_tenants_being_counted"], "all keys to be counted")
            return time.monotonic() - begun

        for database in (1, 0):
            client.select(database)
            client.mset({f"string:{number}": 1 for number in range(5000)})
        for part in (0.3, 0.4):  # of the count; half of it is for this database
            took = configure("b: 0 0", lambda: (client.select(0), client.delete("a:1")))
            client.select(1)
            client.execute_command("BF.ADD", "a:1", "item")
            configure("a: 0 0", lambda: (time.sleep(part * took), client.move("a:1", 0)))
            assert tenants(client)["a:"]["filters"] == 1


def test_a_count_ends_although_keys_are_moved_all_the_time(new_server, spec):
    server = new_server()
    with server.client() as client:
        client.mset({f"string:{number}": 1 for number in range(20_000)})
        client.execute_command("BF.ADD", "a:1", "item")
        client.config_set(option(spec, "tenants"), "a: 0 0")

        def move_and_ask():
            client.rename("string:0", "other")
            client.rename("other", "string:0")
            return not client.info("bf_tenants")["bf_tenants_being_counted"]

        wait_for(move_and_ask, "all keys to be counted")
        assert tenants(client)["a:"]["filters"] == 1


def test_the_exporter_has_the_numbers_of_tenants(limited):
    with Exporter("--port", limited.port) as exporter:
        found = exporter.samples()
        with limited.client() as client:
            for prefix, has in tenants(client).items():
                names = {name: f"bloomery_tenant_{name}{'_total' * (name == 'refused')}" for name in has}
                assert {name: one(found, names[name], prefix=prefix) for name in has} == has
