"""What `serve --protocol` names."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from zhin_host.cli import protocols
from zhin_host.errors import StartupError


class Spoken:
    """Stands for a protocol."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two protocols: one that is there, and one whose package is not."""
    module = ModuleType("tests_spoken")
    module.Spoken = Spoken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests_spoken", module)
    names = {"spoken": "tests_spoken:Spoken", "far": "tests_that_nobody_installed:Far"}
    monkeypatch.setattr(protocols, "PROTOCOLS", names)


def test_each_protocol_that_is_named_is_made_once(installed: None) -> None:
    assert [type(one).__name__ for one in protocols.dialects(["spoken", "spoken"])] == ["Spoken"]


def test_a_protocol_whose_package_is_not_installed_says_what_to_install(installed: None) -> None:
    with pytest.raises(
        StartupError, match=r"needs the package 'tests_that_nobody_installed'.*zhin-host\[far\]"
    ):
        protocols.dialects(["far"])
