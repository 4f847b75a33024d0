"""What the scaling manager remembers: frozen, bounded, and enough to judge again in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.decide.policy import Hold, Scale
from penstock.decide.pressure import Measured, offered_rate

MOST_DECISIONS = 512
"""How many decisions are kept one by one; older ones are merged, never forgotten too early."""
FEWEST_DECISIONS = 128
"""Decisions that are kept whatever their age, for activation."""
MATERIAL_CHANGE = 0.2
"""Change of the offered rate, as a fraction, after which what was learned at the old rate is forgotten."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The size that the policy asked for at one time, for every unit, and its own words for it.

    `floor` is what was to be kept then: the need, or what was held where that was used well enough.
    """

    at: float
    need: Mapping[str, int]
    floor: Mapping[str, int]
    proposal: Hold | Scale


@dataclass(frozen=True, slots=True)
class Trial:
    """An action, and how things stood before it: what it is judged by later."""

    action: Scale
    before: Mapping[str, int]
    measured_before: tuple[Measured, ...]
    rollback: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A size that did worse than the one before it, and the offered rate at which it did."""

    size: Mapping[str, int]
    instead_of: Mapping[str, int]
    offered: float


@dataclass(frozen=True, slots=True)
class ManagerState:
    """All that later verdicts depend on.

    `ready_from` is the time before which a window is not believed; `changed_at` the end of the last action.
    """

    last_now: float | None = None
    changed_at: float | None = None
    ready_from: float | None = None
    under_way: Scale | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    decisions: tuple[Decision, ...] = ()
    prepared: Trial | None = None
    trial: Trial | None = None
    refused: Refused | None = None
    small_gains: int = 0
    small_gain_offered: float = 0.0


def remember(decisions: tuple[Decision, ...], decision: Decision, delay: float) -> tuple[Decision, ...]:
    """Add a decision; drop those that no delay asks for any more, merge the oldest when there are too many.

    One decision older than the delay stays, because it proves that the whole delay was seen.
    """
    kept = [*decisions, decision]
    while len(kept) > FEWEST_DECISIONS and kept[1].at <= decision.at - delay:
        del kept[0]
    if len(kept) > MOST_DECISIONS:
        kept[:2] = [_merged(kept[0], kept[1])]
    return tuple(kept)


def _merged(older: Decision, newer: Decision) -> Decision:
    """Older time and larger need: merging can only make a scale-down later and smaller."""
    units = older.floor.keys() | newer.floor.keys()
    larger = {unit: max(older.floor.get(unit, 0), newer.floor.get(unit, 0)) for unit in units}
    return Decision(older.at, newer.need, larger, newer.proposal)


def without_outdated(state: ManagerState) -> ManagerState:
    """Forget what actions brought at an offered rate that is no longer the present one."""
    if not (state.refused or state.small_gains):
        return state
    offered = offered_rate(state.measured)
    if state.refused and _differs(offered, state.refused.offered):
        state = replace(state, refused=None)
    if state.small_gains and _differs(offered, state.small_gain_offered):
        state = replace(state, small_gains=0)
    return state


def _differs(offered: float, known: float) -> bool:
    return abs(offered - known) > MATERIAL_CHANGE * known
