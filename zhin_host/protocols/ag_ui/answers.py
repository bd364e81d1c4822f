"""Answers: what a client's `resume` says, given to the open requests that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ag_ui.core import ResumeEntry

from zhin_host.errors import BadRequest, NotFound
from zhin_host.ports import Principal
from zhin_host.protocols.ag_ui.request import answer_of, success_of
from zhin_host.store import HttpAgentSessionStore


class Resumption:
    """The answers of one request. They are judged before the first is given.

    Args:
        store: The commands.
        who: Who answers.
        session_id: The thread's session.
        pending: Its open requests, as its view has them.
    """

    def __init__(
        self,
        store: HttpAgentSessionStore,
        who: Principal,
        session_id: str,
        pending: Iterable[Mapping[str, Any]],
    ) -> None:
        self._store = store
        self._who = who
        self._session_id = session_id
        self._kinds = {row["requestId"]: row["kind"] for row in pending}

    async def give(self, entries: Sequence[ResumeEntry]) -> set[str]:
        """Answer the requests; those that were open.

        One that is open no more takes the answer it was given before again, and a cancelled entry for it says
        nothing. A question that is given up cancels the turn: there is no answer for the agent to go on with.

        Raises:
            BadRequest: A payload does not fit what was asked; nothing was answered.
            RequestNotFound: It was cancelled, has expired or never was; no open one was answered.
            RequestAlreadyAnswered: It was answered otherwise; no open one was answered.
        """
        self._check(entries)
        closed = [entry for entry in entries if entry.interrupt_id not in self._kinds]
        opened = [(at, entry) for at, entry in enumerate(entries) if entry.interrupt_id in self._kinds]
        for entry in closed:
            if entry.status == "resolved":
                await self._give_again(entry)
        answered, is_given_up = set(), False
        for at, entry in opened:
            try:
                is_given_up |= await self._give(f"resume.{at}", entry)
            except NotFound:  # it closed meanwhile
                if entry.status == "resolved":
                    raise
            else:
                answered.add(entry.interrupt_id)
        if is_given_up:
            await self._store.cancel(self._who, self._session_id, None)
        return answered

    def _check(self, entries: Sequence[ResumeEntry]) -> None:
        for at, entry in enumerate(entries):
            kind = self._kinds.get(entry.interrupt_id)
            if kind == "authorization":
                success_of(f"resume.{at}", entry)
            elif kind in {"approval", "retry"}:
                answer_of(f"resume.{at}", entry)

    async def _give(self, place: str, entry: ResumeEntry) -> bool:
        """Answer an open request; True where the turn is given up instead."""
        request_id, kind = entry.interrupt_id, self._kinds[entry.interrupt_id]
        if kind == "authorization":
            success, error = success_of(place, entry)
            await self._store.authorize(self._who, request_id, success, error, self._session_id)
        elif kind != "question":
            approved, comment = answer_of(place, entry)
            await self._answer(request_id, {"approved": approved}, comment)
        elif entry.status == "cancelled":
            return True
        else:
            await self._answer(request_id, {"response": entry.payload}, None)
        return False

    async def _give_again(self, entry: ResumeEntry) -> None:
        """Answer a request that is open no more: its kind is not known here, so the payload says it."""
        try:
            approved, comment = answer_of("resume", entry)
            await self._answer(entry.interrupt_id, {"approved": approved}, comment)
        except BadRequest:
            await self._answer(entry.interrupt_id, {"response": entry.payload}, None)

    async def _answer(self, request_id: str, answer: Mapping[str, Any], comment: str | None) -> None:
        await self._store.answer(self._who, self._session_id, request_id, answer, comment)
