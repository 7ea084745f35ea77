"""The drawings in docs/DESIGN.md agree with the folders, the dependencies between the parts, and the crates."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs" / "DESIGN.md").read_text()
TREE, PARTS = re.findall(r"^```text\n(.*?)^```", DESIGN, flags=re.M | re.S)[:2]
PACKAGES = [".", *tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]]


def drawn():
    """Every folder that the tree has a line for."""
    above = []  # the folders that the line may be in, each with its indentation
    for line in TREE.splitlines():
        name = line.split()[0]
        indented = len(line) - len(line.lstrip())
        above = [(column, folder) for column, folder in above if column < indented]
        above.append((indented, (above[-1][1] if above else "") + name))
        yield above[-1][1]


def files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def test_the_tree_has_the_folders_and_nothing_else():
    """All folders of the packages' sources, and those directly in tests."""
    sources = tuple(str(Path(package) / "src") + "/" for package in PACKAGES)
    exist = {file[: slash.end()] for file in files() for slash in re.finditer("/", file)}
    wanted = {folder for folder in exist if folder.startswith(sources)}
    wanted |= {folder for folder in exist if re.fullmatch("tests/[^/]+/", folder)}
    packages = {f"{package}/" for package in PACKAGES if package != "."} | {"tests/"}
    assert set(drawn()) == wanted | packages


def test_the_packages_depend_on_each_other_as_drawn():
    drawn = {name: set(re.findall(r"\w+", parts)) for name, parts in re.findall(r"(?m)^(\w+) *→ (.*)$", PARTS)}
    names = {"bloomery": "library", "bloomery-commands": "commands", "bloomery-plan": "plan"}
    for package in PACKAGES[1:]:
        named = tomllib.loads((ROOT / package / "Cargo.toml").read_text())["dependencies"]
        assert drawn.pop(package) == {names[name] for name in named if name in names}
    assert not drawn


def test_unsafe_code_is_where_it_is_listed():
    """Each package denies it, so a file that has unsafe code must allow it."""
    roots = [ROOT / "src", ROOT / "commands/src", ROOT / "module/src"]
    assert all(re.search(r"#!\[deny\(\s*unsafe_code", (root / "lib.rs").read_text()) for root in roots)
    allow = {file for root in roots for file in root.rglob("*.rs") if "allow(unsafe_code" in file.read_text()}
    listed = re.findall(r"(?m)^\| `([\w/]+\.rs)` ", (ROOT / "docs/SAFETY.md").read_text())
    assert sorted(str(file.relative_to(ROOT)) for file in allow) == sorted(listed)


def crates(manifest):
    """The external crates that a manifest depends on, including those for tests."""
    package = tomllib.loads((ROOT / manifest).read_text())
    tables = [package, *package.get("target", {}).values()]
    for table in tables:
        for kind in ("dependencies", "dev-dependencies"):
            for name, said in table.get(kind, {}).items():
                if not (isinstance(said, dict) and "path" in said):
                    yield name


def test_every_crate_has_a_reason():
    section = DESIGN.split("\n## Dependencies\n")[1].split("\n## ")[0]
    rows = [
        {name.split()[0] for row in re.findall(r"(?m)^\| ([a-z][^|]*) \| ", part) for name in row.split(", ")}
        for part in section.split("The program's, ")
    ]
    library, program = ({*names} - {"crate"} for names in rows)
    assert library == {name for package in (".", "commands", "module") for name in crates(f"{package}/Cargo.toml")}
    assert program == {*crates("cli/Cargo.toml")}


# ---- other documents ------------------------------------------------------------------------------------------------

DOCUMENTS = [name for name in files() if name.endswith(".md") and name != "CHANGELOG.md"]
PATH = re.compile(r"`((?:src|cli|clients|commands|module|packaging|plan|tests|scripts|fuzz|bench|docs|examples|ops)/[\w./-]*)")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_in_documents_exist(document):
    named = PATH.findall((ROOT / document).read_text())
    assert not [path for path in named if not (ROOT / path.rstrip(".")).exists()]


def test_links_of_the_documents_at_the_root():
    for document in ("CONTRIBUTING.md", "scripts/README.md"):
        text = (ROOT / document).read_text()
        headings = {line.lower().replace(" ", "-").replace(".", "") for line in re.findall(r"(?m)^#+ (.+)$", text)}
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            assert ((ROOT / document).parent / file).exists(), target
            assert file or anchor in headings, target
