"""Alerts that warn before there is trouble: the trouble is made on a real server, and promtool evaluates the alerts over
the metrics that the exporter had, as if hours had passed. A second server gets the same traffic without the trouble."""

import contextlib
import json

import pytest
import redis

from kit.filters import adding, load_pieces, members, pieces
from kit.monitoring import OPS, Exporter, promtool
from kit.servers import wait_for

ALERTS = OPS / "prometheus" / "alerts.yml"

# Hours of traffic before the trouble. BloomFilterFullSoon looks back six hours.
HOURS = 7

# The alerts that must fire for the server in trouble. The others must not, and none for the other server.
EXPECTED = {
    ("BloomAddsRefused", "small"),
    ("BloomFilterAdvice", "small"),
    ("BloomFilterFullSoon", "filling"),
    ("BloomFilterFullSoon", "slots"),
    ("BloomFilterGrown", "grown"),
    ("BloomFilterEvicted", None),
    ("BloomLoadHangs", None),
}


class Site:
    """A server with an exporter."""

    def __init__(self, server, exporter, in_trouble: bool):
        self.client, self.exporter, self.in_trouble = server.client(), exporter, in_trouble
        self.pages = []
        filling = 2000 if in_trouble else 20_000
        for words in (
            "BF.RESERVE small 0.01 100 NONSCALING",
            f"BF.RESERVE filling 0.01 {filling} NONSCALING",
            f"CF.RESERVE slots {filling} EXPANSION 0",
            "BF.RESERVE grown 0.01 10",
            "BF.RESERVE source 0.01 1000000",
            "BF.RESERVE passing 0.01 10",
        ):
            self.client.execute_command(*words.split())
        self.client.expire("passing", 3600)
        few = {"small": 50, "grown": 20}
        for key, items in ({"small": 200, "grown": 200} if in_trouble else few).items():
            with contextlib.suppress(redis.ResponseError):
                self.client.execute_command(*adding("BF", key, members(items)))
        exporter.wait_for_filters(6)

    def hour(self, number: int) -> None:
        """An hour's traffic: both filters get a hundred items."""
        for family, key in (("BF", "filling"), ("CF", "slots")):
            self.client.execute_command(*adding(family, key, members(100, f"hour:{number}")))

    def last_minutes(self) -> None:
        """An item, a write and a load come; in trouble, a filter refuses the item, the write evicts a filter, and the
        last piece of the load is missing."""
        with contextlib.suppress(redis.ResponseError):
            self.client.execute_command("BF.ADD", "small", "another")
        if self.in_trouble:
            self.client.config_set("maxmemory-policy", "volatile-lru")
            self.client.config_set("maxmemory", 1)
        with contextlib.suppress(redis.exceptions.OutOfMemoryError):
            self.client.set("text", "x")
        self.client.config_set("maxmemory", 0)
        found = pieces(self.client, "source", "BF")
        load_pieces(self.client, "loaded", "BF", found[:-1] if self.in_trouble else found)

    def scrapes(self) -> float:
        return self.exporter.value("bloomery_exporter_scrapes_total")


def read(sites: list[Site]) -> None:
    """Reads the metrics of each site from a new scrape: for up to a second, the exporter returns a cached page."""
    before = [site.scrapes() for site in sites]
    for site, scrapes in zip(sites, before, strict=True):
        wait_for(lambda site=site, scrapes=scrapes: site.scrapes() > scrapes, "a scrape")
        site.pages.append(site.exporter.samples())


def input_series(instance: str, pages: list[dict], minutes: list[int]) -> list[dict]:
    """Each page's samples, a minute apart, for as many minutes as the page is valid."""
    names = {(name, labels) for page in pages for name in page for labels in page[name]} | {("up", frozenset())}
    series = []
    for name, labels in sorted(names, key=str):
        more = {("job", "bloomery"), ("instance", instance)}
        text = ",".join(f"{label}={json.dumps(value)}" for label, value in sorted(labels | more))
        values = [1 if name == "up" else page.get(name, {}).get(labels, "_") for page in pages]
        values = [f"{value}x{count - 1 if value != '_' else count}" for value, count in zip(values, minutes, strict=True)]
        series.append({"series": f"{name}{{{text}}}", "values": " ".join(values)})
    return series


@pytest.fixture
def sites(new_server):
    with contextlib.ExitStack() as stack:
        made = []
        for in_trouble in (True, False):
            server = new_server()
            made.append(Site(server, stack.enter_context(Exporter("--port", server.port)), in_trouble))
        yield made


def test_alarms_before_trouble_and_none_without(sites, tmp_path):
    for hour in range(HOURS):
        for site in sites:
            site.hour(hour)
        read(sites)
    for site in sites:
        site.last_minutes()
    read(sites)
    minutes = [60] * HOURS + [10]
    series = [input_series(f"trouble {site.in_trouble}", site.pages, minutes) for site in sites]
    labels = [{"alertname": name, "instance": "trouble True"} | ({"key": key} if key else {}) for name, key in EXPECTED]
    samples = ["{" + ",".join(f"{name}={json.dumps(value)}" for name, value in each.items()) + "}" for each in labels]
    check = {
        "expr": 'count by (alertname, instance, key) (ALERTS{alertstate="firing"})',
        "eval_time": f"{sum(minutes) - 1}m",
        "exp_samples": [{"labels": each, "value": 1} for each in samples],
    }
    tests = [{"interval": "1m", "input_series": sum(series, []), "promql_expr_test": [check]}]
    file = tmp_path / "test.yml"  # JSON is valid YAML
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", file)
