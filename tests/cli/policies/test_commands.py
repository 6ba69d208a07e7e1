"""Every policy of the admin interface has its commands, and every policy command has its route."""

from __future__ import annotations

from magnetar.admin.http.unsupported import why_not
from magnetar.admin.policy import routes
from magnetar.admin.policy.scope import NAMESPACE, TOPIC
from magnetar.cli.app import group_of
from magnetar.cli.policies.table import POLICIES, PolicyCommand

LEVELS = {"namespaces": NAMESPACE.path, "topics": TOPIC.path, "subscriptions": routes.SUBSCRIPTION_PATH}

# All policies of a topic at once, and the former name of schemaCompatibilityStrategy.
WITHOUT_COMMAND = {f"{TOPIC.path}/policies", f"{NAMESPACE.path}/schemaAutoUpdateCompatibilityStrategy"}


def part_of(policy: PolicyCommand, group: str) -> str | None:
    return {"namespaces": policy.namespace, "topics": policy.topic, "subscriptions": policy.subscription}[group]


def requests() -> dict[tuple[str, str], str]:
    """The requests of all policy commands, each with its command."""
    found: dict[tuple[str, str], str] = {}
    for group in LEVELS:
        names = {command.name for command in group_of(group).commands}
        for policy in POLICIES:
            part = part_of(policy, group)
            if part is None:
                continue
            prefix = f"{TOPIC.path}/{{subscription}}" if policy.is_below_topic else LEVELS[group]
            name = policy.topic_name if group == "topics" and policy.topic_name else policy.name
            found[policy.method, f"{prefix}/{part}"] = f"set-{name}"
            found["GET", f"{prefix}/{policy.get_path or part}"] = f"get-{policy.get_name or name}"
            if f"remove-{name}" in names:
                found["DELETE", f"{prefix}/{part}"] = f"remove-{name}"
            assert {f"set-{name}", f"get-{policy.get_name or name}"} <= names, (group, name)
    return found


def test_every_policy_route_has_a_command() -> None:
    served = {(method, path) for method, path, *_ in routes.routes() if path not in WITHOUT_COMMAND}
    assert served - requests().keys() == set()


def test_every_policy_command_has_a_route_or_is_a_known_gap() -> None:
    served = {(method, path) for method, path, *_ in routes.routes()}
    for method, path in requests().keys() - served:
        reason = why_not(method, path.replace("{domain}", "persistent"))
        assert reason is not None and not reason.endswith("yet"), (method, path)
