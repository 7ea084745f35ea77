"""The values of the options of BF.RESERVE. tests/library/options.rs writes this file."""

from typing import Literal, get_args

from ._checks import between, hexadecimal, one_of, power_of_two, ratio

Onfull = Literal["ERROR", "SATURATE", "SCALE", "ROTATE"]
Layout = Literal["AUTO", "BLOCKED", "CLASSIC", "FINGERPRINT", "PARTITIONED"]
Hash = Literal["XXH3", "SIPHASH"]

BLOOM = {
    "expansion": between(0, 32768),
    "nonscaling": one_of(True),
    "tightening": ratio(),
    "window": between(2, 1000),
    "every": between(1, 2**63 - 1),
    "since": between(0, 2**63 - 1),
    "ttl": between(1, 2**63 - 1),
    "steps": between(1, 999),
    "onfull": one_of(*get_args(Onfull)),
    "counting": one_of(True, 4, 8, 16),
    "shards": power_of_two(1024),
    "layout": one_of(*get_args(Layout)),
    "hash": one_of(*get_args(Hash)),
    "seed": hexadecimal(32),
}
