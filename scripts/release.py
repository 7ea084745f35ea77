"""The parts of scripts/release that aren't shell: the licences, the trial in real servers, and who publishes.

`release.py publisher` copies the values of the publisher, in Cargo.toml, to all files that have them. `release.py
stand-ins` prints those that are still to be decided."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TEXT = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)

# Packages that come without a licence text, each with the package that has the text.
ELSEWHERE = {"redis-module-common": "redis-module"}

RULE = "-" * 80


def linked(source: Path, target: str, package: str, *features: str) -> list[dict]:
    """The packages from outside the workspace whose code is in what `package` builds, sorted by name. Packages that
    only run at build time are left out."""
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={target}", *features],
            cwd=source / package,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

    def is_macro(package: dict) -> bool:
        return any("proc-macro" in target["kind"] for target in package["targets"])

    root = metadata["resolve"]["root"]
    seen, waiting = set(), [root]
    while waiting:
        identity = waiting.pop()
        if identity in seen or is_macro(packages[identity]):
            continue
        seen.add(identity)
        for dependency in nodes[identity]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    others = seen.difference(metadata["workspace_members"])
    return sorted((packages[identity] for identity in others), key=lambda p: (p["name"], p["version"]))


def texts(package: dict, others: dict[str, dict]) -> list[tuple[str, str]]:
    """The names and the contents of the files that state a package's licence."""
    folder = Path(package["manifest_path"]).parent
    found = [file for file in sorted(folder.iterdir()) if file.is_file() and TEXT.match(file.name)]
    if not found and (other := ELSEWHERE.get(package["name"])):
        return texts(others[other], others)
    if not found and "MIT" in re.split(r" OR |/", package["license"]):
        # The licence requires a copy of its text, which is always the same, and the name of the copyright holder.
        ours = (ROOT / "LICENSE-MIT").read_text()
        holder = f"Copyright (c) {', '.join(package['authors']) or 'the authors of ' + package['name']}\n"
        return [("MIT", re.sub(r"(?m)^Copyright .*\n", lambda _: holder, ours, count=1))]
    if not found:
        sys.exit(f"{package['name']} {package['version']} comes without the text of its licence")
    return [(file.name, file.read_text(errors="replace")) for file in found]


def licences(source: Path, target: str) -> None:
    """Prints the licences of all packages that are linked into the module or into the program."""
    module = {package["id"]: package for package in linked(source, target, "module")}
    program = {package["id"]: package for package in linked(source, target, "cli")}
    packages = sorted((module | program).values(), key=lambda package: (package["name"], package["version"]))
    others = {package["name"]: package for package in packages}
    print(
        "Code of these packages is in the module libbloomery.so (m) or in the program bloomery (p), and of Rust's standard"
        "\nlibrary, whose licences are in RUST-LIBRARY-LICENSES.html.\n"
    )
    for package in packages:
        where = "m" * (package["id"] in module) + "p" * (package["id"] in program)
        print(f"{where:2} {package['name']} {package['version']}: {package['license']}")
    for package in packages:
        print(f"\n{RULE}\n{package['name']} {package['version']}: {package['license']}\n{package['repository']}\n{RULE}")
        for name, text in texts(package, others):
            print(f"\n[{name}]\n\n{text.strip()}")


def smoke(program: Path) -> None:
    """Loads the module that BLOOMERY_MODULE names into every server of the matrix, adds items with commands and with
    the program, kills and restarts the server, and checks that the items are still there.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from kit.servers import Server, matrix

    for spec in matrix():
        with Server(spec, config={"appendonly": "yes", "appendfsync": "always"}) as server:
            for family in ("BF", "CF"):
                assert server.command(f"{family}.ADD", family, "ada") == 1
            load = [program, "load", "BF", "--port", str(server.port)]
            subprocess.run(load, input=b"grace\n", stdout=subprocess.DEVNULL, check=True)
            server.restart(kill=True)
            for family in ("BF", "CF"):
                assert server.command(f"{family}.EXISTS", family, "ada") == 1
            assert server.command("BF.EXISTS", "BF", "grace") == 1
            server.check()
            print(f"loaded in {spec} ({'.'.join(map(str, spec.version))}): items added, and there after a restart")


def publisher() -> dict[str, str]:
    """The publisher's values in Cargo.toml, with the address of the repository and the version."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    return {key: workspace["package"][key] for key in ("repository", "version")} | workspace["metadata"]["publisher"]


def places() -> Iterator[tuple[str, re.Pattern, str]]:
    """Where the publisher's values stand: the files, as Git names them, the pattern of a value, and the value."""
    ours = publisher()
    _, _, address = ours["maintainer"].partition("<")
    yield ".", re.compile(r"https?://[^\s\"'`(<>]+(?=/blob/main/)"), ours["repository"]
    yield "clients/python/pyproject.toml", re.compile(r'(?<=^Repository = ")[^"]*', re.MULTILINE), ours["repository"]
    yield "clients/javascript/package.json", re.compile(r'(?<="repository": ")[^"]*'), ours["repository"]
    yield "docs/CODE_OF_CONDUCT.md", re.compile(r"(?<=<)\S+@\S+(?=>)"), address.rstrip(">")
    yield "SECURITY.md", re.compile(r"(?<=<)\S+@\S+(?=>)"), ours["security"]
    for target in "init", "redis", "valkey":
        image = f"{ours['images']}:{target}-{ours['version']}"
        yield "packaging/kubernetes", re.compile(rf"(?<=image: )\S+:{target}-\S+"), image


def tracked(files: str) -> dict[Path, str]:
    """The text files that Git has under this name, with their contents. Some fixtures aren't UTF-8."""
    listed = subprocess.check_output(["git", "grep", "-Il", "", "--", files], cwd=ROOT, text=True)
    return {ROOT / name: (ROOT / name).read_text(errors="surrogateescape") for name in listed.splitlines()}


def publish() -> None:
    """Writes the publisher's values to where they stand."""
    for files, pattern, value in places():
        for file, text in tracked(files).items():
            if (new := pattern.sub(lambda _, value=value: value, text)) != text:
                file.write_text(new)


def stand_ins() -> list[str]:
    """The publisher's values that are still to be decided."""
    return [f'{name} = "{value}"' for name, value in publisher().items() if "example.org" in value]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["licences", source, target]:
            licences(Path(source), target)
        case ["smoke", program]:
            smoke(Path(program))
        case ["publisher"]:
            publish()
        case ["stand-ins"]:
            print(", ".join(stand_ins()))
        case _:
            sys.exit(__doc__)
