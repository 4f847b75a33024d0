"""Generated scopes of SQL plans in words."""

from __future__ import annotations

import pytest

from penstock.diagnose.log.plans import MOST_NODES, describe_scopes, expand_chain
from tests.diagnose.eventful_logs import EventfulLog, plan


def scope(*inside):
    return plan("WholeStageCodegen (3)", *inside)


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        (plan("HashAggregate", text="HashAggregate(keys=[user#4, day#5L], functions=[])"),
         "aggregate by user, day"),
        (plan("HashAggregate", text="HashAggregate(keys=[], functions=[count(1)])"), "aggregate"),
        (plan("Sort", text="Sort [at#3L DESC NULLS LAST], true, 0"), "sort by at"),
        (plan("Scan parquet spark_catalog.default.sales"), "scan of sales"),
        (plan("Scan json", text="FileScan json [a#1] Location: InMemoryFileIndex(2 paths)[s3://b/raw, s3://b/x]"),
         "scan of raw"),
        (plan("BatchScan lake.events"), "scan of lake.events"),
        (plan("BroadcastHashJoin", text="BroadcastHashJoin [id#1], [id#2], Inner, BuildRight"),
         "broadcast join on id"),
        (plan("SortMergeJoin", text="SortMergeJoin [a#1, b#2, c#3, d#4], [e#5], Inner"),
         "sort-merge join on a, b, c, …"),
        (plan("Project", plan("Filter", plan("ColumnarToRow", plan("Range")))), "range"),
        (plan("HashAggregate", plan("InputAdapter", plan("Sort")), text="Aggregate(keys=[])"), "aggregate"),
        (plan("SortAggregate", plan("Sort", text="Sort [k#1 ASC]"), text="SortAggregate(key=[k#1])"),
         "sort by k, aggregate by k"),
    ],
)  # fmt: skip
def test_what_a_scope_does(inside, words):
    assert describe_scopes(scope(inside)) == {"WholeStageCodegen (3)": words}


def test_a_chain_keeps_what_has_no_words():
    words = {"WholeStageCodegen (3)": "aggregate by user"}
    assert expand_chain("Exchange > WholeStageCodegen (3)", words) == "Exchange > aggregate by user"
    assert expand_chain("WholeStageCodegen (4) > MapInArrow", words) == "WholeStageCodegen (4) > MapInArrow"


def test_a_plan_without_end_is_bounded():
    node = plan("Project")
    for _ in range(3 * MOST_NODES):
        node = plan("Project", node)
    assert describe_scopes(node) == {}


def test_what_is_no_plan_has_no_scopes():
    assert describe_scopes({}) == {}
    assert describe_scopes({"nodeName": 5, "children": [7, None]}) == {}


def test_the_newest_plan_of_an_adaptive_query_counts():
    log = EventfulLog().sql(4, 10, plan("AdaptiveSparkPlan"))
    update = "org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate"
    log.add(update, executionId=4, physicalPlanDescription="", sparkPlanInfo=scope(plan("Sort")))
    (execution,) = log.read().executions
    assert execution.scopes == {"WholeStageCodegen (3)": "sort"}
