"""The chat agent as `zhin-host serve` makes it: from a model's name, an endpoint, and modules of tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from zhin_host.agents.chat import ChatAgent, agent

TOOLS = "tests.agents.apps.page_tools"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own key or endpoint is used."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_its_tools_are_those_of_the_modules_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("Be brief.")
    made = agent.with_options(
        model="m", base_url="http://127.0.0.1:1/v1", tools=[TOOLS], instructions=str(tmp_path / "words.txt")
    )
    assert isinstance(made, ChatAgent)
    assert [row.name for row in made.tools] == ["look_up", "publish"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "needs a model; name one with --model"),
        ({"model": "m"}, "has no key; set OPENAI_API_KEY"),
        (
            {"model": "m", "base_url": "http://x", "tools": ["no.such"]},
            "'no.such' cannot be imported: M",
        ),
        ({"model": "m", "base_url": "http://x", "tools": ["json"]}, "The module 'json' has no @tool in it"),
        (
            {"model": "m", "base_url": "http://x", "instructions": "no-such.txt"},
            "'no-such.txt' cannot be read",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        agent.with_options(**given)


def test_the_key_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert agent.with_options(model="m").name == "chat"
