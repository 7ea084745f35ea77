"""Processes each event of a stream once, although the stream delivers some events again. A window remembers the events.

    python3 examples/event_dedup.py

It makes a stream that delivers some events again: minutes, hours or days later. A consumer reads the stream, and asks a
window of the last day whether each event is new. At one point, the consumer dies between noting an event and processing
it, and another consumer takes over. What they did is then compared with the truth, which the program knows because it
made the stream.

An hour of the stream passes in a moment, so here the consumer rotates the window, with BF.ROTATE, at every full hour
of the events' own clock. With real events, reserve the window with EVERY 3600000, and the server rotates it. """

import argparse
import collections
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import redis
from bloomery_redis import Bloom

WINDOW, STREAM, GROUP, CONSUMER = "example:seen", "example:events", "workers", "worker-1"
HOURS = 72  # of the stream
GENERATIONS = 25  # of an hour each: an event stays known for 24 to 25 hours
ERROR_RATE = 1e-6  # the fraction of new events that are taken for duplicates, and so are lost
SEED = "5eed"  # of the window's hash, so that every run has the same result
BATCH = 500  # entries per command

Event = dict[str, str]  # an event's fields, and the id of its entry in the stream


class Consumer:
    """Notes an event in the window, processes it if it is new, and acknowledges it to the stream."""

    def __init__(self, client: redis.Redis, process: Callable[[Event], None], dies_at: int | None = None):
        self.client = client
        self.window = Bloom(client, WINDOW)
        self.process = process
        self.dies_at = dies_at  # how many events it finishes before it dies

    def run(self) -> None:
        # First come the entries that an earlier consumer of this name did not acknowledge. It went through its entries
        # in order, so the first of these may be in the window without having been processed. For that entry, the
        # window's answer doesn't count.
        for event in self._read("0")[:1]:
            self._note(event)
            self._finish(event, is_new=True)
        while events := self._read("0") or self._read(">"):
            for event in events:
                self._finish(event, is_new=self._note(event))

    def _note(self, event: Event) -> bool:
        """Notes an event, and returns whether it is new, that is, in no generation. One command tests and adds, so if
        two consumers note the same event, only one is told that it is new."""
        return self.window.add(event["id"])

    def _finish(self, event: Event, *, is_new: bool) -> None:
        if self.dies_at is not None:
            self.dies_at -= 1
            if self.dies_at < 0:
                raise Died
        if is_new:
            self.process(event)
        self.client.xack(STREAM, GROUP, event["entry"])

    def _read(self, position: str) -> list[Event]:
        """Reads entries: from "0", those that this consumer was given and has not acknowledged; from ">", new ones."""
        streams: Any = self.client.xreadgroup(GROUP, CONSUMER, {STREAM: position}, count=BATCH)
        return [{"entry": entry, **fields} for entry, fields in (streams[0][1] if streams else [])]


class Died(Exception):
    pass


# ---- the stream, and the truth about it ------------------------------------------------------------------------------


class Clocked(Consumer):
    """Rotates the window before it notes the first event of an hour. With EVERY, the server would rotate it."""

    hour = -1

    def _note(self, event: Event) -> bool:
        if self.hour < int(event["hour"]):
            self.hour = int(event["hour"])
            while self.window.stats()["generation"] < self.hour:
                self.window.rotate()
        return super()._note(event)


def deliveries(events: int) -> list[tuple[int, str]]:
    """Hour and event of each delivery, in order. A tenth of the events come again soon, and another tenth later."""
    chance = random.Random(1)
    stream = []
    for number in range(events):
        event, first = f"event-{number:06}", chance.uniform(0, HOURS)
        stream.append((first, event))
        luck = chance.random()
        if luck < 0.1:
            stream.append((first + chance.uniform(0, 0.2), event))  # the producer tried again
        elif luck < 0.2:
            stream.append((first + chance.uniform(0.2, 48), event))  # somebody replayed a queue
    return [(int(time), event) for time, event in sorted(stream)]


def truth(stream: list[tuple[int, str]]) -> collections.Counter[str]:
    """Counts the verdicts that an exact record of the same number of generations would give."""
    verdicts: collections.Counter[str] = collections.Counter()
    noted: dict[str, int] = {}
    for hour, event in stream:
        if event not in noted:
            verdicts["new"] += 1
        elif hour - noted[event] < GENERATIONS:
            verdicts["duplicate"] += 1
        else:
            verdicts["late"] += 1
        noted[event] = hour
    return verdicts


def publish(client: redis.Redis, stream: list[tuple[int, str]]) -> None:
    for start in range(0, len(stream), BATCH):
        with client.pipeline(transaction=False) as pipeline:
            for hour, event in stream[start : start + BATCH]:
                pipeline.xadd(STREAM, {"hour": hour, "id": event})
            pipeline.execute()
    client.xgroup_create(STREAM, GROUP, "0")


def main() -> None:
    parser = argparse.ArgumentParser(description="Process each event of a stream once.")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), metavar="URL")
    arguments = parser.parse_args()
    client = redis.Redis.from_url(arguments.redis, decode_responses=True)
    client.unlink(STREAM, WINDOW)
    stream = deliveries(arguments.events)
    publish(client, stream)
    per_generation = 2 * arguments.events // HOURS
    window = Bloom(client, WINDOW).reserve(ERROR_RATE, per_generation, window=GENERATIONS, seed=SEED)

    processed: collections.Counter[str] = collections.Counter()

    def process(event: Event) -> None:
        processed[event["id"]] += 1

    try:
        Clocked(client, process, dies_at=len(stream) // 2).run()
    except Died:
        Clocked(client, process).run()

    expected = truth(stream)
    lost = arguments.events - len(processed)
    again = processed.total() - len(processed)
    print(f"deliveries                {len(stream):>6}   of {arguments.events} events, in {HOURS} hours")
    print(f"processed                 {processed.total():>6}")
    recognised = len(stream) - processed.total()
    print(f"recognised as duplicates  {recognised:>6}   {expected['duplicate']} are less than a day old")
    print(f"processed again           {again:>6}   {expected['late']} came after they had left the window")
    print(f"lost                      {lost:>6}")
    print(f"memory of the window      {window.stats()['size'] / 1000:>6.0f}   kB")
    if (lost, again) != (0, expected["late"]):
        sys.exit("the window has not said what an exact memory would have said")


if __name__ == "__main__":
    main()
