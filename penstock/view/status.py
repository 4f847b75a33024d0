"""The status of an application as plain data: what the views show and the control socket answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from penstock.dataflow.summary import QuerySummary
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import BINS
from penstock.timeline import Decided, Ended, Point, Timeline

KINDS = {"nothing-to-do": "hold", "waiting": "wait", "rejected": "rejected"}
QUIET = ("hold", "wait")
DECISIONS_KEPT = 200
WINDOWS_KEPT = 100

Plain = dict[str, Any]


def history(timeline: Timeline) -> Plain:
    """All that a timeline tells: the size now, the queries, recent points and decisions."""
    points = timeline.points
    decisions = merged(_decisions(points, timeline.decisions, timeline.outcomes))
    last = points[-1] if points else None
    recent = with_needs_carried([point_of(point) for point in points])
    latest = decisions[-1] if decisions else None
    needed = recent[-1]["slots_needed"] if recent else None
    return {
        "executors": last.parallelism.get(EXECUTORS) if last else None,
        "slots": last.slots if last else None,
        "slots_needed": needed,
        "queries": _queries(points, needed),
        "last_decision": {key: latest[key] for key in ("at", "kind", "reason")} if latest else None,
        "recent": recent,
        "decisions": decisions[-DECISIONS_KEPT:],
    }


def point_of(point: Point) -> Plain:
    """One point of the charts; rates and backlogs add up, the busiest query's batch time counts."""
    busiest = max(point.queries, key=_load, default=None)
    return {
        "at": point.at,
        "offered_per_second": known(sum(query.offered_per_second for query in point.queries)),
        "observed_per_second": known(sum(query.observed_per_second for query in point.queries)),
        "backlog_records": known(sum(query.backlog_records for query in point.queries)),
        "batch_seconds": busiest.batch_seconds if busiest else None,
        "period_seconds": busiest.period_seconds if busiest else None,
        "slots_needed": point.figures.get("slots_needed"),
        "slots_held": point.slots,
        "executors": point.parallelism.get(EXECUTORS),
    }


def known(value: float | None) -> float | None:
    """A rate that could not be measured is NaN among the figures, and nothing in JSON."""
    return None if value is None or not math.isfinite(value) else value


def with_needs_carried(recent: Sequence[Plain]) -> list[Plain]:
    """Intervals without an answer state no need: the one stated before them still stands."""
    carried, needed = [], None
    for point in recent:
        needed = point["slots_needed"] if point["slots_needed"] is not None else needed
        carried.append({**point, "slots_needed": needed})
    return carried


def merged(decisions: Iterable[Plain]) -> list[Plain]:
    """Holds and waits in a row become one, with the latest reason: only their figures differ."""
    kept: list[Plain] = []
    for one in decisions:
        if kept and one["kind"] in QUIET and kept[-1]["kind"] == one["kind"]:
            kept[-1] = {**one, "count": kept[-1]["count"] + one["count"]}
        else:
            kept.append(one)
    return kept


def _load(query: QuerySummary) -> float:
    return (query.batch_seconds or 0.0) / (query.period_seconds or 1.0)


def _queries(points: Sequence[Point], slots_needed: float | None) -> list[Plain]:
    # the policy states one need for all queries together, so it is a query's own only where it is alone
    queries = points[-1].queries if points else ()
    own = slots_needed if len(queries) == 1 else None
    return [
        {key: known(value) if isinstance(value, float) else value for key, value in asdict(query).items()}
        | {"slots_needed": own, "critical_windows": critical_windows(points, query.name)}
        for query in queries
    ]


def critical_windows(points: Sequence[Point], name: str) -> list[Plain]:
    """What the query's last analysed batches waited for, oldest first; several points may tell of one."""
    seen = (query.critical for point in points for query in point.queries if query.name == name)
    found = {(window["batch_id"], window["at"]): dict(window) for window in seen if window.get("causes")}
    return list(found.values())[-WINDOWS_KEPT:]


def _decisions(
    points: Sequence[Point], decisions: Sequence[Decided], outcomes: Sequence[Ended]
) -> Iterable[Plain]:
    open_outcomes = list(outcomes)
    for one in decisions:
        plain: Plain = {"at": one.at, "kind": KINDS.get(one.kind, one.kind), "reason": one.reason}
        plain["count"] = one.count
        if one.parallelism is not None:
            before = _held_at(points, one.at)
            plain |= _change(before, one.parallelism)
            plain |= {"expected": one.expected, "outcome": _outcome(one, open_outcomes)}
        yield plain


def _change(before: int | None, planned: Mapping[str, int]) -> Plain:
    after = planned.get(EXECUTORS)
    if after is None and BINS in planned:
        return {"kind": "move-state", "bins": planned[BINS]}
    shrinks = before is not None and after is not None and after < before
    return {"kind": "scale-in" if shrinks else "scale-out", "from": before, "to": after}


def _held_at(points: Sequence[Point], at: float) -> int | None:
    seen = (point.parallelism.get(EXECUTORS) for point in reversed(points) if point.at <= at)
    return next(seen, None)


def _outcome(decided: Decided, open_outcomes: list[Ended]) -> Plain | None:
    """The first outcome after this decision that was planned by it; each is used once."""
    for ended in open_outcomes:
        if ended.at >= decided.at and dict(ended.outcome.planned) == dict(decided.parallelism or {}):
            open_outcomes.remove(ended)
            return _plain_outcome(ended)
    return None


def _plain_outcome(ended: Ended) -> Plain:
    outcome = ended.outcome
    observed: Mapping[str, int] = outcome.observed
    return {
        "at": ended.at,
        "status": outcome.status.value,
        "observed": observed.get(EXECUTORS),
        "seconds": outcome.seconds,
        "detail": outcome.detail,
    }
