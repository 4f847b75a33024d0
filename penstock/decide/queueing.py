"""The queueing policy: the fewest instances that meet a latency target.

Elastic Pulsar Functions (Auto-DaSP 2021), section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution
from penstock.decide.latency_budget import LatencyBudget
from penstock.decide.loads import QueryLoad, Station, instance_services, query_loads
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.queueing_plan import Plan, Queue, judged, plan_operator, plan_paths
from penstock.decide.queueing_settings import QueueingSettings
from penstock.decide.queueing_slots import THROUGHPUT_SLOTS, QueueingSlots
from penstock.decide.units import resized
from penstock.decide.variation import Variation


class QueueingPolicy:
    """Models operators as GI/G/k queues; learns how irregular their arrivals and services are."""

    name = "queueing"

    def __init__(self, settings: QueueingSettings) -> None:
        self._settings = settings
        self._slots = QueueingSlots(settings)
        self._variations: dict[str, Variation] = {}
        self._seen_until = -math.inf
        self._budget = LatencyBudget(settings.changes_per_hour)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Plan sizes that meet the targets, by the execution model that the application follows."""
        if self._settings.latency_target_seconds is None and not self._settings.operator_targets:
            return NotReady("no latency target is set", "the setting latency_target")
        if window.execution is Execution.SHARED_SLOTS:
            answer = self._slots.propose(window)
            return self._budget.within(window, answer, urgent=_lacks_slots(window, answer))
        loads = query_loads(window, self._settings.unscalable, self._settings.catch_up_seconds)
        if isinstance(loads, NotReady):
            return loads
        self._learn(window, loads)
        planned = self._proposal(window, loads, [self._plan(load) for load in loads])
        return self._budget.within(window, planned, urgent=self._lacks_instances(loads))

    def _lacks_instances(self, loads: tuple[QueryLoad, ...]) -> bool:
        """Whether some operator holds less than its rate needs, with headroom and whatever the latency."""
        utilisation = self._settings.utilisation
        stations = [station for load in loads for station in load.stations.values() if station.scalable]
        return any(one.arrival > one.instances * one.service * utilisation for one in stations)

    def _learn(self, window: ApplicationWindow, loads: tuple[QueryLoad, ...]) -> None:
        if window.start < self._seen_until:
            return
        self._seen_until = window.end
        for load in loads:
            for station in load.stations.values():
                variation = self._variations.setdefault(station.name, Variation(self._settings.windows_kept))
                services = instance_services(load.graph, load.query.metrics, station.name)
                variation.remember(station.fed, load.query.metrics.seconds, services)

    def _plan(self, load: QueryLoad) -> Plan:
        """Operators with a target of their own are settled first, and paths take them as they are.

        Where paths have no target, the other operators get what their rate needs.
        """
        settings = self._settings
        sizes = {station.name: station.instances for station in load.stations.values()}
        queues = {name: self._queue(station) for name, station in load.stations.items()}
        for name, target in settings.operator_targets.items():
            if name in queues and load.stations[name].scalable:
                sizes[name] = plan_operator(queues[name], target)
                queues[name] = self._queue(load.stations[name], fixed_at=sizes[name])
        if settings.latency_target_seconds is not None:
            target = settings.latency_target_seconds
            return plan_paths(load.graph, queues, sizes, target, settings.scale_in_share)
        for name in queues.keys() - settings.operator_targets.keys():
            sizes[name] = queues[name].stable()
        return judged(load.graph, queues, sizes, settings.operator_targets)

    def _queue(self, station: Station, fixed_at: int | None = None) -> Queue:
        settings, variation = self._settings, self._variations.get(station.name, Variation())
        if not station.scalable:
            fixed_at = station.instances
        return Queue(
            name=station.name,
            instances=station.instances,
            arrival=station.arrival,
            service=station.service,
            arrival_variation=variation.of_arrivals,
            service_variation=variation.of_services,
            least=fixed_at or settings.min_instances,
            most=fixed_at or settings.max_instances,
            # a load that nobody can change is taken as it is, as long as it is bearable
            most_load=settings.utilisation if station.scalable else 1.0,
        )

    def _proposal(
        self, window: ApplicationWindow, loads: tuple[QueryLoad, ...], plans: list[Plan]
    ) -> Proposal:
        held = {name: station.instances for load in loads for name, station in load.stations.items()}
        wanted = {name: size for plan in plans for name, size in plan.sizes.items()}
        changes = {name: size for name, size in wanted.items() if size != held[name]}
        slowest = max(plans, key=lambda plan: plan.seconds)
        figures = _figures(loads, slowest, wanted)
        limits = [limit for plan in plans for limit in plan.limits]
        told = [_path_text(slowest, self._settings.latency_target_seconds), *limits]
        if not changes:
            return Hold("; ".join(told), figures)
        listed = ", ".join(f"{name} {held[name]} → {size}" for name, size in changes.items())
        effect = ExpectedEffect(told[0], figures)
        reason = "; ".join([f"to meet the latency target: {listed}", *told])
        return resized(window, changes, reason, effect, self._exact(loads, plans))

    def _exact(self, loads: tuple[QueryLoad, ...], plans: list[Plan]) -> dict[str, float]:
        """What the load needs with headroom, for operators that change for the headroom and not for latency.

        The manager's utilisation band damps those; a size that the latency target needs it must let pass.
        """
        return {
            name: station.arrival / (station.service * self._settings.utilisation)
            for load, plan in zip(loads, plans, strict=True)
            for name, station in load.stations.items()
            if plan.held_suffices or plan.sizes[name] < station.instances
        }


def _lacks_slots(window: ApplicationWindow, answer: Proposal | NotReady) -> bool:
    figures = answer.expected.figures if isinstance(answer, Scale) else {}
    return figures.get(THROUGHPUT_SLOTS, 0.0) > window.slots


def _figures(loads: tuple[QueryLoad, ...], slowest: Plan, wanted: Mapping[str, int]) -> dict[str, float]:
    figures = {
        "offered_per_second": sum(load.offered_per_second for load in loads),
        "instances": float(sum(wanted.values())),
    }
    return figures | ({"latency_seconds": slowest.seconds} if math.isfinite(slowest.seconds) else {})


def _path_text(plan: Plan, target: float | None) -> str:
    along = " → ".join(plan.path)
    aim = f" of {target:.3g} s" if target is not None else ""
    if math.isinf(plan.seconds):
        return f"the path {along} does not keep up"
    return f"the slowest path, {along}, takes {plan.seconds:.3g} s{aim}"
