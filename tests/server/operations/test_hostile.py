"""Heads that declare more than they contain. `tests/wire/corrupt.rs` and `scripts/suite corrupt` damage every field."""

import re
from pathlib import Path

import pytest
import redis

from kit.payload import Payload


def resident(server) -> int:
    """The current number of bytes that the server has allocated and touched. The numbers in INFO can be 0.1 s old, and
    would include the pages of code that runs for the first time."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", status, flags=re.M)[1]) << 10


@pytest.mark.parametrize("size", [1 << 40, 1 << 46], ids=["1 TiB", "64 TiB"])
@pytest.mark.parametrize(
    "reservation, field, per_byte",
    [("BF.RESERVE source 0.01 50 NONSCALING", "layer 0: cells", 8), ("CF.RESERVE source 30 EXPANSION 0", "capacity", 1)],
    ids=["fixed", "cuckoo"],
)
def test_a_head_takes_no_memory(new_server, reservation, field, per_byte, size):
    """The declared filter is larger than the machine's memory, but only its head and a few cells exist. The server
    doesn't verify the payload's outer checksum."""
    server = new_server(config={"rdbcompression": "no", "sanitize-dump-payload": "yes"})
    with server.client() as client:
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
        client.execute_command(*reservation.split())
        payload = Payload.parse(client.dump("source"))
        payload.set(field, size * per_byte)
        payload.set("body length", size)
        payload.seal()
        before = resident(server)
        for again in range(10):
            with pytest.raises(redis.ResponseError, match="Insufficient memory to create filter: it needs "):
                client.execute_command(f"{reservation[:2]}.LOADCHUNK", f"edge:{again}", 1, payload.pieces[0])
            with pytest.raises(redis.ResponseError, match="Bad data format"):
                client.restore("edge", 0, payload.dump())
        assert resident(server) - before < 1 << 20
