"""What a scenario's parts must be to each other; whatever is not right is told with its key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from penstock.dataflow.graph import LogicalGraph
from penstock.errors import BadInput
from penstock.simulate.capacity import Table
from penstock.simulate.scenario import Scenario, SourceSpec

MOST_FOLLOWED = 20_000_000
"""Records that a simulation of single records may have to follow from its sources."""


def check(scenario: Scenario, graph: LogicalGraph) -> None:
    """Raise BadInput with the key of the first thing that does not fit."""
    _check_slowdowns(scenario, graph)
    _check_failures(scenario, graph)
    if scenario.latency == "events":
        _check_events(scenario)
    if scenario.batches is not None:
        _check_batches(scenario)


def check_followed(records: float) -> None:
    """Raise BadInput where single records would be too many to follow."""
    if records > MOST_FOLLOWED:
        raise BadInput(
            f"latency: events follows single records, and {records:,.0f} are more than {MOST_FOLLOWED:,}; "
            "use estimated, or a lower rate"
        )


def nearest(name: str, known: Iterable[Any]) -> str:
    """A hint at the known name that comes closest, or at all of them."""
    names = [str(one) for one in known]
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.4)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"


def _check_slowdowns(scenario: Scenario, graph: LogicalGraph) -> None:
    for number, slow in enumerate(scenario.slowdowns):
        _check_operator(f"slowdowns.{number}", slow.operator, graph.index)
        if slow.end <= slow.start:
            raise BadInput(f"slowdowns.{number}.end: {slow.end:g} is not after the start at {slow.start:g}")


def _check_failures(scenario: Scenario, graph: LogicalGraph) -> None:
    known = ["executors"] if scenario.batches is not None else list(graph.index)
    for number, failure in enumerate(scenario.failures):
        _check_operator(f"failures.{number}", failure.operator, known)
        if (failure.start is None) == (failure.every is None):
            raise BadInput(f"failures.{number}: give either start or every")


def _check_operator(key: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise BadInput(f"{key}.operator: no operator {name!r}{nearest(name, known)}")


def _check_events(scenario: Scenario) -> None:
    if scenario.batches is not None:
        raise BadInput("latency: batches have the latency of their records anyway; leave events out")
    for name, source in scenario.sources.items():
        if source.service_time is not None or not source.keeps_backlog:
            wrong = "service_time" if source.service_time is not None else "keeps_backlog"
            raise BadInput(f"sources.{name}.{wrong}: with latency: events a source is read without delay")
    for name, operator in scenario.operators.items():
        for key, given in (("queue", operator.queue is not None), ("skew", operator.skew > 0)):
            if given:
                raise BadInput(f"operators.{name}.{key}: latency: events knows neither bounds nor skew")


def _check_batches(scenario: Scenario) -> None:
    if len(scenario.sources) > 1:
        raise BadInput("sources: batches are simulated with one source")
    parts: dict[str, Any] = {**scenario.sources, **scenario.operators}
    for name, spec in parts.items():
        where = f"{'sources' if isinstance(spec, SourceSpec) else 'operators'}.{name}"
        if getattr(spec, "queue", None) is not None or getattr(spec, "limit", None) is not None:
            wrong = "queue" if getattr(spec, "queue", None) is not None else "limit"
            raise BadInput(f"{where}.{wrong}: has no meaning in batches, which take all that is there")
        if isinstance(getattr(spec, "curve", None), Table):
            raise BadInput(f"{where}.curve: a table says nothing of slots that stages share")
