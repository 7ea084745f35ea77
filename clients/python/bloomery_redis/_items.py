"""Items as bytes, the same in every command; many of them in pieces; and the answers to many.

    bytes, bytearray, memoryview    as they are
    str                             UTF-8
    int, and whatever is an index   decimal digits, as redis-cli sends a number that is typed: 42 is the item "42"
    (numpy integers among them)

All else (float, bool, None, tuple) is refused: there is more than one way to write it, so write it yourself.
"""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex, Union

Item = Union[bytes, bytearray, memoryview, str, SupportsIndex]
Items = Iterable[Item]  # numpy arrays of integers among them

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
    """The items, encoded, in lists of about `size` bytes. They are read as the lists are."""
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
    """The argument of PREFIXED in BF.BULKADD and BF.BULKTEST: before each item its length, 4 bytes, little-endian."""
    return b"".join([part for item in piece for part in (_length(len(item)), item)])


def bits(bitmap: bytes, count: int) -> list[bool]:
    """The answers of BF.BULKTEST: the first item has the highest bit of the first byte."""
    return list(itertools.islice(itertools.chain.from_iterable(map(_BITS.__getitem__, bitmap)), count))


def answers(reply: list[Any]) -> list[bool]:
    """The answers of a command with several items. A refusal is the last one, after the answers for the items that were
    added."""
    for answer in reply:
        if isinstance(answer, Exception):
            raise answer
    return [answer == 1 for answer in reply]
