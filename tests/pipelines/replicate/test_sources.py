"""Sources of replication: topics of a list, and their names."""

from __future__ import annotations

import queue
import socket
import threading

import msgspec
import pytest

from magnetar.client.errors import InvalidArgument
from magnetar.errors import InvalidName
from magnetar.pipelines.replicate import sources
from magnetar.pipelines.replicate.sources import ListedSource, Selection
from magnetar.replication.cluster import ClusterEndpoint, endpoint_of
from magnetar.replication.model import ClusterAddress, Declaration, Mismatch, Reports
from magnetar.testing import TestBroker
from tests.pipelines.two_clusters import ask

WAIT_S = 15.0


def test_gr7_a_list_has_topics_and_namespaces_and_follows_their_growth(
    a: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_REFRESH_S", 0.05)
    ask(a, "PUT", "namespaces/public/all")
    ask(a, "PUT", "persistent/public/all/grown/partitions", 2)
    remotes = {"b": ClusterAddress(broker_service_url="pulsar://b:6650")}
    selection = Selection(words=("public/all", "named", "absent"), remotes=remotes)
    source = ListedSource(ClusterEndpoint("a", a.service_url, a.http_url), selection)
    declared: queue.SimpleQueue[Declaration] = queue.SimpleQueue()
    source.follow(declared.put)

    def rows() -> dict[str, tuple[int, int]]:
        return {
            row.topic.rpartition("/")[2]: (row.partitions, row.grown_from)
            for row in declared.get(timeout=WAIT_S).topics
        }

    assert rows() == {"grown": (2, 0)}
    ask(a, "PUT", "persistent/public/default/named")
    while (found := rows()) != {"grown": (2, 0), "named": (0, 0)}:
        assert found == {"grown": (2, 0)}
    ask(a, "POST", "persistent/public/all/grown/partitions", 3)
    while (found := rows())["grown"] != (3, 2):
        assert found["grown"] == (2, 0)
    assert source.report(Reports("p", True, []))
    source.stop()


def test_a_source_that_stops_leaves_no_thread() -> None:
    """Its thread went on for the time of a request, and met the end of the interpreter."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"pulsar://127.0.0.1:{silent.getsockname()[1]}"
        source = ListedSource(ClusterEndpoint("a", url, None), Selection(words=("t",), remotes={}))
        source.follow(lambda _: None)
        silent.accept()[0].close()
        source.stop()
    assert "topics" not in {thread.name for thread in threading.enumerate()}


def test_gr7_an_invalid_list_is_an_error_at_once() -> None:
    endpoint = ClusterEndpoint("a", "pulsar://127.0.0.1:9", "nonsense")
    source = ListedSource(endpoint, Selection(words=("public/default",), remotes={}))
    with pytest.raises(InvalidArgument, match="nonsense"):
        source.follow(lambda _: None)


def test_no_declaration_shows_a_token() -> None:
    address = ClusterAddress(broker_service_url="pulsar://b:1", authentication_plugin="token")
    secret = msgspec.structs.replace(address, authentication_parameters="token:s3cret")
    declaration = Declaration("1", "a", True, Mismatch.PIP370, {"b": secret}, [])
    for shown in (
        repr(secret),
        str(declaration),
        f"{Selection(words=(), remotes={'b': secret})}",
        repr(endpoint_of("b", secret)),
    ):
        assert "pulsar://b:1" in shown and "s3cret" not in shown
    assert "file:///run/token" in repr(msgspec.structs.replace(address, authentication_parameters="file:///run/token"))


@pytest.mark.parametrize("word", ["bad domain://x", "public/", "a/b/c/d"])
def test_an_invalid_name_is_rejected(word: str) -> None:
    with pytest.raises(InvalidName):
        Selection(words=(word,), remotes={})
