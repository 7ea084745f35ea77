"""`bloomery exporter --targets`: one exporter for several servers, and for no others."""

import re
import signal
import socket
import subprocess
import threading

import pytest

from kit.certificates import certificates, tls
from kit.monitoring import OPS, Exporter, Prometheus, one, probe
from kit.program import PROGRAM
from kit.servers import Server, free_port, wait_for


def url(server) -> str:
    return f"redis://127.0.0.1:{server.port}"


def targets_file(folder, *lines):
    path = folder / "targets"
    path.write_text("\n".join(map(str, lines)))
    return path


def wait_for_filter(exporter, target: str, key: str) -> dict:
    """Waits until the filter has metrics of its own, and is the target's only one."""

    def keys() -> list:
        return [dict(labels)["key"] for labels in exporter.samples(probe(target)).get("bloomery_items", {})]

    wait_for(lambda: keys() == [key], f"{key} to be found")
    return exporter.samples(probe(target))


def test_each_target_has_its_own_metrics_and_credentials(new_server, spec, tmp_path):
    plain, port = new_server(), free_port()
    authority = certificates(tmp_path)
    secret = tmp_path / "password"
    secret.write_text("s3cret word\n")
    with plain.client() as client:
        client.execute_command("BF.ADD", "plain", "ada")
        client.execute_command("ACL", "SETUSER", "reader", "on", ">s3cret word", "%R~*", "+info", "+scan", "+bf.stats")
        client.execute_command("ACL", "SETUSER", "default", "off")
        with Server(spec, config=tls(authority, port)) as encrypted:
            encrypted.command("BF.ADD", "encrypted", "ada")
            lines = [
                f"{url(plain)} --user reader --password-file {secret}",
                f"rediss://127.0.0.1:{port} --cacert {authority}/ca.pem --cert {authority}/client.pem --key {authority}/client.key",
                f"redis://127.0.0.1:{free_port()}",
            ]
            down = lines[2]
            # Another client's password isn't for the targets.
            environment = {"REDISCLI_AUTH": "0ther"}
            with Exporter("--targets", targets_file(tmp_path, *lines), env=environment) as exporter:
                samples = wait_for_filter(exporter, url(plain), "plain")
                assert one(samples, "bloomery_up", node=f"127.0.0.1:{plain.port}") == 1
                assert "process_threads" not in samples, "the exporter's own metrics aren't a target's"
                samples = wait_for_filter(exporter, f"rediss://127.0.0.1:{port}", "encrypted")
                assert one(samples, "bloomery_up", node=f"127.0.0.1:{port}") == 1
                assert list(exporter.samples(probe(down))["bloomery_up"].values()) == [0]
                own = exporter.samples()
                assert own["bloomery_exporter_build_info"] and not own.keys() & {"bloomery_up", "bloomery_items"}
                assert not re.search("s3cret|0ther", exporter.log() + exporter.page(probe(url(plain))))
        client.execute_command("ACL", "SETUSER", "default", "on")


def test_only_the_targets_in_the_file_are_asked(server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0)
        forbidden = f"redis://127.0.0.1:{other.getsockname()[1]}"
        with Exporter("--targets", targets_file(tmp_path, url(server))) as exporter:
            for path, status, says in [
                (probe(forbidden), 404, "unknown target"),
                (probe(url(server) + "/1"), 404, "unknown target"),
                (probe(url(server).replace("://", "://ada:secret@")), 404, "unknown target"),
                (probe(""), 404, "unknown target"),
                ("/probe", 400, "expected one parameter"),
                ("/probe?target=%zz", 400, "expected one parameter"),
                ("/probe?target=%", 400, "expected one parameter"),
                ("/probe?target=%ff", 400, "expected one parameter"),
                (f"/probe?other=1&target={url(server)}", 400, "expected one parameter"),
                (f"{probe(url(server))}&password=x", 400, "expected one parameter"),
            ]:
                got, headers, body = exporter.get(path)
                assert (got, says in body, headers["content-type"]) == (status, True, "text/plain; charset=utf-8"), path
                assert "secret" not in body
            assert exporter.get(f"/probe?target={url(server)}")[0] == 200, "without percent-encoding"
        with pytest.raises(BlockingIOError):
            other.accept()
    with Exporter("--port", server.port) as exporter:
        status, _, body = exporter.get(probe(url(server)))
        assert status == 404 and "--targets" in body


def test_a_target_that_hangs_delays_no_other_and_gets_few_places(new_server, tmp_path):
    hung, well = new_server(), new_server()
    lines = [f"{url(hung)} --timeout 1h", url(well)]
    replies = []
    ask = [threading.Thread(target=lambda: replies.append(exporter.get(probe(url(hung)))[0])) for _ in range(5)]
    with Exporter("--targets", targets_file(tmp_path, *lines)) as exporter:
        hung.process.send_signal(signal.SIGSTOP)
        try:
            for thread in ask:
                thread.start()
            # Four requests wait, whichever they are, and the fifth is refused at once.
            wait_for(lambda: replies == [503], "one to be refused")
            for _ in range(20):
                assert list(exporter.samples(probe(url(well)))["bloomery_up"].values()) == [1]
            assert exporter.get("/-/healthy")[0] == 200 and replies == [503]
        finally:
            hung.process.send_signal(signal.SIGCONT)
        for thread in ask:
            thread.join()
        assert replies == [503, 200, 200, 200, 200]


@pytest.mark.parametrize("line", ["redis://ada:s3cret@127.0.0.1:1", "redis://127.0.0.1:1 --nothing", ""])
def test_a_file_that_cannot_be_is_refused_at_once(tmp_path, line):
    words = [PROGRAM, "exporter", "--targets", targets_file(tmp_path, line)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and str(tmp_path) in done.stderr and "s3cret" not in done.stderr, done.stderr


def test_targets_are_not_combined_with_a_server(tmp_path):
    words = [PROGRAM, "exporter", "--targets", targets_file(tmp_path, "redis://127.0.0.1:1"), "--port", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "cannot be used with" in done.stderr


def test_prometheus_asks_for_the_targets_that_the_configuration_names(new_server, tmp_path):
    """With the configuration in ops/, except for addresses, paths and the interval."""
    servers = [new_server(), new_server()]
    for server in servers:
        server.command("BF.ADD", f"of {server.port}", "ada")
    urls = [url(server) for server in servers]
    named = (OPS / "prometheus" / "targets.yml").read_text()
    for example, target in zip(re.findall(r"rediss?://\S+", named), urls, strict=True):
        named = named.replace(example, target)
    (tmp_path / "targets.yml").write_text(named)
    with Exporter("--targets", targets_file(tmp_path, *urls)) as exporter:
        fleet = (OPS / "prometheus" / "fleet.yml").read_text()
        for shipped, here in [
            ("127.0.0.1:19747", f"127.0.0.1:{exporter.port}"),
            ("[targets.yml]", f"[{tmp_path / 'targets.yml'}]"),
            ("  - alerts.yml", f"  - {OPS / 'prometheus' / 'alerts.yml'}"),
            ("scrape_interval: 15s", "scrape_interval: 1s"),
        ]:
            assert shipped in fleet
            fleet = fleet.replace(shipped, here)
        for target in urls:
            wait_for(lambda target=target: exporter.samples(probe(target)).get("bloomery_items"), "the filters")
        with Prometheus(configuration=fleet) as prometheus:

            def found() -> set:
                labels = [labels for labels, _ in prometheus.query("bloomery_items")]
                return {(each["job"], each["instance"], each["key"], each["team"]) for each in labels}

            expected = {("bloomery", url(server), f"of {server.port}", "search") for server in servers}
            wait_for(lambda: found() == expected, "the metrics of both")
            assert {value for _, value in prometheus.query('up{job="bloomery"}')} == {1}
