"""The closed loop: one cycle on one screen (`Loop._steps`); `ports.py` is where it meets the world."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, NoBatchYet
from penstock.decide.manager.history import measure_load
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import (
    UTILISATION,
    Action,
    Hold,
    MoveState,
    Proposal,
    Resize,
    Scale,
    Watcher,
)
from penstock.decide.verdict import Accepted, Verdict, Waiting
from penstock.errors import ActionFailed, JournalUnavailable, PenstockError, SparkUnavailable, Unsupported
from penstock.runtime.fallback import NoMetrics
from penstock.runtime.follow_up import FollowUp, MeasuredEffect, conclude_left_open
from penstock.runtime.ports import Actuator, Ports, Withdrawer
from penstock.runtime.timeline import RecentTimeline
from penstock.runtime.timing import Timing
from penstock.runtime.under_way import UNNEEDED_WINDOWS, UnderWay, grows, is_enough, is_growth

log = logging.getLogger(__name__)

LAST_CHANGE = "the last change"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How often the loop decides, when it measures an effect, and when it gives up.

    Polls are counted, not timed: the clock may jump.
    """

    policy_interval: float = 10.0
    effect_after_intervals: int = 3
    failures_before_pause: int = 3
    polls_before_giving_up: int = 10
    timeline_length: int = 500
    """Windows, decisions and outcomes kept in memory for whoever watches; 0 keeps none."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """The record of one tick: seen, decided, done. Between policy intervals it only looks after an action."""

    at: float
    window: ApplicationWindow | None = None
    answer: Proposal | NotReady | None = None
    verdict: Verdict | None = None
    action: Action | None = None
    action_id: int | None = None
    outcome: Outcome | None = None
    effect: MeasuredEffect | None = None
    paused: str | None = None
    error: str | None = None


class Loop:
    """The loop over one application: observe, decide, act, record. Without an actuator it recommends."""

    def __init__(self, application: str, ports: Ports, settings: LoopSettings | None = None) -> None:
        self.application, self.settings = application, settings or LoopSettings()
        self.source, self.policy, self.manager = ports.source, ports.policy, ports.manager
        self.record, self.actuator = ports.record, ports.actuator
        self.mover, self.restarter = ports.mover, ports.restarter
        self.timeline = RecentTimeline(self.settings.timeline_length)
        self.paused: str | None = None
        effect_delay = self.settings.effect_after_intervals * self.settings.policy_interval
        self._follow_up = FollowUp(self.record, effect_delay)
        self._under_way: UnderWay | None = None
        self._ordered: Action | None = None
        self._reconciled = False
        self._failures = 0
        self._last_error: str | None = None
        self._timing = Timing(self.settings.policy_interval)
        self._is_sized = False

    def tick(self, now: float) -> Cycle:
        """Run one cycle; a failure is told in the cycle and never reaches the application."""
        cycle, error = Cycle(now), None
        try:
            for so_far in self._steps(now):
                cycle = so_far
        except PenstockError as problem:
            error = str(problem)
        except Exception as problem:
            log.exception("%s: the autopilot failed in a cycle", self.application)
            error = self._count_failure(problem)
        effect = self._follow_up.take_measured()
        if self._under_way or self.paused or error or effect:
            action_id = self._under_way.action_id if self._under_way else None
            cycle = replace(cycle, action=self.action_under_way, action_id=action_id, effect=effect)
            cycle = replace(cycle, paused=self.paused, error=error)
        self._tell(cycle)
        return cycle

    def _steps(self, now: float) -> Iterator[Cycle]:
        """Run the cycle step by step; a yielded cycle survives a failure after it."""
        if self._timing.take(now):
            self._follow_up.clock_went_back(now)
        outcome = self._poll(now)
        yield Cycle(now, outcome=outcome)
        seen = self.source.observe(now) if self._timing.is_due(now) else None
        window = seen if isinstance(seen, ApplicationWindow) else None
        yield (cycle := Cycle(now, window, outcome=outcome))
        self.reconcile(now)
        self._follow_up.settle()
        if window is not None:
            self.record.observed(now, window)
            self._follow_up.measure(now, window)
        if self._under_way:
            if window is not None and not self.paused:
                self._show(window)
                yield replace(cycle, **self._give_way(now, window), **self._do_without(now, window))
            return
        if self._ordered is not None:
            yield replace(cycle, outcome=self._obey(now, window))
            return
        if seen is None or self.paused:
            return
        answer = self._answer(seen)
        self._is_sized = self._is_sized or not isinstance(answer, NotReady)
        judged = seen.window if isinstance(seen, NoBatchYet) else window
        verdict = self._judge(now, seen, judged, answer)
        move = self._propose_move(now, window) if window is not None else None
        if window is not None and move is not None:
            answer, verdict = move, self.manager.judge_move(window, move)
        yield (cycle := Cycle(now, window, answer, verdict, outcome=outcome))
        decision_id = self.record.decided(now, self.application, answer, verdict, self.policy.name)
        action = verdict.action if isinstance(verdict, Accepted) else None
        # a Resize needs a restart, which only a supervisor can do: it ends the application, and this loop
        if isinstance(action, Resize) and self.restarter is not None:
            self.pause(self.restarter.ask(now, self.application, decision_id, action))
        if isinstance(action, Scale | MoveState) and self.actuator is not None:
            yield replace(cycle, outcome=self._begin(now, self.actuator, decision_id, action, judged))
        self._failures = 0

    @property
    def action_under_way(self) -> Action | None:
        """The action that was begun and has not ended."""
        return self._under_way.action if self._under_way else None

    def pause(self, reason: str = "paused by hand") -> None:
        """Go on observing and recording, propose nothing; an action under way is seen to its end."""
        self.paused = reason

    def resume(self) -> None:
        """Propose again."""
        self._failures = 0
        self.paused = None

    def order(self, action: Action) -> None:
        """Take an action for the next tick, also while paused; ActionFailed while another is under way."""
        if self.actuator is None:
            raise Unsupported("this autopilot only observes: it changes nothing")
        if self._ordered is not None or (self._under_way is not None and not self._has_moved()):
            raise ActionFailed("another action is under way: wait for its end")
        self._ordered = action

    def _has_moved(self) -> bool:
        """Tell whether the action under way is a move that has ended, which the next tick will note."""
        is_move = isinstance(self.action_under_way, MoveState)
        return is_move and self.mover is not None and not self.mover.moving()

    def leave(self, now: float) -> None:
        """Stop for good and close an action under way with what Spark reports; raise nothing."""
        try:
            if self._under_way is not None:
                left = PenstockError("the autopilot was detached before the action had ended")
                self._end(now, self._under_way, self._break_off(now, self._under_way, left))
            self._follow_up.settle()
        except Exception as problem:
            self._warn("an outcome is left open", problem)

    def reconcile(self, now: float) -> None:
        """Close, once after a start, actions left open with what Spark reports; nothing is done twice."""
        if self._reconciled:
            return
        unfinished = self.record.unfinished(self.application)
        if unfinished and self.actuator is not None:
            held = dict(self.actuator.held())
            for action in unfinished:
                self.record.ended(now, action.action_id, conclude_left_open(now, action, held))
        latest = self.record.actions(self.application, limit=1)
        if latest:
            changed_at = latest[-1].ended_at or latest[-1].intended_at
            self._timing.distrust_before(min(now, changed_at), LAST_CHANGE)
        self.manager.restore(self._timing.fresh_from if latest else None)
        self._reconciled = True

    def _poll(self, now: float) -> Outcome | None:
        if self._under_way is None or self.actuator is None:
            return None
        under_way = self._under_way
        try:
            outcome = self.actuator.poll(now)
            self._under_way = replace(under_way, failed_polls=0)
        except SparkUnavailable as problem:
            failed = under_way.failed_polls + 1
            if failed < self.settings.polls_before_giving_up:
                self._under_way = replace(under_way, failed_polls=failed)
                raise
            outcome = self._break_off(now, under_way, problem)
        except Exception as problem:
            outcome = self._break_off(now, under_way, problem)
        return self._end(now, under_way, outcome) if outcome else None

    def _answer(self, seen: ApplicationWindow | NotReady) -> Proposal | NotReady:
        if isinstance(seen, NoMetrics):
            return seen.fallback
        if isinstance(seen, NoBatchYet):
            return self._in_first_batch(seen)
        if isinstance(seen, NotReady):
            return seen
        stale = self._timing.find_stale(seen)
        if stale is not None:
            self._show(seen)
        return stale or self.policy.propose(seen)

    def _show(self, window: ApplicationWindow) -> None:
        """Show the policy a window about which it is not asked, if it wants to see those."""
        if isinstance(self.policy, Watcher):
            self.policy.watch(window)

    def _in_first_batch(self, seen: NoBatchYet) -> Proposal | NotReady:
        """Answer for a first batch, which may take long, or never end for want of memory.

        Its tasks may show that more executors are needed, its executors that other settings are.
        """
        window = seen.window
        if not (window.queries or window.sizing) or self._timing.find_stale(window):
            return seen
        answer = self.policy.propose(window)
        if isinstance(answer, Hold):
            return NotReady(f"{seen.reason}; {answer.reason}", seen.awaiting)
        if isinstance(answer, NotReady) and window.queries:
            return NotReady(f"{seen.reason}; {answer.reason}", answer.awaiting, answer.until)
        if isinstance(answer, Scale):
            return answer if window.queries and grows(answer, window) else seen
        return answer if isinstance(answer, Resize) else seen

    def _judge(
        self,
        now: float,
        seen: ApplicationWindow | NotReady,
        window: ApplicationWindow | None,
        answer: Proposal | NotReady,
    ) -> Verdict:
        if isinstance(seen, NoMetrics):
            return self.manager.judge_fallback(now, seen.window, seen.fallback)
        if window is not None and not (isinstance(answer, NotReady) and not window.queries):
            return self.manager.judge(now, window, answer)
        assert isinstance(answer, NotReady)
        return Waiting(str(answer), answer.until)

    def _propose_move(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """Ask the mover, unless a guardrail forbids every move: planning one reads the files of all bins.

        In the first minute the size comes first, since nothing is decided while state moves.
        """
        if self.mover is None or self.actuator is None or self.manager.object_to_moves() is not None:
            return None
        if not self._is_sized and self._timing.is_young(now):
            return None
        return self.mover.propose(now, window)

    def _give_way(self, now: float, window: ApplicationWindow) -> dict[str, Any]:
        """Stop a move of state for a larger size that the load asks for; the bins that have moved stay."""
        under_way = self._under_way
        if self.mover is None or under_way is None or not isinstance(under_way.action, MoveState):
            return {}
        if not under_way.may_give_way(now, measure_load(window).offered):
            return {}
        answer = self._answer(window)
        verdict = self.manager.judge(now, window, answer)
        if not is_growth(verdict, window) or not self.mover.stop("the load asks for another size"):
            return {}
        waiting = Waiting(f"the state that moves comes to a stop first: {verdict.reason}")
        self.record.decided(now, self.application, answer, waiting, self.policy.name)
        return {"answer": answer, "verdict": waiting}

    def _do_without(self, now: float, window: ApplicationWindow) -> dict[str, Any]:
        """Withdraw an order for executors that have not come and are needed no more: it blocks all decisions.

        Only a policy that foresees how busy a size is can tell; an order given by hand stands.
        """
        under_way = self._under_way
        action = self.action_under_way
        if under_way is None or not isinstance(action, Scale) or not grows(action, window):
            return {}
        if not isinstance(self.actuator, Withdrawer) or UTILISATION not in action.expected.figures:
            return {}
        answer = self._answer(window)
        unneeded = under_way.unneeded + 1 if is_enough(answer, window) else 0
        self._under_way = replace(under_way, unneeded=unneeded)
        if unneeded < UNNEEDED_WINDOWS:
            return {}
        waiting = Waiting("the order for more executors is withdrawn: what is there is enough")
        self.record.decided(now, self.application, answer, waiting, self.policy.name)
        self.actuator.withdraw("no more are needed")
        return {"answer": answer, "verdict": waiting}

    def _obey(self, now: float, window: ApplicationWindow | None) -> Outcome | None:
        """Begin an order given by hand, recorded like any other action; without a journal it waits."""
        action, waits = self._ordered, None
        assert action is not None and self.actuator is not None
        verdict = Accepted(action)
        try:
            decision_id = self.record.decided(now, self.application, action, verdict, "by hand")
            outcome = self._begin(now, self.actuator, decision_id, action, window, by_hand=True)
        except JournalUnavailable:
            waits = action
            raise
        finally:
            self._ordered = waits
        self.timeline.decided(now, verdict, by_hand=True)
        return outcome

    def _begin(
        self,
        now: float,
        actuator: Actuator,
        decision_id: int,
        action: Action,
        window: ApplicationWindow | None,
        by_hand: bool = False,
    ) -> Outcome | None:
        """Write the intent, then cause the effect; return an outcome only if that failed at once."""
        if window is not None:
            self._follow_up.measure(now, window, last_chance=True)
        held = window.parallelism if window is not None else actuator.held()
        action_id = self.record.intend(now, self.application, decision_id, action, held)
        offered = measure_load(window).offered if window is not None else float("inf")
        self._under_way = under_way = UnderWay(action_id, action, now, offered, by_hand=by_hand)
        try:
            if isinstance(action, Scale):
                self.manager.action_started(now, action)
            actuator.begin(now, action)
        except Exception as problem:
            return self._end(now, under_way, self._break_off(now, under_way, problem))
        return None

    def _end(self, now: float, under_way: UnderWay, outcome: Outcome) -> Outcome:
        self._under_way = None
        self._timing.distrust_before(now, LAST_CHANGE)
        self._follow_up.follow(now, under_way.action_id, outcome, under_way.action.expected.figures)
        if isinstance(under_way.action, Scale):
            self.manager.action_ended(now, under_way.action, outcome)
        return outcome

    def _break_off(self, now: float, under_way: UnderWay, problem: Exception) -> Outcome:
        """Give up an action before its end, and say what Spark holds now; a bug of ours is logged in full."""
        if not isinstance(problem, PenstockError):
            log.error("%s: the actuator failed", self.application, exc_info=problem)
        self._abandon()
        status = Status.FAILED if isinstance(problem, ActionFailed) else Status.UNKNOWN
        planned = dict(under_way.action.planned)
        seconds = max(0.0, now - under_way.begun_at)
        return Outcome(status, planned, planned, self._held_if_known(), seconds, _describe(problem))

    def _abandon(self) -> None:
        try:
            if self.actuator is not None:
                self.actuator.abandon()
        except Exception as problem:
            self._warn("a change is left half-done", problem)

    def _held_if_known(self) -> Mapping[str, int]:
        try:
            return dict(self.actuator.held()) if self.actuator else {}
        except Exception as problem:
            self._warn("Spark does not say what it holds", problem)
            return {}

    def _warn(self, what: str, problem: Exception) -> None:
        """Log a problem that stops nothing; an error of our own with its trace."""
        trace = None if isinstance(problem, PenstockError) else problem
        log.warning("%s: %s: %s", self.application, what, _describe(problem), exc_info=trace)

    def _count_failure(self, problem: Exception) -> str:
        self._failures += 1
        error = f"the autopilot failed: {_describe(problem)}"
        if self._failures < self.settings.failures_before_pause or self.paused:
            return error
        self.pause(f"paused itself after {self._failures} failures in a row, the last: {_describe(problem)}")
        return f"{error}; it {self.paused}"

    def _tell(self, cycle: Cycle) -> None:
        if cycle.error and cycle.error != self._last_error:
            log.warning("%s: stepping aside: %s", self.application, cycle.error)
        self._last_error = cycle.error
        if cycle.error:
            self.timeline.failed()
        if cycle.effect:
            self.timeline.measured(cycle.effect.expected, cycle.effect.measured)
        if cycle.window:
            self.timeline.saw(cycle.at, cycle.window, cycle.answer)
        if cycle.verdict:
            self.timeline.decided(cycle.at, cycle.verdict)
        if cycle.outcome:
            self.timeline.ended(cycle.at, cycle.outcome)


def _describe(problem: Exception) -> str:
    text = str(problem)
    return text if isinstance(problem, PenstockError) else f"{type(problem).__name__}: {text}"
