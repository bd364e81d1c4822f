"""`zhin-host chat`: talk to an agent in the terminal."""

from __future__ import annotations

import click

from zhin_host.cli import remote as hosts
from zhin_host.cli.remote import Remote


@click.command()
@click.option("--session", "session_id", metavar="ID", help="Go on with this session.")
@click.option("--agent", metavar="NAME", help="Who a new session is with; the host's first agent by default.")
@click.option("--yes/--no", "always", default=None, help="Answer every approval so, without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines, and ask nobody.")
@hosts.options
def chat(
    *, remote: Remote, session_id: str | None, agent: str | None, always: bool | None, as_json: bool
) -> None:
    """Talk to an agent: each line is a message, answers come as they are said.

    What the agent asks is asked here. Ctrl-C cancels what it does; at the prompt it leaves, and the session stays.
    From a pipe, each line of stdin is a message, and an approval needs --yes or --no.
    """
    with hosts.client_needed():
        from zhin_host.cli.live.chat import chat as talk  # noqa: PLC0415 - needs httpx
    talk(remote, session_id=session_id, agent=agent, always=always, as_json=as_json)
