"""Which servers the tests run against, and what is checked after every test.

A test with the fixture `server` gets an empty server. A test that needs servers of its own (other arguments, restarts,
replicas) uses `new_server`. After every test, each server that it used must still be alive and have nothing fatal in
its log, unless the test itself killed it.

Every test runs on the default server, redis-8.0, because most of what a command does is the module's own code, which is
the same on every server. Tests of features that also depend on the server have the mark `every_server`, with the
reason: persistence, replication, clusters, blocked clients, permissions, option names, reply formats. Each of them also
runs on one other server, which follows from its name, so that together they run on every server.

    --server NAME    every test, on this server (may be repeated)
    --all-servers    the tests with the mark on every server of the matrix
    -m quick         the modules in QUICK: every command, reply and option once, in a minute on one server
    -n 2             two workers, each with its own servers
"""

import zlib

import pytest

from kit.servers import MODULE, Server, ServerFailed, matrix

PRIMARY = "redis-8.0"
# The modules marked `quick`: 32 transcripts, recorded replies, the examples and options in the documents, permissions,
# clients, and damaged heads. On one server, they use half a minute of CPU time in total.
QUICK = ["test_transcripts", "test_redisbloom", "test_docs", "test_acl", "test_clients", "test_hostile"]


def pytest_addoption(parser):
    parser.addoption(
        "--server",
        action="append",
        metavar="NAME",
        help="run every test, against this server of the matrix only, as in --server redis-7.0 (may be repeated)",
    )
    parser.addoption("--all-servers", action="store_true", help="run tests that depend on the server against every server")


def chosen(config):
    """The servers of the matrix that `--server` names, or all of them without this option."""
    specs = matrix()
    names = config.getoption("--server") or [spec.name for spec in specs]
    if unknown := set(names) - {spec.name for spec in specs}:
        raise pytest.UsageError(
            f"no such server: {', '.join(unknown)}. There are: {', '.join(map(str, specs)) or 'none; run scripts/servers'}"
        )
    if not specs:
        raise pytest.UsageError("there are no servers to test against; run scripts/servers")
    return [spec for spec in specs if spec.name in names]


def servers_of(metafunc):
    """The servers that a test runs against."""
    specs = chosen(metafunc.config)
    if metafunc.config.getoption("--server"):
        return specs
    others = sorted(spec.name for spec in specs if spec.name != PRIMARY)
    if not metafunc.definition.get_closest_marker("every_server"):
        others = []
    elif others and not metafunc.config.getoption("--all-servers"):
        others = [others[zlib.crc32(metafunc.definition.name.encode()) % len(others)]]
    return [spec for spec in specs if spec.name in (PRIMARY, *others)]


def pytest_sessionstart(session):
    specs = chosen(session.config)  # complain before collecting anything
    if not session.config.getoption("--server") and PRIMARY not in map(str, specs):
        raise pytest.UsageError(f"{PRIMARY} is missing; run scripts/servers")
    if not MODULE.exists():
        raise pytest.UsageError(f"{MODULE} is missing; run cargo build --release")


def pytest_generate_tests(metafunc):
    if "spec" in metafunc.fixturenames:
        metafunc.parametrize("spec", servers_of(metafunc), ids=str, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks the tests of QUICK as quick. If tests share a server that a module fixture fills, sends them to one worker.
    """
    for item in items:
        if item.module.__name__ in QUICK:
            item.add_marker(pytest.mark.quick)
        definitions = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in definitions):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            item.add_marker(pytest.mark.xdist_group(f"{item.module.__name__} on {parameters.get('spec')}"))


@pytest.fixture(scope="session")
def spec(request):
    """The server of the matrix that the test runs against."""
    return request.param


@pytest.fixture(scope="session")
def shared_server(spec):
    """One server, shared by all tests that don't stop or reconfigure it. Tests use the fixture `server` instead."""
    with Server(spec) as server:
        yield server


@pytest.fixture
def server(shared_server):
    """A running server without keys."""
    if not shared_server.alive():  # an earlier test brought it down, and was reported as failed
        shared_server.start()
    shared_server.command("FLUSHALL", "SYNC")
    yield shared_server
    must_be_well(shared_server)
    if not shared_server.alive():
        pytest.fail(f"{shared_server} is gone; tests that stop their server take new_server", pytrace=False)


def must_be_well(server):
    failure = None
    try:
        server.check()
    except ServerFailed as raised:
        failure = str(raised)
    if failure:
        pytest.fail(failure, pytrace=False)


@pytest.fixture
def new_server(spec):
    """Makes servers that belong to this test: `new_server(config=…, module_args=…)`, with the arguments of
    `servers.Server`."""
    made = []

    def make(**options):
        made.append(Server(options.pop("spec", spec), **options))
        return made[-1]

    yield make
    try:
        for server in made:
            must_be_well(server)
    finally:
        for server in made:
            server.destroy()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the end of the server's log to the report of a failed test."""
    report = yield
    server = getattr(item, "funcargs", {}).get("server")
    if report.failed and report.when == "call" and isinstance(server, Server):
        report.sections.append((f"log of {server}", server.log_tail()))
    return report
