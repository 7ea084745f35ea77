"""Checks of values, each with a description of the valid values."""

from __future__ import annotations

import numbers
from typing import Any, Callable

Check = tuple[Callable[[Any], bool], str]


def is_integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)  # includes NumPy's integers


def between(least: int, most: int) -> Check:
    return lambda value: is_integer(value) and least <= value <= most, f"an integer from {least} to {most}"


def one_of(*values: Any) -> Check:
    return lambda value: value in values, f"one of {', '.join(map(repr, values))}"


def power_of_two(most: int) -> Check:
    fits = lambda value: is_integer(value) and 1 <= value <= most and value & (value - 1) == 0
    return fits, f"a power of two up to {most}"


def ratio() -> Check:
    return lambda value: 0 < value < 1, "above 0 and below 1"


def hexadecimal(most: int) -> Check:
    digits = set("0123456789abcdefABCDEF")
    fits = lambda value: isinstance(value, str) and 1 <= len(value) <= most and set(value) <= digits
    return fits, f"1 to {most} hexadecimal digits"
