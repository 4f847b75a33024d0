"""The policies by name: how `--policy` and the setting `policy` find them, and what each is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.decide.ahead.policy import AheadPolicy
from penstock.decide.ahead.settings import AheadSettings
from penstock.decide.autrascale.policy import AutraScalePolicy
from penstock.decide.autrascale.settings import AutraScaleSettings
from penstock.decide.baselines.dhalion import DhalionPolicy, DhalionSettings
from penstock.decide.baselines.drs import DrsPolicy, ObservedDrsPolicy
from penstock.decide.baselines.dynamic_allocation import DynamicAllocationPolicy, DynamicAllocationSettings
from penstock.decide.baselines.flink_autoscaler import FlinkAutoscalerPolicy, FlinkSettings
from penstock.decide.baselines.reactive import (
    ReactiveCpuPolicy,
    ReactiveLagPolicy,
    ReactiveRatePolicy,
    ReactiveSettings,
)
from penstock.decide.baselines.threshold import ThresholdPolicy, ThresholdSettings
from penstock.decide.baselines.trigger_interval import TriggerIntervalPolicy, TriggerIntervalSettings
from penstock.decide.ds2.learned import LearnedDs2Policy
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.ds2.settings import LearnedSettings
from penstock.decide.forecast.policy import PREFIX, ForecastPolicy
from penstock.decide.forecast.rates import ForecastSettings
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.limits import WithinLimits
from penstock.decide.manager.settings import ManagerSettings
from penstock.decide.policy import Policy
from penstock.decide.queueing.policy import QueueingPolicy
from penstock.decide.queueing.settings import QueueingSettings
from penstock.decide.sage.overrides import combine_said, parse_said
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.resizer import Limits
from penstock.decide.sage.services import ServiceWatch
from penstock.decide.sage.settings import ClusterLimits, SageSettings
from penstock.decide.surroundings import Surroundings
from penstock.errors import BadSettings
from penstock.units.fields import suggest_name
from penstock.units.section import Section, Sections

SLOTS, OPERATORS = "executors whose slots all operators share", "operators with instances of their own"
"""The two things that a policy may size."""
PLACES: Mapping[str, frozenset[str]] = {
    "run": frozenset({SLOTS}),
    "pipeline run": frozenset({OPERATORS}),
    "decide": frozenset({OPERATORS}),
    "simulate": frozenset({SLOTS, OPERATORS}),
    "replay": frozenset({SLOTS, OPERATORS}),
}
"""Command → what it has to be sized; a scenario or a journal has one of both."""


BUILT_IN = "penstock"
"""The origin of Penstock's own policies."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that can be asked for: what it is made of, and what to know before choosing it.

    `build` takes the `sections` in their order, and the surroundings if it `asks_around`.
    `sizes` is what it can size; of anything else it only says that it cannot.
    Without any of the settings that it `requires`, the policy decides nothing.
    A `baseline` is there to be compared with, in simulations above all, not to be chosen.
    `origin` is where it comes from: Penstock itself, or an installed package.
    `recordings_lack` is what it decides by that recorded rates do not tell; empty where they tell enough.
    """

    name: str
    summary: str
    build: Callable[..., Policy]
    sections: tuple[type[Section], ...]
    needs: str = ""
    promises: str = ""
    choose_when: str = ""
    baseline: bool = False
    recordings_lack: str = ""
    requires: tuple[tuple[type[Section], str], ...] = ()
    forecasts: bool = False
    asks_around: bool = False
    origin: str = BUILT_IN
    sizes: frozenset[str] = frozenset({SLOTS, OPERATORS})

    @property
    def usable_in(self) -> tuple[str, ...]:
        """The commands in which it can answer."""
        fits = [place for place, kinds in PLACES.items() if kinds & self.sizes]
        return tuple(place for place in fits if place != "decide" or not self.recordings_lack)

    def check_place(self, place: str) -> None:
        """Reject a command in which it would never answer."""
        if not PLACES[place] & self.sizes:
            (own,), (other,) = self.sizes, PLACES[place]
            told = f"{self.name!r} sizes {own}, and `penstock {place}` has {other}"
            raise BadSettings(f"policy: {told}; it can be used in {', '.join(self.usable_in)}")

    @property
    def aims_at_latency(self) -> bool:
        """Whether it sizes for the latency target alone, also where no batches are known."""
        return (Goals, "latency_target") in self.requires

    def make(self, settings: Sections, around: Surroundings | None = None) -> Policy:
        """Build the policy, with a forecast before it where its name or the settings ask for one.

        Without surroundings nobody tells it anything but its settings.
        """
        beside = (around or Surroundings(),) if self.asks_around else ()
        policy = self.build(*(settings.section(kind) for kind in self.sections), *beside)
        forecast = settings.section(ForecastSettings)
        return ForecastPolicy(policy, forecast) if self.forecasts or forecast.enabled else policy

    def lacks(self, settings: Sections) -> str:
        """Name the first of the required settings where none has a value, else nothing."""
        if not self.requires or any(getattr(settings.section(kind), name) for kind, name in self.requires):
            return ""
        kind, name = self.requires[0]
        return kind.outer_name(name)


def add_forecast(inner: PolicyEntry) -> PolicyEntry:
    """Return the entry of a policy with a forecast, whatever the setting says."""
    return replace(
        inner,
        name=f"{PREFIX}{inner.name}",
        summary=f"{inner.name}, for the rate expected once a change has taken effect; so with any policy",
        needs=f"what {inner.name} needs, and loads with a trend or a season",
        promises=f"{inner.name}'s sizes ahead of time; while its recent error is large it is {inner.name}",
        choose_when="scaling takes long against how fast load grows, or the same day comes back every day",
        forecasts=True,
    )


def build_sage(
    settings: SageSettings,
    cluster: ClusterLimits,
    manager: ManagerSettings,
    bounds: SizeBounds,
    goals: Goals,
    around: Surroundings,
) -> SagePolicy:
    """Build Sage's rules, with DS2 for how much parallelism."""
    said = parse_said({"pin": settings.pin, "veto": settings.veto, "by": "the settings"}, "settings")
    return SagePolicy(
        WithinLimits(Ds2Policy(goals), least=bounds.least),
        settings.with_windows_for(manager.policy_interval),
        ServiceWatch(around.services, settings.service_test).look,
        Limits.of(cluster, bounds),
        replace(around, said=lambda: combine_said(said, around.said())),
        math.inf if settings.first_after is None else settings.first_after,
    )


_PLAIN: Mapping[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry(
            "ahead",
            "plans over the time a change takes: the least size whose risk of being short is below its level",
            AheadPolicy,
            (AheadSettings, SizeBounds, Goals),
            needs="offered rates, and useful time of every instance or task",
            promises="short for no more than `ahead_risk` of the time, where the load can be foreseen at all",
            choose_when="changes take long against how fast load grows, or the same day comes back every day",
        ),
        PolicyEntry(
            "autrascale",
            "tries sizes above what throughput needs and learns which meets the latency target with least",
            AutraScalePolicy,
            (AutraScaleSettings, SizeBounds, Goals),
            needs="a latency target, the latency seen, offered rates, useful time of every instance or task",
            promises="never less than throughput needs; the target with little more, in a few trials a rate",
            choose_when="latency does not follow a queueing model, and load stays for hours or comes back",
            recordings_lack="the end-to-end latency seen",
        ),
        PolicyEntry(
            "ds2",
            "true rates and one traversal of the dataflow give the right size in one step",
            Ds2Policy,
            (Goals,),
            needs="offered rates, and useful time of every instance or task",
            promises="the least size that reads everything offered, with headroom, mostly in one step",
            choose_when="the application has to keep up and no latency is asked for; the default",
        ),
        PolicyEntry(
            "ds2-learned",
            "DS2 that keeps every capacity seen and asks the curve through them, not a straight line",
            LearnedDs2Policy,
            (LearnedSettings, SizeBounds, Goals),
            needs="offered rates, useful time of every instance, and a few sizes to have been held before",
            promises="DS2's sizes, in one step where capacity grows less than instances; calm under noise",
            choose_when="operators have instances of their own and loads come back; on slots it is ds2",
        ),
        PolicyEntry(
            "queueing",
            "a model of queues gives the least size whose response times meet the latency target",
            QueueingPolicy,
            (QueueingSettings, SizeBounds, Goals),
            needs="a latency target, offered rates, and useful time of every instance or task",
            promises="a mean response time within the target along every path, or the limit that forbids it",
            choose_when="a latency target is set and load changes within minutes",
            requires=((Goals, "latency_target"), (QueueingSettings, "operator_targets")),
        ),
        PolicyEntry(
            "sage",
            "sizes executors, memory and cores by rules in an order; grows by symptoms, shrinks in one step",
            build_sage,
            (SageSettings, ClusterLimits, ManagerSettings, SizeBounds, Goals),
            asks_around=True,
            needs="what ds2 needs; for memory and cores executor_metrics; services if they publish",
            promises="what DS2 asks for, once the backlog grows; no size that was too small is tried again",
            choose_when="memory is to be sized, too, remote services are called, or sizes must change seldom",
            recordings_lack="backlogs",
        ),
        PolicyEntry(
            "threshold",
            "one instance more above a backlog of 150 records, one less up to 50",
            ThresholdPolicy,
            (ThresholdSettings, SizeBounds, Goals),
            needs="backlogs alone",
            promises="backlogs near the thresholds in the long run; nothing about latency, and it hunts",
            choose_when="nothing but the backlog can be measured, and load changes slowly",
            recordings_lack="backlogs",
        ),
        PolicyEntry(
            "dhalion",
            "scales the one operator behind backpressure, and does not repeat what did not help",
            DhalionPolicy,
            (DhalionSettings, SizeBounds, Goals),
            needs="offered and observed rates, and how busy operators are",
            promises="no backpressure after several changes; often more instances than are needed",
            choose_when="comparing with rules that react to backpressure",
            baseline=True,
        ),
        PolicyEntry(
            "drs",
            "a Jackson network of M/M/k queues, sized greedily with true rates",
            DrsPolicy,
            (SizeBounds, Goals),
            needs="a latency target, and operators with instances of their own",
            promises="the fewest instances whose mean sojourn time meets the target, if work is random",
            choose_when="comparing with an exact model that knows no irregularity",
            baseline=True,
            requires=((Goals, "latency_target"),),
            sizes=frozenset({OPERATORS}),
        ),
        PolicyEntry(
            "drs-observed",
            "the same with observed rates, which take waiting for slowness",
            ObservedDrsPolicy,
            (SizeBounds, Goals),
            needs="a latency target, and operators with instances of their own",
            promises="the target at best, with far more instances than true rates ask for",
            choose_when="seeing what true rates are worth",
            baseline=True,
            requires=((Goals, "latency_target"),),
            sizes=frozenset({OPERATORS}),
        ),
        PolicyEntry(
            "dynamic-allocation",
            "executors for the tasks that wait for a slot, twice as many in each round, as Spark does",
            DynamicAllocationPolicy,
            (DynamicAllocationSettings, SizeBounds),
            needs="Spark's stages and their tasks",
            promises="a slot for every task of the largest stage; nothing about rates or batch times",
            choose_when="comparing with Spark's own dynamic allocation",
            baseline=True,
            recordings_lack="the tasks of stages",
            sizes=frozenset({SLOTS}),
        ),
        PolicyEntry(
            "reactive-cpu",
            "instances in proportion to how busy they are, as Kubernetes' HPA does",
            ReactiveCpuPolicy,
            (ReactiveSettings, SizeBounds, Goals),
            needs="useful time of every instance or task",
            promises="instances about as busy as is asked for; a large backlog looks like a small one",
            choose_when="comparing with the HPA",
            baseline=True,
        ),
        PolicyEntry(
            "reactive-lag",
            "one instance for every 1,000 records that wait, as KEDA does",
            ReactiveLagPolicy,
            (ReactiveSettings, SizeBounds, Goals),
            needs="backlogs alone",
            promises="a bounded backlog for each instance, and swings, since an empty one asks for nothing",
            choose_when="comparing with KEDA",
            baseline=True,
            recordings_lack="backlogs",
        ),
        PolicyEntry(
            "reactive-rate",
            "one instance for every 1,000 records offered in a second, as KEDA does on a rate",
            ReactiveRatePolicy,
            (ReactiveSettings, SizeBounds, Goals),
            needs="offered rates, and what an instance can take, which you have to know",
            promises="instances in proportion to the rate, right as long as the number given is",
            choose_when="comparing with KEDA",
            baseline=True,
        ),
        PolicyEntry(
            "flink-autoscaler",
            "means over many minutes, and room for restarts and backlogs, as Flink's operator does",
            FlinkAutoscalerPolicy,
            (FlinkSettings, SizeBounds, Goals),
            needs="offered rates, backlogs, and useful time of every instance or task",
            promises="operators within a wide band of utilisation; late by its window on loads that change",
            choose_when="comparing with Flink's autoscaler",
            baseline=True,
            recordings_lack="backlogs",
        ),
        PolicyEntry(
            "trigger-interval",
            "more executors over 90 % of the trigger interval, fewer under 50 %, as SPARK-24815 proposed",
            TriggerIntervalPolicy,
            (TriggerIntervalSettings, SizeBounds),
            needs="Spark's batches, and a trigger interval",
            promises="batches within that band after several changes; a large band hides idle executors",
            choose_when="comparing with the proposal for Spark that was not merged",
            baseline=True,
            recordings_lack="batch times and a trigger interval",
            sizes=frozenset({SLOTS}),
        ),
    )
}


POLICIES: Mapping[str, PolicyEntry] = {**_PLAIN, "forecast:ds2": add_forecast(_PLAIN["ds2"])}
"""All that are listed; `forecast:` may stand before any other name, too."""


def policy_entry(name: str) -> PolicyEntry:
    """Find a policy; an unknown name is an error that suggests the nearest one."""
    if name in POLICIES:
        return POLICIES[name]
    if name.startswith(PREFIX) and name.removeprefix(PREFIX) in _PLAIN:
        return add_forecast(_PLAIN[name.removeprefix(PREFIX)])
    raise BadSettings(f"policy: unknown policy {name!r}{suggest_name(name, sorted(POLICIES), cutoff=0.3)}")


def make_policy(name: str, settings: Sections, around: Surroundings | None = None) -> Policy:
    """Build the policy of this name."""
    return policy_entry(name).make(settings, around)
