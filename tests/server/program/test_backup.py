"""`bloomery backup` saves the filters and sketches of a running server, `bloomery inspect` checks what was saved, and
`bloomery restore` brings it back: every value as it was, under every name.
"""

import contextlib
import hashlib
import json
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kit.filters import make_all
from kit.foreign import sealed
from kit.program import HANG_SECONDS, INTERRUPTED, MISSING, NO, PROGRAM, SERVER, USAGE, as_json, command, run
from kit.proxy import Proxy
from kit.servers import ROOT, wait_for

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)

HOUR = 3_600_000

# Names that a file can't have, or that would leave the folder, or look like another name.
HOSTILE = [
    b"line\nfeed", b"a/b", b"a_b", b"..", b"../../escape", b"nul\0", b"n" * 300, b"n" * 299, b"\xff\xfe raw", b"", b"\\x41", b"A",
    b"manifest.json", b"000001-A.bloom", b".hidden", b"'; rm *", "\u202ekey 鍵".encode(),
]  # fmt: skip


@pytest.fixture
def port(server):
    return server.port


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "backup"


@pytest.fixture
def backup(server, folder):
    """A small backup: `users` with an expiry, `stock`, which is a cuckoo filter, and the sketch `counts`."""
    with server.client() as client:
        client.execute_command("BF.ADD", "users", "ada")
        client.pexpire("users", HOUR)
        client.execute_command("CF.ADD", "stock", "bolt")
        client.execute_command("CMS.INITBYDIM", "counts", 100, 5)
    run("backup", folder, port=server.port)
    return folder


def digests(client) -> dict:
    """The value and the expiry of every key."""
    return {
        key: (client.type(key), client.pexpiretime(key), client.execute_command("DEBUG", "DIGEST-VALUE", key))
        for key in client.keys("*")
    }


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def file_of(folder: Path, key: str) -> Path:
    [name] = [saved["file"] for saved in manifest(folder)["keys"] if saved["key"] == key]
    return folder / name


def seal(folder: Path) -> None:
    """Corrects the checksums."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS")
    sums = (f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (folder / "SHA256SUMS").write_text("".join(sums))


# ---- there and back -------------------------------------------------------------------------------------------------


def test_every_value_and_every_name_comes_back(server, port, folder):
    with server.client() as client:
        make_all(client)
        for name in HOSTILE:
            client.execute_command("BF.ADD", name, b"in " + name)
        client.execute_command("CMS.INITBYDIM", "sketch:cms", 100, 5)
        client.execute_command("CMS.INCRBY", "sketch:cms", "ada", 7)
        client.execute_command("TOPK.RESERVE", "sketch:topk", 5)
        client.execute_command("TOPK.ADD", "sketch:topk", *"abcabca")
        client.execute_command("TDIGEST.CREATE", "sketch:tdigest")
        client.execute_command("TDIGEST.ADD", "sketch:tdigest", *range(50))
        client.execute_command("BF.RESERVE", "rebuilt", "0.01", 100)
        for key in ("fixed/full", "cuckoo/full", "sketch:topk"):
            client.pexpire(key, HOUR)
        before = digests(client)
        client.execute_command("BF.REBUILD", "rebuilt", "BEGIN")  # which isn't saved
        client.set("text", "not a filter")
        saved = as_json("backup", folder, port=port)
        assert saved["keys"] == len(before) and saved["failed"] == []
        assert [(skipped["type"], skipped["names"]) for skipped in saved["skipped"]] == [("string", ["text"])]
        assert not folder.with_name("backup.incomplete").exists()
        files = [path.name for path in folder.iterdir()]
        assert len(files) == len(before) + 2 and max(map(len, files)) < 60
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
        inspected = as_json("inspect", folder)
        assert len(inspected["filters"]) == len(before) and "problems" not in inspected
        client.flushall()
        restored = as_json("restore", folder, port=port)
        assert (restored["keys"], restored["expired"]) == (len(before), [])
        assert digests(client) == before


def test_the_manifest_says_what_there_is(server, port, backup):
    written = manifest(backup)
    assert written["format"] == 1 and written["match"] == "*" and written["began_ms"] <= written["ended_ms"]
    [origin] = written["servers"]
    assert origin["address"] == f"127.0.0.1:{port}" and origin["module"].startswith("bf ")
    assert origin["server"].split()[1] == server.info("server").get("valkey_version", server.info("server")["redis_version"])
    saved = {entry["key"]: entry for entry in written["keys"]}
    assert {key: (entry["type"], entry["items"]) for key, entry in saved.items()} == {
        "users": ("bloomery1", 1),
        "stock": ("bloomeryC", 1),
        "counts": ("CMSk-TYPE", None),
    }
    assert saved["users"]["expires_ms"] == server.command("PEXPIRETIME", "users")
    out, _ = run("inspect", backup)
    assert "; 3 keys" in out and "counts  count-min sketch" in out and "DAMAGED" not in out


def test_a_pattern_chooses_keys(server, port, backup, tmp_path):
    out, _ = run("backup", tmp_path / "chosen", "--match", "us*", port=port)
    assert "1 key, " in out and [entry["key"] for entry in manifest(tmp_path / "chosen")["keys"]] == ["users"]


def test_a_filter_of_any_size_needs_little_memory(server, port, folder):
    """The filter has 229 MiB, and the program may use 100 MiB."""

    def bounded(*words):
        limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (100 << 20, 100 << 20))  # noqa: E731
        run(*words, port=port, preexec_fn=limit)

    with server.client() as client:
        client.execute_command("BF.RESERVE", "large", "0.01", 200_000_000, "NONSCALING")
        client.execute_command("BF.ADD", "large", "ada")
        bounded("backup", folder)
        client.delete("large")
        bounded("restore", folder)
        assert client.execute_command("BF.MEXISTS", "large", "ada", "bob") == [1, 0]
        client.delete("large")


# ---- what changes or fails meanwhile ---------------------------------------------------------------------------------


def test_keys_that_go_or_never_hold_still(server, port, folder):
    """A key that is deleted before its turn is left out. One that is another filter at each piece isn't saved."""
    with server.client() as client, Proxy(port) as proxy:
        for key in ("gone", "restless", "users"):
            client.execute_command("BF.ADD", key, "ada")

        def change(words):
            if words == [b"BF.INFO", b"gone"]:
                client.delete("gone")
            if words[0] == b"BF.SCANDUMP" and words[1] == b"restless":
                client.delete("restless")
                client.execute_command("BF.ADD", "restless", "ada")
            return False

        proxy.after = change
        out, _ = run("backup", folder, port=proxy.port, status=NO)
    assert "restless: changed its shape during each of 5 attempts" in out and "1 key, " in out, out
    written = manifest(folder)
    assert ([entry["key"] for entry in written["keys"]], [entry["key"] for entry in written["failed"]]) == (["users"], ["restless"])
    out, _ = run("inspect", folder, status=NO)
    assert "DAMAGED restless: isn't in the backup: changed its shape" in out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, INTERRUPTED)])
def test_an_interrupted_backup_is_not_taken_for_one(server, port, folder, number, status):
    incomplete = folder.with_name("backup.incomplete")
    with server.client() as client, Proxy(port) as proxy:
        for name in ("a", "b", "c"):
            client.execute_command("BF.ADD", name, "ada")
        process = None

        def stop(words):
            if words[:2] == [b"BF.SCANDUMP", b"b"]:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
                if number == signal.SIGKILL:
                    return True
                status = Path(f"/proc/{process.pid}/status")
                wait_for(lambda: "ShdPnd:\t0000000000000000" in status.read_text(), "the program to take the signal")
            return False

        proxy.before = stop
        process = subprocess.Popen(command("backup", folder, port=proxy.port), stderr=subprocess.PIPE, text=True)
        _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == status, errors
    assert not folder.exists() and any(incomplete.iterdir())
    for words in (["inspect"], ["restore", "--port", port]):
        _, errors = run(words[0], incomplete, *words[1:], status=NO if words[0] == "inspect" else USAGE)
    assert "is not a complete backup" in errors
    (incomplete / "mine").write_text("")
    _, errors = run("backup", folder, port=port, status=USAGE)
    assert "has mine, which no backup wrote" in errors
    (incomplete / "mine").unlink()
    run("backup", folder, port=port)
    assert not incomplete.exists() and len(as_json("inspect", folder)["filters"]) == 3
    _, errors = run("backup", folder, port=port, status=USAGE)
    assert "exists; name a folder that doesn't exist" in errors


def test_two_backups_do_not_share_a_folder(server, port, folder):
    with server.client() as client, Proxy(port) as proxy:
        client.execute_command("BF.ADD", "users", "ada")
        refusals = []

        def meanwhile(words):
            if words[0] == b"BF.SCANDUMP" and not refusals:
                refusals.append(run("backup", folder, port=port, status=USAGE)[1])
            return False

        proxy.before = meanwhile
        run("backup", folder, port=proxy.port)
    assert "another backup writes into" in refusals[0]
    assert len(as_json("inspect", folder)["filters"]) == 1


# ---- damage ---------------------------------------------------------------------------------------------------------


def flip(path: Path, place: int = 60) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def edit(folder: Path, entry_of: str = "users", **fields) -> None:
    """Changes the manifest's entry of a key, under true checksums."""
    written = manifest(folder)
    next(entry for entry in written["keys"] if entry["key"] == entry_of).update(fields)
    (folder / "manifest.json").write_text(json.dumps(written))
    seal(folder)


def swap(folder: Path) -> None:
    """The file of `users` has the cuckoo filter, under true checksums."""
    shutil.copy(file_of(folder, "stock"), file_of(folder, "users"))
    edit(folder, bytes=file_of(folder, "stock").stat().st_size)


def cut_under_true_checksums(folder: Path) -> None:
    path = file_of(folder, "users")
    path.write_bytes(path.read_bytes()[:-8])
    edit(folder, bytes=path.stat().st_size)


def no_sum(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in lines if "users" not in line))


def later_version(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps({**manifest(folder), "format": 2}))
    seal(folder)


# What damages a backup, what inspect says, and whether a restore is refused.
DAMAGE = {
    "a flipped bit": (lambda folder: flip(file_of(folder, "users")), "-users.bloom is damaged", True),
    "a flipped bit of a sketch": (lambda folder: flip(file_of(folder, "counts")), "-counts.dump is damaged", True),
    "a cut file": (lambda folder: file_of(folder, "stock").write_bytes(b"BLMY"), "has 4 bytes, and should have", True),
    "a missing file": (lambda folder: file_of(folder, "users").unlink(), "-users.bloom is missing", True),
    "a damaged manifest": (lambda folder: flip(folder / "manifest.json"), "manifest.json is damaged", True),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "it has no manifest.json", True),
    "no checksums": (lambda folder: (folder / "SHA256SUMS").unlink(), "it has no SHA256SUMS", True),
    "a missing checksum": (no_sum, "SHA256SUMS has no checksum of ", True),
    "a file too many": (lambda folder: (folder / "x").write_text(""), "x is not in the manifest", False),
    "another filter": (swap, "has no value of type bloomery1", False),
    "a cut filter": (cut_under_true_checksums, "is not a complete filter", False),
    "another type": (lambda folder: edit(folder, type="CMSk-TYPE"), "has no value of type CMSk-TYPE", False),
    "an unknown type": (lambda folder: edit(folder, type="none"), "has no value of type none", True),
    "a file elsewhere": (lambda folder: edit(folder, file="../manifest.json"), "is not the name of a file", True),
    "no name of a key": (lambda folder: edit(folder, key="\\z"), "is not the name of a key", True),
    "a later version": (later_version, "its manifest has version 2; this program reads version 1", True),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(server, port, backup, damage):
    damaging, text, is_refused = DAMAGE[damage]
    damaging(backup)
    out, _ = run("inspect", backup, status=NO)
    line, *more = [line for line in out.splitlines() if line.startswith("DAMAGED")]
    # If the manifest names a file elsewhere, the file that it named before is unknown.
    assert text in line and len(more) == (damage == "a file elsewhere"), out
    server.command("FLUSHALL")
    if is_refused:
        run("restore", backup, port=port, status=USAGE)
        assert server.command("KEYS", "*") == []


@pytest.mark.parametrize(("damage", "status"), [("another filter", SERVER), ("a cut filter", USAGE), ("another type", SERVER)])
def test_what_is_only_noticed_on_the_way_leaves_no_key(server, port, backup, damage, status):
    """The checksums are true, so the restore begins."""
    DAMAGE[damage][0](backup)
    server.command("FLUSHALL")
    run("restore", backup, "users", port=port, status=status)
    assert server.command("KEYS", "*") == []


# ---- restore --------------------------------------------------------------------------------------------------------


def test_a_restore_replaces_only_when_told(server, port, backup):
    with server.client() as client:
        before = digests(client)
        client.delete("stock")
        client.execute_command("BF.ADD", "users", "bob")
        client.persist("users")
        changed = digests(client)
        _, errors = run("restore", backup, port=port, status=USAGE)
        assert "exists; use --replace to replace it" in errors and digests(client) == changed
        client.set("stock", "text")
        changed = digests(client)
        _, errors = run("restore", backup, "--replace", port=port, status=USAGE)
        assert "stock holds a string, not a filter" in errors and digests(client) == changed
        client.delete("stock", "counts")
        client.execute_command("TOPK.RESERVE", "counts", 5)
        changed = digests(client)
        _, errors = run("restore", backup, "--replace", port=port, status=USAGE)
        assert "counts holds a TopK-TYPE" in errors and digests(client) == changed
        client.delete("counts")
        out, _ = run("restore", backup, "--replace", port=port)
        assert "3 keys restored" in out and digests(client) == before
        client.expire("stock", 1000)
        client.execute_command("CMS.INCRBY", "counts", "ada", 1)
        run("restore", backup, "--replace", port=port)
        assert digests(client) == before


def test_keys_are_chosen_and_renamed(server, port, folder):
    with server.client() as client:
        for name in (b"users", b"\xff\n"):
            client.execute_command("BF.ADD", name, "ada")
        before = digests(client)
        run("backup", folder, port=port)
        client.flushall()
        run("restore", folder, r"\xff\x0a", port=port)
        assert digests(client) == {b"\xff\n": before[b"\xff\n"]}
        run("restore", folder, r"\xff\x0a", "--as", "copy", port=port)
        assert digests(client) == {key: before[b"\xff\n"] for key in (b"\xff\n", b"copy")}
        for words, text in [
            (["nobody"], "has no key nobody"),
            (["--as", "copy"], "--as is for one key"),
            (["users", r"\xff\x0a", "--as", "copy"], "--as is for one key"),
            (["users", "--as", "copy"], "copy exists; use --replace"),
        ]:
            _, errors = run("restore", folder, *words, port=port, status=USAGE)
            assert text in errors
        for missing in (folder / "nothing", folder / "manifest.json"):
            run("restore", missing, port=port, status=USAGE)
        assert len(client.keys("*")) == 2


def test_a_sketch_comes_from_a_server_with_another_version(server, port, backup):
    before = server.command("DEBUG", "DIGEST-VALUE", "counts")
    path = file_of(backup, "counts")
    path.write_bytes(sealed(path.read_bytes()[:-10], 1000))
    seal(backup)
    server.command("FLUSHALL")
    run("inspect", backup)
    run("restore", backup, port=port)
    assert server.command("DEBUG", "DIGEST-VALUE", "counts") == before


def test_a_key_that_has_expired_stays_out(server, port, backup):
    for key in ("users", "counts"):
        edit(backup, key, expires_ms=1_000_000_000_000)
    with server.client() as client:
        before = digests(client)
        report = as_json("restore", backup, "--replace", port=port)
        assert (report["keys"], report["expired"]) == (1, ["counts", "users"])
        assert digests(client) == before
        client.flushall()
        out, _ = run("restore", backup, port=port)
        assert "1 key restored" in out and "2 keys had expired" in out and client.keys("*") == [b"stock"]


def test_a_key_that_expires_during_its_upload_stays_out(server, port, backup):
    """The upload is complete when the key's time has come. On a slow machine, that is before the upload begins."""
    with server.client() as client, Proxy(port) as proxy:
        client.flushall()
        expires = int(time.time() * 1000) + 2000
        edit(backup, expires_ms=expires)

        def wait(words):
            if words[0] == b"EVAL" and b"users" in words:
                wait_for(lambda: time.time() * 1000 > expires + 10, "the key to expire")
            return False

        proxy.before = wait
        assert as_json("restore", backup, port=proxy.port)["expired"] == ["users"]
        assert sorted(client.keys("*")) == [b"counts", b"stock"]


def test_the_permissions_in_the_manual_are_enough(server, port, folder):
    page = " ".join((ROOT / "docs" / "CLI.md").read_text().split())
    of_push = re.search(r"A push needs (.*?)\. With", page)[1]
    of_backup, of_restore = re.search(r"A backup needs (.*?); with .*? A \[restore\]\S+ needs (.*?)\. ##", page).groups()

    def user(text):
        commands = sorted(f"+{name}" for name in set(re.findall(r"[A-Z.]{3,}", text)))
        server.command("ACL", "SETUSER", "saver", "reset", "on", "nopass", "~*", *commands)
        return {"BLOOMERY_USER": "saver", "BLOOMERY_PASSWORD": "none"}

    with server.client() as client:
        client.execute_command("BF.ADD", "users", "ada")
        client.execute_command("CF.ADD", "stock", "bolt")
        client.execute_command("CMS.INITBYDIM", "counts", 100, 5)
        for key in ("users", "stock", "counts"):
            client.pexpire(key, HOUR)
        before = digests(client)
        run("backup", folder, port=port, env=user(of_backup))
        assert manifest(folder)["servers"][0]["server"] is None
        client.flushall()
        run("restore", folder, port=port, env=user(of_push + of_restore))
        assert digests(client) == before


def test_wrong_arguments(port, tmp_path):
    for words, text in [
        (["backup", tmp_path / "no" / "folder"], "cannot write into"),
        (["backup", "/"], "has no name of its own"),
        (["backup", tmp_path], "exists; name a folder"),
        (["restore", tmp_path], "is not a complete backup: it has no SHA256SUMS"),
        (["restore", tmp_path / "no"], "is not a complete backup: there is no folder with SHA256SUMS"),
        (["restore", __file__], "is not a complete backup: there is no folder with SHA256SUMS"),
    ]:
        _, errors = run(*words, port=port, status=USAGE)
        assert text in errors, errors
    assert run("inspect", tmp_path, status=NO)[0].count("DAMAGED") == 1
    assert list(tmp_path.iterdir()) == []
