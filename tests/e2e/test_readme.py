"""The README as it stands: each of its blocks is run, with another port, in a folder that has its scripts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from tests.docs.shell import Shell, checkout_in, free_port
from tests.e2e.process import DEADLINE_S, Host, environment, run, spoken

ROOT: Final = Path(__file__).parents[2]


class Block(NamedTuple):
    """A fenced block of the README."""

    section: str
    language: str
    text: str


def blocks() -> list[Block]:
    found, section = [], ""
    for match in re.finditer(
        r"^## ([^\n]+)$|^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    ):
        if match[1]:
            section = match[1]
        else:
            found.append(Block(section, match[2], match[3]))
    return found


def blocks_of(section: str, language: str = "sh") -> list[str]:
    return [block.text for block in blocks() if (block.section, block.language) == (section, language)]


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    with checkout_in(tmp_path) as folder:
        yield folder


def test_every_block_is_run_by_a_test_here() -> None:
    assert {(block.section, block.language) for block in blocks()} == {
        ("Two commands", "sh"),
        ("A walk with curl", "sh"),
        ("Your own agent", "python"),
        ("Your own agent", "sh"),
        ("Who may call", "sh"),
    }


@pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("curl") is None, reason="needs bash and curl"
)
@pytest.mark.timeout(120)
def test_the_walk_with_curl_works_word_for_word(checkout: Path) -> None:
    walk = iter(blocks_of("A walk with curl"))
    note = checkout / "data" / "demo-workspace" / "shopping.txt"
    with Shell(checkout, free_port()) as shell:
        assert '{"ok":true}' in shell.paste(next(walk))
        shell.paste(next(walk))
        turn = shell.paste(next(walk))
        assert '"continuationToken":"zhin:' in turn
        assert '"type":"message.completed"' in turn
        assert '"reason":"idle"' in turn

        asked = shell.paste(next(walk))
        assert '"parked":true' in asked
        assert '"args":{"name":"shopping","text":"milk, eggs"}' in asked
        assert not note.exists()
        allowed = shell.paste(next(walk))
        assert '"approved":true' in allowed
        assert '"reason":"idle"' in allowed
        assert "\nmilk, eggs" in allowed

        assert '{"ok":true}' in shell.paste(next(walk))  # killed, and back
        followed = shell.paste(next(walk))
        assert '"ok":true' in followed
        assert "write a note shopping: milk, eggs" in followed
        assert '"reason":"idle"' in followed

        killed = shell.paste(next(walk))  # while it waits
        assert '"parked":true' in killed
        assert '{"ok":true}' in killed
        again = shell.paste(next(walk))
        assert '"approved":true' in again
        assert '"type":"turn.completed"' in again
        assert "\n1\n" in again  # the tool ran once
        assert not note.exists()

        looked = shell.paste(next(walk))
        assert looked.count("waiting") >= 3
        assert "Sessions audited: 3, with faults: none." in looked
        assert "delete shopping" in looked
    assert next(walk, None) is None
    assert "Traceback" not in (checkout / "data" / "host.log").read_text()


def test_the_two_commands_are_what_they_say(checkout: Path) -> None:
    assert blocks_of("Two commands") == ["scripts/serve\n", "scripts/test\n"]
    with Host(checkout, command=["scripts/serve"], is_script=True) as host:
        assert (
            "message.completed" in host.client.get(f"/session/{host.say('hello')['sessionId']}/stream").text
        )
        host.stop()
    assert os.access(ROOT / "scripts" / "test", os.X_OK)
    assert "scripts/test\n" in (ROOT / ".ci" / "run").read_text()


def test_an_agent_of_ones_own_is_served_as_told(checkout: Path) -> None:
    minimal, example = blocks_of("Your own agent", "python")
    serve_minimal, serve_example, _ = blocks_of("Your own agent")
    (checkout / "my_agent.py").write_text(minimal)
    with Host(checkout, command=serve_minimal.split(), is_script=True) as host:
        first = host.say("hi")
        assert spoken(host.events(first["sessionId"])) == "You said 'hi', after 0 messages."
        second = host.say("ho", first)
        events = host.events(first["sessionId"], second["startIndex"])
        assert spoken(events) == "You said 'ho', after 2 messages."
        host.stop()

    source = (ROOT / "examples" / "publish.py").read_text()
    assert source.split('"""\n\n', 1)[1] == example
    for approved, told in (
        (True, "Looking. Published at https://pages.example/14."),
        (False, "Looking. Not published."),
    ):
        with Host(checkout, command=serve_example.split(), is_script=True) as host:
            session, request_id = host.parked("cats!")
            at = len(host.events(session["sessionId"]))
            host.post(f"/session/{session['sessionId']}/input", requestId=request_id, approved=approved)
            assert spoken(host.events(session["sessionId"], at)) == told
            host.stop()


def test_the_example_is_an_app_for_any_asgi_server(checkout: Path) -> None:
    *_, command = blocks_of("Your own agent")
    with subprocess.Popen(
        [*command.split(), "--port", "0"], cwd=checkout, env=environment(), stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            said = ""
            while (found := re.search(r"running on (http://\S+)", said)) is None:
                said += server.stderr.readline()
            with httpx.Client(base_url=f"{found[1]}/zhin/v1", timeout=DEADLINE_S) as client:
                session = client.post("/session", json={"message": "cats!"}).json()
                content = client.get(f"/session/{session['sessionId']}/stream").text
                assert '"parked":true' in content
            server.terminate()
            _, rest = server.communicate(timeout=DEADLINE_S)
        finally:
            server.kill()
    assert "Application shutdown complete." in rest
    assert "Traceback" not in said + rest
    sessions = checkout / "data" / "http-agent-sessions"
    assert (sessions / f"{session['sessionId']}.open").read_text() == "parked 0"


def test_a_token_file_is_made_and_used_as_told(checkout: Path) -> None:
    [block] = blocks_of("Who may call")
    make, serve = block.splitlines()
    subprocess.run(["sh", "-c", make], cwd=checkout, check=True)
    assert (checkout / "data" / "tokens").stat().st_mode & 0o777 == 0o600
    name, token = (checkout / "data" / "tokens").read_text().split()
    with Host(checkout, command=serve.split(), is_script=True) as host:
        port = host.url.rsplit(":", 1)[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/zhin/v1", timeout=DEADLINE_S) as client:
            assert client.get("/sessions").status_code == 401
            told = client.get("/sessions", headers={"Authorization": f"Bearer {token}"})
        assert (name, told.status_code) == ("ada", 200)
        host.stop()


def test_what_the_readme_says_of_the_commands_is_in_their_help(tmp_path: Path) -> None:
    commands = re.findall(
        r"^\| `zhin-host (\w+).*?` \| .*? \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    told = run("--help", cwd=tmp_path).stdout
    assert sorted(commands) == sorted(re.findall(r"^  (\w+)  ", told.split("Commands:")[1], re.MULTILINE))
