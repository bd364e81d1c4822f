"""The demo agent: keeps notes in a folder, and asks before it writes or deletes one. No network, no key, no model.

zhin-host serve                                      # it is the default agent
ZHIN_DEMO_WORKSPACE=/tmp/notes zhin-host serve       # its notes elsewhere
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from zhin_host import ActionFailed, RequestExpired, ToolDenied, Turn, __version__, tool
from zhin_host.agents.notes import NoteError, Notes, checked_name, checked_text

WORKSPACE_VARIABLE: Final = "ZHIN_DEMO_WORKSPACE"
WORKSPACE_DEFAULT: Final = "data/demo-workspace"

OWN_AGENT: Final = (
    "To host your own agent, put `async def agent(turn): await turn.say(turn.message)` into my_agent.py "
    "and start `zhin-host serve --agent my_agent:agent`."
)
_CAN: Final = (
    "- write a note shopping: milk, eggs\n- list my notes\n- read shopping\n- delete shopping\n"
    "- ask me something\n- what did I say before?\n- goodbye"
)
_HELP: Final = f"I keep notes for you. Say, for example:\n{_CAN}\n{OWN_AGENT}"

_POLITE: Final = r"(?:please\s+|can you\s+|could you\s+)?"
_ARTICLES: Final = r"(?:(?:a|an|the|my|new|note|called|named)\s+)*"
_WRITE: Final = re.compile(
    rf"{_POLITE}(?:(?:write|save|create|make|add|take)\s+{_ARTICLES}|(?:new\s+)?note\s+)(?P<name>.+)"
)
_READ: Final = re.compile(
    rf"{_POLITE}(?:read|show|open|print|what(?:'s| is) in)\s+(?:me\s+)?{_ARTICLES}(?P<name>.+)"
)
_DELETE: Final = re.compile(rf"{_POLITE}(?:delete|remove|erase)\s+{_ARTICLES}(?P<name>.+)")
_LIST: Final = re.compile(
    r".{0,40}\b(?:list|show|read|see|which|what|have)\b.{0,40}\bnotes\b.{0,40}|(?:list|notes)"
)
_RECALL: Final = re.compile(r".{0,40}\b(?:did i (?:say|tell|ask)|remember|history)\b.{0,80}")
_ASK: Final = re.compile(rf"{_POLITE}ask me\b.{{0,80}}")
_HELLO: Final = re.compile(
    r"(?:hi|hello|hey|help|help me|what can you do|good (?:morning|evening))(?:\s+there)?"
)
_BYE: Final = re.compile(r"(?:good)?bye|end (?:the|this) session")

_COMMAND_CHARACTERS: Final = 300  # a longer sentence asks for nothing we know
_PIECES_MAX: Final = 100
_PAUSE_S: Final = 0.02  # between words, so that a person sees the stream
_RECALLED_MAX: Final = 5


class DemoAgent:
    """An agent as an object: called with a Turn; name, version and tools are what GET /info tells of it.

    Args:
        workspace: The folder of the notes.
        pause_s: How long to wait between two words, seconds.
    """

    name = "demo"
    version = __version__

    def __init__(self, workspace: Path, *, pause_s: float = _PAUSE_S) -> None:
        self._notes = Notes(workspace)
        self._pause_s = pause_s
        self._list = tool(name="list_notes")(self._list_notes)
        self._read = tool(name="read_note")(self._read_note)
        self._write = tool(name="write_note", approval="always")(self._write_note)
        self._delete = tool(name="delete_note", approval="always")(self._delete_note)
        self.tools = (self._list, self._read, self._write, self._delete)

    async def __call__(self, turn: Turn) -> None:
        """Find out what the message asks, and do it."""
        head, colon, text = turn.message.partition(":")
        if colon and len(head) <= _COMMAND_CHARACTERS and (found := _WRITE.fullmatch(_plain(head))):
            await self._on_named(turn, found["name"], lambda name: self._on_write(turn, name, text.strip()))
            return
        command = _plain(turn.message) if len(turn.message) <= _COMMAND_CHARACTERS else ""
        for pattern, answer in self._answers:
            if pattern.fullmatch(command):
                await answer(self, turn)
                return
        for pattern, answer_named in self._answers_named:
            if found := pattern.fullmatch(command):
                await self._on_named(turn, found["name"], partial(answer_named, self, turn))
                return
        await self._say(turn, f"I do not know how to do that: I am a small demo without a model. {_HELP}")

    # -- tools: plain functions, run in threads --------------------------------------------------------------------

    def _list_notes(self) -> list[str]:
        """Names of all notes."""
        return self._notes.names()

    def _read_note(self, name: str) -> str:
        """The text of one note."""
        return self._notes.read(name)

    def _write_note(self, name: str, text: str) -> dict[str, int]:
        """Write a note, in place of the one of that name if there is one."""
        return {"bytes": self._notes.write(name, text)}

    def _delete_note(self, name: str) -> dict[str, bool]:
        """Delete one note."""
        return {"deleted": self._notes.delete(name)}

    # -- what can be asked -----------------------------------------------------------------------------------------

    async def _on_named(self, turn: Turn, words: str, answer: Callable[[str], Awaitable[None]]) -> None:
        """Answer about the note that the words name, if they can be a name: nobody approves what cannot be done."""
        try:
            name = checked_name("-".join(words.strip(" \"'`").split()))
        except NoteError as error:
            await self._say(turn, str(error))
        else:
            await answer(name)

    async def _on_write(self, turn: Turn, name: str, text: str) -> None:
        try:
            checked_text(text)
        except NoteError as error:
            await self._say(turn, str(error))
            return
        names = await self._call(turn, self._list)
        if names is None:
            return
        place = "in place of the one that is there" if name in names else "a new one"
        await self._say(turn, f"I would like to write the note {name}, {place}, and wait for your approval. ")
        if await self._call(turn, self._write, name=name, text=text) is not None:
            await self._say(turn, f"Done. Say `read {name}` to see it.")

    async def _on_delete(self, turn: Turn, name: str) -> None:
        await self._say(turn, f"I would like to delete the note {name}, and wait for your approval. ")
        result = await self._call(turn, self._delete, name=name)
        if result is not None:
            await self._say(turn, "Deleted." if result["deleted"] else "There was no such note.")

    async def _on_read(self, turn: Turn, name: str) -> None:
        text = await self._call(turn, self._read, name=name)
        if text is not None:
            await self._say(turn, f"{name}:\n{text}")

    async def _on_list(self, turn: Turn) -> None:
        names = await self._call(turn, self._list)
        if names:
            await self._say(turn, "You have " + ", ".join(names) + ".")
        elif names is not None:
            await self._say(turn, "You have no notes yet. Say: write a note shopping: milk, eggs")

    async def _on_recall(self, turn: Turn) -> None:
        said = [row["content"] for row in await turn.history() if row["role"] == "user"]
        if not said:
            await self._say(turn, "Nothing yet: this is your first message in this session.")
            return
        lines = [f"- {text:.100}{'…' if len(text) > 100 else ''}" for text in said[-_RECALLED_MAX:]]  # noqa: PLR2004
        await self._say(turn, "You said before:\n" + "\n".join(lines))

    async def _on_ask(self, turn: Turn) -> None:
        await self._say(turn, "Gladly. ")
        try:
            answer = await turn.ask("Which do you like best?", options=["tea", "coffee", "water"])
        except RequestExpired:
            await self._say(turn, "You did not answer in time; never mind.")
            return
        text = answer if isinstance(answer, str) else json.dumps(answer)
        await self._say(turn, f"Then {text:.200} it is.")

    async def _on_hello(self, turn: Turn) -> None:
        await self._say(turn, f"Hello! {_HELP}")

    async def _on_bye(self, turn: Turn) -> None:
        await self._say(turn, "Goodbye! This session ends here; start a new one whenever you like.")
        await turn.end_session()

    async def _on_unfinished(self, turn: Turn) -> None:
        await self._say(turn, "Put the text of the note behind a colon: write a note shopping: milk, eggs")

    _answers: tuple[tuple[re.Pattern[str], Callable[[DemoAgent, Turn], Awaitable[None]]], ...] = (
        (_HELLO, _on_hello),
        (_RECALL, _on_recall),
        (_ASK, _on_ask),
        (_BYE, _on_bye),
        (_LIST, _on_list),
        (_WRITE, _on_unfinished),
    )
    _answers_named: tuple[tuple[re.Pattern[str], Callable[[DemoAgent, Turn, str], Awaitable[None]]], ...] = (
        (_DELETE, _on_delete),
        (_READ, _on_read),
    )

    # -- how it is said and done -----------------------------------------------------------------------------------

    async def _say(self, turn: Turn, text: str) -> None:
        """Say the text a few words at a time, in at most _PIECES_MAX pieces."""
        words = re.findall(r"\s*\S+\s*", text)
        size = -(-len(words) // _PIECES_MAX)
        for at in range(0, len(words), max(1, size)):
            await turn.say("".join(words[at : at + size]))
            await asyncio.sleep(self._pause_s)

    async def _call(self, turn: Turn, called: Any, **arguments: str) -> Any:
        """Call a tool; None when it did not run or failed, and the person was told."""
        try:
            return await turn.call_tool(called, **arguments)
        except ToolDenied:
            await self._say(turn, "You said no, so I left everything as it is.")
        except RequestExpired:
            await self._say(turn, "Nobody answered in time, so I left everything as it is.")
        except ActionFailed as failure:
            await self._say(turn, str(failure.error["message"]))
        return None


def _plain(text: str) -> str:
    """A sentence in lower case, its spaces single, without what ends it."""
    return " ".join(text.lower().split()).rstrip(" .!?")


agent = DemoAgent(Path(os.environ.get(WORKSPACE_VARIABLE) or WORKSPACE_DEFAULT).absolute())
