"""`magnetar pipelines …`: declared pipelines; without a command, runs the pipelines process.

The process runs on any machine that reaches the clusters: for a Magnetar broker, which declares its routes and
pipelines, or between any clusters, given by options.
"""

from __future__ import annotations

import inspect
import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.argument import Force, Namespace, NamespaceName, parse_namespace_name
from magnetar.cli.command import CommandGroup, CommandHelp
from magnetar.cli.help import PlainCommand
from magnetar.cli.login.login import Login, token_of
from magnetar.cli.login.options import with_login
from magnetar.cli.output import Done, Output, Page, Table
from magnetar.cli.replication.route import parse_mask
from magnetar.cli.rest import Rest, checked_url
from magnetar.cli.views.pipelines import pipeline_page, pipelines_table, runs_table
from magnetar.errors import InvalidSetting
from magnetar.replication.model import ClusterAddress, Mismatch, Refusal, RoutePolicy
from magnetar.replication.route import check_policy

if TYPE_CHECKING:
    from magnetar.client import Security
    from magnetar.pipelines.replicate.sources import Selection
    from magnetar.pipelines.service import Verb

group = CommandGroup(
    "pipelines", "Manage declared pipelines; without a command, run the pipelines process.", default="run"
)

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


Name = Annotated[str, typer.Argument(metavar="PIPELINE", help="The name of the pipeline.")]

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
    """Run the pipelines process until stopped.

    A Magnetar broker starts this process itself (setting pipelinesEnabled) and
    declares the topics to copy and the pipelines to run; topics of any other
    cluster are copied with --from, --to, --topics.
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


# -- declared pipelines

group.app.command("run", cls=PlainCommand)(pipelines)
_own = list(inspect.signature(inspect.unwrap(pipelines), eval_str=True).parameters.values())[1:]
group.commands.append(CommandHelp("run", inspect.getdoc(pipelines) or "", tuple(_own)))


@group.command("list")
def list_pipelines(
    rest: Rest,
    namespace: Annotated[
        NamespaceName | None,
        typer.Argument(
            metavar="NAMESPACE",
            parser=parse_namespace_name,
            help="Only those of this namespace.",
            show_default="all that you administer",
        ),
    ] = None,
) -> Table:
    """List declared pipelines with their state, progress, rate and time left."""
    where = () if namespace is None else tuple(namespace)
    none = "no pipelines are declared" + (f" in {namespace}" if namespace else "")
    return pipelines_table(rest.get("pipelines", *where), none)


@group.command("show")
def show(rest: Rest, namespace: Namespace, pipeline: Name) -> Page:
    """Show a pipeline: its state and why, its progress, its spec."""
    return pipeline_page(rest.get(*_path(namespace, pipeline)))


@group.command("declare")
def declare(
    rest: Rest,
    namespace: Namespace,
    pipeline: Name,
    verb: Annotated[str, typer.Argument(metavar="VERB", help="The verb: redrive, process or archive.")],
    spec: Annotated[str, typer.Option("--spec", metavar="JSON|@FILE", help="The spec of the verb, as a JSON object.")],
    paused: Annotated[bool, typer.Option("--paused", help="Begin only when it is resumed.")] = False,
) -> Output:
    """Declare a pipeline in the broker, whose pipelines process runs it."""
    body = {"verb": verb, "spec": _json_object(spec), "paused": paused}
    return pipeline_page(rest.put(*_path(namespace, pipeline), body=body))


@group.command("pause")
def pause(rest: Rest, namespace: Namespace, pipeline: Name) -> Done:
    """Pause a pipeline: it ends at a point from which it continues."""
    rest.post(*_path(namespace, pipeline, "pause"))
    return Done(f"pausing {namespace}/{pipeline}")


@group.command("resume")
def resume(rest: Rest, namespace: Namespace, pipeline: Name) -> Done:
    """Resume a paused pipeline, or run one again that is over."""
    rest.post(*_path(namespace, pipeline, "resume"))
    return Done(f"resumed {namespace}/{pipeline}")


@group.command("cancel")
def cancel(rest: Rest, namespace: Namespace, pipeline: Name) -> Done:
    """Cancel a pipeline: what it has not done stays as it is."""
    rest.post(*_path(namespace, pipeline, "cancel"))
    return Done(f"cancelling {namespace}/{pipeline}")


@group.command("delete")
def delete(rest: Rest, namespace: Namespace, pipeline: Name, force: Force = False) -> Done:
    """Delete a pipeline that is over; with --force also one that runs."""
    rest.delete(*_path(namespace, pipeline), query={"force": str(force).lower()})
    return Done(f"deleted {namespace}/{pipeline}")


@group.command("runs")
def runs(rest: Rest, namespace: Namespace, pipeline: Name) -> Table:
    """List the last runs of a pipeline that are over."""
    return runs_table(rest.get(*_path(namespace, pipeline, "runs")), f"{namespace}/{pipeline}")


def _path(namespace: NamespaceName, pipeline: str, *rest: str) -> tuple[str, ...]:
    return ("pipelines", namespace.tenant, namespace.namespace, pipeline, *rest)


def _json_object(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSetting(f"--spec {text}: {error}") from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidSetting(f"--spec is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidSetting("--spec is not a JSON object")
    return found
