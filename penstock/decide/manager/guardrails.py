"""Guardrails: each lets a proposed size pass, limits it, or rejects it with a reason.

Where an application has several units (one parallelism for each operator), a guardrail works unit by unit and
keeps what is held for the units it objects to; it rejects only when nothing of the change is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.manager.history import ManagerState
from penstock.decide.manager.proposals import apply_sizes, grows, write_sizes
from penstock.decide.manager.quiet import QuietSpan, find_quiet_seconds, tell_wait
from penstock.decide.policy import (
    HELD_LOAD,
    HELD_UTILISATION,
    IDLE_SECONDS,
    PLANNED_RISK,
    SEEN_EXECUTORS,
    UTILISATION,
    Scale,
)
from penstock.decide.verdict import Rejected


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a guardrail may look at."""

    now: float
    window: ApplicationWindow
    history: ManagerState
    behind: bool

    @property
    def held(self) -> Mapping[str, int]:
        """The parallelism held now."""
        return self.window.parallelism


@dataclass(frozen=True, slots=True)
class Limited:
    """A change that may go on with this size, for the noted reason."""

    scale: Scale
    note: str


Opinion: TypeAlias = Scale | Limited | Rejected


class Guardrail(Protocol):
    """One rule, which is pure."""

    @property
    def name(self) -> str:
        """The name of the rule in verdicts, logs and the journal."""

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Pass the change on, limit it, or reject it."""


COSTS_NOTHING = 1.1
"""Batches that get longer by less than this count as unchanged: predictions are hardly better than that."""


class NoChanges:
    """Rejects every change in periods that the user has set; also one that undoes another."""

    name = "no-changes"

    def __init__(self, spans: Sequence[QuietSpan]) -> None:
        self.spans = spans

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Reject the change while a period lasts."""
        if scale.parallelism == situation.held:
            return scale
        return self.object_to(situation.now, scale.reason) or scale

    def object_to(self, now: float, wanted_because: str) -> Rejected | None:
        """Say for how long nothing is changed; None outside of the periods."""
        quiet = find_quiet_seconds(self.spans, now)
        if quiet <= 0:
            return None
        told = f"nothing is changed for another {tell_wait(quiet)}; wanted because: {wanted_because}"
        return Rejected(self.name, told)


class UtilisationBand:
    """Rejects changes while the held size would be used within [low, 1) and the backlog does not grow.

    Utilisation is the share of what the held size carries that the offered rate uses. Slots for which there
    are no tasks do not shorten a batch, so it says nothing against giving them up: a reduction that costs no
    time passes.
    """

    name = "utilisation-band"

    def __init__(self, low: float, aimed_at: float) -> None:
        self.low = low
        self.aimed_at = aimed_at

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep units inside the band."""
        held = situation.held

        def reason() -> str:
            shown = _show_ratios(self._predict(scale, held))
            return f"predicted utilisation of what is held is {shown}, within [{self.low:g}, 1)"

        return _form_opinion(self.name, scale, held, self.apply_band(scale, situation), reason)

    def apply_band(self, scale: Scale, situation: Situation) -> Mapping[str, int]:
        """Return the sizes that the band lets pass: what is held for units inside it."""
        held = situation.held
        if situation.behind or self._costs_nothing(scale, held):
            return scale.parallelism
        predicted, low = self._predict(scale, held), self.low
        return {
            unit: held[unit] if low <= predicted.get(unit, math.inf) < 1 else wanted
            for unit, wanted in scale.parallelism.items()
        }

    def _costs_nothing(self, scale: Scale, held: Mapping[str, int]) -> bool:
        """Tell whether less of the only unit would do the same work in the same time."""
        if len(scale.parallelism) != 1 or grows(scale.parallelism, held):
            return False
        figures = scale.expected.figures
        after, now = figures.get(UTILISATION, math.inf), figures.get(HELD_UTILISATION, math.nan)
        return after <= now * COSTS_NOTHING

    def _predict(self, scale: Scale, held: Mapping[str, int]) -> dict[str, float]:
        """Return the policy's own figure, or one from the un-rounded need, which includes the headroom."""
        figures = scale.expected.figures
        figure = figures.get(HELD_LOAD, figures.get(HELD_UTILISATION))
        if figure is not None and len(scale.parallelism) == 1:
            return dict.fromkeys(held, figure)
        exact, aimed_at = scale.exact, self.aimed_at
        return {
            unit: exact[unit] * aimed_at / count if unit in exact and count > 0 else math.inf
            for unit, count in held.items()
        }


class KeepUpFirst:
    """Takes nothing away while the application falls behind, unless something else grows for it."""

    name = "falling-behind"

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Drop reductions while the backlog grows."""
        if not situation.behind or grows(scale.parallelism, situation.held):
            return scale
        reason = "the application falls behind, so nothing is taken from it"
        return limit_change(
            self.name, scale, situation.held, lambda _, wanted, held: max(wanted, held), reason
        )


class NotAgain:
    """Does not try a rolled-back size again until the offered rate changes materially."""

    name = "rolled-back"

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep units from reaching the refused size, or going beyond it."""
        refused = situation.history.refused
        if refused is None:
            return scale

        def avoid(unit: str, wanted: int, held: int) -> int:
            size, instead_of = refused.size.get(unit, held), refused.instead_of.get(unit, held)
            again = wanted >= size > instead_of if size > instead_of else wanted <= size < instead_of
            return held if again else wanted

        size, instead_of = write_sizes(refused.size), write_sizes(refused.instead_of)
        reason = f"{size} did worse than {instead_of} at this offered rate"
        return limit_change(self.name, scale, situation.held, avoid, reason)


class SmallGains:
    """Rejects growth after several growths in a row brought little, until the load changes.

    The application then has a problem that size does not cure, such as skew or a straggler (section 4.2.2).
    """

    name = "small-gain"

    def __init__(self, most: int) -> None:
        self.most = most

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Drop growth once the limit is reached."""
        history = situation.history
        if history.small_gains < self.most:
            return scale
        reason = f"the last {history.small_gains} growths brought little, so more of it would not help"
        return limit_change(
            self.name, scale, situation.held, lambda _, wanted, held: min(wanted, held), reason
        )


class ScaleDownDelay:
    """Shrinks only when less was asked for without a break for a while, to the largest need of that time."""

    name = "scale-down-delay"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Raise reductions to the largest need in the delay, or to what is held."""

        # sources that have offered nothing for as long show by themselves that nothing is needed
        if find_idle_seconds(scale) >= self.seconds or PLANNED_RISK in scale.expected.figures:
            return scale

        def delay(unit: str, wanted: int, held: int) -> int:
            return wanted if wanted >= held else max(wanted, self._largest_need(unit, held, situation))

        reason = (
            f"a smaller size must have been proposed for {self.seconds:g} s; the largest need in it counts"
        )
        return limit_change(self.name, scale, situation.held, delay, reason)

    def _largest_need(self, unit: str, held: int, situation: Situation) -> int:
        since = situation.now - self.seconds
        largest = 0
        for decision in reversed(situation.history.decisions):
            largest = max(largest, decision.floor.get(unit, held))
            if largest >= held:
                return held
            if decision.at <= since:
                return largest
        return held


class MinorChanges:
    """Ignores changes by fewer than so many as noise, but not growth while the backlog grows."""

    name = "minor-change"

    def __init__(self, below: int) -> None:
        self.below = below

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep units whose change is minor."""

        def major(_: str, wanted: int, held: int) -> int:
            needed = situation.behind and wanted > held
            return wanted if needed or abs(wanted - held) >= self.below else held

        return limit_change(
            self.name, scale, situation.held, major, f"a change by fewer than {self.below} is ignored"
        )


FAR = 2
"""Times the executors at which costs were seen that a single decision may ask for: beyond, it is a guess."""


class LargestStepUp:
    """Grows to at most so many times the executors held, and beyond evidence only as far as decisions agree.

    Where operators have instances of their own, DS2's sizes are proportions and are taken as they are; on
    slots costs change with the size.
    """

    name = "largest-step-up"

    def __init__(self, times: float) -> None:
        self.times = times

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Lower growth that is too large."""

        seen = scale.expected.figures.get(SEEN_EXECUTORS, math.inf)
        decisions = situation.history.decisions[-2:]

        def bound(unit: str, wanted: int, held: int) -> int:
            if unit != EXECUTORS or wanted <= held:
                return wanted
            asked = [need for one in decisions if (need := one.need.get(unit, held)) > held]
            known = max(held, max(seen, min(asked)) if len(asked) > 1 else FAR * seen)
            return int(min(wanted, known, max(held + 1, math.floor(held * self.times))))

        reason = (
            f"one action grows to at most {self.times:g} times what is held, and beyond the largest size "
            f"seen only as far as two decisions agree, or to {FAR} times that size by one"
        )
        return limit_change(self.name, scale, situation.held, bound, reason)


class LargestStepDown:
    """Gives up at most this fraction of what is held in one action, but always may give up one.

    An application without any input has nothing to lose, and gives up all at once.
    """

    name = "largest-step-down"

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Raise reductions that are too large."""
        if find_idle_seconds(scale) > 0:
            return scale

        def limit_step(_: str, wanted: int, held: int) -> int:
            return max(wanted, held - max(1, math.floor(held * self.fraction)))

        reason = f"one action gives up at most {self.fraction:.0%} of what is held"
        return limit_change(self.name, scale, situation.held, limit_step, reason)


def find_idle_seconds(scale: Scale) -> float:
    """Return for how long no source has offered anything, by the policy's own figure."""
    return scale.expected.figures.get(IDLE_SECONDS, 0.0)


class Bounds:
    """Allows never fewer and never more than this, for each unit."""

    name = "bounds"

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Bring every unit into the bounds."""
        reason = f"at least {self.least} and at most {self.most} are allowed"
        bounded = {unit: min(max(n, self.least), self.most) for unit, n in scale.parallelism.items()}
        return _form_opinion(self.name, scale, situation.held, bounded, reason)


def limit_change(
    name: str,
    scale: Scale,
    held: Mapping[str, int],
    allowed: Callable[[str, int, int], int],
    told: str | Callable[[], str],
) -> Opinion:
    """Apply a rule to every unit that would change: the same change, a limited one, or a rejection."""
    return _form_opinion(name, scale, held, _apply_rule(scale, held, allowed), told)


def _apply_rule(
    scale: Scale, held: Mapping[str, int], allowed: Callable[[str, int, int], int]
) -> dict[str, int]:
    """Apply a rule to the units that change, which in most proposals are few."""
    return {
        unit: wanted if wanted == (count := held.get(unit, 0)) else allowed(unit, wanted, count)
        for unit, wanted in scale.parallelism.items()
    }


def _form_opinion(
    name: str, scale: Scale, held: Mapping[str, int], sizes: Mapping[str, int], told: str | Callable[[], str]
) -> Opinion:
    """Make an opinion of the sizes that a rule has left: a rejection when no change is left."""
    if sizes == scale.parallelism:
        return scale
    reason = told if isinstance(told, str) else told()
    if sizes == held or all(size == held.get(unit, 0) for unit, size in sizes.items()):
        return Rejected(
            name, f"{reason} (proposed {write_sizes(scale.parallelism)}, held {write_sizes(held)})"
        )
    note = f"{name}: {reason} ({write_sizes(scale.parallelism)} became {write_sizes(sizes)})"
    return Limited(apply_sizes(scale, sizes), note)


def _show_ratios(ratios: Mapping[str, float]) -> str:
    return " to ".join(f"{ratio:.2f}" for ratio in sorted({min(ratios.values()), max(ratios.values())}))
