"""Command groups (`topics`, `tenants`, …): each command gets the options of `login` and `--json`.

A command is a function from a `Rest` and the values of its options to an `Output`. Owns the call and the hints after an
error. It knows no resource.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from magnetar.cli.argument import NamespaceName
from magnetar.cli.help import PULSAR_ONLY, PULSAR_ONLY_PANEL, PlainCommand, PlainGroup
from magnetar.cli.login.login import Login, login_of
from magnetar.cli.login.options import CONTEXT, OF_COMMANDS, take_options
from magnetar.cli.rest import LOGIN_HINT, START_HINT, NoResponse, Refused, Rest, RestError, trust_hint
from magnetar.errors import MagnetarError
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.cli.output import Output

HTTP_NOT_FOUND = 404

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_JSON = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)

_NO_NAMESPACE = re.compile(r"(namespace|policies).*(not found|not exist)", re.IGNORECASE)
_FORBIDDEN = re.compile(r"forced deletion of \w+: (\w+) is false")
_UNREACHABLE = re.compile(r"cannot connect to", re.IGNORECASE)
_NO_TENANT = re.compile(r"(tenant|property).*(not found|not exist)", re.IGNORECASE)

Command = Callable[..., "Output"]
C = TypeVar("C", bound=Command)


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """A command in the reference."""

    name: str
    help: str
    parameters: tuple[inspect.Parameter, ...]
    panel: str = "Commands"
    is_pulsar_only: bool = False


def _group_with(default: str) -> type[PlainGroup]:
    class Group(PlainGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """A name with a slash is an argument of the default: a namespace, and no command."""
            is_option = not args or args[0].startswith("-") or "/" in args[0]
            is_named = args and (not is_option or args[0] in ctx.help_option_names)
            return super().parse_args(ctx, args if is_named else [default, *args])

    return Group


class CommandGroup:
    """`default` is the command of a group that is named without one; without it, that shows the help.

    `panel` is the heading of the commands added next, in the help of the group.
    """

    def __init__(self, name: str, help: str, default: str = "") -> None:
        self.name = name
        self.help = help
        self.panel = "Commands"
        self.commands: list[CommandHelp] = []
        self.app = typer.Typer(
            name=name,
            cls=_group_with(default) if default else PlainGroup,
            help=help,
            no_args_is_help=not default,
            add_completion=False,
            pretty_exceptions_enable=False,
        )

    def command(self, name: str, *, pulsar_only: bool = False) -> Callable[[C], C]:
        """Adds a function whose first parameter is a `Rest`; its docstring is the help text."""

        def add(function: C) -> C:
            parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
            self.add(name, inspect.getdoc(function) or "", parameters, function, pulsar_only=pulsar_only)
            return function

        return add

    def offline(self, name: str, function: Command, *, also: tuple[str, ...] = ()) -> None:
        """Adds a function that works on files and talks to no broker; its docstring is the help text.

        `also` has names that people try; no help shows them.
        """

        def run(**options: Any) -> int:
            from magnetar.cli.output import present

            as_json = options.pop("json")
            return present(function(**options), as_json=as_json)

        parameters = inspect.signature(function, eval_str=True).parameters.values()
        shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        run.__signature__ = inspect.Signature([*shown, _JSON])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        run.__doc__ = inspect.getdoc(function)
        self.app.command(name, cls=PlainCommand, rich_help_panel=self.panel)(run)
        for other in also:
            self.app.command(other, cls=PlainCommand, hidden=True)(run)
        self.commands.append(CommandHelp(name, run.__doc__ or "", tuple(shown), self.panel))

    def add(
        self,
        name: str,
        help: str,
        parameters: Iterable[inspect.Parameter],
        function: Command,
        *,
        pulsar_only: bool = False,
        panel: str = "",
    ) -> None:
        """The same for functions created from a table. A `pulsar_only` command is answered by Apache Pulsar alone."""

        def run(**options: Any) -> int:
            from magnetar.cli.output import present

            as_json, login = options.pop("json"), login_of(take_options(options))
            with rest_of(login) as rest:
                try:
                    return present(function(rest, **options), as_json=as_json)
                except MagnetarError as error:
                    hint = hint_for(error, options)
                    if not hint:
                        raise
                    raise RestError(f"{error}; {hint}") from error

        shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        run.__signature__ = inspect.Signature([CONTEXT, *shown, *OF_COMMANDS, _JSON])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        run.__doc__ = f"{help.rstrip('.')} {PULSAR_ONLY}." if pulsar_only else help
        heading = PULSAR_ONLY_PANEL if pulsar_only else panel or self.panel
        self.app.command(name, cls=PlainCommand, rich_help_panel=heading)(run)
        self.commands.append(CommandHelp(name, run.__doc__, tuple(shown), heading, is_pulsar_only=pulsar_only))


def rest_of(login: Login) -> Rest:
    return Rest(
        login.url,
        login.security,
        service_url=login.service_url,
        service_url_from=login.service_url_from,
        trust_from=login.trust_from,
    )


def hint_for(error: MagnetarError, options: Mapping[str, object]) -> str:
    """A hint for a missing broker, namespace or tenant, or a setting; reported by REST or by the binary protocol."""
    if forbidden := _FORBIDDEN.search(str(error)):
        return f"`magnetar brokers update-dynamic-config --config {forbidden[1]} --value true` allows it"
    if isinstance(error, Refused) and error.status != HTTP_NOT_FOUND:
        return ""
    reason = str(error)
    if type(error).__name__ == "NotAuthenticated":  # of the client, which most commands do not import
        return LOGIN_HINT
    if isinstance(error, NoResponse):  # it has its own
        return ""
    if _UNREACHABLE.search(reason):
        return trust_hint(error) or START_HINT
    namespace = next((str(found) for found in map(_namespace_of, options.values()) if found), "")
    if namespace and _NO_NAMESPACE.search(reason):
        return f"`magnetar namespaces create {namespace}` creates the namespace {namespace}"
    tenant = namespace.partition("/")[0] or str(options.get("tenant") or "")
    if tenant and _NO_TENANT.search(reason):
        return f"`magnetar tenants create {tenant}` creates the tenant {tenant}, `magnetar tenants list` lists all"
    return ""


def _namespace_of(value: object) -> str | None:
    if isinstance(value, TopicName):
        return value.namespace_full
    return str(value) if isinstance(value, NamespaceName) else None
