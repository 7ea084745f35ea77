"""Restarts after interrupted work: killed snapshots, rewrites and syncs, and files cut at every byte.

Kills: kill -9 of a server, of its children, or of both, in the middle of BGSAVE, BGREWRITEAOF or a full sync. In a full
sync, the killed server may also be the replica. Keys are saved and loaded slowly, so that there is time to interrupt,
and clients write at the same time. After an interrupted snapshot, the server must have either the previous snapshot or
a complete new one. After a rewrite, it must have everything that was acknowledged. After a sync, the replica must
become equal to its primary.

Cuts: the append-only file is cut at every byte of its last commands in turn, including commands within transactions.
For comparison, a server without the module gets a file in which each of our commands is replaced by a SET of the same
length. With `aof-load-truncated yes` both servers must start, execute all whole commands and transactions, and leave a
file of the same length. With `no`, both must refuse to start if a command or transaction is incomplete, and start after
`check-aof --fix`.
"""

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from kit.appendonly import parse
from kit.expected import every_kind
from kit.filters import KINDS, make_all, pieces
from kit.servers import ServerFailed, wait_for
from kit.suite import Server, clients, options, progress, run
from kit.workload import digests

APPEND_ONLY = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": 0}
MODULE_ARGS = ["THREADS", 2, "OFFLOAD_MIN_ITEMS", 5000]
SAVE_SLOWLY = {"rdb-key-save-delay": 20_000}  # µs for each key; a save takes about a third of a second
LOAD_SLOWLY = {"key-load-delay": 10_000}


def restart(spec, arguments) -> str:
    kills = kill_all(spec, arguments) if arguments.count else "no kills"
    cuts = cut_all(spec, arguments) if arguments.cuts != 0 else "no cuts"
    return f"{kills}; {cuts}"


# ---- kills ----------------------------------------------------------------------------------------------------------


def kill_all(spec, arguments) -> str:
    chance = random.Random(arguments.seed)
    middles = Counter()
    for number in range(arguments.count):
        work = [snapshot, rewrite, full_sync][number % 3]
        middles[work.__name__] += work(spec, f"{arguments.seed}/{number}", chance)
        progress(number + 1, arguments.count, "kills")
    figures = ", ".join(f"{count} in the middle of a {name.replace('_', ' ')}" for name, count in middles.items())
    return f"{arguments.count} kills, {figures}: nothing lost"


def snapshot(spec, seed: str, chance: random.Random) -> bool:
    with Server(spec, config=SAVE_SLOWLY, module_args=MODULE_ARGS) as server:
        writers = every_kind(seed)
        write(server, writers, 25)
        server.command("CONFIG", "SET", "rdb-key-save-delay", 0)
        server.command("SAVE")
        server.command("CONFIG", "SET", "rdb-key-save-delay", SAVE_SLOWLY["rdb-key-save-delay"])
        last = state(server)
        write(server, writers, 25)
        this = state(server)
        assert this != last
        server.command("BGSAVE")
        with clients(server, [writer.write for writer in writers]):
            time.sleep(chance.uniform(0, 0.4))
            busy = kill(server, chance, lambda: server.info("persistence")["rdb_bgsave_in_progress"])
        server.start_somewhere()
        found = state(server)
        assert found == this or (busy and found == last), "neither this snapshot nor the one before it"
        server.check()
    return busy


def rewrite(spec, seed: str, chance: random.Random) -> bool:
    preamble = {"aof-use-rdb-preamble": chance.choice(["yes", "no"])}
    with Server(spec, config=APPEND_ONLY | SAVE_SLOWLY | preamble, module_args=MODULE_ARGS) as server:
        writers = every_kind(seed)
        write(server, writers, 25)

        def busy() -> int:
            return server.info("persistence")["aof_rewrite_in_progress"]

        with clients(server, [writer.write for writer in writers]):
            server.command("BGREWRITEAOF")
            time.sleep(chance.uniform(0, 0.4))
            was_busy = kill(server, chance, busy)
        server.start_somewhere()
        settle(server, writers)
        # The leftovers of the rewrite must not prevent the next one.
        before = state(server)
        server.command("CONFIG", "SET", "rdb-key-save-delay", 0)
        wait_for(lambda: not busy(), "the rewrite that a start may begin")
        server.command("BGREWRITEAOF")
        wait_for(lambda: not busy(), "the rewrite")
        assert server.info("persistence")["aof_last_bgrewrite_status"] == "ok"
        server.kill()
        server.start_somewhere()
        assert state(server) == before
        server.check()
    return was_busy


def full_sync(spec, seed: str, chance: random.Random) -> bool:
    diskless = {"repl-diskless-sync": chance.choice(["yes", "no"])}
    load = {"repl-diskless-load": chance.choice(["disabled", "on-empty-db", "swapdb"])}
    with Server(spec, config=APPEND_ONLY | SAVE_SLOWLY | diskless, module_args=MODULE_ARGS) as primary:
        replica = Server(spec, config=LOAD_SLOWLY | load, module_args=MODULE_ARGS)
        primary.replicas.append(replica)
        writers = every_kind(seed)
        write(primary, writers, 25)

        def busy() -> bool:
            return replica.info("replication")["master_link_status"] != "up"

        with clients(primary, [writer.write for writer in writers]):
            replica.command("REPLICAOF", "127.0.0.1", primary.port)
            time.sleep(chance.uniform(0.05, 0.7))
            was_busy = kill(chance.choice([primary, primary, replica]), chance, busy)
        for server in (primary, replica):
            if not server.alive():
                server.start_somewhere()
        settle(primary, writers)
        primary.command("CONFIG", "SET", "rdb-key-save-delay", 0)
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        primary.wait_until_online(replica)
        primary.wait_for_replicas()
        settle(replica, writers)
        assert state(primary) == state(replica)
        primary.check()
    return was_busy


def kill(server, chance: random.Random, busy) -> bool:
    """Kills the server, its children, or all of them. If only the children are killed, the server must survive, and is
    killed a moment later. Returns whether the work was still in progress."""
    was_busy, victim = bool(busy()), chance.choice(["server", "children", "all"])
    pid = server.process.pid
    processes = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if victim != "children":
        server.kill()
    if victim != "server":
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
    if victim == "children":
        time.sleep(0.2)  # the server continues, and notices
        assert server.alive(), server.explain("died with its child")
        server.kill()
    return was_busy


def write(server, writers, turns: int) -> None:
    """Lets the writers write a little, without interruptions."""
    with server.client() as client:
        for writer in writers:
            left = iter(range(turns))
            writer.write(client, lambda left=left: next(left, None) is not None)


def settle(server, writers) -> None:
    with server.client() as client:
        for writer in writers:
            writer.settle(client)


def state(server) -> dict:
    with server.client() as client:
        return digests(client)


# ---- cuts -----------------------------------------------------------------------------------------------------------


def cut_all(spec, arguments) -> str:
    with tempfile.TemporaryDirectory(prefix="bloomery-cuts-") as folder:
        ours, stock = Path(folder) / "ours", Path(folder) / "stock"
        name, ends = record(spec, ours)
        counts = imitate(spec, ours / name, stock)
        cuts = list(range(ends[0][0], ends[-1][0] + 1))
        if arguments.cuts is not None:
            cuts = random.Random(arguments.seed).sample(cuts, min(arguments.cuts, len(cuts)))
        refusals = 0
        with (
            Server(spec, config=APPEND_ONLY, module_args=MODULE_ARGS) as with_module,
            Server(spec, config=APPEND_ONLY, module=None) as without,
        ):
            for number, cut in enumerate(cuts):
                whole, expected = [(end, state) for end, state in ends if end <= cut][-1]
                for tolerant in ("yes", "no"):
                    outcome = brought_up(with_module, ours, name, cut, tolerant)
                    control = brought_up(without, stock, name, cut, tolerant)
                    assert outcome == control, f"cut at byte {cut}: {outcome}, and a stock server {control}"
                    assert state(with_module) == expected, f"cut at byte {cut}: not what was there after byte {whole}"
                    assert without.command("DBSIZE") == counts[whole], f"the control, cut at byte {cut}"
                    refused, _ = outcome
                    refusals += refused
                progress(number + 1, len(cuts), "cuts")
    length = ends[-1][0] - ends[0][0]
    return f"{len(cuts)} cuts in the last {length} bytes, {refusals} refused until repaired, all as stock"


def record(spec, folder: Path) -> tuple[str, list[tuple[int, dict]]]:
    """Writes our append-only file to the folder. Returns its name, and the offsets at which commands end, each with the
    digests at that point."""
    with Server(spec, config=APPEND_ONLY | base(spec), module_args=MODULE_ARGS) as server, server.client() as client:
        # The base file contains filters, which check-aof must skip.
        make_all(client, [kind for kind in KINDS if kind.capacity < 1000])
        last = last_commands(client)
        file = rewritten(server)
        client.execute_command("BF.ADD", "seen", "ada")  # follows the SELECT at the start of the file
        ends = [(file.stat().st_size, digests(client))]
        for commands in last:
            with client.pipeline(transaction=len(commands) > 1) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                pipeline.execute()
            ends.append((file.stat().st_size, digests(client)))
        server.kill()
        shutil.copytree(file.parent, folder)
        return file.name, ends


def base(spec) -> dict:
    """The configuration of the base file's format. Since Valkey 9, check-aof can't read its own server's RDB files,
    with or without the module."""
    return {"aof-use-rdb-preamble": "no" if spec.product == "valkey" and spec.version >= (9,) else "yes"}


def last_commands(client) -> list[list[list]]:
    """The file's last commands, in groups. A group of several commands is sent as a transaction."""
    client.execute_command("BF.RESERVE", "window", 0.1, 10, "WINDOW", 2)
    client.execute_command("BF.RESERVE", "counting", 0.1, 10, "COUNTING")
    client.execute_command("BF.RESERVE", "away", 0.1, 4)
    client.execute_command("BF.ADD", "away", "ada")
    return [
        [["BF.ADD", "seen", "bob"]],
        [["BF.MADD", "counting", "ada", "ada"], ["BF.DEL", "counting", "ada"], ["CF.ADD", "cuckoo", "ada"]],
        [["BF.INSERT", "created", "CAPACITY", 10, "ITEMS", "ada"]],
        [["BF.BULKADD", "seen", "FIXED", 3, "evedan"]],
        [["BF.ROTATE", "window"]],
        [["CF.DEL", "cuckoo", "ada"]],
        *[[["BF.LOADCHUNK", "back", iterator, piece]] for iterator, piece in pieces(client, "away", "BF")],
    ]


def imitate(spec, ours: Path, folder: Path) -> dict[int, int]:
    """Writes a file that has a SET of the same length in place of each of our commands. Returns the number of keys
    after each command, by the offset of its end."""
    with Server(spec, config=APPEND_ONLY | base(spec), module=None) as server:
        file = rewritten(server)
        server.kill()
        shutil.copytree(file.parent, folder)
    assert file.name == ours.name
    text, keys, counts = b"", 0, {}
    for words in parse(ours.read_bytes()):
        command = encoded(*words)
        if words[0].lower() not in (b"select", b"multi", b"exec"):
            keys += 1
            command = as_long(keys, len(command))
        text += command
        counts[len(text)] = keys
    (folder / file.name).write_bytes(text)
    assert len(text) == ours.stat().st_size
    return counts


def encoded(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def as_long(number: int, length: int) -> bytes:
    """A SET of a new key, encoded in exactly `length` bytes."""
    for digits in (2, 3):  # neither gives all lengths: one is skipped where the value's length gains a digit
        for size in range(length):
            command = encoded(b"SET", b"%0*d" % (digits, number), bytes(size))
            if len(command) == length:
                return command
    raise ValueError(f"no SET has {length} bytes")


def rewritten(server) -> Path:
    """Rewrites the append-only file. Returns the incremental file that follows."""
    with server.client() as client:
        client.bgrewriteaof()
        wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the rewrite")
    (file,) = (server.directory / "appendonlydir").glob("*.incr.aof")
    return file


def brought_up(server, folder: Path, name: str, cut: int, tolerant: str) -> tuple[bool, int]:
    """Starts the server with the first `cut` bytes of the file. Returns whether it refused to start before a repair,
    and the final length of the file."""
    server.kill()
    target = server.directory / "appendonlydir"
    shutil.rmtree(target)
    shutil.copytree(folder, target)
    os.truncate(target / name, cut)
    server.config["aof-load-truncated"] = tolerant
    refused = False
    try:
        server.start_somewhere()
    except ServerFailed:
        refused = True
        assert tolerant == "no" and "Unexpected end of file" in server.log()[-2000:], server.log_tail()
        repair(server)
        server.start_somewhere()
    return refused, (target / name).stat().st_size


def repair(server) -> None:
    """Repairs the file as an operator would, with redis-check-aof --fix or valkey-check-aof --fix."""
    done = server.check_file("aof", "--fix", "appendonlydir/appendonly.aof.manifest", input="y\n")
    assert done.returncode == 0, done.stdout


def main() -> None:
    parser = options("restart", __doc__, 100, "kills")
    parser.add_argument("--cuts", type=int, metavar="N", help="at N of the bytes, at random; 0 for none (at all of them)")
    run(restart, parser)
