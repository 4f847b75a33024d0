"""The slowest batch over the offered load, with and without a migration: Megaphone's figure 5.18."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import le
from typing import TYPE_CHECKING

from penstock.evidence.findings import Chart, Finding, agreed, incomparable
from penstock.evidence.stalls import ALL_AT_ONCE, FLUID, STALL, gain_findings

if TYPE_CHECKING:
    from penstock.bench.migration_rows import Phase

Loads = Mapping[int, Sequence["Phase"]]
"""Records offered a second → what the same state went through at that rate."""

OTHER_RATES = (2_500, 40_000)
"""A quarter of the usual rate and four times it: a sixteenfold range, all below what two cores can do."""
STILL = "not moving"
SERIES = (ALL_AT_ONCE, FLUID, STILL)
CLAIM = "hardly changes with the load until the system is saturated"


def load_findings(loads: Loads, usual: int, trigger_seconds: float, conditions: str) -> list[Finding]:
    """What the load does to each line of the figure, and what bin by bin gains at loads but the usual one."""
    told = f"{conditions}; batches every {trigger_seconds:g} s"
    lines = [_line(loads, system, trigger_seconds, told) for system in SERIES if slowest(loads, system)]
    return [*lines, *_gains({rate: found for rate, found in loads.items() if rate != usual}, told)]


def load_chart(loads: Loads) -> list[Chart]:
    """Offered load against the slowest batch, a line for each way and one for batches while nothing moved."""
    if len(loads) < 2:
        return []
    found = [(system, slowest(loads, system)) for system in SERIES]
    series = [(system, [float(rate) for rate in by], list(by.values())) for system, by in found if by]
    title, x = "latency over the offered load (figure 5.18)", "records offered a second"
    return [Chart(title, x, "slowest batch, s", series, points=True, logarithmic="xy")]


def slowest(loads: Loads, system: str) -> dict[int, float]:
    """Seconds of the slowest batch by load; of those while nothing moved for STILL."""
    found = {}
    for rate in sorted(loads):
        mine = [phase for phase in loads[rate] if system in (STILL, phase.system)]
        shown = [one for phase in mine for one in (phase.steady if system == STILL else phase.batches)]
        if shown:
            found[rate] = max(batch.seconds for batch in shown)
    return found


def _line(loads: Loads, system: str, trigger_seconds: float, conditions: str) -> Finding:
    """Loads at which usual batches outlast the trigger are saturation: shown, and not judged."""
    by_rate = slowest(loads, system)
    keeps_up = {rate: _keeps_up(loads[rate], trigger_seconds) for rate in by_rate}
    ours = "slowest batch " + ", ".join(
        f"{seconds:.2f} s at {rate:,}/s{'' if keeps_up[rate] else ' (saturated)'}"
        for rate, seconds in by_rate.items()
    )
    still = slowest(loads, STILL)
    beside = None if system == STILL else f"{STILL}: {', '.join(f'{one:.2f} s' for one in still.values())}"
    shown = {"baseline": beside, "conditions": conditions}
    name = f"{system}: latency over the offered load (figure 5.18)"
    judged = [seconds for rate, seconds in by_rate.items() if keeps_up[rate]]
    if doubt := _doubt(loads, system):
        return incomparable(name, CLAIM, ours, doubt, **shown)
    if len(judged) < 2:
        why = "fewer than two loads were measured that it keeps up with"
        return incomparable(name, CLAIM, ours, why, **shown)
    growth = max(judged[1:]) / judged[0]
    why = f"at most {growth:.2f} times that of the least load; {STALL:g} counts as hardly"
    unmoved = [still[rate] for rate in by_rate if keeps_up[rate]]
    if growth > STALL >= max(unmoved[1:]) / unmoved[0] and all(map(le, judged, unmoved)):
        # what is below the scatter of batches that nothing disturbs does not grow with the load
        return agreed(name, CLAIM, ours, True, why=f"nowhere slower than batches while {STILL}", **shown)
    return agreed(name, CLAIM, ours, growth <= STALL, why=why, **shown)


def _keeps_up(phases: Sequence[Phase], trigger_seconds: float) -> bool:
    return max(phase.steady_seconds for phase in phases) <= trigger_seconds


def _doubt(loads: Loads, system: str) -> str:
    """What is to be said of migrations that did not move all bins."""
    notes = [
        f"at {rate:,}/s {phase.note}"
        for rate, phases in sorted(loads.items())
        for phase in phases
        if phase.system == system and phase.note
    ]
    return " ".join(notes).strip().removesuffix(";")


def _gains(loads: Loads, conditions: str) -> list[Finding]:
    found = []
    for rate, phases in sorted(loads.items()):
        rows = [{**phase.row(), "case": f"{phase.case}, {rate:,} records/s"} for phase in phases]
        pairs = zip(rows, phases, strict=True)
        doubts = {(row["case"], phase.system): phase.note for row, phase in pairs if phase.note}
        found += gain_findings(rows, {}, conditions, doubts)
    return found
