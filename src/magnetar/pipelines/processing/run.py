"""The verb `process`: opens what a run needs, and gives it to the driver.

Owns the checks that need a broker: topics and their schemas, and whether the subscription is free. For a command, a
program and the pipelines process alike.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack, closing
from importlib.util import find_spec
from typing import TYPE_CHECKING

from magnetar.client.errors import ClientError, NotFound
from magnetar.client.message import EARLIEST, LATEST
from magnetar.clock import Clock
from magnetar.declared.process import ProcessSpec
from magnetar.pipelines.processing.call.function import InvalidProcess, ProcessFunction
from magnetar.pipelines.processing.driver import ProcessDriver, Until
from magnetar.pipelines.processing.partitions import Primary, Retries
from magnetar.pipelines.processing.plan import (
    BATCH_ROWS_DEFAULT,
    CONCURRENCY_DEFAULT,
    TIMEOUT_DEFAULT_S,
    ProcessPlan,
    plan,
)
from magnetar.pipelines.processing.transform import Transform, Transformer
from magnetar.pipelines.processing.worker.source import MessageSource
from magnetar.pipelines.processing.worker.stage import ProcessStage
from magnetar.pipelines.run import Progress, RunContext, RunFailed
from magnetar.security.pulsar_parameters import parameters_of
from magnetar.spark.client_options import CLIENT_PREFIX
from magnetar.spark.clients import blocking_client
from magnetar.spark.codec.avro.fields import UnsupportedSchema
from magnetar.spark.codec.value_schema import ValueSchema, common_schema
from magnetar.spark.errors import InvalidOption
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.topics import ClientTopics

if TYPE_CHECKING:
    from magnetar.client import Client
    from magnetar.replication.cluster import ClusterEndpoint

_OURS = "Magnetar"


def run(context: RunContext, spec: ProcessSpec) -> None:
    """Runs a declared process until it is stopped. Raises `MagnetarError`."""
    run_plan(context, plan_of(spec), spec.sql or None)


def plan_of(spec: ProcessSpec) -> ProcessPlan:
    return plan(
        spec.topic,
        spec.subscription,
        into=spec.into,
        retry=spec.retry,
        retry_topic=spec.retry_topic,
        dead_letter_topic=spec.dead_letter_topic,
        no_retry=spec.no_retry,
        dead_letter_topics=spec.dead_letter_topics,
        function=ProcessFunction.named(spec.function, spec.kind) if spec.function else None,
        timeout=spec.seconds_max or TIMEOUT_DEFAULT_S,
        concurrency=spec.concurrency or CONCURRENCY_DEFAULT,
        batch_rows=spec.rows_max or BATCH_ROWS_DEFAULT,
    )


def run_plan(
    context: RunContext,
    chosen: ProcessPlan,
    transform: Transform | str | None = None,
    *,
    until: Until = "stopped",
    earliest: bool = True,
    clock: Clock | None = None,
) -> Progress:
    """A new subscription begins with the first message, unless `earliest` is false. Raises `MagnetarError`."""
    check_runnable(chosen, transform)
    options = client_options(context.endpoint)
    source = SourceOptions.of({**options, "topic": chosen.topic})
    sink = SinkOptions.of(options)
    with ExitStack() as stack:
        client = blocking_client(source.client)
        topics = ClientTopics(client, first_give_up_s=10.0, give_up_s=source.client.operation_timeout_s)
        stack.enter_context(closing(topics))
        partitions = _partitions(client, chosen.topic)
        is_ours = client.server_version(partitions[0]).startswith(_OURS)
        if is_ours and not source.client.has_admin:
            raise RunFailed("the admin address of the cluster is needed too: give admin_url")
        _check_target(client, chosen)
        _create(client, partitions, chosen.topic, chosen.subscription, earliest=earliest)
        primary = stack.enter_context(closing(Primary(topics, partitions, chosen.subscription, earliest=earliest)))
        retries = stack.enter_context(closing(_retries(client, topics, chosen)))
        stage = ProcessStage(
            id=secrets.token_hex(8),
            plan=chosen,
            source=MessageSource.of(source, _values(topics, chosen.topic)),
            sink=sink,
            is_ours=is_ours,
        )
        transformer = None
        if transform is not None:
            transformer = Transformer(context.spark, stage, transform)
            transformer.check()
        return ProcessDriver(context, stage, client, topics, primary, retries, transformer, clock).run(until)


def client_options(endpoint: ClusterEndpoint) -> dict[str, str]:
    """The options of a source or sink for a cluster, with a token that is valid now."""
    options = {"service.url": endpoint.service_url}
    if endpoint.admin_url is not None:
        options["admin.url"] = endpoint.admin_url
    if endpoint.security is not None:
        options |= {CLIENT_PREFIX + name: text for name, text in parameters_of(endpoint.security).items()}
    return options


def check_runnable(chosen: ProcessPlan, transform: Transform | str | None) -> None:
    """Raises `InvalidProcess`, before anything is started."""
    if (chosen.function is None) == (transform is None):
        raise InvalidProcess("a process needs either a function, or SQL or a transform")
    if transform is not None and chosen.into is None:
        raise InvalidProcess("into is missing: the rows of SQL or a transform are published")
    if chosen.function is not None and chosen.function.kind == "pandas" and find_spec("pandas") is None:
        raise InvalidProcess('kind "pandas" needs pandas, which is not installed: pip install "pandas<3"')


def _partitions(client: Client, topic: str) -> list[str]:
    try:
        return client.get_partitions_for_topic(topic)
    except NotFound as error:
        raise RunFailed(f"topic {topic} does not exist, and the broker does not create it: {error.text}") from error


def _check_target(client: Client, chosen: ProcessPlan) -> None:
    if chosen.into is None:
        return
    try:
        client.get_partitions_for_topic(chosen.into)
    except NotFound as error:
        raise RunFailed(
            f"into: topic {chosen.into} does not exist, and the broker does not create it: {error.text}"
        ) from error


def _create(client: Client, partitions: list[str], chosen: str, subscription: str, *, earliest: bool) -> None:
    """Creates a topic that is not stored yet with its subscription, as a consumer would: a cursor creates neither."""
    try:
        client.tail(partitions[0]).close()
    except NotFound:
        initial = EARLIEST if earliest else LATEST
        client.consumer(chosen, subscription, initial_position=initial, queue_size=1).close()


def _retries(client: Client, topics: ClientTopics, chosen: ProcessPlan) -> Retries:
    """The retry topic exists before the first message goes there: without a subscription it would keep nothing.

    Without retries it is read if it exists, since an earlier run may have filled it."""
    try:
        partitions = topics.partitions(chosen.retry_topic)
    except NotFound:
        if not chosen.retry_ms:
            return Retries(client, topics, (), chosen.subscription)
        try:
            partitions = _made(client, chosen.retry_topic)
            _create(client, partitions, chosen.retry_topic, chosen.subscription, earliest=True)
        except ClientError as error:
            raise RunFailed(f"retry topic {chosen.retry_topic} cannot be created: {error.text}") from error
    return Retries(client, topics, partitions, chosen.subscription)


def _made(client: Client, topic: str) -> list[str]:
    """The partitions of a topic that may not exist, also where the broker creates none by itself."""
    try:
        return client.get_partitions_for_topic(topic)
    except NotFound:
        client.create_topic(topic)
        return [topic]


def _values(topics: ClientTopics, topic: str) -> ValueSchema | None:
    try:
        return common_schema(topics, [topic])
    except (InvalidOption, UnsupportedSchema) as error:
        raise RunFailed(f"the schema of {topic} cannot be read as columns: {error}") from error
