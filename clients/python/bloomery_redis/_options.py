"""The options of BF.RESERVE, BF.REBUILD and CF.RESERVE: the server's words in lower case, with the server's values.

    reserve(0.01, 1_000_000, nonscaling=True, onfull="SATURATE")
    reserve(0.01, 100_000, window=25, every=timedelta(hours=1))

A timedelta is sent as milliseconds, a datetime as Unix time in milliseconds. True sends the word alone; False and None
leave it out. docs/commands/bf.reserve.md says what each option does. A word that isn't known here is also sent, and the
server judges it. So the options of a newer server work without a newer client. """

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ._checks import Check, between, is_integer
from ._steps import Key, Word
from ._table import BLOOM, Hash, Layout, Onfull

if TYPE_CHECKING:
    from ._filter import FilterSteps


class BloomOptions(TypedDict, total=False):
    """Options of BF.RESERVE and BF.REBUILD BEGIN."""

    expansion: int  # 0 to 32768
    nonscaling: bool
    counting: Literal[True, 4, 8, 16]  # bits of a counter; True: 4
    window: int  # generations, 2 to 64; with layout FINGERPRINT 2 to 1000
    ttl: int | timedelta  # how long an item is kept after its last add; an int is milliseconds
    steps: int  # number of steps of a ttl, 1 to 999
    every: int | timedelta  # time between rotations; an int is milliseconds
    since: int | datetime  # when generation 0 began; an int is Unix time in milliseconds
    shards: int  # a power of two, 1 to 1024
    layout: Layout
    hash: Hash
    seed: str | None  # hexadecimal digits, up to 16 for XXH3 and up to 32 for SIPHASH
    tightening: float  # above 0, below 1
    onfull: Onfull
    like: Key | FilterSteps  # another filter, which must have the same error rate and capacity


class CuckooOptions(TypedDict, total=False):
    """Options of CF.RESERVE."""

    bucketsize: int  # slots, 1 to 255
    maxiterations: int  # 1 to 65535
    expansion: int  # 0 to 32768
    hash: Hash
    seed: str | None  # as for a Bloom filter


# For each option, a check of its value, and a description of the valid values. The server decides which options can be
# combined.
CHECKS: dict[str, Check] = {**BLOOM, "bucketsize": between(1, 255), "maxiterations": between(1, 65535)}


def words(options: Mapping[str, Any]) -> list[Word]:
    """The options of a call as words of a command. Raises ValueError for a value that its option can't have."""
    found: list[Word] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        if isinstance(value, timedelta):
            value = value // timedelta(milliseconds=1)
        elif isinstance(value, datetime):
            value = int(value.timestamp() * 1000)
        fits, what = CHECKS.get(name, (lambda _: True, ""))
        if not fits(value):
            raise ValueError(f"{name} is {what}, not {value!r}")
        found.append(name.upper())
        if value is not True:
            found.append(int(value) if is_integer(value) else getattr(value, "key", value))
    return found


def error_rate_of(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"error_rate is above 0 and below 1, not {value!r}")
    return float(value)


def capacity_of(value: int) -> int:
    if not is_integer(value) or not 1 <= value <= 1 << 48:
        raise ValueError(f"capacity is an integer from 1 to 2**48, not {value!r}")
    return int(value)
