"""What the server knows about each command: its arguments, its flags and its keys, and therefore who may send it. The
expected table was written from the documents, not taken from the module, so it is an independent check."""

import json

import pytest
import redis

from kit.commands import COMMANDS, Command
from kit.servers import ROOT

pytestmark = pytest.mark.every_server("flags, keys, categories and permissions of commands are checked by the server")

# All arguments of these commands are keys, except blobs. For a command that changes the first key, the user needs
# permission to read the others.
SEVERAL = ["BF.MERGE", "BF.INTERSECT", "BF.EQUAL"]
# The number of keys comes before these commands' sources.
COUNTED = ["CMS.MERGE", "TDIGEST.MERGE"]
# One import from {1} into {0} for each format that reads source keys, in upper and lower case.
IMPORTS = [
    ["BF.IMPORT", "{0}:key", "GOZERO", "{1}:source", "BITS", "1024"],
    ["bf.import", "{0}:key", "gozero", "{1}:source", "bits", "1024"],
    ["BF.IMPORT", "{0}:key", "REDISSON", "{1}:source", "{1}:config"],
    ["bf.import", "{0}:key", "redisson", "{1}:source", "{1}:config", "codec", "json"],
]
ARITY, FLAGS, FIRST_KEY, LAST_KEY, STEP, CATEGORIES, TIPS, KEYS = 1, 2, 3, 4, 5, 6, 7, 8  # indices in a reply to COMMAND INFO


def has_module_categories(spec) -> bool:
    return spec.version >= {"redis": (7, 4), "valkey": (8,)}[spec.product]


@pytest.fixture
def client(server):
    """A client of a server on which only the default user exists before and after the test."""
    with server.client(decode_responses=True) as client:
        yield client
        if others := set(client.acl_users()) - {"default"}:
            client.acl_deluser(*others)


@pytest.fixture
def described(client) -> dict[Command, list]:
    """What COMMAND INFO says about each command."""
    # Sent as one word, because redis-py parses the replies of "COMMAND" in its own way.
    replies = client.execute_command("COMMAND INFO", *(command.name for command in COMMANDS))
    return dict(zip(COMMANDS, replies, strict=True))


def may(client, user: str, words: list[str]) -> bool:
    """Whether the user may send the command. Doesn't run it."""
    reply = client.execute_command("ACL DRYRUN", user, *words)
    assert reply == "OK" or "has no permissions" in reply, reply
    return reply == "OK"


def allowed(client, user: str) -> set[str]:
    return {command.name for command in COMMANDS if may(client, user, command.words())}


def names(condition) -> set[str]:
    return {command.name for command in COMMANDS if condition(command)}


def test_the_table_holds_every_command(client):
    assert {command.name.lower() for command in COMMANDS} == set(client.command_list(module="bf"))


def test_arity_and_flags(described):
    seen = {command.name: (reply[ARITY], set(reply[FLAGS])) for command, reply in described.items()}
    assert seen == {command.name: (command.arity, {"module", *command.flags.split()}) for command in COMMANDS}


def test_tips(described):
    """No client may cache what can change although nobody writes to the key. RedisBloom gives the tip to six of these
    commands."""
    may_be_cached = {"CF.EXISTS", "CF.MEXISTS", "CF.COUNT", "CMS.QUERY", "TOPK.QUERY", "TOPK.COUNT", "TOPK.LIST", "TOPK.INFO"}
    reads = {command.name for command in COMMANDS if "readonly" in command.flags}
    may_be_cached |= {name for name in reads if name.startswith("TDIGEST.") and name != "TDIGEST.INFO"}
    assert {command.name for command, reply in described.items() if reply[TIPS]} == reads - may_be_cached
    assert all(reply[TIPS] in ([], ["dont_cache"]) for reply in described.values())


# The flags that differ from RedisBloom's, and why: flags that only RedisBloom's commands have, and that only ours have.
UNLIKE_REDISBLOOM = [
    # It moves items, so it is replicated and needs permission to write.
    ("cf.compact", "readonly fast", "write"),
    # Their time depends on the number of items, layers, sub-filters or bytes.
    ("bf.mexists bf.info bf.debug bf.scandump", "fast", ""),
    ("cf.mexists cf.info cf.debug cf.scandump cf.del", "fast", ""),
    # It reads a few cache lines.
    ("bf.add", "", "fast"),
    # The module itself refuses pieces when memory is short, because a piece can end a load.
    ("bf.loadchunk cf.loadchunk", "denyoom", ""),
    # LIKE is followed by a key.
    ("bf.reserve", "", "movablekeys"),
]


def test_redisblooms_commands_have_its_flags_and_keys(client):
    """The file has what COMMAND INFO says of RedisBloom 2.8.2 on Redis 8.0. That version declares no arity."""
    recorded = json.loads((ROOT / "tests" / "fixtures" / "redisbloom" / "command-info.json").read_text())
    expected = {name: (set(entry["flags"]), entry["keys"]) for name, entry in recorded.items()}
    for commands, theirs, ours in UNLIKE_REDISBLOOM:
        for name in commands.split():
            flags, keys = expected[name]
            assert flags >= set(theirs.split()) and not flags & set(ours.split()), name
            expected[name] = (flags - set(theirs.split()) | set(ours.split()), keys)
    replies = client.execute_command("COMMAND INFO", *recorded)
    seen = {reply[0]: (set(reply[FLAGS]) - {"module"}, reply[FIRST_KEY : STEP + 1]) for reply in replies}
    assert seen == expected


def test_keys(described):
    """Every command has a key as its first argument. Some commands have further keys, which they read."""

    def key(flags: str, *begin, count=1) -> list:
        keys = ["type", "range", "spec", ["lastkey", count - 1, "keystep", 1, "limit", 0]]
        return ["flags", flags.split(), "begin_search", [*begin], "find_keys", keys]

    def behind(word: str, start: int, count: int = 1, more: str = "") -> list:
        flags = "RO access" + more
        return key(flags, "type", "keyword", "spec", ["keyword", word, "startfrom", start], count=count)

    def rest(more: str = "") -> list:
        return key("RO access" + more, "type", "index", "spec", ["index", 2], count=0)

    counted = ["flags", ["RO", "access"], "begin_search", ["type", "index", "spec", ["index", 2]]]
    counted += ["find_keys", ["type", "keynum", "spec", ["keynumidx", 0, "firstkey", 1, "keystep", 1]]]
    first = ["type", "index", "spec", ["index", 1]]
    others = {
        "BF.RESERVE": [behind("LIKE", 4)],
        "BF.IMPORT": [behind("GOZERO", 2, 1, " incomplete"), behind("REDISSON", 2, 2, " incomplete")],
        **dict.fromkeys(SEVERAL, [rest()]),
        "BF.MERGE": [rest(" incomplete")],  # no keys follow BLOB
        **dict.fromkeys(COUNTED, [counted]),
    }
    for command, reply in described.items():
        assert reply[KEYS] == [key(command.key, *first), *others.get(command.name, [])], command.name
        assert (reply[FIRST_KEY], reply[LAST_KEY], reply[STEP]) == (1, -1 if command.name in SEVERAL else 1, 1), command.name


def test_a_command_needs_its_arguments(client):
    """The server accepts every command with the right number of arguments, and refuses it with a wrong one."""
    client.acl_setuser("anybody", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
    for command in COMMANDS:
        assert may(client, "anybody", command.words()), command.name
        few, many = [command.name, "key"], [*command.words(), "more"]
        wrong = [few[: abs(command.arity) - 1], many if command.arity > 0 else few[:1]]
        for words in wrong:
            with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
                client.execute_command("ACL DRYRUN", "anybody", *words)


def test_who_may_read_a_key_may_look_at_its_filter(client):
    client.execute_command("ACL SETUSER", "reader", "on", "nopass", "+@all", "%R~*")
    assert allowed(client, "reader") == names(lambda command: command.reads)


def test_who_may_write_a_key_may_change_its_filter_and_not_look_at_it(client):
    client.execute_command("ACL SETUSER", "writer", "on", "nopass", "+@all", "%W~*")
    assert allowed(client, "writer") == names(lambda command: not command.reads and command.name not in SEVERAL + COUNTED)


def test_only_keys_that_were_granted(client):
    client.execute_command("ACL SETUSER", "tenant", "on", "nopass", "+@all", "~mine:*")
    for command in COMMANDS:
        assert may(client, "tenant", command.words("mine:key")), command.name
        assert not may(client, "tenant", command.words("yours:key")), command.name
    like = ["BF.RESERVE", "mine:key", "0.01", "100", "LIKE"]
    assert may(client, "tenant", [*like, "mine:other"])
    assert not may(client, "tenant", [*like, "yours:other"])
    for words in IMPORTS:
        assert may(client, "tenant", [word.format("mine", "mine") for word in words])
        assert not may(client, "tenant", [word.format("mine", "yours") for word in words])


def test_the_key_behind_like_is_read(client):
    client.execute_command("ACL SETUSER", "copier", "on", "nopass", "+@all", "%W~new", "%R~old")
    assert may(client, "copier", ["BF.RESERVE", "new", "0.01", "100", "LIKE", "old"])
    assert not may(client, "copier", ["BF.RESERVE", "old", "0.01", "100", "LIKE", "old"])
    assert not may(client, "copier", ["BF.RESERVE", "new", "0.01", "100", "LIKE", "new"])


def test_the_sources_of_an_import_are_read(client):
    """The server finds each source key, in upper-case and lower-case commands, and knows that it is only read."""
    client.execute_command("ACL SETUSER", "mover", "on", "nopass", "+@all", "%W~new:*", "%R~old:*")
    for words in IMPORTS:
        assert may(client, "mover", [word.format("new", "old") for word in words])
        assert not may(client, "mover", [word.format("old", "old") for word in words])
        assert not may(client, "mover", [word.format("new", "new") for word in words])
    assert may(client, "mover", ["BF.IMPORT", "new:key", "REDISSON", "old:source", "old:config"])
    assert not may(client, "mover", ["BF.IMPORT", "new:key", "REDISSON", "old:source", "secret"])
    assert not may(client, "mover", ["BF.IMPORT", "new:key", "REDISSON", "secret", "old:config"])


def test_what_the_keys_of_an_import_are(client):
    for words, sources in [
        (["GOZERO", "a", "BITS", "8"], ["a"]),
        (["REDISSON", "a", "b", "CODEC", "JSON"], ["a", "b"]),
        # A key can have the same name as a format.
        (["GOZERO", "redisson", "BITS", "8"], ["redisson"]),
        (["REDISSON", "gozero", "b"], ["gozero", "b"]),
        (["BLOOMV3", "gozero"], []),
        (["BLOOMV3", "a"], []),
        (["GUAVA", "a", "FUNNEL", "LONG"], []),
    ]:
        keys = client.execute_command("COMMAND GETKEYS", "BF.IMPORT", "key", *words)
        assert keys == ["key", *sources], words


@pytest.mark.parametrize("family", ["bloom", "cuckoo"])
def test_a_category_holds_its_family(client, described, spec, family):
    if not has_module_categories(spec):
        assert family not in client.acl_cat()
        assert not any(reply[CATEGORIES] for reply in described.values())
        pytest.skip("the server has no categories of modules")
    mine = names(lambda command: command.family == family)
    assert {name.upper() for name in client.acl_cat(family)} == mine
    client.execute_command("ACL SETUSER", "specialist", "on", "nopass", "~*", f"+@{family}")
    assert allowed(client, "specialist") == mine
    client.execute_command("ACL SETUSER", "everybody", "on", "nopass", "~*", "+@all", f"-@{family}")
    assert allowed(client, "everybody") == names(lambda command: command.family != family)


@pytest.mark.parametrize("category", ["read", "write"])
def test_the_servers_own_categories(client, spec, category):
    if not has_module_categories(spec):
        pytest.skip("the server has no categories of commands of modules")
    client.execute_command("ACL SETUSER", "member", "on", "nopass", "~*", f"+@{category}")
    assert allowed(client, "member") == names(lambda command: command.reads == (category == "read"))


def test_a_command_can_be_granted_by_its_name(client):
    """A permission by name works on every server, whether or not the server has categories for module commands."""
    for command in COMMANDS:
        client.execute_command("ACL SETUSER", "one", "reset", "on", "nopass", "~*", f"+{command.name.lower()}")
        assert allowed(client, "one") == {command.name}


def test_what_is_not_permitted_is_not_done(client, server):
    """Sends the commands on the reader's own connection, because DRYRUN doesn't run them."""
    client.execute_command("BF.RESERVE", "bloom", "0.01", "100", "COUNTING")
    client.execute_command("CF.RESERVE", "cuckoo", "100")
    client.execute_command("ACL SETUSER", "reader", "on", "nopass", "+@all", "%R~*")
    with server.client(username="reader", password="any") as reader:
        for command in COMMANDS:
            if not command.reads:
                with pytest.raises(redis.exceptions.NoPermissionError):
                    reader.execute_command(*command.words(command.family))
        assert reader.execute_command("BF.EXISTS", "bloom", "item") == 0
        assert reader.execute_command("CF.EXISTS", "cuckoo", "item") == 0


# Commands as they are sent. {w} stands for the key that a command changes, and {r} for each key that it reads.
KEYED = [
    *(command.words("{r}" if command.reads else "{w}") for command in COMMANDS
      if command.name not in SEVERAL + COUNTED),
    ["BF.RESERVE", "{w}", "0.01", "100", "like", "{r}"],
    ["BF.RESERVE", "{w}", "0.01", "100", "NONSCALING", "LIKE", "{r}"],
    ["BF.BULKADD", "{w}", "PREFIXED", "\1\0\0\0a"],
    ["BF.BULKTEST", "{r}", "PREFIXED", "\1\0\0\0a", "COUNT"],
    ["BF.MERGE", "{w}", "{r}"],
    ["BF.MERGE", "{w}", "{r}", "{r}"],
    ["BF.MERGE", "{w}", "BLOB", "data", "more data"],
    ["BF.INTERSECT", "{w}", "{r}", "{r}"],
    ["BF.EQUAL", "{r}", "{r}"],
    ["CMS.MERGE", "{w}", "1", "{r}"],
    ["CMS.MERGE", "{w}", "2", "{r}", "{r}", "WEIGHTS", "1", "2"],
    *([word.replace("{0}:key", "{w}").replace("{1}:source", "{r}").replace("{1}:config", "{r}") for word in words]
      for words in IMPORTS),
]  # fmt: skip
ALLOWED = {"{w}": "w:{}", "{r}": "r:{}"}


@pytest.mark.parametrize("words", KEYED, ids=lambda words: "-".join(words[:1] + words[2:4]).replace("\0", ""))
def test_each_key_of_a_command_needs_its_own_permission(client, server, words):
    """Sends commands on the user's own connection. One key at a time is replaced by a key that the user may only read,
    may only write, or may not use at all. The command must then be refused without changing any key."""
    client.execute_command("ACL SETUSER", "tenant", "reset", "on", "nopass", "+@all", "%W~w:*", "%R~r:*")
    for place in "wrn":
        client.execute_command("BF.RESERVE", f"{place}:bf", "0.01", "100", "SEED", "1")
        client.execute_command("CF.RESERVE", f"{place}:cf", "100", "SEED", "1")
        client.execute_command("CMS.INITBYDIM", f"{place}:cms", 20, 5)
        client.execute_command("TOPK.RESERVE", f"{place}:topk", 10)
        client.set(f"{place}:text", "x" * 128)
    family = words[0].split(".")[0].lower()
    name = "text" if words[0].upper() == "BF.IMPORT" else family

    def named(wrong=None, place=None) -> list[str]:
        """The command's words, with another key as argument number `wrong`."""
        right = [ALLOWED.get(word, word).format(name if word == "{r}" else family) for word in words]
        return [f"{place}:{name}" if index == wrong else word for index, word in enumerate(right)]

    def state():
        return {key: client.execute_command("DEBUG", "DIGEST-VALUE", key) for key in client.keys()}

    before = state()
    with server.client(username="tenant", password="any") as tenant:
        for index, word in enumerate(words):
            for place in {"{w}": "rn", "{r}": "wn"}.get(word, ""):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    tenant.execute_command(*named(index, place))
                assert state() == before
        try:
            tenant.execute_command(*named())
        except redis.exceptions.NoPermissionError:
            raise
        except redis.ResponseError:
            pass  # permitted, but refused because of what the keys contain
