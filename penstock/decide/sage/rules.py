"""Sage's eight rules (section 4 and Table 1), each over many applications at once (pure).

A rule answers with its findings, the most urgent first: which applications show a symptom, what was measured
against which bound, and the value that follows. Increases are multiplicative (section 5); decreases go to
what the metrics justify in one step (section 4, safe scale-down). A forced rule decides without a symptom;
how much is still found from the metrics. What is not measured is NaN, and no comparison with NaN holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.sage import columns
from penstock.decide.sage.columns import Applications, Bools, Window
from penstock.decide.sage.metrics import Parameter, Rule, Symptom
from penstock.decide.sage.settings import MEBIBYTE, SINGLE_THREADED, SageSettings

COLLECTOR_THREADS = 8
"""Threads that collect garbage at once: as many as the host has cores up to here, and few more above."""


class Finding(NamedTuple):
    """One symptom of a rule, one row an application; a bound may be the same for all."""

    seen: Bools
    symptom: Symptom
    measured: Floats
    bound: Floats | float
    parameter: Parameter
    value: Floats
    """The new value of the parameter."""


@dataclass(frozen=True, slots=True)
class RoundView:
    """The input that the rules of one round share; `forced` says that they decide without a symptom."""

    apps: Applications
    settings: SageSettings
    recent: Window
    long: Window
    forced: bool = False

    def held(self, column: int) -> Floats:
        """Return what the applications hold of one thing."""
        return self.apps.held[:, column]

    def take(self, rows: Integers) -> RoundView:
        """Return the view of some of the applications."""
        recent, long = self.recent.take(rows), self.long.take(rows)
        return RoundView(self.apps.take(rows), self.settings, recent, long, self.forced)

    @property
    def slots(self) -> Floats:
        """Tasks that one executor runs at once."""
        return self.held(columns.CORES) // self.held(columns.TASK_CPUS)

    @property
    def unused(self) -> Symptom:
        """The symptom of a decrease."""
        return Symptom.FORCED if self.forced else Symptom.UNUSED


def view_of(apps: Applications, settings: SageSettings, forced: bool = False) -> RoundView:
    """Cut both sliding windows out of the histories; samples from before the last change are in neither."""
    recent = Window.since(apps, settings.up_window_seconds, settings.least_up_samples)
    long = Window.since(apps, settings.down_window_seconds, settings.least_down_samples)
    return RoundView(apps, settings, recent, long, forced)


def heap_up(view: RoundView) -> list[Finding]:
    """P1: upper bounds on heap use, GC time and GC frequency; also failures, spill and the driver's heap.

    The least heap use of the window counts: between two collections use always rises to the brim.
    """
    recent, settings, heap = view.recent, view.settings, view.held(columns.HEAP)
    larger = whole_mebibytes(heap * settings.heap_factor)
    failures = recent.total(recent.values("out_of_memory_count"))
    used = recent.least(recent.values("heap_used_bytes")) / heap
    # a JVM that has not taken the heap it may have collects for reasons that a larger one does not mend
    small = recent.most(recent.values("heap_committed_bytes")) < settings.heap_used_high * heap
    gc_share = _measure_rate(recent, "gc_seconds")
    share = np.where(small, np.nan, gc_share)
    per_minute = np.where(small, np.nan, _measure_rate(recent, "gc_count") * 60.0)
    signs: tuple[tuple[Symptom, Floats, float], ...] = (
        (Symptom.OUT_OF_MEMORY, failures, 0.0),
        (Symptom.HEAP_USED, used, settings.heap_used_high),
        (Symptom.GC_TIME, share, settings.gc_time_high),
        (Symptom.GC_COUNT, per_minute, settings.gc_per_minute_high),
    )
    found = [
        Finding(measured > bound, symptom, measured, bound, Parameter.HEAP, larger)
        for symptom, measured, bound in signs
    ]
    found += [*_find_spill(view, gc_share, larger), _find_full_driver(view)]
    return [*found, _find_force(view, found, Parameter.HEAP, larger)]


def _measure_rate(window: Window, name: str) -> Floats:
    """Return how much of a metric came up in a second of the window."""
    return window.total(window.values(name)) / window.total(window.values("seconds"))


def _find_spill(view: RoundView, gc_share: Floats, larger: Floats) -> list[Finding]:
    """Spill in every sample while GC is calm: first a larger share of the heap, then a larger heap."""
    settings = view.settings
    spilled = view.recent.least(view.recent.values("spilled_bytes"))
    seen = (gc_share <= settings.gc_time_high / 2) & (spilled > 0)
    share = view.held(columns.FRACTION) + settings.memory_fraction_step
    fits = share <= settings.most_memory_fraction + 1e-9
    return [
        Finding(seen & fits, Symptom.SPILL, spilled, 0.0, Parameter.MEMORY_FRACTION, share),
        Finding(seen & ~fits, Symptom.SPILL, spilled, 0.0, Parameter.HEAP, larger),
    ]


def _find_full_driver(view: RoundView) -> Finding:
    heap, bound = view.held(columns.DRIVER_HEAP), view.settings.heap_used_high
    used = view.recent.least(view.recent.values("driver_heap_used_bytes")) / heap
    grown = whole_mebibytes(heap * view.settings.heap_factor)
    return Finding(used > bound, Symptom.DRIVER_HEAP_USED, used, bound, Parameter.DRIVER_HEAP, grown)


def _find_force(view: RoundView, found: list[Finding], parameter: Parameter, value: Floats) -> Finding:
    """Return a forced increase where no symptom was found."""
    nothing = np.full(len(value), np.nan)
    seen = np.full(len(value), view.forced)
    for one in found:
        seen &= ~one.seen
    return Finding(seen, Symptom.FORCED, nothing, nothing, parameter, value)


def memory_up(view: RoundView) -> list[Finding]:
    """P2: what is resident beside the heap (native memory, RocksDB, Python workers) against the overhead.

    Heap and the rest are two settings on Spark, and the heap may fill up at any time: a full heap must not
    look like a full container, nor an empty one hide that the rest has outgrown its share. Only what is
    surely beside the heap asks for more: committed heap that was never touched takes nothing from the rest.
    """
    recent, overhead, high = view.recent, view.held(columns.OVERHEAD), view.settings.overhead_high
    killed = recent.total(recent.values("memory_kill_count"))
    beside = recent.most(recent.values("beside_heap_bytes"))
    used = np.where(overhead > 0, beside / overhead, np.where(beside > 0, np.inf, 0.0))
    used = np.where(recent.there, used, np.nan)
    grown, wanted, steady = _more_overhead(view)
    value = np.where(wanted > grown, wanted, grown)
    parameter = Parameter.OVERHEAD
    found = [
        Finding(killed > 0, Symptom.MEMORY_KILL, killed, 0.0, parameter, value),
        Finding(used > high, Symptom.OVERHEAD_USED, used, high, parameter, np.where(steady, wanted, value)),
    ]
    return [*found, _find_force(view, found, parameter, value)]


def _more_overhead(view: RoundView) -> tuple[Floats, Floats, Bools]:
    """Return what the factor gives, what is likely resident with its headroom, and whether that will do.

    It will do where the same growth again would still fit. An executor that was killed had too little to
    show what it needs.
    """
    recent, settings, least = view.recent, view.settings, view.settings.least_overhead_bytes
    grown = whole_mebibytes(np.maximum(view.held(columns.OVERHEAD), least) * settings.overhead_factor)
    likely = recent.values("memory_used_bytes") - recent.values("heap_committed_bytes")
    likely = np.maximum(likely, recent.values("beside_heap_bytes"))
    most = recent.most(likely)
    wanted = whole_mebibytes(np.maximum(most / settings.overhead_target, least))
    growth = recent.last(likely) - recent.first(likely)
    return grown, wanted, most + growth <= settings.overhead_high * wanted


def cpu_up(view: RoundView) -> list[Finding]:
    """P3: CPU use that never falls below the bound; each slot gets more cores, the slots stay as many.

    The bound is above all that is held: a slot whose task has a thread for each of its cores is busy, and
    lacks nothing. Only threads beyond that could use another core, and no slot gets more than it uses.
    """
    recent, cpus, bound = view.recent, view.held(columns.TASK_CPUS), view.settings.cpu_high
    grown = np.maximum(cpus + 1, np.ceil(cpus * view.settings.cpu_factor))
    used = recent.values("cpu_used_cores")
    # collectors are threads beside the tasks, and busy while these stand still
    collecting = COLLECTOR_THREADS * np.nan_to_num(_measure_rate(recent, "gc_seconds"))
    share = (recent.least(used) - collecting) / view.held(columns.CORES)
    usable = np.minimum(grown, np.ceil(recent.most(used) / view.slots))
    starved = share > bound
    forced = np.full(len(share), view.forced) & ~starved
    return [
        Finding(starved, Symptom.CPU_USED, share, bound, Parameter.CPU, usable),
        Finding(forced, Symptom.FORCED, share, bound, Parameter.CPU, grown),
    ]


def parallelism_up(view: RoundView) -> list[Finding]:
    """P4: a backlog that grows from sample to sample; how much more is what the DS2 calculation says."""
    recent, growth = _backlog(view)
    needed = recent.last(recent.values("needed_parallelism"))
    more, bound = needed > view.held(columns.PARALLELISM), view.settings.least_backlog_growth
    grows = growth >= bound
    forced = np.full(len(grows), view.forced) & ~grows
    value, parameter = np.floor(needed), Parameter.PARALLELISM
    return [
        Finding(more & grows, Symptom.BACKLOG_GROWS, growth, bound, parameter, value),
        Finding(more & forced, Symptom.FORCED, growth, bound, parameter, value),
    ]


def _backlog(view: RoundView) -> tuple[Window, Floats]:
    """Return the samples whose need is known, and by how much the backlog grew in them."""
    recent = view.recent.where_measured(view.settings.least_up_samples, "needed_parallelism")
    return recent, recent.growth(recent.values("backlog_records"))


def is_growing(view: RoundView) -> Bools:
    """Return whether P4 sees its symptom."""
    growing: Bools = _backlog(view)[1] >= view.settings.least_backlog_growth
    return growing


def follows_service(view: RoundView) -> Bools:
    """Return whether a remote service explains the backlog; then parallelism would not help (section 3)."""
    follows: Bools = view.apps.known[:, columns.CORRELATION] >= view.settings.correlation_threshold
    return follows


def parallelism_down(view: RoundView) -> list[Finding]:
    """P5: nothing waits, and the largest need of the long window is below what is held: straight to it."""
    long = view.long.where_measured(view.settings.least_down_samples, "needed_parallelism")
    held, needed = view.held(columns.PARALLELISM), long.most(long.values("needed_parallelism"))
    drained = long.values("offered_per_second") * view.settings.drained_seconds
    calm = (~long.taken | (long.values("backlog_records") <= drained)).all(axis=1) | view.forced
    seen = (needed >= 1) & calm & _is_worth_it(view, held, needed, np.zeros(len(held)))
    return [Finding(seen, view.unused, needed, held, Parameter.PARALLELISM, np.floor(needed))]


def heap_down(view: RoundView) -> list[Finding]:
    """P6: down to the largest committed heap, which the JVM has judged enough for what lives and for GC.

    Never to where P1 would meet one of its bounds on the same metrics, nor below what Spark starts with, and
    not after spill or a failure for want of heap. Nor does it go on from where it arrived before. As for P1,
    use counts only where it lasts: between two collections it rises to the brim of what is committed. Each
    metric counts in all samples in which it was measured, whatever was lost of the others.
    """
    settings, held, known = view.settings, view.held(columns.HEAP), view.apps.known
    least = settings.least_down_samples
    short = view.long.came_up(view.long.values("out_of_memory_count"))
    short |= view.long.came_up(view.long.values("spilled_bytes"))
    long = view.long.where_measured(least, "heap_committed_bytes", "heap_used_bytes")
    committed = long.most(long.values("heap_committed_bytes"))
    long = view.long.where_measured(least, "heap_used_bytes")
    lasts = long.lasting(long.values("heap_used_bytes"), settings.least_up_samples)
    wanted = np.maximum(whole_mebibytes(committed), whole_mebibytes(lasts / settings.heap_used_high))
    wanted = np.maximum(wanted, whole_mebibytes(settings.least_heap_bytes))
    seen = ~short & ~(held <= known[:, columns.LOWERED_HEAP])
    seen &= _is_worth_it(view, held, wanted, known[:, columns.SMALL_HEAP])
    # few are left, and it takes longest
    rows = np.flatnonzero(seen)
    seen[rows] = _collects_calmly(view.take(rows))
    return [Finding(seen, view.unused, committed, held, Parameter.HEAP, wanted)]


def _collects_calmly(view: RoundView) -> Bools:
    """Return whether P1 would have met no bound on collections in the long window, had it looked.

    A smaller heap takes more of the time, so that this is also to be below half of P1's bound on average.
    """
    settings, calm = view.settings, np.ones(len(view.apps.now), dtype=np.bool_)
    bounds = (("gc_seconds", 1.0, settings.gc_time_high), ("gc_count", 60.0, settings.gc_per_minute_high))
    for name, unit, bound in bounds:
        long = view.long.where_measured(settings.least_down_samples, name)
        # what was never measured is not calm
        calm &= long.busiest(long.values(name), settings.least_up_samples) * unit <= bound
        calm &= ~(_measure_rate(view.recent, name) * unit > bound)
    timed = view.long.where_measured(settings.least_down_samples, "gc_seconds")
    return calm & ~(_measure_rate(timed, "gc_seconds") > settings.gc_time_high / 2)


def memory_down(view: RoundView) -> list[Finding]:
    """P7: down to the likely resident size, for which committed heap counts as resident."""
    settings, held = view.settings, view.held(columns.OVERHEAD)
    killed = view.long.came_up(view.long.values("memory_kill_count"))
    long = view.long.where_measured(settings.least_down_samples, "memory_used_bytes")
    beside = likely_beside_heap(
        *(long.values(name) for name in ("memory_used_bytes", "heap_committed_bytes", "heap_used_bytes"))
    )
    likely = long.most(beside)
    wanted = whole_mebibytes(likely / settings.overhead_target)
    wanted = np.maximum(wanted, whole_mebibytes(settings.least_overhead_bytes))
    seen = ~killed & _is_worth_it(view, held, wanted, view.apps.known[:, columns.SMALL_OVERHEAD])
    return [Finding(seen, view.unused, likely, held, Parameter.OVERHEAD, wanted)]


def likely_beside_heap(resident: Floats, committed: Floats, used: Floats) -> Floats:
    """Return the resident bytes outside the heap, assuming that committed heap is resident.

    Untouched pages can make the resident size smaller than the committed heap; then only the used part of
    the heap is taken off, which errs on the safe side.
    """
    return np.maximum(resident - np.where(resident < committed, used, committed), 0.0)


def cpu_down(view: RoundView) -> list[Finding]:
    """P8: down to the cores per task that the largest CPU use needs; the slots stay as many."""
    long = view.long.where_measured(view.settings.least_down_samples, "cpu_used_cores")
    used = long.most(long.values("cpu_used_cores"))
    needed = find_cores_per_task(used, view.slots, view.settings)
    seen = _is_worth_it(view, view.held(columns.TASK_CPUS), needed, view.apps.known[:, columns.SMALL_CPUS])
    return [Finding(seen, view.unused, used, view.held(columns.CORES), Parameter.CPU, needed)]


def find_cores_per_task(used: Floats, slots: Floats, settings: SageSettings) -> Floats:
    """Return the cores that each slot needs: one for tasks of a single thread, else what they use and more.

    A task of one thread cannot use the headroom that others get. NaN stays NaN.
    """
    each = used / slots
    needed: Floats = np.where(each <= SINGLE_THREADED, 1.0, np.ceil(each / settings.cpu_target))
    return needed


RULES: Mapping[Rule, Callable[[RoundView], list[Finding]]] = {
    Rule.HEAP_UP: heap_up,
    Rule.MEMORY_UP: memory_up,
    Rule.CPU_UP: cpu_up,
    Rule.PARALLELISM_UP: parallelism_up,
    Rule.PARALLELISM_DOWN: parallelism_down,
    Rule.HEAP_DOWN: heap_down,
    Rule.MEMORY_DOWN: memory_down,
    Rule.CPU_DOWN: cpu_down,
}
"""In the order of priority of Table 1."""


def _is_worth_it(view: RoundView, held: Floats, wanted: Floats, too_small: Floats) -> Bools:
    """Return whether a decrease gives enough back, and does not go to where it was too small before."""
    gain = 0.0 if view.forced else view.settings.least_gain
    worth_it: Bools = (wanted < held) & (wanted <= held * (1.0 - gain)) & (wanted > too_small)
    return worth_it


def whole_mebibytes(size: Floats | float) -> Floats:
    """Round up to what Spark's memory settings can say; NaN stays NaN."""
    whole: Floats = np.ceil(size / MEBIBYTE) * MEBIBYTE
    return whole
