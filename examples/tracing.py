"""Traces calls on a filter as spans, with the attributes of OpenTelemetry's conventions for databases.

    python3 examples/tracing.py        needs: pip install opentelemetry-sdk

A span has attributes that tools recognise (db.*, server.*, error.type), and three of our own: the filter's key, the
number of items, and the number of positive answers. Items are not recorded, because they are user data. """

import argparse
import functools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import redis
from bloomery_redis import Bloom


def tested(start_span: Callable[..., AbstractContextManager[Any]], filter: Bloom, items: Sequence[str]) -> list[bool]:
    """Returns `filter.contains_many(items)`, and traces the call in a span. `start_span` is a tracer's
    `start_as_current_span` for spans of the kind CLIENT."""
    connection = filter.client.get_connection_kwargs()
    attributes = {
        "db.system.name": "redis",
        "db.operation.name": "BF.BULKTEST",
        "db.namespace": str(connection.get("db", 0)),
        "server.address": connection["host"],
        "server.port": connection["port"],
        "bloomery.filter.key": filter.key,
        "bloomery.filter.items": len(items),
    }
    with start_span("BF.BULKTEST", attributes=attributes) as span:
        try:
            answers = filter.contains_many(items)
        except redis.RedisError as error:
            span.set_attribute("error.type", type(error).__name__)
            raise
        span.set_attribute("bloomery.filter.positive", sum(answers))
        return answers


def main() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
    from opentelemetry.trace import SpanKind

    parser = argparse.ArgumentParser(description="Trace one call of a filter.")
    parser.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), metavar="URL")
    client = redis.Redis.from_url(parser.parse_args().redis)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    tracer = provider.get_tracer("users")
    start_span = functools.partial(tracer.start_as_current_span, kind=SpanKind.CLIENT)
    tested(start_span, Bloom(client, "users"), ["ada", "eve"])


if __name__ == "__main__":
    main()
