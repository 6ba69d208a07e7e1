"""Options of the client that source and sink use: addresses, authentication, TLS and timeouts.

The reference page is generated from `CLIENT_OPTIONS`. Knows nothing of topics.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.settings.kinds import Flag, Text, Whole
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import GivenOptions, Option, Use, any_text

CLIENT_PREFIX = "pulsar.client."
ROLE_PREFIX = "subscriptionRolePrefix"

_MS_MAX = 24 * 3600 * 1000
_SERVICE = r"(pulsar|pulsar\+ssl|http|https)://\S+"

CLIENT_OPTIONS: tuple[Option, ...] = (
    Option(
        "service.url",
        Use.ALL,
        Text(_SERVICE, "pulsar://, pulsar+ssl://, http:// or https:// with host and port", "Address of the brokers."),
    ),
    Option(
        "admin.url",
        Use.ALL,
        Text(
            r"https?://\S+",
            "http:// or https:// with host and port",
            "Address of the admin API, used to look up topics, partitions and schemas. It works without `service.url`.",
        ),
    ),
    Option(
        CLIENT_PREFIX + "authPluginClassName",
        Use.ALL,
        any_text(
            "Authentication plugin, by the name that Pulsar's clients use.",
            "the class name of an authentication plugin",
        ),
    ),
    Option(CLIENT_PREFIX + "authParams", Use.ALL, any_text("Parameters of the plugin, for example `token:...`.")),
    Option(
        CLIENT_PREFIX + "tlsTrustCertsFilePath", Use.ALL, any_text("Trusted certificates.", "the path of a PEM file")
    ),
    Option(
        CLIENT_PREFIX + "tlsAllowInsecureConnection",
        Use.ALL,
        Flag("Accept brokers whose certificate cannot be verified."),
    ),
    Option(
        CLIENT_PREFIX + "tlsHostnameVerificationEnable",
        Use.ALL,
        Flag("Require the broker's certificate to name the host that is connected to."),
    ),
    Option(
        CLIENT_PREFIX + "tlsCertificateFilePath",
        Use.ALL,
        any_text("Client certificate.", "the path of a PEM file"),
    ),
    Option(
        CLIENT_PREFIX + "tlsKeyFilePath",
        Use.ALL,
        any_text("Private key of the client certificate.", "the path of a PEM file"),
    ),
    Option(
        CLIENT_PREFIX + "operationTimeoutMs",
        Use.ALL,
        Whole(1, _MS_MAX, "Timeout of a request to a broker."),
        30_000,
    ),
    Option(
        CLIENT_PREFIX + "connectionTimeoutMs",
        Use.ALL,
        Whole(1, _MS_MAX, "Timeout of connecting to a broker."),
        10_000,
    ),
    Option(
        ROLE_PREFIX,
        Use.READ,
        any_text(
            "Beginning of the names of the non-durable subscriptions that messages are read with: the role, in a"
            " namespace with `subscriptionAuthMode=Prefix`.",
            "the name of a role",
        ),
    ),
)

SECURITY_OPTIONS = (
    "authPluginClassName",
    "authParams",
    "tlsTrustCertsFilePath",
    "tlsAllowInsecureConnection",
    "tlsHostnameVerificationEnable",
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
)


@dataclass(frozen=True)
class SparkClientOptions:
    """Client options, parsed. Hashable: a process keeps one client per value."""

    service_url: str | None
    admin_url: str | None
    operation_timeout_s: float
    connect_timeout_s: float
    security: tuple[tuple[str, str], ...] = field(repr=False)
    """Those of `SECURITY_OPTIONS` that were set, without the prefix."""
    subscription_role_prefix: str = ""

    @staticmethod
    def of(given: GivenOptions) -> SparkClientOptions:
        service_url, admin_url = given.get("service.url"), given.get("admin.url")
        if service_url is None and admin_url is None:
            raise InvalidOption("no broker address: set option service.url or admin.url")
        security = {name: given.get(CLIENT_PREFIX + name) for name in SECURITY_OPTIONS}
        return SparkClientOptions(
            service_url=service_url,
            admin_url=admin_url,
            operation_timeout_s=given.get(CLIENT_PREFIX + "operationTimeoutMs") / 1000,
            connect_timeout_s=given.get(CLIENT_PREFIX + "connectionTimeoutMs") / 1000,
            security=tuple((name, _text(value)) for name, value in security.items() if value is not None),
            subscription_role_prefix=given.get(ROLE_PREFIX) or "",
        )

    @property
    def has_admin(self) -> bool:
        """Whether the admin API can be used: by its own address, or by an HTTP `service.url`."""
        return self.admin_url is not None or (self.service_url or "").startswith("http")

    @property
    def url(self) -> str:
        """Address for lookups: binary protocol, or HTTP only."""
        url = self.service_url or self.admin_url
        assert url is not None
        return url


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
