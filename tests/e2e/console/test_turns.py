"""The console in Chromium: a turn as it happens, requests, restarts, and what becomes of what an agent says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.console.agents import PLANTED
from tests.e2e.console.conftest import HostMaker, PageMaker, shoot
from tests.e2e.process import Host

pytestmark = pytest.mark.timeout(120)


def test_a_turn_is_shown_as_it_happens_with_its_reasoning_its_actions_and_its_times(
    shared: Host, page_of: PageMaker
) -> None:
    page = page_of(shared)
    page.get_by_role("textbox", name="First message").fill("work sourdough")
    page.keyboard.press("Enter")
    turn = page.get_by_role("article", name="Turn 1")
    expect(turn.get_by_text("Found sourdough, and nothing but that.")).to_be_visible()
    expect(turn.get_by_text(re.compile("Completed"))).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("work sourdough")
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    reasoning = turn.get_by_text("First I look, then I tell.")
    expect(reasoning).to_be_hidden()
    turn.get_by_text("Reasoning", exact=True).click()
    expect(reasoning).to_be_visible()
    turn.get_by_text("look_up").click()
    expect(turn.get_by_text('"sourdough"').first).to_be_visible()
    expect(turn.get_by_text("a line\nand another")).to_be_visible()
    expect(turn.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"^ran \d+ ms, 1 attempt$"))
    turn.get_by_text(re.compile("^ran")).click()
    expect(turn.get_by_role("row", name=re.compile("look_up.*completed"))).to_be_visible()
    shoot(page, "turn", full_page=True)
    page.get_by_role("textbox", name="Message").fill("and now?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("article", name="Turn 2").get_by_text("You said: and now?")).to_be_visible()
    expect(page.get_by_role("link", name="work sourdough")).to_have_attribute("aria-current", "page")


def test_an_approval_is_given_after_a_reload_and_after_the_host_was_killed(
    host: HostMaker, page_of: PageMaker, tmp_path: Path
) -> None:
    first = host()
    session = first.parked("publish bread")[0]["sessionId"]
    page = page_of(first, f"/session/{session}")
    approve = page.get_by_role("button", name="Approve: publish")
    expect(approve).to_be_visible()
    page.reload()
    expect(approve).to_be_visible()
    expect(page.get_by_text("12345678901234567", exact=True)).to_be_visible()
    shoot(page, "approval")
    first.kill()
    expect(page.get_by_text("Reconnecting …")).to_be_visible()
    second = host(at=first)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.get_by_label("Comment").fill("for the bakers")
    approve.click()
    turn = page.get_by_role("article", name="Turn 1")
    expect(turn.get_by_text("Published at https://pages.example/bread.")).to_be_visible()
    expect(turn.get_by_text(re.compile("^Approved — “for the bakers”"))).to_be_visible()
    expect(approve).to_have_count(0)
    expect(turn.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("waited .* for an approval, 2 attempts")
    )
    assert (tmp_path / "bread").read_text() == "published\n"
    shoot(page, "approved-after-restart", full_page=True)
    page.reload()
    expect(turn.get_by_text("Published at https://pages.example/bread.")).to_be_visible()
    expect(approve).to_have_count(0)
    second.stop()


def test_text_that_does_not_count_since_a_crash_is_shown_as_discarded(
    host: HostMaker, page_of: PageMaker, tmp_path: Path
) -> None:
    first = host()
    session = first.say("wait go")["sessionId"]
    page = page_of(first, f"/session/{session}")
    expect(page.get_by_text("This is said before")).to_be_visible()
    first.kill()
    (tmp_path / "go").touch()
    second = host(at=first)
    turn = page.get_by_role("article", name="Turn 1")
    expect(turn.get_by_text("This is said after.")).to_be_visible()
    discarded = turn.locator("details.discarded")
    expect(discarded.get_by_text("Discarded text")).to_be_visible()
    expect(discarded.get_by_role("deletion")).to_be_hidden()
    discarded.get_by_text("Discarded text").click()
    expect(discarded.get_by_role("deletion")).to_have_text("This is said before the host goes away. ")
    expect(turn.locator(":scope > .items > .text")).to_have_text(
        "This is said before the host goes away. This is said after."
    )
    expect(turn.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("stopped .* with the host, 2 attempts")
    )
    shoot(page, "discarded", full_page=True)
    second.stop()


def test_nothing_that_an_agent_says_becomes_markup(shared: Host, page_of: PageMaker) -> None:
    session = shared.post("/session", message=f"plant {PLANTED}", metadata={PLANTED: PLANTED})["sessionId"]
    page = page_of(shared, f"/session/{session}")
    shown = PLANTED.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    turn = page.get_by_role("article", name="Turn 1")
    expect(turn.locator(":scope > .items > .text")).to_have_text(shown)
    expect(page.get_by_text("javascript:window.planted=1", exact=True)).to_be_visible()
    assert page.locator("main a").count() == 0
    page.get_by_role("button", name="Metadata").click()
    page.get_by_role("button", name="Close").click()
    for summary in turn.locator("summary").all():
        summary.click()
    page.get_by_role("button", name="It is done").click()
    expect(page.get_by_role("group", name="Choices").get_by_role("button")).to_have_count(2)
    shoot(page, "planted", full_page=True)
    page.get_by_role("button", name="Raw events").click()
    expect(page.get_by_role("dialog", name="Raw event")).to_be_visible()
    page.goto(f"{shared.url}/console#/inbox")
    page.get_by_role("group", name="Choices").get_by_role("button").first.click()
    expect(page.get_by_text("Answered.")).to_be_visible()
    answer = [event for event in shared.events(session) if event["type"] == "input.completed"][-1]
    assert answer["data"]["response"] == PLANTED
    assert page.evaluate("window.planted") is None
    assert page.locator("main img, main script, main svg, aside img").count() == 0
    assert page.locator("script").count() == 1


def test_a_script_that_got_into_the_page_would_not_run(shared: Host, page_of: PageMaker) -> None:
    page = page_of(shared, is_attacked=True)
    refused = page.evaluate(
        """async () => {
            const said = [];
            const tries = [
                () => { document.body.innerHTML = "<img src=x onerror=window.planted=1>"; },
                () => { const made = document.createElement("script"); made.text = "window.planted=1"; },
                () => { const made = document.createElement("script"); made.src = "http://localhost:9/x.js"; },
                () => fetch("http://localhost:9/"),
            ];
            for (const one of tries) { try { await one(); } catch (error) { said.push(error.name); } }
            const script = document.createElement("script");
            script.append("window.planted=1");
            document.body.append(script);
            return said;
        }"""
    )
    assert refused == ["TypeError"] * 4
    assert page.evaluate("window.planted") is None


def test_a_failed_turn_says_why_and_is_tried_again(shared: Host, page_of: PageMaker, tmp_path: Path) -> None:
    session = shared.say(f"fail {tmp_path}/mended")["sessionId"]
    page = page_of(shared, f"/session/{session}")
    first = page.get_by_role("article", name="Turn 1")
    expect(first.get_by_text("ACTION_FAILED")).to_be_visible()
    (tmp_path / "mended").touch()
    first.get_by_role("button", name="Try again").click()
    second = page.get_by_role("article", name="Turn 2")
    expect(second.get_by_text("mended", exact=True)).to_be_visible()
    expect(first.get_by_role("button", name="Try again")).to_have_count(0)
    expect(first.get_by_text("Discarded text")).to_be_visible()


def test_a_running_turn_is_cancelled_and_messages_wait_or_interrupt(
    shared: Host, page_of: PageMaker, tmp_path: Path
) -> None:
    page = page_of(shared, f"/session/{shared.say('wait forever')['sessionId']}")
    box = page.get_by_role("textbox", name="Message")
    box.fill("second")
    page.get_by_role("button", name="Queue").click()
    queue = page.get_by_role("region", name="Queued messages")
    expect(queue.get_by_text("second")).to_be_visible()
    page.get_by_role("button", name="Cancel turn").click()
    expect(page.get_by_role("article", name="Turn 1").get_by_text(re.compile("Cancelled"))).to_be_visible()
    expect(page.get_by_role("article", name="Turn 2").get_by_text("You said: second")).to_be_visible()
    expect(queue).to_be_hidden()
    box.fill("wait forever")
    box.press("Enter")
    expect(page.get_by_text("Working …")).to_be_visible()
    box.fill("instead")
    page.get_by_role("button", name="Interrupt").click()
    expect(page.get_by_role("article", name="Turn 3").get_by_text(re.compile("Cancelled"))).to_be_visible()
    expect(page.get_by_role("article", name="Turn 4").get_by_text("You said: instead")).to_be_visible()


def test_a_message_whose_answer_is_lost_is_sent_again_as_the_same_one(
    shared: Host, page_of: PageMaker
) -> None:
    page = page_of(shared)
    before = len(shared.client.get("/sessions").json()["sessions"])
    lost: list[str] = []

    def lose(route: Route) -> None:
        if lost:
            route.continue_()
        else:
            lost.append(route.request.headers["idempotency-key"])
            route.fetch()  # the host has it, and the page never hears so
            route.abort()

    page.route("**/zhin/v1/session", lose)
    page.get_by_role("textbox", name="First message").fill("work once")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("article", name="Turn 1").get_by_text("Found once")).to_be_visible()
    assert len(lost) == 1
    sessions = shared.client.get("/sessions").json()["sessions"]
    assert len(sessions) == 1 + before


def test_a_message_on_its_way_survives_a_reload(shared: Host, page_of: PageMaker) -> None:
    session = shared.say("hello")["sessionId"]
    page = page_of(shared, f"/session/{session}")
    expect(page.get_by_text("You said: hello")).to_be_visible()
    page.route(
        f"**/session/{session}", lambda route: None if route.request.method == "POST" else route.continue_()
    )
    box = page.get_by_role("textbox", name="Message")
    box.fill("never got there")
    box.press("Enter")
    expect(page.get_by_text("Sending…")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")
    page.reload()
    expect(
        page.get_by_role("article", name="Turn 2").get_by_text("You said: never got there")
    ).to_be_visible()
    expect(box).to_have_value("")
    assert page.evaluate("sessionStorage.length") == 0
    assert json.dumps(shared.events(session)).count("message.received") == 2


def test_somebody_else_s_message_is_told_and_one_s_own_stays_in_the_box(
    shared: Host, page_of: PageMaker
) -> None:
    accepted = shared.say("hello")
    session = accepted["sessionId"]
    page = page_of(shared, f"/session/{session}")
    expect(page.get_by_text("You said: hello")).to_be_visible()
    shared.events(session)

    def come_before(route: Route) -> None:
        if route.request.method == "POST" and accepted:
            shared.say("from elsewhere", dict(accepted))
            accepted.clear()
        route.continue_()

    page.route(f"**/session/{session}", come_before)
    box = page.get_by_role("textbox", name="Message")
    box.fill("mine")
    box.press("Enter")
    expect(page.get_by_text("Somebody else wrote in this session first.")).to_be_visible()
    expect(page.get_by_role("article", name="Turn 2").get_by_text("You said: from elsewhere")).to_be_visible()
    expect(box).to_have_value("mine")
    box.press("Enter")
    expect(page.get_by_role("article", name="Turn 3").get_by_text("You said: mine")).to_be_visible()
