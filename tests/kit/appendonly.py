"""Reads what a server writes to its append-only file: the same commands that it sends to its replicas."""


class Effects:
    """The commands that a server with `appendonly yes` and `appendfsync always` has written since the last `new`.

        effects = Effects(server)
        client.execute_command("BF.ADD", "seen", "ada")
        effects.new()       # [[b"bf.reserve", b"seen", …], [b"BF.ADD", b"seen", b"ada"]]

    Unless `whole` is true, `new` leaves out SELECT, MULTI and EXEC.
    """

    AROUND = (b"select", b"multi", b"exec")

    def __init__(self, server):
        (self.path,) = (server.directory / "appendonlydir").glob("*.incr.aof")
        self.read = self.path.stat().st_size

    def new(self, *, whole=False) -> list[list[bytes]]:
        with open(self.path, "rb") as file:
            file.seek(self.read)
            text = file.read()
        self.read += len(text)
        commands = list(parse(text))
        return commands if whole else [command for command in commands if command[0].lower() not in self.AROUND]


def parse(text: bytes):
    """The commands in a RESP stream, without annotations (`#TS:…`)."""
    at = 0

    def line() -> bytes:
        nonlocal at
        end = text.index(b"\r\n", at)
        start, at = at, end + 2
        return text[start:end]

    while at < len(text):
        head = line()
        if head.startswith(b"#"):
            continue
        assert head.startswith(b"*"), head
        words = []
        for _ in range(int(head[1:])):
            length = int(line()[1:])
            words.append(text[at : at + length])
            at += length + 2
        yield words
