"""What failed comes first: jobs, stages, tasks with their reasons, executors that were lost."""

from __future__ import annotations

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.log.failures import is_orderly_removal
from penstock.diagnose.path.spans import Span
from tests.diagnose.eventful_logs import EventfulLog, elastic_job
from tests.diagnose.logs import BASE

OOM = {
    "Reason": "ExceptionFailure",
    "Class Name": "java.lang.OutOfMemoryError",
    "Description": "Java heap space\nat Foo.bar",
}
FETCH = {"Reason": "FetchFailed", "Message": "Failed to connect to host-7:7337", "Shuffle ID": 3}
LOST = {"Reason": "ExecutorLostFailure", "Executor ID": "2", "Loss Reason": "worker lost"}


def job_that_fails():
    """One partition runs out of memory four times, one second each; the other three are done in a second."""
    log = EventfulLog().properties(executor__memory="2g").executor("1", 0, cores=4)
    log.job(0, 1000, [0]).attempt(0, 0, 1000, 4)
    for partition in range(3):
        log.task(0, "1", 1000, 2000, partition=partition)
    for attempt in range(4):
        log.task(0, "1", 1000 + 1000 * attempt, 2000 + 1000 * attempt, partition=3, reason=OOM)
    message = "Job aborted due to stage failure: Task 3 in stage 0.0 failed 4 times"
    log.attempt(0, 0, 1000, 4, done=5000, failure=message)
    return log.job_failed(0, 5000, message).application_end(5100)


def test_a_job_that_failed_for_memory_comes_first_with_what_to_set():
    found = diagnose_log(job_that_fails().read(), Span())
    first = found.answer.splitlines()[0]
    assert first.startswith("1 of 1 job failed")
    assert "4 tasks failed" in first and "out of memory" in first and "stage 0" in first
    assert "4 core-seconds" in first
    assert found.failed.settings == {"spark.executor.memory": "4g"}
    assert found.to_json()["failures"]["tasks"] == {"out of memory": 4}
    assert "of the critical path is tasks that failed or were killed" in found.answer
    assert "not your problem" not in found.answer
    assert found.answer.splitlines()[-1].startswith("Mend this first: Give each task more memory")
    assert "Set spark.executor.memory=4g." in found.answer


def test_an_exception_is_quoted():
    reason = {"Reason": "ExceptionFailure", "Class Name": "ValueError", "Description": "no such column: x"}
    log = EventfulLog().executor("1", 0).job(0, 1000, [0]).attempt(0, 0, 1000, 1)
    log.task(0, "1", 1000, 2000, partition=0, reason=reason).job_failed(0, 2000, "aborted")
    answer = diagnose_log(log.application_end(2100).read(), Span()).answer
    assert "ValueError: no such column: x" in answer.splitlines()[0]


def retried_stage():
    """A fetch fails, the map stage runs again, and the reduce stage in a second attempt."""
    log = EventfulLog().executor("1", 0, cores=2).executor("2", 0, cores=2)
    log.job(0, 1000, [0, 1]).attempt(0, 0, 1000, 2)
    log.task(0, "1", 1000, 3000, partition=0).task(0, "2", 1000, 3000, partition=1)
    log.attempt(0, 0, 1000, 2, done=3000).attempt(1, 0, 3000, 2, parents=[0])
    log.task(1, "1", 3000, 4000, partition=0, reason=FETCH).lost("2", 4000, "worker lost: host-7 is gone")
    log.attempt(1, 0, 3000, 2, parents=[0], done=4000, failure="FetchFailed: host-7")
    log.attempt(0, 1, 4000, 1).task(0, "1", 4000, 6000, partition=1, attempt=1).attempt(
        0, 1, 4000, 1, done=6000
    )
    log.attempt(1, 1, 6000, 2, parents=[0])
    log.task(1, "1", 6000, 8000, partition=0, attempt=1).task(1, "1", 6000, 8000, partition=1, attempt=1)
    return log.attempt(1, 1, 6000, 2, parents=[0], done=8000).job_end(0, 8000).application_end(8000)


def test_repeated_stages_and_lost_executors_are_told_and_replayed():
    found = diagnose_log(retried_stage().read(), Span())
    first = found.answer.splitlines()[0]
    assert "fetch failed" in first and "2 stages ran again" in first
    assert "Executor 2 was lost (worker lost: host-7 is gone)" in first
    # attempts follow one another: the replay takes as long as what happened
    assert found.what_if.replayed_seconds == pytest.approx(8)
    assert found.failed.jobs == 0


def test_a_retried_partition_takes_the_time_of_all_its_attempts():
    log = EventfulLog().executor("1", 0, cores=1).job(0, 0, [0]).attempt(0, 0, 0, 2)
    log.task(0, "1", 0, 2000, partition=0, reason=LOST).task(0, "1", 2000, 5000, partition=0)
    log.task(0, "1", 5000, 6000, partition=1)
    found = diagnose_log(log.job_end(0, 6000).application_end(6000).read(), Span())
    assert found.what_if.replayed_seconds == pytest.approx(6)
    assert found.failed.core_seconds == pytest.approx(2)
    assert found.failed.gain.seconds == pytest.approx(2)


def test_output_that_was_lost_later_leaves_the_task_as_it_ran():
    log = EventfulLog().executor("1", 0, cores=1).job(0, 0, [0]).attempt(0, 0, 0, 1)
    log.task(0, "1", 0, 2000, partition=0)
    log.tasks = 0
    log.task(0, "1", 0, 2000, partition=0, reason={"Reason": "Resubmitted"})
    log.tasks = 1
    log.task(0, "1", 3000, 5000, partition=0)
    read = log.job_end(0, 5000).application_end(5000).read()
    assert read.failures[0].kind == "output lost"
    assert read.tasks["outcome"].tolist() == [0, 0]
    assert read.warnings == {}


def test_failures_outside_of_the_span_are_not_told():
    log = job_that_fails().read()
    found = diagnose_log(log, Span(end_us=(BASE + 1800) * 1000))
    assert "failed" not in found.answer


def test_a_job_that_was_cancelled_has_not_failed():
    log = EventfulLog().executor("1", 0).job(0, 1000, [0]).attempt(0, 0, 1000, 1).task(0, "1", 1000, 2000)
    log.job_failed(0, 2000, "Job 0 cancelled part of cancelled job group 7")
    assert diagnose_log(log.application_end(2100).read(), Span()).failed is None


def test_executors_that_were_told_to_go_are_not_lost():
    found = diagnose_log(elastic_job().read(), Span())
    assert found.failed is None
    assert "lost" not in found.answer


@pytest.mark.parametrize(
    ("reason", "orderly"),
    [
        ("", True),
        ("Executor killed by driver.", True),
        ("Executor decommission: spark scale down", True),
        ("Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB used", False),
        ("Command exited with code 137", False),
        ("Command exited with code 0", True),
        ("Remote RPC client disassociated", False),
        ("worker lost", False),
    ],
)
def test_reasons_of_removal(reason, orderly):
    assert is_orderly_removal(reason) is orderly
