"""The settings that would have been best for the load of a journal, found by replays.

What each window needed is told by DS2 without headroom, from the costs that the journal shows. A replay gives
the size that other settings would have held. Both together give cost, time too small, and what would have
waited; it is an estimate, and `list_limits` says how far it can be believed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from penstock.dataflow.window import EXECUTORS, ApplicationWindow, SlotWindow
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Scale
from penstock.errors import BadInput
from penstock.plugins.finding import find_policy
from penstock.settings.model import Settings
from penstock.simulate.replay import Recording, replay_recording

LEAST_WINDOWS = 60
LEAST_SECONDS = 3600.0
"""Less history than this shows neither costs at several loads nor how a load comes and goes."""
SHORT_ALLOWED = 0.001
"""The share of the time in which settings may be too small and still be recommended, or as much as it was."""
POLICIES = {"run": ("ds2", "ahead", "queueing"), "pipeline run": ("ds2", "ahead", "ds2-learned", "queueing")}
"""Where it runs → policies to try beside the one of the settings; on slots ds2-learned is ds2."""
DIALS: Mapping[str, tuple[float, ...]] = {
    "ahead_risk": (0.01, 0.001, 0.0001),
    "utilisation": (0.6, 0.7, 0.8, 0.9),
}
"""Setting → values to try, for a policy that has it; of several the first."""
BAND, LOWS = "utilisation_low", (0.4, 0.6, 0.75)
FAR = 604800.0
AS_RUN = "as it was run"
LEAST_CAPACITY = 1e-6
"""Records per second; a size of nothing has none, and would make what waits wait for ever."""


@dataclass(frozen=True, slots=True)
class WindowNeed:
    """The un-rounded need of each unit in one window, and the rate that it was for."""

    end: float
    seconds: float
    offered: float
    need: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """One set of settings and what it would have brought; `hours` are of executors, or of instances."""

    policy: str
    settings: Mapping[str, float]
    hours: float
    short_ratio: float
    p50_latency_seconds: float
    p99_latency_seconds: float
    steps: int
    unobserved_ratio: float
    least: int
    most: int

    def rank(self, allowed: float) -> tuple[float, float, int]:
        """Order choices that may be too small for this share: cheap, then calm; of others the least short."""
        return (max(0.0, self.short_ratio - allowed), self.hours, self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the figures with the settings."""
        return {
            "policy": self.policy,
            "settings": dict(self.settings),
            "hours": self.hours,
            "short_ratio": self.short_ratio,
            "p50_latency_seconds": self.p50_latency_seconds,
            "p99_latency_seconds": self.p99_latency_seconds,
            "steps": self.steps,
            "unobserved_ratio": self.unobserved_ratio,
            "min_executors": self.least,
            "max_executors": self.most,
        }


@dataclass(frozen=True, slots=True)
class Recommendation:
    """All choices that were tried, the best first, beside what was really held."""

    application: str
    start: float
    end: float
    windows: int
    held: Choice
    choices: tuple[Choice, ...]
    limits: tuple[str, ...]
    allowed_short_ratio: float

    @property
    def best(self) -> Choice:
        """The choice to take."""
        return self.choices[0]

    def to_json(self) -> dict[str, Any]:
        """Return one JSON-ready object."""
        return {
            "application": self.application,
            "from": self.start,
            "to": self.end,
            "windows": self.windows,
            "held": self.held.to_json(),
            "best": self.best.to_json(),
            "choices": [choice.to_json() for choice in self.choices],
            "limits": list(self.limits),
            "allowed_short_ratio": self.allowed_short_ratio,
        }


Progress = Callable[[str], None]


def recommend(
    recording: Recording,
    settings: Settings,
    policies: Sequence[str] = (),
    progress: Progress = lambda _: None,
) -> Recommendation:
    """Replay policies first, then the dial of the best of them, then its band.

    BadInput says that too little is known.
    """
    judge = _Judge.of(recording, settings)
    held = judge.held()
    allowed = max(SHORT_ALLOWED, held.short_ratio)
    tried: dict[tuple[str, tuple[tuple[str, float], ...]], Choice] = {}

    def attempt(policy: str, changes: Mapping[str, float]) -> None:
        key = (policy, tuple(sorted(changes.items())))
        if key not in tried:
            progress(f"replaying {policy} {' '.join(f'{name} {value:g}' for name, value in changes.items())}")
            tried[key] = judge.replay(settings, policy, changes)

    for policy in _list_usable(recording, settings, policies):
        attempt(policy, {})
    first = min(tried.values(), key=lambda choice: choice.rank(allowed)).policy
    for changes in _list_dials(first, settings):
        attempt(first, changes)
    best = min(tried.values(), key=lambda choice: choice.rank(allowed))
    for low in LOWS:
        if low < best.settings.get("utilisation", settings.goals.utilisation):
            attempt(best.policy, {**best.settings, BAND: low})
    ordered = tuple(sorted(tried.values(), key=lambda choice: choice.rank(allowed)))
    limits = list_limits(recording, judge.demands, ordered[0], settings.bounds.most)
    begun, ended = recording.windows[0].start, recording.windows[-1].end
    count = len(recording.windows)
    return Recommendation(recording.application, begun, ended, count, held, ordered, limits, allowed)


def list_limits(
    recording: Recording, demands: Sequence[WindowNeed | None], best: Choice, most: int
) -> tuple[str, ...]:
    """Say what a replay of this journal cannot know."""
    sizes = [sum(window.parallelism.values()) for window in recording.windows]
    known = sum(demand is not None for demand in demands)
    delay = recording.change_seconds
    limits = [
        f"sizes from {min(sizes)} to {max(sizes)} were seen; what others can do follows from the same costs",
        f"{best.unobserved_ratio:.0%} of the windows were seen at another size than the best would have held",
        "latency is the one seen where the size was enough, and what would have waited, over the capacity",
        "the load is taken as it was: what comes may differ, and only some of the settings were tried",
    ]
    if best.most >= most:
        limits.append(f"the best was held back by max_executors: {most}")
    if known < len(demands):
        limits.append(f"{len(demands) - known} of {len(demands)} windows do not tell what they needed")
    if not recording.changes:
        limits.append("no change was seen, so how long one takes is unknown, and taken as nothing")
    else:
        limits.append(f"a change takes {delay:.0f} s, as the median of {len(recording.changes)} did")
    return tuple(limits)


def _find_demands(recording: Recording, goals: Goals) -> list[WindowNeed | None]:
    """Find what each window needed; None where the policy could not tell. Too little history is bad input."""
    windows = recording.windows
    span = windows[-1].end - windows[0].start
    if len(windows) < LEAST_WINDOWS or span < LEAST_SECONDS:
        raise BadInput(
            f"too little history for a recommendation: {len(windows)} windows over {span / 60:.0f} minutes, "
            f"at least {LEAST_WINDOWS} over {LEAST_SECONDS / 60:.0f} are needed"
        )
    # what waits is judged by the replay itself, so the need is that of the offered rate alone
    judge = Ds2Policy(goals.change(utilisation=1.0, catch_up=FAR))
    demands = [_find_demand(judge, window) for window in windows]
    if sum(demand is not None for demand in demands) < LEAST_WINDOWS:
        raise BadInput(f"fewer than {LEAST_WINDOWS} of {len(windows)} windows tell what their load needed")
    return demands


def _find_demand(judge: Ds2Policy, window: ApplicationWindow) -> WindowNeed | None:
    answer = judge.propose(window)
    if not isinstance(answer, Hold | Scale):
        return None
    figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
    offered = sum(rate.offered_per_second for query in window.queries for rate in query.sources.values())
    if isinstance(window, SlotWindow):
        slots = figures.get("slots_needed")
        need = {} if slots is None else {EXECUTORS: slots / max(1, window.slots_per_executor)}
    else:
        exact = answer.exact if isinstance(answer, Scale) else {}
        # a hold says that what is held is just enough
        need = {
            name: exact.get(name, float(window.parallelism.get(name, 1))) for name in _list_scaled(window)
        }
    if not need or not all(0 < value < math.inf for value in need.values()):
        return None
    return WindowNeed(window.end, window.end - window.start, offered, need)


def _list_scaled(window: ApplicationWindow) -> list[str]:
    """List the operators that can be scaled and are fed by others."""
    return [
        name
        for query in window.queries
        for name, scaled in zip(query.graph.names, query.graph.scaled, strict=True)
        if scaled
    ]


def _find_latency(recording: Recording, demands: Sequence[WindowNeed | None]) -> float:
    """Return the usual latency of windows whose size was enough; 0 where none was seen."""
    seen = [
        query.latency_seconds
        for window, demand in zip(recording.windows, demands, strict=True)
        if demand is not None and _share(window.parallelism, demand) >= 1
        for query in window.queries
        if query.latency_seconds is not None and math.isfinite(query.latency_seconds)
    ]
    return median(seen) if seen else 0.0


def _list_usable(recording: Recording, settings: Settings, asked: Sequence[str]) -> list[str]:
    """List the policies to try: the one of the settings, and those that can answer such windows."""
    if asked:
        return list(dict.fromkeys(asked))
    place = "run" if isinstance(recording.windows[0], SlotWindow) else "pipeline run"
    usable = []
    for name in dict.fromkeys((settings.run.policy, *POLICIES[place])):
        try:
            entry = find_policy(name)
        except BadInput:
            continue
        if place in entry.usable_in and not entry.lacks(settings):
            usable.append(name)
    return usable


def _list_dials(policy: str, settings: Settings) -> Iterable[dict[str, float]]:
    """List the values of the setting by which this policy trades cost for room."""
    names = {name for kind in find_policy(policy).sections for name in kind.settings()}
    dial = next((name for name in DIALS if name in names), None)
    low = settings.manager.utilisation_low
    return [{dial: value} for value in DIALS[dial] if dial != "utilisation" or value > low] if dial else []


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges the sizes that settings would have held by what each window needed."""

    recording: Recording
    demands: Sequence[WindowNeed | None]
    usual_latency: float

    @staticmethod
    def of(recording: Recording, settings: Settings) -> _Judge:
        demands = _find_demands(recording, settings.goals)
        return _Judge(recording, demands, _find_latency(recording, demands))

    def replay(self, settings: Settings, policy: str, changes: Mapping[str, float]) -> Choice:
        """Replay the policy with these changes of the settings."""
        changed = settings.change(**changes) if changes else settings
        found = replay_recording(self.recording, find_policy(policy).make(changed), changed)
        sizes = [moment.would_hold for moment in found.moments]
        figures = self._measure(sizes, self.recording.change_seconds)
        unobserved = found.unobserved / len(found.moments)
        return Choice(policy, dict(changes), steps=found.steps, unobserved_ratio=unobserved, **figures)

    def held(self) -> Choice:
        """Judge what was really held, by the same rules."""
        figures = self._measure([window.parallelism for window in self.recording.windows], 0.0)
        return Choice(AS_RUN, {}, steps=len(self.recording.changes), unobserved_ratio=0.0, **figures)

    def _measure(self, sizes: Sequence[Mapping[str, int]], delay: float) -> dict[str, Any]:
        """Measure sizes window by window; a growth works only after the delay."""
        known = [(size, one) for size, one in zip(sizes, self.demands, strict=True) if one is not None]
        ends = [demand.end for _, demand in known]
        waiting, short, latencies = 0.0, 0.0, []
        for size, demand in known:
            before = known[max(0, bisect_right(ends, demand.end - delay) - 1)][0]
            share = min(_share(size, demand), _share(before, demand))
            waiting = max(0.0, waiting + demand.offered * (1 - share) * demand.seconds)
            capacity = max(demand.offered * share, LEAST_CAPACITY)
            latencies.append(self.usual_latency + waiting / capacity)
            short += demand.seconds * (share < 1)
        p50, p99 = np.percentile(np.array(latencies), [50, 99]).tolist()
        used = [[size[unit] for unit in demand.need if unit in size] for size, demand in known]
        seconds = [demand.seconds for _, demand in known]
        return {
            "hours": sum(sum(some) * lasts for some, lasts in zip(used, seconds, strict=True)) / 3600,
            "short_ratio": short / sum(seconds),
            "p50_latency_seconds": p50,
            "p99_latency_seconds": p99,
            "least": min(min(some) for some in used),
            "most": max(max(some) for some in used),
        }


def _share(size: Mapping[str, int], demand: WindowNeed) -> float:
    """Return the least of what is held over what is needed."""
    return min(size.get(unit, 0) / need for unit, need in demand.need.items())
