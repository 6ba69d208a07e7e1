"""Who asks, and what they were given: roles, their tokens, and the namespaces, topics and permissions of the stage.

Both brokers get the same stage over REST. Does not know the questions.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Protocol

SECRET = hashlib.sha256(b"of these two brokers only").digest()
SUPER_USER = "admin"
PROXY = "proxy"
ANONYMOUS = "anonymous"

APP = "acme/app"
PREFIXED = "acme/prefixed"
FOREIGN = "other/app"
TOPIC = f"{APP}/orders"
PARTITIONED = f"{APP}/parts"


@dataclass(frozen=True)
class Caller:
    """`role` is in the token, or empty for a client without one; `original` is what a proxy says of its client."""

    name: str
    role: str = ""
    original: str = ""
    broken: bool = False  # its token has another signature

    @property
    def token(self) -> str:
        return signed(self.role, b"another key" if self.broken else SECRET) if self.role else ""


CALLERS = (
    Caller("super user", SUPER_USER),
    Caller("tenant admin", "acme-admin"),
    Caller("admin of another tenant", "other-admin"),
    Caller("produce on the namespace", "ns-produce"),
    Caller("consume on the namespace", "ns-consume"),
    Caller("functions on the namespace", "ns-functions"),
    Caller("packages on the namespace", "ns-packages"),
    Caller("produce on the topic", "topic-produce"),
    Caller("consume on the topic", "topic-consume"),
    Caller("the subscription's role", "billing"),
    Caller("produce on another namespace", "elsewhere"),
    Caller("consume by a pattern", "team-blue"),
    Caller("no rights", "stranger"),
    Caller("anonymous"),
    Caller("forged token", SUPER_USER, broken=True),
    Caller("proxy alone", PROXY),
    Caller("proxy for produce on the namespace", PROXY, "ns-produce"),
    Caller("proxy for consume on the namespace", PROXY, "ns-consume"),
    Caller("proxy for the tenant admin", PROXY, "acme-admin"),
    Caller("proxy for the super user", PROXY, SUPER_USER),
    Caller("proxy for no rights", PROXY, "stranger"),
    Caller("proxy for a proxy", PROXY, PROXY),
    Caller("no proxy, for the super user", "ns-produce", SUPER_USER),
    Caller("a super user for no rights", SUPER_USER, "stranger"),
)


class Admin(Protocol):
    def admin(self, method: str, path: str, body: object = None) -> None:
        """A request of the super user, which must succeed."""


def set_stage(side: Admin, cluster: str) -> None:
    for tenant in ("acme", "other"):
        side.admin("PUT", f"tenants/{tenant}", {"adminRoles": [f"{tenant}-admin"], "allowedClusters": [cluster]})
    for namespace in (APP, PREFIXED, FOREIGN):
        side.admin("PUT", f"namespaces/{namespace}")
    for topic in (TOPIC, f"{PREFIXED}/orders", f"{FOREIGN}/orders"):
        side.admin("PUT", f"persistent/{topic}")
        side.admin("PUT", f"persistent/{topic}/subscription/billing", "earliest")
        side.admin("PUT", f"persistent/{topic}/subscription/free", "earliest")
    side.admin("PUT", f"persistent/{PARTITIONED}/partitions", 2)
    for role, actions in (
        ("ns-produce", ["produce"]),
        ("ns-consume", ["consume"]),
        ("ns-functions", ["functions"]),
        ("ns-packages", ["packages"]),
        ("billing", ["consume"]),
        ("team-*", ["consume"]),
        (PROXY, ["produce", "consume"]),
    ):
        side.admin("POST", f"namespaces/{APP}/permissions/{role}", actions)
    for role in ("ns-consume", "billing"):
        side.admin("POST", f"namespaces/{PREFIXED}/permissions/{role}", ["consume"])
    side.admin("POST", f"namespaces/{PREFIXED}/subscriptionAuthMode", "Prefix")
    side.admin("POST", f"namespaces/{FOREIGN}/permissions/elsewhere", ["produce", "consume"])
    side.admin("POST", f"persistent/{TOPIC}/permissions/topic-produce", ["produce"])
    side.admin("POST", f"persistent/{TOPIC}/permissions/topic-consume", ["consume"])
    side.admin("POST", f"namespaces/{APP}/permissions/subscription/billing", ["billing"])


def signed(role: str, secret: bytes) -> str:
    """A JSON web token signed with HS256."""
    parts = [_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": role})]
    signature = hmac.new(secret, b".".join(parts), hashlib.sha256).digest()
    return b".".join([*parts, _base64url(signature)]).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
