"""Loads millions of lines with `bloomery load`, compares its time with that of the commands alone, and interrupts it.

"The commands alone" means the same BF.BULKADD commands, prepared in advance and sent one after the other over one
connection. With a million lines or more, the load may take at most 1.5 times as long as these commands. Both are
measured three times, alternately, and the medians are compared. Then the load is stopped eight times at random moments,
by SIGINT or SIGKILL, and started again with the same command. In the end the filter must equal one that was filled
without interruption."""

import random
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from kit.program import MISSING, PROGRAM
from kit.suite import Server, options, progress, run

WIDTH = 14  # bytes in a line
BATCH = 32_768  # items in each command that the program sends
MOST = 1.5
STOPS = 8


def lines(first: int, count: int) -> list[bytes]:
    return [b"user:%09d" % number for number in range(first, first + count)]


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def commands(count: int) -> list[bytes]:
    """A command for each batch, as the bytes that are sent."""
    prefix = WIDTH.to_bytes(4, "little")
    parts = (lines(first, min(BATCH, count - first)) for first in range(0, count, BATCH))
    return [command(b"BF.BULKADD", b"raw", b"PREFIXED", b"".join(prefix + line for line in part)) for part in parts]


def seconds_alone(server: Server, requests: list[bytes]) -> float:
    with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as replies:
        started = time.perf_counter()
        for request in requests:
            connection.sendall(request)
            reply = replies.readline()
            assert reply.startswith(b":"), reply
        return time.perf_counter() - started


def load(server: Server, path: Path, *more) -> list:
    return [PROGRAM, "load", "loaded", path, "--port", str(server.port), "--quiet", *more]


def load_lines(spec, arguments) -> str:
    count, rng = arguments.count, random.Random(arguments.seed)
    assert PROGRAM.exists(), MISSING
    with tempfile.TemporaryDirectory(prefix="bloomery-load-") as folder, Server(spec) as server:
        path = Path(folder) / "lines.txt"
        with open(path, "wb") as file:
            for first in range(0, count, 1_000_000):
                part = lines(first, min(1_000_000, count - first))
                file.write(b"\n".join(part) + b"\n")
        requests = commands(count)

        def reserve(key: str) -> None:
            server.command("DEL", key)
            server.command("BF.RESERVE", key, "0.01", str(count + count // 20 + 100), "NONSCALING", "SEED", "7")

        alone, loaded = [], []
        for turn in range(3):
            reserve("raw")
            alone.append(seconds_alone(server, requests))
            reserve("loaded")
            started = time.perf_counter()
            subprocess.run(load(server, path), check=True, stdout=subprocess.DEVNULL)
            loaded.append(time.perf_counter() - started)
            progress(turn + 1, 3, "turns")
        with server.client() as client:
            assert client.execute_command("BF.EQUAL", "raw", "loaded") == 1
        raw, took = statistics.median(alone), statistics.median(loaded)
        ratio = took / raw
        assert count < 1_000_000 or ratio <= MOST, f"{took:.2f} s, and {raw:.2f} s for the commands alone"

        reserve("loaded")
        resumable, stops = load(server, path, "--resume"), 0
        for _ in range(STOPS):
            process = subprocess.Popen(resumable, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(rng.uniform(0, took / STOPS))
            process.send_signal(rng.choice([signal.SIGINT, signal.SIGKILL]))
            _, said = process.communicate(timeout=60)
            stops += process.returncode in (130, -signal.SIGKILL)
            assert process.returncode in (0, 130, -signal.SIGKILL, -signal.SIGINT), said
        subprocess.run(resumable, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with server.client() as client:
            assert client.execute_command("BF.EQUAL", "raw", "loaded") == 1, "lines are missing"
    return (
        f"{count:,} lines in {took:.2f} s, the commands alone in {raw:.2f} s: {ratio:.2f} times as long; "
        f"stopped {stops} times and resumed, no line missing"
    )


def main() -> None:
    run(load_lines, options("load", __doc__, 10_000_000, "lines"))
