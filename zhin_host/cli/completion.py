"""`zhin-host completion`: the script by which a shell completes commands, options and session ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM = "zhin-host"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, /, *, shell: str) -> None:
    """Print the script that makes a shell complete commands, options and the ids of sessions.

    \b
    bash: zhin-host completion bash > ~/.local/share/bash-completion/completions/zhin-host
    zsh:  zhin-host completion zsh > a file _zhin-host in a folder of $fpath
    fish: zhin-host completion fish > ~/.config/fish/completions/zhin-host.fish
    """  # noqa: D301 - click's mark for lines that are not to be filled
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has these three
    click.echo(kind(ctx.find_root().command, {}, _PROGRAM, "_ZHIN_HOST_COMPLETE").source())
