"""docs/cli.md and the help texts are complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from magnetar.cli.app import command_for
from magnetar.cli.login.login_source import LoginSource
from tools.cli_reference import render

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def _commands() -> list[tuple[str, Any]]:
    root: Any = command_for([])
    return [
        (f"{noun} {name}", command)
        for noun, group in root.commands.items()
        if hasattr(group, "commands")
        for name, command in group.commands.items()
        if not command.hidden
    ]


COMMANDS = _commands()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "make docs draws it anew"


def test_every_command_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sections = {part.split("\n")[0]: part for part in page.split("\n## magnetar ")[1:]}
    for path, _ in COMMANDS:
        noun, name = path.split()
        assert f"\n| `{name}" in sections[noun], path


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_every_command_has_a_help_text(path: str, command: Any) -> None:
    assert command.help.endswith(".")
    options = {option for parameter in command.params for option in parameter.opts}
    about_two = [parameter.name for parameter in command.params[:2]] == ["a", "b"]  # both are named as arguments
    is_offline = path in ("doctor data", "profiles list", "profiles show") or path.startswith("tokens ")
    if not is_offline:
        assert ("--token" if about_two else "--url") in options
    assert "--json" in options or path == "pipelines run", "a process, which writes a log"
    for parameter in command.params:
        assert parameter.help, parameter.name


def test_short_options_are_unique() -> None:
    for path, command in COMMANDS:
        spellings = [
            spelling for parameter in command.params for spelling in (*parameter.opts, *parameter.secondary_opts)
        ]
        assert len(spellings) == len(set(spellings)), path


def test_every_setting_of_a_profile_is_on_the_page() -> None:
    (section,) = (part for part in PAGE.read_text(encoding="utf-8").split("\n## ") if part.startswith("Profiles"))
    for name in LoginSource.__struct_fields__:
        assert f"`{name}`" in section, name
