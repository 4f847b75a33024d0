"""The table of stages: what each read, spilled and held, how its tasks are spread, and its plan nodes."""

from __future__ import annotations

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.path.spans import Span
from penstock.diagnose.stage_table import MOST_STAGES, find_plan_nodes, list_executions, list_stages
from penstock.diagnose.trace.from_log import name_operators
from tests.diagnose.eventful_logs import EventfulLog, plan

JOIN = plan("WholeStageCodegen (5)",
            plan("SortMergeJoin",
                 plan("InputAdapter", plan("Exchange", plan("Scan parquet default.orders"))),
                 plan("InputAdapter", plan("Exchange", plan("Scan parquet default.items"))),
                 text="SortMergeJoin [id#1L], [id#2L], Inner"))  # fmt: skip


def joined():
    log = EventfulLog().executor("1", 0, cores=4).sql(7, 500, JOIN, "save at job.py:12")
    log.job(0, 1000, [3], {"spark.sql.execution.id": "7"})
    log.attempt(3, 0, 1000, 5, scopes=("Exchange", "WholeStageCodegen (5)"))
    lengths = (1000, 2000, 3000, 9000)
    for partition, length in enumerate(lengths):
        more = {"spilled": 500, "spilled_to_disk": 100, "peak": 10 * length, "gc": 100, "shuffled": length}
        log.task(3, "1", 1000, 1000 + length, partition=partition, **more)
    log.task(3, "1", 1000, 5000, partition=4, reason={"Reason": "ExceptionFailure", "Description": "no"})
    log.attempt(3, 0, 1000, 5, done=10_000, scopes=("Exchange", "WholeStageCodegen (5)"))
    return log.job_end(0, 10_000).application_end(10_500).read()


def test_a_stage_is_told_with_all_that_its_tasks_did():
    log = joined()
    (row,) = list_stages(log, name_operators(log), {"stage 3: Exchange > x": 0.1})
    assert (row.stage, row.attempt, row.job, row.execution, row.tasks) == (3, 0, 0, 7, 4)
    assert row.operator == "stage 3: Exchange > sort-merge join of orders and items on id"
    assert (row.seconds, row.core_seconds) == (9, 15)
    # the median of 1, 2, 3 and 9 s
    assert (row.shortest, row.median, row.longest) == (1, 2.5, 9)
    assert (row.memory_spilled, row.disk_spilled, row.peak_memory) == (2000, 400, 90_000)
    assert (row.gc_seconds, row.records_in, row.records_ratio) == (0.4, 15_000, 3.6)
    assert (row.failed_tasks, row.lost_seconds) == (1, 4)
    assert row.share is None


def test_a_stage_knows_its_share_of_the_critical_path():
    found = diagnose_log(joined(), Span())
    (row,) = found.stages
    assert row.share == pytest.approx(0.86, abs=0.02)


def test_a_stage_is_linked_to_the_nodes_that_its_execution_has_once():
    log = joined()
    (execution,) = list_executions(log, list_stages(log, name_operators(log), {}))
    assert (execution.execution, execution.description) == (7, "save at job.py:12")
    assert [(node.depth, node.name) for node in execution.nodes] == [
        (0, "WholeStageCodegen (5)"), (1, "SortMergeJoin"),
        (2, "InputAdapter"), (3, "Exchange"), (4, "Scan parquet default.orders"),
        (2, "InputAdapter"), (3, "Exchange"), (4, "Scan parquet default.items"),
    ]  # fmt: skip
    assert execution.nodes[1].text == "SortMergeJoin [id], [id], Inner"
    # two exchanges: which of them the stage reads is not told
    assert find_plan_nodes("Exchange > WholeStageCodegen (5)", execution) == [0]


def test_the_plans_of_batches_that_do_the_same_are_kept_once():
    log = EventfulLog()
    for number in range(3):
        text = f"SortMergeJoin [id#{number}L], [id#{number + 9}], Inner"
        log.sql(number, number, plan("SortMergeJoin", text=text))
    first, *others = log.read().executions
    assert all(other.nodes is first.nodes for other in others)


def test_the_longest_of_many_stages_are_kept():
    log = EventfulLog().executor("1", 0)
    for stage in range(MOST_STAGES + 5):
        log.attempt(stage, 0, 1000, 1).task(stage, "1", 1000, 1010 + stage)
    log = log.application_end(9000).read()
    rows = list_stages(log, name_operators(log), {})
    assert len(rows) == MOST_STAGES
    assert (rows[0].stage, rows[-1].stage) == (5, MOST_STAGES + 4)
