"""The answer in words names the cause, the operator, the task and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.diagnose.answer import answer_in_words
from penstock.diagnose.causes import LatencyFinding
from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.findings.stragglers import find_straggler
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from tests.diagnose.logs import LogBuilder, many_jobs


def test_stages_that_do_the_same_again_and_again_are_told_together():
    found = diagnose_log(read_log(many_jobs(12).lines), Span())
    said = "73% of the critical path is running tasks. Most of it (73%) is Scan, in 12 stages."
    assert found.answer.splitlines()[0] == said
    assert found.what_if.jobs == 12
    same = next(item for item in found.what_if.forecasts if item.slots == found.what_if.slots)
    assert same.median_job_seconds == pytest.approx(found.what_if.measured_job_seconds, rel=0.05)


def test_a_driver_bound_application_is_told_that_executors_do_not_help():
    log = LogBuilder().executor("1", 100)
    log.job(0, 1000, [0]).stage(0, 1005, 1).start(0, 0, "1", 1010).end(0, 0, "1", 1010, 1400).job_end(0, 1410)
    found = diagnose_log(read_log(log.application_end(9000).lines), Span())
    assert "the program on the driver" in found.answer
    assert "more executors would not help" in found.answer
    # From 0.1 s, when the executor is there, to the job at 1 s, and from its end at 1.41 s to 9 s.
    assert found.findings[0].gain_seconds == pytest.approx(0.9 + 7.59, abs=0.02)


def test_after_a_long_start_the_next_cause_is_told():
    found = [LatencyFinding("start-up", 0.6, "60% start.", ""), LatencyFinding("run", 0.2, "20% run.", "")]
    assert answer_in_words(found) == "60% start. After it, 20% run."
    assert answer_in_words([found[0], replace(found[1], share=0.1)]).endswith(
        "more executors would not help."
    )


def test_an_operator_with_more_tasks_than_slots_wants_executors():
    log = LogBuilder().executor("1", 100, cores=1).job(0, 200, [0]).stage(0, 205, 4)
    for task in range(4):
        at = 210 + 1000 * task
        log.start(0, task, "1", at).end(0, task, "1", at, at + 990)
    read = read_log(log.job_end(0, 4300).application_end(4400).lines)
    found = diagnose_log(read, Span())
    assert "4 tasks share 1 slot:" in found.findings[0].advice
    assert find_straggler(read, "stage 0: Scan") is None


def test_a_slow_shuffle_names_the_fetch_and_the_channel():
    log = LogBuilder().executor("1", 100, cores=1).executor("2", 100, cores=1)
    log.job(0, 200, [0, 1]).stage(0, 205, 1).start(0, 0, "1", 210)
    log.end(0, 0, "1", 210, 600, run=380, written=10_000).stage(0, 205, 1, done=600)
    log.stage(1, 605, 1, parents=[0], scope="Exchange").start(1, 1, "2", 610)
    log.end(1, 1, "2", 610, 5000, run=4300, fetch=4000, remote=10_000).job_end(0, 5010)
    found = diagnose_log(read_log(log.application_end(5100).lines), Span())
    assert found.findings[0].cause == "fetch"
    assert found.whole.communication[0][:2] == ("executor 1 shuffle", "executor 2 slot 0")
    assert found.findings[0].gain_seconds == pytest.approx(4.0, abs=0.1)


def test_failed_and_killed_tasks_are_told():
    log = LogBuilder().executor("1", 100).job(0, 200, [0]).stage(0, 205, 2)
    log.start(0, 0, "1", 210).end(0, 0, "1", 210, 600, reason="ExceptionFailure")
    log.start(0, 1, "1", 610).end(0, 1, "1", 610, 900, reason="TaskKilled").job_end(0, 905)
    found = diagnose_log(read_log(log.application_end(1000).lines), Span())
    assert found.warnings == ["tasks that failed: 1", "tasks that were killed: 1"]


def test_a_stage_that_waits_for_slots_is_not_blamed_on_its_longest_task():
    log = LogBuilder().executor("1", 100, cores=2).job(0, 1000, [0]).stage(0, 1001, 12)
    for task in range(12):
        # the first task takes 2.5 times as long as the others, which are done long after it
        launch, length = (1010, 1000) if task == 0 else (1010 + 400 * (task - 1), 400)
        log.start(0, task, "1", launch)
        log.end(0, task, "1", launch, launch + length, run=length - 5)
    log.stage(0, 1001, 12, done=5410).job_end(0, 5420)
    read = read_log(log.application_end(5500).lines)
    found = diagnose_log(read, Span())
    assert find_straggler(read, "stage 0: Scan") is None
    assert found.findings[0].advice == "Its 12 tasks share 2 slots: more executors would shorten it."
