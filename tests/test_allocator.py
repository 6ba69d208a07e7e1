"""The allocator: page faults are counted, in a process of their own, since the thresholds are those of a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROUNDS = """
import resource, sys
from magnetar.allocator import keep_buffers

if sys.argv[1] == "keep":
    keep_buffers()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use_and_free():
    buffers = [b"x" * (300_000 + size * 100_000) for size in range(16)]

for _ in range(5):
    use_and_free()
before = faults()
for _ in range(50):
    use_and_free()
print(faults() - before)
"""

has_glibc = sys.platform == "linux" and "CS_GNU_LIBC_VERSION" in os.confstr_names


def faults_of(mode: str, **environment: str) -> int:
    command = [sys.executable, "-c", ROUNDS, mode]
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not has_glibc, reason="another C library")
def test_freed_buffers_are_used_again() -> None:
    """Pages of a buffer that was returned to the kernel are cleared again at their next use, one fault each."""
    assert faults_of("keep") * 20 < faults_of("leave")


@pytest.mark.skipif(not has_glibc, reason="another C library")
def test_what_the_operator_set_stays() -> None:
    assert faults_of("keep", MALLOC_TRIM_THRESHOLD_="4096") * 2 > faults_of("leave", MALLOC_TRIM_THRESHOLD_="4096")
