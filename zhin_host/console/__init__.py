"""The web console: a page for people, served from the package beside the API it talks to (adr/0007-console.md)."""

from zhin_host.console.page import PATH, Console

__all__ = ["PATH", "Console"]
