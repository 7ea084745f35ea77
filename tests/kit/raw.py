"""A connection that shows the bytes of replies."""

import socket


class Connection:
    """Sends a command and returns the bytes of its reply, which a client library would hide."""

    def __init__(self, port: int, protocol: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")
        if protocol == 3:
            self.ask(["HELLO", "3"])

    def ask(self, arguments: list[str]) -> bytes:
        # Recorded bytes are stored as characters with the same code points.
        words = [argument.encode("latin-1") for argument in arguments]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.reply()

    def reply(self) -> bytes:
        line = self.file.readline()
        kind, count = line[:1], line[1:-2]
        if kind == b"$" and count != b"-1":
            return line + self.file.read(int(count) + 2)
        parts = {b"*": 1, b"~": 1, b"%": 2}.get(kind, 0)
        if parts and count != b"-1":
            return line + b"".join(self.reply() for _ in range(parts * int(count)))
        return line

    def close(self):
        self.file.close()
        self.socket.close()
