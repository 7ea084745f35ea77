"""The program `bloomery` against a cluster, over TLS, and over a socket."""

import subprocess

import pytest
from redis.crc import key_slot

from kit.certificates import certificates, tls
from kit.clusters import Cluster
from kit.program import DONE, MISSING, PROGRAM, SERVER, as_json, run
from kit.servers import free_port

EVERY_SERVER = pytest.mark.every_server("the server describes the cluster")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

NAMES = ["users", "{tag}:users", "orders", "carts", "seen", "stock"]


@pytest.fixture(scope="module")
def cluster(spec):
    with Cluster(spec) as cluster:
        yield cluster


@pytest.fixture
def of_cluster(cluster):
    """Options that name the cluster by one of its nodes."""
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
        state = ["--resume", tmp_path / f"{number}.state"]
        run("load", name, lines, "-n", "3000", *kind, *state, "--batch", "500", *of_cluster)
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


@pytest.mark.parametrize("is_exact", [False, True], ids=["", "counting, with an account"])
def test_a_load_follows_its_slot(cluster, of_cluster, tmp_path, is_exact):
    """The slot of the filter moves while it is filled: no item is missing, and none was added twice."""
    lines = tmp_path / "items.txt"
    lines.write_text("".join(f"{number}\n" for number in range(300_000)))
    words = ["load", "users", lines, "-n", "300k", "-e", "0.000001", "--batch", "200", "-q", *of_cluster]
    words += ["--counting=8", "--resume", tmp_path / "state"] if is_exact else []
    process = subprocess.Popen([str(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    slot = key_slot(b"users")
    moves = 0
    while process.poll() is None and moves < 3:
        cluster.move_slot(slot, cluster.other_primary(slot))
        moves += 1
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (DONE, "") and moves > 0
    assert as_json("test", "users", "--from", lines, "--count", *of_cluster)["no"] == 0
    if is_exact:
        owner = cluster.owner(slot)
        assert {owner.command("BF.COUNT", "users", number) for number in range(0, 300_000, 131)} == {1}


def test_without_cluster_the_other_node_is_named(cluster, of_cluster):
    name = next(name for name in NAMES if cluster.owner(key_slot(name.encode())) is not cluster.nodes[0])
    _, errors = run("test", name, "ada", *of_cluster[1:], status=SERVER)
    assert "MOVED" in errors


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
    # Nobody is trusted unasked, and without a certificate of its own the server refuses the client.
    _, errors = run("test", "users", "ada", "-p", port, "--tls", *own, status=SERVER)
    assert "certificate" in errors.lower()
    run("test", "users", "ada", "-p", port, "--cacert", ca, status=SERVER)
