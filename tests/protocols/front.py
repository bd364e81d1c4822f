"""Front: a front end with the real AG-UI client, as a process of its own that outlives hosts."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.docs.blocks import ROOT
from tests.protocols import javascript

EXAMPLE: Final = ROOT / "examples" / "ag_ui"
_ids = itertools.count(1)


def folder_in(parent: Path) -> Path:
    """A folder with the example's files and the packages, as a front end's own."""
    folder = parent / "front"
    folder.mkdir(exist_ok=True)
    for source in (*EXAMPLE.glob("*.mjs"), javascript.FOLDER / "ag_ui.mjs"):
        shutil.copy(source, folder)
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(javascript.FOLDER / "node_modules")
    return folder


class Front:
    """One client of one thread, with its schema checks on.

    Args:
        folder: Of `folder_in`.
        url: The agent's, below /ag-ui.
        thread_id: What it calls its thread.
        token: Who it is.
    """

    def __init__(self, folder: Path, url: str, thread_id: str = "thread", token: str | None = None) -> None:
        self._process = subprocess.Popen(
            [str(javascript.NODE), "ag_ui.mjs"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.do("open", url=url, threadId=thread_id, token=token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def do(self, action: str, **given: Any) -> None:
        """Have it do something, and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": action, **given}) + "\n")
        self._process.stdin.flush()

    def line(self) -> dict[str, Any]:
        """The next thing that it was told; it must not have warned of anything."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        told: dict[str, Any] = json.loads(line)
        assert "warned" not in told, told
        return told

    def until(self, kind: str) -> dict[str, Any]:
        """The next event of this type."""
        while True:
            told = self.line()
            assert "event" in told, told
            event: dict[str, Any] = told["event"]
            if event["type"] == kind:
                return event

    def ended(self) -> list[dict[str, Any]]:
        """The events up to the end of the run, which the client must have taken."""
        events = []
        while "event" in (told := self.line()):
            events.append(told["event"])
        assert "done" in told, told
        return events

    def failed(self) -> dict[str, Any]:
        """How the run failed, as the client tells it."""
        while "event" in (told := self.line()):
            pass
        assert "failed" in told, told
        return told

    # -- short words -----------------------------------------------------------------------------------------------

    def say(self, text: str) -> list[dict[str, Any]]:
        """Say something; the events of the run that answers."""
        self.begin(text)
        return self.ended()

    def begin(self, text: str) -> None:
        self.do("say", id=f"said-{next(_ids)}", text=text)

    def connect(self) -> list[dict[str, Any]]:
        """Read the thread again; the events."""
        self.do("connect")
        return self.ended()

    def resume(self, *payloads: Any) -> list[dict[str, Any]]:
        """Answer the open interrupts in order; None gives one up."""
        self.do("run", resume=self.answers(*payloads))
        return self.ended()

    def answers(self, *payloads: Any) -> list[dict[str, Any]]:
        """The entries that answer the open interrupts in order."""
        waiting = self.shown["pending"]
        assert len(waiting) == len(payloads)
        return [
            {"interruptId": row["id"], "status": "cancelled"}
            if payload is None
            else {"interruptId": row["id"], "status": "resolved", "payload": payload}
            for row, payload in zip(waiting, payloads, strict=True)
        ]

    @property
    def shown(self) -> dict[str, Any]:
        """What a page would show now: messages, state and pending interrupts."""
        self.do("show")
        return self.line()

    @property
    def text(self) -> list[str]:
        """Who says what, in order; calls and results too."""
        return [_told(message) for message in self.shown["messages"]]


def _told(message: dict[str, Any]) -> str:
    calls = "".join(f"({call['function']['name']})" for call in message.get("toolCalls", ()))
    return f"{message['role']}: {message.get('content', '')}{calls}"


def types(events: list[dict[str, Any]]) -> list[str]:
    """Their types, each row of deltas once."""
    found = [event["type"] for event in events]
    return [kind for kind, _ in itertools.groupby(found)]
