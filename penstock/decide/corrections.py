"""What the manager itself proposes: more where measurements miss a cost, and back where a change did harm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.guardrails import Situation, grows, written
from penstock.decide.history import Trial
from penstock.decide.policy import ExpectedEffect, Scale
from penstock.decide.pressure import Measured, falling_behind, observed_rate, offered_rate, rate_ratio


class Judgement(Enum):
    """What an action turned out to be."""

    GOOD = "good"
    LITTLE = "little"
    WORSE = "worse"
    NOT_COMPARABLE = "not comparable"


def corrected_for_missed_costs(
    scale: Scale, situation: Situation, most_ratio: float, idle_below: float
) -> Scale | None:
    """Multiply the need by offered over observed rate (target rate ratio, DS2 section 4.2.1), if it applies.

    It applies when no considered decision asks for growth and yet the application falls behind by more than
    the ratio in every considered window.
    Batches that leave most of their period idle while a backlog grows are short because the source is read
    with a limit for each batch; no executor would change that.
    """
    considered, held = situation.history.measured, situation.held
    if not situation.behind or any(rate_ratio([one]) <= most_ratio for one in considered):
        return None
    if any(one.busy is not None and one.busy < idle_below for one in considered):
        return None
    ratio = rate_ratio(considered)
    fixed = _fixed_units(situation.window)
    sizes = {
        unit: held[unit] if unit in fixed else max(held[unit], math.ceil(size * ratio))
        for unit, size in scale.parallelism.items()
    }
    if sizes == dict(held):
        return None
    reason = f"offered is {ratio:.2f} times observed though the policy asks for no growth: costs are missed"
    return Scale(sizes, reason, ExpectedEffect("the observed rate reaches the offered one"))


def judged(
    trial: Trial, held: Mapping[str, int], after: Sequence[Measured], worse_by: float, small_gain: float
) -> Judgement:
    """Compare the windows after an action with those before it.

    Worse means that throughput fell although the load did not, or that a smaller application no longer keeps
    up. One that is busier and keeps up is what was wanted. A load that grew meanwhile, or a size that
    something else changed, proves nothing; nor does a backlog that a larger application has yet to work off.
    """
    before = trial.measured_before
    if not before or dict(held) != dict(trial.action.parallelism):
        return Judgement.NOT_COMPARABLE
    if not falling_behind(after):
        return Judgement.GOOD
    if offered_rate(after) > offered_rate(before) * (1 + worse_by):
        return Judgement.NOT_COMPARABLE
    grew = grows(trial.action, trial.before)
    stopped = not grew and _stopped_keeping_up(before, after, worse_by)
    if stopped or _lost_throughput(before, after, worse_by):
        return Judgement.WORSE
    gained = observed_rate(after) - observed_rate(before)
    brought_little = grew and gained < small_gain * observed_rate(before)
    return Judgement.LITTLE if brought_little else Judgement.GOOD


def back(trial: Trial) -> Scale:
    """Undo an action."""
    size, previous = written(trial.action.parallelism), written(trial.before)
    reason = f"after the change from {previous} to {size} the application does worse: back to {previous}"
    return Scale(dict(trial.before), reason, ExpectedEffect("as it was before the change"))


def _fixed_units(window: ApplicationWindow) -> set[str]:
    """Sources, which follow the outside world, and operators that do not gain from more instances."""
    return {
        operator.name
        for query in window.queries
        for operator in query.graph.operators
        if not operator.scalable or operator.name in query.graph.sources
    }


def _stopped_keeping_up(before: Sequence[Measured], after: Sequence[Measured], worse_by: float) -> bool:
    return not falling_behind(before) and falling_behind(after, worse_by)


def _lost_throughput(before: Sequence[Measured], after: Sequence[Measured], worse_by: float) -> bool:
    same_load = offered_rate(after) >= offered_rate(before) * (1 - worse_by / 2)
    return same_load and observed_rate(after) < observed_rate(before) * (1 - worse_by)
