"""GR1: the declaration of replicated topics, and the subscription that keeps the position of each."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import ClusterRecord, NamespaceRecord
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import NotAllowed, TopicBusy
from magnetar.names import TopicName
from magnetar.replication.model import (
    AS_IT_IS,
    PIPELINE,
    ROUTE_FINGERPRINT,
    DeclaredRoute,
    Report,
    Reports,
    RoutePolicy,
    State,
    Status,
)
from magnetar.replication.route_parts import NOTHING, RouteParts
from tests.broker.world import SubscriptionType, World

NAMESPACE = "public/default"
HERE, EAST, WEST = "standalone", "east", "west"
TO_EAST, TO_WEST = "pulsar.repl.east", "pulsar.repl.west"


def name(text: str = "t") -> TopicName:
    return TopicName.parse(text)


def full(text: str = "t") -> str:
    return name(text).full


def replicate(world: World, *clusters: str, **overrides: object) -> None:
    """Replicates the namespace to these clusters and the local one."""
    kept = Overrides(replication_clusters=[HERE, *clusters], **overrides)  # type: ignore[arg-type]
    world.broker.catalog.save_namespace(NAMESPACE, NamespaceRecord(overrides=kept))
    world.advance(milliseconds=1)


def replicate_topic(world: World, topic: str, *clusters: str) -> None:
    world.broker.catalog.set_overrides(name(topic), Overrides(replication_clusters=[HERE, *clusters]))
    world.advance(milliseconds=1)


def new_world(storage: object = None, **settings: object) -> World:
    world = World(storage, **settings)  # type: ignore[arg-type]
    for cluster in (EAST, WEST):
        world.broker.catalog.save_cluster(cluster, ClusterRecord(broker_service_url=f"pulsar://{cluster}:6650"))
    world.settle()
    return world


@pytest.fixture
def world() -> World:
    return new_world()


def declared(world: World) -> dict[tuple[str, str], DeclaredRoute]:
    return {
        (TopicName.parse(row.topic).local, row.remote): row for row in world.broker.replication.declaration().topics
    }


def subscriptions(world: World, topic: str = "t") -> list[str]:
    return sorted(world.topic(topic).subscriptions)


def statuses(world: World, **chosen: object) -> dict[tuple[str, str], Status]:
    found = world.broker.replication.statuses(world.clock.now_ms(), **chosen)  # type: ignore[arg-type]
    return {(TopicName.parse(one.topic).local, one.remote): one for one in found}


def report(world: World, *rows: Report, is_all: bool = False, pipeline: str = "p1") -> None:
    replication = world.broker.replication
    replication.reports.receive(Reports(pipeline, is_all, list(rows)), world.clock.now_ms(), replication.is_declared)


# -- declaration


def test_gr1_nothing_is_replicated_unless_declared(world: World) -> None:
    world.publish()
    declaration = world.broker.replication.declaration()
    assert (declaration.topics, declaration.cluster, sorted(declaration.clusters)) == ([], HERE, [EAST, WEST])
    assert subscriptions(world) == []


def test_gr1_a_namespace_replicates_all_its_topics_and_a_topic_overrides_it(world: World) -> None:
    world.broker.catalog.create_partitioned(name("many"), 3, {})
    world.topic("own")
    world.topic("none")
    replicate_topic(world, "own", WEST)
    replicate_topic(world, "none")
    replicate(world, EAST)
    world.topic("later")
    assert sorted(declared(world)) == [("later", EAST), ("many", EAST), ("own", WEST)]
    assert declared(world)["many", EAST].partitions == 3
    assert declared(world)["later", EAST].partitions == 0
    assert [subscriptions(world, topic) for topic in ("own", "none", "later")] == [[TO_WEST], [], [TO_EAST]]
    assert [subscriptions(world, f"many-partition-{index}") for index in range(3)] == [[TO_EAST]] * 3


def test_gr1_a_namespace_is_known_as_replicated_before_it_has_topics(world: World) -> None:
    """The pipelines process is started for it, so that its first message does not wait for Spark."""
    replication, catalog, noticed = world.broker.replication, world.broker.catalog, []
    replication.watch(lambda: noticed.append(replication.is_expecting_routes()))
    replicate(world)
    replicate(world, "mars")
    assert noticed == [False, False], "the own cluster, and one that is not registered"
    catalog.save_cluster("mars", ClusterRecord(broker_service_url="pulsar://mars:6650"))
    assert noticed[-1], "it is registered now"
    replicate(world)
    assert not noticed[-1]
    replicate(world, EAST)
    assert noticed[-1], "changed"
    assert world.restart().broker.replication.is_expecting_routes(), "after a restart"
    replicate(world)
    catalog.create_namespace("public/new", NamespaceRecord(overrides=Overrides(replication_clusters=[HERE, EAST])))
    assert noticed[-1], "created"
    catalog.delete_namespace("public/new")
    assert not replication.is_expecting_routes()


def test_gr1_a_topic_alone_may_be_replicated(world: World) -> None:
    world.topic()
    assert not world.broker.replication.is_expecting_routes()
    replicate_topic(world, "t", EAST)
    assert world.broker.replication.is_expecting_routes()


def test_an_undeclared_cluster_is_left_out(world: World) -> None:
    replicate(world, EAST, "mars")
    world.topic()
    assert list(declared(world)) == [("t", EAST)]
    assert subscriptions(world) == [TO_EAST]


def test_non_persistent_topics_are_not_replicated(world: World) -> None:
    replicate(world, EAST)
    world.broker.topic(name("non-persistent://public/default/n"), create=True)
    assert declared(world) == {}


def test_internal_topics_of_apache_pulsar_are_not_replicated(world: World) -> None:
    """Its replicator copies them here."""
    replicate(world, EAST)
    world.topic("__change_events")
    world.topic("t")
    assert set(declared(world)) == {("t", EAST)}


def test_dead_letters_are_not_replicated_unless_the_route_includes_them(world: World) -> None:
    replicate(world, EAST, WEST)
    for topic in ("t", "t-s-DLQ", "t-s-RETRY"):
        world.topic(topic)
    assert sorted(declared(world)) == [("t", EAST), ("t", WEST)]
    world.broker.replication.set_route(EAST, NAMESPACE, RouteParts(dead_letters=True))
    world.settle()
    assert sorted(declared(world)) == [("t", EAST), ("t", WEST), ("t-s-DLQ", EAST), ("t-s-RETRY", EAST)]
    assert subscriptions(world, "t-s-DLQ") == [TO_EAST]
    world.broker.replication.set_route(EAST, NAMESPACE, NOTHING)
    world.settle()
    assert subscriptions(world, "t-s-DLQ") == []


def test_every_change_creates_a_new_version_and_wakes_waiting_requests(world: World) -> None:
    replication, catalog = world.broker.replication, world.broker.catalog
    woken: list[str] = []
    replication.watch(lambda: woken.append(replication.version))
    replicate(world, EAST)
    seen = [replication.version]

    def is_another() -> bool:
        seen.append(replication.declaration().version)
        return bool(woken) and seen[-1] not in seen[:-1] and replication.version == seen[-1]

    world.topic()
    assert is_another()
    catalog.create_partitioned(name("many"), 2, {})
    assert is_another()
    catalog.grow_partitioned(name("many"), 4)
    assert is_another() and declared(world)["many", EAST].grown_from == 2
    replication.set_route(EAST, "public/default/t", RouteParts(paused=True))
    assert is_another() and declared(world)["t", EAST].policy.paused
    catalog.save_cluster(EAST, ClusterRecord(broker_service_url="pulsar://east2:6650"))
    assert is_another()
    replicate_topic(world, "t", WEST)
    assert is_another()
    world.broker.delete_topic(name("t"), force=True)
    assert is_another() and ("t", WEST) not in declared(world)
    world.broker.delete_partitioned(name("many"), force=True)
    assert is_another() and declared(world) == {}
    catalog.delete_cluster(WEST)
    assert is_another()
    count = len(woken)
    world.publish(topic="other", count=5)
    world.broker.catalog.set_properties(name("other"), {"a": "b"})
    assert len(woken) == count + 1  # for the topic, but not for messages or properties


def test_a_restarted_broker_has_a_new_version(world: World) -> None:
    replicate(world, EAST)
    world.topic()
    world.settle()
    again = world.restart()
    assert again.broker.replication.version != world.broker.replication.version
    assert list(declared(again)) == [("t", EAST)]


def test_growth_is_remembered_permanently(world: World) -> None:
    catalog = world.broker.catalog
    catalog.create_partitioned(name("many"), 2, {})
    replicate(world, EAST)
    catalog.grow_partitioned(name("many"), 2)
    assert declared(world)["many", EAST].grown_from == 0
    catalog.grow_partitioned(name("many"), 3)
    catalog.grow_partitioned(name("many"), 5)
    world.settle()
    row = declared(world.restart())["many", EAST]
    assert (row.partitions, row.grown_from) == (5, 2)
    assert subscriptions(world, "many-partition-4") == [TO_EAST]


def test_gr9_replicated_subscriptions_are_declared(world: World) -> None:
    replicate(world, EAST)
    world.broker.catalog.create_partitioned(name("many"), 2, {})
    for index, subscription in enumerate(("a", "b")):
        world.consumer(subscription, f"many-partition-{index}")
    assert declared(world)["many", EAST].subscriptions == ()
    world.subscription("b", "many-partition-1").set_replicated(True)
    assert declared(world)["many", EAST].subscriptions == ("b",)
    world.settle()
    again = world.restart()
    again.advance(milliseconds=1)
    assert declared(again)["many", EAST].subscriptions == ("b",)
    again.topic("many-partition-1").delete_subscription("b", force=True)
    assert declared(again)["many", EAST].subscriptions == ()


def test_the_declaration_is_not_rebuilt_for_every_topic(world: World) -> None:
    replicate(world, EAST)
    for index in range(50):
        world.topic(f"t{index}")
    replication = world.broker.replication
    first = replication.declaration()
    assert len(first.topics) == 50 and replication.declaration() is first
    made: list[str] = []
    rows_for = replication._rows_for
    replication._rows_for = lambda one: (made.append(one.local), rows_for(one))[1]  # type: ignore[method-assign]
    world.topic("one-more")
    assert len(replication.declaration().topics) == 51
    assert made == ["one-more"]


# -- life of a replication subscription


def test_gr1_messages_of_a_new_topic_wait_for_the_pipeline(world: World) -> None:
    replicate(world, EAST)
    world.publish(10)
    assert world.subscription(TO_EAST).backlog == 10
    assert world.restart().subscription(TO_EAST).backlog == 10


@pytest.mark.parametrize(("start_at", "backlog"), [("latest", 2), ("earliest", 5)])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_topic_with_messages_starts_where_the_setting_says(start_at: str, backlog: int, is_open: bool) -> None:
    world = new_world(replicationStartAt=start_at)
    world.publish(3)
    if not is_open:
        world = world.restart(replicationStartAt=start_at)
        assert not world.broker.topics
    replicate_topic(world, "t", EAST)
    assert full() in world.broker.topics
    world.publish(2)
    assert world.subscription(TO_EAST).backlog == backlog


def test_withdrawn_replication_leaves_nothing(world: World) -> None:
    replicate(world, EAST, WEST)
    world.publish(3)
    client = world.consumer(TO_EAST, type=SubscriptionType.Exclusive)
    replicate(world, WEST)
    assert subscriptions(world) == [TO_WEST]
    assert world.client.closed == [client.name]
    again = world.restart()
    assert subscriptions(again) == [TO_WEST]
    replicate(again, EAST, WEST)
    assert again.subscription(TO_EAST).backlog == 0


def test_withdrawn_replication_of_a_topic_that_is_not_open(world: World) -> None:
    replicate(world, EAST)
    world.publish(3)
    again = world.restart()
    again.broker.catalog.save_namespace(NAMESPACE, NamespaceRecord())
    again.settle()
    assert subscriptions(again) == []


def test_no_message_escapes_replication_after_a_crash_at_any_commit() -> None:
    """The subscription is as durable as the topic: every message counts for it."""
    for steps in range(12):
        world = new_world()
        replicate(world, EAST)
        topic = world.topic()
        producer = world.broker.topics[full()]
        assert producer is topic
        for _ in range(steps):
            group = world.broker.commits.take()
            if group is not None:
                world.storage.write(group.batch)
                world.storage.sync()
                group.complete()
        again = world.restart()
        if full() in again.broker.catalog.topics:
            again.publish(2)
            assert again.subscription(TO_EAST).backlog == 2


def test_retention_keeps_uncopied_messages() -> None:
    world = new_world(managedLedgerMinLedgerRolloverTimeMinutes=0)
    replicate(world, EAST)
    world.publish(10)
    world.advance(hours=1)
    assert world.topic().log.first == 0
    world.subscription(TO_EAST).advance(6)
    world.advance(hours=1)
    assert world.topic().log.first == 7


# -- internal subscriptions


def test_clients_cannot_create_or_delete_one(world: World) -> None:
    topic = world.topic()
    with pytest.raises(NotAllowed, match="reserved"):
        world.consumer(TO_EAST)
    assert subscriptions(world) == []
    replicate(world, EAST)
    consumer = world.consumer(TO_EAST, type=SubscriptionType.Exclusive)
    with pytest.raises(NotAllowed, match="replication"):
        topic.unsubscribe(consumer)
    with pytest.raises(NotAllowed, match="replication"):
        topic.delete_subscription(TO_EAST, force=True)
    assert subscriptions(world) == [TO_EAST] and consumer.subscription is not None


def test_limits_apply_to_clients_only(world: World) -> None:
    limits = {"max_subscriptions": 1, "max_consumers": 1, "max_producers": 1}
    replicate(world, EAST, WEST, **limits)
    world.consumer(TO_EAST, type=SubscriptionType.Exclusive)
    world.consumer("s")
    assert subscriptions(world) == [TO_EAST, TO_WEST, "s"]
    world.producer(name="p")
    for prefix in ("magnetar.repl.", "pulsar.repl."):
        world.producer(name=f"{prefix}x/t/1")
    with pytest.raises(NotAllowed, match="has 1 subscriptions"):
        world.topic().create_subscription(SubscribeRequest("s2"))


def test_gr1_replication_has_no_dead_letters(world: World) -> None:
    replicate(world, EAST, dead_letters=DeadLetterPolicy(1))
    world.publish(3)
    subscription = world.subscription(TO_EAST)
    for _ in range(5):
        consumer = world.consumer(TO_EAST, type=SubscriptionType.Shared)
        subscription.redeliver(consumer, [0])
        world.settle()
        world.topic().remove_consumer(consumer, vanished=True)
        world.settle()
    assert [delivery[1] for _, delivery in world.client.delivered if delivery[0] == 0] == [0] * 10
    assert subscription.backlog == 3 and list(world.broker.catalog.topics) == [full()]
    with pytest.raises(NotAllowed, match="no dead letters"):
        subscription.set_dead_letter_policy(DeadLetterPolicy(1), "somebody")


def test_messages_that_expire_before_they_are_copied_are_not_dead_lettered(world: World) -> None:
    """As in Apache Pulsar, a time to live applies to replication too."""
    replicate(world, EAST, message_ttl_s=60, dead_letter_expired=True)
    world.publish(3)
    world.advance(minutes=10)
    assert world.subscription(TO_EAST).backlog == 0
    assert list(world.broker.catalog.topics) == [full()]


def test_messages_evicted_by_a_quota_are_not_dead_lettered() -> None:
    world = new_world(backlogQuotaDefaultLimitSecond=60, backlogQuotaDefaultRetentionPolicy="consumer_backlog_eviction")
    replicate(world, EAST, dead_letter_evicted=True)
    world.publish(3)
    world.advance(minutes=10)
    assert world.subscription(TO_EAST).backlog == 0
    assert list(world.broker.catalog.topics) == [full()]


def test_dead_letters_seen_only_by_replication_are_kept() -> None:
    world = new_world(managedLedgerMinLedgerRolloverTimeMinutes=0)
    world.broker.replication.set_route(EAST, NAMESPACE, RouteParts(dead_letters=True))
    replicate(world, EAST)
    world.publish(3, "t-s-DLQ")
    world.subscription(TO_EAST, "t-s-DLQ").advance(2)
    world.advance(hours=1)
    assert world.topic("t-s-DLQ").log.first == 0


@pytest.mark.parametrize("partitions", [0, 2])
def test_gr3_a_topic_with_a_backlog_is_deleted_by_force_only(world: World, partitions: int) -> None:
    replicate(world, EAST)
    if partitions:
        world.broker.catalog.create_partitioned(name(), partitions, {})
    part = "t-partition-1" if partitions else "t"
    world.publish(2, part)
    world.topic(part).producers.close_all()
    delete = world.broker.delete_partitioned if partitions else world.broker.delete_topic
    with pytest.raises(TopicBusy, match="has 2 messages that cluster east does not have yet"):
        delete(name())
    world.subscription(TO_EAST, part).advance(0)
    with pytest.raises(TopicBusy, match="has 1 messages"):
        delete(name())
    world.consumer(TO_EAST, part, type=SubscriptionType.Exclusive)  # the pipeline is no client
    world.subscription(TO_EAST, part).advance(1)
    delete(name())
    world.settle()
    assert world.broker.catalog.topics == {} and declared(world) == {}


@pytest.mark.parametrize("mark", [PIPELINE, ROUTE_FINGERPRINT])
@pytest.mark.parametrize("partitions", [0, 1])
def test_a_reader_of_the_pipeline_does_not_keep_a_topic(world: World, mark: str, partitions: int) -> None:
    if partitions:
        world.broker.catalog.create_partitioned(name(), partitions, {})
    part = "t-partition-0" if partitions else "t"
    delete = world.broker.delete_partitioned if partitions else world.broker.delete_topic
    world.topic(part)
    world.consumer("magnetar-1", part, durable=False, metadata={mark: "x"})
    client = world.consumer("magnetar-2", part, durable=False)
    with pytest.raises(TopicBusy):
        delete(name())
    world.topic(part).remove_consumer(client)
    delete(name())
    world.settle()
    assert world.broker.catalog.topics == {}


def test_a_cluster_takes_no_copies_of_its_own_messages(world: World) -> None:
    own = world.broker.settings.clusterName
    world.producer(name="magnetar.repl.parked/east/t/1")
    with pytest.raises(NotAllowed, match=f"this broker is cluster {own} itself"):
        world.producer(name=f"magnetar.repl.{own}/t/1")


def test_the_target_topic_reports_connected_replicators(world: World) -> None:
    topic = world.topic()
    world.producer(name="magnetar.repl.east/t/1")
    world.producer(name="p")
    with pytest.raises(TopicBusy, match="2 clients connected Including 0 consumers, 1 producers, and 1 replicators"):
        topic.check_unused()


# -- route policies


def test_a_topic_inherits_the_parts_that_it_does_not_set(world: World) -> None:
    replication = world.broker.replication
    replicate(world, EAST, WEST)
    for topic in ("a", "b"):
        world.topic(topic)
    replication.set_route(EAST, NAMESPACE, RouteParts(where="key = 'x'"))
    replication.set_route(EAST, "public/default/a", RouteParts(paused=True))
    world.settle()
    for one in (world, world.restart()):
        route_policies = {key: row.policy for key, row in declared(one).items()}
        assert route_policies == {
            ("a", EAST): RoutePolicy(where="key = 'x'", paused=True),
            ("b", EAST): RoutePolicy(where="key = 'x'"),
            ("a", WEST): AS_IT_IS,
            ("b", WEST): AS_IT_IS,
        }
    replication.set_route(EAST, "public/default/a", NOTHING)
    assert declared(world)["a", EAST].policy == RoutePolicy(where="key = 'x'")


def test_route_policies_are_deleted_with_their_scope(world: World) -> None:
    replication, catalog = world.broker.replication, world.broker.catalog
    catalog.create_namespace("public/other")
    catalog.create_partitioned(name("many"), 2, {})
    world.topic()
    for scope in ("public/other", "public/default/many", "public/default/t", NAMESPACE):
        replication.set_route(EAST, scope, RouteParts(paused=True))
    replication.set_route(WEST, NAMESPACE, RouteParts(paused=True))
    world.broker.delete_topic(name("many-partition-1"))
    world.broker.delete_topic(name())
    catalog.delete_namespace("public/other")
    assert sorted(replication.policies.all()) == [(EAST, NAMESPACE), (EAST, "public/default/many"), (WEST, NAMESPACE)]
    world.broker.delete_partitioned(name("many"))
    catalog.delete_cluster(WEST)
    world.settle()
    assert (
        sorted(replication.policies.all())
        == sorted(world.restart().broker.replication.policies.all())
        == [(EAST, NAMESPACE)]
    )


# -- status


def test_gr4_without_a_pipeline_everything_is_stopped(world: World) -> None:
    replicate(world, EAST)
    world.publish(3)
    status = statuses(world)["t", EAST]
    assert (status.state, status.reason) == (State.STARTING, "no pipelines process has reported yet")
    world.advance(seconds=11)
    status = statuses(world)["t", EAST]
    assert (status.state, status.backlog) == (State.STOPPED, 3)
    assert status.reason == "no pipelines process has reported since the broker started"
    report(world)
    status = statuses(world)["t", EAST]
    assert (status.state, status.reason) == (
        State.STARTING,
        "the pipelines process has not reported this topic yet",
    )
    report(world, Report(full(), EAST, State.CATCHING_UP, since_ms=77))
    assert (statuses(world)["t", EAST].state, statuses(world)["t", EAST].since_ms) == (State.CATCHING_UP, 77)
    world.advance(seconds=10)
    assert statuses(world)["t", EAST].state is State.CATCHING_UP
    world.advance(seconds=1)
    status = statuses(world)["t", EAST]
    assert (status.state, status.reason) == (
        State.STOPPED,
        "no heartbeat from the pipelines process for 11 s",
    )
    report(world)
    assert statuses(world)["t", EAST].state is State.CATCHING_UP


def test_gr5_backlog_and_delay_cover_uncopied_messages(world: World) -> None:
    replicate(world, EAST)
    world.publish(4, payload=b"x" * 1000)
    world.advance(seconds=30)
    world.publish(1)
    status = statuses(world)["t", EAST]
    assert (status.backlog, status.delay_s) == (5, 30.0)
    assert status.backlog_bytes == world.topic().log.size
    world.subscription(TO_EAST).advance(3)
    world.advance(seconds=2)
    status = statuses(world)["t", EAST]
    assert (status.backlog, status.delay_s) == (1, 2.0)
    world.subscription(TO_EAST).advance(4)
    status = statuses(world)["t", EAST]
    assert (status.backlog, status.backlog_bytes, status.delay_s) == (0, 0, 0.0)


def test_gr5_rates_are_differences_of_any_reports(world: World) -> None:
    replicate(world, EAST)
    world.topic()
    report(world, Report(full(), EAST, State.RUNNING, messages_out=600, bytes_out=6000))
    world.advance(minutes=1)
    assert statuses(world)["t", EAST].rate_out == 0.0  # the previous report
    report(world, Report(full(), EAST, State.RUNNING, messages_out=1200, bytes_out=9000))
    world.advance(minutes=1)
    assert (statuses(world)["t", EAST].rate_out, statuses(world)["t", EAST].throughput_out) == (10.0, 50.0)
    report(world, Report(full(), EAST, State.RUNNING, messages_out=60, bytes_out=120), pipeline="p2")
    world.advance(minutes=1)
    assert (statuses(world)["t", EAST].rate_out, statuses(world)["t", EAST].throughput_out) == (1.0, 2.0)


def test_gr4_a_paused_route_policy_is_named_with_its_scope(world: World) -> None:
    replicate(world, EAST)
    world.topic()
    report(world, Report(full(), EAST, State.RUNNING, since_ms=1))
    world.advance(seconds=3)
    world.broker.replication.set_route(EAST, NAMESPACE, RouteParts(paused=True))
    status = statuses(world)["t", EAST]
    assert (status.state, status.since_ms) == (State.PAUSED, world.clock.now_ms())
    assert status.reason == "the route policy of public/default to east is paused"
    assert status.policy.paused
    world.broker.replication.set_route(EAST, NAMESPACE, NOTHING)
    assert statuses(world)["t", EAST].state is State.RUNNING


def test_a_past_error_remains_the_last_error(world: World) -> None:
    replicate(world, EAST)
    world.topic()
    past_ms = world.clock.now_ms() - 5
    report(world, Report(full(), EAST, State.UNREACHABLE, reason="no route", error="refused", error_ms=past_ms))
    report(world, Report(full(), EAST, State.RUNNING))
    status = statuses(world)["t", EAST]
    assert (status.state, status.last_error, status.last_error_ms) == (State.RUNNING, "refused", past_ms)


def test_a_route_whose_oldest_message_waits_is_not_running(world: World) -> None:
    """Whatever was reported before it was published: the first query of a new process takes a while."""
    replicate(world, EAST)
    world.topic()
    since_ms = world.clock.now_ms()
    report(world, Report(full(), EAST, State.RUNNING, since_ms=since_ms))
    world.publish(3)
    assert statuses(world)["t", EAST].state is State.RUNNING
    world.advance(seconds=8)
    status = statuses(world)["t", EAST]
    assert (status.state, status.backlog, status.delay_s) == (State.CATCHING_UP, 3, 8.0)
    assert status.since_ms == since_ms + 5000


def test_only_declared_routes_are_kept(world: World) -> None:
    replicate(world, EAST)
    world.broker.catalog.create_partitioned(name("many"), 2, {})
    world.topic()
    strange = [full("many"), full("many-partition-2"), full("nowhere"), full("t-partition-0")]
    rows = [Report(topic, EAST, State.RUNNING) for topic in strange] + [Report(full(), WEST, State.RUNNING)]
    report(world, *rows, Report(full(), EAST, State.RUNNING), Report(full("many-partition-1"), EAST, State.RUNNING))
    reports = world.broker.replication.reports
    assert sorted(reports._rows) == [(full("many-partition-1"), EAST), (full(), EAST)]
    report(world, Report(full(), EAST, State.RUNNING), is_all=True)
    assert sorted(reports._rows) == [(full(), EAST)]
    world.broker.delete_topic(name(), force=True)
    world.advance(minutes=2)
    assert not reports._rows
    states = {key: one.state for key, one in statuses(world).items()}
    assert states == {("many-partition-0", EAST): State.STOPPED, ("many-partition-1", EAST): State.STOPPED}


def test_statuses_are_filtered(world: World) -> None:
    replicate(world, EAST, WEST)
    world.broker.catalog.create_partitioned(name("many"), 2, {})
    world.topic()
    assert len(statuses(world)) == 6
    assert sorted(statuses(world, topic=name())) == [("t", EAST), ("t", WEST)]
    assert len(statuses(world, topic=name("many"), remote=WEST)) == 2
    assert list(statuses(world, topic=name("many-partition-1"), remote=WEST)) == [("many-partition-1", WEST)]
    assert len(statuses(world, namespace=NAMESPACE)) == 6
    assert statuses(world, namespace="public/other") == statuses(world, topic=name("nowhere")) == {}


def test_a_status_opens_topics_and_reports_a_missing_partition(world: World) -> None:
    replicate(world, EAST)
    world.broker.catalog.create_partitioned(name("many"), 2, {})
    world.publish(2, "many-partition-1")
    world.broker.delete_topic(name("many-partition-0"))
    world.settle()
    again = world.restart()
    found = statuses(again)
    assert found["many-partition-1", EAST].backlog == 2
    assert found["many-partition-0", EAST].reason == "partition 0 does not exist yet"


def test_a_status_is_json() -> None:
    world = new_world()
    replicate(world, EAST)
    topic = world.topic()
    assert isinstance(topic, PersistentTopic)
    (status,) = statuses(world).values()
    shown = msgspec.json.decode(msgspec.json.encode(status))
    assert shown["state"] == "starting" and shown["backlogBytes"] == 0 and shown["policy"] == {}
