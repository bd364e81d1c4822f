"""An app with a login of its own, and two agents in it, under /agents.

uvicorn examples.mounted:app
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, Depends, FastAPI, HTTPException, Response
from starlette.requests import HTTPConnection

from zhin_host import Principal, SyncTurn, ToolDenied, Turn, create_agent_session_host, tool
from zhin_host.console import PATH, Console

PEOPLE = {"ada": "correct horse", "bob": "battery staple"}  # yours are in a database, and no password is
logins: dict[str, str] = {}  # what is in the cookie -> who that is, until this process ends


@tool(approval="always", repeatable=False)
async def refund(order: str) -> str:
    """Pay an order back."""
    return f"order {order} is paid back"


class Support:
    """Pays back the order that the message names, if a person allows it."""

    tools = (refund,)  # told in GET /info

    async def __call__(self, turn: Turn) -> str:
        """One turn; what it returns is said."""
        try:
            return str(await turn.call_tool(refund, order=turn.message.split()[-1]))
        except ToolDenied:
            return "That is not paid back."


def counter(turn: SyncTurn) -> str:
    """A plain function; it runs in a thread."""
    return f"{len(turn.message.split())} words, {len(turn.history())} messages before."


def current_user(connection: HTTPConnection) -> str:
    """Who has logged in; a dependency, as the app's own routes have it.

    Raises:
        HTTPException: Nobody has.
    """
    name = logins.get(connection.cookies.get("login", ""))
    if name is None:
        raise HTTPException(401, "Log in: POST your name and password to /login.")
    return name


async def caller_of(connection: HTTPConnection) -> Principal:
    """The same for the host: sessions belong to whoever has logged in."""
    return Principal(current_user(connection))


host = create_agent_session_host(
    {"support": Support(), "counter": counter},
    data_dir="data/mounted-sessions",
    authenticator=caller_of,
    pages={PATH: Console()},
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """The host lives as long as the app: mounts hear nothing of an app's lifespan."""
    async with host:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/agents", host.app)


@app.post("/login")
def login(name: Annotated[str, Body()], password: Annotated[str, Body()], response: Response) -> str:
    """Log in; the cookie is what the browser shows from then on."""
    if not secrets.compare_digest(PEOPLE.get(name, secrets.token_hex()).encode(), password.encode()):
        raise HTTPException(401, "That is not the password.")
    cookie = secrets.token_urlsafe(32)
    logins[cookie] = name
    response.set_cookie("login", cookie, httponly=True, samesite="strict")
    return name


@app.get("/")
def home(user: Annotated[str, Depends(current_user)]) -> str:
    """A route of the app's own."""
    return f"Hello {user}; the agents are at /agents{PATH}."
