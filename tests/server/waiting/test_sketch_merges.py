"""CMS.MERGE and TDIGEST.MERGE of large sketches work in the background, as BF.MERGE does in test_background.py."""

import pytest
import redis

from kit.background import Busy
from kit.metrics import figures
from kit.servers import APPEND_ONLY, wait_for

COUNTERS = 600_000  # in each of two sketches: 2.3 MiB, enough to work in the background
VALUES = 5000  # in each of two digests of compression 1000, which keep all of them


def fill(client):
    client.execute_command("BF.RESERVE", "slow", 0.01, 100, "EXPANSION", 1, "LAYOUT", "CLASSIC")
    client.execute_command("BF.BULKADD", "slow", "FIXED", 8, b"".join(b"%08d" % n for n in range(20_000)))
    for key in ("c:1", "c:2", "c:sum", "c:whole"):
        client.execute_command("CMS.INITBYDIM", key, COUNTERS, 1)
    client.execute_command("CMS.INCRBY", "c:1", "x", 3, "y", 4)
    client.execute_command("CMS.INCRBY", "c:2", "x", 5)
    for key, first in (("t:1", 0), ("t:2", 1000)):
        client.execute_command("TDIGEST.CREATE", key, "COMPRESSION", 1000)
        client.execute_command("TDIGEST.ADD", key, *range(first, first + VALUES))
    client.pexpire("c:sum", 10**9)


# For each family: a merge into a key, a write to a source, a read of the result, and its replies before and afterwards.
MERGES = {
    "cms": (
        ["CMS.MERGE", "c:sum", 2, "c:1", "c:2", "WEIGHTS", 2, 1],
        ["CMS.INCRBY", "c:1", "x", 100],
        ["CMS.QUERY", "c:sum", "x", "y"],
        [0, 0],
        [11, 8],
    ),
    "tdigest": (
        ["TDIGEST.MERGE", "t:sum", 2, "t:1", "t:2"],
        ["TDIGEST.ADD", "t:1", 100_000],
        ["TDIGEST.MAX", "t:sum"],
        "T-Digest: key does not exist",
        b"5999",
    ),
}


def seen(client, words):
    """The reply, or the text of an error."""
    try:
        return client.execute_command(*words)
    except redis.ResponseError as error:
        return str(error)


def state(server) -> dict:
    with server.client() as client:
        return {key: client.dump(key) for key in client.keys()}


@pytest.mark.every_server("the server blocks clients, calls timers, and replicates")
@pytest.mark.parametrize("family", MERGES)
def test_others_are_served_and_writes_to_the_keys_wait(new_server, family):
    server = new_server(module_args=["THREADS", "1"], config=APPEND_ONLY)
    replica = server.replica()
    merge, write, read, before, after = MERGES[family]
    with server.client() as client:
        fill(client)
        with Busy(server) as busy:
            merged, written = busy.send(*merge), busy.send(*write)
            assert seen(client, read) == before
            assert not merged.has_come() and not written.has_come()
            busy.end()
            assert merged() == b"OK" and written() in (b"OK", [103])
        assert client.execute_command(*read) == after
        assert client.ttl("c:sum") > 0
        wait_for(lambda: figures(client)["clients_waiting"] == 0, "nobody to wait")
        server.wait_for_replicas()
        expected = state(server)
        assert state(replica) == expected
    server.restart(kill=True)
    assert state(server) == expected


@pytest.mark.parametrize("family", MERGES)
def test_a_transaction_has_the_same_result(new_server, family):
    server = new_server(module_args=["THREADS", "1"])
    merge, *_ = MERGES[family]
    whole = [merge[0], "c:whole" if family == "cms" else "t:whole", *merge[2:]]
    with server.client() as client:
        fill(client)
        jobs = figures(client)["pool_jobs"]
        assert client.execute_command(*merge) == b"OK"
        wait_for(lambda: figures(client)["pool_jobs"] == jobs + 1, "the job to be counted")
        pipe = client.pipeline(transaction=True)
        pipe.execute_command(*whole)
        assert pipe.execute() == [b"OK"]
        assert client.dump(merge[1]) == client.dump(whole[1])
        assert figures(client)["pool_jobs"] == jobs + 1


@pytest.mark.parametrize("family", MERGES)
def test_a_source_that_was_renamed_and_written_is_not_merged(new_server, family):
    """The write can't wait: it is in a transaction, and doesn't name a key of the merge."""
    server = new_server(module_args=["THREADS", "1"])
    merge, write, read, before, _ = MERGES[family]
    with server.client() as client:
        fill(client)
        with Busy(server) as busy:
            merged = busy.send(*merge)
            client.rename(write[1], "elsewhere")
            if family == "cms":  # making a copy of its counters for this write could take long
                refused = seen(client, [write[0], "elsewhere", *write[2:]])
                assert refused == "the server does not let the key be written now"
            client.pipeline(transaction=True).execute_command(write[0], "elsewhere", *write[2:]).execute()
            client.rename("elsewhere", write[1])
            busy.end()
            assert "was deleted, replaced or renamed while the command was running" in merged()
        assert seen(client, read) == before
