"""A case: the facts about one topic and one remote cluster; causes as data, and the form of commands that repair them.

Knows no single cause; `causes` finds them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from magnetar.cli.doctor.facts import RemoteFacts, SourceFacts, TopicFacts

PLAIN_ADDRESSES = ("--service-url", "http://HOST:PORT", "--broker-url", "pulsar://HOST:PORT")
TOKEN_AGAIN = ("--auth-plugin", "AuthenticationToken", "--auth-parameters-file", "/PATH-OF-TOKEN")


class Kind(StrEnum):
    """The name of a cause."""

    MISNAMED = "cluster-misnamed"
    NOT_DECLARED = "not-declared"
    LOOP = "loop"
    NO_ADDRESS = "no-address"
    WRONG_PORT = "wrong-port"
    PAUSED = "paused"
    NAME_CLASH = "name-clash"
    NOT_RUNNING = "pipeline-not-running"
    NOT_STARTED = "not-started"
    SPARK_MISSING = "spark-missing"
    SUBSCRIPTION_MISSING = "subscription-missing"
    PARTITION_MISSING = "partition-missing"
    UNREACHABLE = "remote-unreachable"
    TLS = "tls"
    AUTHENTICATION = "authentication"
    TENANT_MISSING = "remote-tenant-missing"
    NAMESPACE_MISSING = "remote-namespace-missing"
    TOPIC_MISSING = "remote-topic-missing"
    PARTITION_MISMATCH = "partition-mismatch"
    TERMINATED = "remote-topic-terminated"
    DEDUPLICATION_OFF = "deduplication-off"
    QUOTA = "remote-quota"
    NOT_AUTHORIZED = "not-authorized"
    SCHEMA_REFUSED = "schema-refused"
    TOO_LARGE = "message-too-large"
    MESSAGE_REFUSED = "message-refused"
    BAD_FILTER = "bad-filter"
    REFUSED = "refused-by-remote"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Cause:
    kind: Kind
    what: str
    evidence: tuple[str, ...]
    repair: str

    def described(self) -> dict[str, object]:
        return {"kind": self.kind, "what": self.what, "evidence": list(self.evidence), "repair": self.repair}


@dataclass(frozen=True, slots=True)
class Case:
    """The facts about one topic and one remote cluster."""

    source: SourceFacts
    remote: RemoteFacts
    facts: TopicFacts

    @property
    def topic(self) -> str:
        return self.facts.declared.topic

    def here(self, *words: str) -> str:
        return command(*words, url=self.source.url)

    def there(self, *words: str, token: str | None = None) -> str:
        """A command for the remote cluster, with the declared credentials or another token."""
        remote = self.remote
        options = ["--trust-certs", remote.trust_certs] if remote.trust_certs else []
        token = remote.token if token is None else token
        options += ["--token", token] if token else []
        return command(*words, url=remote.http_url or f"URL-OF-{remote.name}", options=options)

    def readdressed(self) -> str:
        """The command that changes the address of the remote cluster."""
        words = list(PLAIN_ADDRESSES)
        if (self.remote.service_url or "").startswith(("pulsar+ssl:", "https:")):
            words = ["--service-url-tls", "https://HOST:PORT", "--broker-url-tls", "pulsar+ssl://HOST:PORT"]
        return self.redeclared(*words)

    def redeclared(self, *words: str) -> str:
        """The command that changes the record of the remote cluster. A secret in it is not sent to another address, and
        not under another trust, unless it is given again."""
        again = TOKEN_AGAIN if self.remote.is_blind else ()
        return self.here("clusters", "update", self.remote.name, *words, *again)


def command(*words: str, url: str, options: Sequence[str] = ()) -> str:
    return shlex.join(["magnetar", *words, "--url", url, *options])
