"""`magnetar pipelines`: runs the process that replicates, on any machine that reaches both clusters.

Either for a broker of ours, which declares what it replicates, or from any cluster to another, told by options.
"""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar.cli.command import Token, TrustCerts, security_of
from magnetar.cli.replication.route import parse_mask
from magnetar.cli.rest import DEFAULT_URL, checked_url
from magnetar.errors import InvalidSetting
from magnetar.replication.model import ClusterAddress, Mismatch, Refusal, RoutePolicy
from magnetar.replication.route import check_policy

_CLUSTER = "standalone"


def pipelines(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            envvar="MAGNETAR_URL",
            help="The HTTP address of a broker of ours, which says what to replicate.",
            show_default=DEFAULT_URL,
        ),
    ] = None,
    service_url: Annotated[
        str | None, typer.Option("--service-url", metavar="URL", help="Its binary address, if a lookup does not tell.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="MASTER", help="The Spark master.", show_default="all cores of this machine"),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Instead of --url: the binary address of any cluster to copy from."),
    ] = None,
    admin_from: Annotated[
        str | None, typer.Option("--admin-from", metavar="URL", help="Its HTTP address, with --from.")
    ] = None,
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="Its name, with --from.")] = _CLUSTER,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="NAME=URL,HTTP_URL", help="With --from: a cluster to copy to; may be repeated."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", metavar="TOPIC|TENANT/NAMESPACE", help="With --from: what to copy; may be repeated."),
    ] = None,
    where: Annotated[str, typer.Option("--where", metavar="SQL", help="With --from: which messages.")] = "",
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="FIELD[=hash|null|fixed:TEXT]",
            help="With --from: a field that is hidden; may be repeated.",
        ),
    ] = None,
    rename: Annotated[
        str, typer.Option("--rename", metavar="TOPIC", help="With --from: the topic in the remote cluster.")
    ] = "",
    refused: Annotated[
        Refusal, typer.Option("--refused", help="With --from: what becomes of a message that is refused.")
    ] = Refusal.STOP,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="With --from: -DLQ and -RETRY topics as well.")
    ] = False,
    create_topics: Annotated[
        bool, typer.Option("--create-topics/--no-create-topics", help="With --from: make topics that are missing.")
    ] = True,
    partition_mismatch: Annotated[
        Mismatch,
        typer.Option("--partition-mismatch", help="With --from: what is copied if the numbers of partitions differ."),
    ] = Mismatch.PIP370,
    token: Token = None,
    trust_certs: TrustCerts = None,
    remote_token: Annotated[
        str | None,
        typer.Option(
            "--remote-token",
            metavar="TOKEN",
            envvar="MAGNETAR_REMOTE_TOKEN",
            help="With --from: the token to show to remote clusters, or file:///path of it.",
        ),
    ] = None,
    remote_trust_certs: Annotated[
        str | None,
        typer.Option("--remote-trust-certs", metavar="FILE", help="With --from: authorities of remote clusters."),
    ] = None,
    retry_max: Annotated[
        float, typer.Option("--retry-max", metavar="SECONDS", min=1, help="The longest pause before the next try.")
    ] = 10.0,
) -> int:
    """Copy topics to other clusters, until it is stopped. It keeps nothing: it may be killed and started anywhere.

    A broker of ours starts this process by itself (setting pipelinesEnabled), and says what to copy. Any other cluster
    is named by --from, and what to copy by --to and --topics.
    """
    security = security_of(token, trust_certs)
    if from_ is None:
        needing = {
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
        for option, value in needing.items():
            if value:
                raise InvalidSetting(f"{option} is given without --from")
    elif service_url:
        raise InvalidSetting("--service-url is given with --from, which is such an address itself")
    policy = RoutePolicy(
        where=where, masks=tuple(map(parse_mask, mask or ())), rename=rename, refused=refused, dead_letters=dead_letters
    )
    check_policy(policy)
    try:
        from magnetar.pipelines import process
        from magnetar.pipelines.declared_sources import Broker
        from magnetar.pipelines.replicate.sources import ListedSource, Selection
        from magnetar.pipelines.replicate.verb import Replicate
        from magnetar.pipelines.verbs import VERBS
        from magnetar.replication.cluster import ClusterEndpoint
    except ImportError as error:
        raise InvalidSetting(f'{error}; this command needs Spark: pip install "magnetar[spark]"') from error

    if from_ is None:
        broker = Broker(checked_url(url or DEFAULT_URL), service_url, security)
        return process.run([create(broker, retry_max) for create in VERBS], master=master)
    if not to or not topics:
        raise InvalidSetting("--from needs at least one --to and one --topics")
    remotes = dict(_remote(word, remote_token, remote_trust_certs) for word in to)
    if remote_trust_certs and not any(remote.broker_client_tls_enabled for remote in remotes.values()):
        raise InvalidSetting(
            "--remote-trust-certs is given, but no --to is encrypted: write pulsar+ssl:// and https://"
        )
    selection = Selection(
        words=tuple(topics), remotes=remotes, policy=policy, creates_topics=create_topics, mismatch=partition_mismatch
    )
    endpoint = ClusterEndpoint(cluster, from_, admin_from, security)
    return process.run([Replicate(lambda: ListedSource(endpoint, selection), retry_max)], master=master)


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
