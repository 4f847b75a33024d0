"""Replays recorded windows: what another policy would have decided, window by window.

The load was what it was, but the size was not this policy's: once it would have held another size than was
really held, its answers rest on windows that it would not have seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import read_operator_query, read_slot_query
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, ExecutorState, OperatorWindow, SlotWindow
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Policy, Proposal, Scale
from penstock.decide.verdict import Accepted, NothingToDo, Verdict, Waiting
from penstock.errors import BadInput, BadMetrics
from penstock.journal.records import ActionRecord, ObservationRecord
from penstock.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Moment:
    """One observed window: what was held and done, and what the policy would have held and done."""

    at: float
    kind: str
    reason: str
    held: Mapping[str, int]
    would_hold: Mapping[str, int]
    decided: Mapping[str, int] | None
    done: Mapping[str, int] | None
    observed: bool
    """Whether the policy would have held what was really held, so that it saw what it would have seen."""


def write_change(before: Mapping[str, int], after: Mapping[str, int] | None) -> str:
    """Write the units that change, with the size before and after."""
    if after is None:
        return "–"
    told = [f"{unit} {before.get(unit, 0)} → {n}" for unit, n in after.items() if before.get(unit) != n]
    return ", ".join(told) or "the same size"


@dataclass(frozen=True, slots=True)
class Replay:
    """All moments of one application under one policy."""

    application: str
    policy: str
    moments: tuple[Moment, ...]
    unreadable: int
    """Observations without what a policy needs, as older versions wrote them."""

    @property
    def steps(self) -> int:
        """Changes that the policy would have made."""
        return sum(moment.decided is not None for moment in self.moments)

    @property
    def steps_done(self) -> int:
        """Changes that were really made."""
        return sum(moment.done is not None for moment in self.moments)

    @property
    def unobserved(self) -> int:
        """Windows in which the policy would have held another size than was observed."""
        return sum(not moment.observed for moment in self.moments)

    @property
    def first_difference(self) -> Moment | None:
        """The first window in which it decides otherwise than was done."""
        return next((one for one in self.moments if one.decided != one.done), None)

    @property
    def warning(self) -> str | None:
        """From where on the answers depend on what was not observed."""
        first = self.first_difference
        if first is None or not self.unobserved:
            return None
        share = self.unobserved / len(self.moments)
        since = f"{datetime.fromtimestamp(first.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"{share:.0%} of the windows, all after {since}, were observed at another size than "
            f"{self.policy} would have held: what it decides there depends on what was not observed"
        )

    def to_json(self) -> dict[str, Any]:
        """Return one JSON-ready object."""
        first = self.first_difference
        return {
            "application": self.application,
            "policy": self.policy,
            "windows": len(self.moments),
            "unreadable": self.unreadable,
            "steps": self.steps,
            "steps_done": self.steps_done,
            "first_difference_at": None if first is None else first.at,
            "unobserved_windows": self.unobserved,
            "warning": self.warning,
            "decisions": [asdict(moment) for moment in self.moments],
        }


def replay_windows(
    observations: Sequence[ObservationRecord],
    actions: Sequence[ActionRecord],
    policy: Policy,
    settings: Settings,
) -> Replay:
    """Ask the policy and the manager at every observed window of one application, in order."""
    return replay_recording(read_recording(observations, actions), policy, settings)


@dataclass(frozen=True, slots=True)
class Recording:
    """The windows of one application and the changes of its size, as a journal has kept them."""

    application: str
    windows: tuple[ApplicationWindow, ...]
    changes: tuple[ActionRecord, ...]
    unreadable: int

    @property
    def change_seconds(self) -> float:
        """How long changes of this application mostly take; 0 if none has ended."""
        ended = [
            action.ended_at - action.intended_at for action in self.changes if action.ended_at is not None
        ]
        return median(ended) if ended else 0.0


def read_recording(observations: Sequence[ObservationRecord], actions: Sequence[ActionRecord]) -> Recording:
    """Read the windows that policies can be asked about; BadInput if there is none."""
    windows = tuple(_windows(observations))
    if not windows:
        raise BadInput(
            f"none of the {len(observations)} observations says enough to ask a policy: they were written by "
            "an older version"
        )
    units = {unit for window in windows for unit in window.parallelism}
    # state that was moved is no change of size
    changes = tuple(action for action in actions if action.planned and units.issuperset(action.planned))
    return Recording(observations[0].application, windows, changes, len(observations) - len(windows))


def replay_recording(recording: Recording, policy: Policy, settings: Settings) -> Replay:
    """Ask the policy and the manager at every window, in order."""
    done = _done_after([window.end for window in recording.windows], recording.changes)
    manager = ScalingManager(settings.manager, settings.bounds, settings.goals)
    replaying = _Replaying(policy, manager, recording.change_seconds)
    moments = [replaying.ask(window, done.get(window.end)) for window in recording.windows]
    return Replay(recording.application, policy.name, tuple(moments), recording.unreadable)


@dataclass(slots=True)
class _Replaying:
    """A policy and a manager on their way through the windows, as the loop would lead them.

    A change takes as long as it really took, or as changes of this application mostly do.
    """

    policy: Policy
    manager: ScalingManager
    change_seconds: float
    would_hold: dict[str, int] = field(default_factory=dict)
    under_way: Scale | None = None
    changed_at: float = float("-inf")

    def ask(self, window: ApplicationWindow, done: ActionRecord | None) -> Moment:
        """Return the answer and the verdict for one window."""
        held = dict(window.parallelism)
        self.would_hold = self.would_hold or held
        before = dict(self.would_hold)
        verdict = self._judge(window)
        # state that is moved is no change of size, and says nothing of another policy's sizes
        accepted = verdict.action if isinstance(verdict, Accepted) else None
        change = accepted if isinstance(accepted, Scale) else None
        # windows show what was really held, so a change that it has made is asked for again and again
        if change is not None and {**self.would_hold, **change.parallelism} == self.would_hold:
            verdict, change = NothingToDo(f"it would hold this size by then: {verdict.reason}"), None
        if change is not None:
            self._begin(window, change, done)
        return Moment(
            at=window.end,
            kind=verdict.kind,
            reason=verdict.reason,
            held=held,
            would_hold=before,
            decided=dict(change.parallelism) if change is not None else None,
            done=dict(done.planned) if done else None,
            observed=before == held,
        )

    def _judge(self, window: ApplicationWindow) -> Verdict:
        if self.under_way is not None:
            if window.end < self.changed_at:
                return Waiting("a change is under way", self.changed_at)
            self._end(self.under_way)
        if window.start < self.changed_at:
            answer: Proposal | NotReady = NotReady("the window began before the last change", "a later one")
        else:
            answer = self.policy.propose(window)
        return self.manager.judge(window.end, window, answer)

    def _begin(self, window: ApplicationWindow, action: Scale, done: ActionRecord | None) -> None:
        really = done.ended_at if done and dict(done.planned) == dict(action.parallelism) else None
        self.changed_at = window.end + self.change_seconds if really is None else really
        self.under_way = action
        self.would_hold = {**self.would_hold, **action.parallelism}
        self.manager.action_started(window.end, action)

    def _end(self, action: Scale) -> None:
        sizes = dict(action.parallelism)
        self.under_way = None
        self.manager.action_ended(self.changed_at, action, Outcome(Status.DONE, sizes, sizes, sizes, 0.0))


def _windows(observations: Iterable[ObservationRecord]) -> Iterator[ApplicationWindow]:
    """Yield the windows of the observations that were kept whole; raises BadMetrics."""
    for record in observations:
        if record.queries and not all(query.detail for query in record.queries):
            continue
        if not record.at > record.start:
            continue
        try:
            yield _window(record)
        except (LookupError, TypeError, AttributeError) as error:
            raise BadMetrics(f"the window that ended at {record.at:.0f}: {error!r}") from error


def _window(record: ObservationRecord) -> ApplicationWindow:
    application, start, end, parallelism = record.application, record.start, record.at, record.parallelism
    if EXECUTORS not in parallelism:
        return OperatorWindow(
            application=application,
            start=start,
            end=end,
            parallelism=dict(parallelism),
            queries=tuple(read_operator_query(one, start, end) for one in record.queries),
            warnings=record.warnings,
        )
    held = parallelism[EXECUTORS]
    cores = max(1, record.slots // held) if held else 1
    return SlotWindow(
        application=application,
        start=start,
        end=end,
        parallelism=dict(parallelism),
        queries=tuple(read_slot_query(one) for one in record.queries),
        executors=tuple(ExecutorState(str(n), "", cores) for n in range(held)),
        slots_per_executor=cores,
        warnings=record.warnings,
    )


def _done_after(ends: Sequence[float], actions: Iterable[ActionRecord]) -> dict[float, ActionRecord]:
    """Return what was really done, by the end of the window after which it was."""
    done: dict[float, ActionRecord] = {}
    for action in actions:
        place = bisect_right(ends, action.intended_at)
        if place:
            done[ends[place - 1]] = action
    return done
