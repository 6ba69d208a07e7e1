"""ConditionSuspects: what is remembered when Spark ends, and whose turn it is, without Spark."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from magnetar.pipelines.filter import suspects
from magnetar.pipelines.filter.suspects import ALONE, ENDS_MAX, OFTEN, Condition, ConditionSuspects
from magnetar.pipelines.jobs import SparkFailed

A, B, C = (Condition(f"tenant/{name}", f"{name} = 'secret'") for name in "abc")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "logs" / suspects.FILE


def ended(file: Path, *conditions: Condition) -> ConditionSuspects:
    """A process whose Spark ends while these are evaluated; returns the next one."""
    process = ConditionSuspects(file)
    with ExitStack() as stack:
        for condition in conditions:
            stack.enter_context(process.evaluating([condition]))
        process.on_spark_ended()
    return ConditionSuspects(file)


class Evaluation:
    """In another thread, until `end`."""

    def __init__(self, process: ConditionSuspects, condition: Condition) -> None:
        self._began, self._goes_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._evaluate, args=(process, condition), daemon=True)
        self._thread.start()

    def _evaluate(self, process: ConditionSuspects, condition: Condition) -> None:
        with process.evaluating([condition]):
            self._began.set()
            self._goes_on.wait(10)

    def begins(self, within_s: float = 10.0) -> bool:
        return self._began.wait(within_s)

    def end(self) -> None:
        self._goes_on.set()
        self._thread.join(10)


def test_what_is_evaluated_when_spark_ends_is_a_suspect(file: Path) -> None:
    before = ConditionSuspects(file)
    with before.evaluating([C]):
        pass
    process = ended(file, A, B)
    assert [process.is_suspect(condition) for condition in (A, B, C)] == [True, True, False]
    assert process.reason_against(A) == ""
    assert not process.is_suspect(Condition("tenant/b", A.where)), "of another namespace"


def test_nothing_is_remembered_of_conditions_that_came_to_their_end(file: Path) -> None:
    process = ConditionSuspects(file)
    with process.evaluating([A]):
        pass
    process.on_spark_ended()
    assert not ConditionSuspects(file).is_suspect(A)
    assert not ConditionSuspects(None).is_suspect(A)


def test_a_suspect_that_comes_to_its_end_is_none_any_more(file: Path) -> None:
    process = ended(file, A, B)
    with process.evaluating([A]):
        assert process.is_suspect(A)
    assert [ConditionSuspects(file).is_suspect(condition) for condition in (A, B)] == [False, True]


def test_one_with_which_spark_ends_while_it_is_alone_is_stopped(file: Path) -> None:
    ended(file, A, B)
    process = ended(file, A)
    assert process.reason_against(A) == f"{ALONE}, so it is not evaluated until it is changed"
    assert [process.is_suspect(condition) for condition in (A, B)] == [False, True]
    assert process.reason_against(B) == ""
    assert process.reason_against(Condition(A.namespace, f"{A.where} ")) == ""


def test_an_end_that_is_noticed_later_stops_the_one_that_was_alone(file: Path) -> None:
    ended(file, A)
    process = ConditionSuspects(file, lambda: True)
    with pytest.raises(SparkFailed), process.evaluating([A]):
        raise ConnectionResetError
    process.on_spark_ended()
    assert ConditionSuspects(file).reason_against(A)


def test_an_error_without_an_end_is_an_end_of_the_evaluation(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "DYING_S", 0.0)
    process = ended(file, A)
    with pytest.raises(ValueError, match="a value"), process.evaluating([A]):
        raise ValueError("a value")
    assert not process.is_suspect(A)


def test_the_first_sign_of_an_end_is_remembered(file: Path) -> None:
    process = ConditionSuspects(file)
    with pytest.raises(ValueError, match="no memory"), process.evaluating([A]):
        raise ValueError("no memory")
    with process.evaluating([B]):
        process.on_spark_ended()
    assert [ConditionSuspects(file).is_suspect(condition) for condition in (A, B)] == [True, True]


def test_a_suspect_waits_until_it_is_alone_and_others_wait_for_it(file: Path) -> None:
    ended(file, A)
    process = ConditionSuspects(file)
    b = Evaluation(process, B)
    assert b.begins()
    a = Evaluation(process, A)
    assert not a.begins(0.1)
    c = Evaluation(process, C)
    assert not c.begins(0.1), "after the suspect, which would never be alone otherwise"
    b.end()
    assert a.begins()
    assert not c.begins(0.1)
    a.end()
    assert c.begins()
    c.end()
    assert not process.is_suspect(A)


def test_suspects_are_evaluated_one_after_another(file: Path) -> None:
    process = ended(file, A, B)
    a = Evaluation(process, A)
    assert a.begins()
    b = Evaluation(process, B)
    assert not b.begins(0.1)
    a.end()
    assert b.begins()
    b.end()


def test_a_suspect_that_takes_long_holds_up_no_others(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is not alone: nothing is known of an end after that, until there were several."""
    monkeypatch.setattr(suspects, "TURN_WAIT_S", 0.05)
    ended(file, A)
    for _ in range(ENDS_MAX - 2):
        process = ended(file, A, B)
        assert process.is_suspect(A) and process.is_suspect(B)
        with process.evaluating([B]):
            pass
    process = ended(file, A, C)
    assert OFTEN in process.reason_against(A)
    assert [process.reason_against(condition) for condition in (B, C)] == ["", ""]


def test_the_file_has_no_text_of_a_condition_and_cannot_harm(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ended(file, A, B)
        ended(file, A)
    assert "secret" not in file.read_text() + caplog.text
    assert "a condition of tenant/a is stopped" in caplog.text
    for content in (b"", b"[]", b'{"suspects": {"a": "b"}}', b"\xff"):
        file.write_bytes(content)
        assert not ConditionSuspects(file).is_suspect(A)
    assert "is ignored" in caplog.text


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("a file")
    assert not ended(tmp_path / "logs" / suspects.FILE, A).is_suspect(A)
    assert "suspect conditions are forgotten" in caplog.text


def test_the_file_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "REMEMBERED_MAX", 2)
    others = [Condition(f"tenant/{number}", "true") for number in range(5)]
    process = ended(file, *others)
    assert sum(map(process.is_suspect, others)) == 2
