"""The group of commands: what they share is how they refuse, in one sentence and with exit code 2."""

from __future__ import annotations

from typing import Any

import click

from zhin_host import __version__
from zhin_host.cli.answers import answer, approve, cancel, deny, end
from zhin_host.cli.audit import audit
from zhin_host.cli.chat import chat
from zhin_host.cli.completion import completion
from zhin_host.cli.doctor import doctor
from zhin_host.cli.export import export
from zhin_host.cli.prune import prune
from zhin_host.cli.repair import repair
from zhin_host.cli.send import send
from zhin_host.cli.serve import serve
from zhin_host.cli.sessions import sessions
from zhin_host.cli.show import show
from zhin_host.cli.tail import tail
from zhin_host.cli.terminal import Refusal
from zhin_host.cli.verify import verify
from zhin_host.cli.watch import watch
from zhin_host.errors import ZhinError


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ZhinError as error:
            raise Refusal(str(error)) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="zhin-host", message="%(prog)s %(version)s")
def main() -> None:
    """A durable host for agent sessions.

    `serve` runs a host. `chat`, `send`, `approve`, `deny`, `answer`, `cancel`, `end` and `watch` speak to a running
    one. The others work on the files of a data directory, beside a host or without one; only `prune` and `repair`
    change any, with --yes and while no host runs. Exit codes: 0 done, 1 failed, or something is wrong with what was
    read, 2 refused, 3 answered otherwise before, 4 a person has to answer.
    """


for _command in (
    serve, chat, send, approve, deny, answer, cancel, end, watch,
    sessions, show, tail, audit, export, prune, verify, repair, doctor, completion,
):  # fmt: skip
    main.add_command(_command)
