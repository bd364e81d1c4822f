"""Results: what a remote tool answered, as JSON that a log and a model can take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import mcp.types as protocol

from zhin_host.agents.mcp.errors import McpToolFailed

RESULT_BYTES_MAX: Final = 256 * 1024  # well under a line of the log, and more than a model reads


def value_of(result: protocol.CallToolResult) -> Any:
    """The text, the structured content, or both; what is neither is described, and too much is cut.

    Returns:
        A text where there is no structured content, or none but that text. The structured content where the text only
        repeats it, which the protocol asks of servers. Else `{"text": …, "structuredContent": …}`.

    Raises:
        McpToolFailed: The tool failed, as it says itself.
    """
    blocks = list(map(_told, result.content))
    text = _cut("\n".join(blocks))
    if result.is_error:
        raise McpToolFailed(text or "the tool failed and did not say why")
    structured = result.structured_content
    if structured is None or structured == {"result": text}:
        return text
    size_bytes = len(json.dumps(structured, ensure_ascii=False).encode("utf-8", "replace"))
    if size_bytes > RESULT_BYTES_MAX:
        note = f"[structured content of {size_bytes} bytes, left out]"
        return f"{text}\n{note}" if text else note
    if _is_repeated(blocks, structured):
        return structured
    return {"text": text, "structuredContent": structured}


def _told(block: protocol.ContentBlock) -> str:
    match block:
        case protocol.TextContent():
            return block.text
        case protocol.ImageContent():
            return f"[image, {block.mime_type}, {_size_bytes(block.data)} bytes, left out]"
        case protocol.AudioContent():
            return f"[audio, {block.mime_type}, {_size_bytes(block.data)} bytes, left out]"
        case protocol.ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case protocol.EmbeddedResource():
            return _told_resource(block.resource)


def _told_resource(resource: protocol.TextResourceContents | protocol.BlobResourceContents) -> str:
    if isinstance(resource, protocol.TextResourceContents):
        return f"[resource {resource.uri}]\n{resource.text}"
    kind = resource.mime_type or "of no type"
    return f"[resource {resource.uri}, {kind}, {_size_bytes(resource.blob)} bytes, left out]"


def _size_bytes(base64: str) -> int:
    """How many bytes the text stands for."""
    return len(base64.rstrip("=")) * 3 // 4


def _cut(text: str) -> str:
    content = text.encode("utf-8", "replace")  # a lone surrogate has no bytes of its own
    if len(content) <= RESULT_BYTES_MAX:
        return text
    kept = content[:RESULT_BYTES_MAX].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {RESULT_BYTES_MAX} of {len(content)} bytes]"


def _is_repeated(blocks: Sequence[str], structured: Any) -> bool:
    """Whether the blocks are the JSON of the structured content, of the value it wraps, or of that list's rows."""
    if not blocks:
        return True
    is_wrapped = isinstance(structured, dict) and structured.keys() == {"result"}
    inner = structured["result"] if is_wrapped else structured
    if len(blocks) == 1 and any(_tells(blocks[0], value) for value in (structured, inner)):
        return True
    rows = inner if isinstance(inner, list) else []
    return len(rows) == len(blocks) and all(map(_tells, blocks, rows))


def _tells(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False
