"""`zhin-host serve`: a host as a process."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import click
from click.core import ParameterSource

from zhin_host import server
from zhin_host.cli import directory
from zhin_host.cli import options as agent_options
from zhin_host.cli.loading import load, load_agents
from zhin_host.cli.logs import FORMATS, LogFormat, log_to_stderr
from zhin_host.cli.protocols import PROTOCOLS, dialects
from zhin_host.cli.takeover import refuse_held, wait_for_predecessor
from zhin_host.cli.terminal import Refusal, visible
from zhin_host.config import SETTINGS, Setting, from_environment
from zhin_host.console import PATH, Console
from zhin_host.errors import StartupError
from zhin_host.host import AgentSessionHost, create_agent_session_host
from zhin_host.http import BearerTokens
from zhin_host.ports import Authenticator

_logger = logging.getLogger("zhin_host.cli")

DEFAULT_AGENT: Final = "zhin_host.agents.demo:agent"
DEFAULT_PORT: Final = 8787
_WORKERS: Final = ("WEB_CONCURRENCY", "UVICORN_WORKERS")

Command = Callable[..., Any]


def _setting_options(command: Command) -> Command:
    """An option for each row of the table of settings."""
    for setting in reversed(SETTINGS):
        command = _setting_option(setting)(command)
    return command


def _setting_option(setting: Setting) -> Callable[[Command], Command]:
    kind: Any = click.Choice(setting.choices) if setting.choices else type(setting.default)
    more = f"[{setting.unit}; default {setting.default_text}; {setting.environment}]"
    help_text = f"{setting.help} {more}"
    if setting.is_list:
        return click.option(setting.flag, setting.name, multiple=True, metavar="PATTERN", help=help_text)
    return click.option(setting.flag, setting.name, type=kind, help=help_text)


@click.command()
@click.option(
    "--agent",
    "agents",
    multiple=True,
    default=(DEFAULT_AGENT,),
    envvar="ZHIN_AGENT",
    metavar="[NAME=]MODULE:ATTRIBUTE",
    show_default=True,
    show_envvar=True,
    help="What works on the messages; the working directory is searched first. Of several the first is the default.",
)
@agent_options.options
@directory.option
@click.option("--memory", is_flag=True, help="Keep sessions in memory only, without a data directory.")
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="ZHIN_HOST",
    show_default=True,
    show_envvar=True,
    help="The name or address to listen on; one that is not loopback needs --token-file or --authenticator.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    envvar="ZHIN_PORT",
    show_default=True,
    show_envvar=True,
    help="The port to listen on; 0: any free one.",
)
@click.option(
    "--token-file",
    envvar="ZHIN_TOKEN_FILE",
    metavar="FILE",
    show_envvar=True,
    help="Who may call: a file with lines of a name, a bearer token and, perhaps, scopes (docs/access.md).",
)
@click.option(
    "--authenticator",
    envvar="ZHIN_AUTHENTICATOR",
    metavar="MODULE:ATTRIBUTE",
    show_envvar=True,
    help="Who may call, said by an object of yours instead of a file (docs/access.md).",
)
@click.option(
    "--allowed-host", multiple=True, metavar="HOST", help="A Host header to accept beside loopback ones."
)
@click.option(
    "--allowed-origin", multiple=True, metavar="ORIGIN", help="An Origin header to accept beside our own."
)
@click.option(
    "--protocol",
    type=click.Choice(tuple(PROTOCOLS)),
    multiple=True,
    envvar="ZHIN_PROTOCOL",
    show_envvar=True,
    help="Another protocol to serve beside the API: AG-UI at /ag-ui, the AI SDK's useChat at /ai-sdk.",
)
@click.option(
    "--no-console",
    is_flag=True,
    envvar="ZHIN_NO_CONSOLE",
    show_envvar=True,
    help="Serve the API alone, without the web console at /console.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    envvar="ZHIN_LOG_LEVEL",
    show_default=True,
    show_envvar=True,
    help="How much the host says on stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    envvar="ZHIN_LOG_FORMAT",
    show_default=True,
    show_envvar=True,
    help="Lines for people, or a JSON object a line (docs/deploy.md).",
)
@click.option(
    "--take-over",
    type=click.FloatRange(min=0),
    default=0.0,
    envvar="ZHIN_TAKE_OVER",
    metavar="SECONDS",
    show_default=True,
    show_envvar=True,
    help="Wait so long for the host before this one to let the data directory and the port go.",
)
@_setting_options
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    *,
    agents: tuple[str, ...],
    data_dir: str,
    memory: bool,
    host: str,
    port: int,
    token_file: str | None,
    authenticator: str | None,
    allowed_host: tuple[str, ...],
    allowed_origin: tuple[str, ...],
    protocol: tuple[str, ...],
    no_console: bool,
    log_level: str,
    log_format: LogFormat,
    take_over: float,
    **settings: Any,
) -> None:
    """Serve an agent, or several, over HTTP until SIGTERM or Ctrl-C.

    Prints one line when it accepts requests; logs to stderr.
    """
    if memory and ctx.get_parameter_source("data_dir") is ParameterSource.COMMANDLINE:
        raise Refusal("--memory keeps no files; leave it out, or leave --data-dir out.")
    log_to_stderr(log_level, log_format)
    _check_workers(os.environ)
    is_public = not server.is_loopback(host)
    is_guarded = token_file is not None or authenticator is not None
    if is_public and not is_guarded:
        raise Refusal(
            f"{host} can be reached from other machines, and without --token-file everybody there may read and "
            "write; give one (or an --authenticator), or listen on 127.0.0.1."
        )
    given = {name: settings.pop(name) for name in agent_options.NAMES}
    served = create_agent_session_host(
        load_agents(agents, given),
        data_dir=None if memory else data_dir,
        authenticator=_authenticator(token_file, authenticator),
        allowed_hosts=allowed_host,
        allowed_origins=allowed_origin,
        any_host=is_public and not allowed_host,
        config=from_environment(os.environ, **settings),
        pages=None if no_console else {PATH: Console()},
        dialects=dialects(protocol),
    )

    if take_over:
        wait_for_predecessor(None if memory else data_dir, host, port, take_over)
    if not memory:
        refuse_held(data_dir)

    def announce(addresses: Sequence[server.Address]) -> None:
        _collect_rarely()
        with contextlib.suppress(OSError):  # whoever started us may not read on
            click.echo(_address_line(served, addresses, None if memory else data_dir))
        if not is_guarded:
            _logger.warning(
                "there is no --token-file: every process on this machine may read and write all sessions"
            )

    is_whole = server.serve(
        served.app,
        host=host,
        port=port,
        start=served.start,
        drain=served.stop,
        ready=announce,
        log_level=logging.WARNING,
    )
    if not is_whole:
        _logger.warning("stopped at once, by a second signal")


def _collect_rarely() -> None:
    """Look for cycles less often: sessions in memory are many objects, and hardly any of them is ever in a cycle.

    At the interpreter's own rate a sixth of the time of short turns went there (docs/performance.md).
    """
    gc.collect()
    gc.freeze()  # what was made before the first request stays
    gc.set_threshold(20_000, 20, 50)


def _authenticator(token_file: str | None, reference: str | None) -> Authenticator | None:
    if token_file is None:
        return None if reference is None else cast("Authenticator", load(reference, "authenticator"))
    if reference is not None:
        raise Refusal("--token-file and --authenticator both say who may call; leave one of them out.")
    return BearerTokens.from_file(token_file)


def _check_workers(environment: Mapping[str, str]) -> None:
    """Refuse what would start several processes elsewhere: one host writes to a data directory."""
    for name in _WORKERS:
        with contextlib.suppress(ValueError):
            if int(environment.get(name, "1")) > 1:
                raise StartupError(
                    f"{name}={environment[name]} asks for several workers, and one host alone may write to its "
                    "sessions; unset it or set it to 1."
                )


def _address_line(served: AgentSessionHost, addresses: Sequence[server.Address], data_dir: str | None) -> str:
    urls = " and ".join(
        f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
        for address, port in addresses
    )
    where = "in memory only" if data_dir is None else f"in {visible(os.path.realpath(data_dir))}"
    return f"Listening on {urls}, sessions {where} ({served.sessions_found} found)"
