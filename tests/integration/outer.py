"""Apps of Starlette and FastAPI that somebody has, with a login of their own, and the host mounted in them."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from tests.e2e.process import environment

ROOT: Final = Path(__file__).parents[2]
PREFIX: Final = "/a/b"
DEADLINE_S: Final = 30
COMMON: Final = '''
from contextlib import asynccontextmanager
from starlette.requests import HTTPConnection
from zhin_host import Principal, create_agent_session_host, tool
from zhin_host.console import PATH, Console

@tool(approval="always")
def publish(page: str) -> str:
    """Publish a page."""
    with open("published.txt", "a") as file:
        file.write(page + "\\n")
    return "/" + page

async def publisher(turn):
    await turn.say("Wait. ")
    return await turn.call_tool(publish, page=turn.message)

def echo(turn):
    return turn.message

LOGINS = {"ada-login": "ada", "bob-login": "bob"}

host = create_agent_session_host(
    {"publisher": publisher, "echo": echo},
    data_dir=DIRECTORY,
    authenticator=CALLER_OF,
    pages={PATH: Console()},
    allowed_hosts=["app.example"],
    allowed_origins=["https://desk.example"],
)

@asynccontextmanager
async def lifespan(app):
    async with host:
        yield
'''
STARLETTE: Final = (
    """
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from zhin_host import Unauthorized

async def caller_of(connection):
    if not connection.user.is_authenticated:
        raise Unauthorized("Log in at /login.")
    return Principal(connection.user.display_name)
"""
    + COMMON.replace("CALLER_OF", "caller_of")
    + """
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

class Logins(AuthenticationBackend):
    async def authenticate(self, connection):
        name = LOGINS.get(connection.cookies.get("login"))
        return None if name is None else (AuthCredentials(["authenticated"]), SimpleUser(name))

async def teapot(request, error):
    return PlainTextResponse("not of the host", 418)

app = Starlette(
    routes=[Mount("/a", routes=[Mount("/b", host.app)]), Route("/", lambda request: PlainTextResponse("app"))],
    lifespan=lifespan,
    middleware=[Middleware(GZipMiddleware, minimum_size=1), Middleware(AuthenticationMiddleware, backend=Logins())],
    exception_handlers={404: teapot, 405: teapot, 500: teapot, Exception: teapot},
)
"""
)
FASTAPI: Final = (
    '''
from typing import Annotated
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse
from starlette.requests import HTTPConnection

def current_user(connection: HTTPConnection) -> str:
    """The dependency that the app's own routes have."""
    name = LOGINS.get(connection.cookies.get("login"))
    if name is None:
        raise HTTPException(401, "Log in at /login.")
    return name

async def caller_of(connection):
    return Principal(current_user(connection))
'''
    + COMMON.replace("CALLER_OF", "caller_of")
    + """
app = FastAPI(lifespan=lifespan)
origins = ["https://spa.example", "https://desk.example"]
app.add_middleware(CORSMiddleware, allow_origins=origins, allow_credentials=True)

@app.middleware("http")
async def timed(request: Request, call_next):
    response = await call_next(request)
    response.headers["x-app"] = "yes"
    return response

@app.exception_handler(404)
@app.exception_handler(Exception)
async def teapot(request, error):
    return PlainTextResponse("not of the host", 418)

@app.get("/")
def root(user: Annotated[str, Depends(current_user)]) -> str:
    return user

app.mount("/a/b", host.app)
"""
)


def write_app(folder: Path, source: str, data_dir: Path) -> None:
    """Put the app into the folder; its host's sessions are in the directory."""
    (folder / "outer.py").write_text(source.replace("DIRECTORY", repr(str(data_dir))))


class App:
    """An app under uvicorn, as a process; `client` speaks to the host in it as ada, who has logged in."""

    def __init__(self, folder: Path, app: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", app, "--port", "0"],
            cwd=folder,
            env=environment(PYTHONPATH=str(ROOT)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.errors = ""
        while (match := re.search(r"running on (http://[0-9.:]+)", self.errors)) is None:
            line = self.process.stderr.readline()
            assert line, self.errors
            self.errors += line
        self.url = match[1]
        self.client = self.client_of("ada")

    def client_of(self, name: str) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.url}{PREFIX}/zhin/v1", timeout=DEADLINE_S, cookies={"login": f"{name}-login"}
        )

    def start(self, message: str, agent: str = "publisher") -> dict[str, Any]:
        response = self.client.post("/session", json={"message": message, "agent": agent})
        assert response.status_code == 200, response.text
        return dict(response.json())

    def events(self, session_id: str, start: int = 0) -> list[dict[str, Any]]:
        response = self.client.get(f"/session/{session_id}/stream", params={"startIndex": start})
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.content.split(b"\n") if line]

    def stop(self) -> None:
        """Ask it to end, and see that it does without a complaint."""
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=DEADLINE_S)
        assert "Traceback" not in self.errors + rest, self.errors + rest


@contextlib.contextmanager
def running(folder: Path, app_name: str = "outer:app") -> Iterator[App]:
    """The app that is named, the folder being searched first; killed at the end of the block."""
    app = App(folder, app_name)
    try:
        yield app
    finally:
        app.client.close()
        app.process.kill()
        app.process.communicate()
