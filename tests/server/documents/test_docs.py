"""The documentation, checked against real servers: every example runs, and every command and option is
documented. tests/commands/refusals.rs checks the tables of errors.

kit/documents.py defines what an example is, and fills in real replies. test_console.py runs the documents' shell
sessions.
"""

import json
import re

import pytest

from kit.documents import COMMANDS, COMPATIBILITY, CONFIGURATION, PAGES, README, WITH_EXAMPLES, sessions, with_facts
from kit.servers import ROOT

EVERY_SERVER = pytest.mark.every_server("the server gives options their names")


@pytest.mark.parametrize(
    "session",
    [session for path in WITH_EXAMPLES for session in sessions(path)],
    ids=lambda session: f"{session[0].path.name}:{session[0].first}",
)
def test_example(server, session):
    for example in session:
        assert example.exchanges, f"{example}:{example.first} holds no command"
        if wrong := example.mismatches(example.run(server), server.spec.name):
            pytest.fail(wrong, pytrace=False)


# ---- commands -------------------------------------------------------------------------------------------------------


def registered(server):
    """The names of the module's commands, from the server."""
    with server.client(decode_responses=True) as client:
        return {name.upper() for name in client.execute_command("COMMAND LIST", "FILTERBY", "MODULE", "bf")}


def test_every_command_has_a_page_and_a_row(server):
    commands = registered(server)
    rows = set(re.findall(r"^\| \[`([A-Z]+\.\w+)", (COMMANDS / "README.md").read_text(), flags=re.M))
    assert set(PAGES) == commands
    assert rows == commands
    assert all(page.text.startswith(f"{page.heading}\n") and page.heading.endswith(f" {name}") for name, page in PAGES.items())


def reply_as_map(reply):
    """Converts a flat array of RESP2 into the map that it represents."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def tokens(arguments):
    """Every literal word that COMMAND DOCS lists."""
    for argument in map(reply_as_map, arguments):
        if "token" in argument:
            yield argument["token"]
        yield from tokens(argument.get("arguments", []))


def named(arguments):
    """The token and the name of every argument in COMMAND DOCS that has both."""
    for argument in map(reply_as_map, arguments):
        if "token" in argument and argument["type"] not in ("pure-token", "oneof", "block"):
            yield argument["token"], argument["name"]
        yield from named(argument.get("arguments", []))


# The options of a filter that in COMMAND DOCS, as in RedisBloom's, have arguments with the option's own name.
OF_A_FILTER = {"ERROR", "TIGHTENING", "TTL", "STEPS", "SHARDS", "SEED", "BUCKETSIZE", "MAXITERATIONS"}


def test_every_page_says_what_the_server_is_told(server):
    with server.client(decode_responses=True) as client:
        for name, page in PAGES.items():
            text = page.text
            assert text == with_facts(client, name, text), f"{page}: see kit/documents.py"
            assert page.is_redisblooms == ("| since | RedisBloom" in text), f"{page}: whose command is it?"
            _, docs = client.execute_command("COMMAND DOCS", name)
            docs = reply_as_map(docs)
            syntax = text.split("```")[1]
            words = set(re.findall(r"[A-Z0-9]+", syntax))
            told = set(tokens(docs.get("arguments", [])))
            assert not told - words, f"{name}: COMMAND DOCS has {told - words}, the syntax has not"
            for token, argument in named(docs.get("arguments", [])):
                said = {word.replace("-", "_") for word in re.findall(rf"\b{token} ([a-z_-]+)", syntax)}
                assert argument in said or token in OF_A_FILTER, f"{name}: COMMAND DOCS says {token} {argument}, not {said}"
            layouts = set(re.findall(r"[A-Z]+", "".join(re.findall(r"LAYOUT[A-Z |]+", syntax))))
            assert not layouts - told, f"{name}: COMMAND DOCS lacks {layouts - told}"
            complexity = docs["complexity"].split(",")[0]
            assert f"| complexity | {complexity}" in text, f"{name}: COMMAND DOCS says {complexity}"


# ---- options --------------------------------------------------------------------------------------------------------

OPTION = re.compile(r"# (bf\.[a-z-]+|[bc]f-[a-z-]+) (\S+)")
ARGUMENT = re.compile(r"# Load argument ([A-Z_]+)\.")
SETTING = re.compile(r"(?:# )?([a-z][a-z-]+(?:-[a-z]+)*) ([A-Za-z0-9 ]+)")


def options(names):
    """The options in the example configuration whose names match this pattern, with their defaults."""
    rows = (OPTION.fullmatch(line) for line in CONFIGURATION.read_text().splitlines())
    return {row[1]: row[2] for row in rows if row and re.match(names, row[1])}


PREFIXED, OWN_NAMES = r"bf\.", r"[bc]f-"  # OWN_NAMES on Redis 8, which lets a module choose its options' names


def known_options(server):
    """The module's options and their values on this server, and the pattern of their names."""
    with server.client(decode_responses=True) as client:
        known = client.config_get("[bc]f[-.]*")
    return known, PREFIXED if any("." in name for name in known) else OWN_NAMES


@EVERY_SERVER
def test_every_option_is_in_the_example_configuration(server):
    known, names = known_options(server)
    assert options(names) == known
    assert {name.removeprefix("bf.") for name in options(PREFIXED)} == {
        name.removeprefix("bf-") for name in options(OWN_NAMES)
    }


def another_value(name):
    """A value for the option that isn't its default."""
    for part, value in (("rate", "0.4"), ("bucket", "3"), ("pages", "yes"), ("create", "no"), ("per", "5000"), ("tenants", "t 1 2")):
        if part in name.lower():
            return value
    return "8"


@EVERY_SERVER
def test_every_option_is_a_load_argument(new_server):
    """On any server, load arguments can be in capitals, as in the example configuration, or have their CONFIG names."""
    known, _ = known_options(new_server())
    words = [match[1] for match in map(ARGUMENT.match, CONFIGURATION.read_text().splitlines()) if match]
    bare = [name.removeprefix("bf.") for name in options(PREFIXED)]
    for spelled in (words, bare, options(OWN_NAMES)):
        assert len(spelled) == len(known)
        server = new_server(module_args=[word for name in spelled for word in (name, another_value(name))])
        assert known_options(server)[0] == {name: another_value(name) for name in known}


@EVERY_SERVER
def test_the_example_configuration_is_accepted_whole(new_server):
    """The server accepts all settings, including commented-out ones, with this server's option names."""
    probe = new_server()
    with probe.client(decode_responses=True) as client:
        known = client.config_get("*")
    settings = {}
    for line in CONFIGURATION.read_text().splitlines():
        row = SETTING.fullmatch(line)
        if row and row[1] in known:
            settings[row[1]] = row[2].split()
        elif not line.startswith("#") and line.strip():
            assert line == "loadmodule ./target/release/libbloomery.so"
    assert len(settings) >= 10, f"only {', '.join(settings)} were recognized"
    _, names = known_options(probe)
    server = new_server(config={**settings, **options(names), "save": ""})
    assert server.command("BF.ADD", "seen", "ada") == 1
    assert server.command("CF.ADD", "kept", "ada") == 1


# ---- compatibility --------------------------------------------------------------------------------------------------

VERDICT = re.compile(r"^\| \[`([BC]F\.\w+)`\]\(commands/[bc]f\.\w+\.md\) \| (\w+) \| (.*)\|$", flags=re.M)


def test_every_command_of_redisbloom_has_a_verdict():
    rows = VERDICT.findall(COMPATIBILITY.read_text())
    verdicts = {name: verdict for name, verdict, _ in rows}
    recorded = json.loads((ROOT / "tests" / "fixtures" / "redisbloom" / "command-info.json").read_text())
    assert set(verdicts) == {name.upper() for name in recorded}
    assert set(verdicts.values()) == {"same", "better", "differs"}
    assert not [name for name, verdict, how in rows if verdict != "same" and not how.strip()]
    assert set(verdicts) == {name for name, page in PAGES.items() if page.is_redisblooms and name[1] == "F"}


# ---- links ----------------------------------------------------------------------------------------------------------

DOCUMENTS = sorted(
    [README, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *(ROOT / "clients").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    def anchors(document):
        headings = re.findall(r"^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", document.read_text()), flags=re.M)
        return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```", "", path.read_text())):
        if target.startswith(("http:", "https:")):
            continue
        file, _, anchor = target.partition("#")
        document = (path.parent / file) if file else path
        assert document.exists(), f"{path.name}: {target}"
        assert not anchor or anchor in anchors(document), f"{path.name}: {target}"


def test_tests_that_security_rests_on_exist():
    """The last table in SECURITY.md names the tests for each rule, and the planted bugs that make these tests fail."""
    rows = re.findall(r"^\| .* \| .* \| (.*) \| (.*) \|$", (ROOT / "SECURITY.md").read_text(), flags=re.M)
    rows = rows[2:]  # without the table's header
    assert rows
    files = [path for path in (ROOT / "tests").rglob("*") if path.suffix in (".rs", ".py")]
    tests = "".join(path.read_text() for path in files)
    for named, planted in rows:
        for name in re.findall(r"`([^`]+)`", named):
            script, _, suite = name.partition(" ")
            file_exists = (ROOT / script).exists() if "/" in script else script in {path.name for path in files}
            assert file_exists or f" {name}(" in tests, f"there is no {name}"
            assert not suite or (ROOT / "tests" / "suites" / f"{suite}.py").exists(), f"there is no {name}"
        bugs = re.findall(r"`([^`]+)`", planted)
        assert bugs, planted
        for bug in bugs:
            assert (ROOT / "tests" / "seeded-bugs" / f"{bug}.patch").exists(), f"there is no planted bug {bug}"
