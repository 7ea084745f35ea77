"""Loads filters with LOADCHUNK in random sequences: the server refuses every wrong piece, and no key has half a filter.

The suite sends pieces of several filters to a few keys in turn: heads alone, and chunks that are out of order,
repeated, overlapping, damaged, from another filter, sent by the other family's command, or under a wrong iterator.
Clients are killed between two chunks and within one; keys appear and disappear. Between any two pieces the client might
end the load or give the key a value (with SET, RENAME, COPY or an add), all keys might be flushed, or the server might
briefly have no memory. A model predicts whether each piece is accepted and whether each key exists. A key must not
exist before its filter is complete. The complete filter must equal the dumped one, and it can be copied, and restored
from its own DUMP. The model also predicts the number of unfinished loads and the total size of their filters, and
limits the memory that the loads may use.

The server writes an append-only file, and so does its replica, which has a replica of its own. Every now and then a
server restarts, does a full sync, or rewrites its file with or without an RDB part, or a new replica joins, usually in
the middle of loads. Afterwards all servers must have the same keys and the expected loads, and each load continues when
its next piece arrives.
"""

import dataclasses
import random
import socket
import struct

import redis

from kit.damage import flip, sources
from kit.filters import pieces
from kit.metrics import figures
from kit.payload import PREFIX as CHUNK_PREFIX
from kit.payload import seal_chunk
from kit.resync import sync_in_some_way
from kit.servers import rewrite, saves_loads, wait_for
from kit.suite import Server, options, progress, run

KEYS = [f"target:{number}" for number in range(4)]
RESTART_EVERY = 500  # sequences
DISTURB_EVERY = 25
OTHER = {"BF": "CF", "CF": "BF"}

SOURCES = [
    "fixed/one", "scaling/full", "constant/grown", "counting-8/full", "window/rotated", "window-every/full",
    "cuckoo/deleted", "cuckoo-constant/grown", "cuckoo-padded/compacted", "go-zero",
    "MBbloom--/4", "MBbloom--/fixed", "MBbloomCF/4", "redisbloom/bf:default", "redisbloom/cf:default",
]  # fmt: skip


@dataclasses.dataclass
class Source:
    """A dumped filter."""

    name: str
    prefix: str
    head: bytes
    arrays: list[range]  # byte ranges of the body: each chunk lies within one of them
    body: bytes
    stamp: bytes | None  # only in our own chunks: RedisBloom's contain nothing but data
    digest: bytes

    @classmethod
    def dumped(cls, client, name: str) -> "Source":
        prefix = "CF" if name.removeprefix("redisbloom/").startswith(("cuckoo", "MBbloomCF", "cf:")) else "BF"
        (_, head), *chunks = pieces(client, name, prefix)
        native = head.startswith(b"BLMY")
        stamp = chunks[0][1][12:16] if native else None
        arrays, body = [], b""
        for _, chunk in chunks:
            data = chunk[CHUNK_PREFIX:] if native else chunk
            arrays.append(range(len(body), len(body) + len(data)))
            body += data
        (digest,) = client.execute_command("DEBUG", "DIGEST-VALUE", name)
        return cls(name, prefix, head, arrays, body, stamp, digest)
    def piece(self, start: int, end: int) -> tuple[int, bytes]:
        """The iterator that loads the body's bytes from `start` to `end`, and the chunk with these bytes."""
        data = self.body[start:end]
        if self.stamp:
            data = seal_chunk(struct.pack("<QI", start, len(data)) + bytes(8) + data, self.stamp)
        return 1 + end, data

    def array(self, at: int) -> range:
        return next(array for array in self.arrays if at in array)

    def cut(self, chance: random.Random, start: int) -> int:
        """A possible end of a chunk that begins at `start`."""
        unit = 8 if self.stamp else 1
        end = self.array(start).stop
        return end if chance.random() < 0.6 else chance.randrange(start, end, unit) + unit


@dataclasses.dataclass
class Load:
    """The part of a filter that has been sent."""

    source: Source
    covered: bytearray
    sent: int = 0  # bytes
    missed: bool = False  # the append-only file was rewritten without this load

    @property
    def next(self) -> int:
        """The first byte that is missing."""
        return self.covered.find(0)

    def is_complete(self) -> bool:
        return self.next < 0


class Sequences:
    """The client's side: what it sends, and what it expects."""

    def __init__(self, server, client, seed: int):
        self.server, self.chance = server, random.Random(seed)
        # Whether a load ends when its key gets another value. On Valkey it doesn't: the module would have to subscribe
        # to such changes of keys, and MOVE would then leave the key in both databases.
        self.overwriting_ends = server.spec.product != "valkey"
        dumps = sources(client)
        for name in SOURCES:
            client.restore(name, 0, dumps[name])
        self.sources = [Source.dumped(client, name) for name in SOURCES]
        client.flushall()
        self.client = client
        self.loads: dict[str, Load] = {}
        self.complete: dict[str, bytes | None] = {}  # each key's digest; None if its value isn't a filter we loaded
        self.pieces = self.refused = self.filters = self.killed = self.restarts = self.ended = self.disturbed = 0
        self.replica = server.replica(config=CONFIG)
        self.last = self.replica.replica(config=CONFIG)
        self.batch: list[tuple[list, object]] = []  # commands, and the replies they must get

    # ---- the model --------------------------------------------------------------------------------------------------

    def send(self, key: str, prefix: str, iterator: int, data: bytes, meaning: Source | tuple | None) -> None:
        """Sends a piece. `meaning` is the source of a head, (source, start, end) for a chunk, otherwise None."""
        taken = key not in self.complete and self.takes(key, prefix, iterator, meaning)
        self.pieces += 1
        self.refused += not taken
        self.batch.append(([f"{prefix}.LOADCHUNK", key, iterator, data], b"OK" if taken else redis.ResponseError))
        load = self.loads.get(key)
        if taken and load and load.is_complete():
            del self.loads[key]
            self.filters += 1
            self.complete[key] = load.source.digest
            self.batch += [
                (["DEBUG", "DIGEST-VALUE", key], [load.source.digest]),
                (["COPY", key, "copy", "REPLACE"], 1),
                (["DEBUG", "DIGEST-VALUE", "copy"], [load.source.digest]),
            ]
        self.batch.append((["EXISTS", key], int(key in self.complete)))

    def takes(self, key: str, prefix: str, iterator: int, meaning) -> bool:
        if isinstance(meaning, Source):
            if prefix != meaning.prefix or iterator != 1:
                return False
            self.ended += key in self.loads
            self.loads[key] = Load(meaning, bytearray(len(meaning.body)), len(meaning.head))
            return True
        load = self.loads.get(key)
        if meaning is None or not load or iterator == 1 or load.source.prefix != prefix:
            return False
        source, start, end = meaning
        if source is not load.source or (source.stamp and start != load.next):
            return False
        if source.stamp and iterator != 1 + end:
            del self.loads[key]  # the right chunk under a wrong iterator: the server ends the load
            return False
        load.covered[start:end] = b"\1" * (end - start)
        load.sent += end - start
        return True

    # ---- a sequence -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        keys = self.chance.sample(KEYS, self.chance.randint(1, 3))
        steps = [self.proceed] * 24 + [self.head] * 3 + [self.again] * 2 + [self.early] * 2
        steps += [self.damaged, self.stranger, self.wrong_iterator, self.other_family, self.remove, self.remove]
        steps += [self.end, self.overwrite, self.without_memory]
        for _ in range(self.chance.randint(1, 30)):
            self.chance.choice(steps)(self.chance.choice(keys))
            if self.chance.random() < 0.02:
                self.flush()
                self.kill(self.chance.choice(keys))
            if self.chance.random() < 0.02:
                self.flush_all()
        self.flush()
        self.weigh()

    def weigh(self) -> None:
        """Checks the server's number of unfinished loads and the size of their filters, and that the loads' memory
        stays within a limit."""
        wait_for(lambda: figures(self.client)["freeing_bytes"] == 0, "what was dropped to be freed")
        seen = figures(self.client)
        loads = self.loads.values()
        assert seen["loads"] == len(loads), f"{seen['loads']} loads instead of {len(loads)}"
        assert seen["load_bytes"] == sum(len(load.source.body) for load in loads), seen
        assert seen["load_held_bytes"] <= sum(3 * load.sent + 64 * len(load.source.body) + 256 for load in loads), seen
        if not loads:
            assert seen["load_held_bytes"] == 0, seen

    def flush(self) -> None:
        """Sends the batch, and compares the replies with the expected ones."""
        with self.client.pipeline(transaction=False) as pipeline:
            for command, _ in self.batch:
                pipeline.execute_command(*command)
            replies = pipeline.execute(raise_on_error=False)
        for (command, expected), reply in zip(self.batch, replies, strict=True):
            fits = isinstance(reply, expected) if isinstance(expected, type) else reply == expected
            assert fits, f"{short(command)}: {reply!r} instead of {expected!r}, at the end of\n{self.story(command)}"
        self.batch = []

    def story(self, last: list) -> str:
        commands = [command for command, _ in self.batch]
        return "\n".join(map(short, commands[: commands.index(last) + 1]))

    def head(self, key: str) -> None:
        """Begins a load, or restarts it with another filter."""
        source = self.chance.choice(self.sources)
        self.send(key, source.prefix, 1, source.head, source)

    def proceed(self, key: str) -> None:
        """Does what a correct client would do next."""
        if key in self.complete:
            return self.remove(key) if self.chance.random() < 0.5 else self.again(key)
        if key not in self.loads:
            return self.head(key)
        load = self.loads[key]
        start = load.next
        if not load.source.stamp:  # in any order
            start = self.chance.choice([start, self.chance.randrange(len(load.covered))])
        self.chunk(key, load.source, start, load.source.cut(self.chance, start))

    def chunk(self, key: str, source: Source, start: int, end: int, iterator: int = 0, prefix: str = "") -> None:
        right, data = source.piece(start, end)
        self.send(key, prefix or source.prefix, iterator or right, data, (source, start, end))

    def source_of(self, key: str) -> Source:
        return self.loads[key].source if key in self.loads else self.chance.choice(self.sources)

    def again(self, key: str) -> None:
        """Sends a chunk from anywhere: one that was already sent, one that overlaps, or one that leaves a gap."""
        source = self.source_of(key)
        unit = 8 if source.stamp else 1
        start = self.chance.randrange(0, len(source.body), unit)
        self.chunk(key, source, start, source.cut(self.chance, start))

    def early(self, key: str) -> None:
        """Sends the last chunk before its turn."""
        source = self.source_of(key)
        self.chunk(key, source, source.arrays[-1].start, len(source.body))

    def damaged(self, key: str) -> None:
        """Sends a damaged piece. Our own pieces have checksums, so any byte can be wrong; in RedisBloom's, only a wrong
        length reveals damage."""
        source = self.source_of(key)
        whole = self.chance.choice([source.head, source.piece(source.arrays[0].start, source.arrays[0].stop)[1]])
        iterator = 1 if whole is source.head else 1 + source.arrays[0].stop
        data = self.chance.choice([b"", whole[:-1]] if whole is source.head else [b""])
        if source.stamp and self.chance.random() < 0.7:
            data = flip(whole, self.chance)
        if data != whole:
            self.send(key, source.prefix, iterator, data, None)

    def stranger(self, key: str) -> None:
        """Sends a chunk of another filter of ours. RedisBloom's chunks don't say which filter they belong to."""
        source = self.chance.choice([source for source in self.sources if source.stamp])
        self.chunk(key, source, 0, source.cut(self.chance, 0))

    def wrong_iterator(self, key: str) -> None:
        """Sends a chunk under a wrong iterator. In our own format, the chunk itself is right. In RedisBloom's, it would
        end beyond the filter, or begin before it."""
        source = self.source_of(key)
        if source.stamp:
            start = self.loads[key].next if key in self.loads else 0
            end = source.cut(self.chance, start)
            wrong = self.chance.choice([2, end, end + 2, 1 << 62, (1 << 63) - 1])
            self.chunk(key, source, start, end, wrong)
        else:
            wrong = self.chance.choice([2, 8, 1 + len(source.body) + 1, 1 << 62, (1 << 63) - 1])
            self.send(key, source.prefix, wrong, source.body[:8], None)

    def other_family(self, key: str) -> None:
        source = self.source_of(key)
        if self.chance.random() < 0.5:
            self.send(key, OTHER[source.prefix], 1, source.head, None)
        else:
            start = source.arrays[0].start
            self.chunk(key, source, start, source.arrays[0].stop, prefix=OTHER[source.prefix])

    def remove(self, key: str) -> None:
        """Deletes the key if it exists. If it doesn't, the server doesn't notify the module, so no load ends."""
        self.batch.append((["DEL", key], int(key in self.complete)))
        self.complete.pop(key, None)
        self.batch.append((["EXISTS", key], 0))

    def end(self, key: str) -> None:
        """Ends the load with SCANDUMP's last reply. The server refuses this if there is no load, or if the load belongs
        to the other family."""
        load, prefix = self.loads.get(key), self.chance.choice(["BF", "CF"])
        waits = load is not None and load.source.prefix == prefix
        self.batch.append(([f"{prefix}.LOADCHUNK", key, 0, b""], b"OK" if waits else redis.ResponseError))
        if waits:
            self.ended += 1
            del self.loads[key]

    def overwrite(self, key: str) -> None:
        """Gives the key another value. On Redis, this ends the key's load. On Valkey, the load waits until the key is
        gone."""
        way = self.chance.choice(["SET", "RENAME", "COPY", "ADD"])
        match way:
            case "SET":
                self.batch.append((["SET", key, "text"], True))
            case "RENAME":
                self.batch += [(["SET", "other", "text"], True), (["RENAME", "other", key], True)]
            case "COPY":
                self.batch += [(["SET", "other", "text"], True), (["COPY", "other", key, "REPLACE"], 1)]
                self.batch.append((["DEL", "other"], 1))
            case "ADD" if key not in self.complete:
                self.batch.append((["BF.ADD", key, "item"], 1))
            case "ADD":
                return
        if self.overwriting_ends:
            self.ended += self.loads.pop(key, None) is not None
        self.complete[key] = None
        self.batch.append((["EXISTS", key], 1))

    def without_memory(self, key: str) -> None:
        """Sends pieces while the server is above its memory limit. The server refuses them, but keeps the loads,
        because these are small."""
        source = self.source_of(key)
        refused = redis.exceptions.OutOfMemoryError
        iterator, data = source.piece(source.arrays[0].start, source.arrays[0].stop)
        self.batch += [
            (["CONFIG", "SET", "maxmemory", 1000], b"OK"),
            ([f"{source.prefix}.LOADCHUNK", key, 1, source.head], refused),
            ([f"{source.prefix}.LOADCHUNK", key, iterator, data], refused),
            (["CONFIG", "SET", "maxmemory", 0], b"OK"),
        ]

    def flush_all(self) -> None:
        """Flushes all keys, which ends all loads."""
        self.batch.append((["FLUSHALL"], True))
        self.ended += len(self.loads)
        self.loads.clear()
        self.complete.clear()

    def kill(self, key: str) -> None:
        """Disconnects the client, sometimes in the middle of a piece. The pieces that it sent are kept for the next
        client."""
        self.killed += 1
        if self.chance.random() < 0.5:
            return self.client.connection_pool.disconnect()
        source = self.source_of(key)
        iterator, data = source.piece(source.arrays[0].start, source.arrays[0].stop)
        words = [f"{source.prefix}.LOADCHUNK".encode(), key.encode(), str(iterator).encode(), data]
        request = b"*4\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        with socket.create_connection(("127.0.0.1", self.server.port)) as half:
            half.sendall(request[: self.chance.randrange(1, len(request) - 1)])

    # ---- restarts, replicas and rewritten files ---------------------------------------------------------------------

    def waits_elsewhere(self, load: Load) -> bool:
        """Whether replicas and files have the pieces that have been sent so far."""
        return bool(load.source.stamp) and not load.missed and saves_loads(self.server.spec)

    def disturb(self) -> None:
        """Rewrites a file, syncs or restarts a replica, or adds a new one, usually in the middle of loads."""
        self.disturbed += 1
        match self.chance.choice(["rewrite", "rewrite", "sync", "restart", "join"]):
            case "rewrite":
                preamble = self.chance.choice(["yes", "no"])
                self.client.config_set("aof-use-rdb-preamble", preamble)
                rewrite(self.server, self.client)
                for load in self.loads.values():
                    load.missed |= preamble == "no"
            case "sync":
                for server in (self.server, self.replica):
                    sync_in_some_way(server, self.chance)
                self.replica.command("REPLICAOF", "NO", "ONE")
                self.replica.command("SET", "own", "x")
                self.replica.command("REPLICAOF", "127.0.0.1", self.server.port)
            case "restart":
                server = self.chance.choice([self.replica, self.last])
                # Don't stop a server while it writes its first file.
                wait_for(lambda: not server.info("persistence")["aof_rewrite_in_progress"], "a rewrite to end")
                server.restart(kill=self.chance.random() < 0.5)
            case "join":
                self.replica.replicas.remove(self.last)
                self.last.destroy()
                self.last = self.replica.replica(config=CONFIG)
        self.compare()

    def compare(self) -> None:
        self.server.wait_until_online(self.replica)
        self.replica.wait_until_online(self.last)
        self.server.wait_for_replicas()
        self.replica.wait_for_replicas()
        keys = sorted(self.client.keys())
        waiting = list(self.loads)
        for replica in (self.replica, self.last):
            with replica.client() as there:
                assert sorted(there.keys()) == keys, replica
                for key in keys:
                    digests = [client.execute_command("DEBUG", "DIGEST-VALUE", key) for client in (self.client, there)]
                    assert digests[0] == digests[1], (replica, key)
                expected = [key for key in waiting if self.waits_elsewhere(self.loads[key])]
                seen = figures(there)["loads"]
                # If a file was rewritten without a load, other servers end that load when its next piece arrives.
                assert len(expected) <= seen <= len(waiting), (replica, seen, expected, waiting)

    def restart(self) -> None:
        """Restarts the server. All filters must be unchanged, and the loads that its files contain must be waiting."""
        self.restarts += 1
        client, there = self.client, [key for key, digest in self.complete.items() if digest]
        for key in there:
            client.restore("again", 0, client.dump(key), replace=True)
            assert client.execute_command("DEBUG", "DIGEST-VALUE", "again") == [self.complete[key]], key
        client.delete("again", "copy")
        self.server.restart(kill=self.chance.random() < 0.5)
        assert sorted(client.keys()) == sorted(key.encode() for key in self.complete)
        for key in there:
            assert client.execute_command("DEBUG", "DIGEST-VALUE", key) == [self.complete[key]], key
            assert client.copy(key, "copy", replace=True), key
        for key, load in list(self.loads.items()):
            if not self.waits_elsewhere(load):
                del self.loads[key]
        assert figures(client)["loads"] == len(self.loads)
        self.compare()


def short(command: list) -> str:
    words = [word.hex() if isinstance(word, bytes) else str(word) for word in command]
    return " ".join(word if len(word) < 100 else f"{word[:80]}… ({len(word) // 2} bytes)" for word in words)


CONFIG = {
    "rdbcompression": "no", "maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "no",
    "auto-aof-rewrite-percentage": "0", "repl-diskless-sync-delay": "0", "replica-ignore-maxmemory": "yes",
}  # fmt: skip


def chunks(spec, arguments) -> str:
    with Server(spec, config=CONFIG) as server, server.client(socket_timeout=200) as client:
        sequences = Sequences(server, client, arguments.seed)
        for number in range(1, arguments.count + 1):
            sequences.run()
            if number % DISTURB_EVERY == 0:
                sequences.disturb()
            if number % RESTART_EVERY == 0 or number == arguments.count:
                sequences.restart()
            progress(number, arguments.count, "sequences")
        server.check()
    for count in [sequences.filters, sequences.refused, sequences.ended]:
        assert count > arguments.count / 20  # with fewer, the run proves little
    return (
        f"{arguments.count:,} sequences of {sequences.pieces:,} pieces, {sequences.refused:,} refused, "
        f"{sequences.filters:,} filters complete, {sequences.ended:,} loads ended, {sequences.killed:,} clients killed, "
        f"{sequences.restarts} restarts, {sequences.disturbed} syncs, rewrites and joins, 0 differences"
    )


def main() -> None:
    parser = options("chunks", __doc__, count=20_000, unit="sequences")
    run(chunks, parser)
