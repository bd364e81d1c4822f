"""The web console's files over HTTP: who gets them, with which headers, and what they may not hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.integration.live import Script
from zhin_host import create_agent_session_host
from zhin_host.console import PATH, Console
from zhin_host.http import BearerTokens

ROOT: Final = Path(__file__).parents[2]
STATIC: Final = {
    entry.name: entry.read_text() for entry in files("zhin_host.console").joinpath("static").iterdir()
}
SCRIPTS: Final = sorted(name for name in STATIC if name.endswith(".js"))


def client(*, has_console: bool = True, host: str = "localhost") -> httpx.AsyncClient:
    served = create_agent_session_host(
        Script(),
        authenticator=BearerTokens({"ada": "token-of-ada-0123456789"}),
        pages={PATH: Console()} if has_console else None,
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(served.app), base_url=f"http://{host}:8787")


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/index.html"])
async def test_the_page_needs_no_token_and_holds_nobody_s_data(path: str) -> None:
    async with client() as caller:
        page = await caller.get(path)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = re.findall(r'(?:src|href)="(?!#)([^"]+)"', page.text)
    assert {link.rpartition("/")[2] for link in links} == STATIC.keys() - {
        "index.html"
    }  # all at once, not one by one
    folder = "console/" if path == "/console" else "./"
    assert all(link.startswith(folder) for link in links)


@pytest.mark.parametrize("name", sorted(STATIC))
async def test_every_file_is_served_as_what_it_is_and_nothing_else_may_run(name: str) -> None:
    async with client() as caller:
        reply = await caller.get(f"/console/{name}")
        again = await caller.get(f"/console/{name}", headers={"if-none-match": reply.headers["etag"]})
        head = await caller.head(f"/console/{name}")
    assert reply.status_code == 200
    assert reply.text == STATIC[name]
    assert reply.headers["content-type"].split("/")[0] in {"text", "image"}
    policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cross-origin-opener-policy"] == "same-origin"
    assert reply.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(reply.content))


@pytest.mark.parametrize(
    "path",
    [
        "/console/none.js",
        "/console/../page.py",
        "/console/%2e%2e/page.py",
        "/console/a/b.js",
        "/consoles",
        "/console//",
    ],
)
async def test_what_is_no_file_of_the_console_is_404(path: str) -> None:
    async with client() as caller:
        reply = await caller.get(path)
    assert reply.status_code == 404
    assert reply.json()["error"] == "NOT_FOUND"


async def test_a_file_takes_no_other_method() -> None:
    async with client() as caller:
        reply = await caller.post("/console", json={})
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")


async def test_a_name_that_was_bound_to_the_address_gets_no_console() -> None:
    async with client(host="evil.example") as caller:
        assert (await caller.get("/console")).status_code == 403
    async with client() as caller:
        assert (await caller.get("/console", headers={"origin": "http://evil.example"})).status_code == 403


async def test_a_host_has_no_console_unless_it_is_given_one() -> None:
    async with client(has_console=False) as caller:
        assert (await caller.get("/console")).status_code == 404
        assert (await caller.get("/zhin/v1/health")).status_code == 200


# -- what the files may not hold ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_module_makes_markup_of_text(name: str) -> None:
    sinks = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML|\.srcdoc"
        r"|\beval\(|new Function|javascript:|setTimeout\(\s*[\"'`]|localStorage|document\.cookie|EventSource"
    )
    assert re.search(sinks, STATIC[name]) is None


@pytest.mark.parametrize("name", sorted(STATIC))
def test_no_file_asks_for_anything_from_elsewhere(name: str) -> None:
    text = STATIC[name].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.search(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]", text.replace("// ", "")) is None
    assert re.search(r"@import|url\(", text) is None


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = STATIC["index.html"]
    assert re.findall(r"<script\b[^>]*>([^<]*)</script>", page) == [""]
    assert re.search(r"<style|\sstyle=|\son[a-z]+=", page) is None


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_import_is_a_file_of_the_console_and_names_what_is_there(name: str) -> None:
    for names, source in re.findall(r'^import \{([^}]+)\} from "\./([^"]+)";', STATIC[name], re.MULTILINE):
        for one in names.split(","):
            theirs, _, ours = one.strip().partition(" as ")
            exported = rf"^export (?:async )?(?:const|class|function) {theirs}\b"
            assert re.search(exported, STATIC[source], re.MULTILINE), f"{source} has no {theirs}"
            used = re.findall(rf"\b{ours or theirs}\b", STATIC[name])
            assert len(used) > 1, f"{theirs} is imported for nothing"


def test_the_wheel_holds_every_file(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    built = subprocess.run(
        [uv, "build", "--wheel", "--out-dir", tmp_path, "--quiet", ROOT],
        env=os.environ | {"UV_PYTHON_DOWNLOADS": "never"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if built.returncode != 0 and "hatchling" in built.stderr and "CI" not in os.environ:
        pytest.skip("hatchling cannot be fetched: no wheel is built")
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"zhin_host/console/static/{name}" for name in STATIC} <= set(names)
