"""Asks a Parquet filter in a file, without a server: prints yes or no for each item.

    python3 ask.py FILE [ITEM...]      items from the lines of standard input if none is given

Needs the package xxhash.
"""

import struct
import sys

import xxhash

SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


class SplitBlockFilter:
    """A filter from the reply of BF.EXPORT: Parquet's header, then blocks of 32 bytes."""

    def __init__(self, data: bytes):
        # The header is 15 to 19 bytes long, and a block is 32 bytes long, so this remainder is the header's length.
        self.bitset = data[len(data) % 32 :]

    def __contains__(self, item: bytes) -> bool:
        hash = xxhash.xxh64_intdigest(item)
        block = (hash >> 32) * (len(self.bitset) // 32) >> 32
        words = struct.unpack_from("<8I", self.bitset, 32 * block)
        low = hash & 0xFFFFFFFF
        return all(word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, SALTS, strict=True))


def main() -> None:
    path, *items = sys.argv[1:]
    with open(path, "rb") as file:
        filter = SplitBlockFilter(file.read())
    for item in items or map(str.rstrip, sys.stdin):
        print("yes" if item.encode() in filter else "no", item)


if __name__ == "__main__":
    main()
