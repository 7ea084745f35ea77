"""The module in the server's configuration: a second load, names that are taken, and options that depend on each other.
A server must start again whatever its configuration file has become, because there may be nobody to repair the file.
"""

import shutil
import subprocess

import pytest
import redis

from kit.clients import refusal
from kit.servers import MODULE, ROOT, Server, ServerFailed, option

EVERY_SERVER = pytest.mark.every_server("the server loads modules and rewrites its file")


class FromFile(Server):
    """A server with a configuration file, which the server reads before its command-line arguments."""

    def command_line(self) -> list[str]:
        self.file = self.directory / "server.conf"
        if not self.file.exists():
            self.file.write_text("\n".join(self.lines) + "\n")
        program, *words = super().command_line()
        return [program, str(self.file), *words]

    def __init__(self, spec, lines=(), **options):
        self.lines = lines
        super().__init__(spec, **options)

    def loads(self) -> list[str]:
        return [line for line in self.file.read_text().splitlines() if line.startswith("loadmodule ")]

    def modules(self) -> list[str]:
        with self.client(decode_responses=True) as client:
            own = {module["name"] for module in client.module_list()} - {"vectorset", "lua"}  # part of some servers
            return sorted(own)


# ---- a second load --------------------------------------------------------------------------------------------------

CYCLES = 5


@pytest.mark.parametrize("same", [True, False], ids=["same file", "copy"])
@EVERY_SERVER
def test_the_module_on_the_command_line_and_in_the_file(spec, tmp_path, same):
    """However often the server starts, runs CONFIG REWRITE and is killed or stopped, it starts again with all its keys,
    and its file keeps a single `loadmodule` line."""
    copy = tmp_path / "copy.so"
    if not same:
        shutil.copy(MODULE, copy)
    with FromFile(spec, module_args=["ERROR_RATE", "0.001"], config={"save": "", "appendonly": "yes"}) as server:
        for cycle in range(CYCLES):
            with server.client() as client:
                assert server.modules() == ["bf"]
                assert client.execute_command("BF.ADD", "seen", cycle) == 1
                assert client.execute_command("BF.CARD", "seen") == cycle + 1
                client.config_rewrite()
            assert len(server.loads()) == 1, server.loads()
            assert server.log().count("loaded already") == cycle
            server.module = MODULE if same or cycle % 2 else copy
            server.restart(kill=cycle % 2 == 0)
        server.check()


@EVERY_SERVER
def test_three_loads_with_other_arguments(spec):
    """Only the first load takes effect."""
    lines = [f"loadmodule {MODULE} ERROR_RATE 0.5", f"loadmodule {MODULE} PREFIX other"]
    with FromFile(spec, lines, module_args=["ERROR_RATE", "0.25"]) as server, server.client() as client:
        assert server.modules() == ["bf"]
        assert client.config_get(option(spec, "error-rate")) == {option(spec, "error-rate"): "0.5"}
        client.config_rewrite()
        assert len(server.loads()) == 1 and server.loads()[0].endswith("ERROR_RATE 0.5")
        server.check()


# ---- names that are taken -------------------------------------------------------------------------------------------

# Another module with the name bf.
OTHER = """
int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    int (*attributes)(void *, const char *, int, int);
    get("RedisModule_SetModuleAttribs", &attributes);
    attributes(ctx, "bf", 1, 1);
    return 0;
}
"""


@pytest.fixture
def other(tmp_path):
    """The path of RedisBloom if it is in the cache, otherwise of a small module that is also named bf."""
    if found := sorted((ROOT / ".cache").glob("**/redisbloom.so")):
        return found[0]
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    (tmp_path / "other.c").write_text(OTHER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "other.so", "other.c"], cwd=tmp_path, check=True)
    return tmp_path / "other.so"


@EVERY_SERVER
def test_what_to_do_when_the_name_is_taken(spec, other):
    lines = [f"loadmodule {other}"]
    for arguments in ([], ["ONCLASH", "ABORT"], ["ONCLASH", "PREFIX", "bf"]):
        with pytest.raises(ServerFailed, match="another module is loaded under the name bf"):
            FromFile(spec, lines, module_args=arguments)
    with FromFile(spec, lines, module_args=["ONCLASH", "PREFIX", "bl", "ERROR_RATE", "0.001"]) as server:
        for _ in range(2):
            assert server.modules() == ["bf", "bl"]
            assert server.command("BL.ADD", "seen", "ada") == 1
            server.restart()
    with FromFile(spec, lines, module_args=["ONCLASH", "SKIP"]) as server, server.client() as client:
        assert server.modules() == ["bf", "bloomery-skipped-1"]
        assert refusal(client, "BL.ADD", "seen", "ada").startswith("unknown command")
        assert "without commands" in server.log()
    # While the module is loaded without commands, it can still be loaded again under another name.
    with FromFile(spec, lines, module_args=["ONCLASH", "SKIP"]) as server, server.client() as client:
        load = ["MODULE", "LOAD", str(MODULE)]
        client.execute_command(*load, "ONCLASH", "SKIP")
        assert server.modules() == ["bf", "bloomery-skipped-1", "bloomery-skipped-2"]
        client.execute_command(*load, "PREFIX", "bl")
        client.execute_command("MODULE", "UNLOAD", "bloomery-skipped-1")
        assert server.command("BL.ADD", "seen", "ada") == 1
    # Without a clash, ONCLASH changes nothing.
    for arguments in (["ONCLASH", "SKIP"], ["ONCLASH", "PREFIX", "bl"]):
        with Server(spec, module_args=arguments) as server:
            assert server.command("BF.ADD", "seen", "ada") == 1


# ---- options that depend on each other ------------------------------------------------------------------------------


def name(spec, of: str) -> str:
    found = option(spec, of)
    return found.removeprefix("bf-") if of.startswith("cf-") else found


@EVERY_SERVER
def test_config_set_of_several_options_sets_all_or_none(new_server):
    server = new_server()
    bucket, initial, rate = (name(server.spec, of) for of in ("cf-bucket-size", "cf-initial-size", "error-rate"))
    with server.client(decode_responses=True) as client:
        both = lambda: (client.config_get(bucket)[bucket], client.config_get(initial)[initial])  # noqa: E731
        for order in ((bucket, initial), (initial, bucket)):
            for values in (("200", "400"), ("2", "4"), ("255", "2"), ("1", "1024"), ("2", "1024")):
                wanted = dict(zip((bucket, initial), values, strict=True))
                before = both()
                words = [word for key in order for word in (key, wanted[key])]
                with pytest.raises(redis.ResponseError, match="must be in the range"):
                    client.execute_command("CONFIG", "SET", *words, rate, "7")
                assert both() == before
                client.execute_command("CONFIG", "SET", *words)
                assert both() == values


@EVERY_SERVER
def test_whatever_was_configured_the_server_starts_again(spec):
    """New filters have at least two buckets, and the server can read what CONFIG REWRITE wrote."""
    bucket, initial = name(spec, "cf-bucket-size"), name(spec, "cf-initial-size")
    for arguments in ([], ["CF_BUCKET_SIZE", "4"], ["CF_INITIAL_SIZE", "300", "CF_BUCKET_SIZE", "150"]):
        with FromFile(spec, module_args=arguments) as server:
            for values in (("2", "4"), ("255", "2"), ("1", "3"), ("7", "1000")):
                with server.client(decode_responses=True) as client:
                    client.execute_command("CONFIG", "SET", bucket, values[0], initial, values[1])
                    assert client.execute_command("CF.ADD", "seen", "ada") == 1
                    slots = min(int(values[0]), int(values[1]) // 2)
                    assert f"bktsize:{slots} " in client.execute_command("CF.DEBUG", "seen")
                    client.config_rewrite()
                server.restart()


# ---- loads that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["MODULE", "LOAD", MODULE, "ERROR_RATE", "5"],
        ["MODULE", "LOAD", MODULE, "NOPE", "1"],
        ["MODULE", "LOAD", MODULE, "THREADS"],
        ["MODULE", "LOAD", MODULE, "PREFIX", "other", "INITIAL_SIZE", "-3"],
        ["MODULE", "LOADEX", MODULE, "CONFIG", "bf.nope", "1"],
    ],
    ids=lambda words: " ".join(map(str, words[1:2] + words[3:])),
)
@EVERY_SERVER
def test_a_load_that_fails_leaves_nothing_behind(new_server, words):
    """The server unmaps the module. If it still held a pointer into the module, it would crash when a timer fires, on a
    configuration change or a flush, or at SHUTDOWN."""
    server = new_server(module=None)
    if server.spec.product == "valkey" and "LOADEX" in words:
        pytest.skip("Valkey 8.1 ends by any module that LOADEX unloads again")
    with server.client() as client:
        with pytest.raises(redis.ResponseError):
            client.execute_command(*map(str, words))
        for turn in range(20):
            client.config_set("hz", 100 + turn)
            client.flushall()
            client.execute_command("DEBUG", "SLEEP", 0.02)
    server.stop()
    server.check()


@EVERY_SERVER
def test_options_have_valkey_blooms_names_also(spec):
    """An option that valkey-bloom has too can be set and read under either name: in the file, in CONFIG and in load
    arguments. The server can read what CONFIG REWRITE writes."""
    if option(spec, "error-rate") == "bf-error-rate":
        return
    arguments = "bloom-expansion 4 BLOOM-MEMORY-USAGE-LIMIT 1mb"
    file = [f"loadmodule {MODULE} {arguments}"]
    file += ["bf.bloom-fp-rate 0.001", "bf.bloom-capacity 500", "bf.error-rate 0.002"]
    values = {"error-rate": "0.002", "initial-size": "500", "expansion-factor": "4", "max-filter-bytes": "1048576"}
    theirs = dict(zip(values, ("bloom-fp-rate", "bloom-capacity", "bloom-expansion", "bloom-memory-usage-limit")))
    with FromFile(spec, file) as server:

        def are_known(client):
            for ours, value in values.items():
                for name in (f"bf.{ours}", f"bf.{theirs[ours]}"):
                    assert client.config_get(name) == {name: value}
            assert not [name for name in client.config_get("bf.*") if "bloom" in name]

        with server.client(decode_responses=True) as client:
            are_known(client)
            assert client.execute_command("BF.ADD", "k", "a") == 1
            assert client.execute_command("BF.INFO", "k", "CAPACITY") == [500]
            client.config_set("bf.bloom-fp-rate", "0.25")
            client.config_set("bf.initial-size", "100")  # the default
            values |= {"error-rate": "0.25", "initial-size": "100"}
            are_known(client)
            with pytest.raises(redis.ResponseError, match="bloom-fp-rate"):
                client.config_set("bf.bloom-fp-rate", "2")
            client.config_rewrite()
        server.restart()
        with server.client(decode_responses=True) as client:
            are_known(client)
