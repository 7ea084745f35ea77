"""Filters in a cluster, and between servers: what moves with a slot and what doesn't, what is refused, and how to
handle a filter that is too large for one string or one node. Also runs the examples in docs/CLUSTER.md.

`scripts/suite cluster` moves slots under traffic, with filters of every kind, and triggers failovers.
"""

import asyncio
import contextlib
import math
import re
import subprocess
import sys
import time

import bloomery_redis
import bloomery_redis.asyncio
import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from bloomery_redis import SpreadBloom
from bloomery_redis._spread import OVERFLOW, part_capacity, part_key, part_of, slot_of
from redis.backoff import NoBackoff
from redis.retry import Retry

from kit.arrivals import move_all_in
from kit.blocking import Blocking
from kit.clusters import Cluster, cluster_info, key_slot, looks, migrate, migrates_atomically, own_slots, tag_in
from kit.documents import examples
from kit.filters import KINDS, Grower, load_pieces, make_all, pairs, pieces
from kit.servers import MODULE, ROOT, Server, free_port, option, redis_cli, wait_for
from kit.snippets import blocks
from kit.snippets import run as run_snippet
from kit.traffic import Traffic

pytestmark = pytest.mark.every_server("the server routes commands, migrates slots and judges keys")

GUIDE = ROOT / "docs" / "CLUSTER.md"


@pytest.fixture(scope="module")
def shared_cluster(spec):
    with Cluster(spec) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Three primaries, each with a replica, without keys. No test may leave a slot partly moved."""
    for primary in shared_cluster.primaries():
        primary.command("FLUSHALL", "SYNC")
    yield shared_cluster
    shared_cluster.check()


@pytest.fixture
def client(cluster):
    """A client that follows MOVED and ASK."""
    with cluster.client() as client:
        yield client


def ways(cluster) -> list:
    """The ways to move a slot in this cluster."""
    ways = [cluster.move_slot]
    if migrates_atomically(cluster.nodes[0]):
        ways.append(lambda slot, target: cluster.move_atomically([slot], target))
    return ways


LARGE = [kind for kind in KINDS if kind.name.endswith("several-chunks")]


def make(client, kind, key: str, state: str = "one") -> None:
    client.execute_command(*kind.reservation(key))
    getattr(Grower(client, kind, key), state)()


# ---- several keys ---------------------------------------------------------------------------------------------------

SEVERAL = [
    "BF.MERGE {0}:to {0}:a {1}:b",
    "BF.MERGE {0}:to {1}:a {1}:b",
    "BF.INTERSECT {0}:to {0}:a {1}:b",
    "BF.EQUAL {0}:a {1}:b",
    "BF.RESERVE {0}:to 0.01 100 LIKE {1}:b",
    "BF.IMPORT {0}:to GOZERO {1}:text BITS 40",
    "BF.IMPORT {0}:to REDISSON {0}:text {1}:config CODEC STRING",
]


@pytest.mark.parametrize("command", SEVERAL)
def test_the_keys_of_a_command_lie_in_one_slot(cluster, client, command):
    for tag in ("{x}", "{y}"):
        client.execute_command("BF.RESERVE", f"{tag}:a", 0.01, 100)
        client.execute_command("BF.RESERVE", f"{tag}:b", 0.01, 100, "LIKE", f"{tag}:a")
        client.set(f"{tag}:text", "hello")
        client.hset(
            f"{tag}:config",
            mapping={"size": 40, "hashIterations": 5, "expectedInsertions": 4, "falseProbability": 0.01},
        )
    # This succeeds, so the only reason for the refusals below is the slot.
    client.execute_command(*command.format("{x}", "{x}").split())
    for node in cluster.primaries():
        with pytest.raises(redis.ResponseError, match="CROSSSLOT|[Kk]eys in request don't hash to the same slot"):
            node.command(*command.format("{x}", "{y}").split())


# ---- loads in progress ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LARGE, ids=str)
def test_half_a_load_does_not_move(cluster, client, kind):
    """A load in progress isn't a key, so it stays on its node and never becomes half a filter on another node."""
    with Server(cluster.spec) as workbench, workbench.client() as there:
        make(there, kind, "source")
        parts, expected = pieces(there, "source", kind.family), looks(there, ["source"])["source"]
    key, slot = "half", key_slot(b"half")

    def begin_anew(client) -> None:
        with pytest.raises(redis.ResponseError, match="not found"):
            load_pieces(client, key, kind.family, parts[-1:])
        assert not client.exists(key)

    for way in ways(cluster):
        home, away = cluster.owner(slot), cluster.other_primary(slot)
        load_pieces(client, key, kind.family, parts[:-1])
        way(slot, away)
        begin_anew(client)
        way(slot, home)
        load_pieces(client, key, kind.family, parts[-1:])  # the load that stayed on its node is intact
        assert looks(home.client(), [key])[key] == expected
        client.delete(key)

    # While the slot is being moved, the source redirects the client because it doesn't have the key.
    home, away = cluster.owner(slot), cluster.other_primary(slot)
    load_pieces(client, key, kind.family, parts[:-1])
    cluster.begin_move(slot, home, away)
    begin_anew(client)
    load_pieces(client, key, kind.family, parts)
    cluster.finish_move(slot, home, away)
    assert looks(away.client(), [key])[key] == expected


@contextlib.contextmanager
def loads_under_way(node, tag: str = ""):
    """A context manager that begins as many loads on a node as clients may have in progress there. On exit, it
    completes them, so that no later test finds them."""
    with Server(node.spec) as workbench, workbench.client() as there:
        there.execute_command("BF.RESERVE", "source", 0.01, 100)
        head, chunk = pieces(there, "source", "BF")
    with node.client() as client:
        begun = []
        with pytest.raises(redis.ResponseError, match="too many filters are being loaded"):
            for number in range(65):
                client.execute_command("BF.LOADCHUNK", f"{{{tag}}}{number}", *head)
                begun.append(f"{{{tag}}}{number}")
        yield
        for key in begun:
            client.execute_command("BF.LOADCHUNK", key, *chunk)


def test_loads_of_clients_do_not_keep_a_slot_out(cluster, client):
    """A node loads what the source of a slot sends, however many of its clients' loads are incomplete."""
    slot = key_slot(b"filter")
    client.execute_command("BF.RESERVE", "filter", 0.01, 1000)
    client.execute_command("BF.MADD", "filter", "ada", "bob")
    for way in ways(cluster):
        target = cluster.other_primary(slot)
        with loads_under_way(target, tag_in(own_slots(target))):
            way(slot, target)
            assert client.execute_command("BF.MEXISTS", "filter", "ada", "bob") == [1, 1]


def test_loads_of_clients_do_not_keep_replication_out(new_server):
    """A writable replica loads what its primary has loaded, even if loads of the replica's clients are incomplete."""
    primary, replica = new_server(), new_server(config={"replica-read-only": "no"})
    replica.command("REPLICAOF", "127.0.0.1", primary.port)
    primary.replicas.append(replica)
    primary.wait_until_online(replica)
    with loads_under_way(replica), primary.client() as client:
        client.execute_command("BF.RESERVE", "source", 0.01, 1000)
        client.execute_command("BF.MADD", "source", "ada", "bob")
        load_pieces(client, "target", "BF", pieces(client, "source", "BF"))
        primary.wait_for_replicas()
        assert replica.command("BF.MEXISTS", "target", "ada", "bob") == [1, 1]


# ---- other configurations, clocks -----------------------------------------------------------------------------------


def test_a_node_does_not_judge_what_moves_in(cluster, client):
    """`max-filter-bytes` limits only filters that clients create, not filters that move to the node."""
    keys = [f"{{moving}}{kind.name}" for kind in KINDS]
    slot = key_slot(b"moving")
    for kind, key in zip(KINDS, keys, strict=True):
        make(client, kind, key)
    expected = looks(cluster.owner(slot).client(), keys)
    for way in ways(cluster):
        target = cluster.other_primary(slot)
        with target.configured({option(cluster.spec, "max-filter-bytes"): "1"}):
            way(slot, target)
            with pytest.raises(redis.ResponseError, match="max-filter-bytes is 1 byte"):
                client.execute_command("BF.RESERVE", "{moving}more", 0.01, 100)
        assert looks(target.client(), keys) == expected


def test_a_window_goes_on_with_its_clock(cluster, client):
    """The clock determines a window's generation, whichever node the window is on. A node that a window has left
    doesn't rotate it."""
    key, slot, every = "window", key_slot(b"window"), 40
    since = int(time.time() * 1000)
    client.execute_command("BF.RESERVE", key, 0.01, 2000, "WINDOW", 64, "EVERY", every, "SINCE", since)
    added: list[float] = []  # for each item, the time just before it was sent

    def add() -> None:
        added.append(time.monotonic())
        client.execute_command("BF.ADD", key, len(added) - 1)

    home = cluster.owner(slot)
    for way in ways(cluster):
        for target in (cluster.other_primary(slot), home):
            deadline = time.monotonic() + 3 * every / 1000
            while time.monotonic() < deadline:
                add()
            if way == cluster.move_slot:
                cluster.move_slot(slot, target, between=add)
            else:
                way(slot, target)
            add()
            generation = pairs(client.execute_command("BF.STATS", key))[b"Generation"]
            assert generation <= (time.time() * 1000 - since) // every
            answers = client.execute_command("BF.MEXISTS", key, *range(len(added)))
            living = time.monotonic() - 62 * every / 1000  # one generation fewer than the window always covers
            assert all(answer for answer, at in zip(answers, added, strict=True) if at > living)
            cluster.wait_for_replicas()
            with cluster.reader(cluster.replica_of(target)) as replica, target.client() as primary:
                assert looks(replica, [key]) == looks(primary, [key])
    assert generation >= 6, "the window has hardly rotated"


# ---- users ----------------------------------------------------------------------------------------------------------


def rules(name: str) -> list[str]:
    """The ACL rules that docs/CLUSTER.md gives for a user."""
    row = re.search(rf"^\| {name} \| .* \| `(.+)` \|$", GUIDE.read_text(), flags=re.M)
    return row[1].replace("\\|", "|").split()


def test_the_rights_that_the_guide_gives_suffice(cluster, client):
    """Replication, MIGRATE and atomic slot migration work under writes even if their users have only the rights that
    docs/CLUSTER.md lists."""
    slot, keys = key_slot(b"users"), {"{users}a": "BF", "{users}b": "BF", "{users}c": "CF"}
    atomically = migrates_atomically(cluster.nodes[0])
    nodes = rules("atomic slot migration" if atomically else "replication")
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "nodes", "reset", "on", ">secret", *nodes)
        node.command("ACL", "SETUSER", "mover", "reset", "on", ">secret", *rules("MIGRATE in a cluster"))
        node.command("CONFIG", "SET", "masteruser", "nodes")
        node.command("CONFIG", "SET", "masterauth", "secret")
        node.command("ACL", "LOG", "RESET")
    try:
        for primary in cluster.primaries():
            primary.command("CLIENT", "KILL", "TYPE", "replica")  # the replica reconnects as the user `nodes`
            primary.command("BF.ADD", f"{{{tag_in(own_slots(primary))}}}", "ada")
        cluster.wait_until_ok()
        for primary in cluster.primaries():
            (replica,) = primary.command("CLIENT", "LIST", "TYPE", "replica").splitlines()
            assert b" user=nodes " in replica
        home, away = cluster.owner(slot), cluster.other_primary(slot)
        with Traffic(cluster, keys) as traffic:
            wait_for(lambda: traffic.count > 50, "traffic")
            cluster.begin_move(slot, home, away)
            with home.client() as source:
                while found := source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
                    words = ["127.0.0.1", away.port, "", 0, 30_000, "AUTH2", "mover", "secret", "KEYS", *found]
                    assert source.execute_command("MIGRATE", *words) == b"OK"
            cluster.finish_move(slot, home, away)
            if atomically:
                cluster.move_atomically([slot], home)
            seen = traffic.count
            wait_for(lambda: traffic.count > seen + 50, "traffic")
        assert not traffic.lost(client)
        cluster.wait_for_replicas()
        for node in cluster.nodes:
            assert node.command("ACL", "LOG") == []
    finally:
        for node in cluster.nodes:
            node.command("CONFIG", "SET", "masteruser", "")
            node.command("CONFIG", "SET", "masterauth", "")


# ---- filters too large for one string -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LARGE, ids=str)
def test_a_filter_larger_than_a_string_may_be(cluster, client, kind):
    """MIGRATE refuses the filter and doesn't change it. It can be moved in pieces, as docs/CLUSTER.md describes."""
    (code,) = [block for block in blocks(GUIDE) if "def move_in_pieces" in block]
    names: dict = {}
    exec(code, names)
    key, slot = "large", key_slot(b"large")
    make(client, kind, key)
    client.execute_command("PEXPIRE", key, 1_000_000)
    home, away = cluster.owner(slot), cluster.other_primary(slot)
    expected = looks(home.client(), [key])
    # Without compression and with a lower limit than the server's default, so that the test is quick.
    with home.configured({"rdbcompression": "no"}), away.configured({"proto-max-bulk-len": "2mb"}):
        cluster.begin_move(slot, home, away)
        with home.client() as source, away.client() as target:
            with pytest.raises(redis.ResponseError, match="IOERR|Protocol error|Target instance"):
                migrate(source, away, [key])
            assert looks(source, [key]) == expected
            assert target.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
            names["move_in_pieces"](source, target, key, kind.family)
            assert source.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        cluster.finish_move(slot, home, away)
        assert looks(away.client(), [key]) == expected
        assert 900_000 < client.pttl(key) <= 1_000_000
        if migrates_atomically(home):  # atomic slot migration sends pieces by itself
            with home.configured({"proto-max-bulk-len": "2mb"}), away.configured({"rdbcompression": "no"}):
                cluster.move_atomically([slot], home)
            assert looks(home.client(), [key]) == expected


# ---- MIGRATE without a cluster --------------------------------------------------------------------------------------


def test_migrate_between_servers(new_server):
    """Migrates filters of every kind in every state, and other systems' filters, with and without COPY, over an
    existing key, and with a time to live."""
    source, target = new_server(), new_server()
    with source.client() as here, target.client() as there:
        make_all(here)
        move_all_in(here)
        keys = sorted(key.decode() for key in here.keys() if here.type(key) != b"string")
        here.pexpire(keys[0], 1_000_000)
        expected = looks(here, keys)
        there.execute_command("ACL", "SETUSER", "mover", "on", ">secret", *rules("MIGRATE"))
        assert migrate(here, target, keys, "COPY", "AUTH2", "mover", "secret") == b"OK"
        assert not changed(expected, looks(here, keys)) and not changed(expected, looks(there, keys))
        assert {key for key in keys if there.pttl(key) != -1} == {keys[0]}
        assert 900_000 < there.pttl(keys[0]) <= 1_000_000

        with pytest.raises(redis.ResponseError, match="BUSYKEY"):
            migrate(here, target, keys)
        assert not changed(expected, looks(here, keys))
        there.delete(*keys)
        there.execute_command("BF.RESERVE", keys[0], 0.5, 1)
        assert migrate(here, target, keys, "REPLACE") == b"OK"
        assert not here.exists(*keys)
        assert not changed(expected, looks(there, keys))


def changed(before: dict, after: dict) -> list[str]:
    return [key for key in before | after if before.get(key) != after.get(key)]


# ---- one filter over several nodes ----------------------------------------------------------------------------------

PARTS = 24


CLIENTS = {
    "redis-py": {"protocol": 2},
    "redis-py-asyncio": {"protocol": 3, "decode_responses": True},
    "valkey-py": {"protocol": 3, "decode_responses": True},
    "valkey-py-asyncio": {"protocol": 2},
}


@pytest.fixture(params=CLIENTS)
def on_cluster(cluster, request):
    """A function that creates an object of the Python package, given the name of its class: a blocking object, or an
    asyncio object that is used as if it blocked."""
    options = {"host": "127.0.0.1", "port": cluster.primaries()[0].port, **CLIENTS[request.param]}
    library, name = (valkey, "ValkeyCluster") if "valkey" in request.param else (redis, "RedisCluster")
    if "asyncio" not in request.param:
        with getattr(library, name)(**options) as client:
            yield lambda name, *arguments, **more: getattr(bloomery_redis, name)(client, *arguments, **more)
        return
    loop = asyncio.new_event_loop()
    client = getattr(library.asyncio, name)(**options)
    yield lambda name, *arguments, **more: Blocking(
        loop, getattr(bloomery_redis.asyncio, name)(client, *arguments, **more)
    )
    loop.run_until_complete(client.aclose())
    loop.close()


@pytest.fixture
def spread(on_cluster):
    """A spread filter that doesn't exist on the servers yet."""
    return on_cluster("SpreadBloom", "users", parts=PARTS)


def numbers(count: int, start: int = 0) -> list[str]:
    return [f"user:{number}" for number in range(start, start + count)]


def test_the_part_of_an_item_is_that_of_the_guide():
    """The package computes the parts, keys and slots in the guide's table. Programs in other languages must compute the
    same ones."""
    rows = re.findall(r"^\| `(\w*)` \| (\d+) \| (\d+) \| `(\{\S+\})` \| (\d+) \|$", GUIDE.read_text(), flags=re.M)
    assert len(rows) >= 4
    for item, parts, part, key, slot in rows:
        assert part_of(bytes.fromhex(item), int(parts)) == int(part)
        assert part_key("users", int(part), int(parts)) == key
        assert slot_of(key[1:-1]) == key_slot(key.encode()) == int(slot)


@pytest.mark.parametrize("parts", [1, 2, 3, 64, 1000])
def test_parts_are_spread_over_the_slots(parts):
    """Each part has its own range of slots. So nodes with equal ranges have the same number of parts, give or take one.
    """
    slots = [slot_of(part_key("a name", part, parts)[1:-1]) for part in range(parts)]
    bounds = [16384 * part // parts for part in range(parts + 1)]
    assert all(first <= slot < last for slot, first, last in zip(slots, bounds[:-1], bounds[1:], strict=True))
    nodes = [slot * 3 // 16384 for slot in slots]
    assert max(map(nodes.count, range(3))) - min(map(nodes.count, range(3))) <= 1


@pytest.mark.parametrize("capacity", [10, 1000, 100_000, 10_000_000])
@pytest.mark.parametrize("parts", [2, 7, 64, 1000])
def test_the_slack_of_a_part(capacity, parts):
    """The probability that any part overflows is at most one in a billion, as the exact binomial tail shows, and the
    slack isn't much larger than necessary."""
    each = part_capacity(capacity, parts)
    mean = capacity / parts
    # The sum starts with the term after the capacity. Later terms decrease geometrically, so 1000 are more than enough.
    p, tail = 1 / parts, 0.0
    for count in range(each + 1, min(capacity, each + 1000) + 1):
        log = math.lgamma(capacity + 1) - math.lgamma(count + 1) - math.lgamma(capacity - count + 1)
        tail += math.exp(log + count * math.log(p) + (capacity - count) * math.log1p(-p))
    assert parts * tail <= OVERFLOW
    assert each <= mean + 9 * math.sqrt(mean) + 24


def test_a_spread_filter(spread, client, monkeypatch):
    """Checks answers, numbers and refusals. Batches are 96 KiB long instead of 1.5 MiB, so that several are needed."""
    monkeypatch.setattr(bloomery_redis._spread, "PIECE_BYTES", 4096)
    with pytest.raises(Exception, match="not found"):
        spread.add("ada")
    with pytest.raises(Exception, match="not found"):
        spread.add_many(["ada"])
    assert not client.exists(spread.keys[0]) and not spread.contains("ada")
    assert spread.missing() == spread.keys

    assert spread.reserve(0.01, 30_000) is spread
    with pytest.raises(Exception, match="item exists"):
        spread.reserve(0.01, 30_000)
    answers = (spread.contains("ada"), spread.add("ada"), spread.add("ada"), spread.contains("ada"))
    assert answers == (False, True, False, True)
    assert spread.contains(b"ada")
    assert spread.add_many(["bob", "ada", 42, b"\xff\0"]) == 3
    assert spread.contains_many(["x1", "42", "x2", b"\xff\0", "bob"]) == [False, True, False, True, True]
    assert (spread.add_many([]), spread.contains_many([])) == (0, [])
    with pytest.raises(TypeError, match="an item is bytes, str or an integer"):
        spread.add_many(["ada", 1.5])

    members, strangers = numbers(29_000), numbers(29_000, 1_000_000)
    new = spread.add_many(iter(members))
    assert 28_600 < new <= 29_000, "a few test positive before they are added"
    assert all(spread.contains_many(members)) and all(map(spread.contains, members[:50]))
    mixed = [item for pair in zip(members, strangers, strict=True) for item in pair]
    found = spread.contains_many(mixed)
    assert len(found) == 58_000 and all(found[::2])
    positives = sum(found[1::2])
    stats = spread.stats()
    assert set(stats) == set(bloomery_redis.SpreadStats.__annotations__)
    assert stats["parts"] == PARTS
    assert stats["number_of_items_inserted"] == new + 4
    assert abs(stats["approximate_number_of_items"] - 29_004) < 300
    assert 30_000 < stats["capacity"] < 45_000
    # The configured rate applies to full parts, and no part is full.
    assert stats["error_rate"] == pytest.approx(0.01)
    assert stats["error_rate_now"] < 0.01
    assert stats["fullest"] < 1
    expected = stats["error_rate_now"] * len(strangers)
    assert abs(positives - expected) < 5 * math.sqrt(expected), f"{positives} strangers test positive"

    client.unlink(spread.keys[3])
    assert spread.missing() == [spread.keys[3]]
    with pytest.raises(Exception, match="not found"):
        spread.stats()
    spread.reserve(0.01, 30_000, exist_ok=True)
    assert spread.missing() == [] and spread.stats()["number_of_items_inserted"] < new
    spread.delete()
    assert spread.missing() == spread.keys


def test_all_parts_are_there_after_reserve(cluster, spread, client):
    """With exist_ok, `reserve` still raises an error if a part is missing and can't be created."""
    spread.reserve(0.01, 30_000)
    gone = spread.keys[-1]
    client.unlink(gone)
    node = cluster.owner(key_slot(gone.encode()))
    with node.configured({option(cluster.spec, "max-filter-bytes"): "1"}):
        with pytest.raises(Exception, match="item exists"):
            spread.reserve(0.01, 30_000, exist_ok=True)
    assert spread.missing() == [gone]


@pytest.mark.parametrize(
    ("name", "parts", "text"),
    [
        ("users", 0, "parts is an integer from 1 to 1024, not 0"),
        ("users", 1025, "parts is an integer from 1 to 1024, not 1025"),
        ("users", 2.0, "parts is an integer from 1 to 1024, not 2.0"),
        ("", 2, "has none: not ''"),
        ("{users}", 2, "has none: not '{users}'"),
    ],
)
def test_spread_filters_that_cannot_be(on_cluster, name, parts, text):
    with pytest.raises(ValueError, match=text):
        on_cluster("SpreadBloom", name, parts)


def test_one_filter_in_a_cluster(on_cluster):
    """Each of these filters has one key. The client finds the key's node."""
    bloom = on_cluster("Bloom", "seen").reserve(1e-6, 20_000)
    assert bloom.add_many(numbers(10_000)) == 10_000 and all(bloom.contains_many(numbers(10_000)))
    with bloom.rebuild(capacity=50_000) as new:
        new.add_many(numbers(100))
    assert (bloom.card(), bloom.stats()["capacity"]) == (100, 50_000)
    cuckoo = on_cluster("Cuckoo", "stock").reserve(1000)
    assert cuckoo.add_many(["ada", "bob"]) == 2 and cuckoo.stats()["number_of_items_inserted"] == 2
    other = on_cluster("Bloom", "other")
    with pytest.raises(Exception, match="slot"):
        other.merge(bloom)
    other.merge_blob(b"".join(piece for _, piece in bloom.dump()))  # blobs belong to no slot
    assert other.card() == 100


def test_parts_are_even(cluster, client):
    """Keys are spread evenly over the nodes, and items evenly over the parts."""
    spread = SpreadBloom(client, "even", PARTS).reserve(0.01, 60_000, nonscaling=True)
    spread.add_many(numbers(60_000))
    for primary in cluster.primaries():
        assert len(primary.command("KEYS", "*")) == PARTS // 3
    sizes = [pairs(client.execute_command("BF.INFO", key))[b"Number of items inserted"] for key in spread.keys]
    mean = sum(sizes) / PARTS
    assert max(abs(size - mean) for size in sizes) < 5 * math.sqrt(mean)


def test_a_full_part_refuses(spread):
    spread.reserve(0.01, 10, nonscaling=True)
    with pytest.raises(Exception, match="full"):
        spread.add_many(numbers(2000))
    with pytest.raises(Exception, match="full"):
        for item in numbers(2000, 2000):
            spread.add(item)


@pytest.mark.parametrize("on_cluster", ["redis-py", "redis-py-asyncio"], indirect=True)
def test_slots_move_under_a_spread_filter(cluster, spread):
    """Every command works with a client that learns about moves from MOVED and ASK. valkey-py 6.2 isn't tested, because
    its pipelines don't follow ASK."""
    spread.reserve(0.01, 20_000)
    added: list[str] = []

    def use() -> None:
        some = numbers(200, len(added))
        spread.add_many(some[:190])
        for item in some[190:]:
            spread.add(item)
        added.extend(some)
        assert all(map(spread.contains, added[-10:])) and all(spread.contains_many(added))

    for number, key in enumerate(spread.keys[:6]):
        slot = key_slot(key.encode())
        home, away = cluster.owner(slot), cluster.other_primary(slot)
        use()
        if number % 2 and len(ways(cluster)) > 1:
            cluster.move_atomically([slot], away)
        else:
            cluster.begin_move(slot, home, away)
            use()
            with home.client() as source:
                migrate(source, away, [key])
            use()
            cluster.finish_move(slot, home, away)
        use()
    assert spread.stats()["number_of_items_inserted"] > 0.98 * len(added)


# ---- docs/CLUSTER.md ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", examples(GUIDE), ids=lambda example: f"CLUSTER.md:{example.first}")
def test_example(new_server, example):
    """Runs the example on one node that has all slots, so that there are no redirections."""
    node = new_server(config={"cluster-enabled": "yes"})
    node.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    wait_for(lambda: cluster_info(node)["cluster_state"] == "ok", "the node to serve")
    if wrong := example.mismatches(example.run(node), node.spec.name):
        pytest.fail(wrong, pytrace=False)


def test_the_spread_filter_of_the_guide(cluster, monkeypatch):
    """Runs the example with fewer items. The example's comments say what each line returns."""
    monkeypatch.setattr(sys.modules["redis.cluster"], "RedisCluster", lambda *_: cluster.client())
    (code,) = [block for block in blocks(GUIDE) if "SpreadBloom(" in block]
    assert run_snippet(code.replace("1_000_000_000", "1_000_000"), {}) == 4


def test_the_commands_of_the_guide_start_nodes(spec, tmp_path):
    """Runs the commands with other ports, and with the server and the module that are being tested."""
    ports = [free_port() for _ in range(6)]
    start, *_ = blocks(GUIDE, "sh")
    script = re.sub(r"\b700(\d)\b", lambda match: str(ports[int(match[1]) - 1]), start)
    script = script.replace("redis-server", str(spec.program)).replace("/path/to/libbloomery.so", str(MODULE))
    clients = [redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) for port in ports]

    def answers(client) -> bool:
        try:
            return client.ping()
        except redis.ConnectionError:
            return False

    try:
        subprocess.run(["bash", "-ec", script], cwd=tmp_path, stdout=subprocess.DEVNULL, timeout=60, check=True)
        for client in clients:
            wait_for(lambda client=client: answers(client), "a node to start")
            assert client.info("cluster")["cluster_enabled"] == 1
            assert client.execute_command("COMMAND LIST", "FILTERBY", "MODULE", "bf")
    finally:
        for client in clients:
            try:
                client.shutdown(nosave=True)
            except redis.ConnectionError:
                pass  # the node isn't running


def test_the_commands_of_the_guide_make_and_reshard_a_cluster(spec):
    """Runs the shell examples with different ports: six nodes become a cluster, filters move, and the cluster stays
    healthy."""
    with Cluster(spec, joined=False) as cluster:
        ports = [str(node.port) for node in cluster.nodes]

        def run(script: str) -> str:
            script = re.sub(r"\b700(\d)\b", lambda match: ports[int(match[1]) - 1], script)
            script = script.replace("redis-cli", str(redis_cli()))
            done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
            return done.stdout

        _, create, reshard, check = blocks(GUIDE, "sh")
        run(create)
        cluster.wait_until_ok()
        with cluster.client() as client:
            for kind in KINDS:
                make(client, kind, f"{{users}}{kind.name}")
                make(client, kind, kind.name)
            keys = [key for kind in KINDS for key in (f"{{users}}{kind.name}", kind.name)]

            def all_looks() -> dict:
                found = {}
                for node in cluster.primaries():
                    own_keys = [key for key in keys if key_slot(key.encode()) in own_slots(node)]
                    with node.client() as there:
                        found |= looks(there, own_keys)
                return found

            before, homes = all_looks(), [cluster.owner(key_slot(key.encode())) for key in keys]
            run(reshard)
            cluster.wait_until_ok()
            assert [cluster.owner(key_slot(key.encode())) for key in keys] != homes
            assert all_looks() == before
            assert "[OK] All 16384 slots covered." in run(check)
        cluster.check()
