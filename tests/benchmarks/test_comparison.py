"""The benchmark's command line, its errors without Java, and the completeness of its page."""

from __future__ import annotations

from pathlib import Path

import comparison
import java
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


@pytest.fixture(autouse=True)
def no_java_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JAVA_HOME", java.JARS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    java.find_java.cache_clear()


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_missing_java_is_reported_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert comparison.main(["--only", "start"]) == 2
    assert "install it, or set JAVA_HOME" in capsys.readouterr().err


def test_a_wrong_java_home_is_not_replaced_by_another_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "java")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(java.JavaMissing, match=r"none/bin/java"):
        java.find_java()


def test_missing_maven_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "java")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "CACHE", tmp_path / "cache")
    assert comparison.main(["--only", "consume", "--skip-apache"]) == 2
    assert "mvn is not on PATH" in capsys.readouterr().err


def test_a_folder_without_jars_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "bin" / "java").parents[1]))
    monkeypatch.setenv(java.JARS_VARIABLE, str(tmp_path))
    with pytest.raises(java.JavaMissing, match="contains no jar"):
        java.find_java()


def test_the_pulsar_version_is_read_from_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pulsar-broker-common-9.9.9.jar", "pulsar-broker-4.2.4.jar"):
        (tmp_path / name).touch()
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "bin" / "java").parents[1]))
    monkeypatch.setenv(java.JARS_VARIABLE, str(tmp_path))
    assert java.find_java().pulsar_version == "4.2.4"


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--repeat", "0"], ["--repeat", "two"]])
def test_invalid_arguments_are_rejected(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        comparison.main(arguments)
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], "make bench"),
        (["--json", "out", "--markdown", "out"], "make bench"),
        (["--repeat", "3", "--journal-sync"], 'make bench ARGS="--repeat 3 --journal-sync"'),
        (["--only", "topics", "memory", "--quick"], 'make bench ARGS="--quick --only memory topics"'),
    ],
)
def test_the_command_that_reproduces_the_table(arguments: list[str], command: str) -> None:
    options = comparison.argument_parser().parse_args(arguments)
    assert comparison.Comparison(options).command() == command


def test_the_page_lists_every_row_and_every_option() -> None:
    text = PAGE.read_text()
    options = [
        word for action in comparison.argument_parser()._actions for word in action.option_strings if word[:2] == "--"
    ]
    named = [*(f"`{row}`" for row in comparison.ROWS), *(f"`{word}" for word in options if word != "--help")]
    assert [name for name in named if name not in text] == []
