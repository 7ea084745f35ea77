"""No page of the site is wider than the screen of a phone."""

PHONE = (390, 844)

# Finds elements that extend beyond the right edge, unless they are in something that scrolls, as tables and code blocks
# do. Scrolling of `main`, or of anything around it, doesn't count.
WIDE = """
const scrolls = (element) =>
  element.tagName !== "MAIN" && (/auto|scroll/.test(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
return [...document.querySelectorAll("main *")]
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !scrolls(element))
  .map((element) => element.outerHTML.slice(0, 120));
"""


def test_no_page_is_wider_than_a_phone(tab, site, book):
    tab.resize(*PHONE)
    pages = [page for page in sorted(book.rglob("*.html")) if page.name not in ("print.html", "toc.html")]
    assert len(pages) > 50
    wide = {}
    for page in pages:
        tab.open(f"{site}/{page.relative_to(book)}")
        tab.wait_for("return !document.querySelector('#plan[hidden]')")  # the calculator
        if found := tab.run(WIDE):
            wide[str(page.relative_to(book))] = found
    assert not wide
