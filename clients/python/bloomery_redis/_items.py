"""Encodes items as bytes, in the same way for every command, divides many items into pieces, and decodes answers.

    bytes, bytearray, memoryview    as they are
    str                             UTF-8
    int, and other types with       decimal digits, as when you type a number in redis-cli: 42 is the item "42"
    __index__, such as NumPy's

Anything else (float, bool, None, tuple) is refused, because it could be written in several ways. Encode it yourself.
"""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex, Union

Item = Union[bytes, bytearray, memoryview, str, SupportsIndex]
Items = Iterable[Item]  # including NumPy arrays of integers

# A command of this size is answered within milliseconds, and its overhead is a thousandth of its cost.
PIECE_BYTES = 64 * 1024

_length = struct.Struct("<I").pack
_BITS = [tuple(bool(byte >> 7 - place & 1) for place in range(8)) for byte in range(256)]


def encode(item: Item) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, (bytearray, memoryview)):
        return bytes(item)
    if not isinstance(item, bool):
        try:
            return b"%d" % operator.index(item)
        except TypeError:
            pass
    raise TypeError(f"an item is bytes, str or an integer, not {type(item).__name__}; encode it as one of these")


def pieces(items: Items, size: int = PIECE_BYTES) -> Iterator[list[bytes]]:
    """The items, encoded, in lists of about `size` bytes. Items are read only as the lists are consumed."""
    if isinstance(items, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"one {type(items).__name__} where an iterable of items goes; put it into a list")
    piece, room = [], size
    for item in items:
        encoded = encode(item)
        piece.append(encoded)
        room -= len(encoded) + 4
        if room <= 0:
            yield piece
            piece, room = [], size
    if piece:
        yield piece


def prefixed(piece: list[bytes]) -> bytes:
    """The argument of PREFIXED in BF.BULKADD and BF.BULKTEST: each item after its length (4 bytes, little-endian)."""
    return b"".join([part for item in piece for part in (_length(len(item)), item)])


def bits(bitmap: bytes, count: int) -> list[bool]:
    """The answers of BF.BULKTEST. The first item's answer is the highest bit of the first byte."""
    return list(itertools.islice(itertools.chain.from_iterable(map(_BITS.__getitem__, bitmap)), count))


def answers(reply: list[Any]) -> list[bool]:
    """The answers of a command with several items. Raises the server's error if an item was refused: the error comes
    last, after the answers for the items that were added."""
    for answer in reply:
        if isinstance(answer, Exception):
            raise answer
    return [answer == 1 for answer in reply]
