"""The console in Chromium: the list, the inbox, tokens, many tabs, narrow screens, keyboards and screen readers."""

from __future__ import annotations

import json
import os
import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.console.conftest import HostMaker, PageMaker, shoot
from tests.e2e.process import Host

pytestmark = pytest.mark.timeout(120)

PHONE: dict[str, Any] = {
    "viewport": {"width": 320, "height": 640},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}


def rested(host: Host, message: str) -> str:
    """A session whose turn is over, or waits."""
    session: str = host.say(message)["sessionId"]
    host.events(session)
    return session


def look(page: Page) -> None:
    """Have the page ask at once, as it does when it is shown again, and not only after its few seconds."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


# -- the list -----------------------------------------------------------------------------------------------------


def test_sessions_are_listed_by_status_and_text_and_page_by_page(host: HostMaker, page_of: PageMaker) -> None:
    served = host()
    served.parked("publish crust")
    started = [served.say(f"number {number}") for number in range(33)]
    served.events(started[-1]["sessionId"])
    page = page_of(served)
    rows = page.get_by_role("complementary", name="Sessions").get_by_role("listitem")
    expect(rows).to_have_count(30)
    expect(rows.first).to_contain_text("number 32")
    page.get_by_role("button", name="Load more").click()
    expect(rows).to_have_count(34)
    page.get_by_role("searchbox", name="Find").fill("NUMBER 1")
    expect(rows).to_have_count(11)
    page.get_by_role("searchbox", name="Find").fill("")
    page.get_by_label("Status").select_option("Waiting")
    expect(rows).to_have_count(30)
    page.get_by_label("Status").select_option("Running")
    expect(rows).to_have_count(0)
    page.get_by_label("Status").select_option("Any status")
    page.get_by_role("button", name="Load more").click()
    expect(rows.last).to_contain_text("waits for you")
    newest = served.say("number 99")["sessionId"]
    look(page)
    expect(rows.first).to_contain_text("number 99")
    page.get_by_role("link", name="number 99").click()
    expect(page.get_by_text("You said: number 99")).to_be_visible()
    served.events(newest)
    served.client.delete(f"/session/{newest}")
    look(page)
    expect(page.get_by_role("link", name="number 99")).to_have_count(0)


# -- the inbox ----------------------------------------------------------------------------------------------------


def test_the_inbox_shows_what_waits_and_takes_each_kind_of_answer(
    host: HostMaker, page_of: PageMaker
) -> None:
    served = host()
    page = page_of(served, "/inbox")
    expect(page.get_by_text("Nobody waits for you.")).to_be_visible()
    sessions = {
        message: rested(served, message)
        for message in ("ask", "ask again", "authorize", "publish rye", "publish oat")
    }
    look(page)
    card = page.locator("section.request")
    expect(card).to_have_count(5)
    expect(page.get_by_role("link", name=re.compile("Inbox 5 open requests"))).to_be_visible()
    shoot(page, "inbox", full_page=True)
    entry = page.locator(".inbox-entry")
    first = entry.filter(has=page.get_by_role("link", name="ask", exact=True))
    first.get_by_role("button", name="tea").click()
    expect(first.get_by_text("Answered.")).to_be_focused()
    own = entry.filter(has=page.get_by_role("link", name="ask again"))
    own.get_by_role("textbox", name="Or in your own words").fill("{cups: 3")
    own.get_by_label("as JSON").check()
    own.get_by_role("button", name="Answer").click()
    expect(own.get_by_text("That is no JSON")).to_be_visible()
    own.get_by_role("textbox", name="Or in your own words").fill('{"cups": 3}')
    own.get_by_role("button", name="Answer").click()
    expect(own.get_by_text("Answered.")).to_be_visible()
    connect = entry.filter(has=page.get_by_role("link", name="authorize"))
    expect(connect.get_by_role("link", name="https://auth.example/x")).to_have_attribute(
        "rel", "noopener noreferrer"
    )
    connect.get_by_role("button", name="It is done").click()
    expect(connect.get_by_text("Authorized.")).to_be_visible()
    rye = entry.filter(has=page.get_by_role("link", name="publish rye"))
    rye.get_by_label("Comment").fill("not today")
    rye.get_by_role("button", name="Deny: publish").click()
    expect(rye.get_by_text("Denied.")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("Inbox 1 open request"))).to_be_visible()
    said = {
        message: [
            event["data"]["message"]
            for event in served.events(session)
            if event["type"] == "message.completed"
        ]
        for message, session in sessions.items()
    }
    assert said["ask"] == ["answered 'tea'"]
    assert said["ask again"] == ["answered {'cups': 3}"]
    assert said["authorize"] == ["let in: True"]
    assert said["publish rye"] == ["I would like to publish. Not published."]
    oat = served.client.get(f"/session/{sessions['publish oat']}").json()["pendingRequestIds"][0]
    served.post(f"/session/{sessions['publish oat']}/input", requestId=oat, approved=False)
    expect(card.filter(has_text="Approve")).to_have_count(0)


def test_a_tool_that_may_have_run_is_asked_about_with_the_reason(
    host: HostMaker, page_of: PageMaker, tmp_path: Path
) -> None:
    first = host()
    session = first.say("pay")["sessionId"]
    while not (tmp_path / "paid.txt").exists():
        time.sleep(0.02)
    first.kill()
    second = host(at=first)
    page = page_of(second, f"/session/{session}")
    expect(page.get_by_text("it may have done its work already")).to_be_visible()
    shoot(page, "retry")
    page.get_by_role("button", name="Run it again: pay").click()
    expect(page.get_by_role("article").get_by_text("paid 3", exact=True)).to_be_visible()
    expect(page.get_by_text("Run again, after")).to_be_visible()
    second.stop()


# -- looking closely ----------------------------------------------------------------------------------------------


def test_the_audit_and_every_raw_event_are_there_on_demand(shared: Host, page_of: PageMaker) -> None:
    session = rested(shared, "work rye")
    page = page_of(shared, f"/session/{session}")
    page.get_by_role("button", name="Audit").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Nothing is wrong")).to_be_visible()
    lines = shared.client.get(f"/session/{session}/stream").content.decode().splitlines()
    expect(dialog.get_by_text(json.loads(lines[-1])["sum"])).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Raw events").click()
    expect(dialog.locator("pre.line")).to_have_text(lines[-1])
    dialog.get_by_role("button", name="Previous").click()
    expect(dialog.locator("pre.line")).to_have_text(lines[-2])
    dialog.get_by_label("Event").fill("3")
    dialog.get_by_label("Event").press("Enter")
    expect(dialog.locator("pre.line")).to_have_text(lines[3])
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("article").get_by_role("button", name="Raw event 1", exact=True).click()
    expect(dialog.get_by_text("turn.started").first).to_be_visible()


def test_an_unknown_session_and_one_that_is_over_say_so(shared: Host, page_of: PageMaker) -> None:
    page = page_of(shared, "/session/ses_01jdq3v2k0000000000000000z")
    expect(page.get_by_role("alert")).to_contain_text("This session is not there")
    session = rested(shared, "hello")
    shared.post(f"/session/{session}/end", outcome="completed")
    page.goto(f"{shared.url}/console#/session/{session}")
    expect(page.get_by_text("The session is over.")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_be_hidden()


# -- tokens -------------------------------------------------------------------------------------------------------


def test_the_token_is_entered_once_and_kept_out_of_sight(
    host: HostMaker, page_of: PageMaker, tmp_path: Path
) -> None:
    secret = "token-of-ada-0123456789"
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada {secret}\n")
    tokens.chmod(0o600)
    served = host("--token-file", tokens)
    page = page_of(served)
    dialog = page.get_by_role("dialog", name="Who are you?")
    field = dialog.get_by_label("Token")
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    field.fill("of-nobody-0123456789")
    field.press("Enter")
    expect(dialog.get_by_text("Nobody has this token")).to_be_visible()
    shoot(page, "token")
    field.fill(secret)
    field.press("Enter")
    page.get_by_role("textbox", name="First message").fill("work safely")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Found safely, and nothing but that.").first).to_be_visible()
    page.reload()
    expect(page.get_by_text("Found safely, and nothing but that.").first).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 740})
    state = page.locator("#link-state")
    expect(state).to_be_visible()
    assert state.evaluate("(made) => made.clientWidth > 0 && made.clientWidth >= made.scrollWidth")
    other = page_of(served, "/inbox")
    expect(other.get_by_text("Nobody waits for you.")).to_be_visible()
    assert secret not in page.url
    assert secret not in page.content()
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert secret not in served.errors
    other.close()  # it would hand the token over
    page.get_by_role("button", name="Forget token").click()
    expect(field).to_be_focused()


# -- tabs and connections -----------------------------------------------------------------------------------------


def test_eight_tabs_are_live_at_once(shared: Host, page_of: PageMaker) -> None:
    accepted = shared.say("publish eight")
    shared.events(accepted["sessionId"])
    pages = [page_of(shared, f"/session/{accepted['sessionId']}") for _ in range(8)]
    for page in pages:
        expect(page.get_by_role("button", name="Approve: publish")).to_be_visible()
    states = [page.locator("#link-state").get_attribute("data-state") for page in pages]
    assert states.count("live") <= 4
    pages[-1].get_by_role("button", name="Approve: publish").click()
    for page in pages:
        expect(page.get_by_role("article").get_by_text("Published at")).to_be_visible()
    for page in pages[:4]:
        page.close()
    expect(pages[-1].get_by_text("Live", exact=True)).to_be_visible()


HIDE = """(state) => {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_hidden_page_lets_its_stream_go_and_goes_on_from_its_cursor(
    shared: Host, page_of: PageMaker
) -> None:
    accepted = shared.say("hello")
    session = accepted["sessionId"]
    at = len(shared.events(session))
    page = page_of(shared, f"/session/{session}")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate(HIDE, "hidden")
    expect(page.get_by_text("Asleep while hidden")).to_be_visible()
    shared.say("while you slept", accepted)
    shared.events(session)
    with page.expect_request(re.compile("/stream.*until=never")) as asked:
        page.evaluate(HIDE, "visible")
    assert f"startIndex={at}" in asked.value.url
    expect(page.get_by_role("article").get_by_text("You said: while you slept")).to_be_visible()
    expect(page.get_by_role("article")).to_have_count(2)


def test_silence_of_a_dead_connection_is_noticed(host: HostMaker, page_of: PageMaker) -> None:
    served = host("--heartbeat-s", "0.2")
    session = rested(served, "hello")
    page = page_of(served, f"/session/{session}")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    os.kill(served.process.pid, 19)  # SIGSTOP: the connection stays, and nothing comes
    try:
        expect(page.get_by_text("Reconnecting …")).to_be_visible()
    finally:
        os.kill(served.process.pid, 18)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


# -- large, narrow, and without a mouse ---------------------------------------------------------------------------


def test_ten_thousand_events_are_shown_and_stay_fluent(shared: Host, page_of: PageMaker) -> None:
    session = rested(shared, "many-actions 500")
    events = shared.client.get(f"/session/{session}").json()["cursor"]
    talk = rested(shared, "many 9000")
    events += shared.client.get(f"/session/{talk}").json()["cursor"]
    assert events > 10_000
    page = page_of(shared)
    page.evaluate(
        """() => { window.slow = 0; new PerformanceObserver((list) => {
            for (const one of list.getEntries()) window.slow = Math.max(window.slow, one.duration);
        }).observe({ type: "longtask" }); }"""
    )
    page.goto(f"{shared.url}/console#/session/{session}")
    expect(page.get_by_text("Counted.", exact=True)).to_be_visible()
    page.goto(f"{shared.url}/console#/session/{talk}")
    text = page.locator(".turn .items > .text")
    expect(text).to_contain_text(" 8999 ")
    assert text.evaluate("(made) => made.childNodes.length") == 1
    assert page.evaluate("window.slow") < 3000  # ms, on a machine that does other things too
    assert page.evaluate("window.innerHeight + window.scrollY + 2 >= document.documentElement.scrollHeight")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_needs_no_sideways_scrolling(shared: Host, page_of: PageMaker, scheme: str) -> None:
    session = rested(shared, f"publish a-very-long-name-{'x' * 200}-{scheme}")
    page = page_of(shared, profile=f"phone-{scheme}", color_scheme=scheme, **PHONE)
    expect(page.get_by_role("link", name=re.compile("publish a-very-long")).first).to_be_visible()
    places = {"list": "/", "session": f"/session/{session}", "inbox": "/inbox", "new": "/new"}
    for name, place in places.items():
        page.goto(f"{shared.url}/console#{place}")
        if name in {"session", "inbox"}:
            expect(page.get_by_role("button", name="Approve: publish").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 320, name
        shoot(page, f"phone-{scheme}-{name}")
    page.goto(f"{shared.url}/console#/session/{session}")
    deny = page.get_by_role("button", name="Deny: publish")
    box = deny.bounding_box()
    assert box is not None
    assert box["height"] >= 44  # a thumb's width
    deny.tap()
    expect(page.get_by_role("article").get_by_text("Not published.")).to_be_visible()


def test_an_approval_needs_no_mouse(shared: Host, page_of: PageMaker) -> None:
    session = rested(shared, "publish keys")
    page = page_of(shared)
    expect(page.get_by_role("link", name="publish keys")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    link = page.get_by_role("link", name="publish keys")
    _tab_to(page, link)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="publish keys")).to_be_focused()
    approve = page.get_by_role("button", name="Approve: publish")
    expect(approve).to_be_visible()
    _tab_to(page, approve)
    outline = approve.evaluate(
        "(made) => getComputedStyle(made).outlineStyle + getComputedStyle(made).outlineWidth"
    )
    assert outline == "solid2px"
    page.keyboard.press("Enter")
    expect(page.get_by_role("article").get_by_text("Published at")).to_be_visible()
    assert page.evaluate("document.activeElement.closest('main') !== null")
    expect(page.locator("#spoken")).to_contain_text("Published at https://pages.example/keys.")
    expect(page.locator("#spoken")).to_contain_text("The turn is complete.")
    assert session in page.url


def _tab_to(page: Page, target: Any) -> None:
    for _ in range(40):
        if target.evaluate("(made) => made === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not get there")


def test_no_accessibility_rule_is_broken_by_day_or_by_night(shared: Host, page_of: PageMaker) -> None:
    parked = rested(shared, "publish access")
    rested(shared, "ask")
    failed = rested(shared, "fail for-ever")
    page = page_of(shared, profile="axe", is_attacked=True)  # axe tries to read style sheets its own way
    for place in ("/", "/inbox", f"/session/{parked}", f"/session/{failed}"):
        page.goto(f"{shared.url}/console#{place}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if place not in {"/", f"/session/{failed}"}:
            expect(page.locator("section.request").first).to_be_visible()
        for summary in page.locator("main summary").all():
            summary.click()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert _violations(page) == [], (place, scheme)


def _violations(page: Page) -> list[Any]:
    """The rules of axe-core that the page breaks, and where."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


# -- without it ---------------------------------------------------------------------------------------------------


def test_serve_leaves_the_console_out_when_told(tmp_path: Path) -> None:
    with Host(tmp_path, "--memory", "--no-console") as host:
        assert host.client.get(f"{host.url}/console").status_code == 404
        host.stop()
