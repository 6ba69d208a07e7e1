"""Client certificates, as Pulsar's AuthenticationProviderTls: the role is the common name of a verified certificate.

The server verifies certificates, with TLS; here is only the name that it found.
"""

from __future__ import annotations

from magnetar.access.json_web_token import checked_role
from magnetar.access.principal import Principal
from magnetar.errors import AuthenticationFailed

METHOD = "tls"


class CertificateProvider:
    name = "AuthenticationProviderTls"

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        if not common_name:
            raise AuthenticationFailed("there is no client certificate with a common name", "INVALID_CN")
        return Principal(checked_role(common_name), METHOD)
