"""What real servers report about a filter's use and its errors: the counts in BF.STATS, BF.FEEDBACK, and the
latency events for slow commands. tests/commands/feedback.rs checks what each command counts."""

from array import array

import pytest

from kit.filters import pairs

EVERY_SERVER = pytest.mark.every_server("the server replicates and restarts")

SPANS = (b"Minute", b"Hour", b"Life")
MILLION = 1_000_000
STEP = 200_000


def full(client, key) -> dict:
    info = pairs(client.execute_command("BF.STATS", key))
    info[b"Feedback"] = {span: pairs(figures) for span, figures in pairs(info[b"Feedback"]).items()}
    return info


def numbers(first: int, count: int) -> bytes:
    """The numbers as 8-byte items, joined into one string."""
    return array("Q", range(first, first + count)).tobytes()


@EVERY_SERVER
def test_a_replica_counts_its_own_tests_and_takes_reports_on_them(new_server):
    primary = new_server()
    replica = primary.replica()
    with primary.client() as client, replica.client() as reader:
        client.execute_command("BF.MADD", "seen", "ada", "bob")
        client.execute_command("BF.EXISTS", "seen", "ada")
        client.execute_command("WAIT", 1, 5000)
        reader.execute_command("BF.MEXISTS", "seen", "ada", "eve", "flo")
        assert reader.execute_command("BF.FEEDBACK", "seen", 1, 1) == b"OK"
        here, there = full(client, "seen"), full(reader, "seen")
        assert [here[b"Tests answered yes"], here[b"Tests answered no"]] == [1, 0]
        assert [there[b"Tests answered yes"], there[b"Tests answered no"]] == [1, 2]
        # The replica counts these adds as its own, because the primary sends it every item.
        assert here[b"Adds"] == there[b"Adds"] == 2
        assert here[b"Feedback"][b"Life"][b"Checked"] == 0
        assert float(there[b"Feedback"][b"Life"][b"Observed error rate"]) == pytest.approx(1 / 3, rel=1e-5)
        digests = {one.execute_command("DEBUG", "DIGEST-VALUE", "seen")[0] for one in (client, reader)}
        assert len(digests) == 1


def test_a_report_is_no_change_of_the_key(server):
    with server.client() as client, server.client() as other:
        client.execute_command("BF.ADD", "seen", "ada")
        dirty = client.info("persistence")["rdb_changes_since_last_save"]
        with client.pipeline() as pipeline:
            pipeline.watch("seen")
            other.execute_command("BF.FEEDBACK", "seen", 10, 1)
            other.execute_command("BF.EXISTS", "seen", "ada")
            pipeline.multi()
            pipeline.execute_command("BF.CARD", "seen")
            assert pipeline.execute() == [1]
        assert client.info("persistence")["rdb_changes_since_last_save"] == dirty


@EVERY_SERVER
def test_counts_begin_anew_with_a_restart_and_a_copy(new_server):
    server = new_server()
    with server.client() as client:
        client.execute_command("BF.MADD", "seen", "ada", "bob")
        client.execute_command("BF.EXISTS", "seen", "ada")
        client.execute_command("BF.FEEDBACK", "seen", 1, 0)
        client.copy("seen", "copy")
        client.execute_command("DEBUG", "RELOAD")
        for key in ("seen", "copy"):
            info = full(client, key)
            assert [info[name] for name in (b"Tests answered yes", b"Tests answered no", b"Adds")] == [0, 0, 0]
            assert all(info[b"Feedback"][span][b"Checked"] == 0 for span in SPANS)
            assert info[b"Number of items inserted"] == 2


def test_answers_given_beside_the_main_thread_are_counted(server):
    with server.client() as client:
        client.execute_command("BF.RESERVE", "seen", 0.001, 200_000)
        client.execute_command("BF.BULKADD", "seen", "FIXED", 8, numbers(0, 100_000))
        before = full(client, "seen")
        assert before[b"Adds"] == 100_000
        for _ in range(5):
            client.execute_command("BF.BULKTEST", "seen", "FIXED", 8, numbers(50_000, 100_000), "COUNT")
        info = full(client, "seen")
        yes, no = info[b"Tests answered yes"], info[b"Tests answered no"]
        assert yes + no == 500_000 and 250_000 <= yes < 251_000


def test_what_held_the_server_is_named(new_server):
    server = new_server()
    with server.client() as client:
        client.config_set("latency-monitor-threshold", 1)
        client.config_set("slowlog-log-slower-than", 1000)
        for key in ("left", "right"):
            client.execute_command("BF.RESERVE", key, 0.01, 50 * MILLION, "SEED", 7)
        with client.pipeline(transaction=True) as transaction:  # where the main thread runs each command in one go
            for key in ("left", "right"):
                transaction.execute_command("BF.BULKADD", key, "FIXED", 8, numbers(0, MILLION))
            transaction.execute_command("BF.MERGE", "left", "right")
            transaction.execute()
        client.execute_command("BF.EXISTS", "left", "ada")
        events = {event.lower(): worst for event, _, _, worst, *_ in client.execute_command("LATENCY", "LATEST")}
        assert {b"bf.bulkadd", b"bf.merge"} <= events.keys() and events[b"bf.merge"] >= 1, events
        assert b"bf.exists" not in events and b"bf.reserve" not in events, events
        slow = {entry["command"].split()[0].lower() for entry in client.slowlog_get(128)}
        assert {b"bf.bulkadd", b"bf.merge"} <= slow
