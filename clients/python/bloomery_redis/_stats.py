"""What the server says about a filter, as dictionaries whose keys are the server's names, in lower case and with
underscores.

For example, "Error rate now" becomes `error_rate_now`. docs/commands/bf.stats.md and cf.stats.md explain the names.
Fields that a newer server adds are included, too.
"""

from __future__ import annotations

from typing import Any, TypedDict

from ._steps import Key, Steps, ask

# Numbers that are bulk strings in RESP2. The type isn't guessed from the text, because an identity such as 12e4 would
# look like a number.
FRACTIONS = {"error_rate", "error_rate_now", "fill", "fill_when_full", "tightening_ratio", "share_false", "observed_error_rate"}


class Feedback(TypedDict):
    checked: int
    false: int
    share_false: float | None
    observed_error_rate: float | None


class Feedbacks(TypedDict):
    """What `feedback` reported in the last minute, in the last hour, and since the server loaded the filter."""

    minute: Feedback
    hour: Feedback
    life: Feedback


class Layer(TypedDict, total=False):
    age: int  # of a window's generation
    layout: str
    capacity: int
    number_of_items_inserted: int
    error_rate: float | None
    error_rate_now: float
    cells: int
    probes: int
    fill: float


class BloomStats(TypedDict, total=False):
    """Statistics of a Bloom filter. A field may be missing: some exist only for one kind of filter."""

    kind: str  # fixed, counting, scaling, window, static
    origin: str  # bloomery, or the system that made it
    items_are: str  # the encoding in which another system hashes an item
    layout: str
    hash: str
    shards: int
    bits_per_cell: int
    on_full: str
    error_rate: float | None  # promised; None if the filter is another system's, and that system promises none
    error_rate_now: float  # at the present fill
    capacity: int
    number_of_items_inserted: int
    approximate_number_of_items: int  # from the fill
    number_of_filters: int  # layers
    cells: int
    cells_set: int
    fill: float  # of the cells, 0 to 1
    size: int  # bytes
    memory: int  # bytes, including usage counters and the shadow of a rebuild
    expansion_rate: int | None
    tightening_ratio: float | None
    generations: int
    generation: int
    rotates_every_ms: int | None
    next_rotation_in_ms: int | None
    early_rotations: int  # by this server, to make room
    saturated_counters: int
    tests_answered_yes: int  # this and the next three: by this server since it loaded the filter
    tests_answered_no: int
    adds: int
    deletes: int
    feedback: Feedbacks
    advice: list[str]  # what is wrong and what to do; empty if all is well
    layers: list[Layer]
    rebuild: dict[str, Any] | None  # state of a rebuild that is running
    identity: str | None


class CuckooStats(TypedDict, total=False):
    """Statistics of a cuckoo filter."""

    size: int  # bytes
    number_of_buckets: int  # of the first sub-filter
    number_of_filters: int  # sub-filters
    number_of_items_inserted: int  # without those deleted
    number_of_items_deleted: int  # since the last compaction
    bucket_size: int  # slots
    expansion_rate: int
    max_iterations: int
    origin: str  # bloomery or redisbloom
    hash: str
    error_rate: float  # when all slots are taken
    error_rate_now: float
    capacity: int  # slots
    fill: float  # of the slots, 0 to 1
    fill_when_full: float  # fill at which adds are refused, or the filter grows
    advice: list[str]  # what is wrong and what to do; empty if all is well
    identity: str | None


def ask_stats(command: str, key: Key) -> Steps[Any]:
    return table((yield from ask(command, key)))


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
