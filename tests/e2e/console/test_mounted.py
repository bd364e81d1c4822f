"""The console in Chromium under a prefix of somebody's app, with that app's login in a cookie, and several agents."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.outer import FASTAPI, PREFIX, running, write_app

pytestmark = pytest.mark.timeout(120)


def test_the_apps_login_is_the_consoles_and_each_session_begins_with_the_agent_that_is_chosen(
    tmp_path: Path, data_dir: Path, browser: Browser
) -> None:
    write_app(tmp_path, FASTAPI, data_dir)
    with running(tmp_path) as app:
        context = browser.new_context()
        context.add_cookies([{"name": "login", "value": "ada-login", "url": app.url}])
        page = context.new_page()
        page.goto(f"{app.url}{PREFIX}/console#/new")
        expect(page.get_by_role("main").get_by_label("Agent").get_by_role("option")).to_have_text(
            ["publisher", "echo"]
        )
        page.get_by_label("First message").fill("front")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("main")).to_contain_text("/front")
        page.goto(f"{app.url}{PREFIX}/console#/new")
        page.get_by_role("main").get_by_label("Agent").select_option("echo")
        page.get_by_label("First message").fill("hello echo")
        page.keyboard.press("Enter")
        expect(page.get_by_role("main").get_by_text("hello echo").last).to_be_visible()
        context.close()
        names = [row["agent"] for row in app.client.get("/sessions").json()["sessions"]]
        assert names == ["echo", "publisher"]
        app.stop()
