"""What the tests of protocols share: the npm packages of the real clients."""

from __future__ import annotations

import pytest

from tests.protocols import javascript


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    """The packages of package-lock.json are there."""
    javascript.install()
