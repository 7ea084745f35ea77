"""Imports filters of the original programs into a server, and compares the answers of both: no difference is allowed.

    PYTHONPATH=tests python -m originals.compare FOLDER [--server NAME]

For each filter, the programs leave two files in the folder. NAME.filter is the filter as the original writes it.
NAME.log contains what the original answered after that, in order. The first line of the log contains the words of
BF.IMPORT, without the data. The other lines look like this:

    ?1 68656c6c6f    the filter contains the item with these bytes in hexadecimal
    +0               adding the item with no bytes changed no bit

So adds after an import are also compared. BF.EXPORT after the import must return the bytes of the file, except that a
bitmap may be followed by zeros. """

import argparse
import itertools
import sys
from pathlib import Path

from kit.servers import Server, matrix

BATCH = 1000
COMMANDS = {"?": "BF.MEXISTS", "+": "BF.MADD"}


def bring_in(client, words: list[str], file: bytes) -> None:
    client.flushall()
    match words:
        case ["GOZERO", *options]:
            client.set("bitmap", file)
            client.execute_command("BF.IMPORT", "k", "GOZERO", "bitmap", *options)
        case [kind, *options]:
            client.execute_command("BF.IMPORT", "k", kind, file, *options)


def exported(client) -> bytes:
    data, piece = b"", bytes(1 << 20)
    while len(piece) == 1 << 20:
        piece = client.execute_command("BF.EXPORT", "k", "OFFSET", len(data), "COUNT", 1 << 20)
        data += piece
    return data


def compare(client, folder: Path, name: str) -> tuple[int, int, int]:
    """Compares the answers. Returns how many there are, how many of the original's are yes, and how many differ."""
    log = (folder / f"{name}.log").read_text().splitlines()
    file = (folder / f"{name}.filter").read_bytes()
    bring_in(client, log[0].split(), file)
    # The string of a bitmap ends with the byte that contains its last set bit.
    bitmap = log[0].startswith("GOZERO")
    data = exported(client)
    assert data == (file.ljust(len(data), b"\0") if bitmap else file), f"{name} comes out otherwise than it came"
    answers = yes = differences = 0
    for kind, lines in itertools.groupby(log[1:], lambda line: line[0]):
        while batch := list(itertools.islice(lines, BATCH)):
            expected = [int(line[1]) for line in batch]
            actual = client.execute_command(COMMANDS[kind], "k", *(bytes.fromhex(line[3:]) for line in batch))
            for line, here, there in zip(batch, actual, expected, strict=True):
                if here != there:
                    differences += 1
                    if differences == 1:
                        print(f"{name}: the original says {line!r}, the server {here}", file=sys.stderr)
            answers += len(batch)
            yes += sum(expected)
    return answers, yes, differences


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server", default="redis-7.0")
    options = parser.parse_args()
    spec = next(spec for spec in matrix() if spec.name == options.server)
    names = sorted(path.stem for path in options.folder.glob("*.filter"))
    totals = [0, 0, 0]
    print(f"{'filter':42} {'bytes':>9} {'answers':>9} {'yes':>9} {'differ':>7}")
    with Server(spec) as server, server.client() as client:
        for name in names:
            counts = compare(client, options.folder, name)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
            size = (options.folder / f"{name}.filter").stat().st_size
            print(f"{name:42} {size:9} {counts[0]:9} {counts[1]:9} {counts[2]:7}", flush=True)
        server.check()
    print(f"{len(names)} filters, {totals[0]} answers, {totals[1]} of them yes, {totals[2]} differences")
    return 1 if totals[2] or not names else 0


if __name__ == "__main__":
    sys.exit(main())
