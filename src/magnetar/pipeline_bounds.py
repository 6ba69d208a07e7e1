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
