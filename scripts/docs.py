"""The parts of scripts/docs that aren't shell: writing the pages for mdbook, and checking the links of the site.

`docs.py pages SITE` writes the pages and mdbook's settings. `docs.py check BOOK` looks for dead links in the site
that mdbook has built.
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
CONFIGURATION = Path("redis.conf.example")

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^ *```")
BLOCKS = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


# ---- pages ----------------------------------------------------------------------------------------------------------


def place(source: Path) -> Path:
    """The path of the page made from this file of the repository, relative to the folder of the pages."""
    if source == CONFIGURATION:
        return Path("configuration.md")
    if source.parent == SITE:
        return Path(source.name)
    folder = source.parent.relative_to("docs") if source.parts[0] == "docs" else source.parent
    return folder / ("index.md" if source.name == "README.md" else source.name.lower())


def anchor(heading: str) -> str:
    """The anchor that GitHub and mdbook give to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


class Text:
    """A page before its links are rewritten."""

    def __init__(self, source: Path):
        self.source, self.place = source, place(source)
        self.lines = (ROOT / source).read_text().splitlines()
        if source == CONFIGURATION:
            self.lines = ["# Configuration", "", "```conf", *self.lines, "```"]

    def path_of(self, link: str) -> Path:
        """The file that a link leads to."""
        path = unquote(urlsplit(link).path)
        return Path(os.path.relpath(ROOT / self.source.parent / path, ROOT)) if path else self.source

    def links(self) -> list[str]:
        return [link for _, _, link in LINK.findall(BLOCKS.sub("", "\n".join(self.lines)))]

    def anchors(self) -> set[str]:
        fenced, found = False, set()
        for line in self.lines:
            fenced ^= bool(FENCE.match(line))
            if not fenced and line.startswith("#"):
                found.add(anchor(line.lstrip("#")))
        return found


class Pages:
    """The table of contents, and the pages that it names."""

    def __init__(self, contents: Text):
        texts = [contents, *(Text(contents.path_of(link)) for link in contents.links())]
        self.texts = {text.source: text for text in texts}
        # Files that pages link to and that aren't pages: pictures and programs.
        self.files = set()

    def target(self, text: Text, link: str) -> str | None:
        """A page's link, rewritten for the site; `None` if it leads to a folder."""
        parts = urlsplit(link)
        if parts.scheme:
            return link
        path = text.path_of(link)
        if to := self.texts.get(path):
            return os.path.relpath(to.place, text.place.parent) + (f"#{parts.fragment}" if parts.fragment else "")
        if not (ROOT / path).exists():
            sys.exit(f"{text.source}: {link} names no file")
        if (ROOT / path).is_dir():
            return None
        self.files.add(path)
        return os.path.relpath(path, text.place.parent)

    def rewritten(self, text: Text) -> str:
        def replace(link: re.Match) -> str:
            target = self.target(text, link[3])
            return f"{link[1]}[{link[2]}]({target})" if target else link[2]

        # Replaces links only outside code blocks, which are the odd-numbered parts. A link can span two lines.
        parts = BLOCKS.split("\n".join(text.lines) + "\n")
        return "".join(part if number % 2 else LINK.sub(replace, part) for number, part in enumerate(parts))


def write_pages(site: Path) -> None:
    pages = Pages(Text(SITE / "SUMMARY.md"))
    folder = site / "src"
    for text in pages.texts.values():
        path = folder / text.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages.rewritten(text))
    for file in pages.files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, path)
    for file in ("book.toml", "site.css"):
        shutil.copy(ROOT / SITE / file, site / file)
    for file in (ROOT / SITE).glob("calculator.*"):
        shutil.copy(file, folder)


# ---- links ----------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The links of a page, and the ids in it that links can lead to."""

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
