"""The parts of scripts/docs that aren't shell: the pages that mdbook gets, and whether the links of the site lead
anywhere.

`docs.py pages SITE` writes the pages and the settings of mdbook; `docs.py check BOOK` reads what mdbook has made of them.
"""

import os
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = Path("docs/site")
COMMANDS = Path("docs/COMMANDS.md")
CONFIGURATION = Path("redis.conf.example")

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ENTRY = re.compile(r"^( *(?:- )?)\[(.*)\]\((.*)\)$")
FENCE = re.compile(r"^ *```")
BLOCKS = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


# ---- pages ----------------------------------------------------------------------------------------------------------


def place(source: Path) -> Path:
    """Where the page of a file of the repository is."""
    if source == COMMANDS:
        return Path("commands/index.md")
    if source == CONFIGURATION:
        return Path("configuration.md")
    folder = source.parent.relative_to("docs") if source.parts[0] == "docs" else source.parent
    return folder / ("index.md" if source.name == "README.md" else source.name.lower())


def anchor(heading: str) -> str:
    """As GitHub and mdbook name a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


class Text:
    """A page before its links are rewritten: the lines of a file, or of a part of it."""

    def __init__(self, source: Path, place: Path, lines: list[str]):
        self.source, self.place, self.lines = source, place, lines

    def anchors(self) -> set[str]:
        fenced, found = False, set()
        for line in self.lines:
            fenced ^= bool(FENCE.match(line))
            if not fenced and line.startswith("#"):
                found.add(anchor(line.lstrip("#")))
        return found


def of_file(source: Path) -> list[Text]:
    """The pages that a file becomes: one, or one for each command."""
    lines = (ROOT / source).read_text().splitlines()
    if source == CONFIGURATION:
        return [Text(source, place(source), ["# Configuration", "", "```conf", *lines, "```"])]
    if source != COMMANDS:
        return [Text(source, place(source), lines)]
    texts = [Text(source, place(source), [])]
    for line in lines:
        if command := re.fullmatch(r"## ([BC]F\.\w+)", line):
            texts.append(Text(source, Path("commands") / f"{command[1].lower()}.md", []))
        is_below = len(texts) > 1 and line.startswith("##")
        texts[-1].lines.append(line[1:] if is_below else line)
    return texts


class Pages:
    """All pages, and where the target of each link is."""

    def __init__(self, sources: list[Path]):
        self.texts = [text for source in sources for text in of_file(source)]
        self.first = {}
        self.by_anchor = {}
        for text in self.texts:
            self.first.setdefault(text.source, text.place)
            for name in text.anchors():
                self.by_anchor.setdefault((text.source, name), text.place)
        # Pictures, and programs that pages mention.
        self.files = set()

    def target(self, text: Text, link: str) -> str | None:
        """What a link of a page becomes; `None` if that is a folder."""
        parts = urlsplit(link)
        if parts.scheme:
            return link
        path = text.source
        if parts.path:
            path = Path(os.path.relpath(ROOT / text.source.parent / unquote(parts.path), ROOT))
        if path not in self.first:
            if not (ROOT / path).exists():
                sys.exit(f"{text.source}: {link} names no file")
            if (ROOT / path).is_dir():
                return None
            self.files.add(path)
            return os.path.relpath(path, text.place.parent)
        to = self.by_anchor.get((path, parts.fragment), self.first[path])
        return os.path.relpath(to, text.place.parent) + (f"#{parts.fragment}" if parts.fragment else "")

    def rewritten(self, text: Text) -> str:
        def replace(link: re.Match) -> str:
            target = self.target(text, link[3])
            return f"{link[1]}[{link[2]}]({target})" if target else link[2]

        # Only outside code blocks, which are the odd-numbered parts. A link can continue on the next line.
        parts = BLOCKS.split("\n".join(text.lines) + "\n")
        return "".join(part if number % 2 else LINK.sub(replace, part) for number, part in enumerate(parts))


def write_pages(site: Path) -> None:
    entries = (ROOT / SITE / "SUMMARY.md").read_text().splitlines()
    named = [ENTRY.match(line) for line in entries]
    sources = [Path(os.path.relpath(ROOT / SITE / entry[3], ROOT)) for entry in named if entry]
    pages = Pages(sources)
    summary, left = [], iter(sources)
    for line, entry in zip(entries, named, strict=True):
        if not entry:
            summary.append(line)
            continue
        source = next(left)
        first, *others = [text for text in pages.texts if text.source == source]
        summary.append(f"{entry[1]}[{entry[2]}]({first.place})")
        summary += [f"  - [{text.place.stem.upper()}]({text.place})" for text in others]
    folder = site / "src"
    for text in pages.texts:
        path = folder / text.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages.rewritten(text))
    for file in pages.files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, path)
    (folder / "SUMMARY.md").write_text("\n".join(summary) + "\n")
    for file in ("book.toml", "site.css"):
        shutil.copy(ROOT / SITE / file, site / file)
    for file in (ROOT / SITE).glob("calculator.*"):
        shutil.copy(file, folder)


# ---- links ----------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The links and the names of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.names.add(value)
            elif value and (name, tag) in (("href", "a"), ("href", "link"), ("src", "img"), ("src", "script")):
                self.links.append(value)


def dead_links(book: Path) -> list[str]:
    # The print page contains all other pages, and therefore their links.
    paths = [path for path in sorted(book.rglob("*.html")) if path.name not in ("print.html", "404.html", "toc.html")]
    pages = {path: Page(path) for path in paths}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            is_there = to.exists() and (not parts.fragment or to not in pages or unquote(parts.fragment) in pages[to].names)
            if not is_there:
                dead.append(f"{path.relative_to(book)}: {link}")
    if not dead:
        print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, none dead")
    return dead


if __name__ == "__main__":
    what, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    if what == "pages":
        write_pages(folder)
    elif dead := dead_links(folder):
        sys.exit("dead links:\n" + "\n".join(dead))
