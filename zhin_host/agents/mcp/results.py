"""Results: what a remote tool answered, as JSON that a log and a model can take."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
    text = _cut("\n".join(_told(result.content)))
    if result.is_error:
        raise McpToolFailed(text or "the tool failed and did not say why")
    structured = result.structured_content
    if structured is None or structured == {"result": text}:
        return text
    size_bytes = len(json.dumps(structured, ensure_ascii=False).encode("utf-8", "replace"))
    if size_bytes > RESULT_BYTES_MAX:
        note = f"[structured content of {size_bytes} bytes, left out]"
        return f"{text}\n{note}" if text else note
    if _is_repeated(text, structured):
        return structured
    return {"text": text, "structuredContent": structured}


def _told(content: Iterable[protocol.ContentBlock]) -> Iterable[str]:
    for block in content:
        match block:
            case protocol.TextContent():
                yield block.text
            case protocol.ImageContent():
                yield f"[image, {block.mime_type}, {_size_bytes(block.data)} bytes, left out]"
            case protocol.AudioContent():
                yield f"[audio, {block.mime_type}, {_size_bytes(block.data)} bytes, left out]"
            case protocol.ResourceLink():
                yield f"[resource {block.name}: {block.uri}]"
            case protocol.EmbeddedResource():
                yield _told_resource(block.resource)


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


def _is_repeated(text: str, structured: Any) -> bool:
    """Whether the text is the JSON of the structured content, or of the one value it wraps."""
    if not text:
        return True
    try:
        told = json.loads(text)
    except ValueError:
        return False
    return any(structured == form for form in (told, {"result": told}))
