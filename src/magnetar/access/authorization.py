"""Authorization: asks the decision, and refuses.

Owns the settings that count and the view of the records. `session` asks it for each command, `admin` for each request;
the rules are in `decision`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar.access.decision import Rules, View, first_refusal
from magnetar.access.needs import Right
from magnetar.access.principal import Author, Principal
from magnetar.errors import RightMissing
from magnetar.settings.authorization import AuthorizationSettings


class Authorization:
    """Without rules every client may do everything: the broker has no authorization."""

    def __init__(self, view: View | None = None, rules: Rules | None = None) -> None:
        self._view = view
        self._rules = rules
        self._watchers: dict[object, Callable[[str], None]] = {}

    @property
    def is_enabled(self) -> bool:
        return self._rules is not None

    def require(self, principal: Principal, rights: Iterable[Right]) -> None:
        """Raises `RightMissing`, with a sentence for the client, unless the principal has all of these rights."""
        if self._rules is None or self._view is None:
            return
        sentence = first_refusal(self._view, self._rules, principal, rights)
        if sentence:
            raise RightMissing(sentence)

    def allows(self, principal: Principal, rights: Iterable[Right]) -> bool:
        if self._rules is None or self._view is None:
            return True
        return not first_refusal(self._view, self._rules, principal, rights)

    def author(self, principal: Principal) -> Author | None:
        """Kept with a policy that the principal sets; None without authorization."""
        return Author.of(principal) if self.is_enabled else None

    def allows_author(self, author: Author | None, rights: Iterable[Right]) -> bool:
        """Whether the one who set a policy may still do what the broker does by it. Nothing is known of policies that
        were set before there was authorization."""
        if not self.is_enabled:
            return True
        return author is not None and self.allows(author.principal, rights)

    def watch(self, watcher: object, on_change: Callable[[str], None]) -> None:
        """`on_change(tenant)` is called after a change of what roles may do in the tenant, until `unwatch`."""
        if self._rules is not None:
            self._watchers[watcher] = on_change

    def unwatch(self, watcher: object) -> None:
        self._watchers.pop(watcher, None)

    def changed(self, tenant: str) -> None:
        for on_change in list(self._watchers.values()):
            on_change(tenant)


def rules_of(settings: AuthorizationSettings) -> Rules:
    return Rules(
        super_users=roles_in(settings.superUserRoles),
        wildcards=settings.authorizationAllowWildcardsMatching,
        proxies=roles_in(settings.proxyRoles),
    )


def roles_in(text: str) -> frozenset[str]:
    """The roles of a setting that lists them."""
    return frozenset(role for one in text.split(",") if (role := one.strip()))
