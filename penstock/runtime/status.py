"""The status of an application as plain data: what the views show and the control socket answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from penstock.dataflow.summary import QuerySummary, is_behind
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import BINS
from penstock.decide.verdict import CountedVerdict
from penstock.runtime.tally import KINDS, name_change
from penstock.runtime.timeline import EndedAction, RecentTimeline, TimelinePoint

DECISIONS_KEPT = 200
WINDOWS_KEPT = 100

Plain = dict[str, Any]


def summarise_timeline(timeline: RecentTimeline, known: str | None = None) -> Plain:
    """Summarise a timeline: the size now, the queries, recent points and decisions.

    For one who has the summary of this version already it is the version alone.
    """
    version, points = timeline.version, timeline.points
    if version == known:
        return {"timeline": version}
    decisions = list(_decisions(points, timeline.decisions, timeline.outcomes))
    last = points[-1] if points else None
    recent = carry_needs([plain_point(point) for point in points])
    latest = decisions[-1] if decisions else None
    needed = recent[-1]["slots_needed"] if recent else None
    return {
        "timeline": version,
        "usage": asdict(timeline.usage),
        "executors": last.parallelism.get(EXECUTORS) if last else None,
        "slots": last.slots if last else None,
        "slots_needed": needed,
        "queries": _queries(points, needed),
        "last_decision": {key: latest[key] for key in ("at", "kind", "reason")} if latest else None,
        "recent": recent,
        "decisions": decisions[-DECISIONS_KEPT:],
        "totals": timeline.totals,
    }


def describe_mode(status: Mapping[str, Any]) -> str:
    """Say what the autopilot does with this application."""
    if status.get("paused"):
        return "paused"
    return "observing only" if status.get("mode") == "observe" else "acting"


def list_essentials(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the few lines that a notebook shows: label and text."""
    held, needed = _show(status.get("slots")), _show(status.get("slots_needed"))
    lines = [
        ("application", f"{status.get('name') or ''} {status['application']}".strip()),
        ("policy", f"{status['policy']}, {describe_mode(status)}"),
        ("executors", _show(status.get("executors"))),
        ("slots", f"{held} held, {needed} needed"),
    ]
    for query in status.get("queries", ()):
        offered, observed = (_show(query.get(f"{one}_per_second")) for one in ("offered", "observed"))
        lines.append((str(query["name"]), f"{offered}/s offered, {observed}/s observed"))
        if found := query.get("critical"):
            lines.append(("critical path", str(found["answer"])))
    if latest := status.get("last_decision"):
        lines.append(("last decision", f"{latest['kind'].replace('-', ' ')}: {latest['reason']}"))
    if status.get("error"):
        lines.append(("stepping aside", str(status["error"])))
    return lines


def _show(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def plain_point(point: TimelinePoint) -> Plain:
    """Return one point of the charts: rates and backlogs in all, the batch time of the busiest query."""
    busiest = max(point.queries, key=_load, default=None)
    latencies = [query.latency_seconds for query in point.queries if query.latency_seconds is not None]
    return {
        "at": point.at,
        "offered_per_second": drop_unknown(sum(query.offered_per_second for query in point.queries)),
        "observed_per_second": drop_unknown(sum(query.observed_per_second for query in point.queries)),
        "backlog_records": drop_unknown(sum(query.backlog_records for query in point.queries)),
        "batch_seconds": busiest.batch_seconds if busiest else None,
        "period_seconds": busiest.period_seconds if busiest else None,
        "latency_seconds": max(latencies, default=None),
        "slots_needed": point.figures.get("slots_needed"),
        "slots_held": point.slots,
        "executors": point.parallelism.get(EXECUTORS),
    }


def drop_unknown(value: float | None) -> float | None:
    """Return None for a rate that could not be measured: NaN among the figures, nothing in JSON."""
    return None if value is None or not math.isfinite(value) else value


def carry_needs(recent: Sequence[Plain]) -> list[Plain]:
    """Let the need stated last stand through intervals without an answer."""
    carried, needed = [], None
    for point in recent:
        needed = point["slots_needed"] if point["slots_needed"] is not None else needed
        carried.append({**point, "slots_needed": needed})
    return carried


def _load(query: QuerySummary) -> float:
    return (query.batch_seconds or 0.0) / (query.period_seconds or 1.0)


def _queries(points: Sequence[TimelinePoint], slots_needed: float | None) -> list[Plain]:
    # the policy states one need for all queries together, so it is a query's own only where it is alone
    queries = points[-1].queries if points else ()
    own = slots_needed if len(queries) == 1 else None
    return [
        {
            key: drop_unknown(value) if isinstance(value, float) else value
            for key, value in asdict(query).items()
        }
        | {"slots_needed": own, "behind": is_behind(query)}
        | {"critical_windows": list_critical_windows(points, query.name)}
        for query in queries
    ]


def list_critical_windows(points: Sequence[TimelinePoint], name: str) -> list[Plain]:
    """List what the query's analysed batches waited for, oldest first, each batch once."""
    seen = (query.critical for point in points for query in point.queries if query.name == name)
    found = {(window["batch_id"], window["at"]): dict(window) for window in seen if window.get("causes")}
    return list(found.values())[-WINDOWS_KEPT:]


def _decisions(
    points: Sequence[TimelinePoint], decisions: Sequence[CountedVerdict], outcomes: Sequence[EndedAction]
) -> Iterable[Plain]:
    open_outcomes = list(outcomes)
    for one in decisions:
        told = one.plain()
        plain: Plain = {key: told[key] for key in ("at", "reason", "count")}
        plain["kind"] = KINDS.get(told["kind"], told["kind"])
        if told["parallelism"] is not None:
            plain |= _change(_held_at(points, one.last_at), told["parallelism"])
            outcome = _outcome(one.last_at, told["parallelism"], open_outcomes)
            plain |= {"expected": told["expected"], "outcome": outcome}
        yield plain


def _change(before: int | None, planned: Mapping[str, int]) -> Plain:
    after = planned.get(EXECUTORS)
    if after is None and BINS in planned:
        return {"kind": "move-state", "bins": planned[BINS]}
    held = {} if before is None else {EXECUTORS: before}
    return {"kind": name_change(held, planned), "from": before, "to": after}


def _held_at(points: Sequence[TimelinePoint], at: float) -> int | None:
    seen = (point.parallelism.get(EXECUTORS) for point in reversed(points) if point.at <= at)
    return next(seen, None)


def _outcome(at: float, planned: Mapping[str, int], open_outcomes: list[EndedAction]) -> Plain | None:
    """Take the first outcome of this plan after this time; each is used once."""
    for ended in open_outcomes:
        if ended.at >= at and dict(ended.outcome.planned) == planned:
            open_outcomes.remove(ended)
            return _plain_outcome(ended)
    return None


def _plain_outcome(ended: EndedAction) -> Plain:
    outcome = ended.outcome
    observed: Mapping[str, int] = outcome.observed
    return {
        "at": ended.at,
        "status": outcome.status.value,
        "observed": observed.get(EXECUTORS),
        "seconds": outcome.seconds,
        "detail": outcome.detail,
    }
