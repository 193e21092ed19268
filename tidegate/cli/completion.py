"""`tidegate completion`: prints the script that a shell evaluates to complete commands, options and file names."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "tidegate"
VARIABLE: Final = "_TIDEGATE_COMPLETE"
"""The environment variable through which the shell requests completions."""
HELP: Final = """Print the completion of commands and options for SHELL.

\b
bash:  eval "$(tidegate completion bash)"             in ~/.bashrc
zsh:   eval "$(tidegate completion zsh)"              in ~/.zshrc
fish:  tidegate completion fish > ~/.config/fish/completions/tidegate.fish
"""
"""Contains click's mark, a backspace, before lines that click must not rewrap."""


@click.command(help=HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion of commands and options for SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of them"
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
