"""The site: it builds strictly, has every page, its links lead somewhere, and it asks no other server for anything."""

from __future__ import annotations

import functools
import http.server
import os
import posixpath
import re
import subprocess
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser

from tests.docs.blocks import DOCS, ROOT, pages

_LOADED: Final = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("object", "data"),
}
_IN_STYLES: Final = re.compile(r"""(?:url\(|@import\s)\s*["']?((?:https?:)?//[^"')]+)""")


class _Html(HTMLParser):
    """What a page names: ids to link to, links, and what a browser loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"id", "name"} and value:
                self.ids.add(value)
            if (tag, name) in _LOADED and value:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href") and value is not None:
                self.links.append(value)


pytestmark = pytest.mark.timeout(180)  # whichever test comes first waits for the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the script."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [ROOT / "scripts" / "docs", "--site-dir", folder],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def built(site: Path) -> dict[str, _Html]:
    """Every built page by its path in the site."""
    return {
        path.relative_to(site).as_posix(): _Html(path.read_text())
        for path in site.rglob("*.html")
        if path.name != "404.html"  # its links begin with the address of the site
    }


def sources() -> Iterator[str]:
    """Every page that belongs into the site."""
    yield from pages()
    yield from (f"adr/{path.name}" for path in (ROOT / "adr").glob("*.md"))
    yield "CHANGELOG.md"


def test_every_page_and_decision_is_built_and_can_be_reached_from_each_page(
    built: dict[str, _Html],
) -> None:
    wanted = {source.removesuffix(".md") + ".html" for source in sources()}
    assert built.keys() == wanted
    for page, html in built.items():
        reached = {_target(page, link)[0] for link in html.links if not urlsplit(link).scheme}
        assert wanted <= reached | {page}, f"the navigation of {page} lacks {wanted - reached}"


def test_every_link_and_anchor_leads_somewhere(site: Path, built: dict[str, _Html]) -> None:
    for page, html in built.items():
        for link in html.links:
            if urlsplit(link).scheme:
                continue
            path, anchor = _target(page, link)
            assert (site / path).is_file(), f"{page} links {link}"
            assert not anchor or anchor in built[path].ids, f"{page} links {link}"


def test_nothing_is_loaded_from_another_server(site: Path, built: dict[str, _Html]) -> None:
    for page, html in built.items():
        assert html.loaded, page
        for loaded in html.loaded:
            parts = urlsplit(loaded)
            assert not parts.scheme, f"{page} loads {loaded}"
            assert not parts.netloc, f"{page} loads {loaded}"
            assert (site / _target(page, loaded)[0]).is_file(), f"{page} loads {loaded}"
    for style in site.rglob("*.css"):
        assert not _IN_STYLES.findall(style.read_text()), style


def test_a_browser_that_reads_and_searches_asks_no_other_server(site: Path, browser: Browser) -> None:
    handler = functools.partial(_Quiet, directory=str(site))
    asked: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browser.new_page() as page:
        thread = threading.Thread(target=server.serve_forever, name="site", daemon=True)
        thread.start()
        home = f"http://127.0.0.1:{server.server_port}/"
        page.on("request", lambda request: asked.append(request.url))
        page.goto(home + "index.html")
        page.locator("input[data-md-component=search-query]").fill("continuationToken")
        page.locator(".md-search-result__link").first.wait_for()
        page.goto(home + "adr/0003-wire.html")
        server.shutdown()
        thread.join()
    assert asked
    assert [url for url in asked if not url.startswith((home, "data:", "blob:"))] == []


def test_the_page_of_reasons_links_every_decision() -> None:
    text = (DOCS / "why.md").read_text()
    for path in (ROOT / "adr").glob("*.md"):
        assert f"(../adr/{path.name})" in text, path.name


def test_the_script_builds_into_a_folder_that_is_ignored() -> None:
    assert "site_dir: ../../build/docs\n" in (DOCS / "site" / "mkdocs.yml").read_text()
    assert "/build/\n" in (ROOT / ".gitignore").read_text()
    assert os.access(ROOT / "scripts" / "docs", os.X_OK)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def _target(page: str, link: str) -> tuple[str, str]:
    """The file and the anchor that a relative link of a page leads to."""
    parts = urlsplit(link)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
    return (page if not parts.path else "index.html" if path == "." else path), unquote(parts.fragment)
