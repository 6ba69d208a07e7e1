"""`magnetar completion SHELL`: the script by which a shell completes commands and options.

Typer writes the script and the completions. Owns the command, and what of a line to complete decides which groups are
imported: a shell waits for each completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer

VARIABLE = "_MAGNETAR_COMPLETE"
"""Set by the script when the shell asks for completions."""

_LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""The line to complete: of bash, and of zsh and fish."""


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]) -> None:
    """Print the script that completes commands and options in a shell.

    For bash, this line belongs in ~/.bashrc: eval "$(magnetar completion bash)"
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="magnetar", complete_var=VARIABLE, shell=shell.value)
    typer.echo(script.strip())


def words_to_complete(environment: Mapping[str, str]) -> Sequence[str]:
    """The finished words of the line, without the program; none unless a shell asks for completions."""
    if VARIABLE not in environment:
        return ()
    line = next((environment[name] for name in _LINES if name in environment), "")
    return line.split(" ")[1:-1]
