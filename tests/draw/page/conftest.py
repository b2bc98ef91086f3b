"""Pages in a real browser without a window: Chromium, driven by playwright's Python package.

CI has to run these tests: there, a missing browser fails; on a developer's machine it skips.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from shapeflow.draw.page import to_html

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        reason = "no Chromium on this machine; on Debian: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])  # root has no sandbox
        yield launched
        launched.close()


@cache
def _cached(graph: nx.MultiDiGraph) -> str:
    """Many tests read one graph, and laying out takes longer than reading."""
    return to_html(graph)


def _loaded(address: str) -> list[str]:
    return [] if address.startswith(("file:", "data:")) else [address]


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page of a graph from a file; afterwards the console has to be silent, and nothing was loaded."""
    said: list[str] = []
    pages: list[Page] = []

    def open_page(graph: nx.MultiDiGraph, *, hash: str = "", dark: bool = False, **options) -> Page:
        path = tmp_path / "page.html"
        path.write_text(_cached(graph) if not options else to_html(graph, **options))
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="dark" if dark else "light")
        pages.append(page)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.extend(_loaded(request.url)))
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(path.as_uri() + hash)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert said == []
