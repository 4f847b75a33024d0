"""The scaling manager: between a policy's proposals and the actuator (DS2 sections 4.2.1 and 4.2.2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.activation import as_change, as_scale, combined_need
from penstock.decide.corrections import Judgement, back, corrected_for_missed_costs, judged
from penstock.decide.critical import UselessGrowth
from penstock.decide.guardrails import (
    Bounds,
    Guardrail,
    KeepUpFirst,
    LargestStepDown,
    Limited,
    MinorChanges,
    NotAgain,
    ScaleDownDelay,
    Situation,
    SmallGains,
    UtilisationBand,
    grows_to,
    resized,
    written,
)
from penstock.decide.history import Decision, ManagerState, Refused, Trial, remember, without_outdated
from penstock.decide.manager_settings import ManagerSettings, Statistic
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Hold, Proposal, Resize, Scale
from penstock.decide.pressure import Measured, falling_behind, measure, offered_rate
from penstock.decide.proposals import need, objection
from penstock.decide.restarts import RestartJudge
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Verdict, Waiting

__all__ = [
    "Accepted",
    "ManagerSettings",
    "NothingToDo",
    "Rejected",
    "ScalingManager",
    "Statistic",
    "Verdict",
    "Waiting",
]

log = logging.getLogger(__name__)


class ScalingManager:
    """Judges one application's proposals; time is passed in, and all memory is in `state`."""

    def __init__(self, settings: ManagerSettings, restarts: RestartJudge | None = None) -> None:
        """`restarts` says what becomes of settings that need new executors; without it none are supported."""
        self.settings, self.restarts = settings, restarts
        self.state = ManagerState()
        self.band = UtilisationBand(settings.utilisation_low, settings.utilisation)
        bounds = Bounds(settings.min_executors, settings.max_executors)
        # First the rules that ask whether there is reason to change at all, then those that bend how far:
        # the delay raises a reduction, so what is minor is asked after it; the step is cut from a change that
        # is real; the bounds are the user's hard limits and have the last word.
        self.guardrails: Sequence[Guardrail] = (
            self.band,
            KeepUpFirst(),
            NotAgain(),
            SmallGains(settings.small_gain_limit),
            *([UselessGrowth()] if settings.critical_path_veto else []),
            ScaleDownDelay(settings.scale_down_delay),
            MinorChanges(settings.ignore_changes_below),
            LargestStepDown(settings.largest_step_down),
            bounds,
        )
        # the size was held before, and every further moment at the worse one costs
        self.rollback_guardrails: Sequence[Guardrail] = (bounds,)

    @property
    def considered(self) -> int:
        """How many windows in a row are looked at together; a trend needs two."""
        return max(2, self.settings.activation_intervals)

    def judge(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        """Say what becomes of the policy's answer to this window."""
        verdict = self._too_early(now, window) or self._considered(now, window, answer)
        if isinstance(verdict, Rejected):
            log.info("%s: rejected by %s: %s", window.application, verdict.guardrail, verdict.reason)
        return verdict

    def action_started(self, now: float, action: Scale) -> None:
        """Note that an action is under way: nothing is judged until it has ended."""
        prepared = self.state.prepared
        trial = prepared if prepared and prepared.action == action else Trial(action, self.state.held, ())
        refused = self.state.refused
        if trial.rollback and self.state.trial:
            failed = self.state.trial
            offered = offered_rate(self.state.measured)
            refused = Refused(failed.action.parallelism, failed.before, offered)
        self.state = replace(
            self.state, last_now=now, under_way=action, prepared=None, trial=trial, refused=refused
        )

    def action_ended(self, now: float, action: Scale, outcome: Outcome) -> None:
        """Note how an action ended: warm-up begins, and what was measured before counts no more."""
        trial = self.state.trial
        if trial is None or trial.rollback or outcome.status in {Status.FAILED, Status.UNKNOWN}:
            trial = None
        elif outcome.observed:
            reached = {**trial.action.parallelism, **outcome.observed}
            trial = replace(trial, action=resized(trial.action, reached))
        self.state = replace(self.state, last_now=now, under_way=None, trial=trial)
        self._begin_warm_up(now)

    def restore(self, last_action_at: float | None) -> None:
        """Take up after a restart: the last action's warm-up still counts."""
        self.state = ManagerState(last_now=last_action_at)
        if last_action_at is not None:
            self._begin_warm_up(last_action_at)

    def _begin_warm_up(self, changed_at: float) -> None:
        ready_from = changed_at + self.settings.warm_up_intervals * self.settings.policy_interval
        self.state = replace(
            self.state, changed_at=changed_at, ready_from=ready_from, measured=(), decisions=(), prepared=None
        )

    def _too_early(self, now: float, window: ApplicationWindow) -> Waiting | None:
        """What makes a window unfit to be judged, and lets the next one be better."""
        state = self.state
        if state.last_now is not None and now < state.last_now:
            return self._clock_went_back(now, state.last_now)
        self.state = state = replace(state, last_now=now, held=dict(window.parallelism))
        if state.under_way is not None:
            return Waiting(f"an action is under way: {written(state.under_way.parallelism)}")
        if state.changed_at is not None and window.start < state.changed_at:
            return Waiting("the window began before the last change", state.changed_at + _span(window))
        # the warm-up is for rates, and a window without queries has none
        return (self._warming_up(window) if window.queries else None) or self._seen_before(window)

    def _clock_went_back(self, now: float, last_now: float) -> Waiting:
        """Times before and after the jump cannot be compared, so all is measured anew."""
        self.state = replace(self.state, last_now=now, trial=None)
        self._begin_warm_up(now)
        return Waiting(f"the clock went back by {last_now - now:g} s: measuring anew", self.state.ready_from)

    def _warming_up(self, window: ApplicationWindow) -> Waiting | None:
        if self.state.ready_from is None:
            ready_from = window.start + self.settings.warm_up_intervals * self.settings.policy_interval
            self.state = replace(self.state, ready_from=ready_from)
        ready_from = self.state.ready_from or window.start
        # windows follow the loop's ticks, which come a little early or late
        if window.start + self.settings.policy_interval / 2 >= ready_from:
            return None
        return Waiting("warming up: rates are unstable after a start or a change", ready_from + _span(window))

    def _seen_before(self, window: ApplicationWindow) -> Waiting | None:
        measured = self.state.measured
        if measured and window.end <= measured[-1].end:
            return Waiting("no newer window than the last one that was judged")
        return None

    def _considered(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        if isinstance(answer, NotReady):
            return Waiting(str(answer), answer.until)
        if isinstance(answer, Resize) and self.restarts is not None:
            return self.restarts.judge(now, answer)
        objected = objection(answer, window.parallelism)
        if objected is not None:
            return objected
        assert isinstance(answer, Hold | Scale)
        behind = self._remember(now, window, answer)
        self._conclude_trial(window)
        situation = Situation(now, window, self.state, behind)
        if self._did_harm(window):
            return self._roll_back(situation)
        return self._activated(situation, answer)

    def _remember(self, now: float, window: ApplicationWindow, answer: Hold | Scale) -> bool:
        """Take the window and the answer in, and say whether the application falls behind."""
        state = self.state
        if state.decisions and now - state.decisions[-1].at > self._longest_gap(window):
            state = replace(state, decisions=(), measured=())
        measured = (*state.measured, measure(window))[-self.considered :]
        behind = falling_behind(measured)
        decision = self._decision(Situation(now, window, state, behind), answer)
        decisions = remember(state.decisions, decision, self.settings.scale_down_delay)
        self.state = without_outdated(replace(state, measured=measured, decisions=decisions))
        return behind

    def _decision(self, situation: Situation, answer: Hold | Scale) -> Decision:
        """A smaller size that the band would not hear of must not count towards the scale-down delay."""
        sizes = need(answer, situation.held)
        if sizes == situation.held:
            return Decision(situation.now, sizes, sizes, answer)
        floor = self.band.left_of(as_change(answer, sizes), situation)
        return Decision(situation.now, sizes, floor, answer)

    def _longest_gap(self, window: ApplicationWindow) -> float:
        """How far apart two decisions may be and still be consecutive: batches may outlast the interval."""
        batches = [batch.seconds for query in window.queries for batch in query.batches]
        return max(10 * self.settings.policy_interval, 3 * max(batches, default=0.0))

    def _judgement(self, window: ApplicationWindow) -> Judgement | None:
        trial, settings = self.state.trial, self.settings
        if trial is None or len(self.state.measured) < self.considered:
            return None
        return judged(
            trial, window.parallelism, self.state.measured, settings.rollback_worse_by, settings.small_gain
        )

    def _did_harm(self, window: ApplicationWindow) -> bool:
        return self.settings.rollback and self._judgement(window) is Judgement.WORSE

    def _conclude_trial(self, window: ApplicationWindow) -> None:
        """Count what brought little; a trial stays open while it is found worse, until it is undone."""
        judgement = self._judgement(window)
        if judgement is None or (judgement is Judgement.WORSE and self.settings.rollback):
            return
        gains, offered = self.state.small_gains, self.state.small_gain_offered
        if judgement is Judgement.LITTLE:
            gains, offered = gains + 1, offered_rate(self.state.measured)
        elif judgement is Judgement.GOOD:
            gains = 0
        self.state = replace(self.state, trial=None, small_gains=gains, small_gain_offered=offered)

    def _roll_back(self, situation: Situation) -> Verdict:
        trial = self.state.trial
        assert trial is not None
        return self._guarded(situation, back(trial), self.rollback_guardrails, rollback=True)

    def _activated(self, situation: Situation, answer: Hold | Scale) -> Verdict:
        settings, decisions = self.settings, self.state.decisions
        if len(decisions) < settings.activation_intervals:
            if isinstance(answer, Hold):
                return NothingToDo(answer.reason)
            reason = (
                f"{len(decisions)} of {settings.activation_intervals} decisions considered: {answer.reason}"
            )
            return Waiting(reason, situation.now + settings.policy_interval)
        recent = decisions[-settings.activation_intervals :]
        sizes = combined_need(recent, situation.held, settings.activation_statistic)
        scale = as_scale(recent, sizes, situation.held)
        # while one decision asks for growth, the next will show whether the policy sees the cost itself
        if situation.behind and not any(grows_to(decision.need, situation.held) for decision in recent):
            limits = settings.target_rate_ratio, settings.utilisation_low
            scale = corrected_for_missed_costs(scale, situation, *limits) or scale
        return self._guarded(situation, scale, self.guardrails)

    def _guarded(
        self, situation: Situation, scale: Scale, guardrails: Sequence[Guardrail], rollback: bool = False
    ) -> Verdict:
        notes: list[str] = []
        # all rules but the bounds are about changes, and let what is held pass
        changes = scale.parallelism != situation.held
        for guardrail in guardrails if changes else self.rollback_guardrails:
            opinion = guardrail.apply(scale, situation)
            if isinstance(opinion, Rejected):
                return opinion
            if isinstance(opinion, Limited):
                notes.append(opinion.note)
                opinion = opinion.scale
            scale = opinion
        if dict(scale.parallelism) == dict(situation.held):
            return NothingToDo(scale.reason)
        before: tuple[Measured, ...] = self.state.measured
        self.state = replace(self.state, prepared=Trial(scale, dict(situation.held), before, rollback))
        return Accepted(scale, tuple(notes))


def _span(window: ApplicationWindow) -> float:
    return window.end - window.start
