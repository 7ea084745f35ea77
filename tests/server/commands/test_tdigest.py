"""t-digests on real servers: RedisBloom's recorded replies in both protocols, its files, and damaged payloads. Numbers
are compared as numbers, because servers differ in how many digits they write.
"""

import json
import random
import re
import shutil

import pytest
import redis

from kit.foreign import sealed, values_of, version_of
from kit.raw import Connection
from kit.servers import APPEND_ONLY, ROOT, rewrite

pytestmark = pytest.mark.every_server("it formats numbers, and reads and writes the files")

FIXTURES = ROOT / "tests" / "fixtures" / "sketches"
NUMBER = re.compile(rb"(?:\$\d+\r\n|,)([-+.e\d]+|nan|-?inf)(?=\r\n)")
CHECKED = 10  # bytes of version and checksum at the end of a payload
# RedisBloom's formula for the memory has changed, and MEMORY USAGE is our own.
MEMORY = re.compile(rb"(\+Memory usage\r\n):\d+")


def comparable(reply: bytes) -> bytes:
    reply = MEMORY.sub(rb"\1", reply)
    return NUMBER.sub(lambda found: b"<%r>" % float(found[1]), reply)


def must_answer(connection: Connection, exchange: dict, protocol: int):
    words, recorded = exchange["cmd"], exchange[f"resp{protocol}"].encode("latin-1")
    if words[0] == "MEMORY":
        return
    reply = connection.ask(words)
    if words[0] == "DUMP":
        reply, recorded = reply[: -CHECKED - 2], recorded[: -CHECKED - 2]
    assert comparable(reply) == comparable(recorded), words


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_reply_is_redisblooms(server, protocol):
    connection = Connection(server.port, protocol)
    for exchange in json.loads((FIXTURES / "transcript.json").read_text()):
        if exchange["family"] == "tdigest":
            must_answer(connection, exchange, protocol)
    connection.close()


def files(spec) -> tuple[str, str]:
    """An RDB file that the server reads, and what RedisBloom answered after loading it."""
    reads_12 = spec.product == "redis" and spec.version >= (8,)
    suffix = "" if reads_12 else "-rdb11"
    return f"dump{suffix}.rdb", f"manifest{suffix}.json"


def test_files_of_redisbloom_are_read(new_server, spec):
    rdb, manifest = files(spec)
    keys = json.loads((FIXTURES / manifest).read_text())["keys"]
    values = values_of((FIXTURES / rdb).read_bytes())
    server = new_server(config={"dbfilename": "dump.rdb", "rdbcompression": "no"})
    if spec.name == "redis-7.0":  # reads neither file, but their values
        with server.client() as client:
            for key, value in values.items():
                client.restore(key, 0, sealed(value, 10))
    else:
        server.stop()
        shutil.copy(FIXTURES / rdb, server.directory / "dump.rdb")
        server.start()
    for protocol in (2, 3):
        connection = Connection(server.port, protocol)
        for key, recorded in keys.items():
            # RedisBloom 2.8 doesn't know the value of a single observation.
            if key.startswith("td:") and not (key == "td:one" and "11" in rdb):
                assert server.command("DUMP", key)[:-CHECKED] == values[key.encode()], key
                for exchange in recorded["queries"]:
                    must_answer(connection, exchange, protocol)
        connection.close()
    assert server.command("TDIGEST.QUANTILE", "td:one", 0.5) == [server.command("TDIGEST.MIN", "td:one")]


def filled(client):
    """Digests with merged and unmerged nodes, of one observation, and of none."""
    chance = random.Random(35)
    for key, count in {"none": 0, "one": 1, "few": 20, "many": 5000}.items():
        client.execute_command("TDIGEST.CREATE", key, "COMPRESSION", 20)
        if count:
            client.execute_command("TDIGEST.ADD", key, *(chance.gauss(0, 1) for _ in range(count)))


def state(client) -> dict:
    return {
        key: (client.dump(key), repr(client.execute_command("TDIGEST.QUANTILE", key, 0, 0.1, 0.5, 1)))
        for key in client.keys()
    }


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_digests_survive(new_server, preamble):
    server = new_server(config={**APPEND_ONLY, "aof-use-rdb-preamble": preamble})
    with server.client() as client:
        filled(client)
        rewrite(server, client)
        client.execute_command("TDIGEST.ADD", "few", 1, 2, 3)
        expected = state(client)
        client.execute_command("DEBUG", "RELOAD")
        assert state(client) == expected
        for key in list(expected):
            client.copy(key, f"copy of {key}")
            assert client.dump(f"copy of {key}") == expected[key][0]
            client.delete(f"copy of {key}")
        digests = {key: client.execute_command("DEBUG", "DIGEST-VALUE", key) for key in expected}
    server.restart(kill=True)
    with server.client() as client:
        assert state(client) == expected
        assert {key: client.execute_command("DEBUG", "DIGEST-VALUE", key) for key in expected} == digests
        before = client.execute_command("MEMORY", "USAGE", "none")
        assert before < client.execute_command("MEMORY", "USAGE", "many") < before + (20 * 6 + 10) * 16 * 2
        client.flushall()


def test_damaged_payloads_are_refused_or_work(server):
    """Each payload has a correct checksum, so only our checks are in the way."""
    chance = random.Random(36)
    with server.client() as client:
        client.config_set("sanitize-dump-payload", "yes")
        filled(client)
        dumps = [client.dump(key) for key in sorted(client.keys())]
        client.flushall()
        refused = 0
        for _ in range(3000):
            dump = chance.choice(dumps)
            payload = bytearray(dump[:-CHECKED])
            for _ in range(chance.choice([1, 1, 3])):
                # The first 10 bytes name the type, which the server checks.
                payload[chance.randrange(10, len(payload))] = chance.choice([0, 1, 2, 0x7F, 0xFF, chance.randrange(256)])
            if chance.random() < 0.2:
                del payload[chance.randrange(10, len(payload)) :]
            try:
                client.restore("k", 0, sealed(bytes(payload), version_of(dump)), replace=True)
            except redis.ResponseError:
                refused += 1
                continue
            for command in (
                ["QUANTILE", "k", 0, 0.5, 1],
                ["RANK", "k", 0],
                ["ADD", "k", *range(200)],
                ["MERGE", "other", 2, "k", "k"],
                ["TRIMMED_MEAN", "k", 0.1, 0.5],
                ["CDF", "k", 1e308],
            ):
                try:
                    client.execute_command(f"TDIGEST.{command[0]}", *command[1:])
                except redis.ResponseError as error:
                    assert "overflow detected" in str(error), command
            assert client.restore("k", 0, client.dump("k"), replace=True)
        assert refused > 2300, refused
        client.flushall()
