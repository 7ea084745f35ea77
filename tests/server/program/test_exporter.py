"""`bloomery exporter` with real servers, and how Prometheus, the alerts and the dashboard use its metrics. Tests of
what can differ between servers (SCAN, INFO and ACL) run on all servers, the others on one.
"""

import json
import math
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import redis

from kit.certificates import certificates, tls
from kit.clusters import Cluster
from kit.filters import adding, family, make_all, members, pairs
from kit.monitoring import OPS, PROMTOOL, Exporter, Prometheus, one, promtool
from kit.program import PROGRAM
from kit.proxy import FakeServer
from kit.servers import ROOT, Server, free_port, option, wait_for

EVERY_SERVER = pytest.mark.every_server("the program reads what the server says of itself and of the module")

DOCUMENT = ROOT / "docs" / "MONITORING.md"
DASHBOARDS = [OPS / "grafana" / name for name in ("bloomery.json", "bloomery-fleet.json")]
ALERTS = OPS / "prometheus" / "alerts.yml"


@pytest.fixture
def server(new_server):
    """A server for each test, because tests stop it and create users."""
    return new_server()


def address(server) -> str:
    return f"127.0.0.1:{server.port}"


def info(client, key) -> dict:
    """All that the server says about a filter, with byte strings as text."""
    return text(pairs(client.execute_command(f"{family(client, key)}.STATS", key)))


def text(reply):
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, dict):
        return {text(name): text(value) for name, value in reply.items()}
    return reply


# ---- the metrics ----------------------------------------------------------------------------------------------------

# Each metric, and the field of BF.STATS that it exports.
FIELDS = {
    "bloomery_capacity_items": "Capacity",
    "bloomery_items": "Number of items inserted",
    "bloomery_estimated_items": "Approximate number of items",
    "bloomery_fill_ratio": "Fill",
    "bloomery_promised_error_ratio": "Error rate",
    "bloomery_error_ratio": "Error rate now",
    "bloomery_memory_bytes": "Memory",
    "bloomery_layers": "Number of filters",
    "bloomery_generations": "Generations",
    "bloomery_rotations_total": "Generation",
    "bloomery_items_forgotten_early_total": "Items forgotten early",
    "bloomery_saturated_counters": "Saturated counters",
    "bloomery_expansion_ratio": "Expansion rate",
    "bloomery_adds_total": "Adds",
    "bloomery_deletes_total": "Deletes",
}


def cell_bits(seen):
    """Bits of all cells. Beside other layers, the cells of a table are as wide as its error rate requires."""
    layers, width = [text(pairs(layer)) for layer in seen.get("Layers", [])], seen.get("Bits per cell", 1)
    tables = [layer for layer in layers if layer.get("Layout") == "QUOTIENT" and seen["Number of filters"] > 1]
    others = seen["Cells"] - sum(table["Cells"] for table in tables)
    return others * width + sum(table["Cells"] * math.ceil(-math.log2(float(table["Error rate"]))) for table in tables)


@EVERY_SERVER
def test_every_filter_has_the_figures_of_its_info(server):
    with server.client() as client:
        keys = make_all(client)
        client.execute_command("BF.MEXISTS", "fixed/full", *members(300), *members(500, "absent"))
        client.set("text", "no filter")
        client.execute_command("BF.IMPORT", "foreign", "GOZERO", "text", "BITS", 72)
        keys.append("foreign")
        with Exporter("--port", server.port) as exporter:
            samples = exporter.wait_for_filters(len(keys))
        infos = {key: info(client, key) for key in keys}
        for key, seen in infos.items():
            if "Number of buckets" in seen:
                slots = one(samples, "bloomery_capacity_items", key=key, kind="cuckoo")
                items = seen["Number of items inserted"]
                assert one(samples, "bloomery_items", key=key) == items
                assert one(samples, "bloomery_fill_ratio", key=key) == pytest.approx(items / slots)
                assert one(samples, "bloomery_layers", key=key) == seen["Number of filters"]
                assert one(samples, "bloomery_cell_bytes", key=key) == slots
                # Nearly all of the filter's memory is slots, rounded up to whole words.
                assert 0 <= one(samples, "bloomery_memory_bytes", key=key) - slots < 700
                continue
            assert one(samples, "bloomery_filter_info", key=key, kind=seen["Kind"], origin=seen["Origin"]) == 1
            assert one(samples, "bloomery_cell_bytes", key=key) == cell_bits(seen) / 8
            for metric, field in FIELDS.items():
                here = {label: value for label, value in samples.get(metric, {}).items() if ("key", key) in label}
                if seen.get(field) is None:
                    assert not here, f"{metric} of {key}, which has no {field}"
                else:
                    assert list(here.values()) == [pytest.approx(float(seen[field]))], f"{metric} of {key}"
            for result in ("yes", "no"):
                tests = one(samples, "bloomery_tests_total", key=key, result=result)
                assert tests == seen[f"Tests answered {result}"]
        assert sum(samples["bloomery_tests_total"].values()) >= 800
        totals = {dict(label)["kind"]: value for label, value in samples["bloomery_filters"].items()}
        assert sum(totals.values()) == len(keys)
        assert totals["cuckoo"] == sum(key.startswith("cuckoo") for key in keys)
        sizes = sum(seen.get("Memory", seen["Size"]) for seen in infos.values())
        assert sum(samples["bloomery_filters_memory_bytes"].values()) == sizes
        cells = client.info("bf")["bf_cell_bytes"]
        assert one(samples, "bloomery_server_cell_bytes", node=address(server)) == cells
        assert one(samples, "bloomery_server_filters", kind="foreign") == 1
        kinds = {dict(label)["kind"] for label in samples["bloomery_server_filters"]}
        assert kinds == {"fixed", "scaling", "counting", "window", "cuckoo", "foreign"}
        assert abs(one(samples, "bloomery_exporter_survey_timestamp_seconds") - time.time()) < 60
        assert 0 < one(samples, "bloomery_exporter_survey_seconds") < 10
        assert 0 < one(samples, "bloomery_exporter_scrape_seconds") < 1
        assert one(samples, "bloomery_exporter_scrapes_total") > 0


def test_feedback_is_there_once_it_is_given(server):
    with server.client() as client, Exporter("--port", server.port) as exporter:
        client.execute_command("BF.MADD", "users", *members(50))
        samples = exporter.wait_for_filters(1)
        assert one(samples, "bloomery_feedback_checked_total", key="users") == 0
        assert "bloomery_observed_error_ratio" not in samples, "a rate that nobody has seen"
        client.execute_command("BF.MEXISTS", "users", *members(50), *members(150, "absent"))
        client.execute_command("BF.FEEDBACK", "users", 50, 10)
        time.sleep(1.1)  # for up to a second, the exporter returns a cached page
        samples = exporter.samples()
        assert one(samples, "bloomery_feedback_checked_total", key="users") == 50
        assert one(samples, "bloomery_feedback_false_total", key="users") == 10
        life = text(pairs(pairs(client.execute_command("BF.STATS", "users"))[b"Feedback"])[b"Life"][-1])
        for window in ("minute", "hour", "life"):
            assert one(samples, "bloomery_observed_error_ratio", key="users", window=window) == float(life)


def test_keys_of_any_bytes_are_labels(server):
    names = ['say "hi"', "back\\slash", "größe", "a b\tc"]
    with server.client() as client, Exporter("--port", server.port) as exporter:
        for name in [*names, b"\xff\x00raw", "line\nbreak"]:
            client.execute_command("BF.ADD", name, "item")
        exporter.wait_for_filters(6)
        shown = ['say "hi"', r"back\\slash", "größe", r"a b\x09c", r"\xff\x00raw", r"line\x0abreak"]
        assert exporter.keys() == sorted(shown)
        with Prometheus(exporter) as prometheus:
            prometheus.wait_for_scrapes()
            assert {labels["key"] for labels, _ in prometheus.query("bloomery_items")} == set(shown)


def test_another_database_is_a_label(server):
    with server.client(db=3) as client:
        client.execute_command("BF.ADD", "users", "ada")
    with Exporter("--port", server.port, "--db", 3) as exporter:
        samples = exporter.wait_for_filters(1)
        assert one(samples, "bloomery_items", key="users", db="3", kind="scaling") == 1


def test_patterns_and_the_limit(server):
    with server.client() as client:
        for number in range(12):
            capacity = 1000 * (number + 1)
            client.execute_command("BF.RESERVE", f"seen:{number}", 0.01, capacity, "NONSCALING")
            client.execute_command("BF.RESERVE", f"other:{number}", 0.01, capacity)
        client.execute_command("CF.RESERVE", "cf", 100)
        arguments = ["--keys", "seen:*", "--keys", "?f", "--max-filters", 5]
        with Exporter("--port", server.port, *arguments) as exporter:
            samples = exporter.wait_for_filters(5)
            assert exporter.keys() == sorted(f"seen:{number}" for number in range(7, 12)), "the largest"
            assert one(samples, "bloomery_filters", kind="fixed") == 12
            assert one(samples, "bloomery_filters", kind="cuckoo") == 1
            assert "scaling" not in str(samples["bloomery_filters"])
            assert one(samples, "bloomery_filters_without_label") == 8
            client.execute_command("BF.RESERVE", "seen:huge", 0.01, 100_000)
            wait_for(lambda: "seen:huge" in exporter.keys(), "the new largest")
            client.delete("seen:huge", "seen:11")
            wait_for(lambda: exporter.keys() == sorted(f"seen:{number}" for number in range(6, 11)), "them to go")


def test_requests_that_come_together_are_one_scrape(server):
    with Exporter("--port", server.port) as exporter:
        wait_for(lambda: "bloomery_filters_without_label" in exporter.samples(), "the first survey")
        time.sleep(1.1)
        before = exporter.value("bloomery_exporter_scrapes_total")
        for _ in range(20):
            exporter.page()
        assert exporter.value("bloomery_exporter_scrapes_total") - before < 20


# ---- the endpoint ---------------------------------------------------------------------------------------------------


def test_the_endpoint(server):
    with Exporter("--port", server.port) as exporter:
        assert exporter.get("/-/healthy")[0] == 200
        status, headers, body = exporter.get("/")
        assert status == 200 and headers["content-type"].startswith("text/html") and "/metrics" in body
        assert re.search(r'"https://\S+/docs/MONITORING.md"', body)
        assert exporter.get("/nothing")[0] == 404
        status, headers, _ = exporter.get("/metrics", method="POST")
        assert status == 405 and headers["allow"] == "GET, HEAD"
        assert exporter.get("/metrics", method="HEAD")[2] == ""
        assert exporter.end() == 0
        assert "ended" in exporter.log()


def test_the_format_is_prometheus_text_format(server):
    with server.client() as client, Exporter("--port", server.port) as exporter:
        client.execute_command("BF.ADD", "users", "ada")
        exporter.wait_for_filters(1)
        page = exporter.page()
    assert "# TYPE bloomery_adds_total counter\n" in page and "# TYPE bloomery_items gauge\n" in page
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def run(*arguments) -> subprocess.CompletedProcess:
    words = [PROGRAM, "exporter", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=240)


def test_options_that_cannot_be_are_refused_at_once(server):
    for arguments, says in [
        (["--listen", "nowhere"], "invalid value 'nowhere'"),
        (["--interval", "0"], "at least 1 second"),
        (["--url", "http://x"], "--url"),
        (["--cacert", "/nonexistent.pem"], "/nonexistent.pem"),
    ]:
        done = run(*arguments)
        assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    with Exporter("--port", server.port) as exporter:
        done = run("--listen", f"127.0.0.1:{exporter.port}")
        assert done.returncode == 2 and "cannot listen" in done.stderr


def test_an_end_is_not_held_up_by_a_client_or_a_server_that_hangs(server):
    with Exporter("--port", server.port, "--timeout", 3600) as exporter:
        wait_for(lambda: "bloomery_filters_without_label" in exporter.samples(), "the first survey")
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.1)
        try:
            with pytest.raises(TimeoutError):
                exporter.get("/metrics", timeout=0.5)
            assert exporter.get("/-/healthy")[0] == 200, "it answers others meanwhile"
            assert exporter.end() == 0
        finally:
            server.process.send_signal(signal.SIGCONT)


# ---- servers that are down ------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_and_comes_back(server):
    with Exporter("--port", server.port, interval=600) as exporter:
        # The exporter searches for filters every ten minutes, and the filter doesn't exist yet at the first search.
        wait_for(lambda: "bloomery_filters_without_label" in exporter.samples(), "the first survey")
        server.kill()
        wait_for(lambda: exporter.value("bloomery_up", node=address(server)) == 0, "it to be seen as down")
        assert exporter.get("/-/healthy")[0] == 200
        assert "no metrics from" in exporter.log()
        server.start()
        with server.client() as client:
            client.execute_command("BF.ADD", "users", "ada")
            wait_for(lambda: exporter.value("bloomery_up", node=address(server)) == 1, "it to be seen as up")
            assert exporter.wait_for_filters(1)["bloomery_items"]
        assert exporter.log().count("no metrics from") <= 3, "once per reason"
        assert "answers again" in exporter.log()


def test_a_server_that_was_never_there(server):
    port = free_port()
    with Exporter("--port", port) as exporter:
        assert exporter.value("bloomery_up", node=f"127.0.0.1:{port}") == 0
        wait_for(lambda: "bloomery_exporter_survey_success" in exporter.samples(), "the first search to fail")
        assert exporter.samples().keys() == {
            "bloomery_up",
            "bloomery_exporter_scrape_seconds",
            "bloomery_exporter_scrapes_total",
            "bloomery_exporter_survey_success",
            "bloomery_exporter_build_info",
            *("process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes"),
            *("process_start_time_seconds", "process_threads", "process_open_fds", "process_max_fds"),
        }


def test_a_server_that_hangs_is_down_within_the_timeout(server):
    with Exporter("--port", server.port, "--timeout", 1) as exporter:
        assert exporter.value("bloomery_up") == 1
        server.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(1.1)
            for _ in range(2):  # on the old connection, and on a new one
                assert exporter.value("bloomery_up") == 0
                time.sleep(1.1)
        finally:
            server.process.send_signal(signal.SIGCONT)
        wait_for(lambda: exporter.value("bloomery_up") == 1, "it to go on")


def test_a_module_under_another_name(spec):
    with Server(spec, module_args=["PREFIX", "x"]) as server, server.client() as client:
        client.execute_command("x.ADD", "users", "ada")
        client.execute_command("xCF.ADD", "cuckoos", "ada")
        with Exporter("--port", server.port, "--prefix", "x") as exporter:
            samples = exporter.wait_for_filters(2)
            assert one(samples, "bloomery_up") == 1
            assert one(samples, "bloomery_items", kind="cuckoo") == one(samples, "bloomery_items", kind="scaling") == 1
            assert one(samples, "bloomery_server_filters", kind="scaling") == 1
        with Exporter("--port", server.port) as exporter:
            assert exporter.value("bloomery_up", node=address(server)) == 0
            assert "without the module bf" in exporter.log()


def test_a_server_without_the_module_is_not_up(spec):
    with Server(spec, module=None) as server, Exporter("--port", server.port) as exporter:
        assert exporter.value("bloomery_up", node=address(server)) == 0
        assert "without the module" in exporter.log()


# ---- who may --------------------------------------------------------------------------------------------------------


def users() -> list[list[str]]:
    """The document's users: for a single server, and for a cluster."""
    text = DOCUMENT.read_text()
    (line,) = re.findall(r"^redis-cli ACL SETUSER (.+)$", text, flags=re.M)
    (more,) = re.findall(r"In a cluster, .* and add\s`'(\S+)'`", text)
    return [shlex.split(line), [*shlex.split(line), more]]


def become(server, words) -> list:
    """Creates the user, and returns the options to log in as that user."""
    server.command("ACL", "SETUSER", *words)
    return ["--user", words[0], "--password", next(word[1:] for word in words if word.startswith(">"))]


@EVERY_SERVER
def test_the_documented_user_may_do_all_it_needs_and_nothing_it_does_not(server):
    (words, _) = users()
    try:
        with server.client() as client:
            client.execute_command("BF.ADD", "users", "ada")
            client.execute_command("CF.ADD", "cf", "ada")
            login = become(server, words)
            with Exporter("--port", server.port, *login) as exporter:
                samples = exporter.wait_for_filters(2)
                assert one(samples, "bloomery_filters_without_permission") == 0
                assert one(samples, "bloomery_up") == 1
            user = server.client(username=words[0], password=login[-1])
            for refused in (["BF.ADD", "users", "b"], ["GET", "x"], ["CONFIG", "GET", "*"], ["BF.EXISTS", "users", "b"]):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    user.execute_command(*refused)
            # The exporter needs each of the user's permissions.
            for word in [word for word in words if word.startswith("+")]:
                client.execute_command("ACL", "SETUSER", words[0], "-" + word[1:])
                with Exporter("--port", server.port, *login) as exporter:
                    wait_for(lambda exporter=exporter: is_refused(exporter), f"{word} to be missed")
                client.execute_command("ACL", "SETUSER", words[0], word)
    finally:
        server.command("ACL", "DELUSER", words[0])


def is_refused(exporter) -> bool:
    samples = exporter.samples()
    return (
        one(samples, "bloomery_up") == 0
        or samples.get("bloomery_filters_without_permission", {}).get(frozenset(), 0) > 0
        or "is not complete" in exporter.log()
    )


def test_filters_that_the_user_may_not_read_are_counted(server):
    login = become(server, [word if word != "%R~*" else "%R~seen:*" for word in users()[0]])
    with server.client() as client:
        for key in ("seen:1", "seen:2", "secret:1", "secret:2", "secret:3"):
            client.execute_command("BF.ADD", key, "item")
        client.execute_command("CF.ADD", "secret:4", "item")
        with Exporter("--port", server.port, *login) as exporter:
            samples = exporter.wait_for_filters(2)
            assert one(samples, "bloomery_filters_without_permission") == 4
            assert one(samples, "bloomery_up") == 1
            assert "secret" not in exporter.page()


def test_a_search_that_fails_has_a_metric_although_the_server_is_up(server):
    words, _ = users()
    with server.client() as client:
        client.execute_command("BF.ADD", "users", "ada")
        login = become(server, words)
        with Exporter("--port", server.port, *login) as exporter:
            exporter.wait_for_filters(1)
            wait_for(lambda: exporter.samples()["bloomery_exporter_survey_success"] == {frozenset(): 1}, "a search")
            client.execute_command("ACL", "SETUSER", words[0], "-scan")
            wait_for(lambda: exporter.value("bloomery_exporter_survey_success") == 0, "a search to fail")
            assert exporter.value("bloomery_up") == 1 and exporter.keys() == ["users"]
            client.execute_command("ACL", "SETUSER", words[0], "+scan")
            wait_for(lambda: exporter.value("bloomery_exporter_survey_success") == 1, "it to go on")


def test_a_wrong_password_is_a_server_that_is_down_and_is_not_logged(server):
    server.command("CONFIG", "SET", "requirepass", "right")
    try:
        with Exporter("--port", server.port, env={"BLOOMERY_PASSWORD": "wr0ng-secret"}) as exporter:
            assert exporter.value("bloomery_up") == 0
            assert "wr0ng-secret" not in exporter.log() and "assword" in exporter.log()
        with Exporter("--port", server.port, env={"BLOOMERY_PASSWORD": "right"}) as exporter:
            assert exporter.value("bloomery_up") == 1
    finally:
        server.client(password="right").config_set("requirepass", "")


# ---- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("tls"))


def test_tls(spec, authority):
    port = free_port()
    with Server(spec, config=tls(authority, port)) as server:
        server.command("BF.ADD", "users", "ada")
        trust = ["--port", port, "--tls", "--cacert", authority / "ca.pem"]
        identity = ["--cert", authority / "client.pem", "--key", authority / "client.key"]
        with Exporter(*trust, *identity) as exporter:
            assert one(exporter.wait_for_filters(1), "bloomery_up", node=f"127.0.0.1:{port}") == 1
        with Exporter("--url", f"rediss://127.0.0.1:{port}", "--cacert", authority / "ca.pem", *identity) as exporter:
            exporter.wait_for_filters(1)
        with Exporter(*trust) as exporter:  # without the client certificate that the server demands
            assert exporter.value("bloomery_up") == 0
        with Exporter("--port", port, "--tls", *identity) as exporter:  # no system CA signed the certificate
            assert exporter.value("bloomery_up") == 0
            assert re.search("certificate", exporter.log(), re.IGNORECASE)
        server.check()


# ---- clusters -------------------------------------------------------------------------------------------------------


def test_a_cluster(spec):
    _, words = users()
    with Cluster(spec) as cluster:
        for node in cluster.nodes:
            login = become(node, words)
        keys = [f"filter:{number}" for number in range(60)]
        with cluster.client() as client:
            for key in keys:
                client.execute_command("BF.ADD", key, "ada")
        primaries = cluster.primaries()
        with Exporter("--port", primaries[0].port, "--cluster", *login) as exporter:
            samples = exporter.wait_for_filters(60)
            assert samples["bloomery_up"] == {frozenset({("node", address(node))}): 1 for node in primaries}
            assert all(dict(label).keys() == {"key", "kind"} for label in samples["bloomery_items"])
            where = {dict(label)["key"]: dict(label)["node"] for label in samples["bloomery_filter_info"]}
            assert len(set(where.values())) == 3

            # When a filter moves, the `node` label of its bloomery_filter_info changes.
            slot = cluster_slot(primaries[0], keys[0])
            cluster.move_slot(slot, cluster.other_primary(slot))

            def moved() -> bool:
                infos = exporter.samples().get("bloomery_filter_info", {})
                now = {dict(label)["key"]: dict(label)["node"] for label in infos}
                return len(now) == 60 and now[keys[0]] == address(cluster.owner(slot))

            wait_for(moved, "the filter to be seen in its new place")

            # The node whose address the exporter was given dies, and its replica takes over.
            replica = cluster.lose(primaries[0])
            wait_for(lambda: address(replica) in str(exporter.samples()["bloomery_up"]), "the replica to be seen", 60)
            samples = exporter.wait_for_filters(60, 60)
            assert list(samples["bloomery_up"].values()) == [1, 1, 1]
            assert address(primaries[0]) not in str(samples["bloomery_up"])
        cluster.check()


def test_a_node_that_leaves_its_cluster():
    """The exporter asks the nodes that it knows already, and if they don't know the cluster either, it shows them."""

    def slots(*ports) -> bytes:
        nodes = (b"*3\r\n:0\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % port for port in ports)
        return b"*%d\r\n" % len(ports) + b"".join(nodes)

    with FakeServer({}) as named, FakeServer({}) as other, FakeServer({}) as third:
        named.replies = {"CLUSTER": slots(named.port, other.port)}
        with Exporter("--port", named.port, "--cluster") as exporter:

            def shows(*servers) -> bool:
                up = {frozenset({("node", address(server))}): 0 for server in servers}
                return exporter.samples().get("bloomery_up") == up

            wait_for(lambda: shows(named, other), "both nodes to be seen")
            named.replies = {"CLUSTER": slots()}
            other.replies = {"CLUSTER": slots(other.port, third.port)}
            wait_for(lambda: shows(other, third), "the node to be gone")
            other.replies = {"CLUSTER": slots()}
            wait_for(lambda: "knows no node with slots" in exporter.log(), "the cluster to be gone")
            assert shows(other, third) and exporter.value("bloomery_exporter_survey_success") == 0


def cluster_slot(node, key) -> int:
    return node.command("CLUSTER", "KEYSLOT", key)


# ---- many filters ---------------------------------------------------------------------------------------------------


def test_five_thousand_filters(server):
    """With -s, prints the CPU time of the exporter and the server for a page, for which Prometheus allows 10 s."""
    with server.client() as client, client.pipeline(transaction=False) as pipeline:
        for number in range(5000):
            pipeline.execute_command("BF.RESERVE", f"filter:{number}", 0.01, 1000)
        pipeline.execute()
        for number in range(20_000):
            pipeline.set(f"text:{number}", "x")
        pipeline.execute()
    with Exporter("--port", server.port, "--max-filters", 5000, interval=30) as exporter:
        wait_for(lambda: "bloomery_filters_without_label" in exporter.samples(), "the survey")
        samples = exporter.wait_for_filters(5000)
        times, sizes = [], []
        for _ in range(2):
            time.sleep(1.1)
            start = exporter.processor() + server.processor()
            sizes.append(len(exporter.page()))
            times.append(exporter.processor() + server.processor() - start)
        asking = exporter.value("bloomery_exporter_scrape_seconds")
        print(
            f"\n5,000 filters: scrape {min(times):.3f} to {max(times):.3f} s, of which the server's part {asking:.3f} s; "
            f"page {max(sizes) / 1e6:.1f} MB; survey {one(samples, 'bloomery_exporter_survey_seconds'):.2f} s"
        )


# ---- Prometheus, the alerts, the dashboard --------------------------------------------------------------------------


def test_promtool_likes_the_files():
    assert "SUCCESS" in promtool("check", "rules", ALERTS)
    for name in ("prometheus.yml", "fleet.yml"):
        assert "SUCCESS" in promtool("check", "config", OPS / "prometheus" / name)
    assert "SUCCESS" in promtool("test", "rules", OPS / "prometheus" / "alerts_test.yml")


def test_every_alert_is_tested_and_explained():
    alerts = set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))
    tests = (OPS / "prometheus" / "alerts_test.yml").read_text()
    fires = set(re.findall(r"alertname: (\w+)\n +exp_alerts:\n +-", tests))
    silent = set(re.findall(r"alertname: (\w+)\n +exp_alerts: \[\]", tests))
    assert alerts == fires == silent
    explained = set(re.findall(r"^### (\w+)$", DOCUMENT.read_text(), flags=re.M))
    assert alerts == explained
    links = re.findall(r"alert: (\w+)(?:\n +.*)*?\n +runbook_url: \S+/docs/MONITORING.md#(\w+)", ALERTS.read_text())
    assert {alert: alert.lower() for alert in alerts} == dict(links)


class Traffic:
    """Filters that give every dashboard panel something to show: an overfull filter with wrong answers, a window, a
    counting filter, and a nearly full filter."""

    def __init__(self, client):
        self.client, self.round = client, 0
        for words in (
            "BF.RESERVE crowded 0.01 1000 NONSCALING ONFULL SATURATE",
            "BF.RESERVE roomy 0.01 100000",
            "BF.RESERVE recent 0.01 1000 WINDOW 3",
            "BF.RESERVE basket 0.01 1000 COUNTING",
            "CF.RESERVE tight 2048 BUCKETSIZE 4 EXPANSION 0",
            "BF.RESERVE smallest 0.01 10",
            "BF.REBUILD roomy BEGIN CAPACITY 200000",
            "BF.REBUILD roomy ADD ada",
        ):
            client.execute_command(*words.split())
        client.execute_command(*adding("BF", "crowded", members(4000)))
        client.execute_command(*adding("BF", "roomy", members(1000)))
        client.execute_command(*adding("CF", "tight", members(1950)))

    def step(self) -> None:
        """One second's traffic. Every "yes" from `crowded` is checked, and many are wrong."""
        self.round += 1
        new = members(40, f"round:{self.round}")
        client = self.client
        client.execute_command("BF.MADD", "roomy", *new)
        client.execute_command("BF.MADD", "recent", *new)
        client.execute_command("BF.MADD", "basket", *new, *new)
        client.execute_command("BF.MDEL", "basket", *new)
        client.execute_command("BF.ROTATE", "recent")
        client.execute_command("BF.MEXISTS", "roomy", *new[:10], *members(40, "absent"))
        answers = client.execute_command("BF.MEXISTS", "crowded", *members(3000), *members(1000, f"x{self.round}"))
        false = sum(answers[3000:])
        client.execute_command("BF.FEEDBACK", "crowded", sum(answers), false)
        client.execute_command("BF.BULKTEST", "roomy", "FIXED", 8, bytes(8 * 20_000), "COUNT")
        client.execute_command("BF.FEEDBACK", "roomy", 10, 10)  # for items that are no longer in the source


def expressions() -> list[tuple[str, str]]:
    """The title and the query of each of the dashboards' targets and variables."""
    dashboards = [json.loads(path.read_text()) for path in DASHBOARDS]
    found = []
    for panel in (panel for dashboard in dashboards for panel in dashboard["panels"]):
        assert panel["type"] == "row" or panel["targets"], panel["title"]
        for target in panel.get("targets", []):
            found.append((panel["title"], target["expr"]))
    for variable in (variable for dashboard in dashboards for variable in dashboard["templating"]["list"]):
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            found.append((f"variable {variable['name']}", f'count by ({label}) ({metric}) and on ({label}) {metric}'))
    return found


def filled_in(expression: str, rate_interval: str = "5s") -> str:
    for variable, value in {"$instance": ".+", "$key": ".+", "$__rate_interval": rate_interval}.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def at_once(directory) -> Path:
    """The alerts, which fire at once instead of after minutes."""
    rules = directory / "alerts.yml"
    rules.write_text(re.sub(r"for: \w+", "for: 0s", ALERTS.read_text()))
    return rules


def test_prometheus_has_what_the_server_says_and_every_panel_shows_something(server, tmp_path):
    with server.client() as client:
        traffic = Traffic(client)
        rules = [at_once(tmp_path)]
        with Exporter("--port", server.port) as exporter, Prometheus(exporter, rules=rules) as prometheus:
            exporter.wait_for_filters(6)
            prometheus.wait_for_scrapes(2)
            for _ in range(6):
                traffic.step()
                time.sleep(1)
            empty = [(title, query) for title, query in expressions() if not prometheus.query(filled_in(query))]
            assert not empty
            prometheus.wait_for_scrapes(2)
            assert prometheus.number('up{job="bloomery"}') == 1
            for key in ("crowded", "roomy", "recent", "basket"):
                seen = info(client, key)
                for metric, field in FIELDS.items():
                    if seen.get(field) is not None:
                        value = prometheus.number(f'{metric}{{key="{key}"}}')
                        assert value == pytest.approx(float(seen[field])), f"{metric} of {key}"
            assert prometheus.number("bloomery_server_offloaded_items_total") >= 6 * 20_000
            # Prometheus has stored all samples of the exporter, and nothing else.
            assert prometheus.number("scrape_samples_scraped") == sum(map(len, exporter.samples().values()))


def test_the_alerts_fire_on_what_real_servers_say(server, tmp_path):
    """Does what promtool's tests do, but with real metrics from the exporter."""
    rules = at_once(tmp_path)
    nobody = free_port()
    with server.client() as client:
        traffic = Traffic(client)
        with (
            Exporter("--port", server.port, "--max-filters", 5) as exporter,
            Exporter("--port", nobody) as lonely,
            Exporter("--port", nobody) as doomed,
            Prometheus(exporter, lonely, doomed, rules=[rules]) as prometheus,
        ):
            exporter.wait_for_filters(5)
            prometheus.wait_for_scrapes(2)
            doomed.process.kill()
            for _ in range(4):
                traffic.step()
                time.sleep(1)
            with pytest.raises(redis.ResponseError):
                client.execute_command("BF.LOADCHUNK", "bad", 1, "no filter")

            def firing() -> set:
                alerts = prometheus.query('ALERTS{alertstate="firing"}')
                label = {"BloomServerDown": "node", "BloomExporterDown": "instance", "BloomFiltersUnwatched": "instance"}
                label["BloomPayloadsRefused"] = "node"
                names = ((labels["alertname"], labels) for labels, _ in alerts)
                return {(name, labels[label.get(name, "key")]) for name, labels in names}

            expected = {
                ("BloomFilterFill", "crowded"),
                ("BloomErrorRate", "crowded"),
                ("BloomObservedErrorRate", "crowded"),
                ("BloomErrorRateDrift", "roomy"),
                ("BloomHitShare", "crowded"),
                ("CuckooFilterFill", "tight"),
                ("BloomRebuildUnfinished", "roomy"),
                ("BloomFilterAdvice", "crowded"),
                ("BloomFilterAdvice", "roomy"),
                ("BloomServerDown", f"127.0.0.1:{nobody}"),
                ("BloomExporterDown", f"127.0.0.1:{doomed.port}"),
                ("BloomFiltersUnwatched", f"127.0.0.1:{exporter.port}"),
                ("BloomPayloadsRefused", address(server)),
            }
            try:
                wait_for(lambda: firing() == expected, "the alerts")
            except AssertionError as error:
                raise AssertionError(f"{error}: {firing() ^ expected}") from None


# ---- the document ---------------------------------------------------------------------------------------------------


def test_every_metric_is_in_the_document_and_none_that_is_not_there(server):
    with server.client() as client, server.configured({option(server.spec, "tenants"): "t 0 0"}):
        traffic = Traffic(client)
        traffic.step()
        client.execute_command("BF.RESERVE", "scheduled", 0.01, 10, "WINDOW", 2, "EVERY", 3_600_000)
        client.execute_command("BF.RESERVE", "timed", 0.01, 100, "TTL", 3_600_000, "ONFULL", "FORGET")
        with Exporter("--port", server.port) as exporter:
            there = exporter.wait_for_filters(8).keys()
    documents = [DOCUMENT, *(ROOT / "docs" / "commands" / f"{family}.stats.md" for family in ("bf", "cf"))]
    rows = re.findall(r"\| (`(?:bloomery|process)_.*?`) \|", "".join(page.read_text() for page in documents))
    rows = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert rows == there
    users = "".join(path.read_text() for path in [*DASHBOARDS, ALERTS])
    used = set(re.findall(r"bloomery_[a-z_]+", users))
    assert used - {"bloomery_filters"} <= there
