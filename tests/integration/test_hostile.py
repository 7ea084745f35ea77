"""Bytes that no server wrote: thousands of damaged DUMP payloads, restored into a live server.

Some damage is for the checksums to find. The rest has its checksums made right again, so that nothing stands between
it and the decoder but validation. Whatever is refused leaves no key. Whatever loads is a filter like any other: it
takes commands, and what it becomes by them can be saved and loaded again. Nothing crashes, hangs, or eats memory.

BLOOMERY_HOSTILE=100000 restores that many instead of the quick 2,000, BLOOMERY_SEED=… repeats a run.
"""

import dataclasses
import os
import random
import struct
import time

import pytest
import redis
from filters import adding
from payload import CUCKOO, Payload
from payload import PREFIX as CHUNK_PREFIX
from servers import Server

COUNT = int(os.environ.get("BLOOMERY_HOSTILE") or 2000)
HANG_SECONDS = 1.0
GROWTH = 64 << 20  # bytes of resident memory

# Small, so that a damaged byte is likely to matter.
SOURCES = {
    "fixed": "BF 0.01 50 NONSCALING",
    "saturate": "BF 0.05 50 ONFULL SATURATE HASH SIPHASH",
    "blocked": "BF 0.01 50 NONSCALING LAYOUT BLOCKED SHARDS 2",
    "classic": "BF 0.01 50 NONSCALING LAYOUT CLASSIC SHARDS 4",
    "scaling": "BF 0.05 5 EXPANSION 2",
    "tightening": "BF 0.05 5 EXPANSION 1 TIGHTENING 0.5",
    "counting-4": "BF 0.05 30 COUNTING",
    "counting-8": "BF 0.05 30 COUNTING 8",
    "counting-16": "BF 0.05 30 COUNTING 16",
    "window": "BF 0.05 20 WINDOW 3",
    "window-every": "BF 0.05 20 WINDOW 2 EVERY 100000 SINCE 1700000000000",
    "cuckoo": "CF 30 EXPANSION 0",
    "cuckoo-scaling": "CF 8 BUCKETSIZE 4 EXPANSION 2 HASH SIPHASH",
    "cuckoo-constant": "CF 5 EXPANSION 1",
    "cuckoo-padded": "CF 7 BUCKETSIZE 3 MAXITERATIONS 1",
}

EDGES = {
    "B": [0, 1, 2, 3, 4, 7, 8, 16, 127, 255],
    "H": [0, 1, 0x8000, 0xFFFF],
    "I": [0, 1, 2, 3, 63, 64, 65, 1023, 1024, 1025, 4096, 4097, 32_768, 32_769, 1 << 31, (1 << 32) - 1],
    "Q": [0, 1, 8, 63, 64, 512, 1 << 31, 1 << 32, 1 << 46, 1 << 48, (1 << 48) + 1, 1 << 49, (1 << 62) - 1, 1 << 62, 1 << 63, (1 << 64) - 1],
    "d": [0.0, -0.0, 5e-324, 1e-300, 1e-12, 9e-13, 1e-20, 0.5, 1 - 2**-53, 1.0, 2.0, -1.0, float("inf"), float("-inf"), float("nan")],
}  # fmt: skip


@pytest.fixture(scope="module")
def bare(spec):
    """A server that skips the payloads' outer checksum and does not compress; and the payloads to damage."""
    with (
        Server(spec, config={"rdbcompression": "no", "sanitize-dump-payload": "yes"}) as server,
        server.client() as client,
    ):
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
        dumps = {}
        for name, arguments in SOURCES.items():
            prefix, *words = arguments.split()
            client.execute_command(f"{prefix}.RESERVE", name, *words)
            client.execute_command(*adding(prefix, name, [f"item:{number}" for number in range(20)]))
            dumps[name] = client.dump(name)
        yield server, client, dumps
        server.check()


# ---- damage ---------------------------------------------------------------------------------------------------------


def flip(data: bytes, chance: random.Random, start: int = 0) -> bytes:
    """One to four bytes changed, in all kinds of ways."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(start, len(data))
        data[at] = chance.choice([data[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0, 255])
    return bytes(data)


def damage_anywhere(payload: Payload, chance: random.Random) -> bytes:
    """Also in the strings' lengths and marks; not in type and id, where it would be another module's business."""
    dump = payload.dump()
    if chance.random() < 0.2:
        return dump[: chance.randrange(len(payload.start), len(dump) - 10)] + payload.footer
    return flip(dump[:-10], chance, len(payload.start)) + payload.footer


def damage_a_piece(payload: Payload, chance: random.Random) -> bytes:
    """The checksum of that piece is wrong."""
    index = chance.randrange(len(payload.pieces))
    payload.pieces[index] = flip(payload.pieces[index], chance)
    return payload.dump()


def damage_and_seal(payload: Payload, chance: random.Random) -> bytes:
    damage_a_piece(payload, chance)
    payload.seal()
    return payload.dump()


def edit_fields(payload: Payload, chance: random.Random) -> bytes:
    """One to three fields of the head at their edges, checksums right."""
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        name, code, _ = chance.choice(payload.fields())
        value = chance.choice(EDGES[code])
        if code != "d" and chance.random() < 0.3:
            size = struct.calcsize(code) * 8
            value = (payload.get(name) + chance.choice([-8, -1, 1, 8])) % (1 << size)
        payload.set(name, value)
    payload.seal()
    return payload.dump()


def edit_counts(payload: Payload, chance: random.Random) -> bytes:
    """Fields that geometry does not follow from: most of these load."""
    names = [
        name
        for name, *_ in payload.fields()
        if name.endswith("items") or name in ("newest", "rotations", "since", "every", "deletes", "moves")
    ]
    for name in chance.choices(names, k=2):
        most = 1 << 48 if name.endswith("items") else 1 << 62
        near = [most - 2, most - 1, most, most + 1]
        payload.set(
            name, chance.choice([*near, *near, *EDGES["Q"], chance.randrange(1 << 49), chance.randrange(1 << 63)])
        )
    payload.seal()
    return payload.dump()


def random_cells(payload: Payload, chance: random.Random) -> bytes:
    """Cells as no adds would leave them. A sound filter, for all that a decoder can know."""
    for index, chunk in enumerate(payload.pieces[1:], 1):
        payload.pieces[index] = chunk[:20] + chance.choice(
            [chance.randbytes(len(chunk) - 20), b"\xff" * (len(chunk) - 20)]
        )
    payload.seal()
    return payload.dump()


def splice(payload: Payload, chance: random.Random, others: list[Payload]) -> bytes:
    """Pieces lost, doubled, swapped, cut, or another filter's."""
    pieces, index = payload.pieces, chance.randrange(len(payload.pieces))
    match chance.randrange(5):
        case 0:
            del pieces[index]
        case 1:
            pieces.insert(index, pieces[index])
        case 2:
            chance.shuffle(pieces)
        case 3:
            pieces[index] = pieces[index][: chance.randrange(len(pieces[index]))]
        case 4:
            pieces[index] = chance.choice(chance.choice(others).pieces)
    if pieces and len(pieces[0]) >= 24 and chance.random() < 0.5:
        payload.seal()
    return payload.dump()


DAMAGES = [
    damage_anywhere,
    damage_a_piece,
    damage_and_seal,
    edit_fields,
    edit_fields,
    edit_counts,
    random_cells,
    splice,
]


# ---- what is done with it -------------------------------------------------------------------------------------------


def random_commands(key: str, cuckoo: bool, chance: random.Random, count: int = 20) -> list[list]:
    def items(most):
        return [f"item:{chance.randrange(200)}" for _ in range(chance.randint(1, most))]

    choices = [
        lambda: ["BF.ADD", key, *items(1)],
        lambda: ["BF.MADD", key, *items(60)],
        lambda: ["BF.ADDNX", key, *items(1)],
        lambda: ["BF.INSERT", key, "ITEMS", *items(10)],
        lambda: ["BF.DEL", key, *items(1)],
        lambda: ["BF.MDEL", key, *items(10)],
        lambda: ["BF.COUNT", key, *items(1)],
        lambda: ["BF.AGE", key, *items(1)],
        lambda: ["BF.ROTATE", key],
        lambda: ["BF.MEXISTS", key, *items(40)],
        lambda: ["BF.INFO", key],
        lambda: ["BF.INFO", key, "FULL"],
        lambda: ["BF.DEBUG", key],
        lambda: ["BF.CARD", key],
        lambda: ["BF.SCANDUMP", key, chance.choice([0, 1, 9, 1 << 62])],
        lambda: ["BF.RESERVE", "like", "0.05", "30", "LIKE", key],
    ]
    if cuckoo:
        choices = [
            lambda: ["CF.ADD", key, *items(1)],
            lambda: ["CF.ADDNX", key, *items(1)],
            lambda: ["CF.INSERT", key, "ITEMS", *items(60)],
            lambda: ["CF.INSERTNX", key, "ITEMS", *items(10)],
            lambda: ["CF.DEL", key, *items(1)],
            lambda: ["CF.COUNT", key, *items(1)],
            lambda: ["CF.EXISTS", key, *items(1)],
            lambda: ["CF.MEXISTS", key, *items(40)],
            lambda: ["CF.COMPACT", key],
            lambda: ["CF.INFO", key],
            lambda: ["CF.DEBUG", key],
            lambda: ["CF.SCANDUMP", key, chance.choice([0, 1, 9, 1 << 62])],
            chance.choice(choices),  # refused, or the answer of a key that is not there
        ]
    choices += [
        lambda: ["MEMORY", "USAGE", key],
        lambda: ["DEBUG", "DIGEST-VALUE", key],
    ]
    commands = [chance.choice(choices)() for _ in range(count)]
    if chance.random() < 0.1:
        commands.append(["BF.CLEAR", key])
    return commands


def run(client, commands: list[list]) -> list:
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute(raise_on_error=False)


def resident(server) -> int:
    return server.info("memory")["used_memory_rss"]


# ---- the tests ------------------------------------------------------------------------------------------------------


def test_undamaged_payloads_load(bare):
    """The control: taken apart, sealed and put together, every payload is what it was."""
    _, client, dumps = bare
    for name, dump in dumps.items():
        payload = Payload.parse(dump)
        payload.seal()
        assert payload.dump() == dump
        client.restore("copy", 0, dump, replace=True)
        digest = client.execute_command("DEBUG", "DIGEST-VALUE", name)
        assert client.execute_command("DEBUG", "DIGEST-VALUE", "copy") == digest
    client.delete("copy")


@dataclasses.dataclass
class Outcome:
    loaded: int = 0
    refused: int = 0
    unsaved: list[str] = dataclasses.field(default_factory=list)
    growth: int = 0


@pytest.fixture(scope="module")
def outcome(bare):
    """What became of all the damaged payloads. Whoever crashes or hangs the server fails here."""
    server, client, dumps = bare
    seed = int(os.environ.get("BLOOMERY_SEED") or random.randrange(1 << 32))
    print("BLOOMERY_SEED", seed)
    chance = random.Random(seed)
    outcome, before = Outcome(), resident(server)
    for number in range(COUNT):
        name, damage = chance.choice(list(dumps)), chance.choice(DAMAGES)
        payload = Payload.parse(dumps[name])
        others = [[Payload.parse(dump) for dump in dumps.values()]] if damage is splice else []
        dump = damage(payload, chance, *others)
        where = f"payload {number}, {name}, {damage.__name__}, seed {seed}: {dump.hex()}"
        started = time.monotonic()
        try:
            try_one(client, dump, chance, outcome, where)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            pytest.fail(f"{error}: {where}\n{server.log_tail()}", pytrace=False)
        assert time.monotonic() - started < HANG_SECONDS, where
    outcome.growth = resident(server) - before
    print(outcome.loaded, "loaded,", outcome.refused, "refused,", len(outcome.unsaved), "not to be loaded again")
    return outcome


def try_one(client, dump: bytes, chance: random.Random, outcome: Outcome, where: str) -> None:
    try:
        client.restore("hostile", 0, dump)
    except redis.ResponseError as error:
        assert "Bad data format" in str(error), where
        assert client.exists("hostile") == 0, where
        outcome.refused += 1
        return
    outcome.loaded += 1
    replies = run(client, random_commands("hostile", Payload.parse(client.dump("hostile")).kind == CUCKOO, chance))
    assert not any("internal error" in str(reply) for reply in replies), where
    *copied, digests, _ = run(
        client,
        [
            ["COPY", "hostile", "copy"],
            ["RESTORE", "again", "0", client.dump("hostile")],
            ["DEBUG", "DIGEST-VALUE", "hostile", "copy", "again"],
            ["DEL", "hostile", "copy", "again", "like"],
        ],
    )
    if copied != [True, b"OK"] or len(set(digests)) != 1:
        outcome.unsaved.append(f"{copied} {digests} {where}")


def test_damaged_payloads_do_no_harm(outcome):
    assert outcome.loaded > COUNT / 10 and outcome.refused > COUNT / 3  # else it would show little
    assert outcome.growth < GROWTH


def test_what_loads_can_be_saved_and_loaded_again(outcome):
    assert outcome.unsaved == []


@pytest.mark.parametrize("size", [1 << 40, 1 << 46], ids=["1 TiB", "64 TiB"])
@pytest.mark.parametrize(
    "name, prefix, field, per_byte",
    [("fixed", "BF", "layer 0: cells", 8), ("cuckoo", "CF", "capacity", 1)],
    ids=["fixed", "cuckoo"],
)
def test_a_head_takes_no_memory(bare, name, prefix, field, per_byte, size):
    """All that comes of a filter larger than the machine is the head, and a few of the cells."""
    server, client, dumps = bare
    payload = Payload.parse(dumps[name])
    payload.set(field, size * per_byte)
    payload.set("body length", size)
    payload.seal()
    before, started = resident(server), time.monotonic()
    for again in range(10):
        with pytest.raises(redis.ResponseError, match="Insufficient memory to create filter: it takes "):
            client.execute_command(f"{prefix}.LOADCHUNK", f"edge:{again}", 1, payload.pieces[0])
        with pytest.raises(redis.ResponseError, match="Bad data format"):
            client.restore("edge", 0, payload.dump())
    assert time.monotonic() - started < HANG_SECONDS
    assert resident(server) - before < 1 << 20


def test_bytes_behind_the_last_slot(bare):
    """A table of six slots takes a word, of which two bytes are no slots, and must be 0."""
    _, client, dumps = bare
    for at, refused in [(5, False), (6, True), (7, True)]:
        payload = Payload.parse(dumps["cuckoo-padded"])
        cells = CHUNK_PREFIX + at
        payload.pieces[1] = payload.pieces[1][:cells] + b"\1" + payload.pieces[1][cells + 1 :]
        payload.seal()
        client.delete("edge")
        if refused:
            with pytest.raises(redis.ResponseError, match="Bad data format"):
                client.restore("edge", 0, payload.dump())
        else:
            client.restore("edge", 0, payload.dump())
    client.delete("edge")


def test_a_count_of_items_at_its_edge(bare):
    assert saved_after(bare, "saturate", "layer 0: items", 1 << 48, ["BF.MADD", "edge", *map(str, range(50))])


def test_a_generation_at_its_edge(bare):
    assert saved_after(bare, "window", "newest", (1 << 62) - 1, ["BF.ROTATE", "edge"])
    with pytest.raises(redis.ResponseError, match="the last number of a generation"):
        saved_after(bare, "window", "newest", 1 << 62, ["BF.ROTATE", "edge"])


@pytest.mark.parametrize(
    "name, field, commands",
    [
        ("cuckoo", "deletes", [["CF.DEL", "edge", "item:0"]]),
        # What was deleted leaves room, into which others move up; what is added then moves others aside.
        ("cuckoo-scaling", "moves", [["CF.DEL", "edge", f"item:{number}"] for number in range(10)]),
        ("cuckoo-scaling", "moves", [["CF.ADD", "edge", f"more:{number}"] for number in range(200)]),
    ],
    ids=["deletes", "moves by compaction", "moves by adding"],
)
def test_a_count_of_a_cuckoo_filter_at_its_edge(bare, name, field, commands):
    _, client, dumps = bare
    # The control: without the edge, these commands do count.
    client.restore("edge", 0, dumps[name], replace=True)
    before = Payload.parse(client.dump("edge")).get(field)
    run(client, commands)
    assert Payload.parse(client.dump("edge")).get(field) > before
    assert saved_after(bare, name, field, 1 << 62, *commands)


def saved_after(bare, name: str, field: str, value: int, *commands: list) -> bool:
    """Whether a filter that has the value in the field can still be loaded when the command is through with it."""
    _, client, dumps = bare
    payload = Payload.parse(dumps[name])
    payload.set(field, value)
    payload.seal()
    client.restore("edge", 0, payload.dump(), replace=True)
    try:
        for command in commands:
            client.execute_command(*command)
        dump = client.dump("edge")
    except redis.ResponseError:
        client.delete("edge")
        raise
    try:
        client.restore("edge", 0, dump, replace=True)
    except redis.ResponseError:
        return False
    finally:
        client.delete("edge")
    return True
