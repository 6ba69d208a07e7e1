"""The tour: real brokers, real processes that end, real Spark; and what it does when a step fails."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from magnetar.cli.main import main
from magnetar.cli.tour import shop, tour
from magnetar.cli.tour.screen import Screen
from magnetar.cli.tour.stage import Cluster, TourFailed, TourStage, wait_for
from magnetar.cli.tour.story import Story, TourCheck, _causes

ORDERS = 150
LIMIT_S = 400


@pytest.mark.timeout(LIMIT_S)
def test_sp2_sp3_gr3_dl13_the_tour_from_the_first_order_to_the_summary(tmp_path: Path) -> None:
    """A smoke test of everything together: its own checks decide, and each act has shown its commands."""
    words = [sys.executable, "-m", "magnetar", "tour", "--orders", str(ORDERS), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S - 10, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout.rpartition("Summary")[2]
    assert "FAILED" not in summary
    broken = sum(map(shop.is_broken, range(ORDERS)))
    figures = [int(number) for number in re.findall(r"(\d+)(?: invoices| times|)\s*$", summary, re.MULTILINE)]
    assert broken + 1 in figures  # dead letters: the broken orders and the poisoned one
    assert {ORDERS - broken - 1, ORDERS - 1, ORDERS} <= set(figures)
    for command in ("deadletters", "doctor replication orders", "topics create", "redrive start"):
        assert f"$ magnetar {command}" in done.stdout
    assert "ConsumerCrash" in done.stdout and "remote-topic-missing" in done.stdout
    assert sorted(path.name for path in (tmp_path / "kept").glob("*.log")) == ["billing.log", "east.log", "west.log"]
    assert not done.stderr


def test_orders_are_good_broken_or_poisoned() -> None:
    orders = list(shop.orders(ORDERS))
    broken = [order["id"] for order in orders if isinstance(order["amount"], str)]
    assert broken == [number for number in range(ORDERS) if number % 10 == 3 and number != shop.POISONED]
    assert [order["id"] for order in orders if order.get("kind") == "poison"] == [shop.POISONED]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--orders", "3"], "150"),
        (["--orders", "many"], "'--orders'"),
        (["--keep", "full"], "--keep full is not empty"),
    ],
)
def test_wrong_options(
    words: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full" / "a").mkdir(parents=True)
    assert main(["tour", *words]) == 2
    assert text in capsys.readouterr().err


def test_without_spark_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tour.importlib.util, "find_spec", lambda name: None)
    assert main(["tour"]) == 2
    assert "pip install 'magnetar[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize(("failing", "code"), [(True, 1), (False, 0)])
def test_a_check_that_does_not_hold_is_the_exit_code(
    failing: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Story, "run", lambda story: [TourCheck("letters", not failing, "7")])
    assert main(["tour"]) == code
    assert ("FAILED" in capsys.readouterr().out) is failing


def test_a_step_that_fails_ends_it_and_keeps_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(story: Story) -> list[TourCheck]:
        raise TourFailed("west has all orders: not within 180 s")

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(tour.tempfile, "mkdtemp", lambda prefix: str(home))
    monkeypatch.setattr(Story, "run", fails)
    assert main(["tour"]) == 1
    printed = capsys.readouterr()
    assert "not within 180 s" in printed.err and str(home) in printed.out
    assert home.exists()


def test_a_broker_that_does_not_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "east").write_text("a file where the data would be")
    with TourStage(tmp_path) as stage, pytest.raises(TourFailed, match=r"broker east did not start.*east\.log"):
        stage.broker("east")
    assert "east" in (tmp_path / "east.log").read_text()


def test_a_crew_replaces_processes_that_end_and_stops(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit(1)")
    with TourStage(tmp_path) as stage:
        from magnetar.cli.tour.stage import Crew

        crew = Crew([sys.executable, str(tmp_path / "ends.py")], 2, tmp_path / "log")
        stage._crews.append(crew)
        wait_for("restarts", lambda: crew.restarts >= 3, 60, lambda: None)
    count = crew.restarts
    assert not any(thread.is_alive() for thread in crew._threads)
    assert crew.restarts == count


def test_a_command_that_fails_is_the_reason(tmp_path: Path) -> None:
    with TourStage(tmp_path) as stage:
        story = Story(stage, Screen(Console(file=io.StringIO())), ORDERS)
        with pytest.raises(TourFailed, match=r"magnetar topics list nowhere/at-all: exit code 1: .*cannot connect"):
            story._do(Cluster("east", "pulsar://127.0.0.1:1", "http://127.0.0.1:1"), "topics list nowhere/at-all")


def test_causes_are_found_wherever_they_are() -> None:
    found = {"topics": [{"causes": [{"cause": "a", "repair": "magnetar x"}]}, {"repair": "magnetar y"}]}
    assert [cause["repair"] for cause in _causes(found)] == ["magnetar x", "magnetar y"]


def test_output_is_shown_as_it_is_and_cut_when_long() -> None:
    file = io.StringIO()
    screen = Screen(Console(file=file, width=60))
    screen.command('redrive start --where "reason = \'MaxRedeliveries\'" --set "payload.a = double(payload.a)"')
    screen.output("\n".join(["[bold]no markup[/bold]", *map(str, range(100))]))
    lines = file.getvalue().splitlines()
    assert lines[0].endswith('double(payload.a)"')  # in one line, so that it can be copied
    assert lines[1] == "  [bold]no markup[/bold]"
    assert lines[-1] == "  … 85 more lines"
