"""clients/python, the package bloomery-redis, with redis-py and valkey-py, blocking and asyncio, in both protocols,
with and without decoded replies. Most tests run with all of these, in some combinations. test_cluster.py tests spread
filters.
"""

import array
import asyncio
import datetime
import inspect
import re

import bloomery_redis
import bloomery_redis.asyncio
import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from bloomery_redis import FilterFull

from kit.blocking import Blocking, asynchronous
from kit.clusters import cluster_info
from kit.servers import ROOT, wait_for
from kit.snippets import blocks
from kit.snippets import run as run_snippet

pytestmark = pytest.mark.every_server("clients talk to the server, which converts the module's replies")

README = ROOT / "clients" / "python" / "README.md"
ERRORS = (redis.ResponseError, valkey.ResponseError)

# Library, protocol, and whether replies are decoded: half of all combinations, in which each pair of values occurs.
CLIENTS = [(redis, 2, False), (redis, 3, True), (valkey, 2, True), (valkey, 3, False)]


class Api:
    """The classes of the package for one client. They are used in the same way whether or not they block."""

    def __init__(self, server, library, protocol: int, decoded: bool, loop, **login):
        self.library = library
        self.loop = loop
        options = {"port": server.port, "protocol": protocol, "decode_responses": decoded, "socket_timeout": 60, **login}
        name = "Redis" if library is redis else "Valkey"
        self.plain = getattr(library, name)(**options)
        self.client = getattr(library.asyncio, name)(**options) if loop else self.plain

    def __getattr__(self, name: str):
        if not self.loop:
            return lambda *arguments, **options: getattr(bloomery_redis, name)(self.client, *arguments, **options)
        made = getattr(bloomery_redis.asyncio, name)
        return lambda *arguments, **options: Blocking(self.loop, made(self.client, *arguments, **options))

    def pieces(self, pieces):
        """The pieces in the form that `restore` accepts."""
        return asynchronous(pieces) if self.loop else pieces

    def close(self) -> None:
        if self.loop:
            self.loop.run_until_complete(self.client.aclose())
            self.loop.close()
        self.plain.close()


@pytest.fixture(params=["blocking", "asyncio"])
def loop(request):
    return asyncio.new_event_loop() if request.param == "asyncio" else None


@pytest.fixture(
    params=CLIENTS, ids=[f"{lib.__name__}-resp{proto}{'-decoded' * decoded}" for lib, proto, decoded in CLIENTS]
)
def api(request, server, loop):
    api = Api(server, *request.param, loop)
    yield api
    api.close()


# ---- items ----------------------------------------------------------------------------------------------------------


class Index:
    """An integer whose type isn't int, such as numpy's."""

    def __init__(self, value: int):
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Index({self.value})"


# The bytes of an item, and the other ways to write it.
SAME = [
    (b"42", ["42", 42, Index(42), bytearray(b"42"), memoryview(b"42")]),
    (b"-7", ["-7", -7, Index(-7)]),
    ("naïve ☃".encode(), ["naïve ☃"]),
    (b"", [""]),
    (b"\xff\0\r\n", [bytearray(b"\xff\0\r\n")]),
]


@pytest.mark.parametrize("kind", ["Bloom", "Cuckoo"])
def test_an_item_is_the_same_however_it_is_given(api, kind):
    """Every method encodes items in the same way as the commands of other clients do."""
    made = {"Bloom": lambda key: api.Bloom(key).reserve(1e-6, 100), "Cuckoo": lambda key: api.Cuckoo(key).reserve(1000)}
    test = {"Bloom": "BF.EXISTS", "Cuckoo": "CF.EXISTS"}[kind]
    for raw, spellings in SAME:
        for item in [raw, *spellings]:
            one, many = made[kind]("one"), made[kind]("many")
            assert one.add(item) is True
            assert many.add_many([item]) == 1
            for found in (one, many):
                assert api.plain.execute_command(test, found.key, raw) == 1
                assert all(found.contains(spelling) for spelling in spellings)
                assert found.contains_many(spellings) == [True] * len(spellings)
            api.plain.delete("one", "many")


def test_what_can_be_written_in_several_ways_is_refused(api):
    bloom, cuckoo = api.Bloom("seen").reserve(0.01, 100), api.Cuckoo("stock").reserve(100)
    for item in (1.0, True, None, ("a",), ["a"]):
        for call in (bloom.add, bloom.contains, bloom.remove, bloom.age, cuckoo.add, cuckoo.remove, cuckoo.count):
            with pytest.raises(TypeError, match="an item is bytes, str or an integer, not"):
                call(item)
        for call in (bloom.add_many, bloom.contains_many, cuckoo.add_many, cuckoo.contains_many):
            with pytest.raises(TypeError, match="an item is bytes, str or an integer, not"):
                call(["fine", item])
    assert bloom.card() == 0


def test_one_item_where_many_go_is_refused(api):
    """If one string were accepted, its characters would be added as items."""
    bloom = api.Bloom("seen").reserve(0.01, 100)
    for items in ("ada", b"ada"):
        for call in (bloom.add_many, bloom.contains_many):
            with pytest.raises(TypeError, match="put it into a list"):
                call(items)


def test_many_items(api, server):
    """Items come from any iterable and are sent in pieces. Answers come in the order of the items."""
    bloom = api.Bloom("seen").reserve(1e-6, 200_000)
    api.plain.config_resetstat()
    assert bloom.add_many(f"item:{number}" for number in range(20_000)) > 19_990
    # 20,000 items of at most 14 bytes, including their lengths, are five pieces of 64 KiB. A slow server divides some
    # of these again, and counts each part.
    assert 5 <= server.info("commandstats")["cmdstat_bf.bulkadd"]["calls"] <= 20
    expected = [number < 20_000 for number in range(19_000, 21_003)]
    assert bloom.contains_many(f"item:{number}" for number in range(19_000, 21_003)) == expected
    assert bloom.add_many(array.array("Q", range(1000))) == 1000
    assert all(bloom.contains_many(range(1000))) and bloom.contains("999")
    large = b"x" * 200_000
    assert bloom.add_many([large, b"y", large]) == 2
    assert bloom.contains_many([large, b"z", b"y"]) == [True, False, True]
    assert (bloom.add_many([]), bloom.contains_many([])) == (0, [])


# ---- creating -------------------------------------------------------------------------------------------------------


def test_options_are_those_of_the_server(api):
    """A timedelta is sent as milliseconds, and True as the option's word alone. None and False omit the option."""
    since = datetime.datetime.now(datetime.timezone.utc)
    window = api.Bloom("window").reserve(
        0.01, 100, window=25, every=datetime.timedelta(hours=1), since=since, onfull="ERROR", seed=None
    )
    stats = window.stats()
    assert (stats["generations"], stats["rotates_every_ms"], stats["on_full"]) == (25, 3_600_000, "ERROR")
    assert 3_590_000 < stats["next_rotation_in_ms"] <= 3_600_000
    assert api.Bloom("ms").reserve(0.01, 100, window=2, every=5000).stats()["rotates_every_ms"] == 5000
    assert api.Bloom("fixed").reserve(0.01, 100, nonscaling=True, expansion=None).stats()["kind"] == "fixed"
    assert api.Bloom("chain").reserve(0.01, 100, nonscaling=False, expansion=4).stats()["expansion_rate"] == 4
    assert api.Bloom("four").reserve(0.01, 0, counting=True).stats()["bits_per_cell"] == 4 + 7
    eight = api.Bloom("eight").reserve(0.01, 100, counting=8, hash="SIPHASH", layout="BLOCKED", shards=2).stats()
    assert [eight[name] for name in ("bits_per_cell", "hash", "layout", "shards")] == [8, "SIPHASH", "BLOCKED", 2]
    one = api.Bloom("one").reserve(0.01, 100, seed="5eed")
    for other in (one, "one", b"one"):
        two = api.Bloom("two").reserve(0.01, 100, like=other)
        assert two.stats()["identity"] == one.stats()["identity"]
        api.plain.delete("two")
    assert api.Cuckoo("cuckoo").reserve(100, bucketsize=4, expansion=0).stats()["bucket_size"] == 4


WRONG = [
    ({"error_rate": 0}, "error_rate is above 0 and below 1, not 0"),
    ({"error_rate": 1.0}, "error_rate is above 0 and below 1, not 1.0"),
    ({"error_rate": float("nan")}, "error_rate is above 0 and below 1"),
    ({"capacity": -1}, "capacity is an integer from"),
    ({"capacity": 1e6}, "capacity is an integer from"),
    ({"capacity": True}, "capacity is an integer from"),
    ({"expansion": -1}, "expansion is an integer from 0 to 32768, not -1"),
    ({"counting": 5}, "counting is one of True, 4, 8, 16, not 5"),
    ({"window": 1}, "window is an integer from 2 to 1000, not 1"),
    ({"window": 2, "every": 0.5}, "every is an integer from 1 to"),
    ({"window": 2, "every": datetime.timedelta(microseconds=999)}, "every is an integer from 1 to"),
    ({"shards": 3}, "shards is a power of two up to 1024, not 3"),
    ({"layout": "blocked"}, "layout is one of 'AUTO', 'BLOCKED', 'CLASSIC', 'PARTITIONED', 'QUOTIENT', not 'blocked'"),
    ({"hash": "MD5"}, "hash is one of 'XXH3', 'SIPHASH', not 'MD5'"),
    ({"seed": "xyz"}, "seed is 1 to 32 hexadecimal digits, not 'xyz'"),
    ({"tightening": 1}, "tightening is above 0 and below 1, not 1"),
    ({"onfull": "GROW"}, "onfull is one of 'ERROR', 'SATURATE', 'SCALE', 'FORGET', not 'GROW'"),
]


def test_wrong_arguments_are_refused_before_anything_is_sent(api, server):
    api.plain.config_resetstat()
    for wrong, text in WRONG:
        options = {"error_rate": 0.01, "capacity": 100, **wrong}
        with pytest.raises(ValueError) as caught:
            api.Bloom("seen").reserve(options.pop("error_rate"), options.pop("capacity"), **options)
        assert text in str(caught.value)
        if not {"window"} < set(wrong):
            with pytest.raises(ValueError) as caught:
                with api.Bloom("seen").rebuild(**wrong):
                    pass
            assert text in str(caught.value)
    assert not [name for name in server.info("commandstats") if "BF." in name.upper()]


def test_errors_of_the_server(api):
    bloom = api.Bloom("seen").reserve(0.01, 10, nonscaling=True, seed="7")
    with pytest.raises(ERRORS, match="item exists"):
        bloom.reserve(0.01, 10)
    with pytest.raises(ERRORS, match="unknown option 'COLOR'"):
        api.Bloom("other").reserve(0.01, 10, color="red")  # a newer server may know it
    with pytest.raises(ERRORS, match="exclude each other"):
        api.Bloom("other").reserve(0.01, 10, counting=4, window=2, exist_ok=True)
    assert bloom.reserve(0.01, 10, exist_ok=True) is bloom
    with pytest.raises(ERRORS, match=r"full; 1\d of 20 items were added"):
        bloom.add_many(range(20))
    with pytest.raises(ERRORS, match="full"):
        bloom.add("ada")
    with pytest.raises(ERRORS, match="not a counting filter"):
        bloom.remove_many(["ada"])


def test_an_add_makes_no_filter(api):
    """A filter that expired or was evicted doesn't come back without its items."""
    for missing in (api.Bloom("seen"), api.Cuckoo("seen")):
        with pytest.raises(ERRORS, match="not found"):
            missing.add("ada")
        with pytest.raises(ERRORS, match="not found"):
            missing.add_many(["ada"])
        assert not missing.contains("ada") and missing.contains_many(["ada", "bob"]) == [False, False]
    assert not api.plain.exists("seen")


def test_a_key_of_another_type_has_no_answer(api):
    """BF.EXISTS, CF.EXISTS and others answer no, as in RedisBloom, and that would be taken for certain."""
    api.plain.set("text", "x")
    api.Cuckoo("cuckoo").reserve(100).add("ada")
    api.Bloom("bloom").reserve(0.01, 100).add("ada")
    for kind, other in ((api.Bloom, "cuckoo"), (api.Cuckoo, "bloom")):
        for wrong in (kind("text"), kind(other)):
            for ask in (wrong.contains, wrong.count, lambda item: wrong.contains_many([item])):
                with pytest.raises(ERRORS, match="WRONGTYPE"):
                    ask("ada")
        assert not kind("missing").contains("ada") and not kind("missing").count("ada")
        assert kind("missing").contains_many(["ada"]) == [False]
    (part,) = api.SpreadBloom("whole", 1).keys
    api.plain.set(part, "x")
    with pytest.raises(ERRORS, match="WRONGTYPE"):
        api.SpreadBloom("whole", 1).contains("ada")


def test_the_permissions_that_the_page_names(server):
    (page,) = re.findall(r"## Permissions\n(.*?)\n## ", README.read_text(), flags=re.DOTALL)
    commands = set()
    for family, kind in (("BF", bloomery_redis.Bloom), ("CF", bloomery_redis.Cuckoo)):
        methods = [name for name in dir(kind) if name[0] != "_" and f"`{name}`" not in page]
        commands |= {f"{family}.{name}" for name in [*methods, *re.findall(r"\b(?<!F\.)[A-Z]{5,}", page)]}
    commands.update(re.findall(r"[BC]F\.[A-Z]+|(?<=`\+)\w+", page))
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">secret", "~*", "-@all", *(f"+{name}" for name in commands))
    api = Api(server, redis, 3, True, None, username="app", password="secret")

    bloom, cuckoo = api.Bloom("seen").reserve(1e-6, 100, counting=4), api.Cuckoo("cuckoo").reserve(100, seed="1")
    for some in (bloom, cuckoo):
        assert some.add("ada") and some.add_many(["bob"]) == 1 and some.contains_many(["eve"]) == [False]
        assert "ada" in some and "eve" not in some and some.count("ada") == 1 and some.remove("ada")
        assert some.stats()["number_of_items_inserted"] == 1
        type(some)(api.client, some.key + "2").restore(some.dump())
    assert cuckoo.add("ada", if_absent=True)
    assert bloom.remove_many(["bob"]) == [True] and bloom.card() == 0
    bloom.feedback(1, 0)
    bloom.clear()
    with bloom.rebuild() as new:
        new.add_many(["ada"])
    api.Bloom("other").merge(bloom)
    window = api.Bloom("window").reserve(0.01, 100, window=2)
    window.rotate()
    assert window.age("ada") is None
    with server.client() as client:
        api.Bloom("seen2").merge_blob(client.dump("seen2"))
    whole = api.SpreadBloom("whole", 2).reserve(1e-6, 100).reserve(1e-6, 100, exist_ok=True)
    assert whole.add("ada") and whole.add_many(["bob"]) == 1 and whole.contains_many(["bob", "eve"]) == [True, False]
    assert "ada" in whole and whole.missing() == [] and whole.stats()["parts"] == 2
    whole.delete()
    server.command("ACL", "DELUSER", "app")
    api.close()


def test_the_operator_in(api):
    filters = [api.Bloom("seen").reserve(1e-6, 100), api.Cuckoo("cuckoo").reserve(100, seed="1"), api.SpreadBloom("whole", 2).reserve(1e-6, 100)]
    for some in filters:
        some.add("ada")
        if api.loop:
            with pytest.raises(TypeError):
                "ada" in some.target
        else:
            assert "ada" in some and "eve" not in some


# ---- what Bloom filters can -----------------------------------------------------------------------------------------


def test_answers(api):
    bloom = api.Bloom("seen").reserve(1e-6, 1000)
    assert (bloom.contains("ada"), bloom.add("ada"), bloom.add("ada"), bloom.contains("ada")) == (
        False,
        True,
        False,
        True,
    )
    assert bloom.add_many(["ada", "bob", "cid"]) == 2
    assert bloom.card() == 3 and api.Bloom("missing").card() == 0
    bloom.clear()
    assert bloom.card() == 0 and not bloom.contains("ada")
    assert repr(api.Bloom("seen").target if api.loop else bloom) == "Bloom('seen')"


def test_a_counting_filter(api):
    stock = api.Bloom("stock").reserve(1e-6, 1000, counting=4)
    stock.add_many(["bolt", "bolt", "nut"])
    assert (stock.count("bolt"), stock.count("washer")) == (2, 0)
    assert (stock.remove("bolt"), stock.remove("washer")) == (True, False)
    assert stock.remove_many(["bolt", "nut", "nut"]) == [True, True, False]
    items = [f"item:{number}" for number in range(10_000)]
    many = api.Bloom("many").reserve(1e-6, 10_000, counting=4)
    many.add_many(items)
    assert many.remove_many(items) == [True] * 10_000 and many.card() == 0


def test_a_window(api):
    recent = api.Bloom("recent").reserve(1e-6, 1000, window=3)
    recent.add("ada")
    recent.rotate()
    recent.add("bob")
    assert (recent.age("ada"), recent.age("bob"), recent.age("eve")) == (1, 0, None)
    recent.rotate()
    recent.rotate()
    assert recent.contains_many(["ada", "bob"]) == [False, True]


def test_merge(api):
    monday = api.Bloom("monday").reserve(1e-6, 1000)
    tuesday = api.Bloom(b"tuesday").reserve(1e-6, 1000, like=monday)
    monday.add("ada")
    tuesday.add("bob")
    week = api.Bloom("week")
    week.merge(monday, "tuesday")
    assert week.contains_many(["ada", "bob", "eve"]) == [True, True, False]
    with pytest.raises(ValueError, match="at least one source"):
        week.merge()
    with pytest.raises(ERRORS, match="a different seed"):
        week.merge(api.Bloom("other").reserve(0.01, 10))


def test_merge_blob(api, server):
    """Two services have a filter each, and exchange them."""
    paris = api.Bloom("paris").reserve(1e-6, 1000)
    rome = api.Bloom("rome").reserve(1e-6, 1000, like=paris)
    paris.add("ada")
    rome.add("bob")
    with server.client() as client:
        rome.merge_blob(client.dump("paris"))
        file = b"".join(piece for _, piece in rome.dump())
        paris.merge_blob(file)
        new = api.Bloom("new")
        new.merge_blob(client.dump("paris"), file)
    for bloom in (paris, rome, new):
        assert bloom.contains_many(["ada", "bob", "eve"]) == [True, True, False]
    with pytest.raises(ValueError, match="at least one filter"):
        rome.merge_blob()
    with pytest.raises(ERRORS, match="blob 1 has a different seed"):
        api.Bloom("other").reserve(0.01, 10).merge_blob(file)
    with pytest.raises(ERRORS, match="bad data in blob 2"):
        rome.merge_blob(file, b"x" + file)


def test_feedback(api):
    bloom = api.Bloom("seen").reserve(0.01, 2, nonscaling=True, onfull="SATURATE", seed="1")
    bloom.add_many(["ada", "bob", "cid", "dan"])
    bloom.contains_many(["ada", "bob", "eve", "flo"])
    bloom.feedback(2, 1)
    report = bloom.stats()["feedback"]["minute"]
    assert (report["checked"], report["false"], report["share_false"]) == (2, 1, 0.5)
    assert 0 < report["observed_error_rate"] < 1
    for checked, false in ((1, 2), (1, -1)):
        with pytest.raises(ValueError, match="false is from 0 to checked"):
            bloom.feedback(checked, false)


def test_stats(api):
    """Stats are the same in both protocols, even if the client has parsers of its own for BF.INFO and CF.INFO."""
    api.client.bf(), api.client.cf()
    bloom = api.Bloom("seen").reserve(0.02, 1000, window=2, seed="7")
    bloom.rotate()
    bloom.add_many(range(2500))
    stats = bloom.stats()
    assert (stats["kind"], stats["origin"], stats["error_rate"], stats["capacity"]) == (
        "window",
        "bloomery",
        0.02,
        2000,
    )
    assert stats["error_rate_now"] > 0.02 and 0 < stats["fill"] < 1 and type(stats["fill"]) is float
    assert stats["adds"] == 2500 and type(stats["adds"]) is int
    assert stats["rotates_every_ms"] is None and stats["rebuild"] is None
    assert [layer["age"] for layer in stats["layers"]] == [0, 1]
    assert [type(layer["error_rate"]) for layer in stats["layers"]] == [float, float]
    (advice,) = stats["advice"]
    assert advice.startswith("over capacity")
    assert stats["feedback"]["life"] == {
        "checked": 0,
        "false": 0,
        "share_false": None,
        "observed_error_rate": None,
    }
    int(stats["identity"], 16)
    with bloom.rebuild(capacity=5000):
        rebuild = bloom.stats()["rebuild"]
        assert (rebuild["status"], rebuild["error_rate"], rebuild["fill"]) == ("running", 0.02, 0.0)
    cuckoo = api.Cuckoo("stock").reserve(1000, seed="1")
    cuckoo.add("ada")
    assert set(cuckoo.stats()) == set(bloomery_redis.CuckooStats.__annotations__)
    assert (cuckoo.stats()["number_of_items_inserted"], cuckoo.stats()["bucket_size"]) == (1, 2)
    for missing in (api.Bloom("missing"), api.Cuckoo("missing")):
        with pytest.raises(ERRORS, match="not found"):
            missing.stats()


def shape(value):
    """The types of a value, including nested ones."""
    if isinstance(value, dict):
        return {name: shape(some) for name, some in value.items()}
    return [shape(some) for some in value] if isinstance(value, list) else type(value).__name__


def test_stats_of_every_kind(server):
    """Every field is declared in `BloomStats`, and has the same type in both protocols, although some numbers are
    strings in RESP2."""
    with server.client() as one, server.client(protocol=3, decode_responses=True) as two:
        kinds = {
            "window": {"window": 4, "every": 3_600_000},
            "counting": {"counting": 4},
            "scaling": {"tightening": 0.5},
            "fixed": {"nonscaling": True},
        }
        for key, options in kinds.items():
            made = bloomery_redis.Bloom(one, key).reserve(0.01, 100, **options)
            made.add_many(range(150) if key in ("window", "scaling") else range(50))
            made.contains_many(range(200))
            made.feedback(10, 1)
        one.set("text", "hello")
        one.execute_command("BF.IMPORT", "foreign", "GOZERO", "text", "BITS", 40)
        with bloomery_redis.Bloom(one, "scaling").rebuild():
            for key in (*kinds, "foreign"):
                stats = [bloomery_redis.Bloom(client, key).stats() for client in (one, two)]
                assert set(stats[0]) <= set(bloomery_redis.BloomStats.__annotations__)
                assert shape(stats[0]) == shape(stats[1])
                for field in ("error_rate", "capacity", "advice", "identity"):
                    assert stats[0][field] == stats[1][field]


# ---- rebuilding -----------------------------------------------------------------------------------------------------


def test_rebuild(api):
    bloom = api.Bloom("seen").reserve(1e-6, 100)
    bloom.add("left")
    with bloom.rebuild(capacity=20_000, error_rate=1e-9, nonscaling=True, seed="5eed") as new:
        new.add_many(f"item:{number}" for number in range(10_000))
        bloom.add("meanwhile")
        assert bloom.contains_many(["left", "item:1", "meanwhile"]) == [True, False, True]
    assert bloom.contains_many(["left", "item:1", "item:9999", "meanwhile"]) == [False, True, True, True]
    stats = bloom.stats()
    assert (stats["kind"], stats["capacity"], stats["error_rate"], stats["rebuild"]) == ("fixed", 20_000, 1e-9, None)
    with bloom.rebuild():
        pass
    assert bloom.stats()["capacity"] == 20_000 and bloom.card() == 0


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt, asyncio.CancelledError])
def test_an_exception_aborts_a_rebuild(api, failure):
    bloom = api.Bloom("seen").reserve(1e-6, 100)
    bloom.add("ada")
    with pytest.raises(failure):
        with bloom.rebuild() as new:
            new.add_many(["bob"])
            raise failure
    assert bloom.contains_many(["ada", "bob"]) == [True, False]
    assert bloom.stats()["rebuild"] is None


def test_a_rebuild_that_cannot_begin_ends_no_other(api):
    bloom = api.Bloom("seen").reserve(0.01, 100)
    with bloom.rebuild() as new:
        with pytest.raises(ERRORS, match="being rebuilt"):
            with bloom.rebuild():
                raise AssertionError("the block must not run")
        new.add_many(["ada"])
    assert bloom.contains("ada")


def test_another_rebuild_is_left_alone(api, server):
    """If another client has ended the rebuild and begun its own, that one gets no items, and isn't ended."""
    bloom = api.Bloom("seen").reserve(0.01, 100)

    def overtake():
        server.command("BF.REBUILD", "seen", "ABORT")
        server.command("BF.REBUILD", "seen", "BEGIN")

    with pytest.raises(RuntimeError, match="another rebuild of the filter has begun"):
        with bloom.rebuild() as new:
            overtake()
            new.add_many(["ada"])
    assert bloom.stats()["rebuild"]["number_of_items_inserted"] == 0
    server.command("BF.REBUILD", "seen", "ABORT")
    with pytest.raises(OSError):
        with bloom.rebuild():
            overtake()
            raise OSError
    server.command("BF.REBUILD", "seen", "ABORT")
    with pytest.raises(RuntimeError, match="another rebuild of the filter has begun"):
        with bloom.rebuild():
            overtake()
    assert bloom.stats()["rebuild"]["status"] == "running"


def test_a_rebuild_that_ended_by_itself(api):
    """The exception says why the rebuild ended, and doesn't hide an exception of the program."""
    bloom = api.Bloom("seen").reserve(0.01, 100)

    def overfill():
        bloom.add_many(range(50))

    with pytest.raises(ERRORS, match="no rebuild is running.* ended because"):
        with bloom.rebuild(capacity=10, nonscaling=True):
            overfill()
    with pytest.raises(OSError):
        with bloom.rebuild(capacity=10, nonscaling=True):
            overfill()
            bloom.add_many(range(50, 90))
            raise OSError
    # Ten items fit. Depending on the seed, some of the others may test positive, and these count as added.
    with pytest.raises(ERRORS, match=r"full; 1\d of 20 items were added"):
        with bloom.rebuild(capacity=10, nonscaling=True) as new:
            new.add_many(range(20))
    assert bloom.stats()["rebuild"] is None


# ---- dump and restore -----------------------------------------------------------------------------------------------


def test_dump_and_restore(api):
    """Copies filters in several pieces. The copies have the same bits as the originals."""
    bloom = api.Bloom("bloom").reserve(1e-4, 1_000_000, nonscaling=True)
    cuckoo = api.Cuckoo("cuckoo").reserve(1 << 21)
    for filled, make in ((bloom, api.Bloom), (cuckoo, api.Cuckoo)):
        filled.add_many(range(1000))
        pieces = list(filled.dump())
        assert len(pieces) > 2 and max(len(data) for _, data in pieces) < (1 << 20) + 1000
        copy = make("copy")
        copy.restore(api.pieces(pieces))
        assert all(copy.contains_many(range(1000)))
        one, other = api.plain.execute_command("DEBUG", "DIGEST-VALUE", filled.key, "copy")
        assert one == other
        with pytest.raises(ERRORS):
            copy.restore(api.pieces(pieces))
        with pytest.raises(ValueError, match="the pieces end early"):
            copy.restore(api.pieces([]))
        assert all(copy.contains_many(range(1000)))
        api.plain.delete("copy")
        # Half a filter leaves no key and no load.
        *first, (iterator, piece) = pieces
        for damaged in ([*first, (iterator, piece[:-1] + bytes([piece[-1] ^ 1]))], failing(first), first, []):
            with pytest.raises((*ERRORS, OSError, ValueError)):
                copy.restore(api.pieces(damaged))
            assert not api.plain.exists("copy")
            assert api.plain.info("bf_memory")["bf_loads"] == 0
        with pytest.raises(ERRORS, match="not found"):
            list(make("missing").dump())


def failing(pieces):
    yield from pieces
    raise OSError


# ---- cuckoo filters -------------------------------------------------------------------------------------------------


def test_a_cuckoo_filter(api):
    cuckoo = api.Cuckoo("stock").reserve(1000, seed="1")
    assert cuckoo.add("bolt") and cuckoo.add("bolt")
    assert (cuckoo.add("bolt", if_absent=True), cuckoo.add("nut", if_absent=True)) == (False, True)
    assert (cuckoo.count("bolt"), cuckoo.count("nut"), cuckoo.count("washer")) == (2, 1, 0)
    assert cuckoo.contains_many(["bolt", "washer"]) == [True, False]
    assert (cuckoo.remove("bolt"), cuckoo.remove("washer")) == (True, False)
    assert cuckoo.add_many(["bolt", "nut", "nut"], if_absent=True) == 0
    assert cuckoo.add_many(["nut", "nut"]) == 2
    with pytest.raises(ERRORS, match="item exists"):
        cuckoo.reserve(1000)
    assert cuckoo.reserve(1000, exist_ok=True) is cuckoo
    for wrong in ({"bucketsize": 0}, {"maxiterations": 65536}, {"capacity": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is an integer from 1 to"):
            api.Cuckoo("other").reserve(**{"capacity": 100, **wrong})
    items = [f"item:{number}" for number in range(20_000)]
    many = api.Cuckoo("many").reserve(1 << 16)
    assert many.add_many(items) == 20_000 and all(many.contains_many(items))


def test_a_full_cuckoo_filter(api):
    cuckoo = api.Cuckoo("tight").reserve(4, expansion=0, seed="1")
    for if_absent in (False, True):
        with pytest.raises(FilterFull, match="no room for 1 of 5 items" if not if_absent else "no room for"):
            cuckoo.add_many(["bob"] * 5 if not if_absent else ["bob", "ada", "eve"], if_absent=if_absent)
        with pytest.raises(FilterFull, match="no room for 1 of 1 items"):
            cuckoo.add("ada", if_absent=if_absent)
    assert cuckoo.count("bob") == 4


# ---- clients that don't fit -----------------------------------------------------------------------------------------


def test_a_client_of_the_other_kind_is_refused(api):
    """With an asyncio client, a blocking class would say that every item is present, because a coroutine is true."""
    other = bloomery_redis if api.loop else bloomery_redis.asyncio
    for name in ("Bloom", "Cuckoo"):
        with pytest.raises(TypeError, match="need a blocking client, and those of bloomery_redis.asyncio an asyncio client"):
            getattr(other, name)(api.client, "seen")
        with pytest.raises(TypeError, match="a pipeline answers when it is executed"):
            getattr(bloomery_redis, name)(api.client.pipeline(), "seen")


# ---- documentation --------------------------------------------------------------------------------------------------

CLASSES = ["Bloom", "Cuckoo", "SpreadBloom", "Rebuild"]


@pytest.mark.parametrize("name", CLASSES)
def test_both_kinds_have_the_same_methods(spec, name):
    """The methods have the same names and descriptions and, except for `restore`, the same parameters."""
    blocking, other = getattr(bloomery_redis, name), getattr(bloomery_redis.asyncio, name)
    public = [method for method in dir(blocking) if not method.startswith("_")]
    assert public == [method for method in dir(other) if not method.startswith("_")]
    for method in public:
        one, two = getattr(blocking, method), getattr(other, method)
        assert inspect.getdoc(one) and inspect.getdoc(one) == inspect.getdoc(two)
        assert method == "restore" or list(inspect.signature(one).parameters) == list(inspect.signature(two).parameters)


@pytest.fixture
def cluster_of_one(new_server):
    """A node that has all slots."""
    node = new_server(config={"cluster-enabled": "yes"})
    node.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    wait_for(lambda: cluster_info(node)["cluster_state"] == "ok", "the node to serve")
    return node


def test_the_readme(server, cluster_of_one):
    """Runs the README's blocks in order, and compares each value that the README shows."""
    loop, names, checked = asyncio.new_event_loop(), {}, 0
    for block in blocks(README):
        block = block.replace(".Redis()", f".Redis(port={server.port})").replace("7001", str(cluster_of_one.port))
        checked += run_snippet(block, names, loop)
    loop.close()
    names["r"].close()
    assert checked > 40
