"""A panic in every command and every callback: the client gets an error, and the server survives.

A module that is built with fail points panics in every command, both before and after opening the key, and in every
callback of the data types, INFO, the options and the worker pool. Each time the client must get an error, the panic
count in INFO must rise by one, and the key must be unchanged. The released module has no fail points
(commands/src/failpoint.rs); scripts/panics builds a module that has them.
"""

import contextlib
import time

import redis

from kit.arrivals import arrivals
from kit.commands import COMMANDS
from kit.foreign import ValkeyBloomChain
from kit.metrics import figures, gauges
from kit.servers import option, wait_for
from kit.suite import Server, options, run

KEYS = [
    "BF.RESERVE bloom 0.01 100 COUNTING", "BF.RESERVE window 0.01 100 WINDOW 3", "BF.RESERVE plain 0.01 100",
    "CF.RESERVE cuckoo 100", "BF.MADD bloom item item", "BF.ADD window item", "BF.ADD plain item",
    "CF.INSERT cuckoo ITEMS item item", "SET bits x", "BF.IMPORT foreign GOZERO bits BITS 1024",
]  # fmt: skip
VALKEY = ValkeyBloomChain(100, 0.01, 0.5, 2, bytes(32)).payload()
SMALL = {"THREADS": 1, "OFFLOAD_MIN_ITEMS": 10}


class Panics:
    """A server whose module has fail points, and the list of points that were hit."""

    def __init__(self, server):
        self.server, self.client, self.hits = server, server.client(), []
        self.failpoint = option(server.spec, "failpoint")

    def make_keys(self) -> None:
        self.client.execute_command("FLUSHALL", "SYNC")
        for command in KEYS:
            self.client.execute_command(*command.split())

    def state(self):
        """Every key's digest, and all gauges."""
        keys = sorted(self.client.keys())
        return {key: self.client.execute_command("DEBUG", "DIGEST-VALUE", key) for key in keys}, gauges(self.client)

    def panics(self) -> int:
        return figures(self.client, "bf_errors")["panics"]

    @contextlib.contextmanager
    def panic(self, place: str, caught: int = 1):
        """Checks that the body of a `with` statement reaches the fail point, and that the server survives. If a child
        process panics, `caught` is 0, because the child has a count of its own."""
        before = self.panics()
        self.client.config_set(self.failpoint, place)
        yield
        if not caught:
            self.client.config_set(self.failpoint, "")
        assert self.client.ping()
        found = self.panics() - before
        assert found == caught, f"{place}: {found} panics were counted instead of {caught}"
        self.hits.append(place)

    def refused(self, place: str, *command, says: str = "internal error") -> None:
        """Checks that a command with a panic in `place` returns an error and changes nothing."""
        before = self.state()
        with self.panic(place):
            try:
                reply = self.client.execute_command(*command)
            except redis.ResponseError as error:
                reply = str(error)
            assert says in str(reply), f"{command[0]} with a panic in {place} replied {reply}"
        # A blocked client gets its reply before its job ends.
        wait_for(lambda: self.state() == before, f"all to be as before {command[0]} with a panic in {place}")

    # ---- one panic --------------------------------------------------------------------------------------------------

    def commands(self) -> None:
        """Panics in each command, before and after it opens its first key. Without a panic, the command works."""
        for words in [self.words(command) for command in COMMANDS]:
            for place in ["command", "open"]:
                self.refused(place, *words)
            reply = self.client.execute_command(*words)
            assert "internal error" not in str(reply), (words, reply)
            self.make_keys()

    def words(self, command) -> list:
        """The command with arguments that make it succeed."""
        new = {
            "BF.RESERVE": ["0.01", "100", "LIKE", "plain"],
            "CF.RESERVE": ["100"],
            "BF.IMPORT": ["GOZERO", "bits", "BITS", "1024"],
            "BF.LOAD": [VALKEY],
            "BF.MERGE": ["plain", "plain"],
            "BF.INTERSECT": ["plain", "plain"],
            "BF.LOADCHUNK": [1, self.client.execute_command("BF.SCANDUMP", "plain", 0)[1]],
            "CF.LOADCHUNK": [1, self.client.execute_command("CF.SCANDUMP", "cuckoo", 0)[1]],
        }
        if command.name in new:
            return [command.name, "new", *new[command.name]]
        family = {"BF": "bloom", "CF": "cuckoo"}[command.name[:2]]
        others = {"BF.ROTATE": "window", "BF.AGE": "window", "BF.EXPORT": "foreign"}
        return command.words(others.get(command.name, family))

    def values(self) -> None:
        """Panics in the data types' callbacks, for a value of each type."""
        kept = ["bloom", "window", "cuckoo", "foreign"]
        for arrival in {arrival.type: arrival for arrival in arrivals().values()}.values():
            kept.append(f"from {arrival.type.decode()}")
            arrival.move_in(self.client, kept[-1])
        for key in kept:
            payload, digest = self.client.dump(key), self.client.execute_command("DEBUG", "DIGEST-VALUE", key)
            self.refused("load", "RESTORE", "new", 0, payload, says="Bad data format")
            self.client.restore("new", 0, payload)
            self.client.delete("new")
            self.refused("copy", "COPY", key, "new", says="failed to copy")
            with self.panic("save"):
                broken = self.client.dump(key)
            self.refused_payload(broken)
            with self.panic("mem-usage"):
                assert self.client.execute_command("MEMORY", "USAGE", key) < 10_000
            with self.panic("digest"):
                self.client.execute_command("DEBUG", "DIGEST-VALUE", key)
            for place in ["free-effort", "free"]:
                self.client.copy(key, "gone")
                with self.panic(place):
                    self.client.unlink("gone")
                assert not self.client.exists("gone")
            assert self.client.execute_command("DEBUG", "DIGEST-VALUE", key) == digest


    def refused_payload(self, payload: bytes) -> None:
        try:
            self.client.restore("new", 0, payload)
        except redis.ResponseError:
            assert not self.client.exists("new")
            return
        raise AssertionError("what a panic left of a payload was loaded")

    def files(self) -> None:
        """Checks that a save that panics writes no file, in the server and in a child: the previous file stays, and the
        server reports the failure."""
        client, directory = self.client, self.server.directory
        client.save()
        good = (directory / "dump.rdb").read_bytes()
        client.execute_command("BF.LOADCHUNK", "new", 1, client.execute_command("BF.SCANDUMP", "plain", 0)[1])
        saves_loads = self.server.spec.name != "redis-7.0"
        for place in ["save", "save-loads"][: 1 + saves_loads]:
            with self.panic(place):
                try:
                    raise AssertionError(f"SAVE with a panic in {place} replied {client.save()}")
                except redis.ResponseError:
                    assert (directory / "dump.rdb").read_bytes() == good
        with self.panic("save", caught=0):
            client.bgsave()
            wait_for(lambda: not client.info("persistence")["rdb_bgsave_in_progress"], "the child to end")
        assert client.info("persistence")["rdb_last_bgsave_status"] == "err"
        assert (directory / "dump.rdb").read_bytes() == good
        client.config_set("aof-use-rdb-preamble", "no")
        with self.panic("rewrite", caught=0):
            client.bgrewriteaof()
            wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the child to end")
        assert client.info("persistence")["aof_last_bgrewrite_status"] == "err"
        before = self.state()[0]
        client.bgsave()
        wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "ok", "a save that succeeds")
        self.server.stop()
        self.server.start()
        assert self.state()[0] == before

    def server_side(self) -> None:
        """Panics in the callbacks of INFO, the options and FLUSHALL."""
        client, threads = self.client, option(self.server.spec, "threads")
        with self.panic("info"):
            client.execute_command("INFO", "bf")
        with self.panic("option-get"):
            client.execute_command("CONFIG", "GET", threads)
        self.refused("option-set", "CONFIG", "SET", threads, 2, says="internal error")
        with self.panic("flush"):
            client.flushall()
        assert not client.keys()
        self.make_keys()

    def keys(self) -> None:
        """Panics while a cluster's server asks the module for BF.RESERVE's keys. Without an answer, the server treats
        BF.RESERVE as a command without keys."""
        self.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: "cluster_state:ok" in self.server.cli("CLUSTER", "INFO"), "the cluster")
        with self.panic("keys"):
            assert self.client.execute_command("BF.RESERVE", "new", "0.01", "100") == b"OK"

    def pool(self) -> None:
        """Panics in each step of a job. The waiting client gets an error, unless the step comes after the reply."""
        words = ["BF.BULKTEST", "plain", "FIXED", 1, bytes(1000)]
        self.refused("job", *words)
        self.refused("answer", *words)
        with self.panic("release"):
            self.client.execute_command(*words)
            time.sleep(0.05)  # the release follows the reply
        assert self.client.execute_command(*words) == bytes(125)

    def end(self) -> None:
        """Panics at shutdown. The server exits normally, although the threads aren't joined."""
        self.client.config_set(self.failpoint, "shutdown")
        self.server.stop()
        assert self.server.process.returncode == 0
        self.hits.append("shutdown")


def panics(spec, arguments) -> str:
    hits = []
    for _ in range(arguments.count):
        arguments_of_module = [word for pair in SMALL.items() for word in pair]
        with Server(spec, module_args=arguments_of_module) as server:
            faulty = Panics(server)
            faulty.make_keys()
            faulty.commands()
            faulty.values()
            faulty.files()
            faulty.server_side()
            faulty.pool()
            faulty.end()
            hits += faulty.hits
            server.check()
        with Server(spec, config={"cluster-enabled": "yes"}) as server:
            faulty = Panics(server)
            faulty.keys()
            hits += faulty.hits
            server.check()
    callbacks = len(set(hits) - {"command", "open"})
    return (
        f"{len(hits)} panics in {len(COMMANDS)} commands and {callbacks} callbacks, each an error and counted; "
        "0 crashes, 0 keys changed"
    )


def main() -> None:
    run(panics, options("panics", __doc__, 1, "rounds"))
