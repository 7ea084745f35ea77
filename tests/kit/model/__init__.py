"""What Bloomery should answer: a Python model of the BF.* and CF.* commands, and of others that touch keys.

A `Model` gets commands and returns the reply that a server should send to each, byte for byte, except for the texts of
errors. It shares no code with the crate and knows nothing about bits:

- A Bloom filter is the set of its items. That is exact because there are no false positives: error rates are 1e-9 or
  less, and filters are never saturated. Values that depend on cells (sizes, fills, dumps) are masked.
- A cuckoo filter consists of fingerprints in buckets, by the rules of src/filter/cuckoo, with another implementation
  of XXH3. False positives, counts, growth, compaction and the bytes of a dump are exact. In CF.INFO, only the size is
  masked.

A further family is a module beside `bloom` and `cuckoo`, with its filters and a class of its commands.
"""

import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from kit.commands import COMMANDS
from kit.model.bloom import BloomCommands
from kit.model.cuckoo import Cuckoo, CuckooCommands, another
from kit.model.replies import OK, WRONGTYPE, Error, Refused, Simple, through_lua

# The number of words in each command, which the servers themselves check; negative for a minimum.
ARITY = {command.name: command.arity for command in COMMANDS}
# Methods for commands whose names can't be method names.
NAMES = {"DEL": "delete"}

CALL = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"
PCALL = "return redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, 2))"
PCALL_RESP3 = f"redis.setresp(3) {PCALL}"
# A script that copies a filter with the given family's SCANDUMP and LOADCHUNK.
TRANSFER = """
local iterator = 0
repeat
    local piece = redis.pcall(ARGV[1] .. '.SCANDUMP', KEYS[1], iterator)
    if piece.err then return piece end
    iterator = piece[1]
    if iterator ~= 0 then
        local loaded = redis.pcall(ARGV[1] .. '.LOADCHUNK', KEYS[2], iterator, piece[2])
        if loaded.err then return loaded end
    end
until iterator == 0
return redis.status_reply('OK')
"""


@dataclass
class Settings:
    """The module's options in CONFIG, without the prefix `bf-`."""

    error_rate: float = 0.01
    initial_size: int = 100
    expansion_factor: int = 2
    cf_bucket_size: int = 2
    cf_initial_size: int = 1024
    cf_max_iterations: int = 20
    cf_expansion_factor: int = 1
    cf_max_expansions: int = 32


@dataclass
class Model(BloomCommands, CuckooCommands):
    """A server, which is empty at first, and its only client."""

    settings: Settings = field(default_factory=Settings)
    # Heads that the server's CF.SCANDUMP key 0 returned, in order, by key. If the module chooses a filter's seed, the
    # test dumps the filter before it does anything else with the key. So the model finds the seed in the next head.
    heads: defaultdict[bytes, deque] = field(default_factory=lambda: defaultdict(deque))
    keys: dict[bytes, object] = field(default_factory=dict)
    events: Counter = field(default_factory=Counter)
    # Whether an error inside an array makes the whole script fail, as on Valkey 9.
    errors_escape: bool = False
    queue: list | None = None
    aborted: bool = False
    now: int = field(default_factory=lambda: int(time.time() * 1000))

    # ---- the server's part

    def run(self, argv: list[bytes]):
        """The reply to a client's command."""
        name = argv[0].decode().upper()
        if name == "MULTI":
            self.queue, self.aborted = [], False
            return OK
        if name in ("EXEC", "DISCARD"):
            queue, self.queue = self.queue, None
            if name == "DISCARD":
                return OK
            if self.aborted:
                self.events["transaction aborted"] += 1
                return Error("EXECABORT")
            return [self.execute(argv) for argv in queue]
        if self.queue is None:
            return self.execute(argv)
        if not self.arity_holds(argv):
            self.aborted = True
            return self.execute(argv)
        self.queue.append(argv)
        return Simple("QUEUED")

    def arity_holds(self, argv) -> bool:
        arity = ARITY.get(argv[0].decode().upper(), -1)
        return len(argv) == arity if arity > 0 else len(argv) >= -arity

    def execute(self, argv):
        name = argv[0].decode().upper()
        if not self.arity_holds(argv):
            return Error()
        self.events[name] += 1
        try:
            return getattr(self, NAMES.get(name, name.replace(".", "_").lower()))(*argv[1:])
        except Refused as refused:
            error = Error(*refused.args)
            self.events[f"{name} refused"] += 1
            self.events[error] += 1
            return error

    def eval(self, script, numkeys, *arguments):
        keys, arguments = arguments[: int(numkeys)], arguments[int(numkeys) :]
        script = script.decode()
        if script == TRANSFER:
            return self.transfer(*keys, arguments[0].decode())
        argv = [arguments[0], *keys, *arguments[1:]]
        if self.arity_holds(argv):
            reply = through_lua(self.execute(argv), script == PCALL_RESP3)
        else:
            reply = Error()
        if self.errors_escape and isinstance(reply, list):
            reply = next((part for part in reply if isinstance(part, Error)), reply)
        return reply

    def flushdb(self):
        self.keys.clear()
        return OK

    def set(self, key, value):
        self.keys[key] = value
        return OK

    def get(self, key):
        value = self.keys.get(key)
        return value if value is None or isinstance(value, bytes) else WRONGTYPE

    def type(self, key):
        match self.keys.get(key):
            case None:
                return Simple("none")
            case bytes():
                return Simple("string")
            case Cuckoo():
                return Simple("bloomeryC")
            case _:
                return Simple("bloomery1")

    def delete(self, *keys):
        return sum(self.keys.pop(key, None) is not None for key in keys)

    def exists(self, key):
        return int(key in self.keys)

    def copy(self, source, target, *replace):
        if source not in self.keys or (target in self.keys and not replace):
            return 0
        self.keys[target] = another(self.keys[source])
        return 1

    def rename(self, source, target):
        if source not in self.keys:
            return Error()
        self.keys[target] = self.keys.pop(source)
        return OK

    # ---- keys

    def filter(self, key, kinds):
        """The key's filter, or None. Raises `Refused` if the key has a value of another kind."""
        value = self.keys.get(key)
        if value is not None and not isinstance(value, kinds):
            raise Refused("WRONGTYPE")
        return value

    def found(self, filter_):
        if filter_ is None:
            raise Refused()
        return filter_

    def transfer(self, source, target, family):
        """Does what the script TRANSFER does, and returns its reply."""
        find = self.bloom if family == "BF" else self.cuckoo
        try:
            filter_ = self.found(find(source))
            if find(target):
                raise Refused()
        except Refused as refused:
            return Error(*refused.args)
        self.keys[target] = another(filter_)
        self.events["transfer"] += 1
        return OK
