"""Player: a client that goes through its script whatever happens to the host, and remembers all it was told."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from tests.crash import ledger
from tests.crash.house import DEADLINE_S, House
from tests.crash.log import open_turn, whole_events

_ENDS: Final = ("turn.completed", "turn.failed", "turn.cancelled")
_BLANK: Final = re.compile(rb"^\n", re.MULTILINE)  # heartbeats


class Lost(Exception):
    """The session, or its middle, was lost with the power; what was promised decides whether it may be.

    Attributes:
        status: 404: the session is gone; 503: an event in its middle is.
        body: What the answer said.
    """

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Told:
    """Something that a 2xx promised: an event of this type in which the fields have these values.

    Attributes:
        index: Where it stands, or before it.
    """

    kind: str
    fields: Mapping[str, Any]
    index: int = 0


@dataclass
class Memory:
    """What one client knows of its session.

    Attributes:
        streams: Each stream's start index and its bytes as they came.
        told: What was promised.
        recorded: callId -> bytes of the ledger when a death found its result in the log.
        lives_lost: Deaths that found the session's turn open: running and parked.
    """

    streams: list[tuple[int, bytearray]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    recorded: dict[str, int] = field(default_factory=dict)
    running: int = 0
    parked: int = 0


class Player:
    """One client and its one session.

    Args:
        house: Where the hosts are.
        agent: Which agent the session is of.
        name: Makes its Idempotency-Keys its own.
        forgets: What a reader saw may be gone with the power.
        may_be_lost: As the attribute.

    Attributes:
        may_be_lost: The power is cut: the session, or its middle, may be gone, which raises Lost.
        answers: Prompt -> what a person says; every other approval is granted, every question answered "red".
        says_again: A turn that ended with the host is sent again.
        thinks_s: How long a person takes before each answer.
    """

    def __init__(
        self, house: House, agent: str, name: str, *, forgets: bool = False, may_be_lost: bool = False
    ) -> None:
        self.house = house
        self.agent = agent
        self.name = name
        self.memory = Memory()
        self.session_id = ""
        self.answers: dict[str, bool] = {}
        self.says_again = False
        self.thinks_s: Callable[[], float] = lambda: 0.0
        self._forgets = forgets
        self.may_be_lost = may_be_lost
        self._token = ""
        self._turn_id = ""
        self._message = ""
        self._cancels = False
        self._events: list[dict[str, Any]] = []  # what was read, index for index
        self._deaths = 0
        self._keys = itertools.count()

    @property
    def repeated(self) -> int:
        """How many of its actions began more than once."""
        begun = Counter(entry.call_id for entry in ledger.read(self.ledger) if entry.what == "begun")
        return sum(count > 1 for count in begun.values())

    @property
    def _troubles(self) -> int:
        """How often an answer was lost, or said that storage failed."""
        return self.house.deaths + len(self.house.refusals)

    @property
    def log(self) -> Path:
        return self.house.directory / f"{self.session_id}.ndjson"

    @property
    def ledger(self) -> Path:
        return self.house.ledger / self.session_id

    # -- what a script is made of ---------------------------------------------------------------------------

    async def say(self, message: str, on_busy: str | None = None) -> None:
        """Start the session with a message, or go on in it; accepted exactly once."""
        self._message = message
        self._cancels = on_busy == "interrupt"
        key = {"Idempotency-Key": f"{self.name}-{next(self._keys)}"}
        if not self.session_id:
            body: dict[str, Any] = {"message": message, "agent": self.agent}
            answer = await self._post("/session", body, key)
            self.session_id = answer["sessionId"]
        else:
            body = {"message": message, "continuationToken": self._token}
            if on_busy is not None:
                body["onBusy"] = on_busy
            answer = await self._follow_up(f"/session/{self.session_id}", body, key)
        self._accept(answer)

    async def resume(self) -> None:
        """Have the failed turn tried again; a lost answer is known by the token that it made stale.

        So is a refusal: what was written and could not be synced is 503, and there all the same once it can.
        """
        path, troubles = f"/session/{self.session_id}/resume", self._troubles
        response = await self.house.request("POST", path, json={"continuationToken": self._token})
        if response.status_code == httpx.codes.CONFLICT and self._troubles > troubles:
            await self._catch_up()
            began = next(event["data"] for event in reversed(self._events) if event["type"] == "turn.started")
            if began.get("resumes") != self._turn_id:
                self.fault(f"the token is stale and no turn resumes {self._turn_id}: {began}")
            self._token, self._turn_id = began["continuationToken"], began["turnId"]
            return
        self._accept(self._ok(response))

    async def cancel(self) -> None:
        """Cancel the open turn; one that too many crashes have ended is resumed, and then cancelled."""
        self._cancels = True
        path, deaths = f"/session/{self.session_id}/cancel", self.house.deaths
        while True:
            answer = self._ok(await self.house.request("POST", path, json={"turnId": self._turn_id}))
            if answer["status"] == "accepted":
                self._was_told("turn.cancelling", turnId=self._turn_id)
                return
            await self._catch_up()
            if self._last_end().get("code") != "RECOVERY_EXHAUSTED":
                break
            await self.resume()
        if self.house.deaths == deaths and not self.house.refusals:
            self.fault(f"the turn {self._turn_id} was open and is told to be none")

    async def settle(self) -> None:
        """Answer what is asked, resume what crashes exhausted, and wait until the session rests."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                view = await self.view()
                if view["status"] == "running":
                    await self.follow()
                elif view["parked"]:
                    await asyncio.sleep(self.thinks_s())
                    await self._answer_all(view["pendingRequests"])
                    await asyncio.sleep(0)
                    await self.follow()
                else:
                    await self._read("tail")
                    if len(self._events) >= view["cursor"] and not await self._goes_on():
                        return

    async def until_parked(self) -> None:
        """Wait until the session asks something, or rests."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                view = await self.view()
                if view["status"] == "running":
                    await self.follow()
                elif view["parked"]:
                    return
                else:
                    await self._read("tail")
                    if len(self._events) >= view["cursor"] and not await self._goes_on():
                        return

    async def until_seen(self, kind: str) -> None:
        """Read until an event of this type has come since the last message was accepted."""
        async with asyncio.timeout(DEADLINE_S):
            while not any(event["type"] == kind for event in self._of_turn()):
                await self._read("boundary", kind)
                await self._goes_on()

    async def until_forgotten(self) -> None:
        """Wait until the parked turn has left the host's memory, as its mark says; a while at most."""
        mark = self.house.directory / f"{self.session_id}.open"
        for _ in range(40):
            if mark.exists() and mark.read_bytes().startswith(b"parked"):
                return
            await asyncio.sleep(0.02)

    def change_the_world(self) -> None:
        """Whatever was broken outside is mended now."""
        self.house.ledger.joinpath(f"{self.session_id}.world").touch()

    async def follow(self) -> None:
        """Read on from the cursor until the session rests or the host dies."""
        await self._read("boundary")

    async def view(self) -> dict[str, Any]:
        """GET the session, as of now."""
        view = self._ok(await self.house.request("GET", f"/session/{self.session_id}"))
        if self.may_be_lost and "brokenAt" in view:
            raise Lost(503, {"error": "STORAGE_UNAVAILABLE", "index": view["brokenAt"]})
        return view

    # -- inside: commands -----------------------------------------------------------------------------------

    async def _follow_up(self, path: str, body: dict[str, Any], key: dict[str, str]) -> dict[str, Any]:
        deaths = self.house.deaths
        response = await self.house.request("POST", path, json=body, headers=key)
        if (
            response.status_code == httpx.codes.CONFLICT
            and response.json()["error"] == "CONTINUATION_TOKEN_STALE"
            and self.house.deaths > deaths
        ):  # the turn was cut off before its message: its token counts, its key is free again
            view = await self.view()
            return await self._post(path, {**body, "continuationToken": view["continuationToken"]}, key)
        return self._ok(response)

    async def _post(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        return self._ok(await self.house.request("POST", path, json=body, headers=headers))

    def _ok(self, response: httpx.Response) -> dict[str, Any]:
        answer: dict[str, Any] = response.json()
        if self.may_be_lost and response.status_code in (404, 503):
            raise Lost(response.status_code, answer)
        if response.status_code != httpx.codes.OK:
            request = response.request
            raise AssertionError(f"{request.method} {request.url.path}: {response.status_code} {answer}")
        return answer

    def _accept(self, answer: dict[str, Any]) -> None:
        self._token, self._turn_id = answer["continuationToken"], answer["turnId"]
        kind = "message.queued" if answer.get("queued") else "turn.started"
        fields = {"turnId": self._turn_id, "continuationToken": self._token}
        self.memory.told.append(Told(kind, fields, answer["startIndex"]))

    async def _answer_all(self, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            if request["kind"] == "authorization":
                await self._answer(request, {"success": True})
            elif request["kind"] == "question":
                await self._answer(request, {"response": "red"})
            else:
                await self._answer(request, {"approved": self.answers.get(request["prompt"], True)})

    async def _answer(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        """Give it, and remember it once it is acknowledged."""
        deaths = self.house.deaths
        if request["kind"] == "authorization":
            path, body = f"/authorization/{request['requestId']}/complete", answer
        else:
            path, body = f"/session/{self.session_id}/input", {**answer, "requestId": request["requestId"]}
        response = await self.house.request("POST", path, json=body)
        is_over = self.says_again or self.may_be_lost or self._cancels
        if response.status_code == httpx.codes.NOT_FOUND and (is_over or self.house.deaths > deaths):
            return  # closed with its host, lost with the power, or being cancelled: the view will tell
        self._ok(response)
        kind = "authorization.completed" if request["kind"] == "authorization" else "input.completed"
        self._was_told(kind, requestId=request["requestId"], **answer)

    async def _goes_on(self) -> bool:
        """Whether the turn that ended last was not the script's to end so, and another one was begun."""
        code = self._last_end().get("code")
        if code == "RECOVERY_EXHAUSTED":
            await self.resume()
            return True
        if code == "HOST_RESTARTED" and self.says_again:
            self._token = (await self.view())["continuationToken"]
            await self.say(self._message)
            return True
        return False

    def _last_end(self) -> dict[str, Any]:
        """The data of the end of the turn that was begun last; {} while it was not read."""
        ends = (event["data"] for event in reversed(self._events) if event["type"] in _ENDS)
        return next((data for data in ends if data["turnId"] == self._turn_id), {})

    async def _catch_up(self) -> None:
        """Read all there is now."""
        cursor = -1
        while len(self._events) < cursor or cursor < 0:
            cursor = (await self.view())["cursor"]
            await self._read("tail")

    def _was_told(self, kind: str, **fields: Any) -> None:
        self.memory.told.append(Told(kind, fields))

    def fault(self, what: str) -> None:
        """Remember something that must not be."""
        self.house.faults.append(f"{self.name} ({self.session_id}): {what}")

    # -- inside: reading ------------------------------------------------------------------------------------

    def _of_turn(self) -> list[dict[str, Any]]:
        """What was read since the last accepted message."""
        began = next(
            (
                at
                for at, event in enumerate(self._events)
                if event["type"] == "turn.started" and event["data"]["turnId"] == self._turn_id
            ),
            len(self._events),
        )
        return self._events[began:]

    async def _read(self, until: str, enough: str | None = None) -> None:
        """One stream from the cursor; what comes is remembered byte for byte."""
        if self._forgets and self.house.deaths > self._deaths:
            self._events.clear()  # seen and lost, maybe: it reads again from the start
        self._deaths = self.house.deaths
        start = len(self._events)
        got = bytearray()
        self.memory.streams.append((start, got))
        params = {"startIndex": start, "until": until}
        async with aclosing(self.house.parts(f"/session/{self.session_id}/stream", params)) as parts:
            async for part in parts:
                got += part
                self._take(start, got)
                if enough is not None and any(event["type"] == enough for event in self._of_turn()):
                    return

    def _take(self, start: int, got: bytearray) -> None:
        """Parse the whole lines that are new."""
        lines = _BLANK.sub(b"", bytes(got)).split(b"\n")[:-1]
        for line in lines[len(self._events) - start :]:
            event = orjson.loads(line)
            if event["index"] != len(self._events):
                self.fault(f"a stream from {start} gave {event['index']} where {len(self._events)} was due")
            self._events.append(event)

    def look_after_death(self) -> tuple[bool, bool]:
        """Note what the log holds of the dead host's work, before another one begins.

        Returns:
            Whether it left the session's turn running, and whether parked.
        """
        if not self.session_id or not self.log.exists():
            return False, False
        if self._forgets:
            self.memory.streams.clear()
        if self.may_be_lost:
            self.memory.recorded.clear()
        events = whole_events(self.log)
        size = ledger.size_of(self.ledger)
        retried = {event["data"].get("callId") for event in events if event["type"] == "turn.failed"}
        for event in events:
            if event["type"] == "action.result" and event["data"]["status"] != "cancelled":
                call_id = event["data"]["callId"]
                if call_id not in retried:
                    self.memory.recorded.setdefault(call_id, size)
        is_open, is_parked = open_turn(events)
        is_running = is_open and not is_parked
        self.memory.parked += is_parked
        self.memory.running += is_running
        return is_running, is_parked
