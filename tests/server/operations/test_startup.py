"""Loading the module: its arguments, another prefix, what it tells the server about its commands, and what the log says
when it doesn't load. A module that fails to load at startup stops the server, and only the line in the log says why."""

import shutil
import subprocess

import pytest
import redis

from kit.filters import pairs
from kit.servers import MODULE, ServerFailed, option

LOADED_BY_EVERY_SERVER = pytest.mark.every_server("the server loads modules and passes their arguments")

# A module that has only a name and a command.
OTHER = """
int nothing(void *ctx, void **argv, int argc) { return 0; }

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    void (*name)(void *, const char *, int, int);
    int (*command)(void *, const char *, int (*)(void *, void **, int), const char *, int, int, int);
    if (get("RedisModule_SetModuleAttribs", &name) || get("RedisModule_CreateCommand", &command)) return 1;
    name(ctx, NAME, 1, 1);
    return command(ctx, COMMAND, nothing, "readonly", 1, 1, 1);
}
"""


@pytest.fixture
def other_module(tmp_path):
    def build(name: str, command: str):
        source, library = tmp_path / "other.c", tmp_path / "other.so"
        source.write_text(OTHER)
        defines = [f'-DNAME="{name}"', f'-DCOMMAND="{command}"']
        subprocess.run(["gcc", "-shared", "-fPIC", *defines, "-o", library, source], check=True)
        return library

    return build


def load(server, path, *arguments):
    return server.command("MODULE", "LOAD", str(path), *arguments)


def refused(server, path, *arguments) -> str:
    """The single line that the module logs when it fails to load."""
    before = len(server.log())
    with pytest.raises(redis.ResponseError):
        load(server, path, *arguments)
    lines = [line for line in server.log()[before:].splitlines() if "bloomery: " in line]
    assert len(lines) == 1, server.log()[before:]
    return lines[0].split("bloomery: ")[1]


@LOADED_BY_EVERY_SERVER
def test_arguments(new_server):
    server = new_server(
        module_args=["ERROR_RATE", "0.125", "initial_size", "7", "EXPANSION_FACTOR", "3", "MAX_FILTER_BYTES", "1mb"]
    )
    names = {"error-rate": "0.125", "initial-size": "7", "expansion-factor": "3", "max-filter-bytes": "1048576"}
    with server.client(decode_responses=True) as client:
        for name, value in names.items():
            assert client.config_get(option(server.spec, name)) == {option(server.spec, name): value}
        client.execute_command("BF.ADD", "key", "item")
        assert client.execute_command("BF.INFO", "key", "CAPACITY") == [7]
        assert client.execute_command("BF.INFO", "key", "EXPANSION") == [3]


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["NOPE", "1"], "not loaded: Unrecognized option NOPE"),
        (["ERROR_RATE"], "not loaded: Invalid number of arguments passed: they are pairs of a name and a value"),
        (["ERROR_RATE", "2"], "not loaded: Value for `ERROR_RATE` must be in the range (0.000000, 1.000000)"),
        (["INITIAL_SIZE", "0"], "not loaded: Value for `INITIAL_SIZE` must be in the range [1, 1073741824]"),
        (["EXPANSION_FACTOR", "-1"], "not loaded: Value for `EXPANSION_FACTOR` must be in the range [0, 32768]"),
        (["MAX_FILTER_BYTES", "4 apples"], "not loaded: Invalid value for `MAX_FILTER_BYTES`: expected a number of bytes"),
        (["error-rate", "x"], "not loaded: Invalid value for `error-rate`"),
        (["error-rate", "1e-13"], "not loaded: Value for `error-rate` must be in the range [1e-12, 1.000000)"),
        (["cf-bucket-size", "256"], "not loaded: Value for `cf-bucket-size` must be in the range [1, 255]"),
        (["cf-initial-size", "1"], "not loaded: Value for `cf-initial-size` must be in the range [2, 1073741824]"),
        (["cf-max-expansions", "65537"], "not loaded: Value for `cf-max-expansions` must be in the range [1, 65536]"),
        (
            ["max-items-per-command", "999"],
            "not loaded: Invalid value for `max-items-per-command`: expected 0 for no limit, or a number of 1000 or more",
        ),
        (["PREFIX", "a b"], "not loaded: PREFIX expects 1 to 32 letters, digits, - or _"),
        (["%s%n%p", "%s%n"], "not loaded: Unrecognized option %s%n%p"),
        (["ONCLASH", "PREFIX"], "not loaded: Invalid number of arguments passed: they are pairs of a name and a value"),
        (["ONCLASH", "PREFIX", "a.b"], "not loaded: PREFIX expects 1 to 32 letters, digits, - or _"),
        (["ONCLASH", "IGNORE"], "not loaded: ONCLASH expects ABORT, SKIP, or PREFIX and a name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@LOADED_BY_EVERY_SERVER
def test_bad_arguments(new_server, arguments, why):
    """A MODULE LOAD that fails leaves the server unchanged: afterwards, the module loads without these arguments."""
    server = new_server(module=None)
    assert refused(server, MODULE, *arguments).startswith(why)
    assert load(server, MODULE) == b"OK"
    assert server.command("BF.ADD", "key", "item") == 1


@LOADED_BY_EVERY_SERVER
def test_bad_arguments_at_start(new_server):
    with pytest.raises(ServerFailed, match="bloomery: not loaded: Unrecognized option NOPE"):
        new_server(module_args=["NOPE", "1"])


@LOADED_BY_EVERY_SERVER
def test_another_prefix(new_server):
    server = new_server(module_args=["PREFIX", "Sieve", "INITIAL_SIZE", "9"])
    with server.client() as client:
        assert client.execute_command("sieve.ADD", "key", "item") == 1
        assert client.execute_command("SIEVE.INFO", "key", "CAPACITY") == [9]
        with pytest.raises(redis.ResponseError, match="unknown command"):
            client.execute_command("BF.ADD", "key", "item")
        assert client.execute_command("SIEVECF.ADD", "cuckoo", "item") == 1
        # Cluster clients such as redis-py 7.1 refuse names with two dots.
        assert {name.count(b".") for name in client.command_list(module="sieve")} == {1}
        assert client.config_get("sieve*initial-size")
        assert b"sieve" in [module[b"name"] for module in client.module_list()]
        client.config_set(option(server.spec, "auto-create").replace("bf", "sieve"), "no")
        for command, text in [
            ("SIEVE.DEL key item", "not a counting filter; SIEVE.RESERVE key error_rate capacity COUNTING creates one"),
            ("SIEVE.EXPORT key", "the filter is Bloomery's own, and has no other system's format. Use SIEVE.SCANDUMP or DUMP."),
            ("SIEVECF.ADD new item", "no filter is in the key, and auto-create is no. Create the filter first, with SIEVECF.RESERVE key capacity"),
            ("SIEVE.REBUILD bf.add TURN", "SIEVE.REBUILD expects BEGIN, ADD, ADDBULK, COMMIT, ABORT or STATUS after the key"),
            ("SIEVE.RESERVE new 0.01 9 BF.ADD", "unknown option 'BF.ADD'"),
        ]:
            with pytest.raises(redis.ResponseError) as refusal:
                client.execute_command(*command.split())
            assert str(refusal.value) == text
        client.execute_command("SIEVE.RESERVE", "full", 0.01, 1, "NONSCALING")
        client.execute_command("SIEVE.ADD", "full", "item")
        [advice] = pairs(client.execute_command("SIEVE.STATS", "full"))[b"Advice"]
        assert b"; SIEVE.REBUILD full BEGIN" in advice
    assert "loaded, commands SIEVE.*, SIEVECF.*" in server.log()
    assert "loaded, commands BF.*, CF.*" in new_server().log()


@LOADED_BY_EVERY_SERVER
def test_another_prefix_is_kept_by_replicas_and_files(new_server):
    """Replication and append-only files use the names under which the module's commands are registered."""
    primary = new_server(module_args=["PREFIX", "sieve"], config={"appendonly": "yes", "aof-use-rdb-preamble": "no"})
    replica = primary.replica(module_args=["PREFIX", "sieve"])
    with primary.client() as client:
        for item in range(300):
            client.execute_command("SIEVE.ADD", "key", item)
        client.execute_command("SIEVE.RESERVE", "window", 0.01, 10, "WINDOW", 2)
        client.execute_command("SIEVE.ROTATE", "window")
        primary.wait_for_replicas()
        digest = client.execute_command("DEBUG", "DIGEST-VALUE", "key", "window")
        assert replica.command("DEBUG", "DIGEST-VALUE", "key", "window") == digest
        client.bgrewriteaof()
    primary.restart(kill=True)
    assert primary.command("DEBUG", "DIGEST-VALUE", "key", "window") == digest


@LOADED_BY_EVERY_SERVER
def test_a_name_that_is_taken(new_server, other_module):
    server = new_server(module=None)
    assert load(server, other_module("bf", "other.command")) == b"OK"
    line = refused(server, MODULE)
    assert line.startswith("not loaded: another module is loaded under the name bf") and "PREFIX" in line
    assert load(server, MODULE, "PREFIX", "bloom") == b"OK"
    assert server.command("BLOOM.ADD", "key", "item") == 1


@LOADED_BY_EVERY_SERVER
def test_a_command_that_is_taken(new_server, other_module):
    server = new_server(module=None)
    assert load(server, other_module("other", "bf.madd")) == b"OK"
    line = refused(server, MODULE)
    assert line.startswith("not loaded: the command bf.madd is taken by another module") and "PREFIX" in line
    with pytest.raises(redis.ResponseError, match="unknown command"):
        server.command("BF.ADD", "key", "item")  # the failed load has left no command behind
    assert load(server, MODULE, "PREFIX", "bloom") == b"OK"


@LOADED_BY_EVERY_SERVER
def test_a_second_copy(new_server, tmp_path):
    """A copy of the file under another prefix would share the data type, so it doesn't load. The first copy keeps
    working."""
    server = new_server()
    copy = shutil.copy(MODULE, tmp_path / "copy.so")
    assert (
        refused(server, copy, "PREFIX", "second")
        == "not loaded: the data type bloomery1 is taken: is Bloomery loaded twice?"
    )
    assert refused(server, copy) == "not loaded: the module is loaded already"
    assert server.command("BF.ADD", "key", "item") == 1


@LOADED_BY_EVERY_SERVER
def test_it_does_not_unload(new_server):
    """The server refuses to unload any module with a data type. After the refusal, the module must still work."""
    server = new_server()
    with pytest.raises(redis.ResponseError, match="data types"):
        server.command("MODULE", "UNLOAD", "bf")
    assert server.command("BF.ADD", "key", "item") == 1
