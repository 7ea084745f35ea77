"""Checks what the guides say about failures, with the programs in examples/. test_console.py runs the guides' commands.
"""

import concurrent.futures
import contextlib
import os
import subprocess
import sys
import time

import nightly
import pytest
import redis
import tracing
from bloomery_redis import Bloom
from converge import converge
from fill import Implausible, fill
from guard import FILTER, READY, Guard, connect
from service import Users
from store import Store

from kit.servers import ROOT, wait_for

# ---- what the guide on cache penetration says about failures ---------------------------------------------------------


@pytest.fixture
def users(new_server, tmp_path):
    """The example's service, with a server that loses no writes."""
    server = new_server(config={"appendonly": "yes", "appendfsync": "always"})
    guard = Guard(connect(f"redis://127.0.0.1:{server.port}?socket_timeout=10"))
    users = Users(Store(str(tmp_path / "users.db"), query_seconds=0), guard)
    users.server = server
    users.create("ada", "Ada")
    return users


def asked(users, id: str) -> tuple[dict | None, int]:
    """The answer, and the number of database queries that it needed."""
    before = users.store.queries
    return users.find(id), users.store.queries - before


def is_rebuilt(client, key: str) -> bool:
    """Whether a rebuild is in progress. The reply is a map in RESP3."""
    reply = client.execute_command("BF.REBUILD", key, "STATUS")
    return (reply["Status"] if isinstance(reply, dict) else reply[1]) != "none"


def names(users, prefix: str, count: int) -> list[str]:
    """Creates users, and returns their IDs."""
    ids = [f"{prefix}-{number}" for number in range(count)]
    for id in ids:
        users.create(id, id)
    return ids


def test_a_guard_without_a_full_filter_lets_everything_through(users):
    assert asked(users, "eve") == (None, 1)  # no filter yet
    fill(users.store, users.guard.client)
    assert asked(users, "eve") == (None, 0)
    assert asked(users, "ada")[0]
    users.guard.client.unlink(READY)
    assert asked(users, "eve") == (None, 1)  # not all users are in the filter yet
    users.guard.client.set(READY, "yes")
    users.guard.client.unlink(FILTER)
    assert asked(users, "eve") == (None, 1)  # the filter is gone, as after an eviction
    users.create("grace", "Grace")
    assert not users.guard.client.exists(FILTER), "an add has made a filter without the others"
    fill(users.store, users.guard.client)
    assert asked(users, "eve") == (None, 0)
    assert asked(users, "grace")[0]


def test_a_guard_without_a_server_lets_everything_through(users):
    fill(users.store, users.guard.client)
    users.drain()
    users.server.kill()
    assert asked(users, "ada") == ({"id": "ada", "name": "Ada"}, 1)
    assert asked(users, "eve") == (None, 1)
    users.create("grace", "Grace")  # the filter isn't told about her
    assert users.store.outbox() == ["grace"]
    users.server.start()
    wait_for(lambda: asked(users, "eve") == (None, 0), "the guard to try the server again")
    assert asked(users, "grace") == (None, 0), "the one wrong answer, which the guide names"
    users.drain()
    assert users.store.outbox() == []
    assert asked(users, "grace")[0]


def test_no_user_is_lost_while_the_filter_is_rebuilt(users):
    """Two threads create users while one rebuild follows another. Inserts into the database are slow, so the test would
    fail if users were added to the filter first."""
    insert = users.store.insert

    def insert_slowly(rows):
        time.sleep(0.005)
        insert(rows)

    users.store.insert = insert_slowly
    with concurrent.futures.ThreadPoolExecutor() as pool:
        writers = [pool.submit(names, users, name, 300) for name in ("left", "right")]
        rebuilds = 0
        while not all(writer.done() for writer in writers) or rebuilds < 3:
            fill(users.store, users.guard.client)
            rebuilds += 1
        created = [id for writer in writers for id in writer.result()]
    assert len(created) == 600
    assert [id for id in created if not users.find(id)] == []
    assert asked(users, "eve") == (None, 0)


def test_a_rebuild_that_fails_leaves_the_filter_as_it_was(users, monkeypatch):
    fill(users.store, users.guard.client)

    def some(self):
        yield ["ada"]
        raise OSError("the disk is gone")

    monkeypatch.setattr(Store, "all_ids", some)
    names(users, "other", 5)
    with pytest.raises(OSError):
        fill(users.store, users.guard.client)
    monkeypatch.setattr(Store, "count", lambda self: 2)  # there are six users
    with pytest.raises(Implausible):
        fill(users.store, users.guard.client)
    assert not is_rebuilt(users.guard.client, FILTER)
    assert users.find("other-4")


# ---- what the guide on deny lists says about failures ----------------------------------------------------------------


def test_a_deny_list_that_cannot_be_read_leaves_the_filter_as_it_was(server, tmp_path, monkeypatch):
    """Reading the list succeeds the first time, and fails the second time, after the rebuild has begun."""
    with server.client(decode_responses=True) as client:
        good = tmp_path / "good.txt"
        good.write_text("".join(f"bot-{number}\n" for number in range(3000)))
        assert nightly.rebuild(client, good, shrinks_to=0.8) == 3000
        entries, read = nightly.entries, []

        def some(path):
            read.append(path)
            for number, entry in enumerate(entries(path)):
                if len(read) == 2 and number == 2500:
                    raise OSError("the disk is gone")
                yield entry

        monkeypatch.setattr(nightly, "entries", some)
        with pytest.raises(OSError):
            nightly.rebuild(client, good, shrinks_to=0.8)
        assert not is_rebuilt(client, nightly.KEY)
        assert client.execute_command("BF.MEXISTS", nightly.KEY, "bot-0", "bot-2999", "good") == [1, 1, 0]


# ---- what the guide on tracing puts on spans -------------------------------------------------------------------------


class Span(dict):
    """A span that keeps its attributes. It stands in for OpenTelemetry's class, which the tests don't install."""

    set_attribute = dict.__setitem__


def test_spans_have_the_attributes_of_the_guide(new_server):
    server = new_server()
    spans = []

    @contextlib.contextmanager
    def start_span(name, *, attributes):
        spans.append((name, Span(attributes)))
        yield spans[-1][1]

    with server.client() as client:
        users = Bloom(client, "users").reserve(0.01, 1000)
        users.add_many(["ada", "grace"])
        assert tracing.tested(start_span, users, ["ada", "eve", "grace"]) == [True, False, True]
        client.set("text", "no filter")
        with pytest.raises(redis.ResponseError):
            tracing.tested(start_span, Bloom(client, "text"), ["ada"])
    (name, answered), (_, failed) = spans
    assert name == answered["db.operation.name"] == "BF.BULKTEST"
    assert (answered["bloomery.filter.items"], answered["bloomery.filter.positive"]) == (3, 2)
    assert answered["server.port"] == server.port and "error.type" not in answered
    assert failed["error.type"] == "ResponseError" and "bloomery.filter.positive" not in failed
    of_guide = (ROOT / "docs" / "guides" / "tracing.md").read_text()
    for attribute in {**answered, **failed}:
        assert f"`{attribute}`" in of_guide


# ---- what the guide on shared filters says about services that converge ----------------------------------------------


def test_services_converge(new_server):
    """Runs three servers, of which one has no filter at first and one compresses nothing."""
    servers = [new_server(), new_server(config={"rdbcompression": "no"}), new_server()]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for server in servers]
        for number, client in enumerate(clients[:2]):
            client.execute_command("BF.RESERVE", "seen", 0.001, 100, "SEED", 7)
            client.execute_command("BF.MADD", "seen", *(f"{number}:{item}" for item in range(300)))
        for _ in range(3):
            converge("seen", clients)
        clients[2].execute_command("BF.ADD", "seen", "late")
        converge("seen", clients)
        for client in clients:
            items = [f"{number}:{item}" for number in (0, 1) for item in range(300)]
            assert set(client.execute_command("BF.MEXISTS", "seen", "late", *items)) == {1}
            assert client.execute_command("BF.CARD", "seen") < 700


# ---- the reader's server --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program", ["event_dedup.py --events 2000", "null_values.py", "cache_penetration/compare.py --users 100 --requests 50"]
)
def test_a_program_leaves_the_readers_keys_alone(server, program):
    keys = ["seen", "events", "known", "users", "{users}:filter", "{users}:ready", "user:1", "null:1"]
    with server.client() as client:
        client.mset(dict.fromkeys(keys, "the reader's"))
        name, *options = program.split()
        command = [sys.executable, ROOT / "examples" / name, *options, "--redis", f"redis://127.0.0.1:{server.port}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")}
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        assert client.mget(keys) == [b"the reader's"] * len(keys)
