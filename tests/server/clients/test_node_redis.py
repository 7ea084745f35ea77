"""node-redis, a client for JavaScript programs, with its package @redis/bloom, which was written for RedisBloom.
`node/node_redis.mjs` sends commands and checks replies. scripts/test fetches the packages.
"""

import subprocess
from pathlib import Path

import pytest

from kit.servers import ROOT

pytestmark = pytest.mark.every_server("clients talk to the server, which converts the module's replies")

PROGRAM = Path(__file__).parent / "node" / "node_redis.mjs"
PACKAGES = ROOT / ".cache" / "node"


@pytest.mark.parametrize("family", ["bloom", "cuckoo", "sketches"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_node_redis(server, protocol, family):
    assert (PACKAGES / "node_modules").exists(), "the packages for node are missing; scripts/test fetches them"
    done = subprocess.run(
        ["node", str(PROGRAM), str(server.port), str(protocol), family],
        cwd=PACKAGES,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        text=True,
    )
    # A program that ends too early also ends with status 0.
    if done.returncode or done.stdout != "done\n":
        pytest.fail(f"node ended with status {done.returncode}\n{done.stdout}", pytrace=False)
