"""What Spark 4.3 said of a word count and of a self-join, shortened to what is read of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

WORD_COUNT_PLAN = """\
WriteToDataSourceV2 MicroBatchWrite[epoch: 8, writer: NoopStreamingWrite]
+- *(6) HashAggregate(keys=[k#5L], functions=[count(1)], output=[k#5L, count#6L])
   +- StateStoreSave [k#5L], state info [ checkpoint = file:/c/state, runId = a7d4, opId = 0], Update, 2
      +- *(5) HashAggregate(keys=[k#5L], functions=[merge_count(1)], output=[k#5L, count#30L])
         +- StateStoreRestore [k#5L], state info [ checkpoint = file:/c/state, runId = a7d4, opId = 0], 2
            +- *(4) HashAggregate(keys=[k#5L], functions=[merge_count(1)], output=[k#5L, count#30L])
               +- Exchange hashpartitioning(k#5L, 2), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=2773]
                  +- *(3) HashAggregate(keys=[k#5L], functions=[partial_count(1)], output=[k#5L, count#30L])
                     +- Exchange hashpartitioning(k#5L, 3), REPARTITION_BY_NUM, [plan_id=2769]
                        +- *(2) Project [(value#4L % 100) AS k#5L]
                           +- MapInArrow flat(timestamp#0, value#1L)#2, [timestamp#3, value#4L], false
                              +- *(1) Project [timestamp#0, value#1L]
                                 +- MicroBatchScan[timestamp#0, value#1L] class RateStreamTable$$anon$1
"""

SELF_JOIN_PLAN = """\
WriteToDataSourceV2 MicroBatchWrite[epoch: 6, writer: NoopStreamingWrite]
+- StreamingSymmetricHashJoin [v1#13L], [v2#15L], Inner, condition = [ leftOnly = null ], 2, Append
   :- Exchange hashpartitioning(v1#13L, 2), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=2655]
   :  +- *(2) Filter isnotnull(t1#14-T1000ms)
   :     +- EventTimeWatermark f2003ece-efca-4d36-9990-f5b319d6609f, t1#14: timestamp, 1 seconds
   :        +- *(1) Project [value#1L AS v1#13L, timestamp#0 AS t1#14]
   :           +- *(1) Filter isnotnull(value#1L)
   :              +- MicroBatchScan[timestamp#0, value#1L] class RateStreamTable$$anon$1
   +- Exchange hashpartitioning(v2#15L, 2), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=2664]
      +- *(4) Filter isnotnull(t2#16-T1000ms)
         +- EventTimeWatermark d08276da-98ff-4069-a6d8-b2ce3c70fced, t2#16: timestamp, 1 seconds
            +- *(3) Project [value#1L AS v2#15L, timestamp#0 AS t2#16]
               +- *(3) Filter isnotnull(value#1L)
                  +- MicroBatchScan[timestamp#0, value#1L] class RateStreamTable$$anon$1
"""

FILE_PLAN = """\
WriteToDataSourceV2 MicroBatchWrite[epoch: 4, writer: NoopStreamingWrite]
+- FileScan json [a#48] Batched: false, DataFilters: [], Format: JSON, Location: InMemoryFileIndex(1 paths)
"""

WORD_COUNT_STAGES = (
    (
        113,
        [
            ("MicroBatchScan", [411, 414]),
            ("WholeStageCodegen (1)", [415]),
            ("MapInArrow", [416]),
            ("WholeStageCodegen (2)", [417]),
            ("Exchange", [418]),
        ],
        [],
    ),
    (
        114,
        [("Exchange", [423]), ("WholeStageCodegen (3)", [424]), ("Exchange", [425])],
        [{"fromId": 418, "toId": 423}],
    ),
    (
        115,
        [
            ("Exchange", [426]),
            ("WholeStageCodegen (4)", [428]),
            ("StateStoreRestore", [429]),
            ("WholeStageCodegen (5)", [437]),
            ("StateStoreSave", [438]),
            ("WholeStageCodegen (6)", [439]),
        ],
        [{"fromId": 425, "toId": 426}],
    ),
)

SELF_JOIN_STAGES = (
    (
        110,
        [
            ("MicroBatchScan", [427, 430]),
            ("WholeStageCodegen (3)", [431]),
            ("EventTimeWatermark", [432]),
            ("WholeStageCodegen (4)", [433]),
            ("Exchange", [434]),
        ],
        [],
    ),
    (
        111,
        [
            ("MicroBatchScan", [410, 412]),
            ("WholeStageCodegen (1)", [413]),
            ("EventTimeWatermark", [419]),
            ("WholeStageCodegen (2)", [420]),
            ("Exchange", [421]),
        ],
        [],
    ),
    (
        112,
        [("Exchange", [422]), ("Exchange", [435]), ("StreamingSymmetricHashJoin", [436])],
        [{"fromId": 421, "toId": 422}, {"fromId": 434, "toId": 435}],
    ),
)


def dot(stage: int, clusters: Sequence[tuple[str, Sequence[int]]]) -> str:
    """The DOT text that Spark draws of a stage, with the clusters and RDDs given."""
    lines = ["digraph G {", f'  id="graph_{stage}";', f"  subgraph graph_stage_{stage} {{"]
    lines += [f'    id="graph_stage_{stage}";', '    isCluster="true";', f'    label="Stage {stage}";']
    for number, (label, rdds) in enumerate(clusters):
        lines += [f"    subgraph cluster_spark_plan_{number} {{", f'      id="cluster_spark_plan_{number}";']
        lines += ['      isCluster="true";', f'      label="{label}";']
        lines += [
            f'      {rdd} [id="node_{rdd}" labelType="html" label="MapPartitionsRDD [{rdd}] [Unordered]<br>'
            'start at NativeMethodAccessorImpl.java:0"];'
            for rdd in rdds
        ]
        lines += ["    }"]
    every = [rdd for _, rdds in clusters for rdd in rdds]
    lines += ["  }", *(f"  {a}->{b};" for a, b in pairwise(every)), "}"]
    return "\n".join(lines)


def task(index: int, **changes: Any) -> dict[str, Any]:
    """One task as the status store lists it; `changes` reach fields and metrics by name."""
    metrics: dict[str, Any] = {
        "executorDeserializeTime": changes.pop("deserialise", 7),
        "executorRunTime": changes.pop("run", 60),
        "resultSerializationTime": changes.pop("serialise", 0),
        "inputMetrics": {"bytesRead": 0, "recordsRead": changes.pop("read", 0)},
        "outputMetrics": {"bytesWritten": 0, "recordsWritten": changes.pop("written", 0)},
        "shuffleReadMetrics": {
            "fetchWaitTime": changes.pop("fetch_wait", 0),
            "recordsRead": changes.pop("shuffle_read", 0),
        },
        "shuffleWriteMetrics": {"writeTime": 705388, "recordsWritten": changes.pop("shuffle_written", 0)},
    }
    return {
        "taskId": 156 + index,
        "index": index,
        "attempt": 0,
        "launchTime": 1794792568304,
        "duration": 83,
        "executorId": "0",
        "status": "SUCCESS",
        "speculative": False,
        "taskMetrics": metrics,
        **changes,
    }
