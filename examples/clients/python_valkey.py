# pip install valkey
import struct
import sys

import valkey

client = valkey.Valkey(port=int(sys.argv[1]))


def items(*texts):
    """The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian)."""
    return b"".join(struct.pack("<I", len(item)) + item for item in map(str.encode, texts))


client.execute_command("BF.RESERVE", "users", 0.001, 1000)
new = client.execute_command("BF.ADD", "users", "ada")
more = client.execute_command("BF.BULKADD", "users", "PREFIXED", items("ada", "grace"))
bits = client.execute_command("BF.BULKTEST", "users", "PREFIXED", items("ada", "barbara"))
stats = client.execute_command("BF.STATS", "users")
if not isinstance(stats, dict):  # RESP2: alternating names and values
    stats = dict(zip(stats[::2], stats[1::2]))
print(int(new), more, bits.hex(), stats[b"Number of items inserted"])
