"""Proxies: clients that act on behalf of another role. The rules are Pulsar's.

Knows neither how a role was proved nor what it may do.
"""

from __future__ import annotations

import msgspec

from magnetar.access.json_web_token import checked_role
from magnetar.access.principal import INTERNAL_ROLE, Principal
from magnetar.errors import AuthenticationFailed, RightMissing
from magnetar.settings.authentication import AuthenticationSettings

WEB_SOCKETS = "__websocket_dummy_original_principle"
"""The original principal that Pulsar's proxies of web sockets send. It stands for no role, and has no proof."""


def proxy_roles(settings: AuthenticationSettings) -> frozenset[str]:
    return frozenset(word.strip() for word in settings.proxyRoles.split(",") if word.strip())


def on_behalf(
    principal: Principal, original: str, settings: AuthenticationSettings, *, by_http: bool = False
) -> Principal:
    """The principal with the role on whose behalf it acts, or empty; raises `RightMissing` if they do not go together.

    Over HTTP a client that is no proxy may name its own role: Pulsar's proxy forwards requests so. What a proxy names
    there has no proof, also where binary clients need one, as in Pulsar.
    """
    if principal.role == INTERNAL_ROLE and not original:
        return principal
    proxies = proxy_roles(settings)
    if principal.role in proxies:
        if not original.strip():
            raise RightMissing(f"the role {principal.role} is that of a proxy, which must name an original principal")
        if original in proxies or original == INTERNAL_ROLE:
            raise RightMissing("the original principal is a role that no proxy may act for")
    elif original.strip() and original != WEB_SOCKETS and not (by_http and original == principal.role):
        raise RightMissing("an original principal is only for proxies, whose roles are in proxyRoles")
    if not original.strip() or original == WEB_SOCKETS or original == principal.role:
        return principal
    try:
        return msgspec.structs.replace(principal, original=checked_role(original))
    except AuthenticationFailed as error:
        raise RightMissing(str(error)) from None
