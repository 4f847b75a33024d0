"""The need of one query on slots, as sized now or last known, and how it is told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.costs.slots import LEAST_GAIN
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SlotQuery
from penstock.decide.ds2.slot_sizing import QuerySizing
from penstock.units.figures import seconds as write_seconds


@dataclass(frozen=True, slots=True)
class SlotsNeeded:
    """The slots of one query, as sized now or, where that is not possible, as last needed; none if idle."""

    query: SlotQuery
    sizing: QuerySizing | NotReady
    last_slots: int | None

    @property
    def is_idle(self) -> bool:
        """Whether its sources have offered nothing and nothing waits."""
        return self.query.idle_seconds > 0 and isinstance(self.sizing, NotReady)

    @property
    def slots(self) -> int:
        """The slots needed; what was last needed where that is not known now."""
        if self.is_idle:
            return 0
        return self.last_slots or 0 if isinstance(self.sizing, NotReady) else self.sizing.slots

    @property
    def may_shrink(self) -> bool:
        """Whether this need may shrink the application; an unknown one, or one of a quiet source, may not."""
        if isinstance(self.sizing, NotReady):
            return self.is_idle or self.last_slots is not None
        return self.sizing.may_shrink and self.sizing.demand.offered_per_second > 0


def describe_needs(needs: Sequence[SlotsNeeded], total: int) -> str:
    """Describe what each query needs and why, for the reason of a decision."""
    if len(needs) == 1:
        return _describe_need(needs[0])
    return (
        "; ".join(f"{need.query.name} {_describe_need(need)}" for need in needs) + f"; together {total} slots"
    )


def _describe_need(need: SlotsNeeded) -> str:
    sizing = need.sizing
    if need.is_idle:
        return f"has had no input for {need.query.idle_seconds:.0f} s"
    if isinstance(sizing, NotReady):
        known = f"keeps the {need.slots} slots it last needed" if need.slots else "is not known yet"
        return f"{known} ({sizing.reason})"
    if sizing.waits:
        return sizing.waits
    size = f"{sizing.slots} slot" if sizing.slots == 1 else f"{sizing.slots} slots"
    load = f"{_rate(sizing.demand.offered_per_second)} records/s"
    if sizing.for_backlog:
        load += f" and a backlog of {sizing.demand.backlog_records:,.0f} records"
    seconds, period = f"{sizing.batch_seconds:.1f} s", f"{sizing.period_seconds:.1f} s"
    if not sizing.feasible:
        brings = "brings" if sizing.slots == 1 else "bring"
        return (
            f"fits a batch of {load} into {period} with no number of executors: {size} {brings} it to "
            f"{seconds}, and each executor more would save less than {LEAST_GAIN:.0%}"
        )
    told = f"needs {size} for {load} (batch {seconds} of {period} at {size})"
    return f"{told}; {_describe_end(need.query, sizing)}" if need.query.single_run else told


def _describe_end(query: SlotQuery, sizing: QuerySizing) -> str:
    """Say when a query that ends by itself will have read its backlog, as its newest batches go."""
    records = sum(batch.input_records for batch in query.batches)
    seconds = sum(batch.seconds for batch in query.batches)
    left = sizing.demand.backlog_records * seconds / records if records > 0 else math.inf
    when = f", in about {write_seconds(left)} at the present pace" if math.isfinite(left) else ""
    return f"the query ends by itself when its backlog is read{when}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
