"""`penstock doctor`: a tick or a cross for each thing, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import perform
from tests.commands.command_line import Captured, complaint, last_json

HEALTHY = ["--conf", "spark.master=local[2]"]


@pytest.fixture(autouse=True)
def _own_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's own Spark and Python settings do not matter here."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def test_a_machine_that_is_well(capsys: Captured, config: list[str]) -> None:
    assert perform(["doctor", *config, *HEALTHY, "--json"]) == 0
    told = last_json(capsys)
    assert told["ok"] and all(one["ok"] and one["way_out"] is None for one in told["checks"])
    assert perform(["doctor", *config, *HEALTHY]) == 0
    shown = capsys.readouterr().out
    assert shown.count("✓") == len(told["checks"]) and "✗" not in shown


def test_what_is_not_well_has_the_way_out_and_exit_1(
    capsys: Captured, config: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert perform(["doctor", *config, *HEALTHY]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "✗ java" in shown and "→ install Java 17 or later" in shown
    assert perform(["doctor", *config, *HEALTHY, "--json"]) == 1
    told = last_json(capsys)
    assert not told["ok"] and [one["check"] for one in told["checks"] if not one["ok"]] == ["java"]


def test_a_setting_that_is_wrong_is_bad_usage(capsys: Captured, config: list[str]) -> None:
    assert perform(["doctor", *config, "--conf", "spark.penstock.polcy=ds2"]) == 2
    assert "did you mean" in complaint(capsys)


def test_a_query_in_real_time_mode_is_checked_before_it_starts(capsys: Captured, config: list[str]) -> None:
    assert perform(["doctor", *config, *HEALTHY, "--real-time", "2"]) == 0
    assert "2 slots are needed at once" in " ".join(capsys.readouterr().out.split())
    assert perform(["doctor", *config, *HEALTHY, "--real-time", "2+1", "--json"]) == 1
    (crossed,) = [one for one in last_json(capsys)["checks"] if not one["ok"]]
    assert crossed["check"] == "real-time mode" and "200 are missing" in crossed["found"]
    assert perform(["doctor", *config, *HEALTHY, "--real-time", "many"]) == 2
    assert complaint(capsys).startswith("--real-time: 'many' is not")
