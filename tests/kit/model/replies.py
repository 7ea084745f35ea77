"""Replies as a server sends them, and how much of them the model predicts.

`<n>` matches a whole number, `<f>` any number, and `<...>` anything. The model says that a command is refused, not in
which words: docs/commands has the texts, and tests/server/documents/test_docs.py provokes each of them.
"""

import re
from dataclasses import dataclass


class Simple(str):
    """A simple string."""


class Error(str):
    """An error: its first word if other programs act on that, and otherwise nothing."""


@dataclass(frozen=True)
class Wire:
    """A reply that is the same in both protocols: the bytes that are sent, with masks."""

    text: bytes


@dataclass(frozen=True)
class Double:
    """A number: a bulk string in RESP2 and a double in RESP3. `value` is `None` if the model doesn't predict the
    number."""

    value: float | None


@dataclass(frozen=True)
class Placed:
    """CF.INSERT's answer for an item: 1 or -1 in RESP2, a boolean in RESP3."""

    value: bool


class Map(list):
    """Pairs: a map in RESP3, a flat array in RESP2."""


class Entry(tuple):
    """A pair: a map with one entry in RESP3, an array that contains only the value in RESP2."""


OK = Simple("OK")
NUMBER = Wire(b":<n>\r\n")
BYTES = Wire(b"$<n>\r\n<...>\r\n")
FIGURE = Double(None)
LINES = Wire(b"*<n>\r\n<...>")
WRONGTYPE = Error("WRONGTYPE")

MASKS = {
    b"<n>": rb"\d+",
    b"<f>": rb"(?:[-+.\deE]+|inf)",
    b"<text>": rb"[^\r\n]*",
    b"<refusal>": rb"(?!WRONGTYPE|EXECABORT|[^\r\n]*internal error)[^\r\n]+",
    b"<...>": rb".*",
}
MASKED = re.compile(b"(" + b"|".join(map(re.escape, MASKS)) + b")")


def encode(reply, protocol: int) -> bytes:
    """The reply as the bytes that are sent."""
    if reply is None:
        return b"_\r\n" if protocol == 3 else b"$-1\r\n"
    if isinstance(reply, bool):
        return (b"#t\r\n" if reply else b"#f\r\n") if protocol == 3 else b":%d\r\n" % reply
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%s\r\n" % (len(reply), reply)
    if isinstance(reply, Simple):
        return b"+%s\r\n" % reply.encode()
    if isinstance(reply, Error):
        return b"-%s <text>\r\n" % reply.encode() if reply else b"-<refusal>\r\n"
    if isinstance(reply, Placed):
        return encode(reply.value if protocol == 3 else 1 if reply.value else -1, protocol)
    if isinstance(reply, Wire):
        return reply.text
    if isinstance(reply, Double):
        if protocol == 3:
            return b",<f>\r\n"  # servers differ in the number of digits that they print
        return b"$<n>\r\n<f>\r\n" if reply.value is None else encode(decimal(reply.value).encode(), 2)
    if isinstance(reply, Map):
        body = b"".join(encode(Simple(name), protocol) + encode(value, protocol) for name, value in reply)
        return (b"%%%d\r\n" % len(reply) if protocol == 3 else b"*%d\r\n" % (2 * len(reply))) + body
    if isinstance(reply, Entry):
        return encode(Map([reply]) if protocol == 3 else [reply[1]], protocol)
    return b"*%d\r\n" % len(reply) + b"".join(encode(part, protocol) for part in reply)


def matches(expected: bytes, actual: bytes) -> bool:
    """Whether the actual bytes match the expected ones, which may contain masks."""
    if expected == actual:
        return True
    if b"<" not in expected:
        return False
    parts = MASKED.split(expected)
    return re.fullmatch(b"".join(MASKS.get(part) or re.escape(part) for part in parts), actual, re.DOTALL) is not None


def through_lua(reply, resp3: bool):
    """What the client gets if a script returns this reply, which it got from a command. The script uses RESP2 unless it
    has switched to RESP3."""
    if isinstance(reply, bool) and not resp3:
        return int(reply)
    if isinstance(reply, Placed):
        return reply.value if resp3 else 1 if reply.value else -1
    if isinstance(reply, Double):
        return Wire(encode(reply, 2))
    if isinstance(reply, Map):
        return [part for name, value in reply for part in (Simple(name), through_lua(value, resp3))]
    if isinstance(reply, Entry):
        return [through_lua(reply[1], resp3)]
    if isinstance(reply, list):
        return [through_lua(part, resp3) for part in reply]
    return reply


class Refused(Exception):
    """Raised by a command that changes nothing. The argument is the first word of the error, if it matters."""


# ---- arguments ------------------------------------------------------------------------------------------------------

INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
FLOAT = re.compile(rb"[+-]?(?:inf|infinity|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)", re.IGNORECASE)


def integer(word: bytes, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
    """Parses a 64-bit integer as the servers do."""
    if INTEGER.fullmatch(word) and low <= int(word) <= high:
        return int(word)
    raise Refused()


def number(word: bytes, low: float = float("-inf"), high: float = float("inf")) -> float:
    """Parses a number that is between the bounds, both excluded."""
    if FLOAT.fullmatch(word) and low < float(word) < high:
        return float(word)
    raise Refused()


def upper(word: bytes) -> str:
    """A word in upper case, to match it regardless of case. Only ASCII letters are converted."""
    return word.upper().decode("latin-1")


def one_of(*names: str):
    """A parser of one of these words, in any case."""

    def parse(word: bytes) -> str:
        if upper(word) not in names:
            raise Refused()
        return upper(word)

    return parse


def seed(word: bytes, hash_: str) -> int:
    if not re.fullmatch(rb"[0-9a-fA-F]{1,%d}" % (32 if hash_ == "SIPHASH" else 16), word):
        raise Refused()
    return int(word, 16)


def decimal(value: float) -> str:
    """The shortest text that reads back as the same number. Below 0.0001, it has an exponent."""
    return repr(value).removesuffix(".0").replace("e-0", "e-")


def next_power_of_two(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


class Words:
    """The words of a command, which are taken one after the other. It is refused if there are too few."""

    def __init__(self, words):
        self.left = list(words)

    def __bool__(self) -> bool:
        return bool(self.left)

    def take(self, parse=bytes):
        if not self.left:
            raise Refused()
        return parse(self.left.pop(0))
