"""What is wrong comes before work alone, by what mending it gains in all stages that suffer from it."""

from __future__ import annotations

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.path.spans import Span
from tests.diagnose.eventful_logs import EventfulLog, waves


def diagnose(log):
    return diagnose_log(log.read(), Span())


def on_four_slots(**properties):
    log = EventfulLog().properties(**properties)
    for name in "1234":
        log.executor(name, 0, cores=1)
    return log


def add_job(log, job, at, tasks, **same):
    """A job of one stage; tasks are (executor, start after the job's, length, fields)."""
    log.job(job, at, [job]).attempt(job, 0, at, len(tasks), scopes=("Exchange",))
    for executor, begin, length, fields in tasks:
        log.task(job, executor, at + begin, at + begin + length, **{**same, **fields})
    end = at + max(begin + length for _, begin, length, _ in tasks)
    log.attempt(job, 0, at, len(tasks), done=end, scopes=("Exchange",)).job_end(job, end)
    return end


def test_collection_comes_before_work_alone():
    """A third of each task is collection, two thirds are work: all that the work wants is slots."""
    log = on_four_slots()
    tasks = [("1234"[n % 4], 3000 * (n // 4), 3000, {"gc": 1000}) for n in range(16)]
    end = add_job(log, 0, 1000, tasks)
    found = diagnose(log.application_end(end)).findings
    assert [one.kind for one in found[:2]] == ["gc", "few slots"]
    assert found[0].gain_seconds == pytest.approx(4.0, rel=0.02)  # four waves, 1 s of each


def test_little_collection_stays_behind_the_work():
    log = on_four_slots()
    tasks = [("1234"[n % 4], 3000 * (n // 4), 3000, {"gc": 200}) for n in range(16)]
    end = add_job(log, 0, 1000, tasks)
    assert diagnose(log.application_end(end)).findings[0].kind == "few slots"


def test_skew_is_worth_what_it_costs_in_all_stages_that_have_it():
    """Two jobs, each with three tasks of 1 s and one of 9 s: levelled, a job takes 3 s and saves 6 s."""
    log, end = on_four_slots(), 1000
    for job in range(2):
        lengths = [1000, 1000, 1000, 9000]
        tasks = [("1234"[n], 0, length, {"shuffled": length}) for n, length in enumerate(lengths)]
        end = add_job(log, job, end, tasks)
    finding = diagnose(log.application_end(end)).findings[0]
    assert finding.kind == "skew"
    assert finding.gain_seconds == pytest.approx(12.0, rel=0.02)


def test_a_trouble_beside_a_larger_operator_without_one_is_told():
    """Stage 0 takes 12 s of plain work, stage 1 10 s for one hot task: 7.5 s of these can be saved."""
    log = on_four_slots()
    end = add_job(log, 0, 1000, [("1234"[n % 4], 1000 * (n // 4), 1000, {"shuffled": 10}) for n in range(48)])
    hot = [("1234"[n], 0, [10_000, 700, 700, 700][n], {"shuffled": [900, 60, 60, 60][n]}) for n in range(4)]
    end = add_job(log, 1, end, hot)
    finding = diagnose(log.application_end(end)).findings[0]
    assert finding.kind == "skew"
    assert "stage 1" in finding.sentence
    assert finding.gain_seconds == pytest.approx(10 - 12.1 / 4, rel=0.02)


def test_the_driver_that_costs_more_than_a_spill_comes_first():
    log = on_four_slots()
    spilled = {"spilled": 200 << 20, "cpu": 5000, "shuffled": 10}
    end = add_job(log, 0, 1000, [("1234"[n % 4], 8000 * (n // 4), 8000, spilled) for n in range(8)])
    found = diagnose(log.application_end(end + 15_000)).findings
    assert [one.kind for one in found[:2]] == ["program", "spill"]
    assert found[1].gain_seconds == pytest.approx(6.0, rel=0.02)  # 3 s of 8 s in each of two waves


def test_executors_that_come_late_are_told_with_what_it_costs():
    """40 tasks of 1 s on one slot for 10 s, then on four: 17.5 s instead of 10 s."""
    log = on_four_slots(dynamicAllocation__enabled="true")
    log.lines = [line for line in log.lines if b"ExecutorAdded" not in line]
    log.executor("1", 0, cores=1).job(0, 1000, [0]).attempt(0, 0, 1000, 40)
    waves(log, 0, ["1"], 10, 1000, 1000)
    for name in "234":
        log.executor(name, 11_000, cores=1)
    end = waves(log, 0, ["1", "2", "3", "4"], 30, 11_000, 1000)
    log.attempt(0, 0, 1000, 40, done=end).job_end(0, end)
    finding = diagnose(log.application_end(end)).findings[0]
    assert (finding.cause, finding.kind) == ("executors", "executors")
    assert finding.gain_seconds == pytest.approx((end - 1000) / 1000 - 10, abs=0.3)
    assert finding.settings == {"spark.dynamicAllocation.minExecutors": "4"}


def test_a_job_that_waits_for_its_first_executor_gains_the_wait():
    log = EventfulLog().properties(dynamicAllocation__enabled="true")
    log.job(0, 1000, [0]).attempt(0, 0, 1000, 4).executor("1", 21_000, cores=2)
    end = waves(log, 0, ["1", "1"], 4, 21_000, 2000)
    log.attempt(0, 0, 1000, 4, done=end).job_end(0, end)
    finding = diagnose(log.application_end(end)).findings[0]
    assert finding.cause == "executors"
    assert finding.gain_seconds == pytest.approx(20.0, rel=0.02)


def test_lost_executors_cost_the_slots_that_are_gone():
    """Two slots, 20 tasks of 1 s; one executor is lost after 2 s: 10 s become 2 + 16 s."""
    log = EventfulLog().executor("1", 0, cores=1).executor("2", 0, cores=1)
    log.job(0, 1000, [0]).attempt(0, 0, 1000, 20)
    waves(log, 0, ["1", "2"], 4, 1000, 1000)
    log.lost("2", 3000, "Command exited with code 1")
    end = waves(log, 0, ["1"], 16, 3000, 1000)
    log.attempt(0, 0, 1000, 20, done=end).job_end(0, end)
    found = diagnose(log.application_end(end + 100))
    assert found.failed.gain.seconds == pytest.approx(8.0, rel=0.02)


def test_small_tasks_are_worth_the_time_that_their_work_does_not_take():
    """400 tasks on four slots, each 10 ms of work in 50 ms: 5 s of which the work needs 1 s."""
    log = on_four_slots()
    tasks = [("1234"[n % 4], 50 * (n // 4), 50, {"run": 10, "deserialise": 5}) for n in range(400)]
    end = add_job(log, 0, 1000, tasks)
    finding = diagnose(log.application_end(end)).findings[0]
    assert finding.kind == "small tasks"
    assert finding.gain_seconds == pytest.approx(4.0, rel=0.02)


def test_a_first_batch_whose_tasks_are_slow_is_a_cold_start():
    """The task of the first batch takes 20 s, those of the others 1 s: nothing else is wrong."""
    log = EventfulLog().executor("1", 0, cores=1)
    at = 1000
    for batch, length in enumerate([20_000, 1000, 1000, 1000]):
        properties = {"sql.streaming.queryId": "abcdefgh-1", "streaming.sql.batchId": str(batch)}
        log.job(batch, at + 100, [batch], properties).attempt(batch, 0, at + 100, 1)
        log.task(batch, "1", at + 100, at + 100 + length)
        log.attempt(batch, 0, at + 100, 1, done=at + 100 + length).job_end(batch, at + 100 + length)
        log.progress(batch, at, {"walCommit": 100, "addBatch": length, "triggerExecution": length + 100})
        at += length + 100
    finding = diagnose(log.application_end(at)).findings[0]
    assert finding.cause == "cold batch"
    assert finding.gain_seconds == pytest.approx(19.0, rel=0.02)
