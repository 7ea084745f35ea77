"""`bloomery migrate` copies filters while both servers run. Afterwards, every answer is the same. The source is always
a Redis 8 that has loaded RedisBloom's dump.rdb, so its data types and DUMP payloads are RedisBloom's, and the payloads
have Redis 8's RDB version. The target is the server that the test runs against.
"""

import base64
import contextlib
import itertools
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
import redis

from kit import program
from kit.filters import members, pairs
from kit.foreign import sealed, version_of
from kit.proxy import Listener, Proxy
from kit.servers import ROOT, Server, matrix, redis_cli, wait_for

EVERY_SERVER = pytest.mark.every_server("the server judges payloads of others, and users")

FIXTURES = ROOT / "tests" / "fixtures" / "redisbloom"
RECORDED = json.loads((FIXTURES / "manifest.json").read_text())
SKETCHES = ROOT / "tests" / "fixtures" / "sketches" / "dump.rdb"
FOOTER = 10
HOUR = 3_600_000

# Why a filter whose key is a string at the target isn't copied.
STRING = "holds a string at the target, not a filter; delete it first"

# An empty filter, as valkey-bloom's append-only file contains it: version, expansion, error rate, tightening, whether
# the seed is random, and the number of layers. For the only layer: its blob's length, its blob (version, bytes, probes,
# seed, bits), its items and its capacity.
VALKEY_BLOOM = bytes.fromhex(
    "01 02000000 7b14ae47e17a843f 000000000000e03f 01 0100000000000000"
    "3900000000000000 01 0c00000000000000 07000000" + bytes(range(32)).hex() + "000000000000000000000000"
    "0000000000000000 0a00000000000000"
)


def redis_8() -> object:
    found = [spec for spec in matrix() if spec.name == "redis-8.0"]
    if not found:
        pytest.skip("there is no redis-8.0 to be the source; run scripts/servers")
    return found[0]


@pytest.fixture
def source(new_server, tmp_path) -> Server:
    """A server with the filters from RedisBloom's dump.rdb."""
    shutil.copy(FIXTURES / "dump.rdb", tmp_path)
    return new_server(spec=redis_8(), config={"dir": tmp_path})


@pytest.fixture
def target(server) -> Server:
    return server


def url(server: Server, user: str = "") -> str:
    return f"redis://{user}127.0.0.1:{server.port}"


def command(source, target, *options) -> list[str]:
    urls = [side if isinstance(side, str) else url(side) for side in (source, target)]
    return program.command("migrate", urls[0], "--url", urls[1], *options)


def run(source, target, *options, status=0, env=None) -> subprocess.CompletedProcess:
    line, env = command(source, target, *options), {**os.environ, **(env or {})}
    done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=program.HANG_SECONDS)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def for_version(payload: bytes, version: int) -> bytes:
    """A DUMP payload as a server with this RDB version would write it."""
    return sealed(payload[:-FOOTER], version)


def keys(server: Server) -> set[bytes]:
    with server.client() as client:
        return set(client.keys("*"))


def value(server: Server, key) -> bytes:
    """A key's DUMP payload without its footer, which has the version and the checksum."""
    return server.command("DUMP", key)[:-FOOTER]


def digest(server: Server, key) -> bytes:
    return server.command("DEBUG", "DIGEST-VALUE", key)[0]


def items_of(server: Server, key) -> int:
    return pairs(server.command("BF.INFO", key))[b"Number of items inserted"]


def writes(server: Server) -> int:
    """The number of changes since the server started. A snapshot would reset this count, but the server makes none."""
    return server.info("persistence")["rdb_changes_since_last_save"]


def other_filters(server: Server) -> list[str]:
    """Adds filters that RedisBloom's dump doesn't have, and returns their keys."""
    with server.client() as client:
        do = client.execute_command
        do("BF.RESERVE", "own:chain", "0.01", "50")
        do("BF.MADD", "own:chain", *range(200))
        do("BF.RESERVE", "own:counting", "0.01", "500", "COUNTING", "8")
        do("BF.MADD", "own:counting", *range(200))
        do("BF.RESERVE", "own:window", "0.01", "100", "WINDOW", "4")
        do("BF.MADD", "own:window", *range(50))
        do("BF.ROTATE", "own:window")
        do("CF.RESERVE", "own:cuckoo", "100", "EXPANSION", "2")
        do("CF.INSERT", "own:cuckoo", "ITEMS", *range(300))
        do("CF.DEL", "own:cuckoo", "7")
        do("CF.RESERVE", "own:empty cuckoo", "100")
        do("BF.LOAD", "valkey-bloom", VALKEY_BLOOM)
        do("BF.MADD", "valkey-bloom", *range(25))
        client.setbit("gozero:bits", 5, 1)
        do("BF.IMPORT", "gozero", "GOZERO", "gozero:bits", "BITS", "1000")
        client.delete("gozero:bits")
        do("BF.ADD", "gozero", "ada")
        do("BF.ADD", b"not \xff utf-8 {", "ada")
        return sorted(set(client.keys("*")) - {entry["key"].encode() for entry in RECORDED})


def assert_answers_as_recorded(server: Server, entry: dict) -> None:
    """Checks that the answers are RedisBloom's: yes for all members, and for the same absent items and no others."""
    family = entry["type"]
    members = [f"{entry['prefix']}:{number}" for number in range(entry["first"], entry["last"] + 1)]
    first = entry["absent_first"]
    absent = [f"{entry['prefix']}:{number}" for number in range(first, first + entry["absent_count"])]

    def answers(items):
        with server.client() as client:
            for start in range(0, len(items), 5000):
                yield from client.execute_command(f"{family}.MEXISTS", entry["key"], *items[start : start + 5000])

    assert all(answers(members))
    assert [first + place for place, yes in enumerate(answers(absent)) if yes] == entry["absent_answered_yes"]


# ---- the way over ---------------------------------------------------------------------------------------------------


def test_the_obstacle_is_real(target):
    """Why the program exists: only Redis 8 accepts the original payload, but every server accepts the payload once its
    RDB version is replaced with the server's own."""
    payload = base64.b64decode(next(entry for entry in RECORDED if entry["dump_base64"])["dump_base64"])
    assert version_of(payload) == 12
    if target.spec.name != "redis-8.0":
        with pytest.raises(redis.ResponseError, match="version or checksum"):
            target.command("RESTORE", "k", "0", payload)
    target.command("SET", "probe", "1")
    version = version_of(target.command("DUMP", "probe"))
    target.command("RESTORE", "k", "0", for_version(payload, version))
    assert value(target, "k") == payload[:-FOOTER]


@pytest.mark.parametrize("way", [[], ["--pieces-from", "0"]], ids=["whole", "in-pieces"])
@EVERY_SERVER
def test_every_filter_arrives_as_it_was(source, target, way):
    own = other_filters(source)
    assert len(own) == 8
    with source.client() as client:
        client.set("text", "none of our business")
        client.pexpire("bf:default", HOUR)
        client.pexpire("own:cuckoo", HOUR)
    before = writes(source)
    target.command("CONFIG", "RESETSTAT")
    done = run(source, target, *way)
    used = target.info("commandstats").keys() & {"cmdstat_restore", "cmdstat_bf.loadchunk", "cmdstat_cf.loadchunk"}
    assert used == ({"cmdstat_bf.loadchunk", "cmdstat_cf.loadchunk"} if way else {"cmdstat_restore"})
    assert writes(source) == before
    names = {entry["key"].encode() for entry in RECORDED} | set(own)
    assert keys(target) == names
    assert f"{len(names)} keys copied" in done.stdout and "0 equal before, 0 not at the target" in done.stdout
    for entry in RECORDED:
        assert_answers_as_recorded(target, entry)
        if entry["dump_base64"]:
            assert value(target, entry["key"]) == base64.b64decode(entry["dump_base64"])[:-FOOTER]
    with source.client() as here, target.client() as there:
        for name in names:
            assert there.type(name) == here.type(name)
            assert digest(target, name) == digest(source, name)
            left = there.pttl(name)
            if name in (b"bf:default", b"own:cuckoo"):
                assert abs(here.pttl(name) - left) < 1000
            else:
                assert left == -1
    before = writes(target)
    done = run(source, target, "--sample", "100")
    assert f"0 keys copied (0 B), {len(names)} equal before" in done.stdout
    assert writes(target) - before <= 2  # the probe that learns the target's version


@EVERY_SERVER
def test_sketches_arrive_too(new_server, target, tmp_path):
    shutil.copy(SKETCHES, tmp_path)
    source = new_server(spec=redis_8(), config={"dir": tmp_path})
    names = keys(source)
    assert len(names) == 20
    assert "20 keys copied" in run(source, target).stdout
    assert keys(target) == names
    for name in names:
        assert digest(target, name) == digest(source, name)
    assert "0 keys copied (0 B), 20 equal before" in run(source, target).stdout
    target.command("CMS.INCRBY", "cms:tiny", "a", "1")
    assert "cms:tiny: is at the target already, and differs" in run(source, target, status=1).stdout
    assert "1 key copied" in run(source, target, "--replace").stdout


@EVERY_SERVER
def test_there_and_back_again(source, target, new_server):
    """Filters that were on another server for a while come back byte for byte, including the footers of their payloads.
    """
    other_filters(source)
    run(source, target)
    home = new_server(spec=redis_8())
    run(target, home)
    assert keys(home) == keys(source)
    for name in keys(source):
        assert home.command("DUMP", name) == source.command("DUMP", name)


def test_an_empty_cuckoo_filter_of_redisblooms_travels_whole(source, target):
    """RedisBloom can't dump an empty cuckoo filter in pieces, so the program copies it as a whole."""
    with source.client() as client:
        # One sub-filter of four buckets, no items, no deletes, two slots per bucket, at most 20 moves, expansion 1.
        figures = "0201 0204 0200 0200 0202 0214 0201"
        value_ = bytes.fromhex(f"07 813016e5a289821404 {figures} 0204 0508 0000000000000000 00")
        client.restore("cf:empty", 0, sealed(value_, 12))
        assert client.type("cf:empty") == b"MBbloomCF"
        assert client.execute_command("CF.INFO", "cf:empty")[7] == 0
    run(source, target, "--pieces-from", "0", "--match", "cf:*")
    for name in ("cf:empty", "cf:default"):
        assert value(target, name) == value(source, name)


def test_an_expiry_is_a_point_in_time(source, target):
    """The copy expires at the same time as the original, however long copying takes. If the time to live differs later,
    the check says so, and --replace corrects it."""
    with source.client() as here, target.client() as there:
        for way, name in (("0", "bf:default"), ("1000", "cf:default")):
            at = int(time.time() * 1000) + HOUR
            here.execute_command("PEXPIREAT", name, at)
            there.execute_command("CLIENT", "PAUSE", 700, "WRITE")
            run(source, target, "--match", name, "--pieces-from", way)
            assert abs(there.execute_command("PEXPIRETIME", name) - at) < 500
        here.execute_command("PEXPIREAT", "bf:default", at + HOUR)
        assert "differs: its time to live" in run(source, target, "--match", "bf:default", status=1).stdout
        here.persist("bf:default")
        assert "differs: its time to live" in run(source, target, "--match", "bf:default", status=1).stdout
        run(source, target, "--match", "bf:default", "--replace")
        assert there.pttl("bf:default") == -1


@pytest.mark.parametrize("pieces_from", ["0", "1000000"])
def test_a_filter_that_goes_while_it_is_copied_is_left_out(source, target, pieces_from):
    """If it has expired, its copy would stay forever."""
    with source.client() as client, Proxy(source.port) as proxy:

        def expire(words):
            if words[0] == b"PTTL":
                client.delete(words[1])
            return False

        proxy.before = expire
        run(f"redis://127.0.0.1:{proxy.port}", target, "--match", "bf:default", "--pieces-from", pieces_from, "--sample", "0")
        assert not client.exists("bf:default") and keys(target) == set()


def test_match_and_type_choose(source, target):
    other_filters(source)
    run(source, target, "--match", "*:default", "--sample", "0")
    assert keys(target) == {b"bf:default", b"cf:default"}
    run(source, target, "--type", "cuckoo", "--sample", "0")
    assert keys(target) - {b"bf:default"} == {name for name in keys(source) if b"cuckoo" in name or name[:3] == b"cf:"}
    run(source, target, "--type", "bloom", "--sample", "0")
    assert keys(target) == keys(source)


def test_a_dry_run_writes_nothing(source, target):
    target.command("BF.RESERVE", "bf:empty", "0.05", "100")
    target.command("RESTORE", "bf:large", "0", for_version(source.command("DUMP", "bf:large"), 9))
    before = writes(target)
    said = run(source, target, "--dry-run").stdout
    assert keys(target) == {b"bf:empty", b"bf:large"} and writes(target) == before
    assert "bf:empty: Bloom, " in said and "would be left; it differs: its bits" in said
    assert "bf:large: Bloom, " in said and "is there, and equal" in said
    assert said.count("would be copied") == len(RECORDED) - 2
    assert "would be overwritten; it differs: its bits" in run(source, target, "--dry-run", "--replace").stdout
    preview = json.loads(run(source, target, "--dry-run", "--json").stdout)
    assert len(preview["filters"]) == len(RECORDED) and preview["skipped"] == []
    [large] = [row for row in preview["filters"] if row["key"] == "bf:large"]
    assert (large["kind"], large["verdict"]) == ("Bloom", "is there, and equal") and large["bytes"] > 0


# ---- the other ways of docs/MOVING.md -------------------------------------------------------------------------------


@EVERY_SERVER
def test_an_append_only_file_needs_no_common_version(source, new_server):
    """If the file has no RDB part, a rewrite stores each filter as commands, which servers of any version can run."""
    other_filters(source)
    with source.client() as client:
        client.config_set("aof-use-rdb-preamble", "no")
        client.config_set("appendonly", "yes")  # begins with a rewrite

        def rewriting():
            info = client.info("persistence")
            return info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]

        wait_for(lambda: not rewriting(), "the rewrite")
        client.execute_command("BF.ADD", "bf:default", "behind the rewrite")
    target = new_server(config={"appendonly": "yes"})
    target.kill()
    shutil.rmtree(target.directory / "appendonlydir")
    shutil.copytree(Path(source.config["dir"]) / "appendonlydir", target.directory / "appendonlydir")
    target.start()
    assert keys(target) == keys(source)
    for name in keys(source):
        assert digest(target, name) == digest(source, name)


def test_files_come_in_by_the_shell(target, tmp_path):
    """Runs the lines of docs/MOVING.md that pass a file to redis-cli."""
    lines = re.findall(r"^redis-cli -[xX] .*<.*$", (ROOT / "docs" / "MOVING.md").read_text(), flags=re.MULTILINE)
    assert len(lines) == 3
    shutil.copy(FIXTURES.parent / "bits-and-blooms" / "filter.writeto", tmp_path / "users.bloom")
    (tmp_path / "words.guava").write_bytes(bytes.fromhex("0103000000010000010400000020"))
    (tmp_path / "numbers.guava").write_bytes(bytes.fromhex("0103000000010000000000000000"))
    for line in lines:
        line = line.replace("redis-cli", f"{redis_cli()} -p {target.port}", 1)
        assert subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True).stdout == "OK\n"
    with target.client() as client:
        do = client.execute_command
        assert do("BF.MEXISTS", "users", "user:0", "user:9999", "user:10000000") == [1, 1, 0]
        assert do("BF.MEXISTS", "words", "user:42", "user:43") == [1, 0]
        do("BF.ADD", "numbers", "42")
        with pytest.raises(redis.ResponseError, match="integers of 64 bits"):
            do("BF.ADD", "numbers", "forty-two")


# ---- when one way is closed -----------------------------------------------------------------------------------------


def test_what_is_too_long_for_a_command_goes_in_pieces(source, new_server):
    """The target's limit takes precedence over --pieces-from. Of this limit, 1 MiB is reserved for what a payload
    contains besides the filter."""
    target = new_server(config={"proto-max-bulk-len": 1 << 20})
    run(source, target, "--match", "bf:*", "--pieces-from", "1000")
    assert "cmdstat_restore" not in target.info("commandstats")
    assert keys(target) == {name for name in keys(source) if name.startswith(b"bf:")}
    assert value(target, "bf:large") == value(source, "bf:large")


@pytest.mark.parametrize(
    "options, why",
    [([], "appeared at the target during the run.*BUSYKEY"), (["--replace"], f"could not be copied: {STRING}")],
)
def test_a_key_that_comes_in_between_stays(source, target, options, why):
    """A key appears at the target while the filter for it is being loaded. The program doesn't overwrite the key, and
    deletes the filter."""
    source.command("BF.RESERVE", "late", "0.01", "100000000", "NONSCALING")
    if options:
        target.command("BF.ADD", "late", "ada")
    target.command("CONFIG", "RESETSTAT")
    line = command(source, target, "--match", "late", "--pieces-from", "0", "--rounds", "1", *options)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: "cmdstat_bf.loadchunk" in target.info("commandstats"), "the first piece")
    target.command("SET", "late", "mine")
    said, _ = process.communicate(timeout=program.HANG_SECONDS)
    assert process.returncode == 1
    assert re.search(why, said), said
    assert keys(target) == {b"late"} and target.command("GET", "late") == b"mine"


# ---- what is in the way ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [[], ["--pieces-from", "0"]], ids=["whole", "in-pieces"])
def test_a_key_in_the_way_stays_unless_told_otherwise(source, target, way):
    target.command("SET", "bf:default", "mine")
    target.command("CF.RESERVE", "bf:reserved", "100")
    target.command("BF.RESERVE", "cf:default", "0.01", "100")
    target.command("BF.ADD", "bf:empty", "ada")
    done = run(source, target, *way, status=1)
    assert f"bf:default: {STRING}" in done.stdout
    assert "bf:reserved: is at the target already, and differs: it is a bloomeryC there" in done.stdout
    assert "cf:default: is at the target already, and differs: it is a bloomery1 there" in done.stdout
    assert "bf:empty: is at the target already, and differs: Number of items inserted is 0 at the source" in done.stdout
    assert f"{len(RECORDED) - 4} keys copied" in done.stdout and "4 not at the target" in done.stdout
    assert STRING in run(source, target, *way, "--replace", "--dry-run").stdout
    done = run(source, target, *way, "--replace", status=1)
    assert f"bf:default: {STRING}" in done.stdout and "3 keys copied (" in done.stdout
    assert f"{len(RECORDED) - 4} equal before, 1 not at the target" in done.stdout
    assert target.command("GET", "bf:default") == b"mine"
    target.command("DEL", "bf:default")
    assert "1 key copied (" in run(source, target, *way).stdout
    for entry in RECORDED:
        assert_answers_as_recorded(target, entry)
        assert value(target, entry["key"]) == value(source, entry["key"])


def test_equal_figures_do_not_hide_different_bits(source, target):
    """The filters have the same number of items, but different items. At this error rate, no sample would show that."""
    for side, item in ((source, "ada"), (target, "grace")):
        side.command("BF.RESERVE", "sparse", "0.000000001", "1000", "SEED", "7")
        side.command("BF.ADD", "sparse", item)
    assert "differs: its bits" in run(source, target, "--match", "sparse", status=1).stdout


def test_a_killed_run_is_taken_up(source, target):
    count = 400
    with source.client() as client:
        for number in range(count):
            client.execute_command("BF.ADD" if number % 2 else "CF.ADD", f"many:{number}", number)
    for way in ([], ["--pieces-from", "0"]):
        target.command("FLUSHALL")
        process = subprocess.Popen(
            command(source, target, "--match", "many:*", *way), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: target.command("DBSIZE") >= count // 10, "a part of the run")
        process.kill()
        process.wait()
        arrived = len([name for name in keys(target) if name.startswith(b"many:")])
        assert count // 10 <= arrived < count
        done = run(source, target, "--match", "many:*", "--sample", "20", *way)
        assert f"{count - arrived} keys copied" in done.stdout and f"{arrived} equal before, 0 not" in done.stdout
        # If the killed run has left a temporary key behind, the key expires.
        left = {name for name in keys(target) if not name.startswith(b"many:")}
        assert all(target.command("PTTL", name) > 0 for name in left), left


# ---- writes meanwhile -----------------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Adds items to a filter at the source, one after the other, until it is told to stop."""

    def __init__(self, server: Server, key: str):
        super().__init__()
        self.client, self.key = server.client(), key
        self.added, self.over = 0, threading.Event()

    def run(self):
        while not self.over.is_set():
            self.client.execute_command("BF.ADD", self.key, f"late:{self.added}")
            self.added += 1
        self.client.close()

    def __enter__(self):
        self.client.execute_command("BF.RESERVE", self.key, "0.001", "10000")
        self.start()
        wait_for(lambda: self.added > 100, "the first writes")
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


@pytest.mark.parametrize("way", [[], ["--pieces-from", "0"]], ids=["whole", "in-pieces"])
def test_what_is_written_during_the_run_arrives(source, target, way):
    """The writer stops after the first copy, and a later round copies the rest."""
    with Writer(source, "busy") as writer:
        process = subprocess.Popen(
            command(source, target, "--rounds", "50", *way), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: target.command("EXISTS", "busy"), "the first copy")
        at_first_copy = target.command("BF.CARD", "busy")
    said, progress = process.communicate(timeout=120)
    assert process.returncode == 0, said + progress
    assert progress.count("bloomery: round ") >= 3  # a copy, at least one more copy, and the check
    assert target.command("BF.CARD", "busy") == source.command("BF.CARD", "busy") > at_first_copy
    with target.client() as client:
        items = [f"late:{number}" for number in range(writer.added)]
        assert all(client.execute_command("BF.MEXISTS", "busy", *items))


def test_writes_that_do_not_stop_are_said(source, target):
    added = itertools.count()
    source.command("BF.RESERVE", "busy", "0.001", "10000")
    with Proxy(source.port) as proxy, source.client() as client:
        proxy.before = lambda _: client.execute_command("BF.ADD", "busy", next(added)) == 0
        done = run(f"redis://127.0.0.1:{proxy.port}", target, "--match", "b*", "--rounds", "2", status=1)
    assert "busy: differs again: " in done.stdout and "Is it being written to?" in done.stdout
    assert "1 not at the target" in done.stdout
    assert "busy" in run(source, target, "--match", "b*", status=1).stdout
    run(source, target, "--match", "b*", "--replace")


# ---- the check ------------------------------------------------------------------------------------------------------


class Between(Listener):
    """A proxy in front of a server. In requests, it replaces one word with another of the same length."""

    def __init__(self, server: Server, said: bytes, heard: bytes):
        assert len(said) == len(heard)
        self.server, self.said, self.heard = server, said, heard
        super().__init__()

    def _serve(self, client):
        server = socket.create_connection(("127.0.0.1", self.server.port))
        for here, there, change in ((client, server, True), (server, client, False)):
            threading.Thread(target=self.carry, args=(here, there, change), daemon=True).start()

    def carry(self, here, there, change):
        with contextlib.suppress(OSError):  # the other direction has closed it
            while data := here.recv(1 << 16):
                there.sendall(data.replace(self.said, self.heard) if change else data)
        there.close()

    def __enter__(self):
        return f"redis://127.0.0.1:{self.port}"


def test_the_check_asks_members_too(source, target, tmp_path):
    items = tmp_path / "items"
    members = [f"user:{number}" for number in range(1000)]
    items.write_text("\r\n".join(members) + "\n")
    done = run(source, target, "--match", "bf:default", "--sample", "0", "--check", items)
    assert "1,000 answers compared, 1,000 of them yes" in done.stdout
    has = items_of(source, b"bf:default")
    for sample in (500, 2500):
        done = run(source, target, "--match", "bf:default", "--sample", sample, "--check", items)
        assert f"{1000 + min(sample, has):,} answers compared" in done.stdout and has < 1000


@pytest.mark.parametrize("family", ["BF", "CF"])
def test_one_false_answer_is_seen(source, target, tmp_path, family):
    """If the source has no SCANDUMP, as with valkey-bloom, the payloads of DUMP show that the target has other items,
    and if these can't be read, the answers."""
    for side, items in ((source, members(100)), (target, [*members(99), "another"])):
        side.command(f"{family}.RESERVE", "k", *(["0.000001"] if family == "BF" else []), "1000", "SEED", "7")
        for item in items:
            side.command(f"{family}.ADD", "k", item)
    asked = tmp_path / "items"
    asked.write_text("\n".join(members(100)))
    dump, echo = (b"%s\r\n$1\r\nk" % word for word in (b"DUMP", b"ECHO"))
    with Between(source, b"SCANDUMP", b"SCANNONE") as blind, Between(target, dump, echo) as unread:
        said = run(blind, target, "--match", "k", "--sample", "0", status=1).stdout
        assert said.startswith("k: is at the target already, and differs: its bits. "), said
        said = run(blind, unread, "--match", "k", "--sample", "0", "--check", asked, status=1).stdout
        assert re.search(r"^k: .* 1 of 100 answers differ, for '.*99' to begin with\. --replace", said, re.MULTILINE), said
        said = run(blind, unread, "--match", "k", "--sample", "0", "--check", asked, "--replace").stdout
        assert said.startswith("1 key copied"), said
        assert digest(target, "k") == digest(source, "k")
    target.command(f"{family}.ADD", "k", "more")
    assert "differs: " in run(source, target, "--match", "k", status=1).stdout


@pytest.mark.parametrize("pieces_from", ["0", "64"])
def test_a_source_without_scandump_is_compared_by_its_answers(source, target, pieces_from):
    """Without SCANDUMP, which valkey-bloom lacks, filters are copied whole and compared by their answers, and small ones
    also by their payloads."""
    other_filters(source)
    with Between(source, b"SCANDUMP", b"SCANNONE") as blind, target.configured({"rdbcompression": "no"}):
        done = run(blind, target, "--type", "bloom", "--pieces-from", pieces_from, "--sample", "1500")
    count = len(keys(target))
    assert f"{count} keys copied" in done.stdout and f"{1500 * count:,} answers compared" in done.stdout
    for name in keys(target):
        assert digest(target, name) == digest(source, name)


def test_keys_that_go_away_meanwhile_are_no_failures(source, target):
    """Keys are deleted between the search and the copy, and between the copy and the check."""
    with source.client() as client:
        for number in range(400):
            client.execute_command("BF.ADD", f"many:{number:03}", number)
    line = command(source, target, "--match", "many:*")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: target.command("DBSIZE") >= 100, "a part of the run")
    with source.client() as client:
        client.delete(*(f"many:{number:03}" for number in range(0, 400, 2)))
    said, noted = process.communicate(timeout=program.HANG_SECONDS)
    assert process.returncode == 0 and "0 not at the target" in said, said
    gone = set(re.findall("bloomery: (.*) is gone from the source", noted))
    assert gone <= {name.decode() for name in keys(target) - keys(source)}
    assert keys(source) & keys(target) == {name for name in keys(source) if name.startswith(b"many:")}


# ---- what it says ---------------------------------------------------------------------------------------------------


def test_progress_in_a_pipe_is_plain_lines(source, target):
    said = run(source, target).stderr
    assert re.match(r"(bloomery: round 1: .*\n)+(bloomery: round 2: .*\n)+$", said)
    assert "\r" not in said and "\033" not in said


def test_progress_on_a_terminal_is_one_line(source, target):
    with source.client() as client:
        for number in range(600):
            client.execute_command("BF.ADD", f"many:{number}", number)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(source, target, "--sample", "10"), stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 4096)
        except OSError:  # the program has closed the terminal
            break
    os.close(ours)
    assert process.wait() == 0
    assert re.search(rb"\d+%  .*/s  \d+s left", said), said
    assert b"round 1: 608 keys" in said


def test_wrong_usage(target):
    at = url(target)
    for arguments in ([], [at, "--rounds", "0"], [at, "--type", "x"], [at, "--cheque", "x"], ["http://x"]):
        done = subprocess.run(program.command("migrate", *arguments), capture_output=True, text=True)
        assert done.returncode == 2, done.stderr


def test_the_report_can_be_read_by_programs(source, target):
    target.command("SET", "bf:default", "mine")
    report = json.loads(run(source, target, "--match", "bf:*", "--sample", "10", "--json", "-q", status=1).stdout)
    (failed,) = report["failed"]
    assert (failed["key"], failed["why"]) == ("bf:default", STRING)
    assert report["copied"] == len(keys(target)) - 1
    answers = [min(10, items_of(source, name)) for name in keys(target) - {b"bf:default"}]
    assert report["answers"] == sum(answers) and min(answers) == 0, "one filter is empty"


def test_it_says_why_it_cannot_begin(source, target, new_server):
    bare = new_server(module=None)
    said = run(source, bare, status=2).stderr
    assert "the target, 127.0.0.1:" in said and "has no module with BF.* commands" in said
    assert "/nonexistent" in run(source, target, "--check", "/nonexistent", status=2).stderr
    assert "not a regular file" in run(source, target, "--check", "/dev/null", status=2).stderr
    bare.stop()
    said = run(bare, target, status=3).stderr
    assert "the source: cannot connect to 127.0.0.1:" in said and "refused" in said
    assert not keys(target)


def test_passwords_come_by_the_url_or_the_environment_and_are_not_shown(source, new_server):
    target = new_server()
    client = target.client()
    client.config_set("requirepass", "open sesame")  # this connection stays authenticated
    for wrong in (target, url(target, ":zebra@")):
        said = run(source, wrong, status=3)
        assert "the target" in said.stderr and re.search("NOAUTH|WRONGPASS|invalid.*pass", said.stderr), said.stderr
        assert "zebra" not in said.stderr and "sesame" not in said.stderr
    run(source, url(target, ":open%20sesame@"), "--match", "bf:empty")
    run(source, target, "--match", "cf:default", env={"BLOOMERY_PASSWORD": "open sesame"})
    assert set(client.keys("*")) == {b"bf:empty", b"cf:default"}


@EVERY_SERVER
def test_users_need_few_permissions(source, target):
    """The rights that docs/MOVING.md lists are enough. Without one of them, the program stops and says so."""
    reading = ["+ping", "+scan", "+type", "+exists", "+memory|usage", "+dump", "+pttl", "+time"]
    both = ["+bf.info", "+cf.info", "+bf.scandump", "+cf.scandump", "+bf.mexists", "+cf.mexists", "+bf.exists"]
    writing = ["+ping", "+type", "+exists", "+set", "+dump", "+del", "+restore", "+pttl", "+time"]
    pieces = ["+bf.loadchunk", "+cf.loadchunk", "+pexpireat", "+rename", "+renamenx"]
    source.command("ACL", "SETUSER", "reader", "on", "nopass", "%R~*", *reading, *both)
    target.command("ACL", "SETUSER", "writer", "on", "nopass", "~*", *writing, *both, *pieces)
    try:
        for way in ("0", "1000"):
            target.command("FLUSHALL")
            run(url(source, "reader:x@"), url(target, "writer:x@"), "--pieces-from", way, "--sample", "10")
            assert keys(target) == keys(source)
        target.command("FLUSHALL")
        target.command("ACL", "SETUSER", "writer", "-restore")
        said = run(url(source, "reader:x@"), url(target, "writer:x@"), status=3).stderr
        assert "no permissions" in said and "restore" in said
    finally:
        target.command("ACL", "DELUSER", "writer")


def test_a_refusal_of_the_target_is_given_for_each_key(source, target):
    """With too little memory, the filters that don't fit are named, and no key is incomplete."""
    for number in range(6):
        source.command("BF.RESERVE", f"big:{number}", "0.01", "1000000", "NONSCALING")
    used = int(target.info("memory")["used_memory"])
    with target.configured({"maxmemory": used + 4_000_000, "maxmemory-policy": "noeviction", "rdbcompression": "no"}):
        for way in ([], ["--pieces-from", "0"]):
            target.command("FLUSHALL")
            done = run(source, target, "--match", "big:*", "--rounds", "1", "--sample", "10", *way, status=1)
            assert re.search(r"^big:\d: could not be copied: .*maxmemory", done.stdout, re.MULTILINE)
            assert 0 < len(keys(target)) < 6
        # If there is too little memory from the start, the program doesn't begin.
        target.command("CONFIG", "SET", "maxmemory", "1")
        assert "takes no keys" in run(source, target, status=3).stderr
    for name in keys(target):
        assert value(target, name) == value(source, name)
