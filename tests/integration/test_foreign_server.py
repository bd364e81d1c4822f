"""The app under somebody else's server, alone and mounted: it stops as cleanly as under its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

_DEADLINE_S = 30
_ALONE = """
from zhin_host import create_agent_session_host


async def agent(turn):
    await turn.say("Wait. ")
    await turn.approve("Sure?")


host = create_agent_session_host(agent, data_dir=DIRECTORY)
app = host.app
"""
_MOUNTED = (
    _ALONE
    + """
from starlette.applications import Starlette
from starlette.routing import Mount

app = Starlette(routes=[Mount("/agents", app)])
"""
)


@pytest.mark.parametrize(
    ("source", "prefix"), [(_ALONE, ""), (_MOUNTED, "/agents")], ids=["alone", "mounted"]
)
def test_a_foreign_uvicorn_stops_with_a_stream_open_and_a_turn_parked(
    data_dir: Path, tmp_path: Path, source: str, prefix: str
) -> None:
    (tmp_path / "foreign.py").write_text(source.replace("DIRECTORY", repr(str(data_dir))))
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "foreign:app", "--port", "0", "--app-dir", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        said = ""
        while (match := re.search(r"running on (http://[0-9.:]+)", said)) is None:
            line = server.stderr.readline()
            assert line, said
            said += line
        base = f"{match[1]}{prefix}/zhin/v1"
        with httpx.Client(base_url=base, timeout=_DEADLINE_S) as client:
            session_id = client.post("/session", json={"message": "hello"}).json()["sessionId"]
            assert client.get(f"/session/{session_id}/stream").text.count("session.waiting") == 1
            with client.stream("GET", f"/session/{session_id}/stream?until=never") as stream:
                received = stream.iter_raw()
                first = next(received)
                server.send_signal(signal.SIGTERM)
                body = first + b"".join(received)
        _, rest = server.communicate(timeout=_DEADLINE_S)
    finally:
        server.kill()
        server.wait()
    assert body.rstrip(b"\n").endswith(b"}")
    assert "Traceback" not in said + rest
