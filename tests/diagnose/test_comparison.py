"""Two runs of the same job: what changed on the critical path, in seconds that add up."""

from __future__ import annotations

import pytest

from penstock.diagnose.comparison import compare_runs
from penstock.diagnose.diagnosis import Diagnosis, diagnose_log
from penstock.diagnose.path.spans import Span
from tests.diagnose.eventful_logs import EventfulLog


def run_of(lengths, stage=0, gc=0, failed=0) -> Diagnosis:
    """One job of a stage with tasks of these lengths, beside one another on four slots."""
    log = EventfulLog().executor("1", 0, cores=4).job(0, 1000, [stage])
    log.attempt(stage, 0, 1000, len(lengths), scopes=("Exchange",))
    for partition, length in enumerate(lengths):
        log.task(stage, "1", 1000, 1000 + length, partition=partition, gc=gc)
    for _ in range(failed):
        log.task(stage, "1", 1000, 1500, partition=9, reason={"Reason": "ExceptionFailure"})
    end = 1000 + max(lengths)
    return diagnose_log(log.job_end(0, end).application_end(end).read(), Span())


def test_the_operator_that_got_slower_is_named_whatever_its_stage_number():
    found = compare_runs(run_of([1000, 1000, 1000, 9000], stage=7), run_of([3000] * 4))
    assert found.total.more_seconds == pytest.approx(6)
    assert (found.causes[0].name, found.operators[0].name) == ("run", "Exchange")
    assert found.operators[0].more_seconds == pytest.approx(6, abs=0.1)
    assert "It took 10 s instead of 4 s, 6 s more." in found.answer
    assert "Exchange changed most: 6 s more" in found.answer


def test_changes_of_causes_add_up_to_the_whole_change():
    found = compare_runs(run_of([5000] * 4, gc=3000), run_of([2000] * 4, gc=100))
    assert sum(one.more_seconds for one in found.causes) == pytest.approx(found.total.more_seconds, abs=1e-6)
    assert found.causes[0].name == "gc"


def test_a_run_like_the_other_has_no_change_to_tell():
    assert "nothing on the critical path changed" in compare_runs(run_of([3000]), run_of([3000])).answer


def test_failures_are_told_beside_the_times():
    assert "2 tasks failed instead of 0." in compare_runs(run_of([3000], failed=2), run_of([3000])).answer
