"""Stages become operators that stay the same from batch to batch (pure: Spark's texts in, values out)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.dataflow.metrics import StageExecution
from penstock.errors import BadMetrics

_CLUSTER_LABEL = re.compile(r'^\s*label="(.*)";$', re.MULTILINE)
_NODE = re.compile(r"^\s*(\d+) \[", re.MULTILINE)
_PLAN_LINE = re.compile(r"^[\s:|+\-]*(?:\*\((\d+)\) )?(\w+)(.*)$")
_CODEGEN = re.compile(r"WholeStageCodegen \((\d+)\)")
_FUNCTION = re.compile(r"^\s*([A-Za-z_]\w*)\(")
_FORMAT = re.compile(r"^\s+(\w+)")
_PLUMBING = {"Exchange", "Project", "InputAdapter", "ColumnarToRow", "WriteToDataSourceV2", "MicroBatchWrite"}
_PYTHON_NODES = (
    "MapInArrow",
    "MapInPandas",
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "PythonMapInArrow",
)


@dataclass(frozen=True, slots=True)
class StageOutline:
    """The make-up of a stage: plan scopes, its RDDs, and the RDDs of other stages that feed it."""

    scopes: tuple[str, ...]
    rdds: frozenset[int]
    fed_by_rdds: frozenset[int]

    @property
    def stateful(self) -> bool:
        """Whether the stage reads or writes state stores."""
        return any("State" in scope or "SymmetricHashJoin" in scope for scope in self.scopes)


@dataclass(frozen=True, slots=True)
class OperatorOutline:
    """One operator of a query: its readable name and the names of those that feed it."""

    name: str
    fed_by: tuple[str, ...]
    stateful: bool


def parse_outline(dot: str, incoming_edges: Iterable[Mapping[str, int]]) -> StageOutline:
    """Read the DOT text that Spark draws of a stage, and the edges that come from other stages."""
    edges = list(incoming_edges)
    labels = [label.replace("\\n", " ").strip() for label in _CLUSTER_LABEL.findall(dot)]
    return StageOutline(
        scopes=tuple(label for label in labels if not label.startswith("Stage ")),
        rdds=frozenset(int(number) for number in _NODE.findall(dot)) | {edge["toId"] for edge in edges},
        fed_by_rdds=frozenset(edge["fromId"] for edge in edges),
    )


def codegen_members(plan: str) -> dict[str, list[str]]:
    """Number of a whole-stage codegen → the plan nodes in it; "" → the nodes outside of any."""
    members: dict[str, list[str]] = {}
    for line in plan.splitlines():
        found = _PLAN_LINE.match(line)
        if found:
            members.setdefault(found.group(1) or "", []).append(_node_name(found.group(2), found.group(3)))
    return members


def _node_name(name: str, rest: str) -> str:
    """Return a node with what tells it from others of its kind: its Python function, its file format."""
    detail = _FUNCTION if name in _PYTHON_NODES else _FORMAT if name == "FileScan" else None
    found = detail.match(rest) if detail else None
    return f"{name} {found.group(1)}" if found else name


def layout(
    outlines: Sequence[StageOutline], plan: str, jobs: Sequence[int] | None = None
) -> tuple[OperatorOutline, ...]:
    """Name the stages of one batch, in the order given, and connect them; `jobs` is which job each is of."""
    members = codegen_members(plan)
    numbers = [0] * len(outlines) if jobs is None else jobs
    names = _distinct(
        [
            (_operator_name(outline.scopes, members), number, outline.scopes)
            for outline, number in zip(outlines, numbers, strict=True)
        ]
    )
    return tuple(
        OperatorOutline(
            name=name,
            fed_by=tuple(
                origin
                for origin, other in zip(names, outlines, strict=True)
                if other.rdds & outline.fed_by_rdds
            ),
            stateful=outline.stateful,
        )
        for name, outline in zip(names, outlines, strict=True)
    )


def _operator_name(scopes: Sequence[str], members: Mapping[str, list[str]]) -> str:
    nodes: list[str] = []
    functions = {name.split(" ")[0]: name for name in members.get("", []) if " " in name}
    for scope in scopes:
        codegen = _CODEGEN.match(scope)
        if codegen:
            # a plan is printed sink first; a stage is read source first
            nodes.extend(reversed(members.get(codegen.group(1), [scope])))
        else:
            nodes.append(functions.get(scope, scope))
    shown = list(dict.fromkeys(node for node in nodes if node not in _PLUMBING))
    return " + ".join(shown or list(dict.fromkeys(nodes)) or ["stage"])


def _distinct(stages: Sequence[tuple[str, int, tuple[str, ...]]]) -> list[str]:
    """Number stages that have the same nodes, as in a self-join, to tell them apart.

    The jobs of a batch come in the order of the user's actions, so these count first. Within a job Spark
    numbers the stages of a join in no fixed order, but not its plan scopes: so these count next.
    """
    distinct = [name for name, _, _ in stages]
    seen: dict[str, int] = {}
    for number in sorted(range(len(stages)), key=lambda number: stages[number]):
        name = stages[number][0]
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            distinct[number] = f"{name} #{seen[name]}"
    return distinct


@dataclass(frozen=True, slots=True)
class TaskTable:
    """The successful tasks of one stage in task order, with the executor that each ran on."""

    execution: StageExecution
    executor: tuple[str, ...]
    start: float
    end: float


def read_tasks(operator: str, tasks: Iterable[Mapping[str, Any]]) -> TaskTable:
    """Turn Spark's task list into columns; one successful attempt per task counts, the earliest."""
    try:
        return _task_table(operator, tasks)
    except (KeyError, TypeError, ValueError) as error:
        raise BadMetrics(f"{operator}: a task cannot be read: {error!r}") from error


def _task_table(operator: str, tasks: Iterable[Mapping[str, Any]]) -> TaskTable:
    done: dict[int, Mapping[str, Any]] = {}
    for task in sorted(tasks, key=lambda task: task["launchTime"]):
        if task.get("status") == "SUCCESS" and task.get("taskMetrics"):
            done.setdefault(int(task["index"]), task)
    ordered = [done[index] for index in sorted(done)]
    if not ordered:
        raise BadMetrics(f"{operator}: no task has reported")
    starts = [int(task["launchTime"]) for task in ordered]
    ends = [start + int(task.get("duration") or 0) for start, task in zip(starts, ordered, strict=True)]
    return TaskTable(
        execution=_columns(operator, ordered, (max(ends) - min(starts)) / 1000),
        executor=tuple(str(task["executorId"]) for task in ordered),
        start=min(starts) / 1000,
        end=max(ends) / 1000,
    )


def _columns(operator: str, tasks: Sequence[Mapping[str, Any]], wall_seconds: float) -> StageExecution:
    metrics = [task["taskMetrics"] for task in tasks]
    waiting = [m["shuffleReadMetrics"]["fetchWaitTime"] / 1000 for m in metrics]
    busy = [
        (m["executorDeserializeTime"] + m["executorRunTime"] + m["resultSerializationTime"]) / 1000
        for m in metrics
    ]
    return StageExecution(
        operator=operator,
        records_in=np.array(
            [m["inputMetrics"]["recordsRead"] + m["shuffleReadMetrics"]["recordsRead"] for m in metrics],
            dtype=np.float64,
        ),
        records_out=np.array(
            [
                m["shuffleWriteMetrics"]["recordsWritten"] + m["outputMetrics"]["recordsWritten"]
                for m in metrics
            ],
            dtype=np.float64,
        ),
        # useful time = deserialise + run + serialise − fetch wait (DS2 section 3.2)
        useful_seconds=np.maximum(np.array(busy) - np.array(waiting), 0.0),
        waiting_seconds=np.array(waiting, dtype=np.float64),
        wall_seconds=wall_seconds,
        cpu_seconds=np.array(
            [(m.get("executorCpuTime", 0) + m.get("executorDeserializeCpuTime", 0)) / 1e9 for m in metrics],
            dtype=np.float64,
        ),
    )
