"""The options of BF.RESERVE, BF.REBUILD and CF.RESERVE: the server's words in lower case, with the server's values.

    reserve(0.01, 1_000_000, nonscaling=True, onfull="SATURATE")
    reserve(0.01, 100_000, window=25, every=timedelta(hours=1))

A timedelta is sent as milliseconds, a datetime as Unix time in milliseconds. True sends the word alone; False and None
leave it out. docs/commands/bf.reserve.md says what each option does. A word that isn't known here is also sent, and the
server judges it. So the options of a newer server work without a newer client. """

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from . import _table
from ._checks import Check, is_integer
from ._steps import Key, Word

if TYPE_CHECKING:
    from ._filter import FilterSteps


class BloomOptions(_table.Bloom, total=False):
    """Options of BF.RESERVE and BF.REBUILD BEGIN."""

    like: Key | FilterSteps  # another filter, which must have the same error rate and capacity


class CuckooOptions(_table.Cuckoo):
    """Options of CF.RESERVE."""


# For each option, a check of its value, and a description of the valid values. The server decides which options can be
# combined.
CHECKS: dict[str, Check] = {**_table.BLOOM, **_table.CUCKOO}


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


def capacity_of(value: int, least: int = 1) -> int:
    if not is_integer(value) or not least <= value <= 1 << 48:
        raise ValueError(f"capacity is an integer from {least} to 2**48, not {value!r}")
    return int(value)
