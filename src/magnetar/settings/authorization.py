"""Settings of authorization: what a role may do. Pulsar's names.

They are a part of `Settings`, which inherits them. `access.authorization` obeys them.
"""

from __future__ import annotations

from typing import Annotated

from magnetar.settings.authentication import AuthenticationSettings
from magnetar.settings.kinds import Flag, Text

PULSAR_PROVIDER = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"


class AuthorizationSettings(AuthenticationSettings, frozen=True, kw_only=True):
    """Those of authentication come before them."""

    authorizationEnabled: Annotated[
        bool,
        Flag(
            "Roles may do only what their permissions allow; without it, a client that is let in may do everything."
            " Needs `authenticationEnabled`."
        ),
    ] = False
    authorizationProvider: Annotated[
        str,
        Text(
            PULSAR_PROVIDER.replace(".", r"\."),
            f"only {PULSAR_PROVIDER}",
            "The rules: those of Apache Pulsar's default provider.",
        ),
    ] = PULSAR_PROVIDER
    superUserRoles: Annotated[
        str,
        Text(r"[^\r\n]*", "names of roles, separated by commas", "Roles that may do everything."),
    ] = ""
    authorizationAllowWildcardsMatching: Annotated[
        bool,
        Flag("A `*` at the beginning or the end of a role in a permission stands for any text."),
    ] = False
