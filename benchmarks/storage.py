"""Storage benchmark: commit and read rates, CPU cost, and the longest freeze of the serving thread.

    python benchmarks/storage.py [workload ...] [--seconds 5] [--path FOLDER]

One thread builds groups as the broker's loop does, another commits them (write, then sync), two groups in a pipeline.
`freeze` is the longest time in which the building thread could not run: the pause that clients of a broker notice.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from magnetar.storage.api import Batch, Space, Storage
from magnetar.storage.rocks import RocksStorage

KB, MB = 1024, 1024 * 1024
WAIT_S = 0.001
Row = tuple[bytes, bytes]


def entry_key(topic: int, entry: int) -> bytes:
    """17 bytes, the length of the broker's keys: a kind, the topic and the entry."""
    return b"e" + topic.to_bytes(8, "big") + entry.to_bytes(8, "big")


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / MB


def payloads(size: int, count: int = 64) -> list[bytes]:
    """Half random, half text: compresses like real messages, about 2:1."""
    text = b'{"id": 123456, "name": "somebody", "tags": ["a", "b", "c"], "amount": 12.50}, ' * (size // 79 + 1)
    return [random.Random(seed).randbytes(size - size // 2) + text[: size // 2] for seed in range(count)]


class Committer(threading.Thread):
    """Writes and syncs batches, one at a time."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(daemon=True)
        self.storage = storage
        self.waiting: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self.idle = threading.Semaphore(2)  # one batch being committed, one waiting
        self.write_s_max = 0.0
        self.sync_s_max = 0.0
        self.start()

    def run(self) -> None:
        while (batch := self.waiting.get()) is not None:
            started = time.perf_counter()
            self.storage.write(batch)
            written = time.perf_counter()
            self.storage.sync()
            self.write_s_max = max(self.write_s_max, written - started)
            self.sync_s_max = max(self.sync_s_max, time.perf_counter() - written)
            self.idle.release()

    def hand_over(self, batch: Batch) -> None:
        self.waiting.put(batch)

    def stop(self) -> None:
        self.waiting.put(None)
        self.join()


def commit_for(storage: Storage, seconds: float, rows: Iterator[Row], entries: tuple[int, int], size: int) -> None:
    """Commits rows in groups of entries[0] to entries[1] rows or about `size` bytes, and prints the results."""
    committer = Committer(storage)
    count = written = groups = 0
    freeze = 0.0
    cpu, started = cpu_seconds(), time.perf_counter()
    last = started
    while last - started < seconds:
        batch = storage.batch()
        put, in_group, group_size = batch.put_entry, 0, 0
        while in_group < entries[1] and group_size < size:
            key, value = next(rows)
            put(key, value)
            in_group += 1
            group_size += len(value)
            now = time.perf_counter()
            freeze = max(freeze, now - last)
            last = now
            if in_group >= entries[0] and committer.idle.acquire(blocking=False):
                break
        else:
            idle = False  # waiting releases the GIL, like a loop's select; waking up late counts as a freeze
            while not idle:
                idle = committer.idle.acquire(timeout=WAIT_S)
                now = time.perf_counter()
                freeze = max(freeze, now - last - WAIT_S)
                last = now
        committer.hand_over(batch)
        count, written, groups = count + in_group, written + group_size, groups + 1
    committer.stop()
    elapsed = time.perf_counter() - started
    cpu_per_gb = (cpu_seconds() - cpu) / (written / MB / 1024)
    print(
        f"  {count / elapsed:9,.0f} entries/s  {written / MB / elapsed:6.0f} MB/s  group {count / groups:4.0f}  "
        f"freeze {freeze * 1000:6.1f} ms  write max {committer.write_s_max * 1000:6.1f} ms  "
        f"sync max {committer.sync_s_max * 1000:6.1f} ms  cpu {cpu_per_gb:5.2f} s/GB  "
        f"memory {memory_mb():4.0f} MB",
        flush=True,
    )


def rows_of_topics(topics: int, values: list[bytes]) -> Iterator[Row]:
    entry = 0
    while True:
        for topic in range(topics):
            yield entry_key(topic, entry), values[entry % len(values)]
        entry += 1


def small(storage: Storage, seconds: float) -> None:
    """A: 1 KB entries of one topic, groups of 64 to 300"""
    commit_for(storage, seconds, rows_of_topics(1, payloads(KB)), (64, 300), 2 * MB)


def large(storage: Storage, seconds: float) -> None:
    """B: 128 KB entries of one topic, groups of up to 1 MB"""
    commit_for(storage, seconds, rows_of_topics(1, payloads(128 * KB)), (1, 300), MB)


def topics(storage: Storage, seconds: float) -> None:
    """D: 1 KB entries of 1,000 topics in turn, groups of 64 to 300"""
    commit_for(storage, seconds, rows_of_topics(1000, payloads(KB)), (64, 300), 2 * MB)


def fill(storage: Storage, topic: int, count: int, value: list[bytes]) -> None:
    for start in range(0, count, 256):
        batch = storage.batch()
        for entry in range(start, min(start + 256, count)):
            batch.put_entry(entry_key(topic, entry), value[entry % len(value)])
        storage.write(batch)
    storage.sync()


def read_back(storage: Storage, topic: int, chunk: int) -> None:
    start, end = entry_key(topic, 0), entry_key(topic + 1, 0)
    count = size = 0
    slowest = 0.0
    cpu, started = cpu_seconds(), time.perf_counter()
    while True:
        before = time.perf_counter()
        rows = storage.scan(Space.ENTRIES, start, end, size_max=chunk)
        slowest = max(slowest, time.perf_counter() - before)
        if not rows:
            break
        count += len(rows)
        size += sum(len(row[1]) for row in rows)
        start = rows[-1][0] + b"\0"
    elapsed = time.perf_counter() - started
    print(
        f"    {count / elapsed:9,.0f} rows/s  {size / MB / elapsed:6.0f} MB/s  slowest scan {slowest * 1000:5.1f} ms  "
        f"cpu {(cpu_seconds() - cpu) / (size / MB / 1024):5.2f} s/GB  memory {memory_mb():4.0f} MB",
        flush=True,
    )


def drop_page_cache(folder: Path) -> None:
    """Drops the files from the page cache, as far as an unprivileged process can."""
    for file in folder.glob("*.sst"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def backlog(path: Path, seconds: float) -> None:
    """C: read a backlog of 1 KB entries in chunks of 1 MB: from the memtable, from files, from a cold disk"""
    del seconds
    storage = RocksStorage(path)
    fill(storage, 0, 10_000, payloads(KB))
    for label, chunk in (("memtable", MB), ("memtable, 64 KB chunks", 64 * KB), ("memtable, 16 KB chunks", 16 * KB)):
        print("  " + label)
        read_back(storage, 0, chunk)
    fill(storage, 1, 1_000_000, payloads(KB))
    storage.close()
    drop_page_cache(path)
    storage = RocksStorage(path)
    for label, chunk in (("cold disk", MB), ("files", MB), ("files, 64 KB chunks", 64 * KB)):
        print("  " + label)
        read_back(storage, 1, chunk)
    storage.close()


def state(storage: Storage, seconds: float) -> None:
    """E: overwrite cursors, add small keys and delete them by range; then scan the rest"""
    rng = random.Random(3)
    first = last = 0
    started = time.perf_counter()
    writes = 0
    while time.perf_counter() - started < seconds:
        batch = storage.batch()
        for cursor in range(10):
            batch.put(b"c%d" % cursor, rng.randbytes(40))
        for _ in range(200):
            batch.put(b"h" + last.to_bytes(8, "big"), b"\1")
            last += 1
        if last - first > 100_000:  # the mark-delete position passes most of the holes
            batch.delete_range(Space.STATE, b"h" + first.to_bytes(8, "big"), b"h" + (last - 100).to_bytes(8, "big"))
            first = last - 100
        storage.write(batch)
        storage.sync()
        writes += 1
    for label, start, end in (
        ("holes", b"h", b"i"),
        ("holes from the mark", b"h" + first.to_bytes(8, "big"), b"i"),
        ("cursors", b"c", b"d"),
    ):
        before = time.perf_counter()
        rows = storage.scan(Space.STATE, start, end)
        print(
            f"  {writes} commits, {last} keys; {label}: {len(rows)} in {(time.perf_counter() - before) * 1000:.2f} ms"
        )


def opening(path: Path, seconds: float) -> None:
    """O: open an empty folder, one with 10 million entries, and the same after a crash with a full log"""
    del seconds

    def opened(label: str, folder: Path) -> RocksStorage:
        memory, started = memory_mb(), time.perf_counter()
        storage = RocksStorage(folder)
        print(f"  {label}: {(time.perf_counter() - started) * 1000:6.1f} ms, memory +{memory_mb() - memory:.1f} MB")
        return storage

    opened("new folder", path / "new").close()
    opened("empty folder", path / "new").close()
    storage = opened("another new folder", path / "full")
    fill(storage, 0, 10_000_000, payloads(100))
    started = time.perf_counter()
    storage.close()
    print(f"  closing: {(time.perf_counter() - started) * 1000:.1f} ms")
    opened("10 million entries", path / "full").close()
    subprocess.run([sys.executable, __file__, "--die-in", path / "full"], check=False)
    logs = sum(file.stat().st_size for file in (path / "full").glob("*.log"))
    opened(f"after a crash with {logs / MB:.0f} MB of log", path / "full").close()


def die_in(folder: Path) -> None:
    """Fills the storage's log and exits like a crashed process."""
    storage = RocksStorage(folder)
    batch = storage.batch()
    batch.put(b"cursor", b"0")  # unflushed state keeps the log of everything after it
    storage.write(batch)
    fill(storage, 1, 185_000, payloads(KB))
    os._exit(9)


def on_a_storage(workload: Callable[[Storage, float], None]) -> Callable[[Path, float], None]:
    def run(path: Path, seconds: float) -> None:
        storage = RocksStorage(path)
        workload(storage, seconds)
        storage.close()

    run.__doc__ = workload.__doc__
    return run


WORKLOADS: dict[str, Callable[[Path, float], None]] = {
    "A": on_a_storage(small),
    "B": on_a_storage(large),
    "C": backlog,
    "D": on_a_storage(topics),
    "E": on_a_storage(state),
    "O": opening,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="storage benchmark")
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help="default all: A B C D E O")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--path", type=Path, help="folder on the disk to measure, default a temporary folder")
    parser.add_argument("--die-in", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.die_in:
        die_in(arguments.die_in)
    folder = Path(tempfile.mkdtemp(prefix="magnetar-bench-", dir=arguments.path))
    try:
        for letter in arguments.workloads:
            print(WORKLOADS[letter].__doc__, flush=True)
            (folder / letter).mkdir()
            WORKLOADS[letter](folder / letter, arguments.seconds)
            shutil.rmtree(folder / letter)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
