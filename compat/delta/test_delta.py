"""SP5 with Delta Lake itself: each message once whatever is killed around its commit, checked and replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.pipelines.archive.check import check
from magnetar.pipelines.archive.replay import ReplaySpec, replay
from magnetar.pipelines.archive.source import SourceTopics
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.archive.table import DeltaTable
from tests.pipelines.archive.conftest import Site
from tests.pipelines.archive.test_archive import Killed, dies

STEPS = {
    "planned": (DeltaTable, "append"),
    "appended": (DeltaTable, "rows"),
    "counted": (Archive, "commit"),
    "committed": (SourceTopics, "acknowledge"),
    "acknowledged": (Archive, "end_plan"),
}


def values(site: Site) -> list[str]:
    """By a plain reader, in the order of the topic."""
    rows = site.spark.read.format("delta").load(site.path).orderBy("__ledgerId", "__entryId")
    return [bytes(row["value"]).decode() for row in rows.collect()]


@pytest.mark.parametrize("step", STEPS)
def test_sp5_delta_lake_has_each_message_once(site: Site, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    site.archive(topic, format="delta")
    site.publish(topic, "b", "c")
    with monkeypatch.context() as patch:
        dies(patch, *STEPS[step])
        with pytest.raises(Killed):
            site.archive(topic, format="delta")
    site.publish(topic, "d")
    site.archive(topic, format="delta")
    assert values(site) == ["a", "b", "c", "d"]
    assert site.backlog(topic) == 0


def test_sp5_delta_lake_is_checked_optimized_and_replayed(site: Site) -> None:
    topic, target = site.topic(), site.topic()
    site.keep(topic)
    for text in "abc":
        site.publish(topic, text)
        assert site.archive(topic, format="delta").rows == 1
    site.spark.sql(f"optimize delta.`{site.path}`").collect()
    site.spark.sql(f"vacuum delta.`{site.path}`").collect()
    assert Path(site.path, "_magnetar/archive.json").exists()
    [found] = check(site.context(), site.path)
    assert found.agrees and (found.rows, found.compared) == (3, 3)
    result = replay(site.context(), ReplaySpec(path=site.path, to=target))
    assert (result.sent, result.is_exactly_once) == (3, True)
    assert [message.value for message in site.read(target)] == [b"a", b"b", b"c"]
    site.spark.sql(f"delete from delta.`{site.path}` where value = cast('b' as binary)").collect()
    [found] = check(site.context(), site.path)
    assert {kind: each.count for kind, each in found.found.items()} == {"changed table": 1, "missing row": 1}
