"""Instances that do nothing while the others have no time left and a backlog grows: they count as lost.

DS2 takes an instance without useful time to be as fast as the others, since it has no rate of its own. That
is right for one that got no record, and wrong for one that died: its operator would be short for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.rates import SATURATED, find_growing_queues
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorQuery, OperatorWindow
from penstock.decide.policy import Hold, Proposal, Scale

READS_ALL = 0.95
"""A source of which this share of the offered rate is read keeps up, as far as one window can tell."""


class LostInstances:
    """Follows the instances of operators from window to window, and tells which count as lost.

    One that was lost stays so until it works again, also when the others have caught up.
    """

    def __init__(self) -> None:
        self._lost: dict[str, int] = {}
        self._most_active: Mapping[str, int] = {}
        self._backlogs: dict[str, float] = {}

    def leave_out(self, window: OperatorWindow) -> tuple[OperatorWindow, Mapping[str, int]]:
        """Return the window without lost instances, and how many each operator has lost."""
        growing = self._list_growing(window)
        if all(query.metrics.useful_seconds.all() for query in window.queries):
            self._lost, self._most_active = {}, window.parallelism
            return window, {}
        active: dict[str, int] = {}
        lost: dict[str, int] = {}
        queries = []
        for query in window.queries:
            own = self._count(query, window.parallelism, query.query_id in growing, active)
            queries.append(replace(query, metrics=_drop_silent(query, own)) if own else query)
            lost |= own
        self._lost, self._most_active = lost, active
        if not lost:
            return window, {}
        living = {name: count - lost.get(name, 0) for name, count in window.parallelism.items()}
        return replace(window, queries=tuple(queries), parallelism=living), lost

    def _list_growing(self, window: OperatorWindow) -> set[str]:
        """List the queries of which more waits than before, or that read less than comes."""
        before, self._backlogs = self._backlogs, {}
        growing: set[str] = set()
        for query in window.queries:
            backlog = sum(rate.backlog_records for rate in query.waiting)
            self._backlogs[query.query_id] = backlog
            if backlog > before.get(query.query_id, math.inf) or _is_behind(query):
                growing.add(query.query_id)
        return growing

    def _count(
        self, query: OperatorQuery, held: Mapping[str, int], behind: bool, active: dict[str, int]
    ) -> dict[str, int]:
        """Count the lost instances of each operator, and into `active` the most that ever worked."""
        metrics, size = query.metrics, len(query.graph.operators)
        if not len(metrics.operator) or metrics.operator.min() < 0 or metrics.operator.max() >= size:
            return {}
        counts = np.bincount(metrics.operator, minlength=size).tolist()
        works = np.bincount(metrics.operator, weights=metrics.useful_seconds > 0, minlength=size).tolist()
        useful = np.bincount(metrics.operator, weights=metrics.useful_seconds, minlength=size).tolist()
        piling = () if behind else find_growing_queues(query.graph, metrics, READS_ALL)
        lost: dict[str, int] = {}
        for name in query.graph.fed:
            number = query.graph.index[name]
            reported, working = counts[number], int(works[number])
            if reported != held.get(name):
                continue
            known = min(self._most_active.get(name, 0), reported)
            active[name] = max(known, working)
            gone = min(self._lost.get(name, 0), reported - working)
            full = working and useful[number] >= SATURATED * working * metrics.seconds
            if full and (behind or name in piling):
                gone = max(gone, _count_lost(reported, working, known))
            if gone:
                lost[name] = gone
        return lost


def add_lost(answer: Proposal | NotReady, lost: Mapping[str, int]) -> Proposal | NotReady:
    """Hold what was lost beside what the living need, and say so."""
    if not lost or not isinstance(answer, Hold | Scale):
        return answer
    told = ", ".join(f"{count} of {name}" for name, count in lost.items())
    reason = f"{answer.reason}; without instances that do nothing while a backlog grows: {told}"
    if isinstance(answer, Hold):
        return replace(answer, reason=reason)
    sizes = {name: size + lost.get(name, 0) for name, size in answer.parallelism.items()}
    exact = {name: need + lost.get(name, 0) for name, need in answer.exact.items()}
    return replace(answer, parallelism=sizes, exact=exact, reason=reason)


def _is_behind(query: OperatorQuery) -> bool:
    """Tell by one window alone whether records wait and less is read than comes."""
    return any(
        rate.backlog_records > 0 and rate.observed_per_second < READS_ALL * rate.offered_per_second
        for rate in query.readings.values()
    )


def _count_lost(reported: int, working: int, most_active: int) -> int:
    """Count the silent instances that are lost: those that have worked before, or fewer than the working.

    More silent ones that never worked have no partition to read, and a further one would have none either.
    """
    silent = reported - working
    if 2 * working >= reported:
        return silent
    return min(silent, max(0, most_active - working)) if working > 1 else 0


def _drop_silent(query: OperatorQuery, lost: Mapping[str, int]) -> MetricWindow:
    """Return the metrics without so many silent instances of each operator."""
    metrics = query.metrics
    kept = np.ones(len(metrics.operator), dtype=np.bool_)
    for name, count in lost.items():
        own = metrics.operator == query.graph.index[name]
        kept[np.flatnonzero(own & (metrics.useful_seconds == 0))[:count]] = False
    return MetricWindow(
        metrics.start,
        metrics.end,
        metrics.operator[kept],
        metrics.records_in[kept],
        metrics.records_out[kept],
        metrics.useful_seconds[kept],
        metrics.waiting_seconds[kept],
    )
