"""The values of the options of BF.RESERVE. tests/library/options.rs writes this file."""

from ._checks import between, hexadecimal, one_of, power_of_two, ratio

BLOOM = {
    "expansion": between(0, 32768),
    "nonscaling": one_of(True),
    "tightening": ratio(),
    "window": between(2, 1000),
    "every": between(1, 2**63 - 1),
    "since": between(0, 2**63 - 1),
    "ttl": between(1, 2**63 - 1),
    "steps": between(1, 999),
    "onfull": one_of("ERROR", "SATURATE", "SCALE", "ROTATE"),
    "counting": one_of(True, 4, 8, 16),
    "shards": power_of_two(1024),
    "layout": one_of("AUTO", "BLOCKED", "CLASSIC", "FINGERPRINT", "PARTITIONED"),
    "hash": one_of("XXH3", "SIPHASH"),
    "seed": hexadecimal(32),
}
