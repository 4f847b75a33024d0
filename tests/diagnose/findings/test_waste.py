"""Waste beside the critical path, each kind on a log that was made for it."""

from __future__ import annotations

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.findings.waste import list_waste, measure_execution_memory
from penstock.diagnose.path.spans import Span
from tests.diagnose.eventful_logs import EventfulLog, plan

FAILURE = {"Reason": "ExceptionFailure", "Description": "no"}


def only(log, kind):
    (found,) = [one for one in list_waste(log.read()) if one.kind == kind]
    return found


def none(log, kind):
    return not [one for one in list_waste(log.read()) if one.kind == kind]


def test_failed_killed_and_recomputed_work_is_counted_in_core_seconds():
    log = EventfulLog().executor("1", 0, cores=8).job(0, 1000, [0]).attempt(0, 0, 1000, 2)
    log.task(0, "1", 1000, 11_000, partition=0).task(0, "1", 1000, 5000, partition=1, reason=FAILURE)
    killed = {"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded"}
    log.task(0, "1", 1000, 3000, partition=1, reason=killed, killed=True, speculative=True)
    log.task(0, "1", 5000, 9000, partition=1)
    # the output of partition 0 was lost, and is computed again in 6 s
    log.attempt(0, 1, 12_000, 1).task(0, "1", 12_000, 18_000, partition=0, attempt=1)
    found = only(log.job_end(0, 18_000).application_end(18_500), "repeated work")
    assert found.core_seconds == pytest.approx(4 + 2 + 6)
    assert found.sentence == (
        "12 of 26 core-seconds were for nothing: 4 in tasks that failed, 2 in copies that were killed, "
        "6 computing again what was lost."
    )


def scanned(files, total):
    counters = [{"name": "number of files read", "accumulatorId": 31, "metricType": "sum"},
                {"name": "size of files read", "accumulatorId": 32, "metricType": "size"}]  # fmt: skip
    scan = plan("Scan parquet default.clicks") | {"metrics": counters}
    log = EventfulLog().executor("1", 0).sql(4, 500, plan("WholeStageCodegen (1)", scan))
    name = "org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates"
    log.add(name, executionId=4, accumUpdates=[[31, files], [32, total], [99, 5]])
    return log.sql_end(4, 900).application_end(1000)


def test_a_table_of_many_small_files_is_named():
    found = only(scanned(20_000, 2_000_000_000), "small files")
    assert found.sentence == "clicks was read from 20,000 files of 100 kB on average."
    assert "15 files would hold it" in found.advice


@pytest.mark.parametrize(("files", "total"), [(99, 99_000), (200, 200 * 3_000_000), (0, 0)])
def test_few_files_and_large_files_are_not_told(files, total):
    assert none(scanned(files, total), "small files")


def block(number, memory, disk=0):
    return {"Block ID": f"rdd_3_{number}", "Memory Size": memory, "Disk Size": disk}


def cached():
    log = EventfulLog().properties(executor__memory="2g").executor("1", 0)
    level = {"Use Disk": True, "Use Memory": True}
    rdd = {"RDD ID": 3, "Name": "In-memory table orders", "Storage Level": level}
    information = {"Stage ID": 0, "Number of Tasks": 2, "RDD Info": [rdd], "Submission Time": 0}
    log.add("SparkListenerStageSubmitted", **{"Stage Info": information})
    for number in range(3):
        log.add("SparkListenerBlockUpdated", **{"Block Updated Info": block(number, 1_000_000)})
    return log


def test_cached_data_that_left_memory_is_told():
    log = cached()
    for one in (block(0, 0), block(1, 0, disk=900_000)):
        log.add("SparkListenerBlockUpdated", **{"Block Updated Info": one})
    found = only(log.application_end(1000), "evicted cache")
    assert found.sentence == (
        "2 blocks of cached data, 2.0 MB of In-memory table orders (RDD 3), left memory; "
        "1 must be computed again."
    )
    assert found.settings == {"spark.executor.memory": "4g"}


def test_cached_data_that_the_program_gave_back_is_not_told():
    log = cached().add("SparkListenerUnpersistRDD", **{"RDD ID": 3})
    log.add("SparkListenerBlockUpdated", **{"Block Updated Info": block(0, 0)})
    assert none(log.application_end(1000), "evicted cache")


def test_blocks_that_tasks_tell_of_count_too():
    log = cached().job(0, 1000, [0]).task(0, "1", 1000, 2000)
    status = {"Block ID": "rdd_3_2", "Status": {"Memory Size": 0, "Disk Size": 0}}
    log.lines[-1] = log.lines[-1].replace(
        b'"Task Metrics":{',
        b'"Task Metrics":{"Updated Blocks":[%s],' % str(status).replace("'", '"').encode(),
    )
    assert "1 block of cached data" in only(log.application_end(3000), "evicted cache").sentence


def started_cold(first):
    """Two executors of one slot: the first task of each takes so long, three later ones a second each."""
    log = EventfulLog().properties(dynamicAllocation__enabled="true")
    log.executor("1", 0, cores=1).executor("2", 0, cores=1).job(0, 1000, [0]).attempt(0, 0, 1000, 8)
    for executor in "12":
        log.task(0, executor, 1000, 1000 + first)
        for number in range(3):
            log.task(0, executor, 1000 + first + 1000 * number, 2000 + first + 1000 * number)
    return log.job_end(0, 4000 + first).application_end(9000)


def test_cold_executors_are_told_with_the_core_seconds_they_cost():
    found = only(started_cold(4000), "cold executors")
    assert found.core_seconds == pytest.approx(2 * 3)
    assert "2 executors were cold: they took 4.0 times as long" in found.sentence
    assert "spark.dynamicAllocation.executorIdleTimeout" in found.settings
    assert none(started_cold(1200), "cold executors")


def with_peak(peak):
    log = EventfulLog().properties(executor__memory="2348m").executor("1", 0, cores=4)
    return (
        log.job(0, 1000, [5]).attempt(5, 0, 1000, 1).task(5, "1", 1000, 2000, peak=peak).application_end(3000)
    )


def test_tasks_that_fill_their_part_of_the_heap_are_told():
    # (2348 - 300) MiB times 0.6 for four slots
    assert measure_execution_memory(with_peak(1).read()) == pytest.approx(2048 * 0.6 / 4 * (1 << 20))
    found = only(with_peak(300 << 20), "peak memory")
    assert found.stage == (5, 0)
    assert (
        "A task of stage 5 held 315 MB of execution memory; a slot's part of the heap is 322 MB."
        in found.sentence
    )
    assert none(with_peak(100 << 20), "peak memory")


def test_the_diagnosis_has_the_waste_and_the_money_of_idle_cores():
    log = EventfulLog().properties(task__cpus=2).executor("1", 0, cores=4).job(0, 0, [0]).attempt(0, 0, 0, 1)
    log.task(0, "1", 0, 1_800_000).job_end(0, 1_800_000).application_end(1_800_000)
    found = diagnose_log(log.read(), Span(price_per_core_hour=0.5))
    # four cores for half an hour; one task holds two of them
    assert (found.slots.core_seconds, found.slots.idle_core_seconds) == (7200, 3600)
    assert (found.slots.cost, found.slots.idle_cost) == (1.0, 0.5)
    assert found.to_json()["slots"]["idle_cost"] == 0.5
    assert found.to_json()["waste"] == []
    assert diagnose_log(log.read(), Span()).slots.idle_cost is None
