# pip install coredis
import asyncio
import struct
import sys

import coredis


def items(*texts):
    """The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian)."""
    return b"".join(struct.pack("<I", len(item)) + item for item in map(str.encode, texts))


async def main():
    async with coredis.Redis(port=int(sys.argv[1])) as client:
        await client.bf.reserve("users", 0.001, 1000)
        new = await client.bf.add("users", "ada")

        def call(*words):
            return client.create_request(*words, callback=lambda reply, **_: reply)

        more = await call(b"BF.BULKADD", "users", "PREFIXED", items("ada", "grace"))
        bits = await call(b"BF.BULKTEST", "users", "PREFIXED", items("ada", "barbara"))
        stats = await call(b"BF.STATS", "users")
        print(int(new), more, bits.hex(), stats[b"Number of items inserted"])


asyncio.run(main())
