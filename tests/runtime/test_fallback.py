"""What is done when metrics fail for long: nothing, or what the user has stated; written down first."""

from __future__ import annotations

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.verdict import Waiting
from penstock.errors import SparkUnavailable
from penstock.journal.store import Journal
from penstock.runtime.fallback import NoMetrics, SourceWithFallback
from tests.fakes import APPLICATION
from tests.loop_setting import FlakyRecord, Setting

AWAY = SparkUnavailable("the status store does not answer")


def failing(setting: Setting, executors: int | None, times: int = 1000) -> None:
    setting.source.answers = [AWAY] * times
    setting.loop.source = SourceWithFallback(APPLICATION, setting.source, setting.actuator, executors, 60.0)


def test_a_short_failure_changes_nothing_and_a_long_one_leads_to_the_stated_size(journal: Journal):
    setting = Setting(FlakyRecord(journal))
    failing(setting, 5)
    for now in range(0, 60, 10):
        cycle = setting.loop.tick(float(now))
        assert cycle.error == str(AWAY) and cycle.verdict is None
    setting.loop.tick(60.0)
    assert [one.parallelism for one in setting.actuator.begun] == [{EXECUTORS: 5}]
    (action,) = journal.actions(APPLICATION)
    assert action.reason == f"no metrics for 1 minutes: {AWAY}; fallback_executors says so"
    assert action.planned == {EXECUTORS: 5} and action.before == {EXECUTORS: 2}
    for now in range(61, 200):
        setting.loop.tick(float(now))
    assert len(setting.actuator.begun) == 1, "the size is there"


def test_without_a_journal_it_does_not_begin(journal: Journal):
    record = FlakyRecord(journal)
    setting = Setting(record)
    failing(setting, 5)
    record.broken = {"intend"}
    for now in range(0, 100, 10):
        setting.loop.tick(float(now))
    assert setting.actuator.begun == []


def test_by_default_it_holds_and_says_so(journal: Journal):
    setting = Setting(FlakyRecord(journal))
    failing(setting, None)
    cycles = [setting.loop.tick(float(now)) for now in range(0, 100, 10)]
    assert setting.actuator.begun == []
    verdict = cycles[-1].verdict
    assert isinstance(verdict, Waiting)
    assert verdict.reason == f"no metrics for 2 minutes: {AWAY}; awaiting metrics; the size stays"
    assert journal.decisions(APPLICATION)[-1].count == 4


def test_metrics_that_come_back_end_it_and_the_next_failure_is_timed_anew(journal: Journal):
    setting = Setting(FlakyRecord(journal))
    failing(setting, 5, times=5)
    for now in range(0, 100, 10):
        setting.loop.tick(float(now))
    source = setting.loop.source
    setting.source.answers = [AWAY] * 20
    with pytest.raises(SparkUnavailable):
        source.observe(110.0)
    with pytest.raises(SparkUnavailable):
        source.observe(169.0)
    assert isinstance(source.observe(171.0), NoMetrics)
    with pytest.raises(SparkUnavailable):
        source.observe(20.0)
    assert setting.actuator.begun == [], "the clock went back: time is taken anew"


def test_what_only_observes_has_no_size_to_fall_back_to(journal: Journal):
    setting = Setting(FlakyRecord(journal), acts=False)
    setting.source.answers = [AWAY] * 10
    source = SourceWithFallback(APPLICATION, setting.source, None, 5, 0.1)
    with pytest.raises(SparkUnavailable):
        source.observe(0.0)
    assert type(source.observe(1.0)) is NotReady
