"""Rows for both brokers, on a freshly started one, in an order in which no row disturbs the next.

A measurement takes a running broker and returns one value per row. Knows pulsar-perf; does not know which broker it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pulsar  # type: ignore[import-untyped]
from contestant import Contestant, RequestFailed, Running
from dead_letters import DeadLettersFailed, by_client
from perf import INTERVAL_S, Perf, PerfFailed

PRODUCE_RATE = ("-r", "1000000")  # never reached
PRODUCE = ("-s", "1024", *PRODUCE_RATE)
OUTSTANDING_UNBATCHED = ("-o", "1000")  # without a limit pulsar-perf overloads any broker
OUTSTANDING_BATCHED = ("-o", "10000")
SUBSCRIPTION = "bench"
CONSUME_RATE_MIN = 10_000  # slower counts as a failure
CONSUME_SKIPPED = 0.25  # of the backlog
CONSUME_SAMPLES_MIN = 5

Values = dict[str, float]

DEAD_LETTER_CLIENTS = 8


@dataclass(frozen=True, slots=True)
class Effort:
    """Durations and sizes of the runs."""

    produce_s: int  # includes the ten discarded seconds
    latency_s: int
    latency_warmup_s: int
    backlog_messages: int
    dead_letters: int
    settle_s: float
    starts: int
    geo_batched: int  # messages
    geo_unbatched: int
    geo_new: int  # topics
    geo_topics: int
    geo_idle_s: float


FULL = Effort(
    produce_s=3 * INTERVAL_S + 1,
    latency_s=40,
    latency_warmup_s=10,
    backlog_messages=5_000_000,
    dead_letters=10_000,
    settle_s=10.0,
    starts=5,
    geo_batched=3_000_000,
    geo_unbatched=600_000,
    geo_new=10,
    geo_topics=1000,
    geo_idle_s=30.0,
)
QUICK = Effort(
    produce_s=2 * INTERVAL_S + 1,
    latency_s=15,
    latency_warmup_s=5,
    backlog_messages=2_000_000,
    dead_letters=5_000,
    settle_s=3.0,
    starts=3,
    geo_batched=1_000_000,
    geo_unbatched=200_000,
    geo_new=5,
    geo_topics=200,
    geo_idle_s=10.0,
)


def memory(broker: Running, perf: Perf, effort: Effort) -> Values:
    time.sleep(effort.settle_s)  # time for the broker to clean up after its start
    return {"memory": broker.memory_mb()}


def latency(broker: Running, perf: Perf, effort: Effort) -> Values:
    figures = perf.produce(
        broker,
        topic("latency"),
        *("-s", "1024", "-r", "1000", "-time", str(effort.latency_s), "--warmup-time", str(effort.latency_warmup_s)),
        limit_s=effort.latency_s,
    )
    return {"latency-p50": figures.latency_p50_ms, "latency-p99": figures.latency_p99_ms}


def publish_unbatched(broker: Running, perf: Perf, effort: Effort) -> Values:
    figures = perf.produce(
        broker,
        topic("unbatched"),
        *(*PRODUCE, *OUTSTANDING_UNBATCHED, "-db", "-time", str(effort.produce_s)),
        limit_s=effort.produce_s,
    )
    return {"publish-unbatched": figures.warm_rate}


def publish_batched(broker: Running, perf: Perf, effort: Effort) -> Values:
    figures = perf.produce(
        broker,
        topic("batched"),
        *(*PRODUCE, *OUTSTANDING_BATCHED, "-time", str(effort.produce_s)),
        limit_s=effort.produce_s,
    )
    return {"publish-batched": figures.warm_rate}


def consume(broker: Running, perf: Perf, effort: Effort) -> Values:
    """Publishes a backlog to an existing subscription, then reads it to the end with one consumer.

    pulsar-perf reports every ten seconds, too coarse for a backlog that is read in less than twenty: the broker's
    counter of the topic is sampled instead, and must agree with pulsar-perf's total.
    """
    name = topic("consumed")
    backlog = effort.backlog_messages
    limit_s = backlog / CONSUME_RATE_MIN
    subscribe(broker, name)
    perf.produce(broker, name, *PRODUCE, *OUTSTANDING_BATCHED, "-m", str(backlog), limit_s=limit_s)
    samples: list[Sample] = []

    def all_delivered() -> bool:
        samples.append(delivered(broker, name))
        return samples[-1].messages >= backlog

    figures = perf.consume(broker, name, "-ss", SUBSCRIPTION, "-sp", "Earliest", limit_s=limit_s, enough=all_delivered)
    if figures.messages < 0.99 * backlog:
        raise PerfFailed(f"pulsar-perf received {figures.messages:,} of the {backlog:,} messages counted by the broker")
    return {"consume": rate_between(samples, backlog)}


def dead_letters(broker: Running, perf: Perf, effort: Effort) -> Values:
    """Dead letters per second under the client's policy, which both brokers support.

    One client mostly waits for its own timers, whichever the broker; only many clients show the capacity of a broker.
    """
    one = by_client(broker.service_url, effort.dead_letters, clients=1)
    many = by_client(broker.service_url, effort.dead_letters // 2, clients=DEAD_LETTER_CLIENTS)
    return {"dead-letters": many, "dead-letters-of-one": one}


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    messages: int


def delivered(broker: Running, name: str) -> Sample:
    """Number of messages of a topic delivered to consumers so far."""
    before = time.monotonic()
    stats = broker.get(f"/admin/v2/{name.replace('://', '/')}/stats")
    return Sample((before + time.monotonic()) / 2, int(stats["msgOutCounter"]))


def rate_between(samples: Sequence[Sample], backlog: int) -> float:
    """Messages per second after the first quarter of the backlog, when the consumer's code is compiled."""
    counted = [each for each in samples if each.messages >= backlog * CONSUME_SKIPPED]
    if len(counted) < CONSUME_SAMPLES_MIN or counted[-1].messages == counted[0].messages:
        raise PerfFailed(
            f"only {len(counted)} samples of a backlog of {backlog:,} messages before it was read, "
            f"at least {CONSUME_SAMPLES_MIN} are needed"
        )
    return (counted[-1].messages - counted[0].messages) / (counted[-1].at_s - counted[0].at_s)


Measure = Callable[[Running, Perf, Effort], Values]

# Memory first, before anything is published.
ON_A_RUNNING_BROKER: dict[str, Measure] = {
    "memory": memory,
    "latency": latency,
    "publish-unbatched": publish_unbatched,
    "publish-batched": publish_batched,
    "consume": consume,
    "dead-letters": dead_letters,
}

# Rows that are measured with TLS and a token too, on brokers that ask every client for both.
SECURED = {f"secured-{row}": row for row in ("publish-unbatched", "publish-batched", "consume")}

WITHOUT_PERF = frozenset(("start", "memory", "dead-letters"))


def topic(name: str) -> str:
    return f"persistent://public/default/bench-{name}"


def subscribe(broker: Running, name: str) -> None:
    """Creates the subscription and disconnects, so that it keeps every message published from now on."""
    options = {"logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)}
    if broker.login is not None:
        options["authentication"] = pulsar.AuthenticationToken(broker.login.token)
        options["tls_trust_certs_file_path"] = str(broker.login.authority)
    client = pulsar.Client(broker.service_url, **options)
    try:
        client.subscribe(name, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest).close()
    finally:
        client.close()


def measure_round(
    contestant: Contestant,
    perf: Perf,
    effort: Effort,
    rows: Iterable[str],
    log: Callable[[str], None],
    fail: Callable[[str], None],
) -> Values:
    """Runs the selected rows on one freshly started broker. A failed row is reported and left out."""
    with contestant.started() as broker:
        log(f"{contestant.name}: binary port after {broker.binary_s:.2f} s, HTTP after {broker.http_s:.2f} s")
        values = {"start-binary": broker.binary_s, "start-http": broker.http_s}
        for row in rows:
            try:
                found = ON_A_RUNNING_BROKER[row](broker, perf, effort)
            except (PerfFailed, RequestFailed, DeadLettersFailed, pulsar.PulsarException) as error:
                fail(f"{contestant.name}, {row}: {error or type(error).__name__}")
                continue
            values |= found
            log(f"{contestant.name}: {', '.join(f'{key} {value:,.1f}' for key, value in found.items())}")
    return values
