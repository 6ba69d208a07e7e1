"""`magnetar pipelines`: runs the process that replicates, on any machine that reaches both clusters.

Either for a Magnetar broker, which declares its routes, or between any clusters, given by options.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.cli.login.login import Login, token_of
from magnetar.cli.login.options import with_login
from magnetar.cli.replication.route import parse_mask
from magnetar.cli.rest import checked_url
from magnetar.errors import InvalidSetting
from magnetar.replication.model import ClusterAddress, Mismatch, Refusal, RoutePolicy
from magnetar.replication.route import check_policy

if TYPE_CHECKING:
    from magnetar.client import Security
    from magnetar.pipelines.service import Verb
    from magnetar.pipelines.replicate.sources import Selection

_CLUSTER = "standalone"
_REMOTE_TOKEN = "MAGNETAR_REMOTE_TOKEN"

ServiceUrl = Annotated[
    str | None,
    typer.Option("--service-url", metavar="URL", help="Its binary address.", show_default="found by a lookup"),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="MASTER", help="The Spark master.", show_default="all cores of this machine"),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="URL", help="The binary address of any cluster to copy from, instead of --url."),
]
AdminFrom = Annotated[
    str | None, typer.Option("--admin-from", metavar="URL", help="With --from: the HTTP address of the cluster.")
]
ClusterName = Annotated[str, typer.Option("--cluster", metavar="NAME", help="With --from: the name of the cluster.")]
To = Annotated[
    list[str] | None,
    typer.Option("--to", metavar="NAME=URL,HTTP_URL", help="With --from: a cluster to copy to; may be repeated."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        metavar="TOPIC|TENANT/NAMESPACE",
        help="With --from: a topic or namespace to copy; may be repeated.",
    ),
]
Where = Annotated[str, typer.Option("--where", metavar="SQL", help="With --from: a condition for messages to copy.")]
Masks = Annotated[
    list[str] | None,
    typer.Option(
        "--mask", metavar="FIELD[=hash|null|fixed:TEXT]", help="With --from: a field to mask; may be repeated."
    ),
]
Rename = Annotated[str, typer.Option("--rename", metavar="TOPIC", help="With --from: the remote topic.")]
Refused = Annotated[
    Refusal, typer.Option("--refused", help="With --from: the action for messages that the remote cluster rejects.")
]
DeadLetters = Annotated[bool, typer.Option("--dead-letters", help="With --from: copy -DLQ and -RETRY topics too.")]
CreateTopics = Annotated[
    bool, typer.Option("--create-topics/--no-create-topics", help="With --from: create missing remote topics.")
]
PartitionMismatch = Annotated[
    Mismatch,
    typer.Option("--partition-mismatch", help="With --from: the rule if the numbers of partitions differ."),
]
RemoteToken = Annotated[
    str | None,
    typer.Option(
        "--remote-token",
        metavar="file:PATH|env:NAME|-",
        help="With --from: the authentication token for remote clusters; MAGNETAR_REMOTE_TOKEN.",
    ),
]
RemoteTrustCerts = Annotated[
    str | None,
    typer.Option(
        "--remote-trust-certs",
        metavar="FILE",
        help="With --from: trusted certificate authorities of remote clusters, in PEM.",
    ),
]
RetryMax = Annotated[
    float, typer.Option("--retry-max", metavar="SECONDS", min=1, help="The longest delay between retries.")
]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


Level = Annotated[
    LogLevel, typer.Option("--log-level", envvar="MAGNETAR_LOG_LEVEL", help="The least important lines to log.")
]
Format = Annotated[LogFormat, typer.Option("--log-format", envvar="MAGNETAR_LOG_FORMAT", help="The form of the log.")]


@with_login
def pipelines(
    login: Login,
    service_url: ServiceUrl = None,
    master: Master = None,
    from_: From = None,
    admin_from: AdminFrom = None,
    cluster: ClusterName = _CLUSTER,
    to: To = None,
    topics: Topics = None,
    where: Where = "",
    mask: Masks = None,
    rename: Rename = "",
    refused: Refused = Refusal.STOP,
    dead_letters: DeadLetters = False,
    create_topics: CreateTopics = True,
    partition_mismatch: PartitionMismatch = Mismatch.PIP370,
    remote_token: RemoteToken = None,
    remote_trust_certs: RemoteTrustCerts = None,
    retry_max: RetryMax = 10.0,
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.TEXT,
) -> int:
    """Copy topics to other clusters until stopped.

    A Magnetar broker starts this process itself (setting pipelinesEnabled) and
    declares the topics to copy; any other cluster needs --from, --to, --topics.
    """
    if from_ is None:
        _check_unset(
            {
                "--to": to,
                "--topics": topics,
                "--admin-from": admin_from,
                "--where": where,
                "--mask": mask,
                "--rename": rename,
                "--dead-letters": dead_letters,
                "--refused": refused is not Refusal.STOP,
                "--no-create-topics": not create_topics,
                "--partition-mismatch": partition_mismatch is not Mismatch.PIP370,
                "--cluster": cluster != _CLUSTER,
                "--remote-trust-certs": remote_trust_certs,
            }
        )
        verbs = _declared(checked_url(login.url), service_url or login.service_url, login.security, retry_max)
        return _run(verbs, master, log_level, log_format)
    if service_url:
        raise InvalidSetting("--service-url cannot be combined with --from")
    policy = _policy(where, mask, rename, refused, dead_letters)
    if not to or not topics:
        raise InvalidSetting("--from needs at least one --to and one --topics")

    remotes = _remotes(to, _remote_token(remote_token), remote_trust_certs)
    selection = _selection(topics, remotes, policy, create_topics, partition_mismatch)
    verbs = _listed((cluster, from_, admin_from, login.security), selection, retry_max)
    return _run(verbs, master, log_level, log_format)


def _policy(where: str, mask: list[str] | None, rename: str, refused: Refusal, dead_letters: bool) -> RoutePolicy:
    masks = tuple(parse_mask(text) for text in mask or ())
    policy = RoutePolicy(where=where, masks=masks, rename=rename, refused=refused, dead_letters=dead_letters)
    check_policy(policy)
    return policy


def _run(verbs: list[Verb], master: str | None, level: LogLevel, form: LogFormat) -> int:
    from magnetar.pipelines import service
    from magnetar.pipelines.output import Output

    return service.run(verbs, master=master, output=Output(level.value, form.value))


def _selection(
    topics: list[str], remotes: dict[str, ClusterAddress], policy: RoutePolicy, creates_topics: bool, mismatch: Mismatch
) -> Selection:
    from magnetar.pipelines.replicate.sources import Selection

    return Selection(
        words=tuple(topics), remotes=remotes, policy=policy, creates_topics=creates_topics, mismatch=mismatch
    )


def _listed(source: tuple[str, str, str | None, Security | None], selection: Selection, retry_max: float) -> list[Verb]:
    """Copies the selected topics of any cluster: `source` is its name, addresses and credentials."""
    _check_spark()

    from magnetar.pipelines.replicate.sources import ListedSource
    from magnetar.pipelines.replicate.verb import Replicate
    from magnetar.replication.cluster import ClusterEndpoint

    endpoint = ClusterEndpoint(*source)
    return [Replicate(lambda: ListedSource(endpoint, selection), retry_max)]


def _declared(url: str, service_url: str | None, security: Security | None, retry_max: float) -> list[Verb]:
    """Carries out the declarations of a Magnetar broker."""
    _check_spark()

    from magnetar.pipelines.declared_sources import DeclaringBroker
    from magnetar.pipelines.verbs import VERBS

    broker = DeclaringBroker(url, service_url, security)
    return [create(broker, retry_max) for create in VERBS]


def _check_unset(options: dict[str, object]) -> None:
    for option, value in options.items():
        if value:
            raise InvalidSetting(f"{option} needs --from")


def _check_spark() -> None:
    try:
        import magnetar.pipelines.service  # noqa: F401
    except ImportError as error:
        raise InvalidSetting(f'{error}; this command needs Spark: pip install "magnetar[spark]"') from error


def _remote_token(option: str | None) -> str | None:
    """As parameters of a plugin, which a file is read by again when it changes."""
    if option is None:
        return os.environ.get(_REMOTE_TOKEN, "").strip() or None
    file, token = token_of(option, "--remote-token")
    return token if file is None else Path(file).resolve().as_uri()


def _remotes(words: list[str], token: str | None, trust_certs: str | None) -> dict[str, ClusterAddress]:
    remotes = dict(_remote(word, token, trust_certs) for word in words)
    if trust_certs and not any(remote.broker_client_tls_enabled for remote in remotes.values()):
        raise InvalidSetting("--remote-trust-certs needs a --to with pulsar+ssl:// and https://")
    return remotes


def _remote(word: str, token: str | None, trust_certs: str | None) -> tuple[str, ClusterAddress]:
    name, separator, addresses = word.partition("=")
    service, comma, admin = addresses.partition(",")
    if not (name and separator and service) or (comma and not admin):
        raise InvalidSetting(f"--to {word} is not of the form NAME=pulsar://host:port,http://host:port")
    is_tls = service.startswith(("pulsar+ssl:", "https:"))
    plain, encrypted = ((None, None), (service, admin or None)) if is_tls else ((service, admin or None), (None, None))
    return name, ClusterAddress(
        service_url=plain[1],
        service_url_tls=encrypted[1],
        broker_service_url=plain[0],
        broker_service_url_tls=encrypted[0],
        authentication_plugin="token" if token else "",
        authentication_parameters=token or "",
        broker_client_tls_enabled=is_tls,
        broker_client_trust_certs_file_path=trust_certs or "",
    )
