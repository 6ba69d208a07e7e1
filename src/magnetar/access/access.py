"""Access: authentication and the rules of authorization as the settings say, before there is a catalog to ask.

Owns the check that both can be had together: a broker makes it before it opens its data, so that a key that cannot be
read ends the start and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar.access.authentication import Authentication
from magnetar.access.authorization import Authorization, rules_of
from magnetar.access.decision import Rules, View
from magnetar.access.providers.internal import InternalToken
from magnetar.errors import InvalidSetting
from magnetar.settings.authorization import AuthorizationSettings


class Access(NamedTuple):
    """Without `rules`, the broker has no authorization. `internal_token` is for its own pipelines process."""

    authentication: Authentication
    rules: Rules | None
    internal_token: InternalToken

    @staticmethod
    def from_settings(settings: AuthorizationSettings) -> Access:
        """Reads the keys; raises `InvalidSetting`."""
        internal = InternalToken()
        authentication = Authentication.from_settings(settings, internal)
        if not settings.authorizationEnabled:
            return Access(authentication, None, internal)
        if not authentication.is_enabled:
            raise InvalidSetting(
                "authorizationEnabled=true needs authenticationEnabled=true: without it, no client has a role"
            )
        return Access(authentication, rules_of(settings), internal)

    def authorization(self, view: View) -> Authorization:
        """By the records that the view shows."""
        return Authorization(view, self.rules) if self.rules is not None else Authorization()
