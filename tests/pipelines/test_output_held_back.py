"""Output of a JVM that is of interest only if it does not start."""

from __future__ import annotations

import os
import subprocess

import pytest

from magnetar.pipelines.output import held_back


def test_stderr_is_held_back_and_printed_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with held_back():
        subprocess.run(["sh", "-c", "echo greeting >&2"], check=True)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
    with pytest.raises(ValueError, match="no JVM"), held_back():
        subprocess.run(["sh", "-c", "echo the cause >&2"], check=True)
        raise ValueError("no JVM")
    assert capfd.readouterr().err == "the cause\n"
