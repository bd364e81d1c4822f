"""Asking: what an agent asks, put before the person at the terminal, and the answer read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from zhin_host.cli.terminal import json_text, moment, visible, visible_lines
from zhin_host.client import Request

_LINES_MAX: Final = 40  # of one argument; what is longer is said to be
Answer = dict[str, Any]
"""The keywords of `Session.answer`."""


def request_rows(request: Request, tools: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is asked: the prompt, the tool with its arguments, and what is known of the risk. Fit for a terminal.

    Args:
        request: An open one.
        tools: The host's tools by name, as GET /info lists them.
    """
    data = request.data
    rows = [f"? {visible(request.prompt)}"]
    if "toolName" in data:
        tool = tools.get(data["toolName"], {})
        what = f" - {visible(tool['description'])}" if tool.get("description") else ""
        rows.append(f"  tool       {visible(data['toolName'])}{what}")
    for name, value in _arguments(data.get("args")):
        rows += _argument_rows(name, value)
    rows += [f"  risk       {risk}" for risk in risks_of(request, tools)]
    if request.kind == "authorization":
        rows.append(f"  connection {visible(request.prompt)}")
        rows += [f"  open       {visible(data['authUrl'])}"] if data.get("authUrl") else []
    if "options" in data:
        rows += [
            f"  {number}. {_shown(option)}" for number, option in enumerate(data["options"] or (), start=1)
        ]
    if "expiresAt" in data:
        rows.append(f"  expires    {moment(data['expiresAt'])}")
    return rows


def risks_of(request: Request, tools: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What a yes may lead to, in short sentences."""
    tool = tools.get(request.data.get("toolName", ""), {})
    risks = []
    if request.kind == "retry":
        risks.append("it may have run already, wholly or in part: a yes may do it a second time")
    elif tool.get("repeatable") is False:
        risks.append("it is not safe to repeat; after a crash you are asked before it runs again")
    if request.data.get("scope") == "session":
        risks.append("a yes holds for the rest of the session, whatever the arguments")
    return risks


def question_of(request: Request) -> str:
    """What stands before the cursor."""
    match request.kind:
        case "question" if request.data.get("options"):
            return "a number, or an answer in your own words> "
        case "question":
            return "your answer> "
        case "authorization":
            return "done? y/n> "
        case _:
            return "allow? y/n, then a comment if you like> "


def answer_of(request: Request, line: str) -> Answer | None:
    """The answer that a line gives; None when it is none and has to be asked again."""
    line = line.strip()
    if request.kind == "question":
        return None if not line else {"response": _chosen(line, request.data.get("options"))}
    word, _, comment = line.partition(" ")
    said = {"y": True, "yes": True, "n": False, "no": False}.get(word.lower().rstrip(",:;"))
    if said is None:
        return None
    if request.kind == "authorization":
        return {"success": said, "error": comment.strip() or None}
    return {"approved": said, "comment": comment.strip() or None}


def how_to_answer(request: Request) -> str:
    """The sentence for who meets it where nobody can be asked."""
    if request.kind == "question":
        return f"Answer with `zhin-host answer {request.request_id} ANSWER`."
    return f"Answer with `zhin-host approve {request.request_id}`, or `deny`."


def _chosen(line: str, options: Iterable[Any] | None) -> Any:
    """The option of that number; else the words themselves."""
    rows = list(options or ())
    if line.isascii() and line.isdigit() and 1 <= int(line) <= len(rows):
        return rows[int(line) - 1]
    return line


def _arguments(args: Any) -> list[tuple[str, Any]]:
    if args is None:
        return []
    return list(args.items()) if isinstance(args, dict) else [("arguments", args)]


def _argument_rows(name: str, value: Any) -> list[str]:
    first, *rest = visible_lines(value).split("\n") if isinstance(value, str) else [json_text(value)]
    more = [f"             {row}" for row in rest[: _LINES_MAX - 1]]
    if len(rest) >= _LINES_MAX:
        more.append(f"             … {len(rest) - _LINES_MAX + 1} more lines; `zhin-host show` has all")
    return [f"  {visible(name):<10} {first}", *more]


def _shown(option: Any) -> str:
    return visible(option) if isinstance(option, str) else json_text(option)
