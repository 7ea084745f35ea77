"""Bytes that no server wrote, one case at a time: heads that declare more than they contain, and values at their
limits. Each case was once found by a test or by reasoning. `scripts/suite corrupt` makes thousands of cases at random,
and uses the filters that load."""

import re
from pathlib import Path

import pytest
import redis

from kit.filters import adding
from kit.payload import PREFIX as CHUNK_PREFIX
from kit.payload import Payload
from kit.servers import Server


SOURCES = {
    "fixed": "BF 0.01 50 NONSCALING",
    "saturate": "BF 0.05 50 ONFULL SATURATE HASH SIPHASH",
    "window": "BF 0.05 20 WINDOW 3",
    "cuckoo": "CF 30 EXPANSION 0",
    "cuckoo-scaling": "CF 8 BUCKETSIZE 4 EXPANSION 2 HASH SIPHASH",
    "cuckoo-padded": "CF 7 BUCKETSIZE 3 MAXITERATIONS 1",
}


@pytest.fixture(scope="module")
def bare(spec):
    """A server that doesn't compress payloads or verify their outer checksum, a client, and the payloads to damage."""
    with (
        Server(spec, config={"rdbcompression": "no", "sanitize-dump-payload": "yes"}) as server,
        server.client() as client,
    ):
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
        dumps = {}
        for name, arguments in SOURCES.items():
            prefix, *words = arguments.split()
            client.execute_command(f"{prefix}.RESERVE", name, *words)
            client.execute_command(*adding(prefix, name, [f"item:{number}" for number in range(20)]))
            dumps[name] = client.dump(name)
        yield server, client, dumps
        server.check()


def run(client, commands: list[list]) -> list:
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute(raise_on_error=False)


def resident(server) -> int:
    """The current number of bytes that the server has allocated and touched. The numbers in INFO can be 0.1 s old, and
    would include the pages of code that runs for the first time."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", status, flags=re.M)[1]) << 10


@pytest.mark.parametrize("size", [1 << 40, 1 << 46], ids=["1 TiB", "64 TiB"])
@pytest.mark.parametrize(
    "name, prefix, field, per_byte",
    [("fixed", "BF", "layer 0: cells", 8), ("cuckoo", "CF", "capacity", 1)],
    ids=["fixed", "cuckoo"],
)
def test_a_head_takes_no_memory(bare, name, prefix, field, per_byte, size):
    """The declared filter is larger than the machine's memory, but only its head and a few cells exist."""
    server, client, dumps = bare
    payload = Payload.parse(dumps[name])
    payload.set(field, size * per_byte)
    payload.set("body length", size)
    payload.seal()
    before = resident(server)
    for again in range(10):
        with pytest.raises(redis.ResponseError, match="Insufficient memory to create filter: it needs "):
            client.execute_command(f"{prefix}.LOADCHUNK", f"edge:{again}", 1, payload.pieces[0])
        with pytest.raises(redis.ResponseError, match="Bad data format"):
            client.restore("edge", 0, payload.dump())
    assert resident(server) - before < 1 << 20


def test_bytes_behind_the_last_slot(bare):
    """A table of six slots occupies a whole word. The two bytes of the word that aren't slots must be 0."""
    _, client, dumps = bare
    for at, refused in [(5, False), (6, True), (7, True)]:
        payload = Payload.parse(dumps["cuckoo-padded"])
        cells = CHUNK_PREFIX + at
        payload.pieces[1] = payload.pieces[1][:cells] + b"\1" + payload.pieces[1][cells + 1 :]
        payload.seal()
        client.delete("edge")
        if refused:
            with pytest.raises(redis.ResponseError, match="Bad data format"):
                client.restore("edge", 0, payload.dump())
        else:
            client.restore("edge", 0, payload.dump())
    client.delete("edge")


def test_a_count_of_items_at_its_edge(bare):
    assert saved_after(bare, "saturate", "layer 0: items", 1 << 48, ["BF.MADD", "edge", *map(str, range(50))])


def test_a_generation_at_its_edge(bare):
    assert saved_after(bare, "window", "newest", (1 << 62) - 1, ["BF.ROTATE", "edge"])
    with pytest.raises(redis.ResponseError, match="the last number of a generation"):
        saved_after(bare, "window", "newest", 1 << 62, ["BF.ROTATE", "edge"])


@pytest.mark.parametrize(
    "name, field, commands",
    [
        ("cuckoo", "deletes", [["CF.DEL", "edge", "item:0"]]),
        # Compaction moves items into the room that deletes leave. Adding moves items aside.
        ("cuckoo-scaling", "moves", [["CF.DEL", "edge", f"item:{number}"] for number in range(10)]),
        ("cuckoo-scaling", "moves", [["CF.ADD", "edge", f"more:{number}"] for number in range(200)]),
    ],
    ids=["deletes", "moves by compaction", "moves by adding"],
)
def test_a_count_of_a_cuckoo_filter_at_its_edge(bare, name, field, commands):
    _, client, dumps = bare
    # As a control: the commands increase the count if it isn't at its limit.
    client.restore("edge", 0, dumps[name], replace=True)
    before = Payload.parse(client.dump("edge")).get(field)
    run(client, commands)
    assert Payload.parse(client.dump("edge")).get(field) > before
    assert saved_after(bare, name, field, 1 << 62, *commands)


def saved_after(bare, name: str, field: str, value: int, *commands: list) -> bool:
    """Whether a filter with this value in the field can be saved and loaded again after these commands have run."""
    _, client, dumps = bare
    payload = Payload.parse(dumps[name])
    payload.set(field, value)
    payload.seal()
    client.restore("edge", 0, payload.dump(), replace=True)
    try:
        for command in commands:
            client.execute_command(*command)
        dump = client.dump("edge")
    except redis.ResponseError:
        client.delete("edge")
        raise
    try:
        client.restore("edge", 0, dump, replace=True)
    except redis.ResponseError:
        return False
    finally:
        client.delete("edge")
    return True
