"""Changes that the manager makes of decisions: several as one, more for missed costs, and back after harm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.propagation import round_up
from penstock.dataflow.rates import SATURATED, UnevenLoad, find_uneven_loads
from penstock.dataflow.window import OperatorQuery, SlotWindow
from penstock.decide.manager.guardrails import Situation
from penstock.decide.manager.history import (
    MATERIAL_CHANGE,
    Decision,
    LoadSample,
    Trial,
    falls_short,
    fell_behind,
    find_rate_ratio,
    find_source_ratio,
    is_falling_behind,
    list_growing,
    mean_observed,
    mean_offered,
)
from penstock.decide.manager.proposals import apply_sizes, grows, write_sizes
from penstock.decide.manager.settings import Statistic
from penstock.decide.policy import ExpectedEffect, Hold, Scale
from penstock.decide.readings import measure_busy
from penstock.decide.verdict import Accepted, NothingToDo, Verdict, strip_figures


class Judgement(Enum):
    """The outcome of an action on trial."""

    GOOD = "good"
    LITTLE = "little"
    WORSE = "worse"
    NOT_COMPARABLE = "not comparable"


def combine_needs(
    decisions: Sequence[Decision], held: Mapping[str, int], statistic: Statistic
) -> dict[str, int]:
    """Return the median or the maximum of the decisions for each unit (activation, DS2 section 4.2.1)."""
    needs = [decision.need for decision in decisions]
    if all(need == needs[0] for need in needs) and needs[0].keys() == held.keys():
        return dict(needs[0])
    combined = {}
    for unit, size in held.items():
        asked = sorted([need.get(unit, size) for need in needs])
        same = asked[0] == asked[-1] or statistic is Statistic.MAXIMUM
        combined[unit] = asked[-1] if same else _median(asked, size)
    return combined


def combine_decisions(
    decisions: Sequence[Decision], sizes: Mapping[str, int], held: Mapping[str, int]
) -> Scale:
    """Make one change to the combined size, in the words of the last decision that asked for just that."""
    exactly = [decision.proposal for decision in decisions if decision.need == sizes]
    if exactly:
        return name_every_unit(exactly[-1], sizes)
    if sizes == held:
        return name_every_unit(
            Hold(f"the last {len(decisions)} decisions, taken together, ask for what is held"), sizes
        )
    scales = [decision for decision in decisions if isinstance(decision.proposal, Scale)]
    last = scales[-1]
    return apply_sizes(name_every_unit(last.proposal, last.need), sizes)


def name_every_unit(proposal: Hold | Scale, sizes: Mapping[str, int]) -> Scale:
    """Make a change that names every unit."""
    if isinstance(proposal, Hold):
        return Scale(dict(sizes), proposal.reason, ExpectedEffect("no change", proposal.figures))
    return Scale(dict(sizes), proposal.reason, proposal.expected, proposal.exact)


IDLE_SLOTS = 0.5
"""The share of the slots' time that tasks take at least where more slots would help."""


def correct_missed_costs(scale: Scale, situation: Situation, most_ratio: float, idle_below: float) -> Scale:
    """Multiply the need of what binds by offered over observed rate (target rate ratio, DS2 section 4.2.1).

    It applies when no considered decision asks for growth and yet the application falls behind by more than
    the ratio in every considered window. An operator that a single instance holds back is left alone, and so
    is everything once a growth has brought little: it is not costs that are missed then.
    Batches that leave most of their period idle while a backlog grows are short because the source is read
    with a limit for each batch; no executor would change that. Nor would it where tasks leave most slots
    idle while a batch runs, which waits for one of them, or for the driver.
    """
    considered, held = situation.history.measured, situation.held
    if not situation.behind or situation.history.small_gains:
        return scale
    if any(find_rate_ratio([one]) <= most_ratio for one in considered):
        return scale
    if any(one.busy is not None and one.busy < idle_below for one in considered):
        return scale
    if isinstance(situation.window, SlotWindow) and _are_slots_idle(situation.window):
        return scale
    short = _find_binding_units(situation)
    sizes = {
        unit: max(held[unit], round_up(size * short.get(unit, 1.0)))
        for unit, size in scale.parallelism.items()
    }
    if sizes == dict(held):
        return scale
    ratio = max(short.values())
    reason = f"offered is {ratio:.2f} times observed though the policy asks for no growth: costs are missed"
    return Scale(sizes, reason, ExpectedEffect("the observed rate reaches the offered one"))


def _are_slots_idle(window: SlotWindow) -> bool:
    """Tell whether tasks left most slots idle while batches ran; not so where none is known."""
    offered, taken = 0.0, 0.0
    for query in window.queries:
        known = [batch for batch in query.batches if batch.stages]
        # queries share the slots, so the time of the longest counts once
        offered = max(offered, sum(batch.seconds * batch.slots for batch in known))
        stages = [stage for batch in known for stage in batch.stages]
        taken += sum(float((stage.useful_seconds + stage.waiting_seconds).sum()) for stage in stages)
    return taken < IDLE_SLOTS * offered


def _find_binding_units(situation: Situation) -> dict[str, float]:
    """Find what holds the application back: unit → offered over observed rate."""
    history, window = situation.history.measured, situation.window
    if isinstance(window, SlotWindow):
        return dict.fromkeys(situation.held, find_rate_ratio(history))
    units: dict[str, float] = {}
    for query in window.queries:
        short = _find_shortfalls(query, history)
        if not short:
            continue
        ratio = max(short.values())
        binding = {name: own for name, own in short.items() if name in query.topics}
        hot = _list_hot_operators(query, ratio)
        if not binding:
            binding = dict.fromkeys(_list_saturated(query, situation.held, hot, ratio), ratio)
        left_alone = _fixed_operators(query.graph) | hot.keys()
        units |= {name: own for name, own in binding.items() if name not in left_alone}
    return units


def _find_shortfalls(query: OperatorQuery, history: Sequence[LoadSample]) -> dict[str, float]:
    """Find the inputs of a query whose backlog grows: name → offered over observed rate."""
    growing = list_growing(history)
    sources = {name: f"{query.query_id}/{name}" for name in query.readings}
    return {name: find_source_ratio(history, source) for name, source in sources.items() if source in growing}


def _list_saturated(
    query: OperatorQuery, held: Mapping[str, int], hot: Mapping[str, UnevenLoad], ratio: float
) -> list[str]:
    """List the operators all of whose instances work nearly all the time.

    Where costs are missed no operator seems to. Then those bind that work longest; one that would still work
    less than those do now, if the observed rate were the offered one, does not.
    """
    busy = dict(zip(query.graph.names, measure_busy(query.graph, query.metrics, held).tolist(), strict=True))
    even = {name: busy[name] for name in query.graph.fed if name not in hot}
    full = [name for name, share in even.items() if share >= SATURATED]
    if full or hot:
        return full
    most = max(even.values(), default=0.0)
    return [name for name, share in even.items() if share * ratio >= most]


def _list_hot_operators(query: OperatorQuery, ratio: float = 1.0) -> dict[str, UnevenLoad]:
    """List the operators whose busiest instance has no time left, now or at so many times the rate."""
    loads = find_uneven_loads(query.graph, query.metrics)
    return {name: load for name, load in loads.items() if load.busiest * ratio >= SATURATED}


def name_hot_operators(verdict: Verdict, situation: Situation) -> Verdict:
    """Add to a verdict, unless the policy has said so, which operators fall behind for a hot instance."""
    window = situation.window
    if not situation.behind or isinstance(window, SlotWindow):
        return verdict
    known = strip_figures(verdict.reason)
    # where nothing grows, what would be hot at the offered rate is what was left alone
    ratio = find_rate_ratio(situation.history.measured) if isinstance(verdict, NothingToDo) else 1.0
    hot = [str(load) for query in window.queries for load in _list_hot_operators(query, ratio).values()]
    unknown = tuple(text for text in hot if strip_figures(text) not in known)
    if not unknown:
        return verdict
    if isinstance(verdict, Accepted):
        return replace(verdict, notes=(*verdict.notes, *unknown))
    return replace(verdict, reason="; ".join((verdict.reason, *unknown)))


def judge_trial(
    trial: Trial, held: Mapping[str, int], after: Sequence[LoadSample], worse_by: float, small_gain: float
) -> Judgement:
    """Compare the windows after an action with those before it.

    Worse means that throughput fell although the load did not, or that a smaller application no longer keeps
    up. One that is busier and keeps up is what was wanted. A load that grew meanwhile, or a size that
    something else changed, proves nothing; nor does a backlog that a larger application has yet to work off.
    No size counts as worse than one at which the backlog grew: to go back there would cure nothing.
    """
    before = trial.measured_before
    if not before or dict(held) != dict(trial.action.parallelism):
        return Judgement.NOT_COMPARABLE
    if not is_falling_behind(after):
        return Judgement.GOOD
    if mean_offered(after) > mean_offered(before) * (1 + worse_by):
        return Judgement.NOT_COMPARABLE
    grew = grows(trial.action.parallelism, trial.before)
    stopped = not grew and _stopped_keeping_up(before, after, worse_by)
    if stopped or _lost_throughput(before, after, worse_by):
        no_way_back = Judgement.LITTLE if grew else Judgement.NOT_COMPARABLE
        return no_way_back if fell_behind(before) else Judgement.WORSE
    gained = mean_observed(after) - mean_observed(before)
    brought_little = grew and gained < small_gain * mean_observed(before)
    return Judgement.LITTLE if brought_little else Judgement.GOOD


def judge_early(trial: Trial, newest: LoadSample, small_gain: float) -> Judgement | None:
    """Judge a growth by one window, where that is clear; None where it may have brought little.

    A growth that follows at once would hide that: it begins a trial of its own before this one has ended.
    """
    before = trial.measured_before
    if not before or not grows(trial.action.parallelism, trial.before):
        return Judgement.NOT_COMPARABLE
    if newest.offered > mean_offered(before) * (1 + MATERIAL_CHANGE):
        return Judgement.NOT_COMPARABLE
    gained = newest.observed - mean_observed(before)
    has_helped = gained > 0 and gained >= small_gain * mean_observed(before)
    return Judgement.GOOD if has_helped or not falls_short(newest) else None


def undo_trial(trial: Trial) -> Scale:
    """Undo an action."""
    size, previous = write_sizes(trial.action.parallelism), write_sizes(trial.before)
    reason = f"after the change from {previous} to {size} the application does worse: back to {previous}"
    return Scale(dict(trial.before), reason, ExpectedEffect("as it was before the change"))


def _median(sizes: Sequence[int], held: int) -> int:
    """Take the larger of two middle sizes, unless only that one, maybe an outlier, asks for growth."""
    lower, upper = sizes[(len(sizes) - 1) // 2], sizes[len(sizes) // 2]
    return held if lower <= held < upper else upper


def _fixed_operators(graph: LogicalGraph) -> set[str]:
    """Find sources, which follow the outside world, and operators that gain nothing from more instances."""
    return {o.name for o in graph.operators if not o.scalable or o.name in graph.sources}


def _stopped_keeping_up(before: Sequence[LoadSample], after: Sequence[LoadSample], worse_by: float) -> bool:
    return not is_falling_behind(before) and is_falling_behind(after, worse_by)


def _lost_throughput(before: Sequence[LoadSample], after: Sequence[LoadSample], worse_by: float) -> bool:
    same_load = mean_offered(after) >= mean_offered(before) * (1 - worse_by / 2)
    return same_load and mean_observed(after) < mean_observed(before) * (1 - worse_by)
