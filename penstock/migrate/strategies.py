"""When each bin moves: fluid, batched or all at once (section 5.1.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.migrate.bins import StateView
from penstock.migrate.matching import groups
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Move, Plan, Strategy
from penstock.migrate.planner import Assignment


def schedule(
    view: StateView,
    assignments: Sequence[Assignment],
    strategy: Strategy,
    settings: MigrationSettings | None = None,
    reason: str = "",
) -> Plan:
    """A plan that brings the assignments about, from the batch after the last committed one on.

    Where bins are prepared, a batch passes before the first move. A fluid plan has one bin a batch; while it
    runs, it goes as fast as its latency budget bears.
    """
    settings = settings or MigrationSettings.of(strategy)
    first = view.batch + (2 if settings.prepare else 1)
    steps = _steps(view, assignments, strategy, settings)
    every = 1 + settings.gap_batches
    moves = tuple(
        Move(first + number * every, one.bin, one.source, one.target)
        for number, together in enumerate(steps)
        for one in together
    )
    return Plan(view.query, moves, strategy, reason)


def _steps(
    view: StateView, assignments: Sequence[Assignment], strategy: Strategy, settings: MigrationSettings
) -> Iterator[Sequence[Assignment]]:
    """What moves together, step by step."""
    ordered = _ordered(view, assignments, settings.hot_first)
    if strategy is Strategy.ALL_AT_ONCE:
        yield from [ordered] if ordered else []
        return
    at_once = settings.most_bins_per_batch if strategy is Strategy.BATCHED else 1
    slots = {worker.worker: worker.slots for worker in view.workers}
    for group in groups([(one.source, one.target) for one in ordered], slots):
        members = [ordered[number] for number in group]
        yield from (members[start : start + at_once] for start in range(0, len(members), at_once))


def _ordered(view: StateView, assignments: Iterable[Assignment], hot_first: bool) -> list[Assignment]:
    """Hot first relieves the stragglers soonest; cold first disturbs least while the pace is being found."""
    loads = view.loads()
    sign = -1 if hot_first else 1
    return sorted(assignments, key=lambda one: (sign * loads[one.bin], one.bin))
