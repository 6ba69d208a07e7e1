"""Policy commands, drawn from the table: set, get and remove each policy of namespaces, topics and subscriptions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from magnetar.cli.argument import PUBLIC_DEFAULT, Namespace, ReadNamespace, Subscription, Topic
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Record
from magnetar.cli.path import namespace_path, subscription_path, topic_path
from magnetar.cli.policies.setting import QuotaType, QuotaTypeOption, Setting
from magnetar.cli.policies.table import POLICIES, PolicyCommand
from magnetar.cli.rest import Rest

_Applied = Annotated[bool, typer.Option("--applied", "-ap", help="Show the value in force, inherited or not.")]


def _parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@dataclass(frozen=True, slots=True)
class CommandLevel:
    """Namespaces, topics or subscriptions: the arguments that name one, its path, and its name in messages."""

    name: str
    arguments: tuple[inspect.Parameter, ...]
    path: Callable[..., tuple[str, ...]]
    label: str
    getter: tuple[inspect.Parameter, ...]  # parameters of `get-NAME`


_TOPIC, _SUBSCRIPTION = _parameter("topic", Topic), _parameter("subscription", Subscription)
NAMESPACE = CommandLevel(
    "namespace",
    (_parameter("namespace", Namespace),),
    namespace_path,
    "{namespace}",
    (_parameter("namespace", ReadNamespace, PUBLIC_DEFAULT),),
)
TOPIC = CommandLevel("topic", (_TOPIC,), topic_path, "{topic}", (_TOPIC, _parameter("applied", _Applied, False)))
SUBSCRIPTION = CommandLevel(
    "subscription", (_TOPIC, _SUBSCRIPTION), subscription_path, "{subscription}", (_TOPIC, _SUBSCRIPTION)
)


def add_namespace_policies(group: CommandGroup) -> None:
    for policy in POLICIES:
        if policy.namespace is not None:
            _add(group, policy, NAMESPACE, policy.name, policy.namespace)


def add_topic_policies(group: CommandGroup) -> None:
    for policy in POLICIES:
        if policy.topic is not None:
            _add(group, policy, TOPIC, policy.topic_name or policy.name, policy.topic)


def add_subscription_policies(group: CommandGroup) -> None:
    for policy in POLICIES:
        if policy.subscription is not None:
            _add(group, policy, SUBSCRIPTION, policy.name, policy.subscription)


def _add(group: CommandGroup, policy: PolicyCommand, level: CommandLevel, name: str, path: str) -> None:
    options = list(inspect.signature(policy.setting, eval_str=True).parameters.values())

    def split(given: dict[str, Any]) -> tuple[tuple[str, ...], str]:
        """Takes the arguments that name a namespace, topic or subscription out of `given`."""
        named = {argument.name: given.pop(argument.name) for argument in level.arguments}
        path_of = topic_path if policy.is_below_topic else level.path
        return path_of(*named.values()), level.label.format(**named)

    def set_it(rest: Rest, **given: Any) -> Done:
        prefix, label = split(given)
        setting = policy.setting(**given)
        if policy.topic_query is not None and level is TOPIC:
            setting = Setting(None, {policy.topic_query: setting.body})
        rest.request(policy.method, (*prefix, path), body=setting.body, query=setting.query)
        return Done(f"set {name} of {label}")

    def get_it(rest: Rest, applied: bool = False, **given: Any) -> Record:
        prefix, label = split(given)
        value = rest.get(*prefix, policy.get_path or path, query={"applied": True} if applied else None)
        return Record(value, none=f"{name} of {label} is not set")

    def remove_it(rest: Rest, **given: Any) -> Done:
        prefix, label = split(given)
        query = {"backlogQuotaType": kind.value} if isinstance(kind := given.get("type"), QuotaType) else None
        rest.delete(*prefix, path, query=query)
        return Done(f"removed {name} of {label}")

    title = name.replace("-", " ")
    add = partial(group.add, pulsar_only=policy.is_pulsar_only, panel=f"Policies: {policy.panel.lower()}")
    add(f"set-{name}", f"Set {title}: {policy.meaning}.", [*level.arguments, *options], set_it)
    add(f"get-{policy.get_name or name}", f"Show {title} of a {level.name}.", level.getter, get_it)
    if policy.removable or level is TOPIC:
        # Only a quota has more than one value; its type selects one.
        types = [option for option in options if option.annotation is QuotaTypeOption]
        add(f"remove-{name}", f"Remove {title} of a {level.name}.", [*level.arguments, *types], remove_it)
