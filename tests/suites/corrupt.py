"""Sends bytes that no server wrote, in every possible way: they must be refused, or load as a filter that works.

Most of them go to RESTORE: filters of every type, kind and state, in every supported encoding, with all kinds of damage
(kit/damage.py). Checksums detect some of it. In the other payloads the checksums are corrected, so that only validation
protects the decoder. The suite also sends BF.BULKADD and BF.BULKTEST items with wrong lengths, damaged files for
BF.LOAD and BF.IMPORT, RDB files that a server loads at startup, and append-only files with a damaged end.

A refused payload leaves no key. A payload that loads is a filter like any other: it gets 50 random commands, and the
result can be copied, saved and loaded again. Nothing crashes, hangs, or grows without bound. The default count adds up
to 100,000 payloads over the four servers of the matrix.
"""

import contextlib
import os
import random
import re
import shutil
import struct

import redis

from kit.arrivals import BLOOM_V3, GUAVA, OLDEST, SBBF, valkey_bloom_chain
from kit.damage import damaged, flip, is_native, sources
from kit.foreign import crc64, sealed, version_of
from kit.payload import CUCKOO, Payload, write_length
from kit.servers import FATAL, ServerFailed
from kit.suite import Server, options, progress, run

HANG = 60.0  # seconds of the server's CPU time, after which a payload counts as an endless loop
GROWTH = 64 << 20  # bytes of resident memory
LEAK = 4 << 20  # bytes still allocated after all keys were deleted
RELOAD_EVERY = 100  # loaded payloads
CONFIG = {
    "rdbcompression": "no",
    "sanitize-dump-payload": "yes",
    # A damaged append-only file causes errors while it is replayed, which would stop a server that panics on them.
    "propagation-error-behavior": "ignore",
}
SMALL = ["MAX_FILTER_BYTES", "1mb"]  # so that no filter is slow only because of its size


class Suite:
    """A server, the payloads to damage, and the results."""

    def __init__(self, server, chance: random.Random):
        self.server, self.chance = server, chance
        self.client = server.client(socket_timeout=200)  # the machine may suspend this process or the server's
        self.dumps = sources(self.client)
        self.version = version_of(next(dump for dump in self.dumps.values() if is_native(dump[:-10])))
        self.loaded = self.refused = 0
        self.longest = 0.0

    # ---- RESTORE ----------------------------------------------------------------------------------------------------

    def control(self) -> None:
        """Checks that undamaged payloads load with the checksums that this suite computes."""
        self.check_outer(True)
        for name, dump in self.dumps.items():
            body = dump[:-10]
            if is_native(body):
                payload = Payload.parse(dump)
                payload.seal()
                self.client.restore("hostile", 0, sealed(payload.dump()[:-10], version_of(dump)))
                assert self.client.dump("hostile") == dump, f"{name} is sealed otherwise than it was written"
                self.client.delete("hostile")
            self.client.restore("hostile", 0, sealed(body, version_of(dump)))
            first = self.client.dump("hostile")
            self.client.restore("hostile", 0, first, replace=True)
            assert self.client.dump("hostile") == first and (not is_native(body) or first == dump), name
            self.client.delete("hostile")

    def check_outer(self, check: bool) -> None:
        """Sets whether the server verifies the checksum around a payload."""
        self.client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", int(not check))

    def restore(self, number: int) -> None:
        what, body = damaged(self.dumps, self.chance)
        check = self.chance.random() < 0.5
        dump = sealed(body, OLDEST) if check else body + struct.pack("<HQ", self.version, 0)
        self.check_outer(check)
        where = f"payload {number}, {what}: {dump.hex()}"
        with self.quick(where):
            self.attempt(["RESTORE", "hostile", 0, dump], where, "Bad data format")

    def attempt(self, command: list, where: str, refusal: str = "") -> None:
        """Runs a command, which must either create the key `hostile`, or be refused and create no key."""
        try:
            self.client.execute_command(*command)
        except redis.ResponseError as error:
            assert refusal in str(error) and "internal error" not in str(error), f"{error}: {where}"
            assert self.client.exists("hostile") == 0, f"refused, and there: {where}"
            self.refused += 1
        else:
            self.loaded += 1
            self.live(where)

    def live(self, where: str) -> None:
        """Runs all kinds of commands on a filter that loaded, and saves and loads the result."""
        client, chance = self.client, self.chance
        client.copy("hostile", "copy")
        prefix = family(client, "hostile")
        for reply in pipelined(client, random_commands(prefix, like(client) if prefix == "BF" else [], chance)):
            assert "internal error" not in str(reply), where
        *made, digests = pipelined(
            client,
            [
                ["COPY", "hostile", "copy", "REPLACE"],
                ["RESTORE", "again", 0, client.dump("hostile")],
                ["DEBUG", "DIGEST-VALUE", "hostile", "copy", "again"],
            ],
        )
        assert made == [1, b"OK"] and len(set(digests)) == 1, f"not to be loaded again: {made} {digests} {where}"
        if self.loaded % RELOAD_EVERY == 0:
            keys = ["hostile", "other"]
            before = client.execute_command("DEBUG", "DIGEST-VALUE", *keys)
            assert client.execute_command("DEBUG", "RELOAD") == b"OK", where
            assert client.execute_command("DEBUG", "DIGEST-VALUE", *keys) == before, where
        # Keep this filter: random commands might merge the next one with it.
        pipelined(client, [["RENAME", "hostile", "other"], ["DEL", "copy", "again", "like"]])

    @contextlib.contextmanager
    def quick(self, where: str):
        before = processor_seconds(self.server)
        try:
            yield
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ServerFailed(self.server.explain(f"{error}: {where}")) from error
        used = processor_seconds(self.server) - before
        self.longest = max(self.longest, used)
        assert used < HANG, f"took {used} s: {where}"

    # ---- BULKADD, BULKTEST, LOAD, IMPORT ----------------------------------------------------------------------------

    def argument(self, number: int) -> None:
        """Passes a damaged blob to a command."""
        self.chance.choice(
            [self.bulk, self.load, self.bloom_v3, self.guava, self.sbbf, self.bitmap, self.merge]
        )(number)

    def bulk(self, number: int) -> None:
        """Checks that a blob is accepted if it consists of whole items, and otherwise refused without changes."""
        client, chance = self.client, self.chance
        items = [chance.randbytes(chance.choice([0, 1, 8, 8, 300])) for _ in range(chance.randint(0, 200))]
        blob = b"".join(struct.pack("<I", len(item)) + item for item in items)
        blob = flip(blob, chance) if chance.random() < 0.7 else blob[: chance.randrange(len(blob) + 1)]
        form = ["PREFIXED"]
        if chance.random() < 0.3:
            form = ["FIXED", chance.choice([0, 1, 2, 3, 7, 8, 64, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, -1])]
        where = f"blob {number}, {form}: {blob.hex()}"
        expected = whole_items(blob, *form)
        with self.quick(where):
            client.execute_command("BF.RESERVE", "bulk", 0.01, 1000)
            before = client.dump("bulk")
            added, tested = pipelined(
                client, [["BF.BULKADD", "bulk", *form, blob], ["BF.BULKTEST", "bulk", *form, blob, "COUNT"]]
            )
            if expected is None:
                assert isinstance(added, redis.ResponseError) and isinstance(tested, redis.ResponseError), where
                assert client.dump("bulk") == before, where
                self.refused += 1
            else:
                assert added <= expected == tested, f"{added} of {expected} added, {tested} found: {where}"
                self.loaded += 1
            client.delete("bulk")

    def load(self, number: int) -> None:
        chain, _ = valkey_bloom_chain(5, 20, 0.05, 0.5, 2)
        self.blob(number, ["BF.LOAD", "hostile"], chain.payload())

    def bloom_v3(self, number: int) -> None:
        self.blob(number, ["BF.IMPORT", "hostile", "BLOOMV3"], BLOOM_V3)

    def guava(self, number: int) -> None:
        self.blob(number, ["BF.IMPORT", "hostile", "GUAVA"], GUAVA)

    def sbbf(self, number: int) -> None:
        self.blob(number, ["BF.IMPORT", "hostile", "SBBF"], SBBF)

    def blob(self, number: int, words: list, blob: bytes) -> None:
        blob = flip(blob, self.chance) if self.chance.random() < 0.8 else blob[: self.chance.randrange(len(blob))]
        where = f"blob {number}, {words}: {blob.hex()}"
        with self.quick(where):
            self.attempt([*words, blob], where)

    def merge(self, number: int) -> None:
        """Merges a damaged payload, or the file of its pieces, into an empty key."""
        what, body = damaged(self.dumps, self.chance)
        data = sealed(body, OLDEST)
        if self.chance.random() < 0.3:
            with contextlib.suppress(Exception):  # too damaged to split into pieces
                data = b"".join(Payload.parse(data).pieces)
        where = f"merge {number}, {what}: {data.hex()}"
        with self.quick(where):
            self.attempt(["BF.MERGE", "hostile", "BLOB", data], where)

    def bitmap(self, number: int) -> None:
        """Imports a string as a go-zero or Redisson filter with random, mostly wrong parameters."""
        chance = self.chance
        source = chance.randbytes(chance.choice([0, 1, 100, 1000]))
        numbers = [0, 1, 63, 64, 800, 8000, 8001, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, -1, "x", ""]
        bits, probes = chance.choice(numbers), chance.choice([0, 1, 5, 14, 256, 257, 10_000, 10_001, 1 << 32, "1.5"])
        self.client.set("source", source)
        self.client.hset("config", mapping={"size": bits, "hashIterations": probes})
        words = chance.choice([["GOZERO", "source", "BITS", bits, "MAPS", probes], ["REDISSON", "source", "config"]])
        where = f"bitmap {number}, {words}, {bits} bits, {probes} probes: {source.hex()}"
        with self.quick(where):
            self.attempt(["BF.IMPORT", "hostile", *words], where)

    # ---- files ------------------------------------------------------------------------------------------------------

    def rdb(self, number: int) -> None:
        """Writes an RDB file with intact filters and a damaged one. The server loads it at startup, or exits normally.
        """
        chance = self.chance
        what, body = damaged(self.dumps, chance)
        sound = {f"sound:{at}": chance.choice(list(self.dumps.values()))[:-10] for at in range(chance.randrange(4))}
        values = list({"damaged": body, **sound}.items())
        chance.shuffle(values)
        data = b"REDIS%04d\xfe\0" % OLDEST
        data += b"".join(value[:1] + write_length(len(key)) + key.encode() + value[1:] for key, value in values)
        data += b"\xff"
        data += struct.pack("<Q", crc64(data)) if chance.random() < 0.5 else bytes(8)
        self.server.stop()
        (self.server.directory / "dump.rdb").write_bytes(data)
        where = f"file {number}, {what}: {data.hex()}"
        if self.starts(self.server, where):
            self.loaded += 1
            for key in filters(self.client):
                self.client.rename(key, "hostile")
                self.live(where)
        else:
            self.refused += 1
            (self.server.directory / "dump.rdb").unlink()
            self.server.start()
        self.client.flushall()

    def tail(self, number: int, server, written: dict) -> None:
        """Cuts off the end of the append-only file, which the server must repair, or damages the end."""
        chance = self.chance
        server.kill()
        folder = server.directory / "appendonlydir"
        shutil.rmtree(folder)
        folder.mkdir()
        for name, data in written.items():
            (folder / name).write_bytes(data)
        (name,) = [name for name in written if name.endswith(".incr.aof")]
        data, cut = written[name], chance.random() < 0.5
        start = max(0, len(data) - 4000)
        data = data[: chance.randrange(start, len(data))] if cut else flip(data, chance, start)
        (folder / name).write_bytes(data)
        where = f"tail {number}, {'cut' if cut else 'garbled'}: {data[start:].hex()}"
        started = self.starts(server, where)
        assert started or not cut, f"did not repair it: {where}"
        self.loaded += started
        self.refused += not started
        if started:
            with server.client() as client:
                for key in filters(client):
                    client.restore("again", 0, client.dump(key), replace=True)

    def starts(self, server, where: str) -> bool:
        """Starts the server. If it refuses the file, it must exit normally, not by a signal. The exception is a file
        that contains a key twice, which makes the server itself panic, whatever the key's type."""
        logged = len(server.log())
        try:
            try:
                server.start()
            except ServerFailed:
                if not server.alive():
                    raise
                server.wait_until_ready()  # the machine may have been suspended
        except ServerFailed as error:
            if "RDB has duplicated key" in server.log()[logged:]:
                return False
            # Redis checks the file before it exits. The status is 0 if only the module found an error.
            assert server.process.returncode >= 0 and not FATAL.search(server.log()[logged:]), f"{error}\n{where}"
            return False
        return True

    def tails(self, count: int) -> None:
        config = {**CONFIG, "appendonly": "yes", "aof-use-rdb-preamble": self.chance.choice(["yes", "no"])}
        with Server(self.server.spec, config=config, module_args=SMALL) as server:
            with server.client() as client:
                for number, (name, dump) in enumerate(self.dumps.items()):
                    client.restore(name, 0, sealed(dump[:-10], OLDEST))
                    prefix = family(client, name)
                    pieces_of(client, name, f"loaded:{name}", prefix)
                    add = [f"{prefix}.ADD", name, f"item:{number}"]
                    pipelined(client, [add, ["BF.BULKADD", f"bulk:{number % 5}", "FIXED", 4, b"adabobevedan" * 9]])
            server.kill()
            folder = server.directory / "appendonlydir"
            written = {path.name: path.read_bytes() for path in folder.iterdir()}
            for number in range(count):
                self.tail(number, server, written)
            server.kill()


# ---- commands -------------------------------------------------------------------------------------------------------


def random_commands(prefix: str, like: list, chance: random.Random, count: int = 50) -> list[list]:
    """Random commands on `hostile`, mostly of its family. The key `copy` holds a filter of the same kind; the filter in
    `other` might be of another kind."""
    key = "hostile"

    def items(most):
        return [f"item:{chance.randrange(200)}" for _ in range(chance.randint(1, most))]

    def blob():
        return b"".join(struct.pack("<I", len(item)) + item.encode() for item in items(60))

    bloom = [
        lambda: ["BF.ADD", key, *items(1)],
        lambda: ["BF.MADD", key, *items(60)],
        lambda: ["BF.ADDNX", key, *items(1)],
        lambda: ["BF.INSERT", key, "ITEMS", *items(10)],
        lambda: ["BF.BULKADD", key, "PREFIXED", blob()],
        lambda: ["BF.BULKADD", key, "FIXED", 4, "adabobevedan"],
        lambda: ["BF.BULKTEST", key, "PREFIXED", blob(), *chance.choice([[], ["COUNT"]])],
        lambda: ["BF.BULKTEST", key, "FIXED", 3, "adabobevedan"],
        lambda: ["BF.DEL", key, *items(1)],
        lambda: ["BF.MDEL", key, *items(10)],
        lambda: ["BF.COUNT", key, *items(1)],
        lambda: ["BF.AGE", key, *items(1)],
        lambda: ["BF.ROTATE", key],
        lambda: ["BF.MEXISTS", key, *items(40)],
        lambda: ["BF.INFO", key],
        lambda: ["BF.STATS", key],
        lambda: ["BF.DEBUG", key],
        lambda: ["BF.EXPORT", key, "OFFSET", chance.choice([0, 7, 1 << 40]), "COUNT", chance.choice([1, 1000])],
        lambda: ["BF.CARD", key],
        lambda: ["BF.SCANDUMP", key, chance.choice([0, 1, 9, 1 << 62])],
        lambda: ["BF.RESERVE", "like", *like, "LIKE", key],
        lambda: ["BF.MERGE", *chance.sample([key, "copy", "other", "like"], 2)],
        lambda: ["BF.MERGE", key, "copy"],
        lambda: ["BF.MERGE", "like", key, "copy"],
        lambda: ["BF.INTERSECT", *chance.choices([key, "copy", "other", "like"], k=3)],
        lambda: ["BF.INTERSECT", "like", key, "copy"],
        lambda: ["BF.EQUAL", key, chance.choice(["copy", "other", "like"])],
    ]
    cuckoo = [
        lambda: ["CF.ADD", key, *items(1)],
        lambda: ["CF.ADDNX", key, *items(1)],
        lambda: ["CF.INSERT", key, "ITEMS", *items(60)],
        lambda: ["CF.INSERTNX", key, "ITEMS", *items(10)],
        lambda: ["CF.DEL", key, *items(1)],
        lambda: ["CF.COUNT", key, *items(1)],
        lambda: ["CF.EXISTS", key, *items(1)],
        lambda: ["CF.MEXISTS", key, *items(40)],
        lambda: ["CF.COMPACT", key],
        lambda: ["CF.INFO", key],
        lambda: ["CF.DEBUG", key],
        lambda: ["CF.SCANDUMP", key, chance.choice([0, 1, 9, 1 << 62])],
    ]
    own, strange = (cuckoo, bloom) if prefix == "CF" else (bloom, cuckoo)
    own += [chance.choice(strange), lambda: ["MEMORY", "USAGE", key], lambda: ["DEBUG", "DIGEST-VALUE", key]]
    commands = [chance.choice(own)() for _ in range(count)]
    return commands + ([["BF.CLEAR", key]] if chance.random() < 0.1 else [])


def pipelined(client, commands: list[list]) -> list:
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute(raise_on_error=False)


def like(client) -> list[bytes]:
    """The error rate and the capacity that BF.RESERVE … LIKE hostile must repeat. The server's error names them."""
    try:
        client.execute_command("BF.RESERVE", "like", 0.5, 1, "LIKE", "hostile")
    except redis.ResponseError as error:
        if found := re.search(r"has error rate (\S+) and capacity (\d+)", str(error)):
            return [found[1], found[2]]
    return [0.5, 1]


def filters(client) -> list[bytes]:
    """Keys that contain a filter. A damaged payload may have loaded as any other type."""
    return [key for key in client.keys() if client.type(key).startswith((b"bloom", b"MBbloom"))]


def pieces_of(client, source: str, target: str, prefix: str) -> None:
    """Copies a filter with SCANDUMP and LOADCHUNK."""
    iterator, piece = client.execute_command(f"{prefix}.SCANDUMP", source, 0)
    while iterator:
        client.execute_command(f"{prefix}.LOADCHUNK", target, iterator, piece)
        iterator, piece = client.execute_command(f"{prefix}.SCANDUMP", source, iterator)


def family(client, key: str) -> str:
    """The prefix of the filter's commands."""
    return "CF" if client.type(key) in (b"bloomeryC", b"MBbloomCF") else "BF"


def whole_items(blob: bytes, form: str, width: int = 0) -> int | None:
    """The number of items in a BF.BULKADD blob, or None if it doesn't consist of whole items."""
    if form == "FIXED":
        return len(blob) // width if 0 < width < 1 << 63 and len(blob) % width == 0 else None
    count = 0
    while blob:
        length = int.from_bytes(blob[:4], "little") if len(blob) >= 4 else len(blob)
        if len(blob) < 4 + length:
            return None
        blob, count = blob[4 + length :], count + 1
    return count


# ---- the run --------------------------------------------------------------------------------------------------------


def processor_seconds(server) -> float:
    with open(f"/proc/{server.process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def corrupt(spec, arguments) -> str:
    chance = random.Random(arguments.seed)
    files = max(2, arguments.count // 250)
    with Server(spec, config=CONFIG, module_args=SMALL) as server:
        suite = Suite(server, chance)
        suite.control()
        before = server.info("memory")
        for number in range(arguments.count):
            suite.restore(number)
            progress(number + 1, arguments.count, "payloads")
        figure = f"{arguments.count:,} payloads ({suite.loaded:,} loaded, {suite.refused:,} refused)"
        # With fewer, the run proves little.
        assert suite.loaded > arguments.count / 10 and suite.refused > arguments.count / 4, figure
        suite.check_outer(True)
        for number in range(arguments.count // 5):
            suite.argument(number)
        suite.client.flushall()
        after = server.info("memory")
        growth = after["used_memory_rss"] - before["used_memory_rss"]
        assert growth < GROWTH, f"{growth} bytes more of resident memory"
        leak = after["used_memory"] - before["used_memory"]
        assert leak < LEAK, f"{leak} bytes more are allocated, without a key"
        server.check()
        for number in range(files):
            suite.rdb(number)
        suite.tails(files)
        server.check()
    return (
        f"{figure}, {arguments.count // 5:,} blobs, {files} RDB files, {files} append-only files, 0 crashes, "
        f"the longest took {suite.longest:.2f} s, {max(growth, 0) / (1 << 20):.1f} MiB more resident memory"
    )


def main() -> None:
    parser = options("corrupt", __doc__, count=25_000, unit="payloads restored")
    run(corrupt, parser)
