"""Why a call of a remote tool failed. In a turn each becomes ActionFailed, whose error names the class as its type.

McpToolFailed           the server says that the tool failed, or refused the call
McpServerUnreachable    the server could not be opened: nothing ran
McpServerLost           the server ended, or its connection broke, in mid-call
McpCallTimedOut         no result came within the time limit
"""

from __future__ import annotations


class McpToolFailed(Exception):
    """The server answered that the tool failed; the message is what it said."""


class McpServerUnreachable(Exception):
    """The server could not be started or did not answer; nothing was called. The next call tries again."""


class McpServerLost(Exception):
    """The server went in mid-call; whether the tool had an effect is not known. The next call opens it again."""


class McpCallTimedOut(Exception):
    """The result did not come in time; the server was told, and whether the tool had an effect is not known."""


def root_of(error: BaseException) -> BaseException:
    """The first error of nested groups: what happened before the others were cancelled for it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
