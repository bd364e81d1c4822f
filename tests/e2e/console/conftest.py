"""Chromium for the console's tests, and a host of their own; skipped by name where no browser is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.conftest import check_directory
from tests.e2e.process import Host

ROOT: Final = Path(__file__).parents[3]
SCREENSHOTS: Final = ROOT / "build" / "screenshots"  # not in git; CI keeps it as an artefact
AGENT: Final = "tests.e2e.console.agents:agent"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_ARGUMENTS: Final = (
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TIMEOUT_MS: Final = 20_000  # no test waits for it to pass

HostMaker = Callable[..., Host]
PageMaker = Callable[..., Page]


def browser_path() -> str | None:
    """Where a Chromium is installed; ZHIN_BROWSER names another one."""
    named = os.environ.get("ZHIN_BROWSER")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


@pytest.fixture(
    scope="module"
)  # not longer: an event loop that playwright leaves running disturbs async tests
def browser() -> Iterator[Browser]:
    path = browser_path()
    if path is None:
        if "CI" in os.environ or "ZHIN_BROWSER_REQUIRED" in os.environ:
            pytest.fail("no Chromium is installed: apt-get install chromium, or name one in ZHIN_BROWSER")
        pytest.skip("no Chromium is installed: the web console is not tested (apt-get install chromium)")
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def shared(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that a file's tests have in common; each has its own sessions. It is audited when all are over."""
    folder = tmp_path_factory.mktemp("shared")
    with Host(folder, "--agent", AGENT, "--data-dir", folder / "sessions", PYTHONPATH=str(ROOT)) as made:
        yield made
        made.stop()
    check_directory(folder / "sessions")


@pytest.fixture
def host(tmp_path: Path, data_dir: Path, browser: Browser) -> Iterator[HostMaker]:
    """Makes hosts with the console in the test's folder; `at` is the one whose address is taken over."""
    hosts: list[Host] = []

    def make(*arguments: object, at: Host | None = None, agent: str = AGENT) -> Host:
        port = () if at is None else ("--port", at.url.rsplit(":", 1)[1])
        made = Host(
            tmp_path, "--agent", agent, "--data-dir", data_dir, *arguments, *port, PYTHONPATH=str(ROOT)
        )
        hosts.append(made)
        return made

    yield make
    for made in hosts:
        made.__exit__(None, None, None)


@pytest.fixture
def page_of(browser: Browser) -> Iterator[PageMaker]:
    """Opens pages of a host's console in one browser profile; whatever goes wrong in a page fails the test.

    That a resource cannot be loaded is not wrong: some tests are about a host that is away, or refuses.
    """
    contexts: dict[str, BrowserContext] = {}
    wrong: list[str] = []

    def make(
        host: Host, place: str = "/", profile: str = "desk", *, is_attacked: bool = False, **options: Any
    ) -> Page:
        if profile not in contexts:
            options = {"viewport": {"width": 1280, "height": 860}, "locale": "en-GB"} | options
            contexts[profile] = browser.new_context(**options)
            contexts[profile].set_default_timeout(TIMEOUT_MS)
        page = contexts[profile].new_page()
        if is_attacked:
            page.goto(f"{host.url}/console#{place}")
            return page
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console",
            lambda said: wrong.append(said.text) if "Failed to load resource" not in said.text else None,
        )
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda asked: None if _is_own(asked.url, host) else wrong.append(f"asked for {asked.url}"),
        )
        page.goto(f"{host.url}/console#{place}")
        return page

    yield make
    for context in contexts.values():
        context.close()
    assert wrong == []


def _is_own(url: str, host: Host) -> bool:
    return url.startswith((f"{host.url}/", "data:"))


def shoot(page: Page, name: str, **options: Any) -> None:
    """Keep a picture of the page."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", **options)
