"""Stages keep their names from batch to batch, and their tasks become columns."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadMetrics
from penstock.observe.stages import StageOutline, codegen_members, layout, parse_outline, read_tasks
from tests.observe.spark_texts import (
    FILE_PLAN,
    SELF_JOIN_PLAN,
    SELF_JOIN_STAGES,
    WORD_COUNT_PLAN,
    WORD_COUNT_STAGES,
    dot,
    task,
)

LEFT = "MicroBatchScan + Filter + EventTimeWatermark"
RIGHT = "MicroBatchScan + Filter + EventTimeWatermark #2"


def outlines(stages):
    return [parse_outline(dot(number, clusters), edges) for number, clusters, edges in stages]


def test_an_outline_has_scopes_rdds_and_what_feeds_it():
    outline = outlines(WORD_COUNT_STAGES)[1]
    assert outline.scopes == ("Exchange", "WholeStageCodegen (3)", "Exchange")
    assert outline.rdds == {423, 424, 425}
    assert outline.fed_by_rdds == {418}
    assert not outline.stateful


def test_labels_on_two_lines_and_rdds_outside_of_clusters_are_read():
    text = """digraph G {
      subgraph graph_stage_7 {
        label="Stage 7";
        380 [id="node_380" labelType="html" label="SQLExecutionRDD [380]<br>run at &lt;unknown&gt;:0"];
        subgraph cluster_spark_plan_2304 {
          label="Scan\\njson ";
          377 [id="node_377" labelType="html" label="FileScanRDD [377]"];
        }
      }
      377->380;
    }"""
    outline = parse_outline(text, [])
    assert outline.scopes == ("Scan json",)
    assert outline.rdds == {377, 380}


def test_codegens_are_numbered_and_the_rest_stands_outside():
    members = codegen_members(WORD_COUNT_PLAN)
    assert members["3"] == ["HashAggregate"]
    assert members["1"] == ["Project"]
    assert "MapInArrow flat" in members[""]
    assert codegen_members(SELF_JOIN_PLAN)["1"] == ["Project", "Filter"]
    assert "FileScan json" in codegen_members(FILE_PLAN)[""]


def test_a_word_count_reads_like_its_query():
    operators = layout(outlines(WORD_COUNT_STAGES), WORD_COUNT_PLAN)
    names = [operator.name for operator in operators]
    assert names == [
        "MicroBatchScan + MapInArrow flat",
        "HashAggregate",
        "HashAggregate + StateStoreRestore + StateStoreSave",
    ]
    assert [operator.fed_by for operator in operators] == [(), (names[0],), (names[1],)]
    assert [operator.stateful for operator in operators] == [False, False, True]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_sides_of_a_self_join_keep_their_names_in_whatever_order_stages_run(order):
    operators = layout(outlines([SELF_JOIN_STAGES[number] for number in order]), SELF_JOIN_PLAN)
    names = dict(zip(order, (operator.name for operator in operators), strict=True))
    assert names == {0: RIGHT, 1: LEFT, 2: "StreamingSymmetricHashJoin"}
    join = next(operator for operator in operators if operator.stateful)
    assert set(join.fed_by) == {LEFT, RIGHT}


def test_a_stage_of_nothing_but_plumbing_still_has_a_name():
    stages = [(1, [("Exchange", [10])], []), (2, [], [{"fromId": 10, "toId": 11}])]
    operators = layout(outlines(stages), "")
    assert [operator.name for operator in operators] == ["Exchange", "stage"]
    assert operators[1].fed_by == ("Exchange",)


def test_an_unknown_codegen_is_called_as_spark_calls_it():
    (operator,) = layout(outlines([(1, [("WholeStageCodegen (9)", [10])], [])]), WORD_COUNT_PLAN)
    assert operator.name == "WholeStageCodegen (9)"


@given(st.text(), st.text())
def test_any_text_gives_an_outline_and_a_layout(graph, plan):
    assert len(layout([parse_outline(graph, [])], plan)) == 1


def test_tasks_become_columns_in_task_order():
    table = read_tasks(
        "count",
        [
            task(1, shuffle_read=30, shuffle_written=3, run=100, fetch_wait=40, executorId="1"),
            task(0, read=10, written=4, deserialise=5, run=90, serialise=5),
        ],
    )
    stage = table.execution
    assert stage.operator == "count"
    assert list(stage.records_in) == [10, 30]
    assert list(stage.records_out) == [4, 3]
    assert list(stage.useful_seconds) == pytest.approx([0.1, 0.067])
    assert list(stage.waiting_seconds) == [0, 0.04]
    assert stage.wall_seconds == pytest.approx(0.083)
    assert table.executor == ("0", "1")


def test_a_fetch_wait_longer_than_the_run_leaves_no_negative_useful_time():
    table = read_tasks("count", [task(0, deserialise=0, run=5, fetch_wait=9)])
    assert list(table.execution.useful_seconds) == [0]


def test_failed_running_and_speculative_attempts_do_not_count():
    tasks = [
        task(0, status="FAILED", read=99),
        task(0, attempt=1, launchTime=1794792569000, read=10),
        task(1, read=20),
        task(1, attempt=1, speculative=True, launchTime=1794792568900, read=20, executorId="1"),
        task(2, status="KILLED", speculative=True, read=30),
        task(2, read=30, attempt=1),
        task(3, status="RUNNING", taskMetrics=None, duration=None),
    ]
    table = read_tasks("scan", tasks)
    assert list(table.execution.records_in) == [10, 20, 30]
    assert table.executor == ("0", "0", "0")


@pytest.mark.parametrize("tasks", [[], [task(0, status="FAILED")], [task(0, taskMetrics=None)]])
def test_a_stage_without_a_finished_task_says_so(tasks):
    with pytest.raises(BadMetrics, match="count: no task has reported"):
        read_tasks("count", tasks)


@pytest.mark.parametrize(
    "broken",
    [{"status": "SUCCESS"}, task(0, launchTime=None), task(0, run="long"), task(0, taskMetrics={"x": 1})],
)
def test_a_task_of_another_form_is_refused(broken):
    with pytest.raises(BadMetrics, match="count"):
        read_tasks("count", [broken])


def test_actions_of_one_batch_keep_their_numbers_when_one_of_them_changes():
    """Three actions scan the same files; in a batch of one record the third is a broadcast of a scan."""

    def scan(*more):
        return StageOutline(("Scan json", "WholeStageCodegen (1)", *more), frozenset(), frozenset())

    usual = layout([scan("Exchange"), scan("Exchange"), scan("WriteFiles")], "", [0, 2, 4])
    assert [operator.name for operator in usual] == [
        "Scan json + WholeStageCodegen (1)",
        "Scan json + WholeStageCodegen (1) #2",
        "Scan json + WholeStageCodegen (1) + WriteFiles",
    ]
    odd = layout([scan("Exchange"), scan("Exchange"), scan()], "", [0, 2, 4])
    assert [operator.name for operator in odd] == [
        "Scan json + WholeStageCodegen (1)",
        "Scan json + WholeStageCodegen (1) #2",
        "Scan json + WholeStageCodegen (1) #3",
    ]


def test_cpu_time_is_that_of_the_executor():
    done = task(0)
    done["taskMetrics"] |= {"executorCpuTime": 1_500_000_000, "executorDeserializeCpuTime": 250_000_000}
    assert read_tasks("scan", [done]).execution.cpu_seconds.tolist() == [1.75]
