"""The Dockerfile and the systemd unit of examples/deploy: linted, and the rules that matter asserted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from dockerfile_parse import DockerfileParser

from zhin_host.config import Config

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "examples" / "deploy"
DOCKERFILE: Final = DEPLOY / "Dockerfile"
UNIT: Final = DEPLOY / "zhin-host.service"
BIN: Final = Path(sys.executable).parent
DRAIN_S: Final = (
    Config().stop_grace_s + 10 + 2
)  # the syncs' last time and the connections' (crew.py, process.py)

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def instructions(kind: str) -> list[str]:
    """The values of the Dockerfile's instructions of this kind, in order."""
    rows = DockerfileParser(path=str(DOCKERFILE)).structure
    return [row["value"] for row in rows if row["instruction"] == kind]


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run(
        [BIN / "hadolint", "--no-color", DOCKERFILE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_of_named_releases_and_runs_as_nobody_else() -> None:
    bases = instructions("FROM")
    assert len(bases) == 2
    assert all(re.fullmatch(r"python:3\.\d+-slim-[a-z]+( AS build)?", base) for base in bases)
    [uv] = re.findall(r"uv==([\d.]+)", " ".join(instructions("RUN")))
    assert f'"uv=={uv}"' in (ROOT / "pyproject.toml").read_text()
    [user] = instructions("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert f"--uid {user.split(':')[0]} " in " ".join(instructions("RUN"))


def test_the_image_gets_signals_keeps_its_data_and_says_how_it_is() -> None:
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["zhin-host", "serve"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert [json.loads(value) for value in instructions("VOLUME")] == [["/data"]]
    assert re.search(r"\bZHIN_DATA_DIR=/data/\w+", instructions("ENV")[-1])


def health_check() -> list[str]:
    """The command of the Dockerfile's health check, with the Python that runs here."""
    [health] = instructions("HEALTHCHECK")
    program, *arguments = json.loads(health[health.index("[") :])
    assert program == "python"
    return [sys.executable, *arguments]


def test_the_health_check_asks_at_the_port_that_the_host_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = Thread(target=server.serve_forever, name="health", daemon=True)
        thread.start()
        monkeypatch.setenv("ZHIN_PORT", str(server.server_port))
        done = subprocess.run(health_check(), check=False, timeout=60)
        server.shutdown()
        thread.join()
    assert (done.returncode, asked) == (0, ["/zhin/v1/health"])


def test_only_what_the_image_is_made_of_goes_to_the_builder() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    rows = [row for row in ignored if not row.startswith("#")]
    assert rows[0] == "*"
    copied = [words.split()[:-1] for words in instructions("COPY") if not words.startswith("--from")]
    assert {row[1:] for row in rows if row.startswith("!")} == {name for names in copied for name in names}


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with the command that is installed here."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/zhin-host/bin", str(BIN)))
    return path


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd_calls_the_units_exposure_low(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout  # of 0 to 100


def test_the_unit_gives_a_drain_its_time_and_starts_again_what_died() -> None:
    parser = RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # as its documentation says
    parser.read(UNIT)
    service = parser["Service"]
    assert float(service["TimeoutStopSec"]) > DRAIN_S
    assert (service["KillSignal"], service["KillMode"], service["Restart"]) == (
        "SIGTERM",
        "mixed",
        "on-failure",
    )
    assert not [name for name in service if name.startswith("RestartPrevent")]  # no refusal is for good
    assert {"StartLimitIntervalSec", "StartLimitBurst"} <= parser["Unit"].keys()
    assert (service["DynamicUser"], service["StateDirectoryMode"], service["UMask"]) == (
        "yes",
        "0700",
        "0077",
    )
    command = service["ExecStart"].split()
    assert command[1] == "serve"
    assert "${STATE_DIRECTORY}/sessions" in command
    assert command[command.index("--take-over") + 1] == service["TimeoutStopSec"]
