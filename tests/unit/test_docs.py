"""Tables in the documents say what the code says. ZHIN_WRITE_DOCS=1 writes them instead of failing."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final

import click
import pytest

from tests.docs.made import check_part, table
from tests.docs.tables import request_errors
from zhin_host import __version__
from zhin_host.changes import _BY_OWNER, TOLD
from zhin_host.cli import main
from zhin_host.config import SETTINGS
from zhin_host.events import VOCABULARY
from zhin_host.gauges import Gauges
from zhin_host.http.app import BASE, ROOT_ROUTES, ROUTES
from zhin_host.http.metrics import HostCollector
from zhin_host.meters import RECOVERIES, Meters
from zhin_host.ports import SCOPES
from zhin_host.turns import RECOVERABLE

ROOT: Final = Path(__file__).parents[2]

REMEDIES: Final = {
    "BAD_REQUEST": "The message says what is wrong and where; correct the request.",
    "UNAUTHORIZED": "Send `Authorization: Bearer TOKEN` with a token of the host's token file.",
    "FORBIDDEN": (
        "Call with a Host and an Origin that the host knows (`--allowed-host`, `--allowed-origin`), and with a token "
        "that has the scope the message names."
    ),
    "NOT_FOUND": "There is no such route; all are under `/zhin/v1`.",
    "SESSION_NOT_FOUND": "Check the id; `GET /zhin/v1/sessions` lists yours. Another caller's is not found either.",
    "REQUEST_NOT_FOUND": "It was cancelled, has expired or never was; GET the session for `pendingRequestIds`.",
    "AUTHORIZATION_REQUEST_NOT_FOUND": "As REQUEST_NOT_FOUND.",
    "AGENT_NOT_FOUND": "`GET /zhin/v1/info` lists the agents.",
    "METHOD_NOT_ALLOWED": "The `Allow` header names the methods of the path.",
    "REQUEST_TIMEOUT": "The body did not arrive in time; send it again.",
    "CONTINUATION_TOKEN_STALE": "The session has moved on; GET it, read what happened, use its `continuationToken`.",
    "SESSION_BUSY": "A turn is open: answer its `pendingRequestIds`, wait for its end, or cancel it.",
    "IDEMPOTENCY_CONFLICT": "The `Idempotency-Key` came with another body before; take a new key.",
    "NOTHING_TO_RESUME": "The last turn did not fail, or cannot be tried again; send a follow-up.",
    "SESSION_TERMINAL": "The session is over; start a new one.",
    "REQUEST_ALREADY_ANSWERED": "Somebody answered otherwise first; that answer stands.",
    "BODY_TOO_LARGE": "Send less, or raise `--body-bytes-max` and `--line-bytes-max`.",
    "UNSUPPORTED_MEDIA_TYPE": "Send `content-type: application/json`, uncompressed.",
    "TOO_MANY_SESSIONS": "Try again later, or raise `--open-turns-max`.",
    "TOO_MANY_STREAMS": "Close streams, or raise `--streams-max`; one audit runs at a time.",
    "INTERNAL": "A bug: the host's log has the traceback.",
    "AGENT_UNAVAILABLE": "The session's agent is not served here now; start the host with it, then try again.",
    "SHUTTING_DOWN": "The host is stopping; try again when it is back.",
    "STORAGE_UNAVAILABLE": "See to the disk or the folder; `index` is where a log is broken, `zhin-host audit` how.",
    "STORAGE_FULL": "Free some space on the disk; it goes on by itself.",
}

FAILURES: Final = {
    "AGENT_FAILED": "The agent raised an error; the host's log has the traceback.",
    "ACTION_FAILED": "An action or tool failed and the agent did not catch `ActionFailed`.",
    "TOOL_DENIED": "A person refused a tool and the agent did not catch `ToolDenied`.",
    "REQUEST_EXPIRED": "Nobody answered in time and the agent did not catch `RequestExpired`.",
    "RECOVERY_EXHAUSTED": "The host crashed in this turn again and again; see what the agent does there.",
    "TURN_DIVERGED": "The agent took another path than its record; it must do the same again up to where it was.",
    "HOST_RESTARTED": "The host was restarted while the turn was open; send the message again.",
}


OWN_LINES: Final = {  # lines of the host's log that are no events of a session
    "session.recovered": "sessionId outcome turnId attempt",
    "session.deleted": "sessionId by",
    "call.refused": "what sessionId by code",
    "reader.dropped": "sessionId lag",
    "host.waiting": "holder waitS",
    "host.ready": "sessions parked",
    "host.draining": "running parked readers",
    "host.stopped": "",
}


def errors_table() -> str:
    statuses = {kind.code: kind.status for kind in request_errors()}
    assert statuses.keys() == REMEDIES.keys()
    ordered = sorted(statuses, key=lambda code: (statuses[code], list(REMEDIES).index(code)))
    return table(
        "code | status | what to do", ((f"`{code}`", statuses[code], REMEDIES[code]) for code in ordered)
    )


def failures_table() -> str:
    assert RECOVERABLE.keys() == FAILURES.keys()
    return table("code | why, and what to do", ((f"`{code}`", told) for code, told in FAILURES.items()))


def settings_table() -> str:
    rows = (
        (f"`{row.flag}`", f"`{row.environment}`", row.default_text, row.unit, row.help.replace("|", "\\|"))
        for row in SETTINGS
    )
    return table("flag | environment | default | unit | what it is", rows)


def events_table() -> str:
    rows = ((f"`{kind}`", ", ".join(fields.split())) for kind, fields in VOCABULARY.items())
    return table("type | fields of `data`", rows)


def scopes_table() -> str:
    return table("scope | what it lets a caller do", ((f"`{name}`", told) for name, told in SCOPES.items()))


def routes_table() -> str:
    rows = (
        (
            f"`{method} {path}`".replace("{session_id}", "{id}").replace("{request_id}", "{requestId}"),
            needs,
        )
        for path, methods in {**{BASE + path: rows for path, rows in ROUTES.items()}, **ROOT_ROUTES}.items()
        for method, row in methods.items()
        for needs in ["nothing" if row.is_open else "any of them" if row.right is None else f"`{row.right}`"]
    )
    return table("route | scope that it needs", rows)


def metrics_table() -> str:
    meters, now = Meters(["demo"]), Gauges(0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0)
    rows = (
        (
            f"`{metric.name}{'_total' if metric.type == 'counter' else ''}`",
            metric.type,
            ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ())),
            metric.documentation,
        )
        for metric in HostCollector(meters, now).collect()
    )
    return table("metric | type | labels | what it is", rows)


def recoveries_table() -> str:
    return table("outcome | what became of it", ((f"`{name}`", told) for name, told in RECOVERIES.items()))


def lines_table() -> str:
    changes = {
        kind: ("sessionId", *whose, *fields, *(["by"] if kind in _BY_OWNER and "by" not in fields else []))
        for kind, fields in TOLD.items()
        for whose in [("agent",) if kind.startswith("session.") else ("turnId", "agent")]
    }
    rows = {**changes, **{name: tuple(fields.split()) for name, fields in OWN_LINES.items()}}
    return table("event | fields", ((f"`{name}`", ", ".join(fields)) for name, fields in rows.items()))


_SETTING_NAMES: Final = {setting.name for setting in SETTINGS}  # docs/settings.md has these options of serve


def command_table(name: str) -> str:
    """The arguments and options of a command, in the order of its help."""
    command = main.commands[name]
    context = click.Context(command, info_name=name)
    rows: list[tuple[object, ...]] = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not (name == "serve" and parameter.name in _SETTING_NAMES):
            written = ", ".join(f"`{word}`" for word in (*parameter.opts, *parameter.secondary_opts))
            takes = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
            told = parameter.help or ""
            given = parameter.default
            given = " ".join(given) if isinstance(given, tuple) else given  # of an option that may come again
            default = "" if parameter.is_flag or given is None else f"`{given}`"
            default = "" if "UNSET" in default.upper() else default
            variable = f"`{parameter.envvar}`" if parameter.envvar else ""
            rows.append((written + takes.replace("|", "\\|"), default, variable, told.replace("|", "\\|")))
    head = f"`zhin-host {name}` "
    usage = " ".join(
        argument.make_metavar(context) for argument in command.params if isinstance(argument, click.Argument)
    )
    shown = table("option | default | environment | what it is", iter(rows)) if rows else ""
    return f"**{(head + usage).strip()}**\n\n{shown}"


def test_the_page_has_every_command() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert set(re.findall(r"<!-- /(\w+) -->", page)) == main.commands.keys()


@pytest.mark.parametrize(
    ("document", "name", "made"),
    [
        *(("docs/cli.md", name, partial(command_table, name)) for name in main.commands),
        ("README.md", "errors", errors_table),
        ("README.md", "failures", failures_table),
        ("README.md", "settings", settings_table),
        ("docs/troubleshooting.md", "errors", errors_table),
        ("docs/troubleshooting.md", "failures", failures_table),
        ("docs/settings.md", "settings", settings_table),
        ("docs/events.md", "events", events_table),
        ("docs/deploy.md", "metrics", metrics_table),
        ("docs/deploy.md", "recoveries", recoveries_table),
        ("docs/deploy.md", "lines", lines_table),
        ("docs/access.md", "scopes", scopes_table),
        ("docs/access.md", "routes", routes_table),
    ],
)
def test_a_table_says_what_the_code_says(document: str, name: str, made: object) -> None:
    assert callable(made)
    check_part(document, name, made())


def test_every_line_of_the_hosts_own_is_listed_with_its_fields() -> None:
    told: dict[str, str] = {}
    for path in (ROOT / "zhin_host").rglob("*.py"):
        for call in re.findall(r"\btell\(\s*_log\w*,\s*logging\.\w+,(.*?)\)\n", path.read_text(), re.DOTALL):
            name = re.match(r'\s*"([\w.]+)"', call)
            if name is not None:
                told[name[1]] = call
    assert told.keys() == OWN_LINES.keys()
    for event, fields in OWN_LINES.items():
        named = set(re.findall(r"\b(\w+)=", told[event]))
        assert named <= set(fields.split()), event


def test_links_between_documents_lead_somewhere() -> None:
    for document in (
        "README.md",
        *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
        "CHANGELOG.md",
    ):
        path = ROOT / document
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{document}: {target}"


def test_the_changelog_has_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
