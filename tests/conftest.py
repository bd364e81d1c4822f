"""What every test has."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Name the only event loop that the host runs on; anyio's plugin asks for it."""
    return "asyncio"
