"""The tables of a diagnosis: operators, stages, jobs' plans, executors and pieces of the critical path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.findings.idle_time import SlotUse
from penstock.diagnose.stage_table import StageRow, find_plan_nodes
from penstock.diagnose.timeline import ExecutorLine, PathPiece
from penstock.diagnose.trace.driver_timeline import DRIVER
from penstock.view import figures
from penstock.view.diagnosis_terminal import rank_operators, rank_shares, share_channels
from penstock.view.tables import (
    Cell,
    Row,
    SortedTable,
    show_count,
    show_seconds,
    show_share,
    show_size,
    show_text,
)

MOST_ROWS = 100
MOST_PIECES = 40
MOST_PLANS = 60
_STAGE = re.compile(r"\bstage (\d+)\b")


class PageLinks:
    """Where the parts of one application are on the page: `prefix` keeps applications apart."""

    def __init__(self, diagnosis: Diagnosis, prefix: str) -> None:
        self._prefix = prefix
        self._stages = {row.stage: row.attempt for row in reversed(diagnosis.stages)}
        self._jobs = {row.job: row for row in reversed(diagnosis.stages)}
        self._operators = {
            name: place for place, (name, _, _) in enumerate(rank_operators(diagnosis.whole)[:MOST_ROWS])
        }
        self._plans = {one.execution for one in diagnosis.executions[:MOST_PLANS] if one.nodes}

    def name(self, *parts: object) -> str:
        """Return the name of a part."""
        return "-".join([self._prefix, *(str(part) for part in parts)])

    def to_stage(self, stage: int, attempt: int | None = None) -> str:
        """Return the link to a stage, or nothing if the table does not have it."""
        held = self._stages.get(stage)
        return "" if held is None else f"#{self.name('stage', stage, held if attempt is None else attempt)}"

    def to_job(self, job: int) -> str:
        """Return the link to the first stage of a job, or nothing if the table has none of it."""
        row = self._jobs.get(job)
        return self.to_stage(row.stage, row.attempt) if row else ""

    def to_operator(self, operator: str) -> str:
        """Return the link to an operator, or nothing if the table does not have it."""
        place = self._operators.get(operator)
        return "" if place is None else f"#{self.name('operator', place)}"

    def to_plan(self, execution: int, node: int | None = None) -> str:
        """Return the link to a SQL execution or a node of it, or nothing if the page does not have it."""
        if execution not in self._plans:
            return ""
        return f"#{self.name('sql', execution, *(() if node is None else (node,)))}"

    def link_text(self, text: str) -> Markup:
        """Return a text in which the longest operator that it names, and stages, are links."""
        named = max(
            (name for name in self._operators if name in text and name != DRIVER), key=len, default=""
        )
        if named:
            before, after = text.split(named, 1)
            link = Markup('<a href="{}">{}</a>').format(self.to_operator(named), named)
            return self._link_stages(before) + link + self._link_stages(after)
        return self._link_stages(text)

    def _link_stages(self, text: str) -> Markup:
        made, end = Markup(""), 0
        for found in _STAGE.finditer(text):
            link = self.to_stage(int(found[1]))
            said = Markup('<a href="{}">{}</a>').format(link, found[0]) if link else escape(found[0])
            made += escape(text[end : found.start()]) + said
            end = found.end()
        return made + escape(text[end:])


def tabulate_operators(diagnosis: Diagnosis, links: PageLinks) -> SortedTable:
    """Return the operators with their share, and the stage of each that has one."""
    whole = diagnosis.whole
    stages: dict[str, list[StageRow]] = {}
    for row in diagnosis.stages:
        stages.setdefault(row.operator, []).append(row)
    rows = []
    for place, (name, share, workers) in enumerate(rank_operators(whole)[:MOST_ROWS]):
        mine = stages.get(name, [])
        longest = max(mine, key=lambda row: row.seconds, default=None)
        link = links.to_stage(longest.stage, longest.attempt) if longest else ""
        cells = [
            show_text(name, link), show_share(share), show_count(workers), show_share(share / workers),
            show_count(len(mine)),
        ]  # fmt: skip
        rows.append(Row(cells, links.name("operator", place)))
    headings = ["operator", "critical path", "workers", "for each worker", "stages"]
    return SortedTable(headings, rows)


def tabulate_shares(heading: str, values: Mapping[str, float]) -> SortedTable:
    """Return the largest shares of the critical path."""
    ranked = rank_shares(values)
    rows = [Row([show_text(name), show_share(share)]) for name, share in ranked[:MOST_ROWS]]
    return SortedTable([heading, "critical path"], rows, _count_left_out(len(ranked) - len(rows)))


def tabulate_channels(diagnosis: Diagnosis) -> SortedTable:
    """Return the messages that others waited for."""
    return tabulate_shares("from → to", share_channels(diagnosis.whole))


def tabulate_stages(diagnosis: Diagnosis, links: PageLinks) -> SortedTable:
    """Return the stages, each with a link to its SQL execution and to the nodes that it ran."""
    plans = {one.execution: one for one in diagnosis.executions}
    headings = [
        "stage", "what it does", "SQL", "critical path", "began", "took", "tasks", "core-seconds", "shortest",
        "median", "longest", "records in", "largest to median", "read", "written", "spilled", "to disk",
        "peak memory", "GC", "failed", "lost",
    ]  # fmt: skip
    rows = []
    for row in diagnosis.stages:
        plan = plans.get(row.execution)
        nodes = find_plan_nodes(row.chain, plan) if plan else []
        sql = show_text(f"{row.execution}" if plan else "", links.to_plan(row.execution, *nodes[:1]))
        rows.append(Row(_show_stage(row, sql, links), links.name("stage", row.stage, row.attempt)))
    return SortedTable(headings, rows)


def _show_stage(row: StageRow, sql: Cell, links: PageLinks) -> list[Cell]:
    number = f"{row.stage}" if not row.attempt else f"{row.stage}, attempt {row.attempt + 1}"
    share_of_gc = row.gc_seconds / row.core_seconds if row.core_seconds else 0.0
    return [
        Cell(number, row.stage + row.attempt / 100, mark="bad" if row.failure else ""),
        show_text(row.operator, links.to_operator(row.operator)),
        sql,
        show_share(row.share),
        Cell(figures.clock(row.start_ms / 1000), row.start_ms),
        show_seconds(row.seconds),
        show_count(row.tasks),
        show_count(row.core_seconds),
        show_seconds(row.shortest),
        show_seconds(row.median),
        show_seconds(row.longest),
        show_count(row.records_in),
        Cell(f"{row.records_ratio:.1f}" if row.records_ratio else "", row.records_ratio),
        show_size(row.bytes_in),
        show_size(row.written_bytes),
        show_size(row.memory_spilled),
        show_size(row.disk_spilled),
        show_size(row.peak_memory),
        Cell(f"{share_of_gc:.0%}", share_of_gc),
        show_count(row.failed_tasks),
        show_seconds(row.lost_seconds),
    ]


def tabulate_path(pieces: list[PathPiece], links: PageLinks) -> SortedTable:
    """Return the longest pieces of the drawn path."""
    longest = sorted(pieces, key=lambda piece: -piece.seconds)[:MOST_PIECES]
    rows = [
        Row([
            Cell(figures.clock(piece.start_ms / 1000), piece.start_ms),
            show_seconds(piece.seconds),
            show_text(name_row(piece.row)),
            show_text(piece.doing),
            show_text(piece.operator, links.to_stage(*piece.stage) if piece.stage else ""),
        ])
        for piece in sorted(longest, key=lambda piece: piece.start_ms)
    ]  # fmt: skip
    left_out = _count_left_out(len(pieces) - len(longest))
    return SortedTable(["at", "for", "on", "doing", "for operator"], rows, left_out)


def tabulate_executors(lines: list[ExecutorLine], use: SlotUse | None) -> SortedTable:
    """Return the executors with what they offered and what nobody used, in money where there is a price."""
    cores, price = (use.cores_per_slot, use.price_per_core_hour) if use else (1, None)
    priced = ["idle cost"] if price else []
    headings = ["executor", "host", "slots", "there", "tasks", "core-seconds", "idle", "idle share", *priced,
                "went because"]  # fmt: skip
    rows = []
    for line in sorted(lines, key=lambda one: one.busy_seconds - one.slot_seconds)[:MOST_ROWS]:
        idle = max(0.0, line.slot_seconds - line.busy_seconds) * cores
        cost = idle / 3600 * price if price else 0.0
        rows.append(Row([
            show_text(line.executor), show_text(line.host), show_count(line.slots),
            show_seconds((line.end_ms - line.start_ms) / 1000), show_count(line.tasks),
            show_count(line.slot_seconds * cores), show_count(idle),
            show_share(idle / (line.slot_seconds * cores) if line.slot_seconds else 0.0),
            *([Cell(f"{cost:,.2f}", cost)] if price else []), show_text(line.reason),
        ]))  # fmt: skip
    return SortedTable(headings, rows, _count_left_out(len(lines) - len(rows)))


def show_plans(diagnosis: Diagnosis, links: PageLinks) -> list[dict[str, Any]]:
    """Return the SQL executions with their plan nodes, and for each node the stages that ran it."""
    plans = []
    for one in [one for one in diagnosis.executions if one.nodes][:MOST_PLANS]:
        ran: dict[int, list[tuple[str, str]]] = {}
        for row in diagnosis.stages:
            if row.execution == one.execution:
                for place in find_plan_nodes(row.chain, one):
                    ran.setdefault(place, []).append(
                        (f"stage {row.stage}", links.to_stage(row.stage, row.attempt))
                    )
        nodes = [
            {
                "anchor": links.name("sql", one.execution, place),
                "depth": min(node.depth, 30),
                "name": node.name,
                "words": one.scopes.get(node.name, ""),
                "text": node.text,
                "stages": ran.get(place, []),
            }
            for place, node in enumerate(one.nodes)
        ]
        took = figures.seconds((one.ended - one.started) / 1000) if one.ended >= 0 else "did not end"
        anchor = links.name("sql", one.execution)
        title = f"SQL {one.execution}: {one.description}".rstrip(": ")
        plans.append({"anchor": anchor, "title": title, "took": took, "nodes": nodes})
    return plans


def name_row(row: str) -> str:
    """Name a row of the timeline: the driver, or an executor."""
    return row if row == "driver" else f"executor {row}"


def _count_left_out(number: int) -> str:
    return f"and {figures.count(number)} more" if number > 0 else ""
