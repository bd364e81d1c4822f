"""The browser of the console's tests opens the site too."""

from tests.e2e.console.conftest import browser

__all__ = ["browser"]
