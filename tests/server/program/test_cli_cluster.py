"""The program `bloomery` with a cluster, over TLS, and over a Unix socket."""

import re
import subprocess

import pytest
from bloomery_redis import SpreadBloom
from redis.cluster import RedisCluster
from redis.crc import key_slot

from kit.certificates import certificates, tls
from kit.clusters import Cluster, own_slots, peers, set_slot, tag_in
from kit.monitoring import Exporter
from kit.program import DONE, MISSING, PROGRAM, SERVER, USAGE, as_json, run
from kit.proxy import Proxy
from kit.servers import ROOT, free_port, wait_for

EVERY_SERVER = pytest.mark.every_server("the server describes the cluster")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

NAMES = ["users", "{tag}:users", "orders", "carts", "seen", "stock"]


@pytest.fixture(scope="module")
def cluster(spec):
    with Cluster(spec) as cluster:
        yield cluster


@pytest.fixture
def of_cluster(cluster):
    """The options that connect to the cluster through one of its nodes."""
    for primary in cluster.primaries():
        primary.command("FLUSHALL", "SYNC")
    yield ["--cluster", "--url", f"redis://127.0.0.1:{cluster.nodes[0].port}"]
    cluster.check()


@EVERY_SERVER
def test_all_nodes_of_a_cluster(cluster, of_cluster, tmp_path):
    items = [f"user:{number}" for number in range(3000)]
    lines = tmp_path / "items.txt"
    lines.write_text("\n".join(items))
    assert len({cluster.owner(key_slot(name.encode())) for name in NAMES}) == 3
    for number, name in enumerate(NAMES):
        kind = (["-e", "1%"], ["-e", "1%", "--counting=8"], ["--cuckoo"])[number % 3]
        resume = ["--resume"] if number % 3 == 0 else []
        run("load", name, lines, "-n", "3000", *kind, *resume, "--batch", "500", *of_cluster)
        assert as_json("test", name, "--from", lines, "--count", *of_cluster)["no"] == 0
        file = tmp_path / f"{number}.bloom"
        run("pull", name, file, "--snapshot", *of_cluster)
        run("push", file, name, "--replace", *of_cluster)
        run("push", file, f"{{{name}}}:copy" if "{" not in name else f"{name}:copy", *of_cluster)
    watched = as_json("top", "--once", "-i", "0.1", *of_cluster)
    assert len(watched["servers"]) == 3
    assert len(watched["filters"]) == 2 * len(NAMES)
    keys = [key for primary in cluster.primaries() for key in primary.command("KEYS", "*")]
    assert len(keys) == 2 * len(NAMES), "something temporary was left behind"
    saved = as_json("backup", tmp_path / "backup", *of_cluster)
    assert (saved["keys"], saved["failed"]) == (2 * len(NAMES), [])
    run("inspect", tmp_path / "backup")
    for primary in cluster.primaries():
        primary.command("FLUSHALL", "SYNC")
    assert as_json("restore", tmp_path / "backup", *of_cluster)["keys"] == 2 * len(NAMES)
    _, said = run("backup", tmp_path / "node", *of_cluster[1:])
    assert "--cluster saves the other nodes' as well" in said
    assert all(as_json("test", name, "--from", lines, "--count", *of_cluster)["no"] == 0 for name in NAMES)


@EVERY_SERVER
def test_a_backup_while_slots_move(cluster, of_cluster, tmp_path):
    """A filter moves from the node that is searched last to the one that was searched first. While a slot is between
    two nodes, there is no backup."""
    slot = 16_383
    first, last = cluster.owner(0), cluster.owner(slot)
    keys = {tag_in(own_slots(first)), tag_in({slot})}
    with Proxy(first.port) as proxy, cluster.client() as client:
        for key in keys:
            client.execute_command("BF.ADD", key, "ada")

        def move(words):
            if words[:2] == [b"MEMORY", b"USAGE"] and cluster.owner(slot) is last:
                cluster.move_slot(slot, first)
            return False

        proxy.after = move
        first.command("CONFIG", "SET", "cluster-announce-port", proxy.port)
        try:
            by_proxy = ["--cluster", "--url", f"redis://127.0.0.1:{proxy.port}"]
            saved = as_json("backup", tmp_path / "backup", *by_proxy)
        finally:
            first.command("CONFIG", "SET", "cluster-announce-port", 0)
        assert cluster.owner(slot) is first
        assert {entry["key"] for entry in as_json("inspect", tmp_path / "backup")["filters"]} == keys
        assert (saved["keys"], saved["failed"]) == (2, [])
    address = f"127.0.0.1:{first.port}@"
    wait_for(lambda: peers(last)[cluster.id(first)].address.startswith(address), "the true port", 60)
    cluster.begin_move(slot, first, last)
    _, errors = run("backup", tmp_path / "none", *of_cluster, "--timeout", "1", status=SERVER)
    assert "slots of the cluster are moving" in errors and not (tmp_path / "none").exists()
    for node in (first, last):
        set_slot(node, slot, "STABLE")
    assert as_json("backup", tmp_path / "none", *of_cluster)["keys"] == 2


@EVERY_SERVER
def test_one_filter_in_parts(cluster, of_cluster, tmp_path):
    """The program and the Python package's SpreadBloom make the same filter, with the same keys and capacities. Each
    finds the items that the other added."""
    parts, count = 24, 20_000
    items = [f"user:{number}" for number in range(count)] + ["na\u00efve", "x" * 70_000]
    lines = tmp_path / "items.txt"
    lines.write_text("".join(f"{item}\n" for item in items))
    spread = ["--spread", parts, *of_cluster]
    _, errors = run("load", "users", lines, *spread, status=USAGE)
    assert f"{parts} of the {parts} parts of users are missing" in errors
    out, _ = run("load", "users", lines, "-n", "30k", "-e", "0.001", *spread)
    assert re.match(r"users: 20,002 items in, (19,9\d\d|20,00\d) of them new", out), out
    with RedisCluster("127.0.0.1", cluster.nodes[0].port) as client:
        theirs = SpreadBloom(client, "users", parts)
        assert theirs.missing() == [] and all(theirs.contains_many(items))
        stats = theirs.stats()
        ours = as_json("stats", "users", *spread)
        assert ours["missing"] == [] and ours["parts"] == parts
        for name in ("capacity", "size", "fullest"):
            assert ours[name] == stats[name]
        assert ours["items"] == stats["number_of_items_inserted"]
        other = SpreadBloom(client, "others", parts).reserve(0.001, 30_000)
        assert other.stats()["capacity"] == ours["capacity"]
        # There are parts on all nodes.
        assert len({cluster.owner(key_slot(key.encode())) for key in theirs.keys}) == 3
        theirs.add("from Python")
        assert run("test", "users", "from Python", *spread)[0] == "yes from Python\n"
        # If the same load runs again with one more item, only this item is added.
        lines.write_text(lines.read_text() + "one more\n")
        out, errors = run("load", "users", lines, "-n", "30k", "-e", "0.001", *spread)
        assert "20,003 items in, 1 of them new" in out and "users exists already" in errors
        strangers = tmp_path / "strangers.txt"
        strangers.write_text("".join(f"stranger:{number}\n" for number in range(10_000)))
        found, _ = run("test", "users", "--from", strangers, *spread)
        answers = theirs.contains_many([f"stranger:{number}" for number in range(10_000)])
        assert [line[:3] == "yes" for line in found.splitlines()] == answers
        # Reports name a missing part, and a load creates it again.
        client.delete(theirs.keys[5])
        assert as_json("stats", "users", *spread)["missing"] == [theirs.keys[5]]
        out, _ = run("stats", "users", *spread)
        assert out.startswith(f"! the part {theirs.keys[5]} is missing")
        _, errors = run("test", "users", "ada", *spread, status=USAGE)
        assert theirs.keys[5] in errors
        _, errors = run("load", "users", lines, "-n", "30k", "-e", "0.001", *spread)
        assert f"1 of the {parts} parts of users are missing, with the items that they had" in errors
        assert all(theirs.contains_many(items))
        # If a part refuses items, the load says so.
        full = SpreadBloom(client, "full", 3).reserve(0.01, 30, nonscaling=True)
        _, errors = run("load", "full", lines, "--spread", 3, *of_cluster, status=SERVER)
        assert re.match(r"bloomery: part \{full:\d/3:\d+\}: ERR non scaling filter is full", errors), errors
        assert full.missing() == []
    for words, why in [
        (["load", "{users}", lines], "cannot be empty or have braces"),
        (["load", "new", lines, "-n", "100", "--cuckoo"], "for Bloom filters without counters"),
        (["load", "new", lines, "-n", "100", "-e", "1%", "--counting"], "for Bloom filters without counters"),
    ]:
        _, errors = run(*words, *spread, status=USAGE)
        assert why in errors


def test_a_filter_in_parts_is_built_without_a_server(cluster, of_cluster, tmp_path):
    """The parts are the same as those that `load --spread` makes: the same items in each part, and the same capacities.
    """
    parts = 12
    lines, file = tmp_path / "items.txt", tmp_path / "built.bloom"
    lines.write_text("".join(f"user:{number}\n" for number in range(5000)))
    options = ["-n", "8k", "-e", "0.01%", "--seed", "2a", "--spread", parts]
    built = as_json("build", file, lines, *options)
    assert (built["parts"], built["items_read"]) == (parts, 5000) and 4990 < built["items_added"] <= 5000
    names = {f"built.bloom.{part}-of-{parts}" for part in range(parts)}
    assert {path.name for path in tmp_path.iterdir()} == {"items.txt", *names}
    _, errors = run("build", file, lines, *options, status=USAGE)
    assert "built.bloom.0-of-12 exists" in errors
    assert run("build", file, lines, *options, "--replace")[0].endswith(" in 12 files\n")
    spread = ["--spread", parts, *of_cluster]
    run("load", "loaded", lines, "-n", "8k", "-e", "0.01%", "--seed", "2a", *spread)
    pushed = as_json("push", file, "built", *spread)
    assert (pushed["parts"], pushed["replaced"]) == (parts, False)
    assert as_json("stats", "built", *spread) == as_json("stats", "loaded", *spread)
    assert as_json("test", "built", "--from", lines, "--count", *spread)["no"] == 0
    with RedisCluster("127.0.0.1", cluster.nodes[0].port) as client:
        keys = [SpreadBloom(client, name, parts).keys for name in ("built", "loaded")]
        assert all(client.dump(one) == client.dump(other) for one, other in zip(*keys))
    _, errors = run("push", file, "built", *spread, status=USAGE)
    assert "exists; use --replace" in errors
    assert run("push", file, "built", "--replace", *spread)[0].startswith("built: replaced with ")
    # Nothing is sent if one of the files is missing.
    (tmp_path / "built.bloom.7-of-12").unlink()
    _, errors = run("push", file, "new", *spread, status=USAGE)
    assert "built.bloom.7-of-12" in errors
    assert len(as_json("stats", "built", *spread)["missing"]) == 0
    run("stats", "new", *spread, status=USAGE)
    for words, why in [
        (["--static", "-e", "1%"], None),
        (["--cuckoo", "-n", "100"], "for Bloom filters without counters"),
        (["--counting", "-n", "100", "-e", "1%"], "for Bloom filters without counters"),
    ]:
        _, errors = run("build", tmp_path / words[0].strip("-"), lines, *words, "--spread", 3, status=USAGE if why else DONE)
        assert why is None or why in errors
    run("push", tmp_path / "static", "static", "--spread", 3, *of_cluster)
    assert as_json("test", "static", "--from", lines, "--count", "--spread", 3, *of_cluster)["no"] == 0


@pytest.mark.parametrize("resume", [[], ["--resume"]], ids=["", "with a bookmark"])
def test_a_load_follows_its_slot(cluster, of_cluster, tmp_path, resume):
    """The filter's slot moves while the filter is being filled. No item is missing, and the bookmark moves along."""
    lines = tmp_path / "items.txt"
    lines.write_text("".join(f"{number}\n" for number in range(300_000)))
    words = ["load", "users", lines, "-n", "300k", "-e", "0.000001", "--batch", "200", "-q", *resume, *of_cluster]
    process = subprocess.Popen([str(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    slot = key_slot(b"users")
    moves = 0
    while process.poll() is None and moves < 3:
        cluster.move_slot(slot, cluster.other_primary(slot))
        moves += 1
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (DONE, "") and moves > 0
    assert as_json("test", "users", "--from", lines, "--count", *of_cluster)["no"] == 0
    assert cluster.owner(slot).command("KEYS", "*") == [b"users"]


@EVERY_SERVER
def test_databases_of_a_cluster(spec, tmp_path):
    """Since Valkey 9, a cluster can have several databases. Which ones there are is for the server to say."""
    has_databases = spec.product == "valkey" and spec.version >= (9,)
    with Cluster(spec, config={"cluster-databases": 4} if has_databases else {}) as cluster:
        address = ["--cluster", "--url", f"redis://127.0.0.1:{cluster.nodes[0].port}"]
        lines = tmp_path / "items.txt"
        lines.write_text("".join(f"{number}\n" for number in range(1000)))
        words = ["load", "users", lines, "-n", "1000", "-e", "1%", "--spread", 12, *address]
        for database in (0, 3, 4):
            if database < (4 if has_databases else 1):
                run(*words, "--db", database)
                assert as_json("test", "users", "--from", lines, "--count", "--spread", 12, *address, "--db", database)["no"] == 0
                # The keys are on all nodes, and only in the databases so far.
                filters = as_json("top", "--once", "-i", "0.1", *address, "--db", database)["filters"]
                assert (len(filters), len({row["server"] for row in filters})) == (12, 3)
                with Exporter("--cluster", "--url", address[2], "--db", database) as exporter:
                    exporter.wait_for_filters(12)
            else:
                errors = run(*words, "--db", database, status=SERVER)[1]
                why = "DB index is out of range" if has_databases else "SELECT is not allowed in cluster mode"
                assert f"cannot connect to 127.0.0.1:{cluster.nodes[0].port}: ERR {why}" in errors


def test_without_cluster_the_other_node_is_named(cluster, of_cluster):
    name = next(name for name in NAMES if cluster.owner(key_slot(name.encode())) is not cluster.nodes[0])
    _, errors = run("test", name, "ada", *of_cluster[1:], status=SERVER)
    owner = cluster.owner(key_slot(name.encode()))
    here = f"127.0.0.1:{cluster.nodes[0].port}"
    assert re.search(rf"MOVED \d+ 127.0.0.1:{owner.port}: {here} is a node of a cluster; use --cluster", errors), errors


# ---- other ways to a server -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("tls"))


def test_tls(new_server, authority, tmp_path):
    port = free_port()
    ca = authority / "ca.pem"
    server = new_server(config={**tls(authority, port), "unixsocket": str(tmp_path / "socket")})
    server.command("BF.ADD", "users", "ada")
    own = ["--cert", authority / "client.pem", "--key", authority / "client.key"]
    for words in (
        ["--url", f"rediss://127.0.0.1:{port}", "--cacert", ca, *own],
        ["-p", port, "--tls", "--cacert", ca, *own],
        ["--url", f"unix://{tmp_path / 'socket'}"],
    ):
        assert run("test", "users", "ada", *words)[0] == "yes ada\n"
        assert [row["key"] for row in as_json("top", "--once", "-i", "0.1", *words)["filters"]] == ["users"]
    # By default, the program doesn't trust the server's certificate. The server refuses clients without a certificate.
    _, errors = run("test", "users", "ada", "-p", port, "--tls", *own, status=SERVER)
    assert "certificate" in errors.lower()
    run("test", "users", "ada", "-p", port, "--cacert", ca, status=SERVER)


def test_a_certificate_that_signed_itself(new_server, tmp_path):
    """openssl makes a CA's certificate, which the program refuses for a server, unless it gets the guide's option."""
    guide = (ROOT / "docs/guides/troubleshooting.md").read_text()
    ((refusal, extension),) = re.findall(r"^\| `(invalid peer .*?)` .*`-addext (\S+)`", guide, flags=re.MULTILINE)
    for name, options, status in [("ca", [], SERVER), ("no-ca", ["-addext", extension], DONE)]:
        certificate, key, port = tmp_path / f"{name}.pem", tmp_path / f"{name}.key", free_port()
        words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate]
        words += ["-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", *options]
        subprocess.run(["openssl", "req", "-x509", *words], check=True, capture_output=True)
        paths = {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": certificate}
        server = new_server(config={"tls-port": port, "tls-auth-clients": "no", **paths})
        server.command("BF.ADD", "users", "ada")
        _, errors = run("test", "users", "ada", "-p", port, "--cacert", certificate, status=status)
        assert (refusal in errors) == (status == SERVER)
