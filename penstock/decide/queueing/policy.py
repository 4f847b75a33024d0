"""The queueing policy: the fewest instances that meet a latency target.

Elastic Pulsar Functions (Auto-DaSP 2021), section 4.2.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, SlotWindow
from penstock.decide.autrascale.search import ChangeBudget
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.lost import LostInstances, add_lost
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.queueing.plan import (
    Queue,
    SizePlan,
    judge_sizes,
    plan_operator,
    plan_paths,
    time_in_batches,
)
from penstock.decide.queueing.queues import (
    QueryLoad,
    Station,
    Variation,
    list_services,
    read_loads,
    utilisation,
)
from penstock.decide.queueing.settings import QueueingSettings
from penstock.decide.queueing.slots import THROUGHPUT_SLOTS, QueueingSlots
from penstock.decide.readings import scale_units

KEPT_CORRECTIONS = 5
"""Windows whose measured response times correct the model: enough against outliers, few enough to follow."""

BEHIND = 2.0
"""Times the response time of the model: with more to read than comes in that time it is not at rest."""


class QueueingPolicy:
    """Models operators as GI/G/k queues, and learns the variation of their arrivals and services."""

    name = "queueing"

    def __init__(self, settings: QueueingSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds, self._goals = settings, bounds, goals
        self._slots = QueueingSlots(settings, bounds, goals)
        self._variations: dict[str, Variation] = {}
        self._corrections: dict[str, Correction] = {}
        self._seen_until = -math.inf
        self._budget = LatencyBudget(settings.changes_per_hour)
        self._lost = LostInstances()

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Plan sizes that meet the targets, by the execution model of the application."""
        if self._goals.latency_target is None and not self._settings.operator_targets:
            return NotReady("no latency target is set", "the setting latency_target")
        if isinstance(window, SlotWindow):
            answer = self._slots.propose(window)
            return self._budget.apply(window, answer, urgent=_lacks_slots(window, answer))
        living, lost = self._lost.leave_out(window)
        loads = read_loads(living, self._goals.unscalable, self._goals.catch_up)
        if isinstance(loads, NotReady):
            return loads
        self._learn(living, loads)
        planned = self._make_proposal(living, loads, [self._plan(load) for load in loads])
        return self._budget.apply(window, add_lost(planned, lost), urgent=self._lacks_instances(loads))

    def _lacks_instances(self, loads: tuple[QueryLoad, ...]) -> bool:
        """Return whether some operator holds less than its rate needs with headroom, whatever the latency."""
        utilisation = self._goals.utilisation
        stations = [station for load in loads for station in load.stations.values() if station.scalable]
        return any(one.arrival > one.instances * one.service * utilisation for one in stations)

    def _learn(self, window: ApplicationWindow, loads: tuple[QueryLoad, ...]) -> None:
        if window.start < self._seen_until:
            return
        self._seen_until = window.end
        for load in loads:
            for station in load.stations.values():
                variation = self._variations.setdefault(station.name, Variation(self._settings.windows_kept))
                services = list_services(load.graph, load.query.metrics, station.name)
                variation.remember(station.fed, load.query.metrics.seconds, services)
                self._corrections.setdefault(station.name, Correction()).remember(station)

    def _plan(self, load: QueryLoad) -> SizePlan:
        """Plan operators with a target of their own first; paths take them as they are.

        Where paths have no target, the other operators get what their rate needs.
        """
        settings = self._settings
        sizes = {station.name: station.instances for station in load.stations.values()}
        queues = {name: self._queue(station) for name, station in load.stations.items()}
        for name, target in settings.operator_targets.items():
            if name in queues and load.stations[name].scalable:
                sizes[name] = plan_operator(queues[name], target)
                queues[name] = self._queue(load.stations[name], fixed_at=sizes[name])
        if self._goals.latency_target is not None:
            target = self._goals.latency_target
            return plan_paths(load.graph, queues, sizes, target, settings.scale_in_share)
        for name in queues.keys() - settings.operator_targets.keys():
            sizes[name] = queues[name].stable()
        return judge_sizes(load.graph, queues, sizes, settings.operator_targets)

    def _queue(self, station: Station, fixed_at: int | None = None) -> Queue:
        variation = self._variations.get(station.name, Variation())
        if not station.scalable:
            fixed_at = station.instances
        return Queue(
            name=station.name,
            instances=station.instances,
            arrival=station.arrival,
            service=station.service,
            arrival_variation=variation.of_arrivals,
            service_variation=variation.of_services,
            least=fixed_at or self._bounds.least,
            most=fixed_at or self._bounds.most,
            # a load that nobody can change is taken as it is, as long as it is bearable
            most_load=self._goals.utilisation if station.scalable else 1.0,
            batches=station.batches,
            correction=self._corrections.get(station.name, Correction()).seconds,
        )

    def _make_proposal(
        self, window: ApplicationWindow, loads: tuple[QueryLoad, ...], plans: list[SizePlan]
    ) -> Proposal:
        held = {name: station.instances for load in loads for name, station in load.stations.items()}
        wanted = {name: size for plan in plans for name, size in plan.sizes.items()}
        changes = {name: size for name, size in wanted.items() if size != held[name]}
        slowest = max(plans, key=lambda plan: plan.seconds)
        figures = _figures(loads, slowest, wanted)
        limits = [limit for plan in plans for limit in plan.limits]
        told = [_describe_path(slowest, self._goals.latency_target), *_describe_measured(loads), *limits]
        if not changes:
            return Hold("; ".join(told), figures)
        listed = ", ".join(f"{name} {held[name]} → {size}" for name, size in changes.items())
        effect = ExpectedEffect(told[0], figures)
        reason = "; ".join([f"to meet the latency target: {listed}", *told])
        return scale_units(window, changes, reason, effect, self._find_exact_needs(loads, plans))

    def _find_exact_needs(self, loads: tuple[QueryLoad, ...], plans: list[SizePlan]) -> dict[str, float]:
        """Return the exact need of operators that change for headroom, not for latency.

        The manager's utilisation band damps these; a size that the latency target needs must pass.
        """
        return {
            name: station.arrival / (station.service * self._goals.utilisation)
            for load, plan in zip(loads, plans, strict=True)
            for name, station in load.stations.items()
            if plan.held_suffices or plan.sizes[name] < station.instances
        }


def _lacks_slots(window: ApplicationWindow, answer: Proposal | NotReady) -> bool:
    figures = answer.expected.figures if isinstance(answer, Scale) else {}
    return figures.get(THROUGHPUT_SLOTS, 0.0) > window.slots


def _figures(loads: tuple[QueryLoad, ...], slowest: SizePlan, wanted: Mapping[str, int]) -> dict[str, float]:
    figures = {
        "offered_per_second": sum(load.offered_per_second for load in loads),
        "instances": float(sum(wanted.values())),
    }
    return figures | ({"latency_seconds": slowest.seconds} if math.isfinite(slowest.seconds) else {})


def _describe_path(plan: SizePlan, target: float | None) -> str:
    along = " → ".join(plan.path)
    aim = f" of {target:.3g} s" if target is not None else ""
    if math.isinf(plan.seconds):
        return f"the path {along} does not keep up"
    return f"the slowest path, {along}, takes {plan.seconds:.3g} s{aim}"


def _describe_measured(loads: tuple[QueryLoad, ...]) -> list[str]:
    """Say what the latency is now, where it is measured batch by batch."""
    seen = [load.query.latency_seconds for load in loads if load.query.batches]
    known = [seconds for seconds in seen if seconds is not None]
    return [f"measured now: {max(known):.3g} s"] if known else []


@dataclass(slots=True)
class Correction:
    """How much longer the records of an operator took than the model of its batches says.

    The median over recent windows: one window may have records in it that waited before a change.
    """

    _seen: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_CORRECTIONS))

    def remember(self, station: Station) -> None:
        """Take in one window; while a backlog is read, the age of its records says nothing of the size.

        Then more waits, or batches take longer, than these should at their load.
        """
        batches = station.batches
        if batches is None or batches.response_seconds is None:
            return
        told = time_in_batches(utilisation(station.instances, station.fed, station.service), batches)
        behind = station.overdue > BEHIND * station.fed * told or batches.seconds > BEHIND * told
        if math.isfinite(told) and not behind:
            self._seen.append(batches.response_seconds - told)

    @property
    def seconds(self) -> float:
        """The seconds that are added to the model; 0 until something was measured."""
        return median(self._seen) if self._seen else 0.0


class LatencyBudget:
    """A bound on the changes per hour that are made for latency alone; throughput is never held back."""

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._budget = ChangeBudget(per_hour)
        self._held: Mapping[str, int] = {}
        self._asked = False

    def apply(
        self, window: ApplicationWindow, answer: Proposal | NotReady, urgent: bool
    ) -> Proposal | NotReady:
        """Return the answer, or a hold if the hour had enough changes and throughput needs none."""
        held = dict(window.parallelism)
        if self._asked and self._held and held != self._held:
            self._budget.note(window.end)
        self._held = held
        self._asked = isinstance(answer, Scale) and not urgent
        if not isinstance(answer, Scale) or urgent or self._budget.allows(window.end, 1):
            return answer
        self._asked = False
        reason = f"{self._per_hour} changes for latency were made in the last hour, the most allowed"
        return Hold(f"{reason}; asked for: {answer.reason}", answer.expected.figures)
