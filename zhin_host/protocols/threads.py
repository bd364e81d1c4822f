"""Threads: a protocol's conversations as sessions, found by a key that stands in their ids: a restart forgets none."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from zhin_host.errors import IdempotencyConflict
from zhin_host.intake import Accepted, Key, Message, OnBusy
from zhin_host.ports import Principal, Right
from zhin_host.store import HttpAgentSessionStore

_KEY = re.compile(r"[\x21-\x7e]{1,255}")  # what an Idempotency-Key may be
RUN_ID: Final = "runId"
"""In the session's metadata: what named the message that began the thread."""

_THREAD_ID: Final = "threadId"


class Threads:
    """Finds and continues the threads of one protocol; a thread is its caller's own, whatever others call theirs.

    Args:
        store: The host's commands.
        protocol: The protocol's name, which keeps its threads apart from others'.
    """

    def __init__(self, store: HttpAgentSessionStore, protocol: str) -> None:
        self._store = store
        self._protocol = protocol

    async def find(self, who: Principal, right: Right, agent: str, thread_id: str) -> str | None:
        """The session of a thread; None when there is none yet.

        Raises:
            StorageUnavailable: Its log cannot be read now.
        """
        return await self._store.find_made(who, right, self._key(agent, thread_id))

    async def send(  # noqa: PLR0917 - all that a message comes with
        self,
        who: Principal,
        agent: str,
        thread_id: str,
        run_id: str,
        message: Message,
        digest: str,
        on_busy: OnBusy = "reject",
    ) -> Accepted:
        """A message of a thread: its session begins, or goes on with a turn. The same run again is the same turn.

        Args:
            who: The caller.
            agent: The hosted agent's name.
            thread_id: What the client calls the conversation.
            run_id: What names this message among the thread's.
            message: The message.
            digest: Names what the request says, so that the same run with another body is refused.
            on_busy: What becomes of it while a turn is open.

        Raises:
            RequestError: As POST /session and POST /session/{id} say; IdempotencyConflict for a run that said something
                else before.
        """
        session_id = await self.find(who, "write", agent, thread_id)
        if session_id is None:
            try:
                return await self._begin(who, agent, thread_id, run_id, message, digest)
            except IdempotencyConflict:  # a twin began the thread with another message meanwhile
                session_id = await self.find(who, "write", agent, thread_id)
                if session_id is None:
                    raise
        view = await self._store.view(who, session_id)
        if (view["metadata"] or {}).get(RUN_ID) == run_id:  # the run that began it
            return await self._begin(who, agent, thread_id, run_id, message, digest)
        key = Key(_visible(run_id), digest)
        token = view["continuationToken"]
        return await self._store.proceed(who, session_id, token, message, on_busy, key)

    def is_of_run(self, view: Mapping[str, Any], key: str | None, run_id: str) -> bool:
        """Whether the turn that came with this Idempotency-Key is the run's; `view` is the thread's session."""
        metadata = view["metadata"] or {}
        begun_by, thread_id = metadata.get(RUN_ID), metadata.get(_THREAD_ID)
        if key == self._key(view["agent"], str(thread_id)):
            return bool(begun_by == run_id)
        return key == _visible(run_id)

    async def _begin(  # noqa: PLR0917 - as `send`
        self, who: Principal, agent: str, thread_id: str, run_id: str, message: Message, digest: str
    ) -> Accepted:
        metadata = {"protocol": self._protocol, _THREAD_ID: thread_id, RUN_ID: run_id}
        key = Key(self._key(agent, thread_id), digest)
        return await self._store.start(who, message, metadata, agent, key)

    def _key(self, agent: str, thread_id: str) -> str:
        return _visible(f"{self._protocol}/{agent}/{thread_id}")


def _visible(text: str) -> str:
    """The text as a key may be: as it is where it can be one, else its digest."""
    if _KEY.fullmatch(text):
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
