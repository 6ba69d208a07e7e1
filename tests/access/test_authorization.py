"""The rules, on plain dictionaries: who may do what, and that more permissions never mean less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.access.authorization import Authorization, roles_in, rules_of
from magnetar.access.decision import Permissions, Rules, refusal
from magnetar.access.needs import OF_NAMESPACE, OF_TOPIC, Need, Right, right_on_namespace, right_on_topic
from magnetar.access.principal import INTERNAL_ROLE, NO_ONE_ASKED, Author, Principal
from magnetar.errors import InvalidSetting, RightMissing
from magnetar.names import TopicName
from magnetar.settings.settings import Settings

NAME = TopicName.parse("persistent://acme/sales/orders")
TARGETED = [need for need in Need if need in OF_TOPIC | OF_NAMESPACE or need is Need.TENANT_ADMIN]


class Records:
    """The twin of the catalog's view."""

    def __init__(
        self,
        admins: dict[str, list[str]] | None = None,
        namespaces: dict[str, dict[str, list[str]]] | None = None,
        topics: dict[str, dict[str, list[str]]] | None = None,
        subscriptions: dict[str, list[str]] | None = None,
        mode: str = "",
        authors: dict[str, list[Author]] | None = None,
    ) -> None:
        self.admins, self.namespaces, self.topics = admins or {}, namespaces or {}, topics or {}
        self.subscriptions, self.mode = subscriptions or {}, mode
        self.authors = authors or {}

    def admin_roles(self, tenant: str) -> Sequence[str]:
        return self.admins.get(tenant, ())

    def namespace_permissions(self, namespace: str) -> Permissions:
        return self.namespaces.get(namespace, {})

    def topic_permissions(self, namespace: str, topic: str) -> Permissions:
        return self.topics.get(topic, {})

    def subscription_roles(self, namespace: str, subscription: str) -> Sequence[str]:
        return self.subscriptions.get(subscription, ())

    def pipeline_authors(self, tenant: str) -> Sequence[Author]:
        return self.authors.get(tenant, ())

    def subscription_auth_mode(self, namespace: str) -> str:
        return self.mode


def may(records: Records, role: str, right: Right, rules: Rules | None = None) -> bool:
    return not refusal(records, rules or Rules(frozenset(("root",))), Principal(role, "token"), right)


def on_topic(need: Need, subscription: str = "") -> Right:
    return right_on_topic(need, NAME, subscription)


def right_for(need: Need) -> Right:
    if need in OF_TOPIC or need in (Need.REPLICATE, Need.READ_REPLICATION):
        return on_topic(need)
    return right_on_namespace(need, NAME.namespace_full)


@pytest.mark.parametrize("need", Need)
def test_a_super_user_may_do_everything(need: Need) -> None:
    assert may(Records(), "root", right_for(need))


@pytest.mark.parametrize("need", Need)
def test_a_role_without_rights_may_do_nothing_that_is_guarded(need: Need) -> None:
    assert may(Records(), "nothing", right_for(need)) == (need in (Need.OPEN, Need.SIGNED_IN, Need.HANDLE))


@pytest.mark.parametrize("need", TARGETED)
def test_an_admin_of_a_tenant_may_do_everything_in_it_and_nothing_in_another(need: Need) -> None:
    assert may(Records(admins={"acme": ["boss"]}), "boss", right_for(need))
    assert not may(Records(admins={"other": ["boss"]}), "boss", right_for(need))


def test_an_admin_of_a_tenant_is_no_super_user() -> None:
    assert not may(Records(admins={"acme": ["boss"]}), "boss", Right(Need.SUPER_USER, "acme"))


@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        ("produce", {Need.PRODUCE, Need.LOOKUP, Need.LIST_TOPICS}),
        ("consume", {Need.CONSUME, Need.LOOKUP, Need.LIST_TOPICS, Need.CONSUME_ALL}),
        ("functions", set()),
        ("packages", set()),
    ],
)
def test_a_permission_on_a_namespace(action: str, allowed: set[Need]) -> None:
    records = Records(namespaces={NAME.namespace_full: {"app": [action]}})
    assert {need for need in TARGETED if may(records, "app", right_for(need))} == allowed
    assert not any(may(records, "other", right_for(need)) for need in TARGETED)


@pytest.mark.parametrize(
    ("action", "allowed"),
    [("produce", {Need.PRODUCE, Need.LOOKUP}), ("consume", {Need.CONSUME, Need.LOOKUP})],
)
def test_a_permission_on_a_topic_says_nothing_about_its_namespace(action: str, allowed: set[Need]) -> None:
    records = Records(topics={NAME.full: {"app": [action]}})
    assert {need for need in TARGETED if may(records, "app", right_for(need))} == allowed


def test_a_subscription_with_roles_is_for_those_only() -> None:
    records = Records(
        namespaces={NAME.namespace_full: {"app": ["consume"], "b": ["consume"]}}, subscriptions={"s": ["b"]}
    )
    assert not may(records, "app", on_topic(Need.CONSUME, "s"))
    assert may(records, "app", on_topic(Need.CONSUME, "t"))
    assert may(records, "b", on_topic(Need.CONSUME, "s"))


def test_prefix_mode_wants_the_role_at_the_beginning_of_the_subscription() -> None:
    records = Records({"acme": ["boss"]}, {NAME.namespace_full: {"app": ["consume"]}}, mode="Prefix")
    assert may(records, "app", on_topic(Need.CONSUME, "app-1"))
    assert not may(records, "app", on_topic(Need.CONSUME, "other"))
    assert may(records, "boss", on_topic(Need.CONSUME, "other"))


def test_a_permission_on_a_subscription_alone_is_no_right_to_consume() -> None:
    assert not may(Records(subscriptions={"s": ["app"]}), "app", on_topic(Need.CONSUME, "s"))


@pytest.mark.parametrize(("pattern", "role"), [("app-*", "app-1"), ("*-app", "my-app"), ("*", "any")])
def test_wildcards_count_only_if_they_are_switched_on(pattern: str, role: str) -> None:
    records = Records(namespaces={NAME.namespace_full: {pattern: ["produce"]}})
    assert not may(records, role, on_topic(Need.PRODUCE))
    assert may(records, role, on_topic(Need.PRODUCE), Rules(frozenset(), wildcards=True))
    assert not may(records, role, on_topic(Need.CONSUME), Rules(frozenset(), wildcards=True))


def test_a_proxy_and_its_client_both_need_the_right() -> None:
    rules = Rules(frozenset(("root",)), proxies=frozenset(("proxy",)))
    records = Records(namespaces={NAME.namespace_full: {"app": ["produce"], "proxy": ["produce", "consume"]}})
    right = on_topic(Need.PRODUCE)
    assert not refusal(records, rules, Principal("proxy", "token", original="app"), right)
    assert "'none'" in refusal(records, rules, Principal("proxy", "token", original="none"), right)
    assert "does not say" in refusal(records, rules, Principal("proxy", "token"), right)
    assert refusal(records, rules, Principal("proxy", "token", original="app"), on_topic(Need.CONSUME))


def test_a_role_that_is_no_proxy_any_more_has_no_more_rights_than_the_role_it_acted_for() -> None:
    """The author of a policy is kept with both, and proxyRoles may change."""
    records = Records(namespaces={NAME.namespace_full: {"proxy": ["produce"]}})
    kept = Author("proxy", "alice").principal
    assert "'alice'" in refusal(records, Rules(frozenset()), kept, on_topic(Need.PRODUCE))
    records.namespaces[NAME.namespace_full]["alice"] = ["produce"]
    assert not refusal(records, Rules(frozenset()), kept, on_topic(Need.PRODUCE))


@pytest.mark.parametrize(
    ("right", "allowed"),
    [
        (on_topic(Need.CONSUME, "pulsar.repl.far"), True),
        (on_topic(Need.REPLICATE), True),
        (on_topic(Need.LOOKUP), True),
        (right_on_topic(Need.PRODUCE, TopicName.parse("orders-far-REPL-DLQ")), True),
        (right_on_topic(Need.PRODUCE, TopicName.parse("orders-far-REPL-DLQ-partition-3")), True),
        (on_topic(Need.PRODUCE), False),
        (Right(Need.TENANT_ADMIN, "acme"), False),
        (Right(Need.SUPER_USER), False),
    ],
)
def test_the_brokers_own_pipelines_may_replicate_and_nothing_else(right: Right, allowed: bool) -> None:
    assert may(Records(), INTERNAL_ROLE, right) == allowed


def test_sp7_the_brokers_own_pipelines_publish_what_the_author_of_a_pipeline_may() -> None:
    """Dead letters name their origins, and any client can write one: its author's rights decide where it may go."""
    authors = {"acme": [Author("alice"), Author(INTERNAL_ROLE)]}
    records = Records(namespaces={NAME.namespace_full: {"alice": ["produce"]}}, authors=authors)
    assert may(records, INTERNAL_ROLE, on_topic(Need.PRODUCE))
    other = TopicName.parse("persistent://acme/secret/orders")
    assert not may(records, INTERNAL_ROLE, right_on_topic(Need.PRODUCE, other)), "alice may not"
    elsewhere = TopicName.parse("persistent://other/sales/orders")
    assert not may(records, INTERNAL_ROLE, right_on_topic(Need.PRODUCE, elsewhere)), "no pipeline works there"
    del records.namespaces[NAME.namespace_full]["alice"]
    assert not may(records, INTERNAL_ROLE, on_topic(Need.PRODUCE)), "alice may no more"
    admin = Records(admins={"acme": ["alice"]}, authors=authors)
    assert may(admin, INTERNAL_ROLE, on_topic(Need.PRODUCE))
    assert not may(admin, INTERNAL_ROLE, Right(Need.TENANT_ADMIN, "acme")), "and nothing else"


def test_without_rules_nothing_is_asked() -> None:
    Authorization().require(NO_ONE_ASKED, [Right(Need.SUPER_USER)])


def test_what_is_missing_is_said_in_a_sentence() -> None:
    authorization = Authorization(Records(), Rules(frozenset()))
    with pytest.raises(RightMissing) as raised:
        authorization.require(Principal("app", "token"), [Right(Need.OPEN), on_topic(Need.PRODUCE)])
    assert str(raised.value) == (
        "role 'app' may not do this with persistent://acme/sales/orders:"
        " needs produce on it or on its namespace, or to be tenant admin of acme or super user"
    )
    assert not authorization.allows(Principal("app", "token"), [on_topic(Need.PRODUCE)])


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (
            Records(namespaces={NAME.namespace_full: {"app": ["consume"]}}, subscriptions={"s": ["secret"]}),
            "the subscription is only for the roles that it was granted to",
        ),
        (
            Records(topics={NAME.full: {"app": ["consume"]}}, mode="Prefix"),
            "with subscriptionAuthMode=Prefix, the name of a subscription has to begin with the role",
        ),
        (
            Records(subscriptions={"s": ["secret"]}, mode="Prefix"),
            "needs consume on it or on its namespace, or to be tenant admin of acme or super user",
        ),
    ],
)
def test_a_refusal_names_what_is_missing_and_no_other_role(records: Records, reason: str) -> None:
    """It asked for consume, which the role had."""
    sentence = refusal(records, Rules(frozenset()), Principal("app", "token"), on_topic(Need.CONSUME, "s"))
    assert sentence == f"role 'app' may not do this with {NAME.full}, subscription 's': {reason}"


@pytest.mark.parametrize(
    ("right", "needed"),
    [
        (right_on_namespace(Need.LIST_TOPICS, "acme/sales"), "produce or consume on the namespace, or to be tenant ad"),
        (Right(Need.TENANT_ADMIN, "acme"), "to be tenant admin of acme or super user"),
        (Right(Need.SUPER_USER), "to be super user"),
    ],
)
def test_a_refusal_of_other_needs(right: Right, needed: str) -> None:
    assert f"needs {needed}" in refusal(Records(), Rules(frozenset()), Principal("app", "token"), right)


def test_rules_come_from_the_settings() -> None:
    rules = rules_of(Settings(superUserRoles=" admin, root,,", authorizationAllowWildcardsMatching=True))
    assert (rules.super_users, rules.wildcards) == ({"admin", "root"}, True)
    assert roles_in("") == frozenset()


def test_another_provider_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"only org\.apache\.pulsar"):
        Settings(authorizationProvider="org.example.MyProvider")


# -- properties

_roles = st.sampled_from(["a", "ab", "b", "*b", "a*", "root", "", INTERNAL_ROLE])
_given = st.dictionaries(
    _roles, st.lists(st.sampled_from(["produce", "consume", "functions"]), unique=True), max_size=4
)
_rules = st.builds(Rules, st.frozensets(_roles, max_size=1), st.booleans(), st.just(frozenset(("proxy",))))
_principals = st.builds(Principal, st.one_of(_roles, st.just("proxy")), st.just("token"), original=_roles)
_rights = st.builds(
    lambda need, subscription: Right(need, NAME.tenant, NAME.namespace_full, NAME.full, subscription),
    st.sampled_from(Need),
    st.sampled_from(["", "a-1", "s"]),
)


@st.composite
def _records(draw: Any) -> Records:
    return Records(
        {NAME.tenant: draw(st.lists(_roles, max_size=2))},
        {NAME.namespace_full: draw(_given)},
        {NAME.full: draw(_given)},
        draw(st.dictionaries(st.sampled_from(["s", "a-1"]), st.lists(_roles, min_size=1, max_size=2))),
        draw(st.sampled_from(["", "Prefix"])),
    )


@given(_records(), _rules, _principals, _rights, _roles, st.sampled_from(["produce", "consume"]), st.integers(0, 3))
def test_adding_a_permission_never_removes_a_right(
    records: Records, rules: Rules, principal: Principal, right: Right, role: str, action: str, where: int
) -> None:
    if refusal(records, rules, principal, right):
        return
    if where == 0:
        records.admins[NAME.tenant].append(role)
    elif where == 1:
        records.namespaces[NAME.namespace_full].setdefault(role, []).append(action)
    elif where == 2:
        records.topics[NAME.full].setdefault(role, []).append(action)
    elif right.subscription in records.subscriptions:  # the first role of a subscription excludes all others
        records.subscriptions[right.subscription].append(role)
    assert not refusal(records, rules, principal, right)


@given(_records(), _rules, _principals, _rights)
def test_a_proxy_never_has_more_rights_than_its_client(
    records: Records, rules: Rules, principal: Principal, right: Right
) -> None:
    if principal.role in rules.proxies and not refusal(records, rules, principal, right):
        client = Principal(principal.original, "token")
        assert not refusal(records, rules, client, right)
