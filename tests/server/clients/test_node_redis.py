"""node-redis, a client for JavaScript programs, with its package @redis/bloom, which was written for RedisBloom.
`node/node_redis.mjs` sends commands and checks replies. scripts/test fetches the packages.
"""

import pytest

from kit.node import PACKAGES, PROGRAMS, run

pytestmark = pytest.mark.every_server("clients talk to the server, which converts the module's replies")


@pytest.mark.parametrize("family", ["bloom", "cuckoo", "sketches"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_node_redis(server, protocol, family):
    # A program that ends too early also ends with status 0.
    assert run(["node", PROGRAMS / "node_redis.mjs", server.port, protocol, family], PACKAGES) == "done\n"
