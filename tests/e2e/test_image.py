"""What the Dockerfile does, without Docker: its install command, then its entry point and its health check."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.process import DEADLINE_S, Host, environment
from tests.unit.test_deploy_files import BIN, ROOT, health_check, instructions

TOKEN = "scraper-0123456789abcdef"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build stage makes: of the files that it copies, by the command that it runs."""
    source, target = tmp_path_factory.mktemp("src"), tmp_path_factory.mktemp("opt") / "zhin-host"
    for words in instructions("COPY"):
        *names, _ = words.split()
        if names[0].startswith("--from"):
            continue
        for name in names:
            path = ROOT / name
            if path.is_dir():
                shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, source / name)
    [command] = [words.split() for words in instructions("RUN") if words.startswith("uv sync")]
    assert "--locked" in command
    cached = [
        word for word in command[1:] if word != "--no-cache"
    ]  # what was fetched before need not be again
    subprocess.run(
        [BIN / "uv", *cached],
        cwd=source,
        env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(target), "UV_PYTHON": sys.executable},
        check=True,
        capture_output=True,
        timeout=240,
    )
    shutil.rmtree(source)  # nothing of the checkout is in the second stage
    return target


@pytest.mark.timeout(300)  # packages may have to be fetched
def test_the_images_entry_point_serves_drains_and_is_healthy(
    installed: Path, tmp_path: Path, data_dir: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"prometheus {TOKEN} read\n")
    tokens.chmod(0o600)
    [_, variables] = instructions("ENV")
    given = dict(re.findall(r"(ZHIN_\w+)=(\S+)", variables))
    paths = {
        "ZHIN_DATA_DIR": str(data_dir),
        "ZHIN_DEMO_WORKSPACE": str(tmp_path / "notes"),
        "ZHIN_TOKEN_FILE": str(tokens),
    }
    assert paths.keys() < given.keys()
    program, *arguments = json.loads(instructions("ENTRYPOINT")[0])
    command = [str(installed / "bin" / program), *arguments]
    with Host(tmp_path, command=command, is_script=True, **{**given, **paths}) as host:
        port = host.url.rsplit(":", 1)[1]
        check = [str(installed / "bin" / "python"), *health_check()[1:]]
        at = {**os.environ, "ZHIN_PORT": port}
        assert subprocess.run(check, env=at, check=False, timeout=DEADLINE_S).returncode == 0
        metrics = httpx.get(
            f"http://127.0.0.1:{port}/metrics",
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=DEADLINE_S,
        )
        assert "zhin_host_turns_total" in metrics.text
        host.stop()
        assert all(json.loads(line)["event"] for line in host.errors.splitlines())
        gone = subprocess.run(check, env=at, check=False, capture_output=True, timeout=DEADLINE_S)
        assert gone.returncode != 0


def test_the_image_refuses_to_start_without_tokens_and_says_so(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "bin" / "zhin-host", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment(ZHIN_HOST="0.0.0.0", ZHIN_TOKEN_FILE=str(tmp_path / "none")),  # noqa: S104
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "The token file" in done.stderr
    assert "cannot be read" in done.stderr
