"""The demo agent, in a host in memory: what a person says and what comes back."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from zhin_host import AgentSessionHost, create_agent_session_host
from zhin_host.agents import demo
from zhin_host.agents.notes import NOTE_BYTES_MAX, NOTES_MAX, NoteError, Notes


class Talk:
    """One session with the demo agent over HTTP in this process."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._session: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []

    async def say(self, message: str, answer: dict[str, Any] | None = None) -> str:
        """Send a message, answer what is asked, and return what the agent said."""
        body = {"message": message}
        path = "/session"
        if self._session:
            path += f"/{self._session['sessionId']}"
            body["continuationToken"] = self._session["continuationToken"]
        self._session = (await self._client.post(path, json=body)).json()
        assert self._session["ok"], self._session
        self.events = await self._read(self._session["startIndex"])
        if pending := self.events[-1]["data"].get("pendingRequestIds"):
            assert answer is not None, self.events[-1]
            reply = await self._client.post(
                f"/session/{self._session['sessionId']}/input", json={"requestId": pending[0], **answer}
            )
            assert reply.status_code == 200, reply.text
            self.events += await self._read(self.events[-1]["index"] + 1)
        [completed] = self.of("message.completed")
        return str(completed["message"])

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The data of the last turn's events of one type."""
        return [event["data"] for event in self.events if event["type"] == kind]

    async def _read(self, start: int) -> list[dict[str, Any]]:
        path = f"/session/{self._session['sessionId']}/stream?startIndex={start}"
        return [json.loads(line) for line in (await self._client.get(path)).text.splitlines() if line]


@asynccontextmanager
async def client_of(host: AgentSessionHost) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(host.app)
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        yield client


def files_in(directory: Path) -> dict[str, str]:
    """Name and text of each file; none where there is no such folder."""
    return {path.name: path.read_text() for path in directory.glob("*")}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
async def talk(workspace: Path) -> AsyncIterator[Talk]:
    async with client_of(create_agent_session_host(demo.DemoAgent(workspace, pause_s=0))) as client:
        yield Talk(client)


YES = {"approved": True}
NO = {"approved": False}


async def test_an_approved_note_is_written_listed_read_and_deleted(talk: Talk, workspace: Path) -> None:
    assert "no notes yet" in await talk.say("List my notes!")
    assert "a new one" in await talk.say("Write a note Shopping: milk, Eggs: 6", YES)
    [asked] = talk.of("input.requested")
    assert (asked["toolName"], asked["args"]) == ("write_note", {"name": "shopping", "text": "milk, Eggs: 6"})
    assert files_in(workspace) == {"shopping.txt": "milk, Eggs: 6"}
    assert await talk.say("what notes do I have?") == "You have shopping."
    assert await talk.say("please read me the note called shopping.") == "shopping:\nmilk, Eggs: 6"
    assert not talk.of("input.requested")
    assert "in place of the one" in await talk.say("write shopping: bread", YES)
    assert files_in(workspace) == {"shopping.txt": "bread"}
    assert (await talk.say("delete shopping", YES)).endswith("Deleted.")
    assert files_in(workspace) == {}
    assert (await talk.say("delete shopping", YES)).endswith("There was no such note.")
    assert await talk.say("read shopping") == "There is no note 'shopping'."


async def test_a_refusal_is_told_and_changes_nothing(talk: Talk, workspace: Path) -> None:
    assert (await talk.say("write a note secret plan: sleep", NO)).endswith("I left everything as it is.")
    assert files_in(workspace) == {}
    await talk.say("write a note plan: sleep", YES)
    assert (await talk.say("delete plan", NO)).endswith("I left everything as it is.")
    assert files_in(workspace) == {"plan.txt": "sleep"}


@pytest.mark.parametrize(
    "message",
    [
        "read ../../etc/passwd",
        "write a note ../evil: text",
        "write a note a/b: text",
        "delete .hidden",
        "read /etc/hosts",
        "read " + "a" * 65,
        "read ünïcode",
    ],
)
async def test_what_is_no_name_is_refused_before_anyone_is_asked(talk: Talk, message: str) -> None:
    assert "is no name for a note" in await talk.say(message)
    assert not talk.of("actions.requested")


async def test_a_note_too_large_is_refused_before_anyone_is_asked(talk: Talk) -> None:
    assert f"1 to {NOTE_BYTES_MAX} bytes" in await talk.say("write a note big: " + "x" * (NOTE_BYTES_MAX + 1))
    assert f"1 to {NOTE_BYTES_MAX} bytes" in await talk.say("write a note empty:")
    assert "behind a colon" in await talk.say("write a note")


async def test_it_recalls_what_was_said_and_only_that(talk: Talk) -> None:
    assert "first message" in await talk.say("What did I say before?")
    await talk.say("hello")
    said = await talk.say("do you remember what I said?")
    assert said == "You said before:\n- What did I say before?\n- hello"


async def test_it_asks_a_question_and_uses_the_answer(talk: Talk) -> None:
    assert (await talk.say("ask me something", {"response": "tea"})).endswith("Then tea it is.")
    assert (await talk.say("ask me something", {"response": {"a": 1}})).endswith('Then {"a": 1} it is.')


@pytest.mark.parametrize("message", ["help", "Hello!", "what is the weather in Rome?", "y" * 2_000])
async def test_help_says_what_it_can_do_and_how_to_host_another_agent(talk: Talk, message: str) -> None:
    said = await talk.say(message)
    assert "write a note shopping: milk, eggs" in said
    assert "--agent my_agent:agent" in said


async def test_an_answer_streams_in_pieces_cut_at_words(talk: Talk) -> None:
    said = await talk.say("help")
    deltas = [row["messageDelta"] for row in talk.of("message.appended")]
    assert "".join(deltas) == said
    assert 20 < len(deltas) <= 100
    assert all(delta[-1].isspace() for delta in deltas[:-1])


async def test_goodbye_ends_the_session(talk: Talk) -> None:
    await talk.say("Bye.")
    assert talk.events[-1]["type"] == "session.completed"


async def test_every_example_of_the_help_is_understood(talk: Talk) -> None:
    said = await talk.say("help")
    for line in said.splitlines():
        if line.startswith("- "):
            answer = {"response": "tea"} if "ask" in line else YES
            assert "do not know" not in await talk.say(line.removeprefix("- "), answer)


async def test_info_shows_its_tools_and_which_need_approval(workspace: Path) -> None:
    async with client_of(create_agent_session_host(demo.DemoAgent(workspace))) as client:
        [agent] = (await client.get("/info")).json()["agents"]
    assert agent["name"] == "demo"
    assert {row["name"]: row["approval"] for row in agent["tools"]} == {
        "list_notes": "never",
        "read_note": "never",
        "write_note": "always",
        "delete_note": "always",
    }


# -- the folder -------------------------------------------------------------------------------------------------


def test_links_are_not_followed_and_not_listed(tmp_path: Path, workspace: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    workspace.mkdir()
    (workspace / "soft.txt").symlink_to(outside)
    os.link(outside, workspace / "hard.txt")
    os.mkfifo(workspace / "pipe.txt")
    notes = Notes(workspace)
    assert notes.names() == ["hard"]
    for name in ("soft", "hard", "pipe"):
        with pytest.raises(NoteError):
            notes.read(name)
    notes.write("soft", "mine")  # takes the place of the link
    notes.write("hard", "mine")
    assert notes.read("soft") == notes.read("hard") == "mine"
    assert outside.read_text() == "secret"
    notes.delete("pipe")
    assert notes.names() == ["hard", "soft"]


def test_a_link_in_the_folders_place_is_refused(tmp_path: Path, workspace: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    workspace.symlink_to(elsewhere)
    notes = Notes(workspace)
    for use in (
        notes.names,
        lambda: notes.read("a"),
        lambda: notes.write("a", "b"),
        lambda: notes.delete("a"),
    ):
        with pytest.raises(NoteError):
            use()
    assert list(elsewhere.iterdir()) == []


def test_what_other_programs_put_there_is_bounded(workspace: Path) -> None:
    workspace.mkdir()
    (workspace / "large.txt").write_bytes(b"x" * (NOTE_BYTES_MAX + 1))
    (workspace / "bytes.txt").write_bytes(b"\xff\xfe")
    (workspace / "UPPER.txt").touch()
    (workspace / "other.md").touch()
    notes = Notes(workspace)
    assert notes.names() == ["bytes", "large"]
    assert notes.read("bytes") == "\ufffd\ufffd"
    with pytest.raises(NoteError, match="over"):
        notes.read("large")


def test_the_number_of_notes_is_bounded(workspace: Path) -> None:
    workspace.mkdir()
    for number in range(NOTES_MAX):
        (workspace / f"note{number}.txt").touch()
    notes = Notes(workspace)
    with pytest.raises(NoteError, match="delete one first"):
        notes.write("another", "text")
    assert notes.write("note7", "text") == 4


def test_a_failed_write_leaves_nothing_behind(workspace: Path) -> None:
    (workspace / "taken.txt").mkdir(parents=True)
    notes = Notes(workspace)
    with pytest.raises(NoteError, match="cannot be written"):
        notes.write("taken", "text")
    with pytest.raises(NoteError, match="cannot be deleted"):
        notes.delete("taken")
    assert [path.name for path in workspace.iterdir()] == ["taken.txt"]
    assert notes.names() == []
