"""Source and sink log in to a secured broker: TLS, a token in a file, and the rights of its role."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

from magnetar.client import Client, Security
from magnetar.testing import TestBroker, broker

NAMESPACE = "public/default"


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(secure=True, brokerDeduplicationEnabled=True) as running:
        yield running


def admin(running: TestBroker) -> Security:
    return Security(token=running.token("admin"), trust_certs_file=running.trust_certs_file)


def grant(running: TestBroker, role: str, *actions: str) -> None:
    send(running, "POST", f"namespaces/{NAMESPACE}/permissions/{role}", actions)


def send(running: TestBroker, method: str, path: str, body: object) -> None:
    headers = {"Authorization": f"Bearer {running.token('admin')}"}
    tls = ssl.create_default_context(cafile=running.trust_certs_file)
    url = f"{running.http_url}/admin/v2/{path}"
    httpx.request(method, url, json=body, headers=headers, verify=tls, trust_env=False).raise_for_status()


def options(running: TestBroker, role: str, folder: Path) -> dict[str, str]:
    """As a user sets them: the token is in a file, and in no plan or log of Spark."""
    file = folder / f"{role}.token"
    file.write_text(running.token(role))
    return {
        "service.url": running.service_url,
        "admin.url": running.http_url,
        "pulsar.client.authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "pulsar.client.authParams": file.as_uri(),
        "pulsar.client.tlsTrustCertsFilePath": running.trust_certs_file,
        "pulsar.client.operationTimeoutMs": "5000",
    }


def rows(spark: SparkSession, given: dict[str, str], topic: str) -> DataFrame:
    return spark.read.format("pulsar").options(**given, topic=topic).load()


def test_a_table_and_a_stream_of_a_secured_broker(spark: SparkSession, running: TestBroker, tmp_path: Path) -> None:
    grant(running, "etl", "produce", "consume")
    given = options(running, "etl", tmp_path)
    frame = spark.createDataFrame([(f"order {number}".encode(),) for number in range(20)], "value binary")
    frame.write.format("pulsar").options(**given, topic="orders").mode("append").save()
    assert rows(spark, given, "orders").count() == 20
    stream = spark.readStream.format("pulsar").options(
        **given, topic="orders", startingOffsets="earliest", predefinedSubscription="etl"
    )
    query = (
        stream.load()
        .selectExpr("value", "__key", "__messageId", "__topic as __sourceTopic")
        .writeStream.format("pulsar")
        .options(**given, topic="copies", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    assert query.exception() is None
    assert rows(spark, given, "copies").count() == 20


def test_a_role_reads_and_writes_only_where_it_may(spark: SparkSession, running: TestBroker, tmp_path: Path) -> None:
    with Client(running.service_url, security=admin(running)) as client, client.producer("private") as producer:
        producer.send(b"x")
    given = options(running, "guest", tmp_path)
    with pytest.raises(Exception, match="guest"):
        rows(spark, given, "private").collect()
    frame = spark.createDataFrame([(b"x",)], "value binary")
    with pytest.raises(Exception, match="guest"):
        frame.write.format("pulsar").options(**given, topic="private").mode("append").save()


def test_a_token_of_another_key_is_refused_and_not_shown(
    spark: SparkSession, running: TestBroker, tmp_path: Path
) -> None:
    given = options(running, "etl", tmp_path)
    wrong = running.token("etl")[:-8] + "AAAAAAAA"
    (tmp_path / "etl.token").write_text(wrong)
    with pytest.raises(Exception, match=r"(?i)authentic|token|signature") as caught:
        rows(spark, given, "orders").collect()
    assert wrong not in str(caught.value)


def test_a_role_reads_where_a_subscription_has_to_begin_with_it(
    spark: SparkSession, running: TestBroker, tmp_path: Path
) -> None:
    namespace = "public/strict"
    send(running, "PUT", f"namespaces/{namespace}", {})
    send(running, "POST", f"namespaces/{namespace}/permissions/etl", ["produce", "consume"])
    send(running, "POST", f"namespaces/{namespace}/subscriptionAuthMode", "Prefix")
    topic = f"persistent://{namespace}/orders"
    with Client(running.service_url, security=admin(running)) as client, client.producer(topic) as producer:
        producer.send(b"x")
    given = options(running, "etl", tmp_path)
    with pytest.raises(Exception, match="has to begin with the role"):
        rows(spark, given, topic).collect()
    assert rows(spark, {**given, "subscriptionRolePrefix": "etl"}, topic).count() == 1
