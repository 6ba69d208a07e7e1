"""PM1, PM4: requests for the number of partitions, over both transports, and the topics that exist afterwards."""

from __future__ import annotations

import pytest

from .entry_points import TOPIC_NOT_FOUND, EntryPoints

AUTO_CREATION = {
    "off": {"allowAutoTopicCreation": False},
    "plain": {"allowAutoTopicCreationType": "non-partitioned"},
    "partitioned": {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 2},
}
NOT_FOUND = None
NOTHING: tuple[list[str], dict[str, int]] = ([], {})
TWO = (["t-partition-0", "t-partition-1"], {"t": 2})
PLAIN = (["t"], {})
THREE = (["t-partition-0", "t-partition-1", "t-partition-2"], {"t": 3})

# The six cases of PIP-344, and existing topics: existing topic, auto-creation, flag -> response, topics afterwards.
TABLE = {
    ("missing", "off", True): (NOT_FOUND, NOTHING),
    ("missing", "off", False): (NOT_FOUND, NOTHING),
    ("missing", "plain", True): (0, NOTHING),  # created by the next producer or consumer
    ("missing", "plain", False): (NOT_FOUND, NOTHING),
    ("missing", "partitioned", True): (2, TWO),
    ("missing", "partitioned", False): (NOT_FOUND, NOTHING),
    ("plain", "off", True): (0, PLAIN),
    ("plain", "off", False): (0, PLAIN),
    ("plain", "plain", True): (0, PLAIN),
    ("plain", "plain", False): (0, PLAIN),
    ("plain", "partitioned", True): (0, PLAIN),
    ("plain", "partitioned", False): (0, PLAIN),
    ("partitioned", "off", True): (3, THREE),
    ("partitioned", "off", False): (3, THREE),
    ("partitioned", "plain", True): (3, THREE),
    ("partitioned", "plain", False): (3, THREE),
    ("partitioned", "partitioned", True): (3, THREE),
    ("partitioned", "partitioned", False): (3, THREE),
}
# Without the flag, REST does not create (it is new there), old binary clients do (PM4).
MEANING = {("REST", "absent"): False, ("binary", "absent"): True}


@pytest.mark.parametrize("flag", ["true", "false", "absent"])
@pytest.mark.parametrize("auto_creation", AUTO_CREATION)
@pytest.mark.parametrize("there", ["missing", "plain", "partitioned"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("transport", ["REST", "binary"])
def test_pm1_pm4_table(transport: str, domain: str, there: str, auto_creation: str, flag: str) -> None:
    entry_points = EntryPoints(**AUTO_CREATION[auto_creation])
    topic = f"{domain}://public/default/t"
    if there != "missing":
        entry_points.create(topic, 3 if there == "partitioned" else 0)
    count, existing = TABLE[there, auto_creation, MEANING.get((transport, flag), flag == "true")]

    if transport == "REST":
        answer = entry_points.rest_partitions(topic, None if flag == "absent" else flag)
        refusal = (404, f"Topic {topic} not found")
    else:
        answer = entry_points.metadata(topic, None if flag == "absent" else flag == "true")
        refusal = (TOPIC_NOT_FOUND, f"Topic {topic} not found")

    assert answer == (refusal if count is NOT_FOUND else count)
    assert entry_points.existing == existing


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("namespace", ["public/missing", "missing/default"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_pm1_with_a_missing_tenant_or_namespace(domain: str, namespace: str, create: bool) -> None:
    entry_points = EntryPoints(**AUTO_CREATION["partitioned"])
    topic = f"{domain}://{namespace}/t"
    assert entry_points.metadata(topic, create) == (TOPIC_NOT_FOUND, "Namespace not found")
    assert entry_points.rest_partitions(topic, str(create).lower()) == (404, "Namespace not found")
    assert entry_points.existing == NOTHING
    assert namespace not in entry_points.admin.broker.catalog.namespaces


@pytest.mark.parametrize("transport", ["REST", "binary"])
@pytest.mark.parametrize("create", [True, False])
def test_pm1_for_a_single_partition(transport: str, create: bool) -> None:
    entry_points = EntryPoints(**AUTO_CREATION["partitioned"])
    entry_points.create("t", 3)

    def ask(topic: str) -> object:
        answer = (
            entry_points.rest_partitions(topic, str(create))
            if transport == "REST"
            else entry_points.metadata(topic, create)
        )
        return answer[0] if isinstance(answer, tuple) else answer

    not_found = 404 if transport == "REST" else TOPIC_NOT_FOUND
    assert ask("t-partition-2") == 0
    assert ask("t-partition-9") == not_found
    assert ask("other-partition-0") == not_found
    assert entry_points.existing == THREE


def test_pm1_created_topics_are_durable() -> None:
    entry_points = EntryPoints(**AUTO_CREATION["partitioned"])
    assert entry_points.metadata("t", True) == 2
    entry_points.restart()
    assert entry_points.existing == TWO
