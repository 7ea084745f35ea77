"""Stops, kills, promotes and resyncs servers in the middle of a filter's arrival: every server has all of it, or none.

A primary has a replica, which has a replica. A filter of many MiB comes to the primary (WAYS): as chunks, in our format
or in RedisBloom's, in one command whose result is sent to the replicas in pieces, or as the last chunk of such a
filter. After a random number of commands, or while its result is being sent, something happens to one of the three
servers (EVENTS): it restarts with what it has saved, is killed, gets a new replica, takes over, or has to sync again.
Then the filter's client continues, and begins again if it is refused. In the end, all servers must have the same
filter, and no replica may have a load that its primary doesn't have.
"""

import contextlib
import itertools
import random
import threading

import redis

from kit.filters import pieces
from kit.foreign import ValkeyBloomChain, redisbloom_head
from kit.metrics import figures
from kit.resync import sync_in_some_way
from kit.servers import Server, ServerFailed, rewrite, wait_for
from kit.suite import options, progress, run

MIB = 1 << 20
SIZE = 24 * MIB
KEY = "k"


def ways(spec) -> dict[str, tuple[list[list], bytes]]:
    """The commands of each way, and the digest of the filter that they make."""
    data = random.Random(1).randbytes(MIB) * (SIZE // MIB)
    made = {
        "import": [["BF.IMPORT", KEY, "GOZERO", "none", "BITS", SIZE * 8, "DATA", data]],
        "load": [["BF.LOAD", KEY, ValkeyBloomChain(int(SIZE * 0.8), 0.01, 0.5, 0, bytes(32)).payload()]],
    }
    with Server(spec) as server, server.client() as client:
        client.execute_command("BF.RESERVE", "ours", 0.01, SIZE // 2)
        client.execute_command("CF.RESERVE", "cuckoo", SIZE // 2)
        for name, prefix in (("ours", "BF"), ("cuckoo", "CF")):
            made[name] = [[f"{prefix}.LOADCHUNK", KEY, *piece] for piece in pieces(client, name, prefix)]
        made["redisbloom"] = [
            ["BF.LOADCHUNK", KEY, 1, redisbloom_head(SIZE)],
            *(["BF.LOADCHUNK", KEY, 1 + end, data[end - MIB : end]] for end in range(MIB, SIZE + 1, MIB)),
        ]
        found = {}
        for name, commands in made.items():
            for command in commands:
                assert client.execute_command(*command) == b"OK", name
            found[name] = commands, client.execute_command("DEBUG", "DIGEST-VALUE", KEY)
            client.delete(KEY)
    return found


class Chain:
    """A primary, its replica and the replica's replica, in this order at first, and the client that fills the key."""

    def __init__(self, spec, chance: random.Random, commands: list[list]):
        self.spec, self.chance, self.commands = spec, chance, commands
        self.everyone: list[Server] = []
        self.upstream: dict[Server, Server] = {}
        self.is_paused = False

    def __enter__(self) -> "Chain":
        self.primary = self.start()
        self.middle = self.start(self.primary)
        self.last = self.start(self.middle)
        self.catch_up()
        return self

    def __exit__(self, *_) -> None:
        for server in self.everyone:
            server.destroy()

    def start(self, upstream: Server | None = None) -> Server:
        file = {"appendonly": "yes", "appendfsync": "no", "aof-use-rdb-preamble": self.chance.choice(["yes", "no"])}
        server = Server(self.spec, config=self.chance.choice([file, {}]))
        self.everyone.append(server)
        sync_in_some_way(server, self.chance)
        if upstream:
            self.follow(server, upstream)
        return server

    def follow(self, server: Server, upstream: Server) -> None:
        self.upstream[server] = upstream
        server.config["replicaof"] = ["127.0.0.1", str(upstream.port)]
        server.command("REPLICAOF", *server.config["replicaof"])

    def lead(self, server: Server) -> None:
        del self.upstream[server]
        del server.config["replicaof"]
        server.command("REPLICAOF", "NO", "ONE")
        self.primary = server

    def any(self) -> Server:
        return self.chance.choice(self.everyone)

    def explain(self, failure: Exception) -> None:
        """Adds what the servers say, because one that died looks like a lost connection."""
        for server in self.everyone:
            try:
                server.check()
            except ServerFailed as why:
                failure.add_note(str(why))

    def catch_up(self) -> None:
        """Waits until every replica has all that its primary has written."""
        written = self.primary.info("replication")["master_repl_offset"]
        for server, upstream in self.upstream.items():
            upstream.wait_until_online(server)
        for server in self.upstream:
            wait_for(lambda: server.info("replication")["slave_repl_offset"] >= written, f"{server} to catch up")

    def loads(self, server: Server) -> int:
        with server.client() as client:
            return figures(client)["loads"]

    # ---- the client -------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Sends a random number of the commands. If the last one is among them, its result may take some time to be
        sent; then this pauses it. Returns whether a replica has a part of the filter."""
        sent = self.chance.randint(1, len(self.commands))
        first = self.commands[: min(sent, len(self.commands) - 1)]
        with self.primary.client() as client:
            for command in first:
                assert client.execute_command(*command) == b"OK"
        self.client = threading.Thread(target=self.send_last)
        if sent == len(self.commands):
            self.client.start()
            wait_for(lambda: self.loads(self.middle) or not self.client.is_alive(), "the result to be sent")
            self.primary.command("CLIENT", "PAUSE", 100_000, "WRITE")
            self.is_paused = self.client.is_alive()
        return self.loads(self.middle) > 0

    def send_last(self) -> None:
        with contextlib.suppress(redis.RedisError), self.primary.client() as client:
            client.execute_command(*self.commands[-1])

    def go_on(self) -> None:
        for server in self.everyone:
            server.command("CLIENT", "UNPAUSE")
        if self.client.ident:
            self.client.join()

    def finish(self) -> None:
        """Loads the filter, unless it is there: a client whose server failed doesn't know, and begins again."""
        with self.primary.client() as client:
            if not client.exists(KEY):
                for command in self.commands:
                    assert client.execute_command(*command) == b"OK"


# ---- what happens to a server ---------------------------------------------------------------------------------------


def restarts(chain: Chain, server: Server) -> None:
    """As a service manager restarts a server that has `save` points."""
    with contextlib.suppress(redis.ConnectionError):
        server.command("SHUTDOWN", "SAVE", "NOW", "FORCE")
    server.process.wait(60)
    server.start()


def is_killed(chain: Chain, server: Server) -> None:
    server.kill()
    server.start()


def rewrites(chain: Chain, server: Server) -> None:
    with server.client() as client:
        rewrite(server, client)
    is_killed(chain, server)


def gets_a_replica(chain: Chain, server: Server) -> None:
    chain.start(server)


def loses_its_replicas(chain: Chain, server: Server) -> None:
    server.command("CLIENT", "KILL", "TYPE", "replica")


def syncs_again(chain: Chain, server: Server) -> None:
    chain.primary.command("DEBUG", "CHANGE-REPL-ID")
    loses_its_replicas(chain, chain.primary)


def takes_over(chain: Chain, server: Server) -> None:
    """The primary's replica takes over, and the old primary follows it."""
    primary = chain.primary
    chain.lead(chain.middle)
    primary.command("CLIENT", "UNPAUSE")
    chain.follow(primary, chain.middle)


EVENTS = [restarts, restarts, is_killed, rewrites, gets_a_replica, loses_its_replicas, syncs_again, takes_over]


def middle(spec, arguments) -> str:
    chance, found = random.Random(arguments.seed), ways(spec)
    middles, way = 0, itertools.cycle(found)
    for number in range(arguments.count):
        name = next(way)
        commands, digest = found[name]
        with Chain(spec, chance, commands) as chain:
            middles += chain.begin()
            event, server = chance.choice(EVENTS), chain.any()
            what = f"{name}: {server}, {chain.everyone.index(server)} of the chain, {event.__name__}"
            try:
                event(chain, server)
                chain.go_on()
                check(chain, digest)
            except Exception as failure:
                failure.add_note(what)
                chain.explain(failure)
                raise
        progress(number + 1, arguments.count, "arrivals")
    return f"{arguments.count} arrivals, {middles} with a part on a replica: whole everywhere"


def check(chain: Chain, digest: bytes) -> None:
    chain.catch_up()
    for server, upstream in chain.upstream.items():
        wait_for(lambda: chain.loads(server) <= chain.loads(upstream), f"{server} to have no load of its own", 20)
    chain.finish()
    chain.catch_up()
    for server in chain.everyone:
        assert server.command("DEBUG", "DIGEST-VALUE", KEY) == digest, f"{server} has another filter"
        assert chain.loads(server) == 0, f"{server} keeps a load"
        assert "== CRITICAL ==" not in server.log(), server.explain("met an error")
        server.check()


def main() -> None:
    run(middle, options("middle", __doc__, 100, "arrivals"))
