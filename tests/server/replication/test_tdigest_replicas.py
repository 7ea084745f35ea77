"""Primary, replica, its replica and their files have the same t-digests, to the bit, no matter which of them is read,
saves, restarts or is synchronised. In RedisBloom, reads and saves change a digest, so replicas drift apart.
"""

import random

import pytest

from kit.servers import APPEND_ONLY, rewrite, wait_for

pytestmark = pytest.mark.every_server("a read is replicated, and replicates itself where it is obeyed")

KEYS = ["a", "b", "c"]
ACTIONS = 60
ROUNDS = 2
FILES = {"append-only": APPEND_ONLY, "rdb": {"save": ["3600", "1"]}}

READS = [
    ["TDIGEST.QUANTILE", "{key}", 0.3],
    ["TDIGEST.CDF", "{key}", 0.5],
    ["TDIGEST.RANK", "{key}", 0.5],
    ["TDIGEST.BYREVRANK", "{key}", 1],
    ["TDIGEST.TRIMMED_MEAN", "{key}", 0.1, 0.9],
    ["DUMP", "{key}"],
    ["DEBUG", "DIGEST-VALUE", "{key}"],
]


def read(key, chance) -> list:
    return [key if word == "{key}" else word for word in chance.choice(READS)]


def write(key, chance) -> list:
    action = chance.random()
    if action < 0.85:
        # A few values are equal, so that the order matters in which they are compressed.
        draw = chance.choice([chance.random, lambda: chance.randrange(9) / 9])
        return ["TDIGEST.ADD", key, *(draw() for _ in range(chance.choice([1, 3, 40])))]
    if action < 0.95:
        sources = chance.sample(KEYS, chance.choice([1, 2]))
        return ["TDIGEST.MERGE", key, len(sources), *sources]
    if action < 0.98:
        return ["COPY", chance.choice([other for other in KEYS if other != key]), key, "REPLACE"]
    return ["TDIGEST.RESET", key]


def background_save(server, client):
    def idle():
        found = server.info("persistence")
        return not found["rdb_bgsave_in_progress"] and not found["aof_rewrite_in_progress"]

    wait_for(idle, "an earlier save to end")
    client.bgsave()
    wait_for(idle, "the save to end")


def save(server, chance):
    with server.client() as client:
        if chance.random() < 0.3:
            wait_for(lambda: not server.info("persistence")["rdb_bgsave_in_progress"], "an earlier save to end")
            client.save()
        else:
            chance.choice([background_save, rewrite])(server, client)


def dumps(server):
    with server.client() as client:
        return {key: client.dump(key) for key in KEYS}


class Chain:
    """A primary, its replica, and a replica of that one."""

    def __init__(self, new_server, config):
        self.primary = new_server(config=config)
        self.replica = self.primary.replica(config=config)
        self.last = self.replica.replica(config=config)
        self.partial = 0

    @property
    def all(self):
        return self.primary, self.replica, self.last

    def wait(self):
        for server in (self.primary, self.replica):
            server.wait_for_replicas()

    def restart(self, server):
        self.wait()
        self.count()
        server.restart()
        self.primary.wait_until_online(self.replica)
        self.replica.wait_until_online(self.last)

    def count(self):
        self.partial += sum(server.info("stats")["sync_partial_ok"] for server in self.all)


@pytest.mark.parametrize("files", FILES)
def test_digests_agree(new_server, files):
    """The servers are compared only at the end of a round, because a comparison reads the digests."""
    chance = random.Random(8731)
    chain = Chain(new_server, FILES[files])
    for number in range(ROUNDS):
        chain.primary.command("FLUSHALL")
        for key in KEYS:
            chain.primary.command("TDIGEST.CREATE", key, "COMPRESSION", chance.choice([1, 10, 100]))
        chain.wait()
        for _ in range(ACTIONS):
            action, key = chance.random(), chance.choice(KEYS)
            if action < 0.6:
                chain.primary.command(*write(key, chance))
            elif action < 0.93:
                chance.choice([chain.primary, *chain.all]).command(*read(key, chance))
            elif action < 0.98:
                save(chance.choice(chain.all), chance)
            else:
                chain.restart(chance.choice(chain.all))
        chain.wait()
        expected = dumps(chain.primary)
        assert dumps(chain.replica) == expected, number
        assert dumps(chain.last) == expected, number
    chain.count()
    assert chain.partial or files != "rdb", "a replica resumes after a restart"
    for server in chain.all:
        server.restart()
        assert dumps(server) == expected, server


@pytest.mark.parametrize("source", ["primary", "replica"])
def test_a_server_that_gets_a_snapshot_has_the_same_digest(new_server, source):
    """The primary saves digests compressed, and compresses with its next write. A replica can't do that, so it saves
    them as they are.
    """
    primary = new_server()
    old = primary.replica()
    primary.command("TDIGEST.CREATE", "a", "COMPRESSION", 10)
    primary.command("TDIGEST.ADD", "a", *range(50))
    primary.wait_for_replicas()
    new = {"primary": primary, "replica": old}[source].replica()
    primary.command("TDIGEST.ADD", "a", *range(30))
    for server in (primary, old):
        server.wait_for_replicas()
    for server in (old, new):
        assert server.command("DUMP", "a") == primary.command("DUMP", "a"), server
