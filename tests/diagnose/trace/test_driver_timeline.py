"""The driver's timeline of streaming queries: what each phase of a batch is, and cold starts apart."""

from __future__ import annotations

import pytest

from penstock.diagnose.causes import share_by_cause
from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from tests.diagnose.logs import LogBuilder, streaming_job

SLOW_SOURCE = {"latestOffset": 1500, "triggerExecution": 3400}
COLD = {"queryPlanning": 20_000, "triggerExecution": 21_700}


def diagnose(log):
    return diagnose_log(read_log(log.lines), Span())


@pytest.mark.parametrize("phase", ["latestOffset", "getOffset", "getEndOffset", "setOffsetRange"])
def test_asking_the_source_is_not_the_checkpoint(phase):
    lengths = {batch: {"latestOffset": 0, phase: 1500, "triggerExecution": 3400} for batch in range(4)}
    log = LogBuilder().executor("1", 100)
    for batch in range(4):
        given = {"walCommit": 50, "queryPlanning": 100, "addBatch": 1000} | lengths[batch]
        log.progress(batch, 1000 + 3500 * batch, given)
    shares = share_by_cause(diagnose(log.application_end(15_000)).whole)
    assert shares["source"] == pytest.approx(6.0 / 15, rel=0.05)
    assert shares["batch log"] == pytest.approx(0.2 / 15, rel=0.1)


def test_a_slow_source_is_told_with_advice_about_the_source():
    found = diagnose(streaming_job(5, dict.fromkeys(range(5), SLOW_SOURCE)))
    (source,) = [one for one in found.findings if one.cause == "source"]
    assert "asking the source" in source.sentence
    assert "checkpoint" not in source.advice


def test_a_cold_first_batch_does_not_lead_ahead_of_the_steady_cost():
    """20 s of planning in the first batch, then five batches with 1.5 s of asking the source."""
    log = LogBuilder().executor("1", 100)
    log.progress(0, 1000, {"latestOffset": 1500, **COLD})
    for batch in range(1, 6):
        given = {"latestOffset": 1500, "queryPlanning": 100, "triggerExecution": 2000}
        log.progress(batch, 23_000 + 2000 * batch, given)
    found = diagnose(log.application_end(35_500))
    shares = share_by_cause(found.whole)
    assert shares["cold batch"] == pytest.approx(20 / 35.5, rel=0.05)
    assert shares["scheduling"] == pytest.approx(0.5 / 35.5, rel=0.2)
    assert [finding.cause for finding in found.findings][:2] == ["source", "cold batch"]
    assert found.answer.index("asking the source") < found.answer.index("the first batch of a query")


def test_a_first_batch_like_the_others_is_not_cold():
    shares = share_by_cause(diagnose(streaming_job(4)).whole)
    assert "cold batch" not in shares


def test_one_batch_alone_is_not_cold_because_nothing_tells():
    shares = share_by_cause(diagnose(streaming_job(1, {0: COLD})).whole)
    assert "cold batch" not in shares


def test_where_the_driver_waits_and_no_task_runs_the_path_is_not_empty():
    """A job that never gets an executor: everybody waits, yet shares sum to 1."""
    log = LogBuilder().job(0, 1000, [0]).stage(0, 1010, 4)
    found = diagnose(log.application_end(60_000))
    assert sum(found.whole.activity.values()) == pytest.approx(1)
    assert share_by_cause(found.whole)["executors"] == pytest.approx(59 / 60, rel=0.01)
    assert not any("everyone waits" in warning for warning in found.warnings)
