"""What the tests of commands that work in the background share: a worker that is kept busy, replies that are read later,
and data that is large enough to be imported or loaded on a worker."""

import socket
import struct

import redis

from kit.metrics import figures
from kit.servers import wait_for
from kit.threads import Still

SLOW = 16 << 20  # with this many items, a BF.BULKTEST keeps a worker busy for longer than any test lasts


def calls(client, command: str) -> int:
    """How often the server has called a command: once when the client sent it, and once for each piece after the first.
    """
    return client.info("commandstats").get(f"cmdstat_{command.lower()}", {}).get("calls", 0)


class Busy:
    """A context manager that stops the only worker in the middle of a job, so that it can't start another. On exit, the
    worker continues."""

    def __init__(self, server):
        self.server, self.waiting = server, []

    def __enter__(self):
        self.control = self.server.client()
        blob = bytes(SLOW)
        words = [b"BF.BULKTEST", b"slow", b"FIXED", b"1", blob]
        self.plug = socket.create_connection(("127.0.0.1", self.server.port))
        self.plug.sendall(b"*5\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        wait_for(lambda: figures(self.control)["pool_jobs_running"] == 1, "the worker to be busy")
        self.still = Still(self.server)
        return self

    def __exit__(self, *_):
        self.end()
        self.control.close()

    def send(self, *words, **options):
        """Sends a command that will wait. Calling the returned object waits for the reply."""
        return self.send_all([words], **options)[0]

    def send_all(self, commands, waits=True, **options):
        before = self.clients()
        replies = Replies(self.server, commands, **options)
        if waits:
            wait_for(lambda: self.clients() == before + 1, "the client to wait")
        return replies

    def leave(self, replies):
        """Disconnects a client that waits, and returns when the server knows: a worker that goes on may be faster."""
        before = self.clients()
        replies.connection.disconnect()
        wait_for(lambda: self.clients() == before - 1, "the client to be gone")

    def clients(self) -> int:
        now = figures(self.control)
        return now["clients_waiting"] + now["clients_in_pieces"]

    def end(self):
        """Frees the worker."""
        self.plug.close()
        self.still.go_on()


class Replies:
    """Sends commands in one packet. Each call returns the next reply, or the text of an error."""

    def __init__(self, server, commands, database=0):
        self.client = server.client(db=database)
        self.connection = self.client.connection_pool.get_connection()
        self.connection.connect()
        self.address = "%s:%d" % self.connection._sock.getsockname()
        self.send(commands)

    def send(self, commands):
        self.connection.send_packed_command(self.connection.pack_commands(commands))

    def __getitem__(self, _):
        return self

    def __call__(self):
        try:
            return self.connection.read_response()
        except redis.ResponseError as error:
            return str(error)

    def has_come(self, timeout: float = 0.05) -> bool:
        return self.connection.can_read(timeout=timeout)


def valkey_payload(size: int) -> bytes:
    bits = bytes(range(1, 256)) * (size // 255) + b"\x01"
    blob = b"\x01" + struct.pack("<QI", len(bits), 7) + bytes(range(32)) + bits
    head = b"\x01" + struct.pack("<IddBQ", 2, 0.01, 0.5, 1, 1)
    return head + struct.pack("<Q", len(blob)) + blob + struct.pack("<QQ", 1000, 10_000_000)


def imports(size: int) -> dict:
    words = size // 8
    bitmap = bytes(range(256)) * (size // 256)
    return {
        "load": ["BF.LOAD", "new", valkey_payload(size)],
        "guava": ["BF.IMPORT", "new", "GUAVA", struct.pack(">BBI", 1, 7, words) + bitmap],
        "bloomv3": ["BF.IMPORT", "new", "BLOOMV3", struct.pack(">QQQ", size * 8, 7, size * 8) + bitmap],
        "go-zero": ["BF.IMPORT", "new", "GOZERO", "none", "BITS", size * 8, "DATA", bitmap],
        "go-zero, short": ["BF.IMPORT", "new", "GOZERO", "none", "BITS", size * 8, "DATA", b"abc"],
        "redisson": ["BF.IMPORT", "new", "REDISSON", "{k}", "{k}:c", "DATA", size * 8, 7, bitmap],
        "go-zero, key": ["BF.IMPORT", "new", "GOZERO", "bitmap", "BITS", size * 8],
        "redisson, key": ["BF.IMPORT", "new", "REDISSON", "bitmap", "config"],
    }


def redisblooms(size: int) -> dict:
    """Heads of RedisBloom filters with `size` bytes of cells."""
    link = struct.pack("<QQQddIQB", size, 8 * size, 5, 0.01, 9.585, 7, size * 8 // 10, 0)
    return {
        "BF": struct.pack("<QIII", 5, 1, 5, 2) + link,
        "CF": struct.pack("<QQQQHHH", 0, size // 4, 0, 1, 4, 20, 1),
    }
