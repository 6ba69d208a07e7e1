"""Service addresses, message ids and partition routing."""

from __future__ import annotations

import httpx
import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.connection.address import Address, parse_service_url
from magnetar.client.errors import InvalidArgument
from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.client.produce.routing import Router, boost_hash, java_string_hash, murmur3_hash
from magnetar.testing import TestBroker


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsar://localhost:6651", [("localhost", 6651)]),
        ("pulsar://localhost", [("localhost", 6650)]),
        ("pulsar://a:1,b:2,c/", [("a", 1), ("b", 2), ("c", 6650)]),
        ("pulsar://[::1]:6650,10.0.0.1:1", [("::1", 6650), ("10.0.0.1", 1)]),
        ("http://localhost", [("localhost", 8080)]),
        ("http://localhost:80/", [("localhost", 80)]),
        ("pulsar+ssl://a,b:2", [("a", 6651), ("b", 2)]),
        ("https://localhost", [("localhost", 8443)]),
    ],
)
def test_service_urls(url: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_service_url(url).addresses == tuple(Address(*address) for address in addresses)


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:6650", "ftp://h", "pulsar://", "pulsar://a,,b", "pulsar://a:0", "pulsar://a:x"),
        *("pulsar://a:99999", "pulsar://a/b", "pulsar://u@a", "http://a?b", "pulsar://[::1", "pulsar:// "),
        "pulsar://a#b",
    ],
)
def test_invalid_service_urls(url: str) -> None:
    with pytest.raises(InvalidArgument, match="service url"):
        parse_service_url(url)


@pytest.mark.parametrize(
    ("url", "is_http", "is_tls"),
    [
        ("pulsar://a", False, False),
        ("pulsar+ssl://a", False, True),
        ("http://a", True, False),
        ("https://a", True, True),
    ],
)
def test_properties_of_a_scheme(url: str, is_http: bool, is_tls: bool) -> None:
    found = parse_service_url(url)
    assert (found.is_http, found.is_tls) == (is_http, is_tls)


def test_an_address_round_trips() -> None:
    assert str(parse_service_url("pulsar://[::1]:1,b:2")) == "pulsar://[::1]:1,b:2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5:6", MessageId(5, 6)),
        ("5:6:-1", MessageId(5, 6)),
        ("5:6:2", MessageId(5, 6, 2)),
        ("5:6:2:3", MessageId(5, 6, 2, 3)),
        ("(5,6,2,3)", MessageId(5, 6, 2, 3)),
        ("(5, 6, -1, -1)", MessageId(5, 6)),
        ("-1:-1", EARLIEST),
        (f"{2**63 - 1}:{2**63 - 1}", LATEST),
    ],
)
def test_spellings_of_a_message_id(text: str, expected: MessageId) -> None:
    assert MessageId.parse(text) == expected
    assert MessageId.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "5", "5:", "a:b", "5:6:7:8:9", "(5,6)", "5:6 ", "-2:0", f"{2**63}:0", f"1:1:{2**31}", "1:1:0:" + "9" * 99],
)
def test_invalid_message_ids(text: str) -> None:
    with pytest.raises(InvalidArgument, match="message id"):
        MessageId.parse(text)


@given(
    st.builds(
        MessageId,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.integers(-1, 2**31 - 1),
        st.integers(0, 2**31 - 1),
    )
)
def test_ids_round_trip_as_bytes(message_id: MessageId) -> None:
    assert MessageId.from_bytes(message_id.to_bytes()) == message_id


def test_bytes_of_the_official_client_are_read() -> None:
    official = pulsar.MessageId(3, 7, 9, 2)  # partition, ledger, entry, batch index
    read = MessageId.from_bytes(official.serialize())
    assert (read.partition, read.ledger_id, read.entry_id, read.batch_index) == (3, 7, 9, 2)
    back = pulsar.MessageId.deserialize(MessageId(7, 9, 3, 2).to_bytes())
    assert (back.partition(), back.ledger_id(), back.entry_id(), back.batch_index()) == (3, 7, 9, 2)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x08\x01"])
def test_invalid_bytes_of_an_id(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        MessageId.from_bytes(data)


def test_hashes_equal_those_of_the_java_client() -> None:
    # "hello".hashCode() is 99162322; that of the longer text is negative, and the Java client drops the sign.
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("") == 0
    assert java_string_hash("a longer key than that") == 0x7FFF_FFFF & _java_hash("a longer key than that")
    assert java_string_hash("\U0001f600") == 0x7FFF_FFFF & (0xD83D * 31 + 0xDE00)
    # Reference values of MurmurHash3 x86 32 with seed 0.
    assert murmur3_hash("") == 0
    assert murmur3_hash("hello") == 0x248BFA47


def test_hashes_equal_those_of_the_official_python_client(running: TestBroker) -> None:
    """By default it uses Boost's hash; keys of every length up to three words, and text that is not ASCII."""
    path = f"{running.http_url}/admin/v2/persistent/public/default/boost/partitions"
    httpx.put(path, json=61).raise_for_status()
    official = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = official.create_producer("boost", batching_enabled=False)
    keys = [*("customer-1234567890-abcdef"[:size] for size in range(1, 26)), "é", "😀" * 3]
    assert [producer.send(b"", partition_key=key).partition() for key in keys] == [boost_hash(key) % 61 for key in keys]
    official.close()


def _java_hash(text: str) -> int:
    return sum(ord(char) * 31 ** (len(text) - 1 - index) for index, char in enumerate(text)) & 0xFFFF_FFFF


def test_a_key_always_has_the_same_partition() -> None:
    router = Router(5, "Murmur3_32Hash", turn_s=0.0)
    assert {router.choose("k", now_s) for now_s in range(20)} == {murmur3_hash("k") % 5}


def test_without_batches_routing_is_round_robin() -> None:
    router = Router(3, "Murmur3_32Hash", turn_s=0.0, start=2)
    assert [router.choose(None, 0.0) for _ in range(6)] == [2, 0, 1, 2, 0, 1]


def test_with_batches_routing_keeps_a_partition_for_a_while() -> None:
    router = Router(3, "Murmur3_32Hash", turn_s=0.01)
    assert [router.choose(None, now_ms / 1000) for now_ms in (0, 9, 11, 19, 21, 31)] == [0, 0, 1, 1, 2, 0]
