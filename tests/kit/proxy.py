"""A proxy between a program and a server, which can break a connection before or after any command."""

import contextlib
import socket
import threading


def _reply(file) -> bytes:
    """Reads one whole reply, in RESP2."""
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError
    if line[:1] == b"$" and (length := int(line[1:])) >= 0:
        return line + file.read(length + 2)
    if line[:1] == b"*" and (length := int(line[1:])) >= 0:
        return line + b"".join(_reply(file) for _ in range(length))
    return line


def read_request(file) -> tuple[bytes, list[bytes]]:
    """Reads one command. Returns its bytes and its words."""
    line = file.readline()
    if not line:
        raise ConnectionError
    raw, words = line, []
    for _ in range(int(line[1:])):
        length = file.readline()
        word = file.read(int(length[1:]) + 2)
        raw, words = raw + length + word, [*words, word[:-2]]
    return raw, words


class Listener:
    """Listens on a port of its own, and serves each connection in a thread, until the `with` statement is left."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True).start()


class Proxy(Listener):
    """Forwards commands to the server at `port`, one at a time.

    It calls `before(words)` when a command has arrived, and `after(words)` when the server has replied. If `before`
    returns True, the proxy cuts the connection and the server never sees the command. If `after` returns True, the
    proxy cuts the connection and the program never sees the reply.
    """

    def __init__(self, port: int):
        self.target = port
        self.before = self.after = lambda words: False
        self.failure = None
        self._lock = threading.Lock()
        super().__init__()

    def __exit__(self, *_):
        super().__exit__()
        if self.failure:
            raise self.failure

    def _serve(self, client):
        try:
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                with client.makefile("rb") as requests, server.makefile("rb") as replies:
                    self._pass_on(client, requests, server, replies)
        except (OSError, ValueError):
            pass  # the program or the server has disconnected
        except Exception as failure:  # from `before` or `after`
            self.failure = failure
        finally:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()

    def _pass_on(self, client, requests, server, replies):
        while True:
            raw, words = read_request(requests)
            with self._lock:
                if self.before(words):
                    return
                server.sendall(raw)
                reply = _reply(replies)
                if self.after(words):
                    return
            client.sendall(reply)


def bulk(value: str) -> bytes:
    """A string in RESP2."""
    value = value.encode()
    return b"$%d\r\n%s\r\n" % (len(value), value)


class FakeServer(Listener):
    """A server whose reply to each command is in `replies`, by the command's name. A reply is bytes, or a function that
    yields the parts of the reply. `sent` has the words of every command."""

    def __init__(self, replies: dict):
        self.replies = replies
        self.sent = []
        super().__init__()

    def _serve(self, client):
        with client, client.makefile("rb") as requests, contextlib.suppress(OSError, ValueError):
            while True:
                _, words = read_request(requests)
                self.sent.append(words)
                reply = self.replies.get(words[0].decode().upper(), b"-ERR unknown command\r\n")
                for part in [reply] if isinstance(reply, bytes) else reply():
                    client.sendall(part)
