"""From a log or a trace to the whole diagnosis: windows, findings, what-if and warnings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.diagnose.activity_graph import GAP_THRESHOLD_US, ActivityGraph, activity_graph
from penstock.diagnose.answer import Finding, findings, plain_answer, with_gains
from penstock.diagnose.application_log import ApplicationLog
from penstock.diagnose.log_trace import trace_of_log
from penstock.diagnose.participation import Participation, participation, windows
from penstock.diagnose.single_path import single_path
from penstock.diagnose.summary import Summary, check_window, summarise
from penstock.diagnose.trace import Trace
from penstock.diagnose.what_if import WhatIf, what_if
from penstock.errors import BadInput


@dataclass(frozen=True, slots=True)
class Span:
    """Which part to look at, in microseconds: cut into windows of `window_us`, or all in one.

    `host_cores` are the cores of a host that slots share, where forecasts are to know them.
    """

    window_us: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    host_cores: int | None = None


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
    graph: ActivityGraph
    critical: Participation
    path_events: Any

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
        "paths_log10": summary.paths_log10 if summary.length_us > 0 else None,
        "activity": summary.activity,
        "worker": summary.worker,
        "operator": summary.operator,
        "communication": [list(channel) for channel in summary.communication],
    }


def diagnose_log(log: ApplicationLog, span: Span) -> Diagnosis:
    """The diagnosis of an application from its event log."""
    found = trace_of_log(log)
    if not log.is_complete:
        found.warnings["logs without an end: the application still runs, or the log is cut"] = 1
    # The log's timelines are complete: no gap in them is a lack of instrumentation to be bridged.
    graph = activity_graph(found.trace, gap_threshold_us=0)
    return _diagnosis(graph, span, found.warnings, log)


def diagnose_trace(trace: Trace, span: Span, name: str = "trace") -> Diagnosis:
    """The diagnosis of a trace of any engine."""
    graph = activity_graph(trace, GAP_THRESHOLD_US)
    return _diagnosis(graph, span, {}, None, name)


def _diagnosis(
    graph: ActivityGraph, span: Span, warnings: dict[str, int], log: ApplicationLog | None, name: str = ""
) -> Diagnosis:
    whole = next(iter(windows(graph, None, span.start_us, span.end_us)), None)
    if whole is None or whole.start_us >= whole.end_us:
        raise BadInput("there is nothing to diagnose: no event lies in this span")
    check_window(whole)
    critical = participation(graph, whole)
    summary = summarise(graph, critical)
    pieces = windows(graph, span.window_us, span.start_us, span.end_us) if span.window_us else ()
    path, events = single_path(graph, whole)
    replayed = what_if(log, host_cores=span.host_cores) if log else None
    found = with_gains(findings(summary, log), summary, replayed)
    return Diagnosis(
        application=log.application if log else name,
        name=log.name if log else name,
        answer=plain_answer(found),
        findings=found,
        whole=summary,
        windows=[summarise(graph, participation(graph, piece)) for piece in pieces] or [summary],
        single_path=path,
        what_if=replayed,
        warnings=_sentences(graph, summary, warnings),
        graph=graph,
        critical=critical,
        path_events=events,
    )


def _sentences(graph: ActivityGraph, summary: Summary, warnings: dict[str, int]) -> list[str]:
    counted = dict(warnings) | {
        "activities that overlap on one worker": graph.repairs.overlapping_activities,
        "activities that end without a start": graph.repairs.ends_without_start,
        "messages received and never sent": graph.repairs.receives_without_send,
        "messages sent and never received": graph.repairs.sends_without_receive,
        "events that nothing caused": summary.instrumentation.uncaused_events,
        "spans in which everyone waits and no message is under way": summary.instrumentation.silent_spans,
    }
    return [f"{count} {what}" for what, count in counted.items() if count]
