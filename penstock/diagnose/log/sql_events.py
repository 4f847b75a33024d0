"""Read the events of SQL executions: their plans, how long they took, and the files that scans read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.diagnose.log.application import Fields, FileScan, PlanNode, SqlExecution
from penstock.diagnose.log.fields import read_amount, read_name
from penstock.diagnose.log.plans import describe_scopes, list_nodes, list_scan_metrics

_MOST = float(1 << 62)

NoteTime = Callable[[int], int]


class SqlEvents:
    """The SQL executions of a log so far; `note_time` checks a time and keeps the latest."""

    def __init__(self, note_time: NoteTime) -> None:
        self.executions: dict[int, SqlExecution] = {}
        self._note_time = note_time
        self._plans: dict[tuple[PlanNode, ...], tuple[PlanNode, ...]] = {}
        self._counters: dict[int, tuple[int, str, str]] = {}

    def resume(self, executions: Mapping[int, SqlExecution]) -> None:
        """Continue with these executions; files that running ones are yet to count stay unknown."""
        self.executions = dict(executions)

    def start(self, event: Fields, line: int) -> None:
        """Read the start of an execution."""
        number, plan = int(event["executionId"]), event.get("sparkPlanInfo") or {}
        execution = SqlExecution(
            self._note_time(int(event["time"])),
            line,
            execution=number,
            description=read_name(event.get("description") or ""),
        )
        self.executions[number] = execution
        self._take_plan(execution, plan)

    def update(self, event: Fields, line: int) -> None:
        """Read the plan that an adaptive query goes on with."""
        execution = self.executions.get(int(event["executionId"]))
        if execution:
            self._take_plan(execution, event.get("sparkPlanInfo") or {})

    def end(self, event: Fields, line: int) -> None:
        """Read the end of an execution."""
        execution = self.executions.get(int(event["executionId"]))
        if execution:
            execution.ended, execution.ended_at_line = self._note_time(int(event["time"])), line

    def count(self, event: Fields, line: int) -> None:
        """Read what the driver counted for an execution: the files of its scans and their bytes."""
        for number, value in event.get("accumUpdates") or ():
            known = self._counters.get(int(number))
            if not known or known[0] not in self.executions:
                continue
            execution, table, what = self.executions[known[0]], known[1], known[2]
            scan = execution.scans.get(table, FileScan())
            added = read_amount(value, _MOST)
            scan = replace(scan, **{what: getattr(scan, what) + added})
            execution.scans = {**execution.scans, table: scan}

    def _take_plan(self, execution: SqlExecution, plan: Fields) -> None:
        # stages that ran before keep the words of the plan that they were in
        execution.scopes = {**execution.scopes, **describe_scopes(plan)}
        nodes = list_nodes(plan)
        # a query has the same plan in each of its batches
        execution.nodes = self._plans.setdefault(nodes, nodes)
        for number, table, what in list_scan_metrics(plan):
            self._counters[number] = (execution.execution, table, what)
