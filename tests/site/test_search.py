"""The site's search finds the page about a word, and nothing for a word that is on no page."""

import pytest

FOUND = "[...document.querySelectorAll('#mdbook-searchresults a')].map((link) => link.getAttribute('href').split('?')[0])"


@pytest.mark.parametrize(
    "words, page",
    [("BF.EXISTS", "commands/bf.exists.html"), ("kubernetes", "kubernetes.html"), ("false positive", "guides/cache-penetration.html")],
)
def test_a_search_finds_the_page(tab, site, words, page):
    tab.open(f"{site}/index.html?search={words.replace(' ', '+')}")
    tab.wait_for(f"return {FOUND}.length")
    assert page in tab.run(f"return {FOUND}")[:5]


def test_a_word_that_is_nowhere_is_not_found(tab, site):
    tab.open(f"{site}/index.html?search=qqzzxx")
    tab.wait_for("return document.querySelector('#mdbook-searchresults-header').textContent.includes('No search results')")
    assert not tab.run(f"return {FOUND}")
