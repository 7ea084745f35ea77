"""A real exporter, and a real Prometheus (scripts/prometheus) that scrapes it, both on free ports.

    with Exporter("--port", server.port) as exporter, Prometheus(exporter.port) as prometheus:
        assert exporter.value("bloomery_up", node=...) == 1
        prometheus.wait_for_scrapes()
        assert prometheus.query("sum(bloomery_filters)")

Both processes end with the `with` block, or with the test process if that is killed."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path

from kit.program import MISSING, PROGRAM
from kit.servers import ROOT, _die_with_parent, free_port, wait_for

PROMTOOL = ROOT / ".cache" / "prometheus" / "promtool"
OPS = ROOT / "ops"

STOP_SECONDS = 10


def must_exist() -> None:
    """Fails if a program is missing, and says how to get it."""
    assert PROGRAM.exists(), MISSING
    assert PROMTOOL.exists(), f"{PROMTOOL} is missing; run scripts/prometheus"


class Process:
    """A program that serves HTTP on a port, with its own folder and log."""

    healthy_at = "/-/healthy"

    def __init__(self, port: int, command: list, env=None, directory: Path | None = None):
        must_exist()
        self.port = port
        self.directory = directory or Path(tempfile.mkdtemp(prefix="bloomery-monitoring-"))
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                preexec_fn=_die_with_parent(),
            )
        try:
            wait_for(self.answers, f"{command[0]} to answer")
        except AssertionError as error:
            self.destroy()
            raise AssertionError(f"{error}\n{self.log_at_end}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.destroy()

    def destroy(self) -> None:
        self.log_at_end = self.log()
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def answers(self) -> bool:
        assert self.process.poll() is None, f"ended with status {self.process.returncode}: {self.log()}"
        try:
            return self.get(self.healthy_at)[0] == 200
        except OSError:
            return False

    def processor(self) -> float:
        """Seconds of CPU time that all threads of the program have used."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def get(self, path: str, method: str = "GET", timeout: float = 30) -> tuple[int, dict, str]:
        """The response's status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()
        finally:
            connection.close()


class Exporter(Process):
    """`bloomery exporter` with these arguments."""

    def __init__(self, *arguments, env=None, interval=1):
        port = free_port()
        words = [PROGRAM, "exporter", "--listen", f"127.0.0.1:{port}", "--interval", interval, *arguments]
        super().__init__(port, words, env)

    def page(self, path: str = "/metrics") -> str:
        status, headers, body = self.get(path)
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8"), body
        return body

    def samples(self, path: str = "/metrics") -> dict:
        """Values by metric name, then by label set."""
        found = {}
        for line in self.page(path).splitlines():
            if not line.startswith("#"):
                name, labels, value = parse(line)
                same = found.setdefault(name, {})
                assert labels not in same, f"twice: {line}"
                same[labels] = value
        return found

    def value(self, name: str, **labels) -> float:
        """The value of the only sample that has at least these labels."""
        return one(self.samples(), name, **labels)

    def wait_for_filters(self, count: int, seconds: float = 120) -> dict:
        """Waits until this number of filters have metrics of their own."""
        wait_for(lambda: len(self.keys()) == count, f"{count} filters to be found", seconds)
        return self.samples()

    def keys(self) -> list[str]:
        return sorted(dict(labels)["key"] for labels in self.samples().get("bloomery_items", {}))

    def end(self) -> int:
        """Sends SIGTERM, and returns the exit status."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)


def probe(url: str) -> str:
    """The path at which an exporter has the metrics of a target, as Prometheus asks for it."""
    return "/probe?" + urllib.parse.urlencode({"target": url})


SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def parse(line: str):
    name, labels, value = SAMPLE.fullmatch(line).groups()
    pairs = LABEL.findall(labels or "")
    assert LABEL.sub("", labels or "") == "", line
    unescaped = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    return (
        name,
        frozenset((label, re.sub(r"\\.", lambda found: unescaped[found[0]], text)) for label, text in pairs),
        float(value),
    )


def one(samples: dict, name: str, **labels) -> float:
    (value,) = [value for having, value in samples.get(name, {}).items() if set(labels.items()) <= having]
    return value


class Prometheus(Process):
    """A Prometheus that scrapes each exporter every second, or has another configuration. `rules` are paths of rule
    files."""

    healthy_at = "/-/ready"

    def __init__(self, *exporters: Exporter, rules=(), configuration: str | None = None):
        port = free_port()
        directory = Path(tempfile.mkdtemp(prefix="bloomery-prometheus-"))
        targets = [f"127.0.0.1:{exporter.port}" for exporter in exporters]
        usual = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [{"job_name": "bloomery", "static_configs": [{"targets": targets}]}],
        }
        (directory / "prometheus.yml").write_text(configuration or json.dumps(usual))  # JSON is valid YAML
        command = [
            PROMTOOL.parent / "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        super().__init__(port, command, directory=directory)

    def query(self, expression: str) -> list[tuple[dict, float]]:
        """The label sets and values that the expression has now. Fails if Prometheus refuses it."""
        status, _, body = self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        assert status == 200, f"{expression}: {body}"
        data = json.loads(body)["data"]
        assert data["resultType"] == "vector", expression
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def number(self, expression: str) -> float:
        ((_, value),) = self.query(expression)
        return value

    def wait_for_scrapes(self, count: int = 1) -> None:
        """Waits for this number of new scrapes of every exporter."""
        start = time.time()
        fresh = f"count(timestamp(up) > {start:.3f}) == count(up) and sum(count_over_time(up[1m])) >= {count}"
        time.sleep(count)
        wait_for(lambda: self.query(fresh), f"{count} scrapes")


def promtool(*words) -> str:
    """Runs promtool, which must accept its input. Returns its output."""
    must_exist()
    done = subprocess.run([PROMTOOL, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
