"""AuTraScale: a latency target met with few resources, found by trying sizes and learning from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.autrascale.score import Size, allocation_ratio
from penstock.decide.autrascale.search import (
    HOUR,
    LEAST_PRIOR_SAMPLES,
    ChangeBudget,
    ModelLibrary,
    RateModel,
    ScoringGoal,
    SizeChooser,
    count_changes,
)
from penstock.decide.autrascale.settings import AutraScaleSettings
from penstock.decide.autrascale.throughput import KEPT_READINGS, Needs, Readings, ThroughputPhase, read_needs
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale

NO_HURRY = 1e12
"""Catch-up seconds with which a backlog asks for nothing."""

OVERLOADED = 1.1
"""Median need over held at which the base no longer counts: well beyond noise, still within the headroom."""

SHRUNK = 0.6
"""Share of the base that is needed at the base itself, at which it was found under conditions now gone.

Below the 1/1.5 up to which a base may exceed the need from the start.
"""

LIMIT_BELIEVED = 6 * HOUR
"""How long a limit from outside is believed before the throughput phase asks again."""


@dataclass(slots=True)
class _Trial:
    """A size proposed for the sake of the search, and for how many windows it has been proposed."""

    size: Size
    reason: str
    figures: Mapping[str, float]
    windows: int = 0


class AutraScalePolicy:
    """Finds what throughput needs, then the least beyond it that meets the latency target."""

    name = "autrascale"
    memory_kind = "autrascale"

    def __init__(self, settings: AutraScaleSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds, self._goals = settings, bounds, goals
        self._hurried = Ds2Policy(goals)
        self._steady = Ds2Policy(goals.model_copy(update={"catch_up": NO_HURRY}))
        self._library = ModelLibrary(settings.rate_tolerance)
        self._chooser = SizeChooser(settings, bounds)
        self._budget = ChangeBudget(settings.changes_per_hour)
        self._phase = self._new_phase()
        self._model: RateModel | None = None
        self._readings: Readings | None = None
        self._trial: _Trial | None = None
        self._is_on_trial = False
        self._strayed: float | None = None
        self._refused: set[Size] = set()

    @property
    def models(self) -> tuple[RateModel, ...]:
        """The models of all rates, the one used last at the end."""
        return self._library.models

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return the models of all rates, for the next run of the application."""
        return self._library.learned()

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up the models of an earlier run."""
        self._model = None
        return self._library.recall(known)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Say what size throughput needs, what to try next, or that the target is met."""
        needs = self._needs(window)
        if isinstance(needs, NotReady):
            return needs
        model = self._model_of(window, needs)
        if model is None:
            return self._between_rates(window, needs)
        readings = self._follow(window.end, needs, model)
        unsettled = self._await_settling(window.end, readings)
        if unsettled is not None:
            return unsettled
        readings.add(needs.observed, needs.offered, needs.load, sum(needs.exact))
        if self._is_outdated(window.end, model, readings):
            model.restart()
            self._phase, self._is_on_trial, self._trial = self._new_phase(), False, None
        if model.base is None:
            self._phase.note(readings)
        catching_up = self._catch_up(window, needs, model, readings)
        if catching_up is not None:
            return catching_up
        if model.base is None:
            answer = self._seek_throughput(window, needs, model, readings)
            if answer is not None:
                return answer
        return self._seek_latency(window, needs, model, readings)

    def _needs(self, window: ApplicationWindow) -> Needs | NotReady:
        steady, hurried = self._steady.propose(window), self._hurried.propose(window)
        for answer in (steady, hurried):
            if isinstance(answer, NotReady):
                return answer
        assert isinstance(steady, Hold | Scale)
        assert isinstance(hurried, Hold | Scale)
        return read_needs(window, steady, hurried, self._bounds, self._goals)

    def _model_of(self, window: ApplicationWindow, needs: Needs) -> RateModel | None:
        """Find the model of the offered rate; None while only one window shows another rate than before."""
        current, strayed, rate = self._model, self._strayed, needs.rate
        self._strayed = None
        if current is not None and (current.application, current.units) == (window.application, needs.units):
            has_strayed = not self._library.is_same(current.rate, rate)
            if has_strayed and (strayed is None or not self._library.is_same(strayed, rate)):
                self._strayed = rate
                return None
        return self._library.at(window.application, needs.units, rate, current)

    def _between_rates(self, window: ApplicationWindow, needs: Needs) -> Proposal | NotReady:
        """Grow at once; for all else wait for a second window."""
        wanted = _largest(needs.held, needs.steady)
        if wanted == needs.held:
            return NotReady("the offered rate left the one that is known", "a second window of that rate")
        return self._scale(window, needs, wanted, f"throughput at another rate: {needs.answer.reason}")

    def _new_phase(self) -> ThroughputPhase:
        return ThroughputPhase(self._settings.throughput_steps, self._settings.patience_windows)

    def _follow(self, now: float, needs: Needs, model: RateModel) -> Readings:
        """Notice another rate and another size; a change made for the search counts against its budget."""
        known = self._readings
        has_changed = known is not None and known.size != needs.held
        if has_changed:
            if self._trial is not None or self._is_on_trial:
                self._budget.note(now)
            self._note_move(needs.held)
        if model is not self._model:
            self._phase, self._refused, self._model = self._new_phase(), set(), model
            self._is_on_trial, self._trial, known = False, None, None
        if known is None or has_changed:
            # a first window has no change before it to settle
            settled = 0 if has_changed else self._settings.settle_windows
            known = Readings(needs.held, settled, began=now if has_changed else -math.inf)
            self._readings = known
        return known

    def _await_settling(self, now: float, readings: Readings) -> NotReady | None:
        """Decide nothing until a new size has settled and run for the policy running time (section IV)."""
        wanted, has_run = self._settings.policy_running_time, now - readings.began
        if has_run < wanted:
            reason = f"the size has run for {has_run:.0f} s of the policy running time of {wanted:g} s"
            return NotReady(reason, "the rest of it", readings.began + wanted)
        if readings.skipped < self._settings.settle_windows:
            readings.skipped += 1
            return NotReady("the window began before the last change had settled", "a later window")
        return None

    def _note_move(self, held: Size) -> None:
        """Note a change of size; steps of one change that guardrails split count together."""
        self._is_on_trial = self._is_on_trial or self._trial is not None
        if self._trial is not None and self._trial.size == held:
            self._trial = None
        elif self._trial is not None:
            self._trial.windows = 0

    def _catch_up(
        self, window: ApplicationWindow, needs: Needs, model: RateModel, readings: Readings
    ) -> Proposal | None:
        """While a backlog is read, latency tells nothing of the size, and nothing may shrink."""
        if not needs.is_catching_up or model.limited_at is not None:
            return None
        if needs.hurried != _smallest(needs.hurried, needs.held):
            wanted = _largest(needs.held, needs.hurried, model.best or model.base or needs.hurried)
            return self._scale(window, needs, wanted, "to read the backlog in the catch-up time")
        if model.base is None and readings.falls_short:
            return None
        return Hold("a backlog is being read; the latency is judged once it is gone")

    def _is_outdated(self, now: float, model: RateModel, readings: Readings) -> bool:
        """Tell whether the base was found under conditions that no longer hold."""
        base, held = model.base, readings.size
        if base is None or readings.count < self._settings.sample_windows:
            return False
        if model.limited_at is not None:
            is_gone = readings.count >= KEPT_READINGS and not readings.falls_short
            return is_gone or not 0 <= now - model.limited_at < LIMIT_BELIEVED
        grown = held == _largest(held, base) and statistics.median(readings.loads) > OVERLOADED
        needed = statistics.median(readings.totals)
        return grown or (held == base and needed <= min(SHRUNK * sum(base), sum(base) - 1))

    def _seek_throughput(
        self, window: ApplicationWindow, needs: Needs, model: RateModel, readings: Readings
    ) -> Proposal | NotReady | None:
        """Take one step of the first phase; None once the base is known."""
        # short of the rate with a backlog, and no more is asked for: the same recommendation once again
        need = needs.held if needs.is_catching_up else needs.steady
        found = self._phase.find_base(need, readings)
        if found is not None and readings.count >= self._settings.sample_windows:
            model.base, model.limited_at = self._clamp(found.size), window.end if found.limited else None
            return None
        if need == needs.held:
            return NotReady("measuring whether the size keeps up with the offered rate", "another window")
        step = f"throughput phase, step {len(self._phase.seen)}: {needs.answer.reason}"
        return self._scale(window, needs, need, step, from_throughput=True)

    def _seek_latency(
        self, window: ApplicationWindow, needs: Needs, model: RateModel, readings: Readings
    ) -> Proposal | NotReady:
        """Go to what is known to be best, or measure and search."""
        assert model.base is not None
        target = self._goals.latency_target
        if model.limited_at is not None or target is None:
            why = "no latency target is set" if target is None else "something outside limits the throughput"
            return self._keep(window, needs, model.base, f"what throughput needs; {why}")
        if needs.held != _largest(needs.held, model.base):
            return self._keep(window, needs, model.best or model.base, "the size known for this rate")
        awaited = self._measure_latency(needs, readings, target)
        if awaited is not None:
            return awaited
        scoring = ScoringGoal(target, self._settings.latency_weight)
        if model.best is not None and not self._has_gone_bad(model, readings, target):
            return self._keep(window, needs, model.best, "the size that the search ended with")
        model.best = None
        model.latencies[needs.held] = readings.latency
        return self._search(window, needs, model, scoring)

    def _measure_latency(self, needs: Needs, readings: Readings, target: float) -> NotReady | None:
        """Measure the latency of this size; say what is awaited until it is known."""
        if needs.latency_seconds is None:
            return NotReady("the end-to-end latency is not known", "a window with the latency of each query")
        if readings.is_draining(needs.backlog_seconds, target):
            return NotReady("a backlog is being read, and its age is not that of this size", "its end")
        readings.add_latency(needs.latency_seconds)
        if len(readings.latencies) < self._settings.sample_windows:
            return NotReady("measuring the latency of this size", "another window")
        return None

    def _has_gone_bad(self, model: RateModel, readings: Readings, target: float) -> bool:
        """Tell whether the size that the search ended with met the target and now misses it.

        One that never met it is the best there is; to search again would only move it about.
        """
        if readings.size != model.best or len(readings.latencies) < KEPT_READINGS:
            return False
        return model.latencies.get(model.best, 0.0) <= target < readings.latency

    def _search(
        self, window: ApplicationWindow, needs: Needs, model: RateModel, scoring: ScoringGoal
    ) -> Proposal | NotReady:
        """Algorithm 1 from line 8 on: end, or try another size within the budget."""
        best = scoring.best(model)
        if self._is_good_enough(model, best, scoring):
            met = "the latency target is met with few enough resources"
            return self._end(window, needs, model, best, met)
        if len(model.latencies) >= self._settings.most_samples:
            return self._end(window, needs, model, best, f"{len(model.latencies)} sizes were tried")
        repeated = self._again(window, needs)
        if repeated is not None:
            return repeated
        prior = self._library.nearest(model, LEAST_PRIOR_SAMPLES)
        found = self._chooser.choose(model, prior, scoring, best, self._refused)
        # while nothing meets the target, the most promising size is tried however little it promises
        enough = self._settings.least_improvement if model.latencies[best] <= scoring.target_seconds else 0.0
        if found is None or found.improvement < enough:
            return self._end(window, needs, model, best, "no other size promises more")
        changes = count_changes(needs.held, found.size) + count_changes(found.size, best)
        if not self._budget.allows(window.end, changes):
            return self._wait(window, needs, best, changes)
        source = f"learned from {prior.rate:,.0f} records/s" if prior else "learned at this rate"
        reason = f"latency search, sample {len(model.latencies) + 1}, {source}"
        self._trial = _Trial(found.size, reason, _figures(found.improvement, found.expected_score))
        return self._try(window, needs, self._trial)

    def _is_good_enough(self, model: RateModel, size: Size, scoring: ScoringGoal) -> bool:
        """Test equation 9 and the latency target itself (Algorithm 1, line 8)."""
        is_met = model.latencies[size] <= scoring.target_seconds
        return is_met and scoring.of(model, size) >= self._settings.score_threshold - 1e-12

    def _again(self, window: ApplicationWindow, needs: Needs) -> Proposal | NotReady | None:
        """Propose a trial again that was not made yet, until it counts as refused."""
        trial = self._trial
        if trial is None or trial.size == needs.held:
            return None
        if not self._budget.allows(window.end, 1):
            until = self._budget.next_at(1)
            return NotReady("on the way to another size, and no change is left", "a change", until)
        if trial.windows < self._settings.patience_windows:
            return self._try(window, needs, trial)
        self._refused.add(trial.size)
        self._trial = None
        return None

    def _try(self, window: ApplicationWindow, needs: Needs, trial: _Trial) -> Proposal:
        trial.windows += 1
        return self._scale(window, needs, trial.size, trial.reason, figures=trial.figures)

    def _wait(self, window: ApplicationWindow, needs: Needs, best: Size, changes: int) -> Proposal | NotReady:
        """Out of changes: the best size known is the place to wait at, as far as the changes reach."""
        if needs.held != best and self._budget.allows(window.end, 1):
            return self._scale(window, needs, best, "back to the best size known, to wait for more changes")
        if needs.held == best:
            self._is_on_trial = False
        reason = f"of {self._settings.changes_per_hour} changes an hour too few are left to try another size"
        return NotReady(reason, "the next change of the budget", self._budget.next_at(changes))

    def _end(
        self, window: ApplicationWindow, needs: Needs, model: RateModel, best: Size, why: str
    ) -> Proposal | NotReady:
        """Keep the best size; what it reaches is said, since a target may be out of reach."""
        model.best, self._trial = best, None
        target = self._goals.latency_target
        met = target is not None and model.latencies[best] <= target
        reached = f"latency {model.latencies[best]:.3g} s {'meets' if met else 'misses'} {target:.3g} s"
        return self._keep(window, needs, best, f"{why}; {reached}")

    def _keep(self, window: ApplicationWindow, needs: Needs, size: Size, reason: str) -> Proposal | NotReady:
        """Hold this size, or go there; the way back from a trial counts as part of the search."""
        model = self._model
        assert model is not None
        assert model.base is not None
        if needs.held == size:
            self._trial, self._is_on_trial = None, False
            return Hold(reason, {"allocation_ratio": allocation_ratio(size, model.base)})
        if self._is_on_trial and not self._budget.allows(window.end, 1):
            return NotReady(f"{reason}; no change is left to go there", "a change", self._budget.next_at(1))
        return self._scale(window, needs, size, reason)

    def _clamp(self, size: Size) -> Size:
        return tuple(self._bounds.clamp(count) for count in size)

    def _scale(
        self,
        window: ApplicationWindow,
        needs: Needs,
        size: Size,
        reason: str,
        from_throughput: bool = False,
        figures: Mapping[str, float] | None = None,
    ) -> Scale:
        """Name every unit; only DS2's own steps carry its un-rounded need, which the utilisation band reads.

        A size tried for its latency would never pass that band.
        """
        size = self._clamp(size)
        wanted = {**window.parallelism, **dict(zip(needs.units, size, strict=True))}
        changes = [
            f"{unit} {held} → {new}"
            for unit, held, new in zip(needs.units, needs.held, size, strict=True)
            if held != new
        ]
        told = reason if from_throughput else f"{reason}: {', '.join(changes)}"
        if from_throughput and isinstance(needs.answer, Scale):
            return Scale(wanted, told, needs.answer.expected, needs.answer.exact)
        return Scale(wanted, told, ExpectedEffect("the latency target is met with less", figures or {}))


def _largest(*sizes: Size) -> Size:
    return tuple(max(column) for column in zip(*sizes, strict=True))


def _smallest(*sizes: Size) -> Size:
    return tuple(min(column) for column in zip(*sizes, strict=True))


def _figures(improvement: float, expected_score: float) -> dict[str, float]:
    """Return the figures of a trial; a first sample promises none."""
    known = {"expected_improvement": improvement, "expected_score": expected_score}
    return known if math.isfinite(improvement + expected_score) else {}
