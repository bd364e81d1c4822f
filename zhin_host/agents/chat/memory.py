"""Memory: the messages of a session, as many of the newest exchanges as a limit of tokens has room for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from zhin_host.agents.exchanges import newest_exchanges

Message = Mapping[str, Any]

# English has about four, other scripts two or three: rather too few messages than too many.
_BYTES_PER_TOKEN: Final = 3
_SAVED_BYTES_MAX: Final = 512 * 1024  # what is saved is one line of the log, of 1 MiB at the most
_CUT: Final = "… (cut: the whole is in the session's log)"


def newest(messages: Sequence[Message], tokens_max: int) -> list[Message]:
    """The newest whole exchanges that fit, oldest first. An exchange begins with what a user said.

    Args:
        messages: In their order.
        tokens_max: The room, tokens, estimated at three bytes each.
    """
    room = min(tokens_max * _BYTES_PER_TOKEN, _SAVED_BYTES_MAX)
    return newest_exchanges(messages, room, _size)


def cut(text: str, tokens_max: int) -> str:
    """The text, or its beginning when it would take more than half the room."""
    limit = max(1, tokens_max * _BYTES_PER_TOKEN // 2)
    if len(text) <= limit // 4 or len(encoded := text.encode("utf-8", "replace")) <= limit:
        return text
    return encoded[:limit].decode("utf-8", "ignore") + _CUT


def _size(message: Message) -> int:
    return len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
