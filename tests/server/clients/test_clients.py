"""`client.bf()` and `client.cf()` of the most widely used clients, redis-py and valkey-py. These methods were written
for RedisBloom, parse replies into objects, and know nothing about Bloomery. So a call that works here also works in
programs written for RedisBloom.
"""

import pytest
import redis
import valkey

pytestmark = pytest.mark.every_server("clients talk to the server, which converts the module's replies")

CLIENTS = {"redis-py": redis.Redis, "valkey-py": valkey.Valkey}


@pytest.fixture(params=[f"{name}-resp{protocol}" for name in CLIENTS for protocol in (2, 3)])
def client(request, server):
    name, protocol = request.param.rsplit("-resp", 1)
    with CLIENTS[name](host="127.0.0.1", port=server.port, protocol=int(protocol), socket_timeout=60) as client:
        yield client


def info(commands, key: str) -> dict:
    """BF.INFO or CF.INFO as a dictionary. The client returns its own kind of object in RESP2, and the map itself in
    RESP3."""
    seen = commands.info(key)
    if isinstance(seen, dict):
        return {name.decode(): value for name, value in seen.items()}
    attributes = {
        "Capacity": "capacity",
        "Size": "size",
        "Number of buckets": "bucketNum",
        "Number of filters": "filterNum",
        "Number of items inserted": "insertedNum",
        "Number of items deleted": "deletedNum",
        "Bucket size": "bucketSize",
        "Expansion rate": "expansionRate",
        "Max iterations": "maxIteration",
    }
    return {name: getattr(seen, attribute) for name, attribute in attributes.items() if hasattr(seen, attribute)}


def copy(client, commands) -> None:
    """Copies the key "source", of several MiB, to "target" with the loop from RedisBloom's documentation."""
    iterator, chunks = 0, []
    while True:
        iterator, data = commands.scandump("source", iterator)
        if iterator == 0:
            break
        chunks.append((iterator, data))
    assert len(chunks) > 3 and sum(len(data) for _, data in chunks) > 3 << 20
    for iterator, data in chunks:
        assert not client.exists("target")  # it exists only after the last chunk
        assert commands.loadchunk("target", iterator, data)
    source, target = client.execute_command("DEBUG", "DIGEST-VALUE", "source", "target")
    assert source == target


def test_reserve_add_and_ask(client):
    bloom = client.bf()
    assert bloom.create("seen", 0.01, 1000)
    assert bloom.add("seen", "ada") == 1
    assert bloom.add("seen", "ada") == 0
    assert bloom.madd("seen", "ada", "bob", "cid") == [0, 1, 1]
    assert bloom.exists("seen", "ada") == 1
    assert bloom.exists("seen", "zoe") == 0
    assert bloom.mexists("seen", "ada", "zoe", "bob") == [1, 0, 1]
    assert bloom.exists("missing", "ada") == 0
    assert bloom.card("seen") == 3
    assert bloom.card("missing") == 0


def test_create_with_options(client):
    bloom = client.bf()
    assert bloom.create("scaling", 0.001, 100, expansion=4)
    assert info(bloom, "scaling")["Expansion rate"] == 4
    assert bloom.create("fixed", 1e-9, 2, noScale=True)
    assert bloom.madd("fixed", "a", "b") == [1, 1]
    with pytest.raises(Exception, match="non scaling filter is full"):
        bloom.add("fixed", "c")
    with pytest.raises(Exception, match="item exists"):
        bloom.create("fixed", 0.01, 10)
    with pytest.raises(Exception, match="Nonscaling filters cannot expand"):
        bloom.create("both", 0.01, 10, expansion=2, noScale=True)


def test_insert(client):
    bloom = client.bf()
    assert bloom.insert("made", ["a", "b", "a"], capacity=500, error=0.02, expansion=3) == [1, 1, 0]
    made = info(bloom, "made")
    assert (made["Capacity"], made["Number of items inserted"], made["Expansion rate"]) == (500, 2, 3)
    with pytest.raises(Exception, match="not found"):
        bloom.insert("missing", ["a"], noCreate=True)
    assert bloom.insert("fixed", ["a"], capacity=5, noScale=True) == [1]
    assert info(bloom, "fixed")["Expansion rate"] is None


def test_stats(client):
    """`bf()` and `cf()` register parsers for BF.INFO and CF.INFO. BF.STATS and CF.STATS have no parsers, so the replies
    keep their additional fields."""
    client.bf().reserve("bloom", 0.01, 1000)
    client.cf().reserve("cuckoo", 1000)
    for command, key in (("BF.STATS", "bloom"), ("CF.STATS", "cuckoo")):
        reply = client.execute_command(command, key)
        fields = dict(reply) if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))
        assert fields[b"Advice"] == []
        assert float(fields[b"Fill"]) == 0.0


def test_info(client):
    bloom = client.bf()
    bloom.create("seen", 0.01, 1000)
    bloom.madd("seen", *range(10))
    seen = info(bloom, "seen")
    assert 1200 < seen.pop("Size") < 2500
    assert seen == {"Capacity": 1000, "Number of filters": 1, "Number of items inserted": 10, "Expansion rate": 2}
    with pytest.raises(Exception, match="not found"):
        bloom.info("missing")


def test_scandump_and_loadchunk(client):
    bloom = client.bf()
    bloom.create("source", 0.001, 2_000_000)
    items = [f"item:{number}" for number in range(3000)]
    bloom.madd("source", *items)
    copy(client, bloom)
    assert bloom.mexists("target", *items) == [1] * len(items)
    assert bloom.card("target") == bloom.card("source")


# ---- cuckoo filters -------------------------------------------------------------------------------------------------


def reserve_seeded(client, key: str) -> None:
    """Reserves a filter with a fixed seed. With a random seed, two items might be indistinguishable, or both buckets of
    an item might be the same."""
    assert client.execute_command("CF.RESERVE", key, 1000, "SEED", 1) in (b"OK", True)


def test_cuckoo_create(client):
    cuckoo = client.cf()
    assert cuckoo.create("plain", 1000)
    assert info(cuckoo, "plain")["Number of buckets"] == 512
    assert cuckoo.create("shaped", 1000, expansion=2, bucket_size=4, max_iterations=50)
    shaped = info(cuckoo, "shaped")
    assert 1024 < shaped.pop("Size") < 2048
    assert shaped == {
        "Number of buckets": 256,
        "Number of filters": 1,
        "Number of items inserted": 0,
        "Number of items deleted": 0,
        "Bucket size": 4,
        "Expansion rate": 2,
        "Max iterations": 50,
    }
    with pytest.raises(Exception, match="item exists"):
        cuckoo.create("shaped", 1000)
    with pytest.raises(Exception, match="not found"):
        cuckoo.info("missing")


def test_cuckoo_add_and_ask(client):
    cuckoo = client.cf()
    reserve_seeded(client, "seen")
    assert cuckoo.add("seen", "ada") == 1
    assert cuckoo.add("seen", "ada") == 1
    assert cuckoo.addnx("seen", "ada") == 0
    assert cuckoo.addnx("seen", "bob") == 1
    assert cuckoo.exists("seen", "ada") == 1
    assert cuckoo.exists("seen", "zoe") == 0
    assert cuckoo.exists("missing", "ada") == 0
    assert cuckoo.mexists("seen", "ada", "zoe", "bob") == [1, 0, 1]
    assert cuckoo.mexists("missing", "ada", "zoe") == [0, 0]


def test_cuckoo_count_and_delete(client):
    cuckoo = client.cf()
    reserve_seeded(client, "seen")
    cuckoo.insert("seen", ["ada", "ada", "bob"])
    assert cuckoo.count("seen", "ada") == 2
    assert cuckoo.count("seen", "zoe") == 0
    assert cuckoo.count("missing", "ada") == 0
    assert cuckoo.delete("seen", "ada") == 1
    assert cuckoo.count("seen", "ada") == 1
    assert cuckoo.delete("seen", "ada") == 1
    assert cuckoo.delete("seen", "ada") == 0
    assert cuckoo.mexists("seen", "ada", "bob") == [0, 1]
    with pytest.raises(Exception, match="Not found"):
        cuckoo.delete("missing", "ada")
    assert info(cuckoo, "seen")["Number of items deleted"] == 2
    assert client.execute_command("CF.COMPACT", "seen") in (b"OK", True)
    assert info(cuckoo, "seen")["Number of items deleted"] == 0


def test_cuckoo_insert(client):
    cuckoo = client.cf()
    assert cuckoo.insert("made", ["a", "b", "a"], capacity=500) == [1, 1, 1]
    assert cuckoo.insertnx("made-nx", ["a", "a"], capacity=500) == [1, 0]
    for key, items in (("made", 3), ("made-nx", 1)):
        made = info(cuckoo, key)
        assert (made["Number of buckets"], made["Number of items inserted"]) == (256, items)
    reserve_seeded(client, "seen")
    assert cuckoo.insert("seen", ["a", "b"], nocreate=True) == [1, 1]
    assert cuckoo.insertnx("seen", ["a", "c", "c"], nocreate=True) == [0, 1, 0]
    for insert in (cuckoo.insert, cuckoo.insertnx):
        with pytest.raises(Exception, match="not found"):
            insert("missing", ["a"], nocreate=True)


def test_cuckoo_without_room(client):
    cuckoo = client.cf()
    cuckoo.create("fixed", 4, expansion=0)
    # An item can use four slots in two buckets, or only two slots if both of its buckets are the same.
    room = cuckoo.insert("fixed", ["a"] * 4).count(1)
    assert room == info(cuckoo, "fixed")["Number of items inserted"] and room in (2, 4)
    with pytest.raises(Exception, match="Filter is full"):
        cuckoo.add("fixed", "a")
    # As in RedisBloom, CF.INSERT answers with booleans in RESP3, and CF.INSERTNX with integers.
    refused = False if client.get_connection_kwargs()["protocol"] == 3 else -1
    assert cuckoo.insert("fixed", ["a"]) == [refused]
    many = cuckoo.insertnx("fixed", ["a", *range(100)])
    assert many[0] == 0 and -1 in many


def test_cuckoo_scandump_and_loadchunk(client):
    cuckoo = client.cf()
    cuckoo.create("source", 4_000_000)
    items = [f"item:{number}" for number in range(3000)]
    cuckoo.insert("source", items)
    copy(client, cuckoo)
    assert cuckoo.mexists("target", *items) == [1] * len(items)
    assert info(cuckoo, "target") == info(cuckoo, "source")


def test_items_of_every_type(client):
    items = [0, -1, 2.5, "text", b"\0\r\n%s\xff", "snow ☃", ""]
    reserve_seeded(client, "cuckoo")
    for found in (client.bf().madd("bloom", *items), client.cf().insertnx("cuckoo", items)):
        assert found == [1] * len(items)
    for commands, key in ((client.bf(), "bloom"), (client.cf(), "cuckoo")):
        assert commands.mexists(key, *items) == [1] * len(items)
        assert commands.exists(key, "0") == 1  # a number is added as its text
