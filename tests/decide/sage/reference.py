"""Sage's rules for one application, written plainly and slowly: what the rules over columns are checked by.

A rule answers with the decisions that it would take, the most urgent first, mostly none or one. Increases are
multiplicative (section 5); decreases go to what the metrics justify in one step (section 4, safe scaledown).
A forced rule decides without a symptom; how much is still found from the metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.sage.metrics import (
    HeldSize,
    Parameter,
    Rule,
    Sizing,
    SizingHistory,
    SizingInput,
    Symptom,
)
from penstock.decide.sage.rounds import NO_NEED, PINNED, SERVICE, UP_RULES, VETOED, SizingRound
from penstock.decide.sage.settings import MEBIBYTE, SageSettings

NAN = math.nan


@dataclass(frozen=True, slots=True)
class RoundView:
    """What the rules of one round share; a window is None where it holds too few samples."""

    given: SizingInput
    settings: SageSettings
    recent: SizingHistory | None
    long: SizingHistory | None
    forced: bool = False

    @property
    def held(self) -> HeldSize:
        return self.given.held


def view_of(given: SizingInput, settings: SageSettings) -> RoundView:
    """Cut both sliding windows out of the history; a sample from before the last action is in neither."""

    def window(seconds: float, least: int) -> SizingHistory | None:
        cut = given.history.within(max(given.now - seconds, given.fresh_after), given.now)
        return cut if len(cut.at) >= least else None

    recent = window(settings.up_window_seconds, settings.least_up_samples)
    long = window(settings.down_window_seconds, settings.least_down_samples)
    return RoundView(given, settings, recent, long)


def heap_up(view: RoundView) -> list[Sizing]:
    """P1: upper bounds on heap use, GC time and GC frequency; also failures, spill and the driver's heap."""
    held = view.held
    larger = replace(held, heap_bytes=whole_mebibytes(held.heap_bytes * view.settings.heap_factor))
    found = [
        Sizing(Rule.HEAP_UP, symptom, measured, bound, larger)
        for symptom, measured, bound in _heap_signs(view)
        if measured > bound
    ]
    found += [*_spill(view, larger), *_driver(view)]
    if view.forced and not found:
        found = [Sizing(Rule.HEAP_UP, Symptom.FORCED, NAN, NAN, larger)]
    return found


def memory_up(view: RoundView) -> list[Sizing]:
    """P2: what is resident beside the heap against the overhead."""
    signs = [sign for sign in _memory_signs(view) if sign[1] > sign[2]]
    signs += [(Symptom.FORCED, NAN, NAN)] if view.forced else []
    if not signs:
        return []
    symptom, measured, bound = signs[0]
    after = replace(view.held, overhead_bytes=_more_overhead(view, symptom))
    return [Sizing(Rule.MEMORY_UP, symptom, measured, bound, after)]


def cpu_up(view: RoundView) -> list[Sizing]:
    """P3: tasks that never use less than the bound, which is above all that they hold."""
    held, bound, recent = view.held, view.settings.cpu_high, view.recent
    grown = max(held.task_cpus + 1, math.ceil(held.task_cpus * view.settings.cpu_factor))
    used = NAN
    if recent is not None:
        share = _gc_share(recent)
        used = (_least(recent.cpu_used_cores) - 8 * (0.0 if math.isnan(share) else share)) / held.cores
        if used > bound:
            per_task = min(grown, math.ceil(_most(recent.cpu_used_cores) / held.slots))
            after = replace(held, task_cpus=per_task, cores=held.slots * per_task)
            return [Sizing(Rule.CPU_UP, Symptom.CPU_USED, used, bound, after)]
    after = replace(held, task_cpus=grown, cores=held.slots * grown)
    return [Sizing(Rule.CPU_UP, Symptom.FORCED, used, bound, after)] if view.forced else []


def parallelism_up(view: RoundView) -> list[Sizing]:
    """P4: a backlog that grows from sample to sample; how much more is what the DS2 calculation says."""
    recent = with_need(view.recent, view.settings.least_up_samples)
    if recent is None or not (growing(view) or view.forced):
        return []
    needed = float(recent.needed_parallelism[-1])
    if not needed > view.held.parallelism:
        return []
    symptom = Symptom.BACKLOG_GROWS if growing(view) else Symptom.FORCED
    growth, bound = backlog_growth(recent), view.settings.least_backlog_growth
    after = replace(view.held, parallelism=int(needed))
    return [Sizing(Rule.PARALLELISM_UP, symptom, growth, bound, after)]


def growing(view: RoundView) -> bool:
    recent = with_need(view.recent, view.settings.least_up_samples)
    return recent is not None and backlog_growth(recent) >= view.settings.least_backlog_growth


def with_need(window: SizingHistory | None, least: int) -> SizingHistory | None:
    """The samples whose need is known: while no batch ends, nothing is known of parallelism."""
    return measured(window, "needed_parallelism", least)


def measured(window: SizingHistory | None, column: str, least: int) -> SizingHistory | None:
    """The samples in which a column was measured, if they are enough: a late report silences no rule."""
    if window is None:
        return None
    known = window.where(~np.isnan(getattr(window, column)))
    return known if len(known.at) >= least else None


def follows_service(view: RoundView) -> bool:
    """Whether a remote service explains the backlog; then parallelism would not help (section 3)."""
    return view.given.service_correlation >= view.settings.correlation_threshold


def backlog_growth(recent: SizingHistory) -> float:
    """Records by which the backlog grew; NaN unless every sample has more than the one before."""
    backlog = recent.backlog_records
    return float(backlog[-1] - backlog[0]) if bool(np.all(np.diff(backlog) > 0)) else NAN


def parallelism_down(view: RoundView) -> list[Sizing]:
    """P5: nothing waits, and the largest need of the long window is below what is held: straight to it."""
    long, held = with_need(view.long, view.settings.least_down_samples), view.held
    if long is None:
        return []
    needed = _most(long.needed_parallelism)
    waiting = long.backlog_records > long.offered_per_second * view.settings.drained_seconds
    known = not bool(np.isnan(long.backlog_records + long.offered_per_second).any())
    if not (needed >= 1 and ((known and not bool(waiting.any())) or view.forced)):
        return []
    if not _worth_it(view, held.parallelism, needed, 0.0):
        return []
    after = replace(held, parallelism=int(needed))
    return [Sizing(Rule.PARALLELISM_DOWN, _unused(view), needed, float(held.parallelism), after)]


def heap_down(view: RoundView) -> list[Sizing]:
    """P6: down to the largest committed heap, unless heap was short of late or was lowered before."""
    held, long, least = view.held, view.long, view.settings.least_down_samples
    if long is None or _any(long.out_of_memory_count) or _any(long.spilled_bytes):
        return []
    use = measured(long, "heap_used_bytes", least)
    both = measured(use, "heap_committed_bytes", least)
    if use is None or both is None or not _calm(view):
        return []
    if held.heap_bytes <= view.given.too_small.lowered_heap_bytes:
        return []
    committed = _most(both.heap_committed_bytes)
    wanted = whole_mebibytes(committed)
    lasts = lasting(use.heap_used_bytes, view.settings.least_up_samples)
    room = whole_mebibytes(lasts / view.settings.heap_used_high)
    wanted = room if room > wanted else wanted
    floor = whole_mebibytes(view.settings.least_heap_bytes)
    wanted = floor if floor > wanted else wanted
    if not _worth_it(view, held.heap_bytes, wanted, view.given.too_small.heap_bytes):
        return []
    after = replace(held, heap_bytes=wanted)
    return [Sizing(Rule.HEAP_DOWN, _unused(view), committed, held.heap_bytes, after)]


def _calm(view: RoundView) -> bool:
    """Whether no few samples in a row, nor those of the short window, had more GC than P1 would bear."""
    settings = view.settings
    for column, bound in (("gc_seconds", settings.gc_time_high), ("gc_count", settings.gc_per_minute_high)):
        unit = 60.0 if column == "gc_count" else 1.0
        long = measured(view.long, column, settings.least_down_samples)
        if long is None:
            return False
        amounts, seconds = getattr(long, column), long.seconds
        width = min(settings.least_up_samples, len(amounts))
        for place in range(len(amounts) - width + 1):
            few = slice(place, place + width)
            if _total(amounts[few]) / _total(seconds[few]) * unit > bound:
                return False
        recent = view.recent
        if recent is not None and _total(getattr(recent, column)) / _total(recent.seconds) * unit > bound:
            return False
        if column == "gc_seconds" and _gc_share(long) > bound / 2:
            return False
    return True


def memory_down(view: RoundView) -> list[Sizing]:
    """P7: down to the likely resident size, for which committed heap counts as resident."""
    held, long = view.held, measured(view.long, "memory_used_bytes", view.settings.least_down_samples)
    if view.long is None or long is None or _any(view.long.memory_kill_count):
        return []
    likely = _most(likely_beside_heap(long))
    wanted = whole_mebibytes(likely / view.settings.overhead_target)
    least = whole_mebibytes(view.settings.least_overhead_bytes)
    wanted = least if least > wanted else wanted
    if not _worth_it(view, held.overhead_bytes, wanted, view.given.too_small.overhead_bytes):
        return []
    after = replace(held, overhead_bytes=wanted)
    return [Sizing(Rule.MEMORY_DOWN, _unused(view), likely, held.overhead_bytes, after)]


def likely_beside_heap(history: SizingHistory) -> Floats:
    """Resident bytes outside the heap, assuming that committed heap is resident."""
    resident, committed = history.memory_used_bytes, history.heap_committed_bytes
    beside = resident - np.where(resident < committed, history.heap_used_bytes, committed)
    return np.where(beside < 0, 0.0, beside)


def cpu_down(view: RoundView) -> list[Sizing]:
    """P8: down to the cores per task that the largest CPU use needs; the slots stay as many."""
    long, held = measured(view.long, "cpu_used_cores", view.settings.least_down_samples), view.held
    if long is None:
        return []
    used = _most(long.cpu_used_cores)
    needed = 1.0 if used / held.slots <= 1.05 else _ceiling(used / held.slots / view.settings.cpu_target)
    if not _worth_it(view, held.task_cpus, needed, float(view.given.too_small.task_cpus)):
        return []
    after = replace(held, task_cpus=int(needed), cores=held.slots * int(needed))
    return [Sizing(Rule.CPU_DOWN, _unused(view), used, float(held.cores), after)]


RULES: Mapping[Rule, Callable[[RoundView], list[Sizing]]] = dict(
    zip(
        list(Rule)[1:],
        (heap_up, memory_up, cpu_up, parallelism_up, parallelism_down, heap_down, memory_down, cpu_down),
        strict=True,
    )
)
"""In the order of priority of Table 1."""


def whole_mebibytes(size: float) -> float:
    return _ceiling(size / MEBIBYTE) * MEBIBYTE


def lasting(values: Floats, samples: int) -> float:
    """The largest value that so many samples in a row did not fall below; NaN where one was not measured."""
    rows = np.lib.stride_tricks.sliding_window_view(values, min(samples, len(values)))
    return float(np.max(np.min(rows, axis=1)))


def _heap_signs(view: RoundView) -> list[tuple[Symptom, float, float]]:
    """What asks for more heap, the surest sign first: symptom, measured, bound."""
    recent, settings = view.recent, view.settings
    if recent is None:
        return []
    used = _least(recent.heap_used_bytes) / view.held.heap_bytes
    grown = not _most(recent.heap_committed_bytes) < settings.heap_used_high * view.held.heap_bytes
    share = _gc_share(recent) if grown else NAN
    per_minute = _total(recent.gc_count) / _total(recent.seconds) * 60.0 if grown else NAN
    return [
        (Symptom.OUT_OF_MEMORY, _total(recent.out_of_memory_count), 0.0),
        (Symptom.HEAP_USED, used, settings.heap_used_high),
        (Symptom.GC_TIME, share, settings.gc_time_high),
        (Symptom.GC_COUNT, per_minute, settings.gc_per_minute_high),
    ]


def _spill(view: RoundView, larger: HeldSize) -> list[Sizing]:
    """Spill in every sample while GC is calm: first a larger share of the heap, then a larger heap."""
    recent, settings = view.recent, view.settings
    if recent is None or not _gc_share(recent) <= settings.gc_time_high / 2:
        return []
    spilled = _least(recent.spilled_bytes)
    share = view.held.memory_fraction + settings.memory_fraction_step
    fits = share <= settings.most_memory_fraction + 1e-9
    after = replace(view.held, memory_fraction=share) if fits else larger
    return [Sizing(Rule.HEAP_UP, Symptom.SPILL, spilled, 0.0, after)] if spilled > 0 else []


def _driver(view: RoundView) -> list[Sizing]:
    recent, held, bound = view.recent, view.held, view.settings.heap_used_high
    if recent is None:
        return []
    used = _least(recent.driver_heap_used_bytes) / held.driver_heap_bytes
    if not used > bound:
        return []
    grown = whole_mebibytes(held.driver_heap_bytes * view.settings.heap_factor)
    after = replace(held, driver_heap_bytes=grown)
    return [Sizing(Rule.HEAP_UP, Symptom.DRIVER_HEAP_USED, used, bound, after)]


def _memory_signs(view: RoundView) -> list[tuple[Symptom, float, float]]:
    recent, overhead = view.recent, view.held.overhead_bytes
    if recent is None:
        return []
    beside = _most(recent.beside_heap_bytes)
    used = beside / overhead if overhead > 0 else math.inf if beside > 0 else 0.0
    return [
        (Symptom.MEMORY_KILL, _total(recent.memory_kill_count), 0.0),
        (Symptom.OVERHEAD_USED, used, view.settings.overhead_high),
    ]


def _more_overhead(view: RoundView, symptom: Symptom) -> float:
    """What is likely resident with its headroom, if that is more than the factor gives, or will do."""
    settings, least = view.settings, view.settings.least_overhead_bytes
    grown = whole_mebibytes(max(view.held.overhead_bytes, least) * settings.overhead_factor)
    if view.recent is None:
        return grown
    likely = view.recent.memory_used_bytes - view.recent.heap_committed_bytes
    likely = np.maximum(likely, view.recent.beside_heap_bytes)
    most, growth = _most(likely), float(likely[-1] - likely[0])
    wanted = whole_mebibytes(max(most / settings.overhead_target, least))
    steady = most + growth <= settings.overhead_high * wanted
    return wanted if wanted > grown or (steady and symptom is Symptom.OVERHEAD_USED) else grown


def _gc_share(recent: SizingHistory) -> float:
    return _total(recent.gc_seconds) / _total(recent.seconds)


def _worth_it(view: RoundView, held: float, wanted: float, too_small: float) -> bool:
    """Whether a decrease gives enough back, and does not go to where it was too small before."""
    gain = 0.0 if view.forced else view.settings.least_gain
    return wanted < held and wanted <= held * (1.0 - gain) and wanted > too_small


def _unused(view: RoundView) -> Symptom:
    return Symptom.FORCED if view.forced else Symptom.UNUSED


def _ceiling(value: float) -> float:
    return value if math.isnan(value) else float(math.ceil(value))


def _any(counts: Floats) -> bool:
    return bool(np.any(counts > 0))


def _least(values: Floats) -> float:
    return float(np.min(values))


def _most(values: Floats) -> float:
    return float(np.max(values))


def _total(values: Iterable[float]) -> float:
    """Sum from the first to the last, as the columns do it: to the last bit."""
    total = 0.0
    for value in values:
        total += float(value)
    return total


def decide(given: SizingInput, settings: SageSettings) -> SizingRound:
    """Apply the rules in order until one decides; with an action in flight, none is applied."""
    if given.action_in_flight:
        return SizingRound(awaiting="the end of the action in flight")
    view = view_of(given, settings)
    forced = _forced(replace(view, forced=True)) if given.overrides.forced else SizingRound()
    if forced.decision is not None:
        return forced
    if view.recent is None and view.long is None:
        return SizingRound(awaiting="enough samples since the last change")
    held_back: list[tuple[Rule, int]] = []
    for rule in RULES:
        if rule not in UP_RULES and any(wanted in UP_RULES for wanted, _ in held_back):
            break
        answer = _one(view, rule)
        if isinstance(answer, Sizing):
            return SizingRound(answer, tuple(held_back))
        if answer:
            held_back.append((rule, answer))
    return SizingRound(held_back=tuple(held_back) or forced.held_back)


def _one(view: RoundView, rule: Rule) -> Sizing | int:
    """The decision of one rule, or why it was held back; 0 where it has nothing to say."""
    found = RULES[rule](view)
    if rule is Rule.PARALLELISM_UP and growing(view) and follows_service(view):
        return SERVICE
    if not found:
        return NO_NEED if rule is Rule.PARALLELISM_UP and growing(view) else 0
    if rule in view.given.overrides.vetoed:
        return VETOED
    free = [one for one in found if changed(view.held, one.after) not in view.given.overrides.pinned]
    return free[0] if free else PINNED


def _forced(view: RoundView) -> SizingRound:
    """An operator's force outranks vetoes and priorities; a pin, which names a value, outranks a force."""
    rule = view.given.overrides.forced
    found = RULES[rule](view)
    free = [one for one in found if changed(view.held, one.after) not in view.given.overrides.pinned]
    if free:
        return SizingRound(free[0])
    return SizingRound(held_back=((rule, PINNED),) if found else ())


def changed(before: HeldSize, after: HeldSize) -> Parameter:
    if after.parallelism != before.parallelism:
        return Parameter.PARALLELISM
    if after.heap_bytes != before.heap_bytes:
        return Parameter.HEAP
    if after.overhead_bytes != before.overhead_bytes:
        return Parameter.OVERHEAD
    if after.memory_fraction != before.memory_fraction:
        return Parameter.MEMORY_FRACTION
    return Parameter.CPU if after.task_cpus != before.task_cpus else Parameter.DRIVER_HEAP
