"""Wire: one request to the host, tried again where that is safe, and its answer or error (contract section 2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import httpx
import orjson

from zhin_host.client.errors import BadResponse, ClientError, ConnectionLost, GaveUp, Refused, refusal
from zhin_host.client.patience import Patience, Tries

BASE: Final = "/zhin/v1"
HEARTBEAT_S: Final = 15.0
"""What a host sends heartbeats at unless it was set otherwise (contract section 2, Streams)."""

_MISSED: Final = 3  # heartbeats, after which a stream is dead (scenario A8)
_SILENCE_S_MIN: Final = 1.0  # a host with very short heartbeats does not make a slow network look silent
_CONNECT_S: Final = 10.0
_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LOST: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)
_FROM_PROXIES: Final = frozenset({408, 429, 502, 503, 504})


class Wire:
    """Speaks to one host.

    Args:
        http: Its base is the host's address with /zhin/v1.
        patience: How often and how long a request is tried.
        timeout_s: How long one try of a request may wait for the host.
        heartbeat_s: The host's interval of heartbeats; None: what its GET /info says.

    Attributes:
        patience: As given.
    """

    def __init__(
        self, http: httpx.AsyncClient, patience: Patience, timeout_s: float, heartbeat_s: float | None
    ) -> None:
        self.patience = patience
        self._http = http
        self._timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        self._heartbeat_s = heartbeat_s
        self._is_told = heartbeat_s is None

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        is_repeatable: bool = True,
        session_id: str | None = None,
        cursor: int = 0,
    ) -> dict[str, Any]:
        """The JSON of the answer. Transient failures are tried again, with the same bytes and the same key.

        Args:
            method: GET, POST or DELETE.
            path: Under /zhin/v1.
            body: JSON; None sends none.
            key: The Idempotency-Key.
            is_repeatable: Whether a request that the host may have carried out may be sent once more. If not,
                only one that did not reach it, or that it refused, is.
            session_id: For the error that says where it stood.
            cursor: Likewise.

        Raises:
            Refused: The host said no, and trying again would not help.
            BadResponse: Something else than a host answered.
            GaveUp: It was tried for as long as patience lasts.
        """
        tries = Tries(self.patience)
        while True:
            try:
                return await self._once(method, path, body, key)
            except ConnectionLost as error:
                cause: ConnectionLost | Refused = error
                may_repeat = is_repeatable or error.is_unsent
            except Refused as error:
                if not error.is_transient:
                    raise
                cause, may_repeat = error, True
            if not may_repeat or not await tries.pause(cause.retry_after_s):
                raise GaveUp(session_id, cursor, max(tries.count, 1), key=key) from cause

    @asynccontextmanager
    async def stream(
        self, path: str, parameters: Mapping[str, str | int], silence_s: float
    ) -> AsyncIterator[httpx.Response]:
        """The open NDJSON stream, its head checked; its body breaks with ConnectionLost.

        Raises:
            Refused: The host said no.
            ConnectionLost: It was not reached, or the connection broke or was silent for `silence_s`.
            BadResponse: Something else than a host answered.
        """
        timeout = httpx.Timeout(silence_s, connect=_CONNECT_S, pool=_CONNECT_S)
        # Compressed bytes would come when the compressor likes; the host never does it, and nobody else shall.
        headers = {"accept": "application/x-ndjson", "accept-encoding": "identity"}
        try:
            async with self._http.stream(
                "GET", path, params=dict(parameters), headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:  # noqa: PLR2004
                    await response.aread()
                    raise _error_of(response)
                _check_stream(response)
                yield response
        except _LOST as error:
            raise _lost(error) from error

    async def heartbeat_s(self) -> float:
        """The host's interval of heartbeats; it is asked once, and until it has answered 15 s are assumed."""
        if self._heartbeat_s is None:
            try:
                told = (await self._once("GET", "/info", None, None))["limits"]["heartbeat_s"]
                self._heartbeat_s = float(told)
            except (ClientError, KeyError, TypeError, ValueError):
                return HEARTBEAT_S
        return self._heartbeat_s

    def silence_s(self, heartbeat_s: float) -> float:
        """How long a stream may say nothing: three heartbeats."""
        return max(_MISSED * heartbeat_s, _SILENCE_S_MIN) if self._is_told else _MISSED * heartbeat_s

    async def _once(self, method: str, path: str, body: bytes | None, key: str | None) -> dict[str, Any]:
        headers = {} if key is None else {"idempotency-key": key}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            response = await self._http.request(
                method, path, content=body, headers=headers, timeout=self._timeout
            )
        except _LOST as error:
            raise _lost(error) from error
        answer = _object_in(response)
        if response.status_code == 200 and answer.get("ok") is True:  # noqa: PLR2004
            return answer
        raise _error_of(response)


def session_path(session_id: str, rest: str = "") -> str:
    """The path of a session, or of something of it."""
    return f"/session/{quote(session_id, safe='')}{rest}"


def authorization_path(request_id: str) -> str:
    """Where an authorization is completed."""
    return f"/authorization/{quote(request_id, safe='')}/complete"


def _lost(error: httpx.TransportError) -> ConnectionLost:
    what = "fell silent" if isinstance(error, httpx.ReadTimeout) else str(error) or type(error).__name__
    return ConnectionLost(
        f"The connection to the host is lost: {what}.", is_unsent=isinstance(error, _UNSENT)
    )


def _check_stream(response: httpx.Response) -> None:
    kind = response.headers.get("content-type", "")
    encoding = response.headers.get("content-encoding", "identity")
    if not kind.startswith("application/x-ndjson") or encoding != "identity":
        raise BadResponse(
            f"{response.url} answered {kind or 'something'!r:.80}, {encoding!r:.40}, "
            "in place of plain application/x-ndjson; is there a proxy that changes it?"
        )


def _error_of(response: httpx.Response) -> ClientError:
    answer, status = _object_in(response), response.status_code
    retry_after_s = _retry_after_s(response)
    code, message = answer.pop("error", None), answer.pop("message", None)
    if answer.pop("ok", None) is False and isinstance(code, str) and isinstance(message, str):
        return refusal(code, status, message, answer, retry_after_s)
    if status in _FROM_PROXIES:
        return ConnectionLost(
            f"Something before the host answered {status}; the host is not there now.",
            retry_after_s=retry_after_s,
        )
    return BadResponse(
        f"{response.url} answered {status} with {response.headers.get('content-type', 'nothing')!r:.80}, "
        "which no zhin host says; check the address."
    )


def _object_in(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _retry_after_s(response: httpx.Response) -> float | None:
    told = response.headers.get("retry-after", "")
    return float(told) if told.isascii() and told.isdigit() and len(told) <= 6 else None  # noqa: PLR2004
