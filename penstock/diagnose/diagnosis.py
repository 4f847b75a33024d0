"""Diagnose event logs and traces: windows, findings, what-if and warnings, each application for itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.diagnose.answer import answer_in_lines
from penstock.diagnose.causes import LatencyFinding
from penstock.diagnose.explain import MOST_FINDINGS, list_findings
from penstock.diagnose.findings.failed_work import FailedWork, find_failed_work
from penstock.diagnose.findings.idle_time import IdleTime, SlotUse, find_idle_time, measure_slot_use
from penstock.diagnose.findings.waste import Observation, list_waste
from penstock.diagnose.log.application import ApplicationLog, SqlExecution
from penstock.diagnose.log.files import LogFiles, find_logs
from penstock.diagnose.log.ranges import count_processes
from penstock.diagnose.log.reader import read_application
from penstock.diagnose.path.draw import draw_path
from penstock.diagnose.path.graph import ActivityGraph, Repairs
from penstock.diagnose.path.participation import Participation, cut_windows, measure_participation
from penstock.diagnose.path.parts import Part, analyse_log_parts, analyse_trace_parts
from penstock.diagnose.path.spans import Span
from penstock.diagnose.path.summary import Summary, join_summaries, mix_shares, summarise, summarise_graph
from penstock.diagnose.stage_table import StageRow, list_executions, list_stages
from penstock.diagnose.streaming import QueryView, view_queries
from penstock.diagnose.timeline import PathPiece, Timeline, build_timeline, trace_path
from penstock.diagnose.trace.events import Activity, Indices, is_trace
from penstock.diagnose.trace.from_log import build_timelines, name_operators
from penstock.diagnose.trace.memory import reuse_blocks
from penstock.diagnose.whatif.clip import clip_log
from penstock.diagnose.whatif.scenarios import Rehearsal, WhatIf, forecast, rehearse
from penstock.errors import BadInput
from penstock.units.figures import count_of


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The sources of one application's latency."""

    application: str
    name: str
    answer: str
    findings: list[LatencyFinding]
    whole: Summary
    windows: list[Summary]
    single_path: dict[str, float]
    what_if: WhatIf | None
    warnings: list[str]
    drawing: Drawing | None
    failed: FailedWork | None = None
    idle: IdleTime | None = None
    slots: SlotUse | None = None
    streaming: list[QueryView] = field(default_factory=list)
    draw_timeline: Callable[[], Timeline] | None = None
    stages: list[StageRow] = field(default_factory=list)
    executions: list[SqlExecution] = field(default_factory=list)
    waste: list[Observation] = field(default_factory=list)

    @property
    def timeline(self) -> Timeline | None:
        """Draw the timeline, which only a page shows; none where there is no log."""
        return self.draw_timeline() if self.draw_timeline else None

    def compare_activities(self) -> dict[str, tuple[float, float, float]]:
        """Return each activity's share of the critical path, of busy time and of one random path."""
        critical, waiting = self.whole.activity, Activity.WAITING.label
        busy = {name: value for name, value in self.whole.profile.activity.items() if name != waiting}
        total = sum(busy.values()) or 1.0
        return {
            name: (critical.get(name, 0.0), busy.get(name, 0.0) / total, self.single_path.get(name, 0.0))
            for name in sorted({*critical, *busy}, key=lambda name: -critical.get(name, 0.0))
        }

    def to_json(self) -> dict[str, Any]:
        """Return the object of the command contract, with findings and what-if beside the windows."""
        return {
            "application": self.application,
            "name": self.name,
            "answer": self.answer,
            "failures": asdict(self.failed) if self.failed else None,
            "idle": asdict(self.idle) if self.idle else None,
            "slots": self.slots.to_json() if self.slots else None,
            "waste": [asdict(one) for one in self.waste],
            "findings": [asdict(finding) for finding in self.findings],
            "windows": [window_to_json(summary) for summary in self.windows],
            "whole": window_to_json(self.whole),
            "profile": self.whole.profile.activity,
            "single_path": self.single_path,
            "what_if": asdict(self.what_if) if self.what_if else None,
            "stages": [asdict(stage) for stage in self.stages],
            "streaming": [asdict(query) for query in self.streaming],
            "warnings": self.warnings,
        }


@dataclass(frozen=True, slots=True)
class Drawing:
    """The graph and the path to draw, where all of the application fits in memory at once."""

    graph: ActivityGraph
    critical: Participation
    path_events: Indices


def window_to_json(summary: Summary) -> dict[str, Any]:
    """Return one window of the command contract."""
    return {
        "start_ms": summary.start_us / 1000,
        "end_ms": summary.end_us / 1000,
        "critical_ms": summary.length_us / 1000,
        "paths_log10": summary.paths_log10 if math.isfinite(summary.paths_log10) else None,
        "activity": summary.activity,
        "worker": summary.worker,
        "operator": summary.operator,
        "communication": [list(channel) for channel in summary.communication],
    }


def diagnoses_to_json(found: list[Diagnosis]) -> dict[str, Any]:
    """Return the object of one application, or one object for several."""
    answers = [diagnosis.to_json() for diagnosis in found]
    if len(answers) == 1:
        return answers[0]
    windows = [window for answer in answers for window in answer["windows"]]
    warnings = [warning for answer in answers for warning in answer["warnings"]]
    return {"windows": windows, "warnings": warnings, "applications": answers}


def diagnose_path(
    path: Path, span: Span, progress: Callable[[str], None] = lambda _: None, drawn: bool = True
) -> list[Diagnosis]:
    """Diagnose the trace or all the logs at a path; `progress` is called with each step.

    Logs that cannot be diagnosed become warnings of the first that can. Without `drawn` no graph is kept:
    those of many applications would fill the memory.
    """
    if is_trace(path):
        with _naming(path):
            return [diagnose_trace(path, span)]
    found: list[Diagnosis] = []
    refused: list[BadInput] = []
    for files in find_logs(path):
        try:
            with _naming(files.path):
                one = _diagnose_files(files, span, progress)
            found.append(one if drawn else replace(one, drawing=None))
        except BadInput as error:
            refused.append(error)
    if not found:
        raise refused[0]
    first = replace(found[0], warnings=[*found[0].warnings, *(str(error) for error in refused)])
    return [first, *found[1:]]


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in a refusal."""
    try:
        yield
    except BadInput as error:
        raise error if str(path) in str(error) else BadInput(f"{path}: {error}") from error


def _diagnose_files(files: LogFiles, span: Span, progress: Callable[[str], None]) -> Diagnosis:
    progress(f"{files.path}: reading {files.size / 1e6:.1f} MB")
    log = read_application(files, count_processes())
    progress(f"{files.path}: analysing {count_of(len(log.tasks), 'task')}")
    return diagnose_log(log, span)


def diagnose_log(log: ApplicationLog, span: Span) -> Diagnosis:
    """Diagnose an application from its event log."""
    lines = build_timelines(log)
    with reuse_blocks():
        results = list(analyse_log_parts(lines, span, partial(_analyse_part, span)))
    return _build_diagnosis(results, span, lines.warnings, log)


def diagnose_trace(path: Path, span: Span) -> Diagnosis:
    """Diagnose a trace of any engine from its Parquet files."""
    with reuse_blocks():
        results = list(analyse_trace_parts(path, span, partial(_analyse_part, span)))
    return _build_diagnosis(results, span, {}, None, path.name)


@dataclass(frozen=True, slots=True)
class _PartResult:
    """The results of one part: a summary of all of it and of its windows, and one path drawn at random."""

    whole: Summary
    windows: list[Summary]
    single_path: dict[str, float]
    repairs: Repairs
    drawing: Drawing | None
    trace: Callable[[], list[PathPiece]]


def _analyse_part(span: Span, part: Part) -> _PartResult:
    graph, bounds = part.graph, (part.start_us, part.end_us)
    pieces = list(summarise_graph(graph, span.window_us, *bounds)) if span.window_us else []
    window = next(cut_windows(graph, None, *bounds))
    critical = measure_participation(graph, window)
    path, events = draw_path(graph, window)
    whole = summarise(graph, critical)
    drawing = Drawing(graph, critical, events) if part.is_all else None
    times = window.start_us, window.end_us
    trace = partial(trace_path, graph, events, *times) if part.is_all else list[PathPiece]
    return _PartResult(whole, pieces or [whole], path, part.repairs, drawing, trace)


def _build_diagnosis(
    results: list[_PartResult],
    span: Span,
    counted: dict[str, int],
    log: ApplicationLog | None,
    name: str = "",
) -> Diagnosis:
    found = [result.whole for result in results]
    summary = found[0] if len(found) == 1 else join_summaries(found)
    warnings = _describe_warnings(results, summary, counted)
    if log and not log.is_complete:
        warnings.append("the log has no end: the application is still running, or the log was cut off")
    explained = (
        _explain_log(summary, log, span, results[0].trace) if log else _Explained(list_findings(summary))
    )
    return Diagnosis(
        application=log.application if log else name,
        name=log.name if log else name,
        answer=explained.answer,
        findings=explained.findings[:MOST_FINDINGS],
        whole=summary,
        windows=[window for result in results for window in result.windows],
        single_path=mix_shares((result.single_path, result.whole.length_us) for result in results),
        what_if=explained.what_if,
        warnings=warnings,
        drawing=results[0].drawing,
        failed=explained.failed,
        idle=explained.idle,
        slots=explained.slots,
        streaming=view_queries(log, summary.start_us / 1000, summary.end_us / 1000) if log else [],
        draw_timeline=explained.draw_timeline,
        stages=explained.stages,
        waste=explained.waste,
        executions=list_executions(log, explained.stages) if log else [],
    )


@dataclass(frozen=True, slots=True)
class _Explained:
    """The conclusions about a span, beyond its path: findings, failed work, idle time and what-if."""

    findings: list[LatencyFinding]
    failed: FailedWork | None = None
    idle: IdleTime | None = None
    slots: SlotUse | None = None
    rehearsal: Rehearsal | None = None
    what_if: WhatIf | None = None
    draw_timeline: Callable[[], Timeline] | None = None
    stages: list[StageRow] = field(default_factory=list)
    waste: list[Observation] = field(default_factory=list)

    @property
    def answer(self) -> str:
        return answer_in_lines(self.findings, self.failed, self.idle, self.rehearsal)


def _explain_log(
    summary: Summary, log: ApplicationLog, span: Span, trace: Callable[[], list[PathPiece]]
) -> _Explained:
    """Explain what happened in the span that was asked for, from that part of the log alone."""
    start = log.start if span.start_us is None else span.start_us // 1000
    end = log.end if span.end_us is None else span.end_us // 1000
    part = clip_log(log, start, end)
    idle, rehearsal, names = find_idle_time(part), rehearse(part, span.host_cores), name_operators(log)
    return _Explained(
        findings=list_findings(summary, part, names, rehearsal, idle),
        failed=find_failed_work(part, rehearsal),
        idle=idle,
        slots=measure_slot_use(part, span.price_per_core_hour),
        rehearsal=rehearsal,
        what_if=forecast(part, rehearsal) if rehearsal else None,
        draw_timeline=lambda: build_timeline(part, trace(), names),
        waste=list_waste(part),
        stages=list_stages(part, names, summary.sum_operators()),
    )


def _describe_warnings(results: list[_PartResult], summary: Summary, counted: dict[str, int]) -> list[str]:
    def count_repairs(what: str) -> int:
        return sum(int(getattr(result.repairs, what)) for result in results)

    counted = counted | {
        "activities that overlap on one worker": count_repairs("overlapping_activities"),
        "activities that end without a start": count_repairs("ends_without_start"),
        "messages received and never sent": count_repairs("receives_without_send"),
        "messages sent and never received": count_repairs("sends_without_receive"),
        "events that nothing caused": summary.instrumentation.uncaused_events,
        "spans in which everyone waits and no message is under way": summary.instrumentation.silent_spans,
    }
    said = [f"{what}: {count}" for what, count in counted.items() if count]
    if len(results) > 1:
        said.append(f"the time was analysed in {len(results)} parts: figures of the whole are their means")
    return said
