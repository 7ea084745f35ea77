"""clients/javascript, the package bloomery-redis for Node.js, as it is installed from the file that `npm pack` makes.
node/javascript_client.mjs tests it with each client, and node/javascript_client.mts its types.
"""

import json
import re
import shutil

import pytest

from kit.clusters import Cluster
from kit.node import PACKAGES, PROGRAMS, run
from kit.servers import ROOT
from kit.snippets import blocks

PACKAGE = ROOT / "clients" / "javascript"

# What javascript_client.mjs calls them.
CLIENTS = re.findall(r'^    "(.*)": \(\) =>', (PROGRAMS / "javascript_client.mjs").read_text(), flags=re.M)


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """A folder in which the package is installed. The clients are in the folder above it, where Node.js searches for
    them as well."""
    folder = tmp_path_factory.mktemp("javascript")
    (packed,) = json.loads(run(["npm", "pack", "--json", f"--pack-destination={folder}"], PACKAGE))
    app = folder / "app"
    app.mkdir()
    run(["npm", "install", f"--prefix={app}", "--offline", "--no-audit", "--no-fund", folder / packed["filename"]], app)
    (folder / "node_modules").symlink_to(PACKAGES / "node_modules")
    for program in PROGRAMS.glob("javascript_client.*"):
        shutil.copy(program, app)
    for suffix in ("mjs", "mts"):
        (app / f"page.{suffix}").write_text(examples())
    (app / "blocked.txt").write_text("".join(f"bot-{number}.example\n" for number in range(20_000)))
    return app


def examples() -> str:
    """The examples of the package's page as a program. A comment after an expression is its value."""
    lines = "\n".join(blocks(PACKAGE / "README.md", "js"))
    checked, count = re.subn(r"^(\S.*); // (true|false|\d+|\[.*\])$", r"assert.deepEqual(\1, \2);", lines, flags=re.M)
    assert count > 10 and not re.search(r"^(await|\().*; //", checked, flags=re.M), checked
    return f'import assert from "node:assert/strict";\n{checked}\nawait client.close();\n'


def test_the_package_has_its_sources_types_and_licences(app):
    installed = app / "node_modules" / "bloomery-redis"
    sources = {path.name for path in PACKAGE.iterdir() if path.suffix in (".js", ".ts")}
    assert {path.name for path in installed.iterdir()} == {
        "package.json", "README.md", "LICENSE-MIT", "LICENSE-APACHE", *sources
    }
    assert len(list((app / "node_modules").glob("[!.]*"))) == 1, "it depends on other packages"


@pytest.mark.parametrize("client", CLIENTS)
def test_with_a_client(server, app, client):
    passes(app, client, server.port, tests=15)


def passes(app, *arguments, tests: int) -> None:
    printed = run(["node", "javascript_client.mjs", *arguments], app)
    assert re.findall(r"^(?:#|ℹ) (?:pass|fail) (\d+)$", printed, flags=re.M) == [str(tests), "0"], printed


def test_in_a_cluster(spec, app):
    with Cluster(spec) as cluster:
        for client in ("node-redis 4", "node-redis 5, RESP3", "ioredis 5, automatic pipelines", "ioredis 6, RESP3"):
            passes(app, client, cluster.primaries()[0].port, "cluster", tests=1)
            for primary in cluster.primaries():
                assert primary.command("DBSIZE") > 0
                primary.command("FLUSHALL", "SYNC")


def test_the_examples_of_its_page(server, app):
    run(["node", "page.mjs"], app, REDIS_URL=f"redis://127.0.0.1:{server.port}")


def test_its_types_and_those_of_the_examples(app):
    compiler = PACKAGES / "node_modules" / "typescript" / "bin" / "tsc"
    # Without its own declarations, which would take half of the time.
    checks = ["--noEmit", "--strict", "--skipDefaultLibCheck", "--module", "nodenext", "--target", "es2022"]
    run(["node", compiler, *checks, "javascript_client.mts", "page.mts"], app)
