"""Absolute links into the repository lead to existing files and anchors. Files that are used outside the repository
have such links, for example the alerts, the dashboard, and the exporter's start page."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from docs import Text  # noqa: E402

REPOSITORY = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]

# In source files, the address may be a separate value, in which case nothing precedes the path.
LINK = re.compile(r"([^\s\"'(<>]*)/blob/main/([\w./-]+)(?:#([\w-]+))?")


def links_of(path: str) -> list[tuple[str, str, str]]:
    return LINK.findall((ROOT / path).read_text())


def files_with_links() -> list[str]:
    folders = (".github", "cli", "clients", "commands", "examples", "module", "ops", "packaging", "plan", "scripts", "src")
    files = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file())
    return [str(path.relative_to(ROOT)) for path in files if b"/blob/main/" in path.read_bytes()]


def test_what_leaves_the_repository_links_to_its_documentation():
    found = {path: len(links_of(path)) for path in files_with_links()}
    alerts = (ROOT / "ops/prometheus/alerts.yml").read_text()
    assert found["ops/prometheus/alerts.yml"] == alerts.count("- alert: ") == alerts.count("runbook_url: ") > 10
    assert found["ops/grafana/bloomery.json"] and found["cli/src/command/exporter/http.rs"]


@pytest.mark.parametrize("path", files_with_links())
def test_links_have_the_address_of_the_manifest_and_name_what_exists(path):
    for address, file, anchor in links_of(path):
        assert address in (REPOSITORY, ""), address
        assert (ROOT / file).exists(), file
        assert not anchor or anchor in Text(Path(file)).anchors(), f"{file}#{anchor}"


def test_the_packages_have_the_address_of_the_workspace():
    for manifest in ("Cargo.toml", "cli/Cargo.toml"):
        assert tomllib.loads((ROOT / manifest).read_text())["package"]["repository"] == {"workspace": True}
