"""The benchmark table: its lines, their targets, rendering and saving.

Does not know how the samples were taken. A `Metric` is one value per broker, a `Series` holds values of Magnetar alone
at growing sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

Samples = Mapping[str, Sequence[float]]
Points = Sequence[tuple[int, float]]  # (size, value), ordered by size


@dataclass(frozen=True, slots=True)
class Metric:
    """One comparable quantity. `reached` takes Magnetar's value and the ratio, above 1 where Magnetar is better.

    `against` is the key of Apache Pulsar's closest equivalent, where it has no equal. A `baseline` names another
    program in the table, measured on Magnetar: its value is among Magnetar's samples, under `against`.
    """

    key: str
    title: str
    unit: str
    format: str
    more_is_better: bool
    wanted: str
    reached: Callable[[float, float | None], bool | None]
    against: str = ""
    baseline: str = ""

    def ratio(self, apache: float, magnetar: float) -> float:
        better, worse = (magnetar, apache) if self.more_is_better else (apache, magnetar)
        return better / worse if worse else float("inf")

    def show(self, value: float) -> str:
        return f"{value:{self.format}} {self.unit}"


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity at several sizes; its samples are under "key size"."""

    key: str
    title: str  # {} stands for the sizes
    unit: str
    format: str
    wanted: str
    reached: Callable[[Points], bool | None]

    def points(self, samples: Samples) -> list[tuple[int, float]]:
        start = f"{self.key} "
        return sorted(
            (int(key.removeprefix(start)), median(each)) for key, each in samples.items() if key.startswith(start)
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table; `ok` is None without a target or a value to compare."""

    metric: str
    apache: str
    magnetar: str
    ratio: str
    wanted: str
    ok: bool | None


def _at_most(limit: float) -> Callable[[float, float | None], bool | None]:
    return lambda value, _: value <= limit


def _ratio_at_least(limit: float) -> Callable[[float, float | None], bool | None]:
    return lambda _, ratio: None if ratio is None else round(ratio, 2) >= limit  # as displayed


def _idle_memory(value: float, ratio: float | None) -> bool | None:
    if value >= 80:
        return False
    return None if ratio is None else ratio >= 20


def _anything(value: float, ratio: float | None) -> bool | None:
    return None


def linear(points: Points, slack: float) -> bool | None:
    """Whether the slope at the end exceeds the slope at the beginning by at most a quarter and `slack`."""
    if len(points) < 3:
        return None
    (first, at_first), (middle, at_middle), (last, at_last) = points[0], points[-2], points[-1]
    slope = max(0.0, (at_middle - at_first) / (middle - first))
    return at_last - at_middle <= 1.25 * slope * (last - middle) + slack


def _memory_is_linear(points: Points) -> bool | None:
    return linear([(size, size * each_kb) for size, each_kb in points], slack=4096)


def _start_is_linear(points: Points) -> bool | None:
    return linear(points, slack=0.05)


def _does_not_grow(points: Points) -> bool | None:
    return None if len(points) < 2 else points[-1][1] <= points[0][1] + BACKLOG_SLACK_MB


def _all_under(limit: float) -> Callable[[Points], bool | None]:
    return lambda points: all(value < limit for _, value in points)


def _all_at_least(limit: float) -> Callable[[Points], bool | None]:
    return lambda points: all(value >= limit for _, value in points)


def _any_points(points: Points) -> bool | None:
    return None


BACKLOG_SLACK_MB = 24  # half a write buffer: the observed spread of two means at the same fill level

METRICS = (
    Metric("start-binary", "start until the binary port serves", "s", ".2f", False, "at most 0.5 s", _at_most(0.5)),
    Metric("start-http", "start until HTTP is healthy", "s", ".2f", False, "at most 1.0 s", _at_most(1.0)),
    Metric("memory", "memory when idle (PSS)", "MB", ",.1f", False, "20 times less, under 80 MB", _idle_memory),
    Metric(
        "publish-unbatched", "publish 1 KB unbatched", "msg/s", ",.0f", True, "ratio at least 1.0", _ratio_at_least(1.0)
    ),
    Metric(
        "publish-batched", "publish 1 KB batched", "msg/s", ",.0f", True, "ratio at least 1.0", _ratio_at_least(1.0)
    ),
    Metric("consume", "consume a backlog of 1 KB", "msg/s", ",.0f", True, "ratio at least 1.0", _ratio_at_least(1.0)),
    *(
        Metric(
            f"secured-{key}",
            f"{title}, TLS and token",
            "msg/s",
            ",.0f",
            True,
            "ratio at least 1.0",
            _ratio_at_least(1.0),
        )
        for key, title in (
            ("publish-unbatched", "publish 1 KB unbatched"),
            ("publish-batched", "publish 1 KB batched"),
            ("consume", "consume a backlog of 1 KB"),
        )
    ),
    Metric("latency-p50", "publish latency p50 at 1,000 msg/s", "ms", ".2f", False, "", _anything),
    Metric("latency-p99", "publish latency p99 at 1,000 msg/s", "ms", ".2f", False, "not higher", _ratio_at_least(1.0)),
    Metric(
        "dead-letters",
        "dead letters per second, policies of 8 clients",
        "/s",
        ",.0f",
        True,
        "ratio at least 1.5",
        _ratio_at_least(1.5),
    ),
    Metric(
        "dead-letters-of-one",
        "dead letters per second, policy of one client",
        "/s",
        ",.0f",
        True,
        "",
        _anything,
    ),
    Metric(
        "dead-letters-by-broker",
        "dead letters per second, broker's policy",
        "/s",
        ",.0f",
        True,
        "5 times Apache Pulsar with one client",
        _ratio_at_least(5.0),
        against="dead-letters-of-one",
    ),
    Metric("geo-cold", "replication: first message from cold", "s", ".1f", False, "at most 5 s", _at_most(5)),
    Metric(
        "geo-memory", "replication: memory of a cluster (PSS)", "MB", ",.0f", False, "at most 500 MB", _at_most(500)
    ),
    Metric("geo-memory-rss", "replication: memory of a cluster (RSS)", "MB", ",.0f", False, "", _anything),
    Metric("geo-batched", "replicate 1 KB batched", "msg/s", ",.0f", True, "ratio at least 1.0", _ratio_at_least(1.0)),
    Metric(
        "geo-unbatched", "replicate 1 KB unbatched", "msg/s", ",.0f", True, "ratio at least 1.0", _ratio_at_least(1.0)
    ),
    Metric(
        "geo-latency-p50",
        "cluster to cluster p50 at 1,000 msg/s",
        "ms",
        ".1f",
        False,
        "at most 100 ms",
        _at_most(100),
    ),
    Metric("geo-latency-p99", "cluster to cluster p99 at 1,000 msg/s", "ms", ".1f", False, "", _anything),
    Metric("geo-new-topic", "new topic until replicated, median", "s", ".2f", False, "", _anything),
    Metric("geo-new-topic-longest", "new topic until replicated, longest", "s", ".2f", False, "", _anything),
    Metric("geo-idle-cpu", "CPU with 1,000 idle replicated topics", "% of a core", ".1f", False, "", _anything),
    Metric("geo-idle-memory", "memory of both clusters, same topics (PSS)", "MB", ",.0f", False, "", _anything),
)

SERIES = (
    Series("topics-memory", "memory per idle topic, {} topics", "KB", ".1f", "linear", _memory_is_linear),
    Series("topics-start", "start after a restart with {} topics", "s", ".2f", "linear", _start_is_linear),
    Series(
        "backlog-memory",
        "memory with a backlog of {} messages",
        "MB",
        ",.0f",
        f"does not grow (within {BACKLOG_SLACK_MB} MB)",
        _does_not_grow,
    ),
    Series(
        "redelivery-memory",
        "memory with {} messages awaiting redelivery",
        "MB",
        ",.0f",
        f"does not grow (within {BACKLOG_SLACK_MB} MB)",
        _does_not_grow,
    ),
    Series(
        "redelivered-memory",
        "memory during redelivery of {} messages",
        "MB",
        ",.0f",
        f"does not grow (within {BACKLOG_SLACK_MB} MB)",
        _does_not_grow,
    ),
    Series("admin-list", "listing a namespace of {} topics", "ms", ".1f", "under 50 ms", _all_under(50)),
    Series("admin-stats", "slowest stats of a topic, {} topics", "ms", ".1f", "under 50 ms", _all_under(50)),
    Series("admin-metrics", "/metrics with {} topics", "s", ".2f", "", _any_points),
    Series("admin-pause", "longest loop pause during a scrape, {} topics", "ms", ".1f", "under 50 ms", _all_under(50)),
    Series("overview-first", "first overview of {} topics", "s", ".2f", "under 2 s", _all_under(2)),
    Series(
        "overview-publish",
        "publish rate while 5 clients poll the overview of {} topics, against none",
        "",
        ".3f",
        "at least 0.97",
        _all_at_least(0.97),
    ),
)

AFTERWARDS = (
    Metric("backlog-first", "first 100 messages of that backlog", "ms", ",.1f", False, "served", _anything),
    Metric("redelivery-rate", "redelivery rate of these messages", "msg/s", ",.0f", True, "all", _anything),
)

_CLIENT, _PERF = "Python client", "pulsar-perf"

SPARK = (
    Metric(
        "spark-read-1kb",
        "Spark: read 1 KB into all columns",
        "msg/s",
        ",.0f",
        True,
        "2 times the official Python client",
        _ratio_at_least(2.0),
        against="spark-read-1kb-client",
        baseline=_CLIENT,
    ),
    Metric(
        "spark-read-100b",
        "Spark: read 100 B into all columns",
        "msg/s",
        ",.0f",
        True,
        "4 times the official Python client",
        _ratio_at_least(4.0),
        against="spark-read-100b-client",
        baseline=_CLIENT,
    ),
    Metric(
        "spark-read-1kb",
        "Spark: read 1 KB, against pulsar-perf consume",
        "msg/s",
        ",.0f",
        True,
        "ratio at least 0.7",
        _ratio_at_least(0.7),
        against="spark-read-1kb-perf",
        baseline=_PERF,
    ),
    Metric(
        "spark-write",
        "Spark: write 1 KB, against send",
        "msg/s",
        ",.0f",
        True,
        "5 times the official Python client",
        _ratio_at_least(5.0),
        against="spark-write-send",
        baseline=_CLIENT,
    ),
    Metric(
        "spark-write",
        "Spark: write 1 KB, against send_async in batches",
        "msg/s",
        ",.0f",
        True,
        "",
        _anything,
        against="spark-write-async",
        baseline=_CLIENT,
    ),
    Metric("spark-write-made", "Spark: creating these rows, included above", "rows/s", ",.0f", True, "", _anything),
    Metric(
        "spark-latency-ours-p50",
        "Spark: topic to topic p50 at 20 msg/s",
        "ms",
        ".0f",
        False,
        "at most 60 ms",
        _at_most(60),
    ),
    Metric("spark-latency-ours-p99", "Spark: topic to topic p99", "ms", ".0f", False, "", _anything),
    Metric("spark-latency-spark-p50", "Spark: topic to topic p50, Spark's settings", "ms", ".0f", False, "", _anything),
    Metric("spark-latency-spark-p99", "Spark: topic to topic p99, Spark's settings", "ms", ".0f", False, "", _anything),
    Metric("spark-idle-ours", "Spark: CPU of an idle query", "% of a core", ".1f", False, "at most 5 %", _at_most(5)),
    Metric(
        "spark-idle-spark",
        "Spark: CPU of an idle query, Spark's settings",
        "% of a core",
        ".1f",
        False,
        "at most 5 %",
        _at_most(5),
    ),
)

FAILED_MESSAGES = (
    Metric(
        "process-row",
        "process: a function per message, 1 KB, exactly once",
        "msg/s",
        ",.0f",
        True,
        "1.5 times a consumer loop",
        _ratio_at_least(1.5),
        against="process-client",
        baseline=_CLIENT,
    ),
    Metric("process-arrow", "process: a function over Arrow batches", "msg/s", ",.0f", True, "", _anything),
    *(
        Metric(
            f"redrive-{size}",
            f"redrive of letters of {title}",
            "/s",
            ",.0f",
            True,
            "3 times the fastest loop",
            _ratio_at_least(3.0),
            against=f"redrive-{size}-loop",
            baseline=_CLIENT,
        )
        for size, title in (("1kb", "1 KB"), ("100b", "100 B"))
    ),
    Metric("dead-letters-sql", "SQL over a million dead letters, by reason", "s", ".1f", False, "seconds", _anything),
    Metric("dead-letters-sql-causes", "the same by cause, topic and hour", "s", ".1f", False, "", _anything),
    Metric(
        "archive",
        "archive to Parquet",
        "MB/s",
        ",.0f",
        True,
        "half of Spark from files",
        _ratio_at_least(0.5),
        against="archive-spark",
        baseline="Spark from files",
    ),
)


def compare(apache: Samples, magnetar: Samples) -> list[Line]:
    """One line for each measured quantity, from the medians of all rounds."""
    lines = [_compared(metric, apache, magnetar) for metric in METRICS]
    lines += [_alone(series, magnetar) for series in SERIES]
    lines += [_compared(metric, apache, magnetar) for metric in (*AFTERWARDS, *SPARK, *FAILED_MESSAGES)]
    return [line for line in lines if line is not None]


def _compared(metric: Metric, apache: Samples, magnetar: Samples) -> Line | None:
    key, samples = metric.against or metric.key, magnetar if metric.baseline else apache
    theirs = median(samples[key]) if samples.get(key) else None
    ours = median(magnetar[metric.key]) if magnetar.get(metric.key) else None
    if ours is None and (theirs is None or metric.against):
        return None
    ratio = metric.ratio(theirs, ours) if theirs is not None and ours is not None else None
    return Line(
        metric=metric.title,
        apache="-" if theirs is None else f"{metric.show(theirs)}{metric.baseline and f' ({metric.baseline})'}",
        magnetar="-" if ours is None else metric.show(ours),
        ratio="-" if ratio is None else f"{ratio:.2f}",
        wanted=metric.wanted,
        ok=None if ours is None else metric.reached(ours, ratio),
    )


def _alone(series: Series, magnetar: Samples) -> Line | None:
    points = series.points(magnetar)
    if not points:
        return None
    return Line(
        metric=series.title.format(" / ".join(_size(size) for size, _ in points)),
        apache="-",
        magnetar=f"{' / '.join(f'{value:{series.format}}' for _, value in points)} {series.unit}",
        ratio="-",
        wanted=series.wanted,
        ok=series.reached(points),
    )


def _size(size: int) -> str:
    return f"{size // 1_000_000}M" if size >= 1_000_000 and size % 1_000_000 == 0 else f"{size:,}"


_HEAD = ("metric", "Apache Pulsar", "Magnetar", "ratio", "wanted", "")
_VERDICT = {True: "ok", False: "miss", None: ""}


def render(lines: Iterable[Line]) -> str:
    """The table as Markdown, aligned for a terminal."""
    cells = [_HEAD]
    cells += [(line.metric, line.apache, line.magnetar, line.ratio, line.wanted, _VERDICT[line.ok]) for line in lines]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    to_the_right = (False, True, True, True, False, False)

    def row_of(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, to_the_right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    ends = (":" if right else "-" for right in to_the_right)
    rule = "|".join("-" * (width + 1) + end for width, end in zip(widths, ends, strict=True))
    return "\n".join((row_of(cells[0]), f"|{rule}|", *map(row_of, cells[1:])))


def as_page(lines: Iterable[Line], setting: Mapping[str, str], command: str) -> str:
    """Markdown for a page: the table, its setting and the command that reproduces it."""
    facts = "\n".join(f"- {key}: {value}" for key, value in setting.items())
    return f"{render(lines)}\n\nMeasured by `{command}`; a ratio above 1 favours Magnetar.\n\n{facts}\n"


def as_data(lines: Iterable[Line]) -> list[dict[str, object]]:
    return [asdict(line) for line in lines]
