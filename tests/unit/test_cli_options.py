"""Options of `serve` for agents that are made from them, and the sentence for an extra that is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from zhin_host.cli.loading import EXTRAS, load
from zhin_host.cli.options import prepare_each, prepared
from zhin_host.errors import StartupError


class Made:
    """An agent that is made from a model's name."""

    def with_options(self, *, model: str = "") -> str:
        if not model:
            raise ValueError("Name a model.")
        return f"agent of {model}"


def test_an_agent_that_takes_options_is_made_of_those_that_were_given() -> None:
    assert prepared(Made(), "a:b", {"model": "m", "base_url": None, "tools": ()}) == "agent of m"


def test_one_that_takes_none_stays_as_it_is() -> None:
    agent = object()
    assert prepared(agent, "a:b", {"model": None, "tools": ()}) is agent


@pytest.mark.parametrize(
    ("agent", "given", "sentence"),
    [
        (Made(), {}, "Name a model."),
        (
            Made(),
            {"base_url": "http://x"},
            "The agent 'a:b' takes no --base-url; zhin_host.agents.chat:agent does.",
        ),
        (object(), {"model": "m"}, "The agent 'a:b' takes no --model; zhin_host.agents.chat:agent does."),
    ],
)
def test_what_cannot_be_made_says_why(agent: object, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StartupError, match=f"^{re.escape(sentence)}$"):
        prepared(agent, "a:b", given)


@pytest.mark.parametrize("package", EXTRAS)
def test_a_library_that_is_not_installed_names_the_extra_that_brings_it(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / f"wants_{package}.py"
    module.write_text(f"raise ModuleNotFoundError('No module named {package}', name='{package}.inner')\n")
    with pytest.raises(StartupError, match=re.escape(f"Run pip install 'zhin-host[{EXTRAS[package]}]'.")):
        load(f"{module.stem}:agent", "agent")


def test_of_several_agents_each_takes_of_the_options_what_is_its_own() -> None:
    agent = object()
    made = prepare_each([(Made(), "a:b"), (agent, "c:d")], {"model": "m", "base_url": None})
    assert made == ["agent of m", agent]
    assert prepare_each([(agent, "c:d")], {"model": None}) == [agent]
    with pytest.raises(StartupError, match=r"^None of the agents takes --base-url; "):
        prepare_each([(Made(), "a:b"), (agent, "c:d")], {"model": "m", "base_url": "http://x"})
