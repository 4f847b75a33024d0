"""Holds the least size whose risk of being short, before another one could be there, is below its level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.propagation import propagate_targets
from penstock.dataflow.rates import measure_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    OperatorQuery,
    OperatorWindow,
    SlotWindow,
)
from penstock.decide.ahead.demand import SourceDemand
from penstock.decide.ahead.plan import (
    GROW,
    HOLD,
    HOLD_SLOTS,
    SHRINK,
    URGENT,
    URGENT_SLOTS,
    Caution,
    ChangeClock,
    Look,
    Savings,
    choose_size,
    find_lot,
)
from penstock.decide.ahead.season import Season
from penstock.decide.ahead.settings import AheadSettings
from penstock.decide.ahead.units import Unit
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.forecast.rates import Break
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import (
    HELD_LOAD,
    HELD_UTILISATION,
    IDLE_SECONDS,
    PLANNED_RISK,
    ExpectedEffect,
    Hold,
    Proposal,
    Scale,
)
from penstock.decide.readings import (
    find_shared_operator,
    find_unheld_operator,
    find_unread_source,
    mark_unscalable,
    scale_units,
)

RATES = "rates of "
"""Keys of remembered seasons begin with this; the rest is the query and its source."""
MOST_SOURCES = 256
FULL = 0.92
"""The share of its period that a batch is sized to take: batches of the same size differ by as much."""
BATCH_ERROR = 0.03
"""Relative deviation of the costs of batches, beside what their scatter takes."""
LONGEST_CATCH_UP = 120.0
"""A backlog is worked off within this at the most: until then every record is late."""


def _figures(answer: Hold | Scale) -> Mapping[str, float]:
    return answer.figures if isinstance(answer, Hold) else answer.expected.figures


def _read_size(answer: Proposal | NotReady, held: int) -> int:
    """Return the executors that an answer asks for; what is no size asks for no change."""
    return answer.parallelism[EXECUTORS] if isinstance(answer, Scale) else held


class AheadPolicy:
    """Plans over the time that a change takes; growth and shrinking follow from the same sum."""

    name = "ahead"
    memory_kind = "ahead"

    def __init__(self, settings: AheadSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds, self._goals = settings, bounds, goals
        self._catch_up = min(goals.catch_up, LONGEST_CATCH_UP)
        full = goals.model_copy(update={"utilisation": FULL, "catch_up": self._catch_up})
        self._slots = SharedSlots(full)
        self._clock = ChangeClock(settings.first_delay)
        self._sources: dict[str, SourceDemand] = {}
        self._units: dict[str, Unit] = {}
        self._breaks: dict[str, Break] = {}
        self._shown: ApplicationWindow | None = None
        self._settled_from = -math.inf
        self._caution = Caution(settings.risk)

    def watch(self, window: ApplicationWindow) -> None:
        """Learn from a window about which nothing is asked: the load goes on while a size changes."""
        self._shown = window
        self._breaks.clear()
        for query in window.queries:
            if find_unread_source(query) is not None:
                continue
            for name in query.graph.sources:
                demand, rate = self._source(f"{query.name}/{name}"), query.sources[name].offered_per_second
                broken = demand.take(window.start, window.end, rate, self._clock.delay)
                if broken is not None:
                    self._breaks[f"{query.name}/{name}"] = broken
        if any(broken.ends for broken in self._breaks.values()):
            self._forget_times()
        if self._clock.look(window.end, window.parallelism):
            self._settled_from = window.end
        self._caution.look(self._is_short(window))

    def _forget_times(self) -> None:
        """Forget when what happened: times before and after a jump of the clock cannot be compared."""
        self._clock.forget()
        self._settled_from = -math.inf
        for unit in self._units.values():
            unit.savings, unit.held = Savings(), 0

    def _is_short(self, window: ApplicationWindow) -> bool:
        """Tell whether what is held takes less than is offered now, or a batch far outlasted its period."""
        if isinstance(window, SlotWindow):
            ended = [(query.period_seconds, batch) for query in window.queries for batch in query.batches]
            noise = self._units[EXECUTORS].cost.noise if EXECUTORS in self._units else 0.0
            return any(period and batch.seconds > period * (1 + 2 * noise) for period, batch in ended)
        level = sum(demand.trend.level for demand in self._sources.values())
        for name, held in window.parallelism.items():
            unit = self._units.get(name)
            if unit and unit.cost.readings and level * unit.per_offered * unit.cost.predict(held)[0] > held:
                return True
        return False

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Propose the least size that is safe until the size after it could be there."""
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        if not window.end > window.start:
            return NotReady("the window has no length", "a window of some seconds")
        if window is not self._shown:
            self.watch(window)
        for query in window.queries:
            unread = find_unread_source(query)
            if unread is not None and isinstance(window, OperatorWindow):
                return unread
        refused = next((broken for broken in self._breaks.values() if not broken.usable), None)
        if refused is not None:
            return NotReady(refused.reason, "another window")
        answer = self._size_slots(window) if isinstance(window, SlotWindow) else self._size_operators(window)
        if isinstance(answer, Scale):
            self._clock.ask(window.end, answer.parallelism)
        return answer

    def learned(self) -> dict[str, Mapping[str, Any]]:
        """Return the seasons, and the costs of batches, for a later run."""
        seasons = {
            f"{RATES}{key}": demand.season.to_plain()
            for key, demand in self._sources.items()
            if demand.season is not None
        }
        return {**self._slots.learned(), **seasons}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up both; what cannot be used is named."""
        useless: list[str] = []
        for key in (key for key in known if key.startswith(RATES)):
            season = self._source(key.removeprefix(RATES)).season
            try:
                if season is not None:
                    season.recall(known[key])
            except (KeyError, TypeError, ValueError) as error:
                useless.append(f"{key}: {error}")
        theirs = {key: body for key, body in known.items() if not key.startswith(RATES)}
        return (*useless, *self._slots.recall(theirs))

    def _source(self, key: str) -> SourceDemand:
        if key not in self._sources:
            length = self._settings.season
            self._sources[key] = SourceDemand(Season(length) if length is not None else None)
            while len(self._sources) > MOST_SOURCES:
                del self._sources[next(iter(self._sources))]
        return self._sources[key]

    def _unit(self, name: str, held: int, now: float) -> Unit:
        unit = self._units.setdefault(name, Unit())
        unit.hold(held, now, self._settings.price)
        return unit

    def _moments(self, window: ApplicationWindow, beyond: bool) -> list[float]:
        """List the moments that count: until the next decision could take effect, or the one after it.

        A size that is kept has to do until a decision an interval from now would be there; one that is taken
        now until the decision after it would be, which waits for a whole window of the new size.
        """
        span, delay = window.end - window.start, self._clock.delay
        last = 2 * delay + 2 * span if beyond else delay + span
        count = max(2, min(8, round(last / span)))
        return [window.end + last * step / count for step in range(1, count + 1)]

    def _rates(self, window: ApplicationWindow, look: Look, others: float, noise: float) -> dict[str, float]:
        """Return for each source the rate that is exceeded with the risk of this look only."""
        moments = self._moments(window, look.beyond)
        risk = min(0.4, self._settings.risk * look.times * self._caution.times)
        return {
            f"{query.name}/{name}": self._source(f"{query.name}/{name}").quantile(
                window.end, moments, risk, others, noise
            )
            for query in window.queries
            for name in query.graph.sources
        }

    def _size_slots(self, window: SlotWindow) -> Proposal | NotReady:
        """Ask DS2's model of batches about the rates ahead; what it would have changed is weighed here."""
        unread = next((one for query in window.queries if (one := find_unread_source(query))), None)
        if unread is not None:
            return self._slots.propose(window)
        executors = self._unit(EXECUTORS, window.parallelism.get(EXECUTORS, 1), window.end)
        for batch in (batch for query in window.queries for batch in query.batches if batch.settled):
            useful = sum(float(stage.useful_seconds.sum()) for stage in batch.stages)
            if batch.input_records > 0:
                executors.cost.take(batch.slots, useful / batch.input_records)
        held, noise = window.parallelism.get(EXECUTORS, 1), executors.cost.noise
        answer = self._ask_slots(window, noise, HOLD_SLOTS)
        if not isinstance(answer, Hold | Scale) or IDLE_SECONDS in _figures(answer):
            return answer
        wanted, before = _read_size(answer, held), executors.asked
        executors.asked = wanted
        if wanted > held >= before:
            wanted = max(held, min(wanted, _read_size(self._ask_slots(window, noise, URGENT_SLOTS), held)))
        alive = len(window.executors)
        return self._conclude(
            window, {EXECUTORS: wanted}, {EXECUTORS: max(0, held - alive)}, answer.reason, _figures(answer)
        )

    def _ask_slots(self, window: SlotWindow, noise: float, look: Look) -> Proposal | NotReady:
        """Ask DS2's model of batches for the size at the rates ahead; waves of tasks are lots already."""
        rates = self._rates(window, look, BATCH_ERROR, noise)
        queries = tuple(
            replace(
                query,
                sources={
                    name: replace(source, offered_per_second=rates.get(f"{query.name}/{name}", 0.0))
                    if source.offered_per_second > 0
                    else source
                    for name, source in query.sources.items()
                },
            )
            for query in window.queries
        )
        return self._slots.propose(replace(window, queries=queries))

    def _size_operators(self, window: OperatorWindow) -> Proposal | NotReady:
        mistakable = find_shared_operator(window)
        if mistakable is not None:
            return mistakable
        needs: dict[str, int] = {}
        dead: dict[str, int] = {}
        for query in window.queries:
            found = self._size_query(query, window, needs, dead)
            if found is not None:
                return found
        return self._conclude(window, needs, dead, self._tell(window), {})

    def _size_query(
        self, query: OperatorQuery, window: OperatorWindow, needs: dict[str, int], dead: dict[str, int]
    ) -> NotReady | None:
        """Add the need of each operator of a query, and how many of its instances do nothing."""
        graph = mark_unscalable(query.graph, self._goals.unscalable)
        rates = find_unheld_operator(graph, window.parallelism) or measure_rates(
            graph, query.metrics, window.parallelism
        )
        if isinstance(rates, NotReady):
            return rates
        self._learn_costs(graph, query.metrics, window, dead)
        scaled = [name for name, may in zip(graph.names, graph.scaled, strict=True) if may]
        others, noise = self._uncertainty(scaled, window)
        beside = {name: topic.overdue_records / self._catch_up for name, topic in query.topics.items()}
        waiting = {
            name: 0.0 if query.topics else query.sources[name].backlog_records / self._catch_up
            for name in graph.sources
        }
        found = []
        for look in (HOLD, URGENT, GROW, SHRINK):
            ahead = self._rates(window, look, others, noise)
            offered = {name: ahead[f"{query.name}/{name}"] + waiting[name] for name in graph.sources}
            found.append(propagate_targets(graph, rates, offered, beside))
        present = {name: query.sources[name].offered_per_second for name in graph.sources}
        offered_now, rising = sum(present.values()), self._find_rise()
        propagated = propagate_targets(graph, rates, present, {})
        for name, now, *targets in zip(graph.names, propagated, *found, strict=True):
            if name in scaled:
                unit, held = self._units[name], window.parallelism[name]
                sizes = (unit.cost.least_instances(one, self._bounds.most) for one in targets)
                hold, urgent, grow, shrink = sizes
                lot = find_lot(hold, rising, self._settings.price)
                needs[name] = choose_size(held, unit.asked, hold, urgent, grow, shrink, lot)
                unit.asked, unit.per_offered = hold, now / offered_now if offered_now > 0 else 0.0
        return None

    def _learn_costs(
        self, graph: LogicalGraph, metrics: MetricWindow, window: OperatorWindow, dead: dict[str, int]
    ) -> None:
        seconds = window.end - window.start
        for number, name in enumerate(graph.names):
            if not graph.upstream[number]:
                continue
            own = metrics.operator == number
            useful, records = metrics.useful_seconds[own], metrics.records_in[own]
            working = int((useful > 0).sum())
            unit = self._unit(name, window.parallelism[name], window.end)
            dead[name] = len(useful) - working if working else 0
            unit.deaths.look(seconds, dead[name])
            # new instances are slow at first, and would be taken for what all are
            if records.sum() > 0 and (window.start >= self._settled_from or not unit.cost.readings):
                unit.cost.take(max(1, working), float(useful.sum() / records.sum()))

    def _uncertainty(self, names: list[str], window: OperatorWindow) -> tuple[float, float]:
        """Return the largest relative deviation of a cost, and the least noise of a reading."""
        costs = [self._units[name].cost for name in names]
        held = [window.parallelism[name] for name in names]
        known = [cost.predict(count)[1] for cost, count in zip(costs, held, strict=True) if cost.readings]
        return max(known, default=0.0), min((cost.noise for cost in costs), default=0.0)

    def _conclude(
        self,
        window: ApplicationWindow,
        needs: Mapping[str, int],
        dead: Mapping[str, int],
        told: str,
        seen: Mapping[str, float],
    ) -> Proposal:
        """Grow for the risk at once; shrink to what has paid for itself."""
        sizes, risk = {}, self._settings.risk
        exposure = self._clock.delay + 2 * (window.end - window.start)
        for name, need in needs.items():
            held = window.parallelism[name]
            unit = self._unit(name, held, window.end)
            wanted = need + max(dead.get(name, 0), unit.deaths.spares(exposure, risk))
            wanted = self._bounds.clamp(wanted)
            unit.savings.note(window.end, wanted)
            price = self._settings.price * held
            paid = unit.savings.find_paid(window.end, unit.held_since, held, price, exposure)
            sizes[name] = wanted if wanted > held else paid
        figures = {PLANNED_RISK: risk, "change_seconds": self._clock.delay}
        changes = {name: size for name, size in sizes.items() if size != window.parallelism[name]}
        if not changes:
            return Hold(told, {**seen, **figures})
        # the band judges by these
        figures |= {key: value for key, value in seen.items() if key not in {HELD_LOAD, HELD_UTILISATION}}
        moves = ", ".join(f"{name} {window.parallelism[name]} → {size}" for name, size in changes.items())
        effect = ExpectedEffect(f"short with a risk of {risk:.1%} at most", figures)
        return scale_units(window, changes, f"{moves}: {told}", effect)

    def _find_rise(self) -> float:
        """Return by which share of itself the load grows in a second; nothing where it falls."""
        trends = [demand.trend for demand in self._sources.values()]
        level, slope = sum(one.level for one in trends), sum(one.slope for one in trends)
        return max(0.0, slope) / max(level, 1e-9)

    def _tell(self, window: OperatorWindow) -> str:
        keys = [f"{query.name}/{name}" for query in window.queries for name in query.graph.sources]
        trends = [self._source(key).trend for key in keys]
        level, slope = sum(one.level for one in trends), sum(one.slope for one in trends)
        anew = sorted({f"{broken.reason}, so the trend begins anew" for broken in self._breaks.values()})
        asides = "; ".join(anew)
        told = f"{level:,.0f}/s now, {60 * slope:+,.0f}/s a minute, changes take {self._clock.delay:.0f} s"
        return f"{told}; {asides}" if asides else told
