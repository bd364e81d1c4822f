"""The client is an extra: the host runs without httpx, and whoever lacks it is told what to install."""

from __future__ import annotations

import subprocess
import sys


def ran(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['httpx'] = None; {program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_httpx_one_sentence_says_how_to_install_it() -> None:
    done = ran("import zhin_host.client")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: zhin_host.client needs httpx, which is not installed; "
        "install it with: pip install 'zhin-host[client]'"
    )
    assert "During handling" not in done.stderr


def test_a_host_needs_no_httpx() -> None:
    done = ran("import zhin_host.cli, zhin_host.agents.demo, zhin_host.http")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_that_needs_it_says_so_and_the_others_work() -> None:
    done = ran("from zhin_host.cli import main; main(['chat'], prog_name='zhin-host')")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: zhin_host.client needs httpx, which is not installed; install it with: "
        "pip install 'zhin-host[client]'\n"
    )
    helped = ran("from zhin_host.cli import main; main(['chat', '--help'], prog_name='zhin-host')")
    assert (helped.returncode, helped.stderr) == (0, "")
