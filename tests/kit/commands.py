"""The module's commands, and what a server must report about each. Written from the documentation, not the code."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Command:
    name: str
    arity: int  # number of words, including the name; negative for a minimum
    flags: str
    key: str  # what the command does to its key
    example: str  # arguments after the key

    @property
    def family(self) -> str:
        family = self.name.split(".")[0]
        return {"BF": "bloom", "CF": "cuckoo"}.get(family, family.lower())

    @property
    def reads(self) -> bool:
        return self.key == "RO access"

    @property
    def creates(self) -> bool:
        """Whether it refuses a key that exists."""
        return self.name.endswith((".RESERVE", ".INITBYDIM", ".INITBYPROB", ".CREATE"))

    def words(self, key: str = "key") -> list[str]:
        return [self.name, key, *(word.replace("{key}", key) for word in self.example.split())]


COMMANDS = [
    # The server refuses commands with `denyoom` when memory is short. The module itself refuses LOADCHUNK and
    # BF.REBUILD, because they also have forms that need no memory. Commands that can take a long time aren't `fast`:
    # those that work on many items, on all layers, on a whole filter or on a piece; an add to a cuckoo filter, which
    # might move other items; and a delete from one, which might compact it. If keywords determine which arguments are
    # keys, the command has `movablekeys`.
    Command("BF.RESERVE", -4, "write denyoom movablekeys", "RW insert", "0.01 100"),
    Command("BF.INSERT", -4, "write denyoom", "RW insert", "ITEMS item"),
    Command("BF.ADD", 3, "write denyoom fast", "RW insert", "item"),
    Command("BF.MADD", -3, "write denyoom", "RW insert", "item item"),
    Command("BF.BULKADD", -4, "write denyoom", "RW insert", "FIXED 1 item"),
    Command("BF.ADDNX", 3, "write denyoom fast", "RW insert", "item"),
    Command("BF.EXISTS", 3, "readonly fast", "RO access", "item"),
    Command("BF.MEXISTS", -3, "readonly", "RO access", "item item"),
    Command("BF.BULKTEST", -4, "readonly", "RO access", "FIXED 1 item"),
    Command("BF.TEST", 3, "readonly fast", "RO access", "item"),
    Command("BF.DEL", 3, "write fast", "RW delete", "item"),
    Command("BF.MDEL", -3, "write", "RW delete", "item item"),
    Command("BF.COUNT", 3, "readonly fast", "RO access", "item"),
    Command("BF.ROTATE", -2, "write", "RW update", ""),
    Command("BF.AGE", -3, "readonly fast", "RO access", "item"),
    Command("BF.CLEAR", 2, "write", "RW delete", ""),
    Command("BF.CARD", 2, "readonly fast", "RO access", ""),
    Command("BF.INFO", -2, "readonly", "RO access", ""),
    Command("BF.STATS", 2, "readonly", "RO access", ""),
    Command("BF.DEBUG", 2, "readonly", "RO access", ""),
    Command("BF.FEEDBACK", 4, "readonly fast", "RO access", "1 0"),
    Command("BF.MERGE", -3, "write denyoom movablekeys", "RW insert", "{key}"),
    Command("BF.INTERSECT", -4, "write denyoom", "OW update", "{key} {key}"),
    Command("BF.EQUAL", 3, "readonly", "RO access", "{key}"),
    Command("BF.REBUILD", -3, "write", "RW update", "STATUS"),
    Command("BF.SCANDUMP", 3, "readonly", "RO access", "0"),
    Command("BF.LOADCHUNK", 4, "write", "RW insert", "1 data"),
    Command("BF.IMPORT", -4, "write denyoom movablekeys", "RW insert", "BLOOMV3 data"),
    Command("BF.EXPORT", -2, "readonly", "RO access", "COUNT 1048576"),
    Command("BF.LOAD", 3, "write denyoom", "RW insert", "data"),
    Command("CF.RESERVE", -3, "write denyoom", "RW insert", "100"),
    Command("CF.INSERT", -4, "write denyoom", "RW insert", "ITEMS item"),
    Command("CF.INSERTNX", -4, "write denyoom", "RW insert", "ITEMS item"),
    Command("CF.ADD", 3, "write denyoom", "RW insert", "item"),
    Command("CF.ADDNX", 3, "write denyoom", "RW insert", "item"),
    Command("CF.EXISTS", 3, "readonly fast", "RO access", "item"),
    Command("CF.MEXISTS", -3, "readonly", "RO access", "item item"),
    Command("CF.COUNT", 3, "readonly fast", "RO access", "item"),
    Command("CF.DEL", 3, "write", "RW delete", "item"),
    Command("CF.COMPACT", 2, "write", "RW update", ""),
    Command("CF.INFO", 2, "readonly", "RO access", ""),
    Command("CF.STATS", 2, "readonly", "RO access", ""),
    Command("CF.DEBUG", 2, "readonly", "RO access", ""),
    Command("CF.SCANDUMP", 3, "readonly", "RO access", "0"),
    Command("CF.LOADCHUNK", 4, "write", "RW insert", "1 data"),
    Command("CMS.INITBYDIM", 4, "write denyoom", "RW insert", "20 5"),
    Command("CMS.INITBYPROB", 4, "write denyoom", "RW insert", "0.01 0.01"),
    Command("CMS.INCRBY", -4, "write denyoom", "RW update", "item 1"),
    Command("CMS.MERGE", -4, "write denyoom movablekeys", "RW update", "1 {key}"),
    Command("CMS.QUERY", -3, "readonly", "RO access", "item item"),
    Command("CMS.INFO", 2, "readonly", "RO access", ""),
    Command("TOPK.RESERVE", -3, "write denyoom", "RW insert", "10"),
    Command("TOPK.ADD", -3, "write denyoom", "RW update", "item item"),
    Command("TOPK.INCRBY", -4, "write denyoom", "RW update", "item 1"),
    Command("TOPK.QUERY", -3, "readonly", "RO access", "item item"),
    Command("TOPK.COUNT", -3, "readonly", "RO access", "item item"),
    Command("TOPK.LIST", -2, "readonly", "RO access", ""),
    Command("TOPK.INFO", 2, "readonly", "RO access", ""),
    Command("TDIGEST.CREATE", -2, "write denyoom", "RW insert", ""),
    Command("TDIGEST.RESET", 2, "write denyoom", "RW delete", ""),
    Command("TDIGEST.ADD", -3, "write denyoom", "RW insert", "1 2"),
    Command("TDIGEST.MERGE", -4, "write denyoom movablekeys", "RW update", "1 {key}"),
    Command("TDIGEST.QUANTILE", -3, "readonly", "RO access", "0.5"),
    Command("TDIGEST.CDF", -3, "readonly", "RO access", "1"),
    Command("TDIGEST.RANK", -3, "readonly", "RO access", "1"),
    Command("TDIGEST.REVRANK", -3, "readonly", "RO access", "1"),
    Command("TDIGEST.BYRANK", -3, "readonly", "RO access", "1"),
    Command("TDIGEST.BYREVRANK", -3, "readonly", "RO access", "1"),
    Command("TDIGEST.TRIMMED_MEAN", 4, "readonly", "RO access", "0 1"),
    Command("TDIGEST.MIN", 2, "readonly", "RO access", ""),
    Command("TDIGEST.MAX", 2, "readonly", "RO access", ""),
    Command("TDIGEST.INFO", 2, "readonly", "RO access", ""),
]
