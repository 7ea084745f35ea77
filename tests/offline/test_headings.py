"""Everything that has ever been documented still is. headings.txt has every heading that a document has had, and says
where the text is now if it isn't below that heading.

A line is `file | heading`, or `file | old heading | file | heading`. If you rename or move a heading, add the second
half to its line. If you add a heading, add a line.
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("headings.txt")
# Not checked: the table of contents of the site, and the list of changes.
WITHOUT = {"CHANGELOG.md", "docs/site/SUMMARY.md"}


@cache
def headings(path: str) -> frozenset[str]:
    file = ROOT / path
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", file.read_text()) if file.exists() else ""
    return frozenset(heading.strip() for heading in re.findall(r"(?m)^#+ (.+)$", text))


def documents() -> set[str]:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {str(file.relative_to(ROOT)) for file in files} - WITHOUT


def test_every_heading_that_was_still_has_its_place():
    lines = [line.split(" | ") for line in LIST.read_text().splitlines()]
    assert all(len(line) in (2, 4) for line in lines)
    gone = [line for line in lines if line[-1] not in headings(line[-2])]
    assert not gone, f"say in {LIST.name} where these are now: {gone}"
    moved = [line for line in lines if len(line) == 4 and line[1] in headings(line[0])]
    assert not moved, f"these are at their old place: {moved}"


def test_every_heading_is_in_the_list():
    listed = {tuple(line.split(" | ")[:2]) for line in LIST.read_text().splitlines()}
    new = [(path, heading) for path in sorted(documents()) for heading in sorted(headings(path)) if (path, heading) not in listed]
    assert not new, f"add to {LIST.name}: {new}"
