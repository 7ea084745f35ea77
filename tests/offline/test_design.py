"""The drawings in docs/DESIGN.md agree with the tree, the dependencies between its parts, and the crates."""

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs" / "DESIGN.md").read_text()
TREE, PARTS = re.findall(r"^```text\n(.*?)^```", DESIGN, flags=re.M | re.S)[:2]
LAYERS = runpy.run_path(str(ROOT / "scripts" / "layers"))

NAME = re.compile(r"[\w.-]+/?")


def drawn():
    """Every path in the drawing of the tree, with the text of its line. Folders end with a slash."""
    above = []  # the folders that the line may be in, each with its indentation
    for line in TREE.splitlines():
        names = re.split(r" {2,}", line.strip())[0].split(", ")
        indented = len(line) - len(line.lstrip())
        above = [(column, folder) for column, folder in above if column < indented]
        inside = above[-1][1] if above else ""
        for name in names:
            assert NAME.fullmatch(name), f"docs/DESIGN.md: this isn't a name: {name}"
            yield inside + name, line
        if len(names) == 1 and names[0].endswith("/"):
            above.append((indented, inside + names[0]))


def files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


@pytest.fixture(scope="module")
def tree():
    return dict(drawn())


def test_what_is_drawn_exists(tree):
    every = files()
    folders = {file[: slash.end()] for file in every for slash in re.finditer("/", file)}
    assert not tree.keys() - folders - set(every)


def test_what_exists_is_drawn(tree):
    """A folder stands for its files, unless some of them are drawn."""
    opened = {parent for name in tree for parent in [name[: name.rstrip("/").rfind("/") + 1]] if parent}
    whole = tuple(name for name in tree if name.endswith("/") and name not in opened)
    top = tuple(name for name in tree if name.count("/") == 1 and name.endswith("/"))
    missing = [f for f in files() if f.startswith(top) and f not in tree and not f.startswith(whole)]
    assert not missing


def test_files_with_unsafe_code_are_marked(tree):
    assert sorted(name for name, line in tree.items() if line.endswith(" unsafe")) == sorted(LAYERS["UNSAFE"])


def test_dependencies_are_those_that_scripts_layers_allows():
    parts = {}
    for line in PARTS.splitlines():
        names, _, allowed = line.partition("→")
        for name in names.split(","):
            parts[name.strip()] = sorted(re.findall(r"\w+", allowed.replace("nothing", "")))
    assert parts == {part: sorted(allowed.split()) for part, allowed in LAYERS["ALLOWED"].items()}


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
    assert library == {*crates("Cargo.toml")}
    assert program == {*crates("cli/Cargo.toml")}


# ---- other documents ------------------------------------------------------------------------------------------------

DOCUMENTS = [name for name in files() if name.endswith(".md") and name != "CHANGELOG.md"]
PATH = re.compile(r"`((?:src|cli|module|tests|scripts|fuzz|bench|docs|examples|ops)/[\w./-]*)")


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
