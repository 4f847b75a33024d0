"""The policies by name: how `--policy` and the setting `policy` find them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.decide import makers
from penstock.decide.forecast import PREFIX
from penstock.decide.policy import Policy
from penstock.errors import BadSettings

if TYPE_CHECKING:
    from penstock.settings import Settings


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that can be asked for: how it is made from settings, and what to know before choosing it.

    A `baseline` is there to be compared with, in simulations above all, not to be chosen.
    `recordings_lack` is what it decides by that recorded rates do not tell; empty where they tell enough.
    Without any of the settings that it `requires`, it decides nothing.
    """

    name: str
    summary: str
    make: Callable[[Settings], Policy]
    needs: str = ""
    promises: str = ""
    choose_when: str = ""
    baseline: bool = False
    recordings_lack: str = ""
    requires: tuple[str, ...] = ()

    @property
    def usable_in(self) -> tuple[str, ...]:
        """The commands that take it."""
        offline = () if self.recordings_lack else ("decide",)
        return ("run", "pipeline run", *offline, "simulate", "replay")

    def lacks(self, settings: Settings) -> str:
        """The first of the required settings where none has a value, else nothing."""
        given = any(getattr(settings, name) for name in self.requires)
        return "" if given or not self.requires else self.requires[0]


def _with_forecast(make: Callable[[Settings], Policy]) -> Callable[[Settings], Policy]:
    """The same maker, which minds the setting `forecast`."""

    def made(settings: Settings) -> Policy:
        return makers.forecasting(make(settings), settings) if settings.forecast else make(settings)

    return made


def _forecasting(inner: PolicyEntry) -> PolicyEntry:
    """The entry of a policy with a forecast, whatever the setting says."""
    return PolicyEntry(
        f"{PREFIX}{inner.name}",
        f"{inner.name}, for the rate expected once a change has taken effect; so with any policy",
        lambda settings: inner.make(settings.model_copy(update={"forecast": True})),
        needs=f"what {inner.name} needs, and loads with a trend or a season",
        promises=f"{inner.name}'s sizes ahead of time; while its recent error is large it is {inner.name}",
        choose_when="scaling takes long against how fast load grows, or the same day comes back every day",
        baseline=inner.baseline,
        recordings_lack=inner.recordings_lack,
        requires=inner.requires,
    )


_PLAIN: Mapping[str, PolicyEntry] = {
    entry.name: replace(entry, make=_with_forecast(entry.make))
    for entry in (
        PolicyEntry(
            "autrascale",
            "tries sizes above what throughput needs and learns which meets the latency target with least",
            makers.autrascale,
            needs="a latency target, the latency seen, offered rates, useful time of every instance or task",
            promises="never less than throughput needs; the target with little more, in a few trials a rate",
            choose_when="latency does not follow a queueing model, and load stays for hours or comes back",
            recordings_lack="the end-to-end latency seen",
        ),
        PolicyEntry(
            "ds2",
            "true rates and one traversal of the dataflow give the right size in one step",
            makers.ds2,
            needs="offered rates, and useful time of every instance or task",
            promises="the least size that reads everything offered, with headroom, mostly in one step",
            choose_when="the application has to keep up and no latency is asked for; the default",
        ),
        PolicyEntry(
            "ds2-learned",
            "DS2 that keeps every capacity seen and asks the curve through them, not a straight line",
            makers.ds2_learned,
            needs="offered rates, useful time of every instance, and a few sizes to have been held before",
            promises="DS2's sizes, in one step where capacity grows less than instances; calm under noise",
            choose_when="operators have instances of their own and loads come back; on slots it is ds2",
        ),
        PolicyEntry(
            "queueing",
            "a model of queues gives the least size whose response times meet the latency target",
            makers.queueing,
            needs="a latency target, offered rates, and useful time of every instance or task",
            promises="a mean response time within the target along every path, or the limit that forbids it",
            choose_when="a latency target is set and load changes within minutes",
            requires=("latency_target", "queueing_operator_targets"),
        ),
        PolicyEntry(
            "sage",
            "sizes executors, memory and cores by rules in an order; grows by symptoms, shrinks in one step",
            makers.sage,
            needs="what ds2 needs; for memory and cores executor_metrics; services if they publish",
            promises="what DS2 asks for, once the backlog grows; no size that was too small is tried again",
            choose_when="memory is to be sized, too, remote services are called, or sizes must change seldom",
            recordings_lack="backlogs",
        ),
        PolicyEntry(
            "threshold",
            "one instance more above a backlog of 150 records, one less up to 50",
            makers.threshold,
            needs="backlogs alone",
            promises="backlogs near the thresholds in the long run; nothing about latency, and it hunts",
            choose_when="nothing but the backlog can be measured, and load changes slowly",
            recordings_lack="backlogs",
        ),
        PolicyEntry(
            "dhalion",
            "scales the one operator behind backpressure, and does not repeat what did not help",
            makers.dhalion,
            needs="offered and observed rates, and how busy operators are",
            promises="no backpressure after several changes; often more instances than are needed",
            choose_when="comparing with rules that react to backpressure",
            baseline=True,
        ),
        PolicyEntry(
            "drs",
            "a Jackson network of M/M/k queues, sized greedily with true rates",
            makers.drs,
            needs="a latency target, and operators with instances of their own",
            promises="the fewest instances whose mean sojourn time meets the target, if work is random",
            choose_when="comparing with an exact model that knows no irregularity",
            baseline=True,
            requires=("latency_target",),
        ),
        PolicyEntry(
            "drs-observed",
            "the same with observed rates, which take waiting for slowness",
            makers.drs_observed,
            needs="a latency target, and operators with instances of their own",
            promises="the target at best, with far more instances than true rates ask for",
            choose_when="seeing what true rates are worth",
            baseline=True,
            requires=("latency_target",),
        ),
        PolicyEntry(
            "dynamic-allocation",
            "executors for the tasks that wait for a slot, twice as many in each round, as Spark does",
            makers.dynamic_allocation,
            needs="Spark's stages and their tasks",
            promises="a slot for every task of the largest stage; nothing about rates or batch times",
            choose_when="comparing with Spark's own dynamic allocation",
            baseline=True,
            recordings_lack="the tasks of stages",
        ),
        PolicyEntry(
            "reactive-cpu",
            "instances in proportion to how busy they are, as Kubernetes' HPA does",
            makers.reactive_cpu,
            needs="useful time of every instance or task",
            promises="instances about as busy as is asked for; a large backlog looks like a small one",
            choose_when="comparing with the HPA",
            baseline=True,
        ),
        PolicyEntry(
            "reactive-lag",
            "one instance for every 1,000 records that wait, as KEDA does",
            makers.reactive_lag,
            needs="backlogs alone",
            promises="a bounded backlog for each instance, and swings, since an empty one asks for nothing",
            choose_when="comparing with KEDA",
            baseline=True,
            recordings_lack="backlogs",
        ),
        PolicyEntry(
            "trigger-interval",
            "more executors over 90 % of the trigger interval, fewer under 50 %, as SPARK-24815 proposed",
            makers.trigger_interval,
            needs="Spark's batches, and a trigger interval",
            promises="batches within that band after several changes; a large band hides idle executors",
            choose_when="comparing with the proposal for Spark that was not merged",
            baseline=True,
            recordings_lack="batch times and a trigger interval",
        ),
    )
}


POLICIES: Mapping[str, PolicyEntry] = {**_PLAIN, "forecast:ds2": _forecasting(_PLAIN["ds2"])}
"""All that are listed; `forecast:` may stand before any other name, too."""


def policy_entry(name: str) -> PolicyEntry:
    """Find a policy; an unknown name is an error that suggests the nearest one."""
    if name in POLICIES:
        return POLICIES[name]
    if name.startswith(PREFIX) and name.removeprefix(PREFIX) in _PLAIN:
        return _forecasting(_PLAIN[name.removeprefix(PREFIX)])
    near = difflib.get_close_matches(name.lower(), POLICIES, n=1, cutoff=0.3)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(POLICIES))}"
    raise BadSettings(f"policy: unknown policy {name!r}{hint}")


def make_policy(settings: Settings) -> Policy:
    """The policy that the settings name."""
    return policy_entry(settings.policy).make(settings)
