"""A stand-in for a model, for those who have no key at hand: it calls the first tool, then says what came of it.

python examples/canned_model.py [PORT]
"""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


def deltas(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pieces of an answer to a request of OpenAI's chat completions."""
    last, tools = body["messages"][-1], body.get("tools")
    if last["role"] == "tool":
        yield from ({"content": word + " "} for word in f"That gave: {last['content']}".split())
    elif tools:
        function = tools[0]["function"]
        words = str(last["content"]).split()
        arguments = dict.fromkeys(function["parameters"].get("properties", {}), words[-1])
        called = {"name": function["name"], "arguments": json.dumps(arguments)}
        yield {"reasoning_content": "There is a tool for this."}
        yield {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": called}]}
    else:
        yield from ({"content": word + " "} for word in f"You said: {last['content']}".split())


async def answer(request: Request) -> StreamingResponse:
    """POST /v1/chat/completions."""
    body = await request.json()

    async def lines() -> AsyncIterator[str]:
        reason = "stop"
        for delta in deltas(body):
            reason = "tool_calls" if "tool_calls" in delta else "stop"
            yield chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        yield chunk([{"index": 0, "delta": {}, "finish_reason": reason}])
        yield chunk([], usage={"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17})
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


def chunk(choices: list[Any], **more: Any) -> str:
    """One event of the stream."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "canned"}
    return f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n"


app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])

if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8788
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
