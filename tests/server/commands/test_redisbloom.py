"""Bloomery's replies are RedisBloom's, to the byte. tests/fixtures/redisbloom/transcript.json contains exchanges
recorded from RedisBloom, each in RESP2 and RESP3, with sizes masked as <n>. Scenarios begin with FLUSHALL. Three
differences are intended: the names of the data types, capacities above 2^30, which Bloomery accepts, and a filter that
has grown, which has a table instead of RedisBloom's layers.
"""

import json
import re

import pytest

from kit.raw import Connection
from kit.servers import ROOT

TRANSCRIPT = ROOT / "tests" / "fixtures" / "redisbloom" / "transcript.json"
BEYOND_REDISBLOOM = str((1 << 30) + 1)
# In BF.INFO, of a filter that has grown.
LAYERS = re.compile(r"(\+Capacity\r\n:)\d+(\r\n\+Size\r\n:<n>\r\n\+Number of filters\r\n:)(?!1\r)\d+")


def scenarios():
    exchanges = json.loads(TRANSCRIPT.read_text())
    # The file has a list of scenarios, or one list of exchanges, in which each scenario begins with FLUSHALL.
    flat = [exchange for part in exchanges for exchange in (part if isinstance(part, list) else [part])]
    found: list[list[dict]] = []
    for exchange in flat:
        if exchange["argv"] == ["FLUSHALL"]:
            found.append([])
        found[-1].append(exchange)
    return [scenario for scenario in found if not uses(scenario, BEYOND_REDISBLOOM)]


def uses(scenario, word: str) -> bool:
    return any(argument.upper().startswith(word) for exchange in scenario for argument in exchange["argv"])


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_reply_is_redisblooms(server, protocol):
    connection, compared = Connection(server.port, protocol), 0
    try:
        for scenario in scenarios():
            for exchange in scenario:
                recorded = exchange[f"resp{protocol}"].replace("+MBbloom--", "+bloomery1").replace("+MBbloomCF", "+bloomeryC")
                recorded = LAYERS.sub(r"\1<n>\g<2>2", recorded)
                pattern = re.escape(recorded.encode("latin-1")).replace(re.escape(b"<n>"), rb"\d+")
                reply = connection.ask(exchange["argv"])
                assert re.fullmatch(pattern, reply, re.DOTALL), f"{exchange['argv']}: {reply!r} instead of {recorded!r}"
                compared += 1
    finally:
        connection.close()
    assert compared > 250  # otherwise, the fixture is incomplete
