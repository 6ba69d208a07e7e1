"""`magnetar profiles …`: shows the profiles of the file of profiles, never their secrets."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar.cli.command import CommandGroup
from magnetar.cli.login.profiles import config_file, read_profile, read_profiles
from magnetar.cli.output import Record, Table

group = CommandGroup("profiles", "Show the profiles of --profile: addresses and logins in a file.")

Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A profile, or a file with one in it.")]


def list_profiles() -> Table:
    """List the profiles, their addresses and the kinds of login."""
    file = config_file()
    found = read_profiles(file) if file.exists() else {}
    return Table(
        {name: source.shown() for name, source in found.items()},
        ("profile", "url", "login"),
        [(name, source.url, source.kind) for name, source in found.items()],
        none=f"{file} has no profiles",
    )


def show(name: Name) -> Record:
    """Show the settings of a profile, without its secrets."""
    return Record(read_profile(name).source.shown())


group.offline("list", list_profiles)
group.offline("show", show)
