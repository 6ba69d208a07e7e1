"""What a soak found: numbers in a table, and the promises that were broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import linear_regression, mean

# Memory may grow by this much over the second half of a run: caches still fill, and allocators keep pages.
GROWTH_SHARE_MAX = 0.10
GROWTH_MB_MAX = 16.0
RATE_SHARE_MIN = 0.95
RECONNECT_MAX_S = 30.0


def growth_mb(samples: Sequence[tuple[float, float]]) -> float:
    """The growth over the second half of (seconds, MB) samples, by the line through them."""
    second = samples[len(samples) // 2 :]
    if len(second) < 2:
        return 0.0
    line = linear_regression([at for at, _ in second], [mb for _, mb in second])
    return line.slope * (second[-1][0] - second[0][0])


@dataclass
class Report:
    messages: int = 0
    seconds: float = 0.0
    wanted_per_s: float = 0.0
    """0 where the messages are counted and not timed."""
    lost: int = 0
    repeated: int = 0
    changes: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    largest_ms: float = 0.0
    opened_s: float = 0.0
    reconnected_s: float = 0.0
    vandal_frames: int = 0
    vandal_thrown_out: int = 0
    lost_connections: int = 0
    errors: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """(seconds, MB) of the broker while messages were published."""

    def broken(self) -> list[str]:
        """Promises that do not hold."""
        found = []
        if self.lost:
            found.append(f"{self.lost} entries with a receipt did not arrive")
        if self.errors:
            found.append(f"{len(self.errors)} clients were disturbed, the first by: {self.errors[0]}")
        if self.lost_connections:
            found.append(f"{self.lost_connections} connections were ended by the broker")
        if self.faults:
            found.append(f"the broker's log has {len(self.faults)} faults, the first is: {self.faults[0]}")
        if not self.vandal_frames:
            found.append("the vandal sent nothing")
        if self.wanted_per_s and self.messages / self.seconds < self.wanted_per_s * RATE_SHARE_MIN:
            found.append(f"{self.messages / self.seconds:,.0f} messages a second, wanted {self.wanted_per_s:,.0f}")
        if self.reconnected_s > RECONNECT_MAX_S:
            found.append(f"reconnecting took {self.reconnected_s:.1f} s, allowed are {RECONNECT_MAX_S:.0f} s")
        if self.memory:
            average = mean(mb for _, mb in self.memory)
            growth = growth_mb(self.memory)
            if growth > average * GROWTH_SHARE_MAX + GROWTH_MB_MAX:
                found.append(f"memory grew by {growth:.0f} MB in the second half, with {average:.0f} MB on average")
        return found

    def __str__(self) -> str:
        rows = [
            (
                "messages",
                f"{self.messages:,} in {self.seconds:.0f} s, {self.messages / max(self.seconds, 1e-9):,.0f}/s",
            ),
            ("lost", f"{self.lost}"),
            ("delivered again", f"{self.repeated:,} entries"),
            ("consumers that went and came back", f"{self.changes:,}"),
            ("latency p50, p99, max", f"{self.p50_ms:.1f}, {self.p99_ms:.1f}, {self.largest_ms:.0f} ms"),
            ("clients opened in", f"{self.opened_s:.1f} s"),
            ("all reconnected at once in", f"{self.reconnected_s:.1f} s"),
            ("vandal", f"{self.vandal_frames:,} frames, thrown out {self.vandal_thrown_out:,} times"),
            ("connections ended by the broker", f"{self.lost_connections}"),
            ("faults in the broker's log", f"{len(self.faults)}"),
        ]
        if self.memory:
            first, last = self.memory[0][1], self.memory[-1][1]
            largest = max(mb for _, mb in self.memory)
            rows.append(("memory first, last, largest", f"{first:.0f}, {last:.0f}, {largest:.0f} MB"))
            rows.append(("memory growth in the second half", f"{growth_mb(self.memory):+.1f} MB"))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
