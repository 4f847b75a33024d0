"""A batch that has not ended: what its stages have done, do and have left."""

from __future__ import annotations

import pytest

from penstock.dataflow.metrics import RunningBatch
from penstock.errors import BadMetrics
from penstock.observe.progress import BatchProgress, BatchTimeline
from penstock.observe.running import (
    ObservedRun,
    choose_stages,
    explain_trouble,
    find_running_jobs,
    read_running_stage,
)
from penstock.observe.stages import OperatorOutline, StageOutline
from tests.observe.spark_texts import task


def stage(status="ACTIVE", tasks=8, active=2):
    return {"status": status, "numTasks": tasks, "numActiveTasks": active}


def outline(*rdds):
    return StageOutline((), frozenset(rdds), frozenset())


def job(number, batch=None, at=0.0, group="run", description="mine"):
    text = description if batch is None else f"words\nid = i\nrunId = {group}\nbatch = {batch}"
    return {"jobId": number, "jobGroup": group, "description": text, "submissionTime": at * 1000}


def told(batch_id, start, seconds, executed=True):
    timeline = BatchTimeline(0.0, 0.0, seconds, 0.0, seconds)
    return BatchProgress("run", batch_id, start, timeline, 0.0, (), executed, 0)


def test_the_jobs_of_the_batch_after_the_one_reported():
    jobs = [job(0, 4), job(1, 5), job(2, 5), job(3, 6, group="another")]
    assert find_running_jobs(jobs, "run", told(4, 0.0, 2.0)) == (5, jobs[1:3])
    assert find_running_jobs(jobs, "run", told(5, 0.0, 2.0)) == (5, [])
    assert find_running_jobs(jobs, "run", None) == (5, jobs[1:3])
    assert find_running_jobs([], "run", None) == (-1, [])


def test_after_idle_time_the_batch_has_the_number_that_was_reported():
    jobs = [job(0, 4), job(1, 5)]
    assert find_running_jobs(jobs, "run", told(5, 10.0, 0.0, executed=False)) == (5, jobs[1:])
    assert find_running_jobs(jobs[:1], "run", told(5, 10.0, 0.0, executed=False)) == (4, [])


def test_jobs_with_words_of_the_users_own_are_told_by_time():
    jobs = [job(0, at=1.0), job(1, at=3.0)]
    assert find_running_jobs(jobs, "run", told(7, 0.0, 2.0)) == (8, jobs[1:])


def test_done_and_running_tasks_of_a_stage():
    tasks = [
        task(0, read=100, run=900, deserialise=100),
        task(1, read=50, run=400, deserialise=100),
        task(2, status="RUNNING", duration=2500, taskMetrics={}),
        task(3, status="FAILED"),
    ]
    seen = read_running_stage("scan", stage(), tasks)
    assert (seen.tasks_total, seen.tasks_done, seen.tasks_running) == (8, 2, 2)
    assert seen.records_done == 150
    assert seen.done is not None
    assert seen.done.useful_seconds.tolist() == [1.0, 0.5]
    assert seen.running_seconds.tolist() == [2.5]
    assert not seen.is_over


def test_a_task_that_has_just_been_launched_has_no_duration_yet():
    """Spark's store lists it before the first heartbeat, with nothing where the duration will be."""
    tasks = [task(0, status="RUNNING", duration=None, taskMetrics={})]
    assert read_running_stage("scan", stage(), tasks).running_seconds.tolist() == [0.0]


def test_a_stage_that_waits_for_its_turn():
    seen = read_running_stage("count", stage("PENDING", active=0), [])
    assert (seen.tasks_done, seen.tasks_running, seen.done, seen.is_over) == (0, 0, None, False)
    assert len(seen.running_seconds) == 0


def test_a_stage_that_is_over():
    assert read_running_stage("scan", stage("COMPLETE", 1, 0), [task(0, read=7)]).is_over


@pytest.mark.parametrize("broken", [{}, {"status": "ACTIVE", "numTasks": None, "numActiveTasks": 1}])
def test_what_cannot_be_is_told(broken):
    with pytest.raises(BadMetrics, match="scan: a running stage cannot be read"):
        read_running_stage("scan", broken, [])


def test_a_stage_listed_again_for_its_output_is_left_out():
    """With adaptive execution every exchange is a job of its own, and the next job lists its stage again."""
    outlines = {0: outline(1, 2), 1: outline(1, 2), 2: outline(3, 4), 3: outline(5)}
    listed = {0: stage("COMPLETE"), 1: stage("PENDING"), 2: stage("ACTIVE"), 3: stage("SKIPPED")}
    assert choose_stages(listed, outlines) == [0, 2]


def test_stages_that_have_not_begun_belong_to_the_batch():
    outlines = {0: outline(1), 1: outline(2), 2: outline(3)}
    listed = {0: stage("ACTIVE"), 1: stage("PENDING"), 2: stage("PENDING")}
    assert choose_stages(listed, outlines) == [0, 1, 2]


def test_records_of_a_leaf_are_those_of_its_done_tasks_for_all():
    operators = (OperatorOutline("scan", (), False), OperatorOutline("count", ("scan",), True))
    scan = read_running_stage("scan", stage(tasks=4), [task(0, read=100), task(1, read=50)])
    count = read_running_stage("count", stage("PENDING", 2, 0), [])
    run = ObservedRun(RunningBatch(1, 0.0, 10.0, 4, (scan, count)), operators)
    assert run.read_by_leaf == {"scan": 300}


@pytest.mark.parametrize(
    ("status", "failed", "is_over", "words"),
    [
        ("SUCCEEDED", 0, True, None),
        ("SUCCEEDED", 1, True, "a part of it failed"),
        ("FAILED", 0, True, "a part of it failed"),
        ("RUNNING", 0, True, "a job of it went on after its end"),
        ("RUNNING", 0, False, None),
        ("RUNNING", 1, False, "a part of it failed"),
    ],
)
def test_why_the_tasks_of_a_batch_are_not_judged(status, failed, is_over, words):
    fine = {"status": "SUCCEEDED", "numFailedStages": 0}
    told = explain_trouble(7, [fine, {"status": status, "numFailedStages": failed}], is_over)
    assert (told is None) == (words is None)
    assert words is None or told.startswith(f"batch 7 is left out: {words}")
