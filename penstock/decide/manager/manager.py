"""The scaling manager: between a policy's proposals and the actuator (DS2 sections 4.2.1 and 4.2.2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, SlotWindow
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.manager.corrections import (
    Judgement,
    combine_decisions,
    combine_needs,
    correct_missed_costs,
    judge_early,
    judge_trial,
    name_every_unit,
    name_hot_operators,
    undo_trial,
)
from penstock.decide.manager.critical_path import UselessGrowth
from penstock.decide.manager.guardrails import (
    Bounds,
    Guardrail,
    KeepUpFirst,
    LargestStepDown,
    LargestStepUp,
    Limited,
    MinorChanges,
    NoChanges,
    NotAgain,
    ScaleDownDelay,
    Situation,
    SmallGains,
    UtilisationBand,
)
from penstock.decide.manager.history import (
    Decision,
    ManagerState,
    Refused,
    Trial,
    forget_outdated,
    is_falling_behind,
    mean_offered,
    measure_load,
    remember_decision,
)
from penstock.decide.manager.memory_losses import SizeIsNotMemory, tell_losses
from penstock.decide.manager.proposals import (
    apply_sizes,
    find_need,
    find_oversize,
    find_pending_size,
    find_standing,
    grows,
    is_planned,
    object_to_move,
    object_to_proposal,
    tell_cut_step,
    tell_lapse,
    tell_oversize,
    write_sizes,
)
from penstock.decide.manager.real_time import RealTimeFloor
from penstock.decide.manager.restarts import RestartJudge
from penstock.decide.manager.settings import ManagerSettings, Statistic
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Hold, MoveState, Proposal, Resize, Scale
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

    def __init__(
        self,
        settings: ManagerSettings,
        bounds: SizeBounds | None = None,
        goals: Goals | None = None,
        *,
        restarts: RestartJudge | None = None,
    ) -> None:
        """`restarts` says what becomes of settings that need new executors; without it none are supported."""
        self.settings, self.restarts = settings, restarts
        self.state = ManagerState()
        self.band = UtilisationBand(settings.utilisation_low, (goals or Goals()).utilisation)
        self.bounds = bounds or SizeBounds()
        self.periods = NoChanges(settings.quiet)
        limits = (Bounds(self.bounds.least, self.bounds.most), RealTimeFloor())
        steps = (LargestStepUp(settings.largest_step_up), LargestStepDown(settings.largest_step_down))
        # First the rules that ask whether there is reason to change at all, then those that bend how far:
        # the delay raises a reduction, so what is minor is asked after it; the step is cut from a change that
        # is real; the bounds and the periods are the user's hard limits and have the last word, but for what
        # would kill a query.
        self.guardrails: Sequence[Guardrail] = (
            self.band,
            KeepUpFirst(),
            SizeIsNotMemory(),
            NotAgain(),
            SmallGains(settings.small_gain_limit),
            *([UselessGrowth()] if settings.critical_path == "veto" else []),
            ScaleDownDelay(settings.scale_down_delay),
            MinorChanges(settings.ignore_changes_below),
            *steps,
            *limits,
            self.periods,
        )
        # the size was held before, and every further moment at the worse one costs
        self.rollback_guardrails: Sequence[Guardrail] = (*limits, self.periods)
        # without metrics, nothing is known of the need
        self.fallback_guardrails: Sequence[Guardrail] = (*steps, *limits, self.periods)

    @property
    def considered(self) -> int:
        """The number of windows in a row that are looked at together; a trend needs two."""
        return max(2, self.settings.activation_intervals)

    def judge(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        """Say what becomes of the policy's answer to this window."""
        verdict = self._wait_if_too_early(now, window) or self._consider(now, window, answer)
        held, state = window.parallelism, self.state
        pending = find_pending_size(answer, verdict, held) or tell_cut_step(verdict, state.trial)
        since = find_oversize(state.oversized_since, now, answer, verdict, held)
        if (pending, since) != (state.pending_size, state.oversized_since):
            self.state = replace(state, pending_size=pending, oversized_since=since)
        if since is not None:
            verdict = tell_oversize(verdict, now - since)
        verdict = tell_losses(verdict, window)
        _log_rejection(window, verdict)
        return verdict

    def judge_fallback(self, now: float, window: ApplicationWindow, fallback: Scale) -> Verdict:
        """Say what becomes of the size for the time without metrics; `window` knows what is held, no more."""
        state = self.state
        if state.under_way is not None:
            return Waiting(f"an action is under way: {write_sizes(state.under_way.parallelism)}")
        self.state = replace(state, last_now=now, held=dict(window.parallelism))
        situation = Situation(now, window, self.state, behind=False)
        verdict = self._apply_guardrails(situation, fallback, self.fallback_guardrails)
        # without figures of before there is nothing to judge it by
        self.state = replace(self.state, prepared=None)
        _log_rejection(window, verdict)
        return verdict

    def object_to_moves(self) -> Rejected | None:
        """Reject any move of state now: while an action is under way, or where the size changes first.

        A move may begin during warm-up: executors that were just added wait for their state.
        """
        state = self.state
        if state.under_way is not None:
            return Rejected(
                "action-under-way", f"an action is under way: {write_sizes(state.under_way.planned)}"
            )
        if state.pending_size is not None:
            return Rejected("size-first", f"the size may be about to change: {state.pending_size}")
        return self.periods.object_to(state.last_now or 0.0, "state lies unevenly")

    def judge_move(self, window: ApplicationWindow, move: MoveState) -> Accepted | Rejected:
        """Say what becomes of a move of state, after the policy's answer to the same window was judged."""
        verdict = self.object_to_moves() or object_to_move(move) or Accepted(move)
        _log_rejection(window, verdict)
        return verdict

    def action_started(self, now: float, action: Scale) -> None:
        """Note that an action is under way: nothing is judged until it has ended."""
        prepared = self.state.prepared
        trial = prepared if prepared and prepared.action == action else Trial(action, self.state.held, ())
        refused = self.state.refused
        if trial.rollback and self.state.trial:
            failed = self.state.trial
            offered = mean_offered(self.state.measured)
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
            trial = replace(trial, action=apply_sizes(trial.action, reached))
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

    def _wait_if_too_early(self, now: float, window: ApplicationWindow) -> Waiting | None:
        """Wait where this window is unfit to be judged and the next one will be better."""
        state = self.state
        if state.last_now is not None and now < state.last_now:
            return self._clock_went_back(now, state.last_now)
        self.state = state = replace(state, last_now=now, held=dict(window.parallelism))
        if state.under_way is not None:
            return Waiting(f"an action is under way: {write_sizes(state.under_way.parallelism)}")
        if state.changed_at is not None and window.start < state.changed_at:
            return Waiting("the window began before the last change", state.changed_at + _span(window))
        # the warm-up is for rates, and a window without queries has none
        return (self._wait_for_warm_up(window) if window.queries else None) or self._wait_for_newer(window)

    def _clock_went_back(self, now: float, last_now: float) -> Waiting:
        """Measure all anew: times before and after the jump cannot be compared."""
        self.state = replace(self.state, last_now=now, trial=None)
        self._begin_warm_up(now)
        return Waiting(f"the clock went back by {last_now - now:g} s: measuring anew", self.state.ready_from)

    def _wait_for_warm_up(self, window: ApplicationWindow) -> Waiting | None:
        if self.state.ready_from is None:
            ready_from = window.start + self.settings.warm_up_intervals * self.settings.policy_interval
            self.state = replace(self.state, ready_from=ready_from)
        ready_from = self.state.ready_from or window.start
        # windows follow the loop's ticks, which come a little early or late
        if window.start + self.settings.policy_interval / 2 >= ready_from:
            return None
        return Waiting("warming up: rates are unstable after a start or a change", ready_from + _span(window))

    def _wait_for_newer(self, window: ApplicationWindow) -> Waiting | None:
        measured = self.state.measured
        if measured and window.end <= measured[-1].end:
            return Waiting("no newer window than the last one that was judged")
        return None

    def _consider(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        if isinstance(answer, NotReady):
            return Waiting(str(answer), answer.until)
        if isinstance(answer, Resize) and self.restarts is not None:
            judged = self.restarts.judge(now, answer)
            forbidden = self.periods.object_to(now, answer.reason) if isinstance(judged, Accepted) else None
            return forbidden or judged
        objected = object_to_proposal(answer, window.parallelism)
        if objected is not None:
            return objected
        assert isinstance(answer, Hold | Scale)
        answer = find_standing(answer, self.state.decisions)
        behind = self._remember(now, window, answer)
        self._conclude_trial(window)
        situation = Situation(now, window, self.state, behind)
        if self._did_harm(window):
            return self._roll_back(situation)
        return tell_lapse(self._activate(situation, answer), self._recent, window.parallelism)

    @property
    def _recent(self) -> Sequence[Decision]:
        return self.state.decisions[-self.settings.activation_intervals :]

    def _remember(self, now: float, window: ApplicationWindow, answer: Hold | Scale) -> bool:
        """Take the window and the answer in, and say whether the application falls behind."""
        state = self.state
        if state.decisions and now - state.decisions[-1].at > self._longest_gap(window):
            state = replace(state, decisions=(), measured=())
        measured = (*state.measured, measure_load(window))[-self.considered :]
        behind = is_falling_behind(measured)
        decision = self._note_decision(Situation(now, window, state, behind), answer)
        decisions = remember_decision(state.decisions, decision, self.settings.scale_down_delay)
        self.state = forget_outdated(replace(state, measured=measured, decisions=decisions))
        return behind

    def _note_decision(self, situation: Situation, answer: Hold | Scale) -> Decision:
        """Note a decision; a size that the band rejects must not count towards the scale-down delay."""
        sizes = find_need(answer, situation.held)
        if sizes == situation.held:
            return Decision(situation.now, sizes, sizes, answer)
        floor = self.band.apply_band(name_every_unit(answer, sizes), situation)
        return Decision(situation.now, sizes, floor, answer)

    def _longest_gap(self, window: ApplicationWindow) -> float:
        """Return how far apart consecutive decisions may be: batches may outlast the interval."""
        queries = window.queries if isinstance(window, SlotWindow) else ()
        batches = [batch.seconds for query in queries for batch in query.batches]
        return max(10 * self.settings.policy_interval, 3 * max(batches, default=0.0))

    def _judge_trial(self, window: ApplicationWindow) -> Judgement | None:
        trial, settings = self.state.trial, self.settings
        if trial is None or len(self.state.measured) < self.considered:
            return None
        return judge_trial(
            trial, window.parallelism, self.state.measured, settings.rollback_worse_by, settings.small_gain
        )

    def _did_harm(self, window: ApplicationWindow) -> bool:
        return self.settings.rollback and self._judge_trial(window) is Judgement.WORSE

    def _conclude_trial(self, window: ApplicationWindow) -> None:
        """Count what brought little; a trial stays open while it is found worse, until it is undone."""
        judgement = self._judge_trial(window)
        if judgement is None or (judgement is Judgement.WORSE and self.settings.rollback):
            return
        gains, offered = self.state.small_gains, self.state.small_gain_offered
        if judgement is Judgement.LITTLE:
            gains, offered = gains + 1, mean_offered(self.state.measured)
        elif judgement is Judgement.GOOD:
            gains = 0
        self.state = replace(self.state, trial=None, small_gains=gains, small_gain_offered=offered)

    def _roll_back(self, situation: Situation) -> Verdict:
        trial = self.state.trial
        assert trial is not None
        return self._apply_guardrails(situation, undo_trial(trial), self.rollback_guardrails, rollback=True)

    def _activate(self, situation: Situation, answer: Hold | Scale) -> Verdict:
        settings, decisions = self.settings, self.state.decisions
        needed = 1 if is_planned(answer) else settings.activation_intervals
        if len(decisions) < needed:
            if isinstance(answer, Hold):
                return NothingToDo(answer.reason)
            reason = f"{len(decisions)} of {needed} decisions considered: {answer.reason}"
            return Waiting(reason, situation.now + settings.policy_interval)
        recent = decisions[-needed:]
        sizes = combine_needs(recent, situation.held, settings.activation_statistic)
        scale = combine_decisions(recent, sizes, situation.held)
        # while one decision asks for growth, the next will show whether the policy sees the cost itself
        if situation.behind and not any(grows(decision.need, situation.held) for decision in recent):
            limits = settings.target_rate_ratio, settings.utilisation_low
            scale = correct_missed_costs(scale, situation, *limits)
        waiting = self._wait_for_judgement(situation, scale)
        verdict = waiting or self._apply_guardrails(situation, scale, self.guardrails)
        return name_hot_operators(verdict, situation)

    def _wait_for_judgement(self, situation: Situation, scale: Scale) -> Waiting | None:
        """Let a further growth wait for the windows by which the last one is judged, and no longer."""
        trial, measured = self.state.trial, self.state.measured
        if trial is None or trial.waited >= self.considered - 1:
            return None
        if not grows(scale.parallelism, situation.held):
            return None
        judgement = judge_early(trial, measured[-1], self.settings.small_gain)
        if judgement is Judgement.GOOD:
            self.state = replace(self.state, small_gains=0)
        if judgement is not None:
            return None
        self.state = replace(self.state, trial=replace(trial, waited=trial.waited + 1))
        seen = f"{len(measured)} of {self.considered} windows seen by which the last growth is judged"
        return Waiting(f"{seen}: {scale.reason}", situation.now + self.settings.policy_interval)

    def _apply_guardrails(
        self, situation: Situation, scale: Scale, guardrails: Sequence[Guardrail], rollback: bool = False
    ) -> Verdict:
        notes: list[str] = []
        uncut = scale.parallelism
        # all rules but the bounds are about changes, and let what is held pass
        changes = scale.parallelism != situation.held
        for guardrail in guardrails if changes else self.rollback_guardrails:
            if isinstance(guardrail, LargestStepUp):
                uncut = scale.parallelism
            opinion = guardrail.apply(scale, situation)
            if isinstance(opinion, Rejected):
                return opinion
            if isinstance(opinion, Limited):
                notes.append(opinion.note)
                opinion = opinion.scale
            scale = opinion
        if dict(scale.parallelism) == dict(situation.held):
            return NothingToDo(scale.reason)
        wanted = {unit: min(size, self.bounds.most) for unit, size in uncut.items()}
        trial = Trial(scale, dict(situation.held), self.state.measured, rollback, wanted=wanted)
        self.state = replace(self.state, prepared=trial)
        return Accepted(scale, tuple(notes), rollback)


def _log_rejection(window: ApplicationWindow, verdict: Verdict) -> None:
    if isinstance(verdict, Rejected):
        log.info("%s: rejected by %s: %s", window.application, verdict.guardrail, verdict.reason)


def _span(window: ApplicationWindow) -> float:
    return window.end - window.start
