"""The check that an archive and its topics agree (SP5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.pipelines.archive.check import TopicCheck, check
from magnetar.pipelines.run import RunFailed
from tests.pipelines.archive.conftest import Site, sets_of


def compare(site: Site, *words: str) -> TopicCheck:
    [found] = check(site.context(), site.path, sets_of(*words))
    return found


@pytest.fixture
def topic(site: Site) -> str:
    """A topic that keeps what is archived, in two rounds."""
    topic = site.topic()
    site.keep(topic)
    site.publish(topic, *[f"a{number}" for number in range(5)], key="k", properties={"x": "y"})
    site.archive(topic)
    site.publish(topic, *[f"b{number}" for number in range(5)])
    site.archive(topic)
    return topic


def data_files(site: Site) -> list[Path]:
    return sorted(Path(site.path).glob("topic=*/date=*/part-*.parquet"))


def forget_checksum(path: Path) -> None:
    """Of Hadoop, which guards local files only."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def rewrite(site: Site, path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """A file with other rows, of which the manifest knows the size."""
    table = pq.ParquetFile(path).read()
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), table.schema), path)
    forget_checksum(path)
    edit_manifest(site, path, bytes=path.stat().st_size)


def edit_manifest(site: Site, path: Path, **fields: Any) -> None:
    for manifest in Path(site.path, "_magnetar/topics").rglob("0*.json"):
        made = json.loads(manifest.read_bytes())
        for file in made["files"]:
            if file["name"].endswith(path.name):
                file.update(fields)
        manifest.write_text(json.dumps(made))
        forget_checksum(manifest)


def kinds(found: TopicCheck) -> dict[str, int]:
    return {kind: each.count for kind, each in found.found.items()}


def test_sp5_an_archive_agrees_with_its_topic(site: Site, topic: str) -> None:
    site.publish_entry(f"persistent://public/default/{topic}", b"sealed", encryption_keys="key")
    site.archive(topic)
    found = compare(site)
    assert found.agrees and (found.files, found.rows, found.compared, found.archived_only) == (3, 11, 11, 0)
    site.publish(topic, "later")
    assert "which are not archived yet" in compare(site, topic).notes[0]


def test_sp5_what_the_topic_has_deleted_is_archived_only(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a", "b")
    site.archive(topic)
    path = f"{site.running.http_url}/admin/v2/persistent/public/default/{topic}"
    httpx.delete(path, params={"force": "true"}).raise_for_status()
    found = compare(site)
    assert found.agrees and (found.rows, found.compared, found.archived_only) == (2, 0, 2)
    assert found.notes == [f"persistent://public/default/{topic} does not exist"]


def test_sp5_a_deleted_file_is_found(site: Site, topic: str) -> None:
    first, _ = data_files(site)
    first.unlink()
    found = compare(site)
    assert kinds(found) == {"missing file": 1, "missing row": 5}
    assert f"{first.name} with 5 messages" in found.found["missing file"].places[0]
    assert len(found.found["missing row"].places) == 5


def test_sp5_changed_files_are_found(site: Site, topic: str) -> None:
    first, second = data_files(site)
    whole = bytearray(first.read_bytes())
    whole[8:40] = bytes(32)  # in the pages of a column
    first.write_bytes(whole)
    second.write_bytes(second.read_bytes()[:-10])
    forget_checksum(second)
    Path(first.parent, "part-unknown.parquet").write_bytes(b"?")
    found = compare(site)
    assert found.found["changed file"].count == 2 and found.found["unknown file"].count == 1
    assert any("cannot be read" in place for place in found.found["changed file"].places)


def test_sp5_a_changed_row_is_found_by_its_hash(site: Site, topic: str) -> None:
    first, _ = data_files(site)
    rewrite(site, first, lambda rows: [{**rows[0], "value": b"changed"}, *rows[1:]])
    found = compare(site)
    assert kinds(found) == {"changed row": 1, "different row": 1}
    assert found.found["changed row"].places == found.found["different row"].places
    assert (found.compared, found.archived_only) == (9, 0)


def test_sp5_missing_and_invented_messages_are_found(site: Site, topic: str) -> None:
    first, second = data_files(site)
    rewrite(site, first, lambda rows: rows[1:])
    rewrite(site, second, lambda rows: [*rows, {**rows[-1], "__batchIndex": 7, "__messageIdText": "invented"}])
    found = compare(site)
    assert kinds(found) == {"changed file": 2, "changed row": 1, "missing row": 1, "extra row": 1}
    assert found.found["extra row"].places == ["invented"]
    assert "has 4 messages, not 5" in found.found["changed file"].places[0]


def test_sp5_rows_of_another_topic_are_found(site: Site, topic: str) -> None:
    """A file of an archive of the same name: right in itself, but with other messages than the topic."""
    other = site.topic()
    site.publish(other, *[f"c{number}" for number in range(5)])
    first, _ = data_files(site)
    edit_manifest(site, first, hash=1)
    found = compare(site, topic)
    assert kinds(found) == {"changed file": 1}
    assert "has other messages than were written" in found.found["changed file"].places[0]


def test_sp5_partitions_are_compared_each(site: Site) -> None:
    topic = site.topic(partitions=2)
    for partition in range(2):
        name = f"persistent://public/default/{topic}-partition-{partition}"
        site.keep(name)
        site.publish(name, *"abc")
    site.archive(topic)
    assert compare(site).compared == 6
    data_files(site)[1].unlink()
    assert kinds(compare(site)) == {"missing file": 1, "missing row": 3}


def test_sp5_bad_input(site: Site, topic: str) -> None:
    with pytest.raises(RunFailed, match="is not an archive"):
        check(site.context(), f"{site.path}-other")
    with pytest.raises(RunFailed, match=r"nowhere is not in the archive .*, which has public/default/"):
        check(site.context(), site.path, sets_of("nowhere"))
