# pip install redis
import asyncio
import struct
import sys

import redis.asyncio


def items(*texts):
    """The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian)."""
    return b"".join(struct.pack("<I", len(item)) + item for item in map(str.encode, texts))


async def main():
    async with redis.asyncio.Redis(port=int(sys.argv[1])) as client:
        await client.execute_command("BF.RESERVE", "users", 0.001, 1000)
        new = await client.execute_command("BF.ADD", "users", "ada")
        more = await client.execute_command("BF.BULKADD", "users", "PREFIXED", items("ada", "grace"))
        bits = await client.execute_command("BF.BULKTEST", "users", "PREFIXED", items("ada", "barbara"))
        stats = await client.execute_command("BF.STATS", "users")
        if not isinstance(stats, dict):  # RESP2: alternating names and values
            stats = dict(zip(stats[::2], stats[1::2]))
        print(int(new), more, bits.hex(), stats[b"Number of items inserted"])


asyncio.run(main())
