"""The module's and the program's dependencies have the licences and the source that deny.toml allows. cargo-deny, which
`scripts/deny` runs, checks more: advisories, and the other workspaces."""

import re
import subprocess
import tomllib

from kit.servers import ROOT

RULES = tomllib.loads((ROOT / "deny.toml").read_text())
ALLOWED = set(RULES["licenses"]["allow"])


def is_allowed(licence: str) -> bool:
    """Evaluates an expression of SPDX, such as `(MIT OR Apache-2.0) AND Zlib`. Exceptions (WITH) aren't known."""

    def word(found: re.Match) -> str:
        return found[0].lower() if found[0] in ("AND", "OR") else str(found[0] in ALLOWED)

    return eval(re.sub(r"[\w.+-]+", word, re.sub(r"([\w.-]+) WITH [\w.-]+", "unknown", licence.replace("/", " OR "))))


def test_expressions():
    assert is_allowed("MIT/Apache-2.0") and is_allowed("GPL-3.0 OR MIT") and is_allowed("(MIT OR X) AND Zlib")
    assert not is_allowed("GPL-3.0") and not is_allowed("MIT AND GPL-3.0") and not is_allowed("MIT WITH X")


def test_licences():
    command = ["cargo", "tree", "--locked", "--workspace", "--all-features", "--target=all", "--edges=normal,build"]
    command += ["--prefix=none", "--format={p}\t{l}"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    packages = dict(line.removesuffix(" (*)").split("\t") for line in lines if line)
    assert len(packages) > 50
    wrong = {package: licence for package, licence in packages.items() if not is_allowed(licence)}
    assert not wrong, "deny.toml doesn't allow these licences"


def test_sources():
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sources = {package["source"] for package in packages if "source" in package}
    assert sources == {"registry+https://github.com/rust-lang/crates.io-index"}
