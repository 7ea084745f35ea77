"""The clients that people have: redis-py's `client.bf()` and valkey-py's, which were written for RedisBloom.

They parse the replies into objects and know nothing of us: what works here, works in programs that used RedisBloom.
"""

import pytest
import redis
import valkey

CLIENTS = {"redis-py": redis.Redis, "valkey-py": valkey.Valkey}


@pytest.fixture(params=[f"{name}-resp{protocol}" for name in CLIENTS for protocol in (2, 3)])
def client(request, server):
    name, protocol = request.param.rsplit("-resp", 1)
    with CLIENTS[name](host="127.0.0.1", port=server.port, protocol=int(protocol), socket_timeout=60) as client:
        yield client


def info(client, key: str) -> dict:
    """BF.INFO as the client gives it: an object of its own in RESP2, the map itself in RESP3."""
    seen = client.bf().info(key)
    if isinstance(seen, dict):
        return {name.decode(): value for name, value in seen.items()}
    attributes = {
        "Capacity": "capacity",
        "Size": "size",
        "Number of filters": "filterNum",
        "Number of items inserted": "insertedNum",
        "Expansion rate": "expansionRate",
    }
    return {name: seen.get(attribute) for name, attribute in attributes.items()}


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
    assert info(client, "scaling")["Expansion rate"] == 4
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
    made = info(client, "made")
    assert (made["Capacity"], made["Number of items inserted"], made["Expansion rate"]) == (500, 2, 3)
    with pytest.raises(Exception, match="not found"):
        bloom.insert("missing", ["a"], noCreate=True)
    assert bloom.insert("fixed", ["a"], capacity=5, noScale=True) == [1]
    assert info(client, "fixed")["Expansion rate"] is None


def test_info(client):
    bloom = client.bf()
    bloom.create("seen", 0.01, 1000)
    bloom.madd("seen", *range(10))
    seen = info(client, "seen")
    assert 1200 < seen.pop("Size") < 2500
    assert seen == {"Capacity": 1000, "Number of filters": 1, "Number of items inserted": 10, "Expansion rate": 2}
    with pytest.raises(Exception, match="not found"):
        bloom.info("missing")


def test_scandump_and_loadchunk(client):
    """The loop that RedisBloom's documentation shows, over a filter of several MiB."""
    bloom = client.bf()
    bloom.create("source", 0.001, 2_000_000)
    items = [f"item:{number}" for number in range(3000)]
    bloom.madd("source", *items)
    iterator, chunks = 0, []
    while True:
        iterator, data = bloom.scandump("source", iterator)
        if iterator == 0:
            break
        chunks.append((iterator, data))
    assert len(chunks) > 4 and sum(len(data) for _, data in chunks) > 3 << 20
    for iterator, data in chunks:
        assert not client.exists("target")  # not before the last one
        assert bloom.loadchunk("target", iterator, data)
    assert bloom.mexists("target", *items) == [1] * len(items)
    assert bloom.card("target") == bloom.card("source")
    source, target = client.execute_command("DEBUG", "DIGEST-VALUE", "source", "target")
    assert source == target


def test_items_of_every_type(client):
    bloom = client.bf()
    items = [0, -1, 2.5, "text", b"\0\r\n%s\xff", "snow ☃", ""]
    assert bloom.madd("types", *items) == [1] * len(items)
    assert bloom.mexists("types", *items) == [1] * len(items)
    assert bloom.exists("types", "0") == 1  # a number is its text


def test_pipelines_and_scripts(client):
    pipeline = client.pipeline()
    pipeline.execute_command("BF.ADD", "seen", "a")
    pipeline.execute_command("BF.EXISTS", "seen", "a")
    pipeline.execute_command("BF.MADD", "seen", "a", "b")
    assert pipeline.execute() == [1, 1, [0, 1]]
    assert client.eval("return redis.call('BF.MADD', KEYS[1], ARGV[1], ARGV[2])", 1, "seen", "a", "c") == [0, 1]
    assert client.eval("return redis.call('BF.EXISTS', KEYS[1], ARGV[1])", 1, "seen", "c") == 1


def test_own_commands(client):
    """No client knows them yet; every client can send them."""
    assert client.execute_command("BF.RESERVE", "counts", 0.01, 100, "COUNTING") in (b"OK", True)
    assert client.execute_command("BF.MADD", "counts", "a", "a") == [1, 0]
    assert client.execute_command("BF.COUNT", "counts", "a") == 2
    assert client.execute_command("BF.DEL", "counts", "a") == 1
    assert client.execute_command("BF.MDEL", "counts", "a", "a") == [1, 0]
    assert client.execute_command("BF.RESERVE", "recent", 0.01, 100, "WINDOW", 3) in (b"OK", True)
    assert client.execute_command("BF.ADD", "recent", "a") == 1
    assert client.execute_command("BF.ROTATE", "recent") in (b"OK", True)
    assert client.execute_command("BF.AGE", "recent", "a") == 1
    assert client.execute_command("BF.TEST", "recent", "a") == 1
    assert client.execute_command("BF.CLEAR", "recent") in (b"OK", True)
    assert client.execute_command("BF.MTEST", "recent", "a", "b") == [0, 0]
