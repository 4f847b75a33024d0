"""Guardrails: each lets a proposed size pass, limits it, or rejects it with a reason.

Where an application has several units (one parallelism for each operator), a guardrail works unit by unit and
keeps what is held for the units it objects to; it rejects only when nothing of the change is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, TypeAlias

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.history import ManagerState
from penstock.decide.policy import HELD_UTILISATION, UTILISATION, ExpectedEffect, Scale
from penstock.decide.verdict import Rejected


@dataclass(frozen=True, slots=True)
class Situation:
    """What a guardrail may look at."""

    now: float
    window: ApplicationWindow
    history: ManagerState
    behind: bool

    @property
    def held(self) -> Mapping[str, int]:
        """Parallelism held now."""
        return self.window.parallelism


@dataclass(frozen=True, slots=True)
class Limited:
    """The change may go on with this size, for the noted reason."""

    scale: Scale
    note: str


Opinion: TypeAlias = Scale | Limited | Rejected


class Guardrail(Protocol):
    """One rule; pure."""

    @property
    def name(self) -> str:
        """How the rule is called in verdicts, logs and the journal."""

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Pass the change on, limit it, or reject it."""


COSTS_NOTHING = 1.05
"""Batches that get longer by less than this are as good as unchanged: predictions are no better than that."""


class UtilisationBand:
    """No change while the held size would be used within [low, 1) and the backlog does not grow.

    Utilisation is the share of its period that a batch takes. Slots for which there are no tasks do not
    shorten a batch, so it says nothing against giving them up: a reduction that costs no time passes.
    """

    name = "utilisation-band"

    def __init__(self, low: float, aimed_at: float) -> None:
        self.low = low
        self.aimed_at = aimed_at

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep units inside the band."""
        held = situation.held

        def reason() -> str:
            shown = _shown(self._predicted(scale, held))
            return f"predicted utilisation of what is held is {shown}, within [{self.low:g}, 1)"

        return _opinion(self.name, scale, held, self.left_of(scale, situation), reason)

    def left_of(self, scale: Scale, situation: Situation) -> Mapping[str, int]:
        """The sizes that the band lets pass: what is held for units inside it."""
        held = situation.held
        if situation.behind or self._costs_nothing(scale, held):
            return scale.parallelism
        predicted, low = self._predicted(scale, held), self.low
        return {
            unit: held[unit] if low <= predicted.get(unit, math.inf) < 1 else wanted
            for unit, wanted in scale.parallelism.items()
        }

    def _costs_nothing(self, scale: Scale, held: Mapping[str, int]) -> bool:
        """Whether less of the one unit there is would do the same work in the same time."""
        if len(scale.parallelism) != 1 or grows(scale, held):
            return False
        figures = scale.expected.figures
        after, now = figures.get(UTILISATION, math.inf), figures.get(HELD_UTILISATION, math.nan)
        return after <= now * COSTS_NOTHING

    def _predicted(self, scale: Scale, held: Mapping[str, int]) -> dict[str, float]:
        """The policy's own figure; else from the un-rounded need, which leaves the aimed-at headroom."""
        figure = scale.expected.figures.get(HELD_UTILISATION)
        if figure is not None and len(scale.parallelism) == 1:
            return dict.fromkeys(held, figure)
        exact, aimed_at = scale.exact, self.aimed_at
        return {
            unit: exact[unit] * aimed_at / count if unit in exact and count > 0 else math.inf
            for unit, count in held.items()
        }


class KeepUpFirst:
    """Nothing shrinks while the application falls behind, unless something else grows for it."""

    name = "falling-behind"

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Drop reductions while the backlog grows."""
        if not situation.behind or grows(scale, situation.held):
            return scale
        reason = "the application falls behind, so nothing is taken from it"
        return limit(self.name, scale, situation.held, lambda _, wanted, held: max(wanted, held), reason)


class NotAgain:
    """A size that was rolled back is not tried again until the offered rate changes materially."""

    name = "rolled-back"

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep units from reaching the refused size, or going beyond it."""
        refused = situation.history.refused
        if refused is None:
            return scale

        def avoided(unit: str, wanted: int, held: int) -> int:
            size, instead_of = refused.size.get(unit, held), refused.instead_of.get(unit, held)
            again = wanted >= size > instead_of if size > instead_of else wanted <= size < instead_of
            return held if again else wanted

        reason = f"{written(refused.size)} did worse than {written(refused.instead_of)} at this offered rate"
        return limit(self.name, scale, situation.held, avoided, reason)


class SmallGains:
    """After some growths in a row that brought little, no further growth until the load changes.

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
        return limit(self.name, scale, situation.held, lambda _, wanted, held: min(wanted, held), reason)


class ScaleDownDelay:
    """Less must have been asked for without a break for a while; the largest need of that time is kept."""

    name = "scale-down-delay"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Raise reductions to the largest need in the delay, or to what is held."""

        def delayed(unit: str, wanted: int, held: int) -> int:
            return wanted if wanted >= held else max(wanted, self._largest_need(unit, held, situation))

        reason = (
            f"a smaller size must have been proposed for {self.seconds:g} s; the largest need in it counts"
        )
        return limit(self.name, scale, situation.held, delayed, reason)

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
    """Changes by fewer than so many are noise; growth counts nevertheless while the backlog grows."""

    name = "minor-change"

    def __init__(self, below: int) -> None:
        self.below = below

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep units whose change is minor."""

        def major(_: str, wanted: int, held: int) -> int:
            needed = situation.behind and wanted > held
            return wanted if needed or abs(wanted - held) >= self.below else held

        return limit(
            self.name, scale, situation.held, major, f"a change by fewer than {self.below} is ignored"
        )


class LargestStepDown:
    """One action gives up at most this fraction of what is held, but may always give up one."""

    name = "largest-step-down"

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Raise reductions that are too large."""

        def stepped(_: str, wanted: int, held: int) -> int:
            return max(wanted, held - max(1, math.floor(held * self.fraction)))

        reason = f"one action gives up at most {self.fraction:.0%} of what is held"
        return limit(self.name, scale, situation.held, stepped, reason)


class Bounds:
    """Never fewer and never more than this, for each unit."""

    name = "bounds"

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Bring every unit into the bounds."""
        reason = f"at least {self.least} and at most {self.most} are allowed"
        bounded = {unit: min(max(n, self.least), self.most) for unit, n in scale.parallelism.items()}
        return _opinion(self.name, scale, situation.held, bounded, reason)


def limit(
    name: str,
    scale: Scale,
    held: Mapping[str, int],
    allowed: Callable[[str, int, int], int],
    told: str | Callable[[], str],
) -> Opinion:
    """Apply a rule to every unit that would change: the same change, a limited one, or a rejection."""
    return _opinion(name, scale, held, _changed(scale, held, allowed), told)


def _changed(
    scale: Scale, held: Mapping[str, int], allowed: Callable[[str, int, int], int]
) -> dict[str, int]:
    """What a rule leaves of a change; of most proposals few units change, and the rest need no question."""
    return {
        unit: wanted if wanted == (count := held.get(unit, 0)) else allowed(unit, wanted, count)
        for unit, wanted in scale.parallelism.items()
    }


def _opinion(
    name: str, scale: Scale, held: Mapping[str, int], sizes: Mapping[str, int], told: str | Callable[[], str]
) -> Opinion:
    """Sizes that a rule has left, as an opinion: a rejection when no change is left."""
    if sizes == scale.parallelism:
        return scale
    reason = told if isinstance(told, str) else told()
    if sizes == held or all(size == held.get(unit, 0) for unit, size in sizes.items()):
        return Rejected(name, f"{reason} (proposed {written(scale.parallelism)}, held {written(held)})")
    note = f"{name}: {reason} ({written(scale.parallelism)} became {written(sizes)})"
    return Limited(resized(scale, sizes), note)


def resized(scale: Scale, sizes: Mapping[str, int]) -> Scale:
    """The proposal with other sizes; figures that were predicted for the proposed ones are dropped."""
    if dict(sizes) == dict(scale.parallelism):
        return scale
    # what describes the load and the held size stays true, whatever size is chosen
    figures = {name: value for name, value in scale.expected.figures.items() if name == HELD_UTILISATION}
    summary = f"part of what was expected of {written(scale.parallelism)}: {scale.expected.summary}"
    return replace(scale, parallelism=dict(sizes), expected=ExpectedEffect(summary, figures))


def grows(scale: Scale, held: Mapping[str, int]) -> bool:
    """Whether any unit would get more than it holds."""
    return grows_to(scale.parallelism, held)


def grows_to(sizes: Mapping[str, int], held: Mapping[str, int]) -> bool:
    """Whether any of these sizes is more than is held."""
    return any(size > held.get(unit, 0) for unit, size in sizes.items())


def written(sizes: Mapping[str, int]) -> str:
    """Sizes as people read them; many units are cut short."""
    shown = [f"{unit} {size}" for unit, size in islice(sizes.items(), 4)]
    return ", ".join(shown + [f"and {len(sizes) - 4} more"] * (len(sizes) > 4))


def _shown(ratios: Mapping[str, float]) -> str:
    return " to ".join(f"{ratio:.2f}" for ratio in sorted({min(ratios.values()), max(ratios.values())}))
