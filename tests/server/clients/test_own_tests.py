"""The tests that redis-py has for its methods for filters and sketches, against a server with this module. They were
written for RedisBloom. scripts/clients fetches them, as part of redis-py's sources on PyPI. Otherwise, this file's tests are
skipped."""

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kit.servers import ROOT

pytestmark = pytest.mark.every_server("clients talk to the server, which converts the module's replies")

# The sources, and in `venv` the environment that runs their tests.
SOURCES = ROOT / ".cache" / "clients" / "redis-sources"


def outcomes(server, protocol: int, report: Path) -> dict[str, str]:
    """What became of each test: `passed`, `failed`, or why it was skipped."""
    url = f"redis://127.0.0.1:{server.port}"
    words = ["tests/test_bloom.py", "tests/test_asyncio/test_bloom.py"]
    words += [f"--redis-url={url}/0", f"--redis-mod-url={url}", f"--protocol={protocol}", f"--junitxml={report}"]
    pytest_there = [SOURCES / "venv" / "bin" / "python", "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run([*pytest_there, *words], cwd=SOURCES, capture_output=True, text=True, timeout=600)
    assert report.exists(), done.stdout + done.stderr
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = [child for child in case if child.tag in ("failure", "error", "skipped")]
        name = f"{case.get('classname')}.{case.get('name')}"
        if not kinds:
            found.setdefault(name, "passed")
        else:
            found[name] = kinds[0].get("message", "") if kinds[0].tag == "skipped" else "failed"
    return found


@pytest.mark.parametrize("protocol", (2, 3))
def test_the_tests_of_redis_py_pass(server, tmp_path, protocol):
    if not SOURCES.exists():
        assert "BLOOMERY_ALL_CLIENTS" not in os.environ, f"{SOURCES} is missing"
        pytest.skip("the sources of redis-py are not there; scripts/clients fetches them")
    found = outcomes(server, protocol, tmp_path / "report.xml")
    assert len(found) > 45
    assert found == dict.fromkeys(found, "passed")
