# pip install valkey-glide
import asyncio
import struct
import sys

from glide import GlideClient, GlideClientConfiguration, NodeAddress


def items(*texts):
    """The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian)."""
    return b"".join(struct.pack("<I", len(item)) + item for item in map(str.encode, texts))


async def main():
    client = await GlideClient.create(GlideClientConfiguration([NodeAddress("127.0.0.1", int(sys.argv[1]))]))
    await client.custom_command(["BF.RESERVE", "users", "0.001", "1000"])
    new = await client.custom_command(["BF.ADD", "users", "ada"])
    more = await client.custom_command(["BF.BULKADD", "users", "PREFIXED", items("ada", "grace")])
    bits = await client.custom_command(["BF.BULKTEST", "users", "PREFIXED", items("ada", "barbara")])
    stats = await client.custom_command(["BF.STATS", "users"])
    print(int(new), more, bits.hex(), stats[b"Number of items inserted"])
    await client.close()


asyncio.run(main())
