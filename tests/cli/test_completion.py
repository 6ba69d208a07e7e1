"""Completion by the tab key: the scripts, and what they complete, with real shells where the machine has them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.cli.completion import VARIABLE, Shell, words_to_complete
from magnetar.cli.main import main

MAGNETAR = Path(sys.executable).parent / "magnetar"

ASK = """
eval "$({magnetar} completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
_magnetar_completion magnetar
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(line: str) -> list[str]:
    """What bash offers for the last word of a line, by the script that it was given."""
    words = " ".join(map(shlex.quote, line.split(" ")))
    script = ASK.format(magnetar=shlex.quote(str(MAGNETAR)), words=words)
    path = f"{MAGNETAR.parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PATH": path},
    )
    assert found.stderr == ""
    return found.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("magnetar top", ["top", "topics"]),
        ("magnetar topics create-p", ["create-partitioned-topic"]),
        ("magnetar standalone --http", ["--http-port"]),
        ("magnetar topics create --u", ["--url"]),
        ("magnetar completion ", ["bash", "zsh", "fish"]),
        ("magnetar nonsense x", []),
    ],
)
def test_bash_completes(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
def test_bash_offers_every_noun_and_command() -> None:
    offered = completed("magnetar ")
    assert {"standalone", "topics", "process", "backup", "completion"} <= set(offered)


@pytest.mark.parametrize("shell", Shell)
def test_a_script_names_the_program(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell.value]) == 0
    script = capsys.readouterr().out
    assert f"{VARIABLE}=complete_{shell.value}" in script and "%(" not in script
    if shutil.which(shell.value):
        subprocess.run([shell.value, "-n"], input=script, text=True, timeout=60, check=True)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_completions_with_help(shell: str) -> None:
    environment = {**os.environ, VARIABLE: f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "magnetar topics create-pa"}
    environment["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    found = subprocess.run([MAGNETAR], capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert "create-partitioned-topic" in found.stdout and "Create a partitioned topic." in found.stdout


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "csh" in capsys.readouterr().err


def test_only_the_group_of_the_line_is_imported() -> None:
    """All of them take a quarter of a second longer."""
    assert words_to_complete({"COMP_WORDS": "magnetar topics cre"}) == ()
    assert words_to_complete({VARIABLE: "complete_bash", "COMP_WORDS": "magnetar topics cre"}) == ["topics"]
    assert words_to_complete({VARIABLE: "complete_bash", "COMP_WORDS": "magnetar topics "}) == ["topics"]
    assert words_to_complete({VARIABLE: "complete_bash", "COMP_WORDS": "magnetar topics"}) == []
    assert words_to_complete({VARIABLE: "complete_zsh", "_TYPER_COMPLETE_ARGS": "magnetar topics cre"}) == ["topics"]
    assert words_to_complete({VARIABLE: "source_bash"}) == []
