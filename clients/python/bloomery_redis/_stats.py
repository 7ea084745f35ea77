"""What the server says about a filter, as dictionaries whose keys are the server's names, in lower case and with
underscores.

For example, "Error rate now" becomes `error_rate_now`. docs/commands/bf.stats.md and cf.stats.md explain the names.
Fields that a newer server adds are included, too. A field may be missing: some exist only for one kind of filter.
"""

from __future__ import annotations

from typing import Any, TypedDict

from ._steps import Key, Steps, Word, ask

# tests/library/statistics.rs compares the fields of these classes with the server's table.


class Refused(TypedDict, total=False):
    """How many items a filter refused, by reason."""

    full: int
    limit: int
    memory: int


class Feedback(TypedDict, total=False):
    """What `feedback` reported in a span of time."""

    checked: int
    false: int
    share_false: float | None
    observed_error_rate: float | None


class Feedbacks(TypedDict, total=False):
    """What `feedback` reported in the last minute, in the last hour, and since the server loaded the filter."""

    minute: Feedback
    hour: Feedback
    life: Feedback


class Layer(TypedDict, total=False):
    """A layer of a filter, or a generation of a window."""

    age: int
    layout: str
    capacity: int
    number_of_items_inserted: int
    error_rate: float
    error_rate_now: float
    cells: int
    probes: int
    fill: float


class Rebuild(TypedDict, total=False):
    """A rebuild that is running. All fields but the first describe the new filter."""

    status: str
    kind: str
    capacity: int
    error_rate: float
    error_rate_now: float
    number_of_items_inserted: int
    approximate_number_of_items: int
    number_of_filters: int
    fill: float
    size: int
    deletes_missed: int
    identity: str


class BloomStats(TypedDict, total=False):
    """Statistics of a Bloom filter."""

    kind: str
    origin: str
    items_are: str
    layout: str
    hash: str
    shards: int
    bits_per_cell: int
    on_full: str
    error_rate: float | None
    error_rate_now: float
    capacity: int
    capacity_reserved: int
    number_of_items_inserted: int
    approximate_number_of_items: int
    number_of_filters: int
    cells: int
    cells_set: int
    fill: float
    size: int
    memory: int
    expansion_rate: int | None
    tightening_ratio: float | None
    generations: int
    generation: int
    rotates_every_ms: int | None
    next_rotation_in_ms: int | None
    items_forgotten_early: int
    saturated_counters: int
    tests_answered_yes: int
    tests_answered_no: int
    adds: int
    deletes: int
    adds_refused: Refused
    feedback: Feedbacks
    advice: list[str]
    layers: list[Layer]
    rebuild: Rebuild | None
    identity: str | None


class CuckooStats(TypedDict, total=False):
    """Statistics of a cuckoo filter."""

    origin: str
    hash: str
    error_rate: float
    error_rate_now: float
    capacity: int
    capacity_reserved: int
    number_of_items_inserted: int
    number_of_filters: int
    number_of_buckets: int
    number_of_items_deleted: int
    bucket_size: int
    max_iterations: int
    fill: float
    fill_when_full: float
    size: int
    expansion_rate: int
    adds_refused: Refused
    advice: list[str]
    identity: str | None


# Numbers that are bulk strings in RESP2. The type isn't guessed from the text, because an identity such as 12e4 would
# look like a number.
FRACTIONS = {
    name
    for fields in (Feedback, Layer, Rebuild, BloomStats, CuckooStats)
    for name, kind in fields.__annotations__.items()
    if "float" in str(kind)
}


def ask_stats(command: str, key: Key, *words: Word) -> Steps[Any]:
    return table((yield from ask(command, key, *words)))


def table(reply: Any) -> dict[str, Any]:
    """A reply as a dictionary. In RESP2, maps are flat arrays."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    named = ((name.decode().lower().replace(" ", "_"), value) for name, value in pairs)
    return {name: _value(name, value) for name, value in named}


def _value(name: str, value: Any) -> Any:
    if name == "advice":
        return [line.decode() for line in value]
    if name == "layers":
        return [table(layer) for layer in value]
    if isinstance(value, (dict, list)):
        return table(value)
    if isinstance(value, bytes):
        return float(value) if name in FRACTIONS else value.decode()
    return value
