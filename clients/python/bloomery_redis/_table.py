"""The options of filters. tests/library/options.rs writes this file."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypedDict

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
    "onfull": one_of("ERROR", "SATURATE", "SCALE", "FORGET"),
    "counting": one_of(True, 4, 8, 16),
    "shards": power_of_two(1024),
    "layout": one_of("AUTO", "BLOCKED", "CLASSIC", "PARTITIONED", "QUOTIENT"),
    "hash": one_of("XXH3", "SIPHASH"),
    "sizes": between(0, 65535),
    "seed": hexadecimal(32),
}

CUCKOO = {
    "bucketsize": between(1, 255),
    "maxiterations": between(1, 65535),
    "expansion": between(0, 32768),
    "hash": one_of("XXH3", "SIPHASH"),
    "seed": hexadecimal(32),
}


class Bloom(TypedDict, total=False):
    expansion: int  # 0 to 32768
    nonscaling: bool
    tightening: float  # a ratio between 0 and 1, both excluded
    window: int  # 2 to 64 generations, with LAYOUT QUOTIENT 2 to 1000
    every: int | timedelta  # milliseconds
    since: int | datetime  # a Unix time in milliseconds
    ttl: int | timedelta  # milliseconds
    steps: int  # 1 to 999 steps of a TTL
    onfull: Literal["ERROR", "SATURATE", "SCALE", "FORGET"]
    counting: Literal[True, 4, 8, 16]  # 4, 8 or 16 bits per counter
    shards: int  # a power of two from 1 to 1024
    layout: Literal["AUTO", "BLOCKED", "CLASSIC", "PARTITIONED", "QUOTIENT"]
    hash: Literal["XXH3", "SIPHASH"]
    sizes: int  # a number from 0 to 65535
    seed: str | None  # hexadecimal digits


class Cuckoo(TypedDict, total=False):
    bucketsize: int
    maxiterations: int
    expansion: int  # 0 to 32768
    hash: Literal["XXH3", "SIPHASH"]
    seed: str | None  # hexadecimal digits
