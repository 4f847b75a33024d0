"""From a log or a trace to the whole diagnosis: windows, findings, what-if and warnings."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from penstock.diagnose.activity_graph import ActivityGraph, Repairs
from penstock.diagnose.answer import Finding, findings, plain_answer, with_gains
from penstock.diagnose.application_log import ApplicationLog
from penstock.diagnose.density import Part, Span
from penstock.diagnose.joining import joined, mixed
from penstock.diagnose.log_parts import log_parts
from penstock.diagnose.log_trace import log_timelines
from penstock.diagnose.participation import Participation, participation, windows
from penstock.diagnose.single_path import single_path
from penstock.diagnose.summary import Summary, graph_summaries, summarise
from penstock.diagnose.trace import Indices
from penstock.diagnose.trace_parts import trace_parts
from penstock.diagnose.what_if import WhatIf, what_if

__all__ = ["Diagnosis", "Drawing", "Span", "diagnose_log", "diagnose_trace", "window_json"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a picture of the whole needs; there is none where the whole did not fit into memory at once."""

    graph: ActivityGraph
    critical: Participation
    path_events: Indices


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the latency of one application comes from."""

    application: str
    name: str
    answer: str
    findings: list[Finding]
    whole: Summary
    windows: list[Summary]
    single_path: dict[str, float]
    what_if: WhatIf | None
    warnings: list[str]
    drawing: Drawing | None

    def to_json(self) -> dict[str, Any]:
        """The object of the command contract, with the findings and the what-if beside the windows."""
        return {
            "application": self.application,
            "name": self.name,
            "answer": self.answer,
            "findings": [asdict(finding) for finding in self.findings],
            "windows": [window_json(summary) for summary in self.windows],
            "whole": window_json(self.whole),
            "profile": self.whole.profile.activity,
            "single_path": self.single_path,
            "what_if": asdict(self.what_if) if self.what_if else None,
            "warnings": self.warnings,
        }


def window_json(summary: Summary) -> dict[str, Any]:
    """One window of the command contract."""
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


def diagnose_log(log: ApplicationLog, span: Span) -> Diagnosis:
    """The diagnosis of an application from its event log."""
    lines = log_timelines(log)
    warnings = lines.warnings
    if not log.is_complete:
        warnings["logs without an end: the application still runs, or the log is cut"] = 1
    looks = list(log_parts(lines, span, partial(_look, span)))
    return _diagnosis(looks, span, warnings, log)


def diagnose_trace(path: Path, span: Span) -> Diagnosis:
    """The diagnosis of a trace of any engine, from its Parquet files."""
    return _diagnosis(list(trace_parts(path, span, partial(_look, span))), span, {}, None, path.name)


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found in one part: its summary as a whole, its windows, and one path drawn at random."""

    whole: Summary
    windows: list[Summary]
    single_path: dict[str, float]
    repairs: Repairs
    drawing: Drawing | None


def _look(span: Span, part: Part) -> _Look:
    """Analyses a part as a whole and window by window."""
    graph, bounds = part.graph, (part.start_us, part.end_us)
    pieces = list(graph_summaries(graph, span.window_us, *bounds)) if span.window_us else []
    window = next(windows(graph, None, *bounds))
    critical = participation(graph, window)
    path, events = single_path(graph, window)
    whole = summarise(graph, critical)
    drawing = Drawing(graph, critical, events) if part.is_all else None
    return _Look(whole, pieces or [whole], path, part.repairs, drawing)


def _diagnosis(
    looks: list[_Look], span: Span, warnings: dict[str, int], log: ApplicationLog | None, name: str = ""
) -> Diagnosis:
    found = [look.whole for look in looks]
    summary = found[0] if len(found) == 1 else joined(found)
    replayed = what_if(log, host_cores=span.host_cores) if log else None
    ranked = with_gains(findings(summary, log), summary, replayed)
    return Diagnosis(
        application=log.application if log else name,
        name=log.name if log else name,
        answer=plain_answer(ranked),
        findings=ranked,
        whole=summary,
        windows=[window for look in looks for window in look.windows],
        single_path=mixed((look.single_path, look.whole.length_us) for look in looks),
        what_if=replayed,
        warnings=_sentences(looks, summary, warnings),
        drawing=looks[0].drawing,
    )


def _sentences(looks: list[_Look], summary: Summary, warnings: dict[str, int]) -> list[str]:
    def repaired(what: str) -> int:
        return sum(int(getattr(look.repairs, what)) for look in looks)

    counted = dict(warnings) | {
        "activities that overlap on one worker": repaired("overlapping_activities"),
        "activities that end without a start": repaired("ends_without_start"),
        "messages received and never sent": repaired("receives_without_send"),
        "messages sent and never received": repaired("sends_without_receive"),
        "events that nothing caused": summary.instrumentation.uncaused_events,
        "spans in which everyone waits and no message is under way": summary.instrumentation.silent_spans,
    }
    said = [f"{count} {what}" for what, count in counted.items() if count]
    if len(looks) > 1:
        said.append(f"the time was analysed in {len(looks)} parts: figures of the whole are their means")
    return said
