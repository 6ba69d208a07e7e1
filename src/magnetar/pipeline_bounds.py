"""Bounds of pipelines, and of moves, their exactly once, beside those of `bounds`. The code that enforces one reads it
here.
"""

from __future__ import annotations

from magnetar.bounds import Bound

# -- moves

MOVED_RANGES = Bound(
    "moved-ranges", "ranges of positions that an entry moves, or that a request acknowledges", 10_000, "", "refused"
)
MOVED_MESSAGES = Bound(
    "moved-messages", "entries that are acknowledged with one entry that moves them", 100_000, "entries", "refused"
)
REDRIVEN_TOGETHER = Bound(
    "redriven-together", "letters that a broker redrives in one transaction", 256, "", "the others are in the next one"
)
REDRIVEN_BYTES = Bound(
    "redriven-bytes",
    "bytes of letters after which a broker ends a transaction of redriven ones",
    512 << 10,
    "bytes",
    "the others are in the next one",
)
REDRIVEN_PER_REQUEST = Bound(
    "redriven-per-request", "letters that one request redrives", 50_000, "", "the response says how far it came"
)
REDRIVEN_AHEAD = Bound(
    "redriven-ahead",
    "letters that are searched for more unknown origins, after the first one",
    2000,
    "",
    "a next request",
)
REDRIVE_TIME = Bound("redrive-time", "time of one request that redrives", 5, "s", "the response says how far it came")
REDRIVE_TARGETS = Bound("redrive-targets", "targets of one request", 1000, "targets", "refused")
REDRIVE_WAITING = Bound(
    "redrive-waiting", "bytes that wait for the disk while letters are redriven", 4 << 20, "bytes", "it waits for them"
)
UNACKNOWLEDGED_PAGE = Bound(
    "unacknowledged-page", "ranges of unacknowledged positions in one response", 10_000, "", "the response says `next`"
)

# -- declared pipelines

PIPELINES_OF_NAMESPACE = Bound(
    "pipelines-of-namespace", "declared pipelines of a namespace", 100, "pipelines", "another is refused with 409"
)
PIPELINE_SPEC = Bound("pipeline-spec", "the spec of a declared pipeline", 64 << 10, "bytes", "refused with 412")
PIPELINE_RUNS_KEPT = Bound(
    "pipeline-runs-kept", "runs that are over, of a declared pipeline", 20, "runs", "the oldest is dropped"
)
PIPELINES_AT_ONCE = Bound(
    "pipelines-at-once", "declared pipelines that the pipelines process runs", 8, "pipelines", "the others wait"
)
PIPELINE_COUNTS = Bound(
    "pipeline-counts", "named counts in the progress of a declared pipeline", 100, "counts", "the others are dropped"
)
REDRIVE_SOURCES = Bound("redrive-sources", "sources of a declared redrive", 100, "sources", "refused with 412")
REDRIVE_PATTERNS = Bound(
    "redrive-patterns", "patterns and namespaces among the sources of a redrive", 10, "patterns", "refused with 412"
)
ARCHIVE_TOPICS = Bound("archive-topics", "topics and patterns of a declared archive", 100, "", "refused with 412")

PIPELINE_BOUNDS: tuple[Bound, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Bound))
"""Every bound of this module, in the order of the reference page."""
