"""Chat: a conversation in a terminal, or of lines from a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from zhin_host import events as ev
from zhin_host.cli.exits import FAILED, Asked, Failure
from zhin_host.cli.live.asking import Answer, answer_of, how_to_answer, question_of, request_rows
from zhin_host.cli.live.connection import LONG, SHORT, Watch, connected, is_person_here
from zhin_host.cli.live.eventjson import event_json
from zhin_host.cli.live.interrupts import Interrupts
from zhin_host.cli.live.screen import Screen, said_by_somebody
from zhin_host.cli.remote import Remote
from zhin_host.client import (
    ContinuationTokenStale,
    Request,
    RequestAlreadyAnswered,
    RequestNotFound,
    SessionBusy,
    SyncClient,
    SyncSession,
    View,
    fold,
)

_MANY: Final = 5_000  # events: reading them takes a moment, so it is said


class Leave(Exception):
    """The person wants to go."""


def chat(
    remote: Remote, *, session_id: str | None, agent: str | None, always: bool | None, as_json: bool
) -> None:
    """Talk until the lines, the session or the person's patience end.

    Args:
        remote: The host.
        session_id: The session to go on with; None: a new one begins with the first message.
        agent: Who a new session is with; None: the host's first agent.
        always: What approvals and retries are answered with; None: the person is asked.
        as_json: Whether events are printed as JSON lines, and nobody is asked.

    Raises:
        Failure: The host refused or is not reached; a turn failed or asks, and nobody is there to answer.
    """
    with connected(remote, Watch(SHORT)) as client:  # whether a host is there is known soon
        info = client.info()
    tools = {tool["name"]: tool for row in info["agents"] for tool in row["tools"]}
    watch = Watch(LONG)
    with connected(remote, watch) as client:
        talk = Talk(client, tools, watch, agent=agent, always=always, as_json=as_json)
        try:
            if session_id is not None:
                talk.go_on_with(session_id)
            talk.run()
        except (Leave, KeyboardInterrupt):
            pass
        finally:
            talk.screen.end_line()
            talk.say_how_to_go_on(remote)


class Talk:
    """One conversation."""

    def __init__(
        self,
        client: SyncClient,
        tools: Mapping[str, Mapping[str, Any]],
        watch: Watch,
        *,
        agent: str | None,
        always: bool | None,
        as_json: bool,
    ) -> None:
        self._client = client
        self._tools = tools
        self._watch = watch
        self._agent = agent
        self._always = always
        self._as_json = as_json
        self._is_person = is_person_here() and not as_json
        self.screen = Screen(is_person=self._is_person)
        self._session: SyncSession | None = None
        self._view = View()
        self._mine: set[str] = set()

    def go_on_with(self, session_id: str) -> None:
        """Read what there is, show the last of it, and take part in what is open."""
        session = self._session = self._client.open(session_id)
        tail = session.refresh()["cursor"]
        if tail >= _MANY:
            click.echo(f"Reading {tail} events…", err=True)
        with session.events(0, until="tail") as events:
            for event in events:
                self._view = fold(self._view, event)
        turn = self._view.turn
        if turn is not None and not self._as_json:
            self._mine.add(turn.turn_id)
            self.screen.note(f"Going on with session {session_id}, {len(self._view.turns)} turns so far.")
            self.screen.show_before(turn)
        self._follow()

    def run(self) -> None:
        """Send line after line."""
        if self._is_person:
            self.screen.note("Ctrl-C cancels what the agent does, and leaves when it does nothing.")
        while self._view.outcome is None:
            line = self._next_line()
            if line is None:
                return
            if line.strip():
                self._send(line)
                self._follow()
                self._check()

    def say_how_to_go_on(self, remote: Remote) -> None:
        """The session's id and the command that goes on with it, on stderr."""
        if self._session is None:
            return
        told = f"Session {self._session.session_id}"
        if self._view.outcome is None:
            command = f"zhin-host chat --session {self._session.session_id}{remote.more_options}"
            told += f"; go on with: {command}"
        click.echo(told, err=True)

    # -- one message ---------------------------------------------------------------------------------------------------

    def _next_line(self) -> str | None:
        if self._is_person:
            with contextlib.suppress(EOFError):
                return _asked("> ")
            self.screen.rows("")
            return None
        line = sys.stdin.buffer.readline()
        return line.decode("utf-8", "replace").removesuffix("\n") if line else None

    def _send(self, line: str) -> None:
        if self._session is None:
            self._session = self._client.start(line, agent=self._agent)
            self._mine.add(self._session.turn.turn_id)
            return
        try:
            turn = self._session.send(line)
        except SessionBusy:  # somebody else's turn: it is followed to its end first
            self._follow()
            turn = self._session.send(line)
        except ContinuationTokenStale:
            self._session.refresh()
            sentence = (
                "Somebody else went on with the session, so this was not sent; read on, then send it again."
            )
            if not self._is_person:
                raise Failure(sentence) from None
            self.screen.note(sentence, "yellow")
            return
        self._mine.add(turn.turn_id)

    def _follow(self) -> None:
        """Show events until the session rests; what it asks is asked on the way."""
        assert self._session is not None  # noqa: S101 - a message was sent, or a session opened
        with Interrupts(self._cancel) as interrupts:
            while True:
                with self._session.events() as events:
                    for event in events:
                        self._show(event)
                if not self._view.open_requests:
                    break
                for request in self._view.open_requests:
                    if not self._answer(request, interrupts):
                        break  # the turn is being cancelled, and what else it asks with it
        self.screen.end_line()

    def _check(self) -> None:
        """End where nobody is there to see that the turn failed: what comes next may depend on it."""
        turn = self._view.turn
        if not self._is_person and turn is not None and turn.status in ("failed", "cancelled"):
            raise click.exceptions.Exit(FAILED)

    def _show(self, event: ev.Event) -> None:
        self._watch.heard()
        self._view = fold(self._view, event)
        if self._as_json:
            click.echo(event_json(event))
            return
        if event.type == ev.MESSAGE_RECEIVED and event.data["turnId"] not in self._mine:
            self.screen.note(said_by_somebody(event))
        self.screen.show(event)

    def _cancel(self) -> None:
        turn = self._view.turn
        if self._watch.is_away:
            click.echo("The turn is cancelled when the host is back; Ctrl-C again leaves at once.", err=True)
        if self._session is not None:
            self._session.cancel(turn.turn_id if turn is not None and turn.is_open else None)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def _answer(self, request: Request, interrupts: Interrupts) -> bool:
        """Answer it as told beforehand or as the person says; False when Ctrl-C cancelled the turn instead."""
        assert self._session is not None  # noqa: S101 - it asks
        try:
            answer = self._answer_to(request, interrupts)
        except KeyboardInterrupt:
            self.screen.rows("")
            self._cancel()
            return False
        try:
            self._session.answer(request, **answer)
        except (RequestAlreadyAnswered, RequestNotFound) as error:  # somebody was faster; the events tell
            self.screen.note(str(error), "yellow")
        return True

    def _answer_to(self, request: Request, interrupts: Interrupts) -> Answer:
        if self._always is not None and request.kind in ("approval", "retry"):
            return {"approved": self._always}
        if not self._is_person:
            raise Asked(
                f"The agent asks, and nobody is here to answer: {request.prompt:.200} {how_to_answer(request)}"
            )
        self.screen.rows(*request_rows(request, self._tools))
        while True:
            try:
                with interrupts.asking():
                    answer = answer_of(request, _asked("  " + question_of(request)))
            except EOFError:
                self.screen.rows("", "It waits for an answer.")
                raise Leave from None
            if answer is not None:
                return answer


def _asked(prompt: str) -> str:
    """A line that the person types, with the editing and the history that the machine has."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - its import changes what input() does
    sys.stdout.flush()
    return input(prompt).encode("utf-8", "replace").decode()  # a terminal may send what is no character
