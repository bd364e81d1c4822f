"""`zhin-host` as a process, as a person starts it: the installed command, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

COMMAND: Final = str(Path(sys.executable).with_name("zhin-host"))
DEADLINE_S: Final = 30.0
_LINE: Final = re.compile(
    r"Listening on (http://\S+?), sessions (?:in (.+)|in memory only) \((\d+) found\)\n"
)


def environment(**more: str) -> dict[str, str]:
    """The environment without what would set a host up otherwise."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("ZHIN_") and name != "ZHIN_REFEREE") and name != "WEB_CONCURRENCY"
    }
    # A module that a test writes anew within a second would be taken from its cache.
    return kept | {"PYTHONDONTWRITEBYTECODE": "1"} | more


def run(*arguments: object, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of zhin-host to its end."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def blocks_said(
    page: str, host: Host, folder: Path, data_dir: Path, timeout_s: float, **more: str
) -> list[str]:
    """What a page's blocks of shell print, run one after another as they stand; behind the last an empty text."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script = "set -eu\n" + "".join(f"{block}echo === >&2\necho ===\n" for block in blocks)
    settings = environment(ZHIN_URL=host.url, ZHIN_DATA_DIR=str(data_dir), **more)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=settings | {"PATH": f"{Path(COMMAND).parent}:{settings['PATH']}"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("===\n")


class Host:
    """`zhin-host serve` on a free port, until the block ends.

    Args:
        cwd: The folder it is started in.
        arguments: Those of serve.
        command: What is run instead of the installed command.
        is_script: Whether the command says `serve` itself.
        more: Variables of the environment.

    Attributes:
        process: The process.
        line: What it said when it accepted requests.
        url: Its address.
        client: Speaks to it, with /zhin/v1 as its base.
    """

    def __init__(
        self,
        cwd: Path,
        *arguments: object,
        command: Sequence[str] = (COMMAND,),
        is_script: bool = False,
        **more: str,
    ) -> None:
        self._errors = cwd / "stderr.txt"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *(() if is_script else ("serve",)), "--port", "0", *map(str, arguments)],
                cwd=cwd,
                env=environment(**more),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        match = _LINE.fullmatch(self.line)
        if match is None:
            self.process.kill()
            raise AssertionError(f"it did not start: {self.line!r} {self.errors}")
        self.url, self.sessions_found = match[1], int(match[3])
        self.client = httpx.Client(base_url=f"{self.url}/zhin/v1", timeout=DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def errors(self) -> str:
        """What hosts in this folder have said on stderr so far."""
        return self._errors.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Send a signal, wait for a clean end, and give what it still said on stdout."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, self.errors
        assert "Traceback" not in self.errors, self.errors
        return str(said)

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    # -- short words for requests ----------------------------------------------------------------------------------

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The JSON of a POST that must be accepted."""
        response = self.client.post(path, json=body)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def say(self, message: str, after: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start a session with a message, or go on `after` what the last POST answered."""
        if after is None:
            return self.post("/session", message=message)
        return self.post(
            f"/session/{after['sessionId']}", message=message, continuationToken=after["continuationToken"]
        )

    def events(self, session_id: str, start: int = 0) -> list[dict[str, Any]]:
        """The session's events up to where it rests."""
        response = self.client.get(f"/session/{session_id}/stream", params={"startIndex": start})
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.content.split(b"\n") if line]

    def parked(self, message: str) -> tuple[dict[str, Any], str]:
        """A new session that waits for a person, and the request it waits for."""
        accepted = self.say(message)
        last = self.events(accepted["sessionId"])[-1]
        assert last["data"]["parked"], last
        return accepted, last["data"]["pendingRequestIds"][0]

    @contextlib.contextmanager
    def stream(self, session_id: str, until: str = "never") -> Iterator[Iterator[bytes]]:
        """The open stream's parts, the response's head being there."""
        path = f"/session/{session_id}/stream"
        with self.client.stream("GET", path, params={"until": until}) as response:
            yield response.iter_raw()


def types(events: list[dict[str, Any]]) -> list[str]:
    """Their types."""
    return [event["type"] for event in events]


def spoken(events: list[dict[str, Any]]) -> str:
    """What the one turn that completed in them said."""
    [completed] = [event["data"]["message"] for event in events if event["type"] == "message.completed"]
    return str(completed)
