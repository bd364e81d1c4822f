"""Page: the console's files as an ASGI app. They are the same for everybody and hold no session's data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from zhin_host.errors import RouteNotFound
from zhin_host.http.reply import IS_STARTED

PATH: Final = "/console"

INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
# Nothing that is not a file of ours runs, is shown or is called: what an agent says cannot become more than text.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"cache-control", b"no-cache"),  # kept, and asked about by its ETag: a new release is seen at once
)


@dataclass(frozen=True, slots=True)
class _File:
    """One file as it is sent."""

    content_type: bytes
    body: bytes
    etag: bytes


class Console:
    """The ASGI app; it is to stand behind the host's guard, so that Host and Origin are checked here too.

    Asked for `PATH` it gives the page, under `PATH/` the page and its files. All links are relative, so that the page
    also works where the host is mounted below another path or behind a proxy that adds one.
    """

    def __init__(self) -> None:
        self._files = _read_all()
        page = self._files[INDEX].body
        # Relative links start at the last slash, and this address has none behind it.
        self._bare = _file(INDEX, page.replace(b'="./', b'="console/'))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send the file that the path names.

        Raises:
            RouteNotFound: There is none.
            HTTPException: The method is none for a file.
        """
        file = self._find(scope["path_params"].get("file"))
        if file is None:
            raise RouteNotFound(f"The console has no file {scope['path']!r:.120}; its page is {PATH}.")
        if scope["method"] not in {"GET", "HEAD"}:
            detail = f"{scope['method']:.20} is not for this path; use GET, HEAD."
            raise HTTPException(405, detail, headers={"Allow": "GET, HEAD"})
        is_known = any(name == b"if-none-match" and file.etag in value for name, value in scope["headers"])
        body = b"" if is_known else file.body
        headers = [*_HEADERS, (b"etag", file.etag)]
        if not is_known:
            headers += [(b"content-type", file.content_type), (b"content-length", b"%d" % len(body))]
        scope[IS_STARTED] = True
        await send({"type": "http.response.start", "status": 304 if is_known else 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _find(self, name: str | None) -> _File | None:
        return self._bare if name is None else self._files.get(name or INDEX)


def _read_all() -> dict[str, _File]:
    """Every file of the console by its name. A name that is not here reaches no disk."""
    folder = files(__package__).joinpath("static")
    return {
        entry.name: _file(entry.name, entry.read_bytes())
        for entry in folder.iterdir()
        if PurePosixPath(entry.name).suffix in _TYPES
    }


def _file(name: str, body: bytes) -> _File:
    etag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode("ascii")
    return _File(_TYPES[PurePosixPath(name).suffix], body, etag)
