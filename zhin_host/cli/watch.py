"""`zhin-host watch`: what waits for a person, over all sessions of a host."""

from __future__ import annotations

import click

from zhin_host.cli import directory
from zhin_host.cli import remote as hosts
from zhin_host.cli.remote import Remote
from zhin_host.cli.terminal import is_for_programs


@click.command()
@click.option("--once", "is_once", is_flag=True, help="Show what waits now, and end.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the host is asked.",
)
@directory.json_option
@hosts.options
def watch(*, remote: Remote, is_once: bool, every_s: float, as_json: bool | None) -> None:
    """Watch every open request of a host, the longest waiting first, until Ctrl-C.

    Answer with `zhin-host approve REQUEST`, `deny` or `answer`. As JSON, a line tells of each request that opens and
    of each that is closed.
    """
    with hosts.client_needed():
        from zhin_host.cli.live import inbox  # noqa: PLC0415 - needs httpx
    inbox.watch(remote, is_once=is_once, every_s=every_s, as_json=is_for_programs(as_json))
