"""The client of commands that publish and read messages. Imported late: most commands need REST alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.cli.rest import Rest
from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.client import Client


def client_of(rest: Rest, service_url: str | None, role_prefix: str | None = None) -> Client:
    """Without a binary address, by option or profile, the HTTP address is used for lookups, which return one."""
    from magnetar.client import Client
    from magnetar.client.errors import InvalidArgument

    try:
        return Client(
            service_url or rest.service_url or rest.url,
            security=rest.security,
            subscription_role_prefix=role_prefix or "",
        )
    except InvalidArgument as error:
        place = "--service-url" if service_url or not rest.service_url else rest.service_url_from
        raise InvalidSetting(f"{place}: {error}") from error
