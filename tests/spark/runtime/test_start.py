"""Start of a session: its master, its settings, and reuse of an active session."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import magnetar.spark
from magnetar.spark.runtime import java, start
from magnetar.spark.runtime.settings import REQUIRED, TUNED

SOURCE = Path(magnetar.spark.__file__).parents[2]


def test_without_pyspark_the_error_names_what_to_install() -> None:
    ran = subprocess.run(
        [sys.executable, "-S", "-c", "import magnetar.spark"],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert (
        'ImportError: magnetar.spark needs pyspark, which is not installed: pip install "magnetar[spark]"' in ran.stderr
    )


def test_only_requested_parts_are_imported() -> None:
    code = (
        "import sys, magnetar.spark\n"
        "assert 'pyspark' not in sys.modules and 'magnetar.spark.runtime.start' not in sys.modules\n"
        "magnetar.spark.session, magnetar.spark.register\n"
        "assert 'magnetar.spark.runtime.start' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        magnetar.spark.sesion  # type: ignore[attr-defined]  # noqa: B018


def test_no_module_shadows_the_public_functions() -> None:
    assert [name for name in magnetar.spark.__all__ if find_spec(f"magnetar.spark.{name}") is not None] == []


def test_sp7_spark_submit_sets_the_master(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import magnetar.spark\nprint('master', magnetar.spark.session().sparkContext.master)\n")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java.find().home)}
    ran = subprocess.run(
        [submit, "--master", "local[1]", program], env=environment, capture_output=True, text=True, timeout=200
    )
    assert "master local[1]" in ran.stdout, ran.stderr[-2000:]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls that would have started a session."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(start, "_start", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.delenv(start.MASTER_VARIABLE, raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return calls


def test_defaults_are_all_cores_and_retried_tasks(
    started: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    magnetar.spark.session()
    monkeypatch.setenv(start.MASTER_VARIABLE, "spark://there:7077")
    magnetar.spark.session()
    magnetar.spark.session("yarn", "letters")
    assert [call[:2] for call in started] == [
        ("local[*,3]", "magnetar"),
        ("spark://there:7077", "magnetar"),
        ("yarn", "letters"),
    ]


def test_given_settings_override_ours_and_the_plain_session_has_few(
    started: list[tuple[Any, ...]],
) -> None:
    magnetar.spark.session(**{"spark.ui.enabled": True, "spark.executor.cores": 2})
    magnetar.spark.session(tuned=False)
    tuned, plain = (call[2] for call in started)
    assert tuned == {
        **{setting.name: setting.value for setting in (*REQUIRED, *TUNED)},
        "spark.ui.enabled": "true",
        "spark.executor.cores": "2",
    }
    assert plain == {setting.name: setting.value for setting in REQUIRED}


def test_the_session_has_the_settings_and_the_source(spark: SparkSession) -> None:
    for setting in (*REQUIRED, *TUNED):
        assert spark.conf.get(setting.name) == setting.value
    assert spark.conf.get("spark.driver.host") in ("127.0.0.1", "localhost"), (
        "nobody else can reach a session of one machine"
    )
    with pytest.raises(Exception, match=r"service\.url|topic"):
        spark.read.format("pulsar").load()


def test_a_running_session_is_returned_with_the_settings_that_can_change(spark: SparkSession) -> None:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert magnetar.spark.session(**{name: 7}) is spark
        assert spark.conf.get(name) == "7"
    finally:
        spark.conf.set(name, str(before))


def test_settings_that_a_running_session_cannot_change_are_reported(spark: SparkSession) -> None:
    with pytest.warns(UserWarning, match="already running") as warned:
        assert magnetar.spark.session("local[7]", **{"spark.driver.memory": "3g"}) is spark
    text = str(warned[0].message)
    assert f"spark.master is {spark.sparkContext.master}, not local[7]" in text
    assert "spark.driver.memory is unset, not 3g" in text
    assert warned[0].filename == __file__


def test_an_older_pyspark_is_refused_with_the_reason() -> None:
    """Spark itself would only report that there is no such data source."""
    code = (
        "import sys, pyspark.sql.datasource; sys.modules['pyspark.sql.streaming.datasource'] = None\n"
        "import pyspark_pulsar as found\n"
        "try:\n    found.DefaultSource({})\nexcept ImportError as error:\n    print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.startswith("magnetar.spark needs pyspark 4.2 or later"), ran.stderr


def test_a_program_with_a_python_function_ends_without_a_traceback(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import magnetar.spark\n"
        "from pyspark.sql.functions import udf\n"
        "spark = magnetar.spark.session('local[1]', ui=True)\n"
        "double = udf(lambda n: 2 * n, 'int')\n"
        "spark.range(20).select(double('id')).show(3)\n"
        "print('ui', spark.sparkContext.uiWebUrl)\n"
    )
    environment = os.environ | {"JAVA_HOME": str(java.find().home)}
    ran = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=300)
    assert "ui http://" in ran.stdout
    assert ("Traceback" in ran.stderr, "Error" in ran.stderr, ran.returncode) == (False, False, 0), ran.stderr
