"""The analysis of live batches keeps to its share of the driver's time, and breaks nothing."""

from __future__ import annotations

import pytest

from penstock.errors import BadMetrics
from penstock.observe.analysis import SHARE_OF_TIME, BatchAnalysis
from penstock.observe.progress import parse_progress
from penstock.observe.stages import OperatorOutline
from tests.diagnose.live_batches import hot_task


class Meter:
    """Says that every pass took so many seconds."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.read = 0

    def __call__(self):
        self.read += 1
        return (self.read // 2) * self.seconds


def analysed(analysis, now, run="run", jobs=None):
    made = hot_task()
    report = {
        "runId": run,
        "batchId": 7,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "durationMs": made.phases,
        "numInputRows": 1000,
        "stateOperators": [{"numRowsTotal": 5, "commitTimeMs": 40}],
    }
    stages = [
        (one.stage, OperatorOutline(one.operator, one.fed_by, one.stateful), one.tasks) for one in made.stages
    ]
    return analysis.critical(
        now, parse_progress(report), made.jobs if jobs is None else jobs, stages, made.cores, made.slots
    )


def test_a_batch_is_analysed_from_what_was_collected():
    found = analysed(BatchAnalysis(), 0.0)
    assert found.hot_task.operator == "count"
    assert (found.batch_id, found.slots, found.input_records) == (7, 4, 1000)


def test_it_rests_until_its_share_of_time_has_passed():
    analysis = BatchAnalysis(Meter(0.01))
    rest = 0.01 / SHARE_OF_TIME
    # the first pass compiles, and is not counted
    assert analysed(analysis, 0.0) is not None
    assert analysed(analysis, 1.0) is not None
    assert analysed(analysis, 1.0 + rest / 2) is None
    assert analysed(analysis, 1.0 + rest) is not None


def test_each_query_gets_its_part_of_the_time():
    analysis = BatchAnalysis(Meter(0.01))
    analysed(analysis, 0.0, "one")
    assert analysed(analysis, 1.0, "two") is not None
    assert analysed(analysis, 1.0, "one") is not None
    assert analysed(analysis, 1.0 + 0.015 / SHARE_OF_TIME, "one") is None
    assert analysed(analysis, 1.0 + 0.02 / SHARE_OF_TIME, "one") is not None


def test_what_spark_left_out_is_a_warning_of_that_batch():
    with pytest.raises(BadMetrics, match="batch 7 cannot be analysed"):
        analysed(BatchAnalysis(), 0.0, jobs=[{"jobId": 1, "stageIds": [10], "submissionTime": None}])
