"""A server of tools of the protocol before 2026, by hand, with the manners that servers have: `FOLDER [MANNER …]`.

It starts at once, needing nothing but the standard library. Its list of tools is the JSON in `tools.json` of the
folder, and it notes what it is called for in `calls` there. Manners: `deaf` neither ends with its input nor at SIGTERM,
`mute` answers nothing, `chatty` prints lines that are no messages, `endless` lists pages without an end, `quiet` tells
no changes of its list.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(sys.argv[1])
MANNERS: Final = set(sys.argv[2:])
NO_METHOD: Final = {"error": {"code": -32601, "message": "there is no such method"}}


def send(message: dict[str, Any]) -> None:
    """One message, as a line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Leave a trace."""
    with (FOLDER / "calls").open("a") as file:
        file.write(f"{text}\n")


def listed() -> list[dict[str, Any]]:
    """The tools, none having arguments."""
    names = json.loads((FOLDER / "tools.json").read_text())
    return [{"name": name, "description": f"{name} it", "inputSchema": {"type": "object"}} for name in names]


def answer_of(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The result or the error of a request."""
    if method == "initialize":
        offered = {"tools": {"listChanged": "quiet" not in MANNERS}}
        info = {"name": "legacy", "version": "1"}
        return {
            "result": {"protocolVersion": "2025-06-18", "capabilities": offered, "serverInfo": info},
        }
    if method == "tools/list":
        note("list")
        more = {"nextCursor": "more"} if "endless" in MANNERS else {}
        return {"result": {"tools": listed(), **more}}
    return {"result": called(parameters)} if method == "tools/call" else NO_METHOD


def called(parameters: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool."""
    name = parameters["name"]
    note(name)
    match name:
        case "die":
            os._exit(3)
        case "stick":
            time.sleep(600)
        case "change":
            (FOLDER / "tools.json").write_text(json.dumps([*(row["name"] for row in listed()), "changed"]))
            if "quiet" not in MANNERS:
                send({"method": "notifications/tools/list_changed"})
        case "odd":
            return {"content": "none of the protocol's"}
        case _:
            pass
    return {"content": [{"type": "text", "text": f"{name} by {os.getpid()}"}]}


def main() -> None:
    """Answer one request after another."""
    (FOLDER / "pid").write_text(str(os.getpid()))
    if "deaf" in MANNERS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        if "chatty" in MANNERS:
            sys.stdout.write("Starting…\n{}\n[1]\n")
        if "id" in message and "mute" not in MANNERS:
            send({"id": message["id"], **answer_of(message["method"], message.get("params", {}))})
    while "deaf" in MANNERS:
        time.sleep(600)


if __name__ == "__main__":
    main()
