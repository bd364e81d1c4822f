"""The public names of the package as Markdown, from their signatures and docstrings."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

import griffe

from tests.docs.blocks import ROOT

# The names of zhin_host in the order of a reader's needs; with a dot, what one of them returns.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "For agents": (
        "Turn",
        "SyncTurn",
        "tool",
        "Tool",
        "Retry",
        "current_action",
        "actions.CurrentAction",
        "ToolDenied",
        "RequestExpired",
        "ActionFailed",
        "AttemptEnded",
    ),
    "For programs that host": (
        "create_agent_session_host",
        "AgentSessionHost",
        "TurnHandle",
        "TurnResult",
        "audit_session",
        "audit_directory",
        "audit.verdict.Verdict",
        "audit.verdict.Fault",
    ),
    "For authenticators": ("Authenticator", "Principal", "Unauthorized"),
}
# What a host is made of: there by name for those who make another one of it.
PARTS: Final = (
    "HttpAgentSessionStore",
    "HttpTurnRunner",
    "HttpApprovalWaiter",
    "HttpStepProjector",
    "SessionEventLog",
    "FileHttpSessionPersistence",
)
# Members that the host or the client uses itself, and nobody else.
_NOT_FOR_USERS: Final = {
    "zhin_host.turn.Turn": {"attempt_of", "gate", "ends_session", "usage", "completed_message"},
    "zhin_host.sync.SyncTurn": {"cancel_calls"},
    "zhin_host.tools.Tool": {"bind", "policy_name", "scope_to_ask", "values"},
    "zhin_host.client.session.Session": {"saw", "handed_out", "forget"},
}
_LISTS: Final = {"parameters", "attributes", "raises"}


def package(name: str) -> griffe.Module:
    """The package as griffe reads it, without importing it."""
    logging.getLogger("griffe").setLevel(logging.ERROR)  # types stand in signatures, not again in docstrings
    found = griffe.load(name, search_paths=[ROOT], docstring_parser="google")
    assert isinstance(found, griffe.Module)
    return found


def groups_told() -> str:
    """The names of zhin_host, by group."""
    found = package("zhin_host")
    lines = []
    for head, names in GROUPS.items():
        lines += [f"## {head}", ""]
        for name in names:
            lines += [*_name_told(found, name), ""]
    lines += ["## Parts of a host", ""]
    lines += [f"- `{name}`: {_sentence(_object(found, name))}" for name in PARTS]
    return "\n".join(lines) + "\n"


def client_told() -> str:
    """The names of zhin_host.client but its errors, which docs/client.md and docs/errors.md have."""
    package("zhin_host")
    found = package("zhin_host.client")
    lines = []
    for name in found.exports or ():
        thing = _object(found, str(name))
        if thing.canonical_path.startswith("zhin_host.client.errors."):
            continue
        lines += [*_name_told(found, str(name)), ""]
    return "\n".join(lines) + "\n"


def _object(found: griffe.Module, name: str) -> griffe.Object:
    thing = found[name]
    return thing.final_target if isinstance(thing, griffe.Alias) else thing


def _name_told(found: griffe.Module, name: str) -> Iterator[str]:
    thing = _object(found, name)
    yield f"### {thing.name}"
    yield ""
    if isinstance(thing, griffe.Function):
        yield from [f"`{_signature(thing)}`", ""]
    yield from _docstring(thing)
    if isinstance(thing, griffe.Class):
        yield from _members(thing)


def _members(thing: griffe.Class) -> Iterator[str]:
    yield ""
    for name, member in thing.members.items():
        hidden = _NOT_FOR_USERS.get(thing.canonical_path, set())
        if name.startswith("_") or name in hidden or isinstance(member, griffe.Alias) or not member.docstring:
            continue  # what has no docstring says all with its class, as SyncClient does with Client
        if isinstance(member, griffe.Function):
            raised = "".join(f" Raises {text}" for text in _raised(member))
            yield f"- `{_signature(member)}`{_told(member)}{raised}"
        elif "property" in member.labels:
            yield f"- `{name}`{_told(member)}"


def _signature(function: griffe.Function) -> str:
    asynchronous = "async " if "async" in function.labels else ""
    return asynchronous + str(function.signature())


def _told(member: griffe.Object) -> str:
    sentence = _sentence(member)
    return f": {sentence}" if sentence else ""


def _sentence(thing: griffe.Object) -> str:
    return " ".join(thing.docstring.value.partition("\n\n")[0].split()) if thing.docstring else ""


def _raised(member: griffe.Function) -> Iterator[str]:
    for section in member.docstring.parsed if member.docstring else ():
        if section.kind.value == "raises":
            for row in section.value:
                yield f"`{str(row.annotation).strip('()')}`: {' '.join(row.description.split())}"


def _docstring(thing: griffe.Object) -> Iterator[str]:
    for section in thing.docstring.parsed if thing.docstring else ():
        if section.kind.value == "text":
            yield from ["\n\n".join(" ".join(part.split()) for part in section.value.split("\n\n")), ""]
        elif section.kind.value in _LISTS:
            for row in section.value:
                name = getattr(row, "name", None) or f"raises {str(row.annotation).strip('()')}"
                yield f"- `{name}`: {' '.join(row.description.split())}"
