"""`callgate completion`: scripts for shell completion of commands, options, sessions and files.

Takes the name of a shell, prints its script. The script calls `callgate`, so it never gets out of date.
"""

from __future__ import annotations

import click

__all__ = ["completion"]

SHELLS = {
    "bash": "callgate completion bash > ~/.local/share/bash-completion/completions/callgate",
    "zsh": "callgate completion zsh > ~/.zfunc/_callgate   (with ~/.zfunc in fpath, before compinit)",
    "fish": "callgate completion fish > ~/.config/fish/completions/callgate.fish",
}
"""Name of a shell -> how its script is usually stored."""

_WHERE = "\n\n".join(f"{name}: {where}" for name, where in SHELLS.items())


@click.command(
    help=f"Print the script with which SHELL completes commands, options, sessions and files.\n\n{_WHERE}",
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the script of a shell."""
    from click.shell_completion import get_completion_class

    from callgate.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "callgate", "_CALLGATE_COMPLETE").source())
