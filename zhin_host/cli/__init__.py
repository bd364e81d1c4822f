"""The command line, `zhin-host …` (contract.md section 6)."""

from zhin_host.cli.group import main

__all__ = ["main"]
