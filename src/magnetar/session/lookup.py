"""LOOKUP, PARTITIONED_METADATA and GET_TOPICS_OF_NAMESPACE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.catalog import creation
from magnetar.errors import MagnetarError
from magnetar.names import TopicName
from magnetar.session.handles import Command
from magnetar.session.refusals import report_refusal
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.session.session import Session


def on_lookup(session: Session, command: Command) -> None:
    """There is one broker, so the reply is always this one, for missing topics too. Nothing is created."""
    lookup = command.lookupTopic
    TopicName.parse(lookup.topic)
    url, url_tls = _urls_for(session, lookup.advertised_listener_name)
    response = pb.CommandLookupTopicResponse(
        request_id=lookup.request_id,
        response=pb.CommandLookupTopicResponse.Connect,
        brokerServiceUrl=url or None,
        brokerServiceUrlTls=url_tls or None,
        authoritative=True,
        proxy_through_service_url=False,
    )
    session.send(Command(type=Command.LOOKUP_RESPONSE, lookupTopicResponse=response))


def refuse_lookup(session: Session, command: Command, error: MagnetarError) -> None:
    report_refusal(session, command, error)
    response = pb.CommandLookupTopicResponse(
        request_id=command.lookupTopic.request_id,
        response=pb.CommandLookupTopicResponse.Failed,
        error=error.wire_code,  # type: ignore[arg-type]
        message=str(error),
    )
    session.send(Command(type=Command.LOOKUP_RESPONSE, lookupTopicResponse=response))


def _urls_for(session: Session, listener: str) -> tuple[str, str]:
    """Our addresses without and with TLS as the client reaches them: those of its listener, or of the host that it is
    connected to. It picks the one for the way that it came."""
    advertised, where = session.broker.settings.listener(listener), session.where
    if not advertised.any_service_url or (where.is_local and not listener):
        return where.service_url, where.service_url_tls
    return advertised.service_url, advertised.service_url_tls


def on_partitioned_metadata(session: Session, command: Command) -> None:
    request = command.partitionMetadata
    response = pb.CommandPartitionedTopicMetadataResponse(
        request_id=request.request_id,
        response=pb.CommandPartitionedTopicMetadataResponse.Success,
        # An unset flag means true: clients from before PIP-344 keep their behaviour.
        partitions=creation.partitions(
            session.broker.catalog, TopicName.parse(request.topic), create=request.metadata_auto_creation_enabled
        ),
    )
    session.send_when_durable(Command(type=Command.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=response))


def refuse_metadata(session: Session, command: Command, error: MagnetarError) -> None:
    report_refusal(session, command, error)
    response = pb.CommandPartitionedTopicMetadataResponse(
        request_id=command.partitionMetadata.request_id,
        response=pb.CommandPartitionedTopicMetadataResponse.Failed,
        error=error.wire_code,  # type: ignore[arg-type]
        message=str(error),
    )
    session.send_when_durable(Command(type=Command.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=response))


def on_get_topics_of_namespace(session: Session, command: Command) -> None:
    request = command.getTopicsOfNamespace
    topics = session.broker.catalog.topics_of.get(request.namespace, ())  # none and no error for a missing namespace
    modes = pb.CommandGetTopicsOfNamespace
    wanted = {modes.PERSISTENT: "persistent://", modes.NON_PERSISTENT: "non-persistent://"}.get(request.mode, "")
    response = pb.CommandGetTopicsOfNamespaceResponse(
        request_id=request.request_id,
        topics=[topic for topic in topics if topic.startswith(wanted)],
        filtered=False,  # the client filters: its regular expressions differ from Python's
        changed=True,
    )
    session.send(Command(type=Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=response))
