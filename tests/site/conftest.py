"""Fixtures: the built site, a server for it, and a browser."""

import pytest

from kit.browser import browser, web_server
from kit.servers import ROOT


@pytest.fixture(scope="session")
def book():
    folder = ROOT / "target" / "site" / "book"
    assert folder.exists(), f"{folder} is missing; run scripts/docs"
    return folder


@pytest.fixture(scope="session")
def site(book):
    with web_server(book) as address:
        yield address


@pytest.fixture(scope="session")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab
