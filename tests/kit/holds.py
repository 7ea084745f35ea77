"""Measures how long a command holds a server's main thread without a break, while no other client is served.

Another client sends PING all the time. The longest hold is the longest time between two replies to it, in CPU time of
the main thread or in wall-clock time, whichever is less. So time that the workers or other programs use doesn't count.
The system updates the CPU time of a running thread every few milliseconds (4 with CONFIG_HZ=250), so a hold can seem
longer by that much. If the measuring client itself has to wait for the CPU, it sees two holds as one. So a hold that
seems too long should be measured again: the smallest of several measurements is closest to the truth."""

import dataclasses
import os
import socket
import threading
import time

import redis


@dataclasses.dataclass
class Hold:
    """The longest time for which a command held the main thread, and a description of what it did."""

    seconds: float
    what: str


class Clock:
    """Runs commands, and records the longest hold of each."""

    def __init__(self, server):
        self.server = server
        self.client = server.client(socket_timeout=600)
        self.holds: dict[str, Hold] = {}

    def run(self, what: str, *words):
        seconds, reply = self.time(*words)
        command = words[0]
        if seconds >= self.holds.get(command, Hold(0, "")).seconds:
            self.holds[command] = Hold(seconds, what)
        return reply

    def time(self, *words):
        """The longest time in seconds for which a command blocks the server, and its reply, which may be an error.
        The server serves other clients while the arguments arrive, so the clock starts at their last byte.
        """
        connection = self.client.connection_pool.get_connection()
        *parts, last = connection.pack_command(*words)
        connection.connect()
        connection.send_packed_command([*parts, last[:-1]])
        with Other(self.server) as other:
            connection.send_packed_command([last[-1:]])
            try:
                reply = connection.read_response()
            except redis.ResponseError as error:
                reply = error
        self.client.connection_pool.release(connection)
        return other.longest, reply

    def quietly(self, *words):
        return self.client.execute_command(*words)


class Other:
    """A context manager for another client, which sends PING all the time. `longest` is the longest time that the
    server spent between two replies to it."""

    def __init__(self, server):
        pid = server.process.pid
        self.schedstat = os.open(f"/proc/{pid}/task/{pid}/schedstat", os.O_RDONLY)
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.last, self.longest, self.stop = (0.0, 0.0), 0.0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def ping(self) -> float:
        """Sends a PING, waits for the reply, and returns the time since the previous reply."""
        self.socket.sendall(b"PING\r\n")
        self.socket.recv(64)
        before, self.last = self.last, (time.monotonic(), int(os.pread(self.schedstat, 64, 0).split()[0]) / 1e9)
        return min(now - then for now, then in zip(self.last, before, strict=True))

    def run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self.stop.is_set()  # so that one more reply is measured after the end
            self.longest = max(self.longest, self.ping())

    def __enter__(self) -> "Other":
        self.ping()
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()
        self.socket.close()
        os.close(self.schedstat)
