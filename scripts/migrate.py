"""The program behind scripts/migrate, whose head is the manual.

Rounds, each over all keys: what is missing at the target, or differs there, is copied; a round that copied nothing is
the last. So the round behind a copy is its check, bit for bit, and a filter that was written to meanwhile is copied
again. At the end both sides answer random items.
"""

import argparse
import dataclasses
import hashlib
import itertools
import os
import random
import secrets
import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

# The data types, and the prefix of the commands for their keys. Bloomery's own holds filters of both families.
TYPES = {b"MBbloom--": "BF", b"bloomfltr": "BF", b"MBbloomCF": "CF", b"bloomery1": None}
FAMILIES = {"bloom": "BF", "cuckoo": "CF"}

CHUNK_PREFIX = 20  # bytes before the cells in a chunk of Bloomery's
FOOTER = 10  # bytes at the end of a DUMP payload: RDB version and CRC-64
BATCH = 1000  # keys or items asked for at once
CLOCK_MS = 1000  # what two readings of one expiry may be apart
DEFAULT_BULK = 512 << 20  # bytes of the longest argument that a server takes unless it is told otherwise


class Fatal(Exception):
    """It cannot begin, or not go on."""


class Problem(Exception):
    """Why one key is not, or not surely, at the target."""


class Refused(Problem):
    """A server would not have it. That may be because the filter grew in the middle: the next round tries again."""


# ---- a DUMP payload for another server ------------------------------------------------------------------------------


def crc64(data: bytes) -> int:
    """The servers' CRC-64, as its definition says it; for two bytes that is fast enough."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
    return crc


def version_of(payload: bytes) -> int:
    """The RDB version in the footer."""
    return int.from_bytes(payload[-FOOTER:-8], "little")


def with_version(payload: bytes, version: int) -> bytes:
    """The payload as a server of another RDB version would have written it: a module's value is the same in all.

    Servers refuse what is newer than they are, or of the other product. The CRC covers the version. It starts from 0,
    so it is linear, and zeros in front do not change it: the CRC of the change, two bytes, is the change of the CRC.
    The value is not summed again, and the target sees whether it has arrived as the source sent it.
    """
    change = (version_of(payload) ^ version).to_bytes(2, "little")
    crc = int.from_bytes(payload[-8:], "little") ^ crc64(change)
    return payload[:-FOOTER] + version.to_bytes(2, "little") + crc.to_bytes(8, "little")


# ---- a server -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Key:
    """A filter at the source."""

    name: bytes
    family: str
    bytes: int

    def __str__(self) -> str:
        return self.name.decode(errors="backslashreplace")


class Side:
    """One of the two servers."""

    def __init__(self, role: str, url: str):
        self.role = role
        if url.startswith("valkey"):
            url = url.replace("valkey", "redis", 1)
        try:
            # No retries: a RESTORE that was sent twice would find its own key in the way.
            self.client = redis.Redis.from_url(
                url,
                password=os.environ.get(f"MIGRATE_{role.upper()}_PASSWORD"),  # the URL's own goes before it
                protocol=2,
                socket_connect_timeout=10,
                socket_timeout=600,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as why:
            raise Fatal(f"the {role}'s URL is not understood: {why}") from why

    def __str__(self) -> str:
        at = self.client.connection_pool.connection_kwargs
        place = at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}"
        return f"the {self.role}, {place}, database {at.get('db') or 0}"

    def command(self, *arguments):
        return self.client.execute_command(*arguments)

    def all(self, commands: list) -> list:
        """The replies of several commands, sent at once. No transaction: a server without memory refuses them all."""
        pipeline = self.client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies = pipeline.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def has(self, command: str) -> bool:
        """Whether it knows a command; the one that is tried names a key that is not there."""
        try:
            self.command(command, f"migrate:{secrets.token_hex(8)}", "0")
        except NoPermissionError:
            raise
        except redis.ResponseError as why:
            return "unknown command" not in str(why)
        return True

    # ---- its filters ------------------------------------------------------------------------------------------------

    def family(self, name: bytes, kind: bytes) -> str:
        """The prefix of the commands for a key of this type."""
        if prefix := TYPES[kind]:
            return prefix
        try:
            self.command("BF.INFO", name)
        except redis.ResponseError as why:
            if str(why).startswith("WRONGTYPE"):
                return "CF"
            raise
        return "BF"

    def filters(self, match: str, family: str | None) -> list[Key]:
        """Those whose names match, each once: SCAN may give a key twice."""
        found, cursor = {}, None
        while cursor != 0:
            cursor, names = self.client.scan(cursor or 0, match=match, count=BATCH)
            names = [name for name in dict.fromkeys(names) if name not in found]
            kinds = self.all([("TYPE", name) for name in names])
            ours = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind in TYPES]
            sizes = self.all([("MEMORY USAGE", name, "SAMPLES", "0") for name, _ in ours])
            for (name, kind), size in zip(ours, sizes, strict=True):
                if size is not None:  # else it has expired meanwhile
                    found[name] = Key(name, self.family(name, kind), size)
        return [key for key in found.values() if family in (None, key.family)]

    def info(self, key: Key) -> dict:
        reply = self.command(f"{key.family}.INFO", key.name)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def expiry(self, key: Key) -> int:
        """The Unix time in milliseconds when it expires, by the server's own clock; 0 for never."""
        return absolute(*self.all([("PTTL", key.name), ("TIME",)]))

    def pieces(self, key: Key):
        """What SCANDUMP gives: iterators and pieces, the header first."""
        iterator = 0
        while True:
            iterator, piece = self.command(f"{key.family}.SCANDUMP", key.name, iterator)
            if iterator == 0:
                return
            yield iterator, piece

    def digest(self, key: Key) -> bytes:
        """Of its bits: everything behind the header, wherever it is cut."""
        digest = hashlib.blake2b()
        pieces = self.pieces(key)
        _, head = next(pieces, (0, b""))
        # Before its cells, a chunk of Bloomery's says which filter it is of: another one on every server.
        skipped = CHUNK_PREFIX if head.startswith(b"BLMY") else 0
        digest.update(b"%d" % skipped)
        for _, piece in pieces:
            digest.update(piece[skipped:])
        return digest.digest()

    def answers(self, key: Key, items: list[bytes]) -> list:
        """Whether it has each of the items."""
        if key.family == "BF":
            return self.command("BF.MEXISTS", key.name, *items)
        # Old versions have no CF.MEXISTS.
        return self.all([("CF.EXISTS", key.name, item) for item in items])


def absolute(left_ms: int, now: tuple[int, int]) -> int:
    seconds, microseconds = now
    return seconds * 1000 + microseconds // 1000 + left_ms if left_ms >= 0 else 0


# ---- the way over ---------------------------------------------------------------------------------------------------


class Migration:
    """From a source to a target."""

    def __init__(self, source: Side, target: Side, *, replace: bool, rounds: int, pieces_from: int):
        self.source = source
        self.target = target
        self.replace = replace
        self.rounds = rounds
        # valkey-bloom cannot give its filters in pieces.
        self.in_pieces = {family: source.has(f"{family}.SCANDUMP") for family in FAMILIES.values()}
        if not target.has("BF.EXISTS"):
            raise Fatal(f"{target}, has no module with BF.* commands; load Bloomery there")
        self.longest = self._longest_argument()
        self.pieces_from = min(pieces_from, self.longest)
        self.version = None
        self.copied: dict[bytes, int] = {}  # by this run: bytes of each key
        self.problems: dict[bytes, str] = {}

    def _longest_argument(self) -> int:
        """Bytes that the target takes as one argument, less what a payload has besides the filter."""
        try:
            limit = int(self.target.client.config_get("proto-max-bulk-len")["proto-max-bulk-len"])
        except (redis.ResponseError, KeyError):  # many may not ask for it
            limit = DEFAULT_BULK
        return limit - (1 << 20)

    def learn_version(self) -> None:
        """The RDB version that the target writes is one that it reads."""
        probe = f"migrate:{secrets.token_hex(8)}"
        try:
            _, payload, _ = self.target.all([("SET", probe, "1", "PX", "60000"), ("DUMP", probe), ("DEL", probe)])
        except redis.ResponseError as why:
            raise Fatal(f"{self.target}, takes no keys: {why}") from why
        self.version = version_of(payload)

    def run(self, keys_of_round, progress) -> list[Key]:
        """Copies until a round finds nothing to do. Gives the keys that both sides have."""
        self.learn_version()
        for number in range(self.rounds + 1):
            keys, before = keys_of_round(), set(self.copied)
            earlier, self.problems = self.problems, {}
            may_copy = number < self.rounds
            unsettled = 0
            for key in progress(keys, f"round {number + 1}"):
                try:
                    unsettled += self.settle(key, may_copy=may_copy)
                except Problem as why:
                    # Why it was refused says more than that it is not there.
                    self.problems[key.name] = str(why) if may_copy else earlier.get(key.name, str(why))
                    unsettled += isinstance(why, Refused)
            if not unsettled:
                break
        for name in before - {key.name for key in keys}:
            print(f"{name.decode(errors='backslashreplace')}: gone from the source since it was copied")
        return [key for key in keys if key.name not in self.problems]

    def settle(self, key: Key, *, may_copy: bool) -> bool:
        """Makes the target's key equal to the source's. True if that took a copy."""
        try:
            is_there = self.target.command("EXISTS", key.name)
            if is_there:
                difference = self.difference(key)
                if not difference:
                    return False
                if key.name not in self.copied and not self.replace:
                    raise Problem(f"is at the target already, and differs: {difference}. --replace overwrites it")
            if not may_copy:
                if self.is_gone(key):
                    return False
                what = f"differs again: {difference}" if is_there else "is new at the source"
                raise Problem(f"{what}. Is it being written to? Stop that, and run this again with --replace")
            if self.copy(key, replace=is_there):
                self.copied[key.name] = key.bytes
                return True
        except NoPermissionError:
            raise
        except redis.ResponseError as why:
            if self.is_gone(key):
                return False
            raise Refused(str(why)) from why
        return False

    def is_gone(self, key: Key) -> bool:
        """A filter that has just expired, or was deleted, at the source is none to complain about."""
        return not self.source.command("EXISTS", key.name)

    def difference(self, key: Key) -> str:
        """What differs between the two sides; empty for nothing."""
        kind = self.target.command("TYPE", key.name)
        if kind not in TYPES or self.target.family(key.name, kind) != key.family:
            return f"it is a {kind.decode()} there"
        here, there = self.source.expiry(key), self.target.expiry(key)
        if bool(here) != bool(there) or abs(here - there) > CLOCK_MS:
            return "its time to live"
        if field := self.different_field(key):
            return field
        if self.in_pieces[key.family] and self.source.digest(key) != self.target.digest(key):
            return "its bits"
        return ""

    def different_field(self, key: Key) -> str:
        """Of the figures of INFO that both sides give. The size is that of memory, which is each one's own affair."""
        here, there = self.source.info(key), self.target.info(key)
        for name, figure in here.items():
            other = there.get(name)
            if name != b"Size" and figure != other and None not in (figure, other):
                return f"{name.decode()} is {figure} at the source and {other} at the target"
        return ""

    # ---- one copy ---------------------------------------------------------------------------------------------------

    def copy(self, key: Key, *, replace: bool) -> bool:
        """By the better way, or else by the other. False if the key is gone."""
        ways = [self.by_dump, self.by_pieces]
        if key.bytes >= self.pieces_from:
            ways.reverse()
        refusals = []
        for way in ways:
            try:
                return way(key, replace)
            except NoPermissionError:
                raise
            except (redis.ResponseError, Problem) as why:
                refusals.append(str(why))
        raise Refused("could not be copied: " + "; ".join(dict.fromkeys(refusals)))

    def by_dump(self, key: Key, replace: bool) -> bool:
        """Whole, by DUMP and RESTORE."""
        left_ms, now, payload = self.source.all([("PTTL", key.name), ("TIME",), ("DUMP", key.name)])
        if payload is None:
            return False
        if len(payload) > self.longest:
            raise Problem(f"its dump of {readable(len(payload))} is longer than an argument may be at the target")
        # An expiry as a point in time does not move with the time that the way takes.
        options = ["ABSTTL"] + (["REPLACE"] if replace else [])
        self.target.command(
            "RESTORE", key.name, absolute(left_ms, now), with_version(payload, self.version), *options
        )
        return True

    def by_pieces(self, key: Key, replace: bool) -> bool:
        """By SCANDUMP and LOADCHUNK, under another name until it is complete."""
        if not self.in_pieces[key.family]:
            raise Problem("the source cannot give it in pieces")
        # The same one after an interruption, and in the same slot of a cluster.
        hashtag = key.name if b"{" in key.name else b"{" + key.name + b"}"
        loading = b"migrate:" + hashtag
        self.target.command("DEL", loading)
        count = 0
        for iterator, piece in self.source.pieces(key):
            self.target.command(f"{key.family}.LOADCHUNK", loading, iterator, piece)
            count += 1
        if not count:
            raise Problem("the source gives no pieces of an empty filter")
        try:
            if expiry := self.source.expiry(key):
                self.target.command("PEXPIREAT", loading, expiry)
            if replace:
                self.target.command("RENAME", loading, key.name)
            elif not self.target.command("RENAMENX", loading, key.name):
                raise Problem("appeared at the target during the run. --replace overwrites it")
        finally:
            self.target.command("DEL", loading)
        return True

    # ---- the check --------------------------------------------------------------------------------------------------

    def check(self, key: Key, batches) -> tuple[int, int]:
        """Whether both sides give the same figures, and the same answers. Gives how many answers, and how many yes."""
        try:
            if field := self.different_field(key):
                raise Problem(field)
            asked = yes = 0
            for items in batches:
                here, there = self.source.answers(key, items), self.target.answers(key, items)
                if wrong := [item for item, *both in zip(items, here, there, strict=True) if both[0] != both[1]]:
                    raise Problem(f"{len(wrong)} of {len(items)} answers differ, for {wrong[0]!r} to begin with")
                asked += len(items)
                yes += sum(here)
            return asked, yes
        except (redis.ResponseError, Problem) as why:
            if self.is_gone(key):
                return 0, 0
            raise Problem(str(why)) from why


def random_items(count: int):
    """In batches. They are not members, but for chance: what they show is that both sides have the same bits."""
    generator = random.Random(secrets.randbits(64))
    for start in range(0, count, BATCH):
        yield [b"%032x" % generator.getrandbits(128) for _ in range(min(BATCH, count - start))]


def items_of(path: str):
    """The lines of a file, in batches."""
    with open(path, "rb") as file:
        while items := [line.rstrip(b"\r\n") for line in itertools.islice(file, BATCH)]:
            yield items


# ---- speaking -------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"bloomery: {text}", file=sys.stderr, flush=True)


def readable(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError


def filters(count: int) -> str:
    return f"{count} filter" + "s" * (count != 1)


def progress(keys: list[Key], what: str):
    """Gives the keys, and says how far they are: a line that changes on a terminal, else one every five seconds."""
    terminal = sys.stderr.isatty()
    total, done = sum(key.bytes for key in keys), 0
    start = said = time.monotonic()
    for number, key in enumerate(keys):
        now = time.monotonic()
        if number and now - said > (0.2 if terminal else 5):
            rate = done / (now - start)
            line = (
                f"{what}: {number} of {filters(len(keys))}, {readable(done)} of {readable(total)}, {readable(rate)}/s, "
                f"{(total - done) / max(rate, 1):.0f} s left"
            )
            print(f"\r\033[K{line}" if terminal else f"bloomery: {line}", end="" if terminal else "\n", file=sys.stderr)
            sys.stderr.flush()
            said = now
        yield key
        done += key.bytes
    if terminal:
        print("\r\033[K", end="", file=sys.stderr)
    say(f"{what}: {filters(len(keys))}, {readable(total)}, in {time.monotonic() - start:.1f} s")


# ---- from end to end ------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    def at_least(least: int):
        def parse(text: str) -> int:
            if (number := int(text)) < least:
                raise ValueError
            return number

        parse.__name__ = f"number from {least} on"
        return parse

    parser = argparse.ArgumentParser(prog="scripts/migrate", add_help=False, allow_abbrev=False)
    parser.add_argument("source", metavar="SOURCE_URL")
    parser.add_argument("target", metavar="TARGET_URL")
    parser.add_argument("--match", metavar="PATTERN", default="*")
    parser.add_argument("--type", choices=[*FAMILIES, "all"], default="all")
    parser.add_argument("--replace", action="store_true")
    parser.add_argument("--rounds", metavar="N", type=at_least(1), default=3)
    parser.add_argument("--pieces-from", metavar="MIB", type=at_least(0), default=64)
    parser.add_argument("--sample", metavar="N", type=at_least(0), default=10_000)
    parser.add_argument("--check", metavar="FILE")
    parser.add_argument("--dry-run", action="store_true")
    return parser.parse_args()


def dry_run(migration: Migration, keys: list[Key]) -> None:
    for key in keys:
        there = migration.target.command("EXISTS", key.name)
        difference = migration.difference(key) if there else ""
        verdict = (
            "would be copied"
            if not there
            else "is there, and equal"
            if not difference
            else f"would be overwritten; it differs: {difference}"
            if migration.replace
            else f"would be left; it differs: {difference}"
        )
        print(f"{key}: {key.family}, {readable(key.bytes)}, {verdict}")


def migrate(options: argparse.Namespace) -> int:
    source, target = Side("source", options.source), Side("target", options.target)
    for side in (source, target):
        try:
            side.command("PING")
        except redis.AuthenticationError as why:
            raise Fatal(f"{side}, does not let us in: {why}") from why
        except redis.ConnectionError as why:
            raise Fatal(f"{side}, cannot be reached: {why}") from why
    if options.check and not os.access(options.check, os.R_OK):
        raise Fatal(f"{options.check} cannot be read")

    def keys_of_round() -> list[Key]:
        return source.filters(options.match, FAMILIES.get(options.type))

    migration = Migration(
        source,
        target,
        replace=options.replace,
        rounds=options.rounds,
        pieces_from=options.pieces_from << 20,
    )
    if options.dry_run:
        dry_run(migration, keys_of_round())
        return 0
    settled = migration.run(keys_of_round, progress)
    asked = yes = 0
    for key in progress(settled, "answers"):
        batches = itertools.chain(random_items(options.sample), items_of(options.check) if options.check else ())
        try:
            more, of_them = migration.check(key, batches)
            asked, yes = asked + more, yes + of_them
        except Problem as why:
            migration.problems[key.name] = str(why)
    for name, why in migration.problems.items():
        print(f"{name.decode(errors='backslashreplace')}: {why}")
    good = [key for key in settled if key.name not in migration.problems]
    copied = sum(key.name in migration.copied for key in good)
    print(
        f"{filters(copied)} copied ({readable(sum(migration.copied.get(key.name, 0) for key in good))}), "
        f"{len(good) - copied} equal before, {len(migration.problems)} not at the target as they should be; "
        f"{asked} answers compared, {yes} of them yes"
    )
    return 1 if migration.problems else 0


def main() -> int:
    try:
        return migrate(arguments())
    except Fatal as why:
        say(str(why))
    except redis.AuthenticationError as why:
        say(f"a password has changed during the run: {why}")
    except (redis.ConnectionError, redis.TimeoutError) as why:
        say(f"the connection is lost: {why}. Run this again; it goes on where it stopped")
    except NoPermissionError as why:
        say(f"the user may not do what this takes: {why}")
    except redis.RedisError as why:
        say(f"refused: {why}")
    except KeyboardInterrupt:
        say("interrupted. Run this again; it goes on where it stopped")
    return 2


if __name__ == "__main__":
    sys.exit(main())
