"""Members: the bytes of one member of a JSON object, as they stand."""

from __future__ import annotations

import re
from typing import Final

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_MARKS: Final = re.compile(rb'[\[\]{},"]')


def member_bytes(raw: bytes, name: bytes) -> bytes:
    """The value of the first member `name` of an object in compact JSON; b"" where it has none."""
    depth, at, start = 0, 0, -1
    while (mark := _MARKS.search(raw, at)) is not None:
        at = mark.end()
        match mark[0]:
            case b'"':
                string = _STRING.match(raw, mark.start())
                if string is None:
                    break
                at = string.end()
                if depth == 1 and start < 0 and string[0][1:-1] == name and raw[at : at + 1] == b":":
                    start = at = at + 1
            case b"{" | b"[":
                depth += 1
            case b",":
                if depth == 1 and start >= 0:
                    return raw[start : mark.start()]
            case _:
                depth -= 1
                if depth == 0 and start >= 0:
                    return raw[start : mark.start()]
    return b""
