"""Help pages: placeholders such as TOPIC and DURATION instead of Python's types, and `-h` beside `--help`.

Typer shows `<TopicName>` and `<bool>` next to the placeholder; these classes leave them out.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

PULSAR_ONLY = "(Apache Pulsar only)"
PULSAR_ONLY_PANEL = "Apache Pulsar only: Magnetar returns 501"

CONTEXT = {"help_option_names": ["-h", "--help"]}


class PlainCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return [_plain(parameter) for parameter in super().get_params(ctx)]


class PlainGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the code, but those that this broker does not answer last."""
        return sorted(super().list_commands(ctx), key=lambda name: _panel_of(self.commands[name]) == PULSAR_ONLY_PANEL)

    def get_params(self, ctx: Any) -> list[Any]:
        return [_plain(parameter) for parameter in super().get_params(ctx)]


def _panel_of(command: Any) -> str | None:
    panel: str | None = getattr(command, "rich_help_panel", None)
    return panel


def _plain(parameter: Any) -> Any:
    if isinstance(parameter, TyperArgument):
        usage = parameter.display_name_raw if parameter.required else f"[{parameter.display_name_raw}]"
        pieces = [usage + ("…" if parameter.nargs != 1 else "")]
        parameter.get_usage_pieces = lambda ctx: pieces  # type: ignore[method-assign]
        parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    elif isinstance(parameter, TyperOption):
        placeholder = parameter.metavar or _placeholder(parameter)
        parameter.display_type_rich = lambda ctx: placeholder or None  # type: ignore[method-assign]
    return parameter


def _placeholder(option: TyperOption) -> str:
    """For an option without one: nothing for a flag, the words of a choice, FILE or TEXT."""
    kind = option.type_descriptor
    if option.is_flag:
        return ""
    if kind.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in kind.choices or ())
    return "FILE" if kind.is_file or kind.is_path else "TEXT"
