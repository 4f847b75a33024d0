"""The follow-up of an action that has ended: its outcome in the journal, and later its measured effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.dataflow.summary import measure_figures
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Outcome, Status
from penstock.errors import NotFound
from penstock.journal.ports import Record
from penstock.journal.records import ActionRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MeasuredEffect:
    """The measured effect of an action, beside the expected one."""

    action_id: int
    expected: Mapping[str, float]
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Ended:
    action_id: int
    at: float
    outcome: Outcome
    expected: Mapping[str, float]
    measure_at: float
    written: bool = False


class FollowUp:
    """Follows the last action; what cannot be written now is written when the journal works again."""

    def __init__(self, record: Record, effect_delay: float) -> None:
        self.record = record
        self.effect_delay = effect_delay
        self._last: _Ended | None = None
        self._measured: MeasuredEffect | None = None

    def follow(self, now: float, action_id: int, outcome: Outcome, expected: Mapping[str, float]) -> None:
        """Take over an action that has just ended."""
        self._last = _Ended(action_id, now, outcome, expected, now + self.effect_delay)

    def take_measured(self) -> MeasuredEffect | None:
        """Return the effect that was measured since the last call."""
        found, self._measured = self._measured, None
        return found

    def settle(self) -> None:
        """Write an outcome that is not written yet."""
        last = self._last
        if last is not None and not last.written:
            self._write(lambda: self.record.ended(last.at, last.action_id, last.outcome))
            # an action that changed nothing has no effect to measure
            followed = self._last is not None and last.outcome.status is not Status.FAILED
            self._last = replace(last, written=True) if followed else None

    def measure(self, now: float, window: ApplicationWindow, last_chance: bool = False) -> None:
        """Write the effect when it is time or before another action blurs it, from a window after the end."""
        last = self._last
        if last is None or window.start < last.at or not (last_chance or now >= last.measure_at):
            return
        figures = measure_figures(window)
        self._write(lambda: self.record.effect(now, last.action_id, figures))
        self._measured = MeasuredEffect(last.action_id, last.expected, figures)
        self._last = None

    def clock_went_back(self, now: float) -> None:
        """Wait once more from here: times from before the jump mean nothing now."""
        if self._last is not None and self._last.at > now:
            self._last = replace(self._last, at=now, measure_at=now + self.effect_delay)

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except NotFound as error:
            # someone has put another journal in place of the one that holds the intent
            log.warning("%s: its outcome and effect are not recorded", error)
            self._last = None


def conclude_left_open(now: float, action: ActionRecord, held: Mapping[str, int]) -> Outcome:
    """Make the outcome of an action whose controller stopped before it could write one."""
    report = ", ".join(f"{count} {unit}" for unit, count in held.items()) or "nothing"
    detail = f"the controller stopped before the outcome was written; Spark reports {report}"
    seconds = max(0.0, now - action.intended_at)
    return Outcome(Status.UNKNOWN, action.planned, action.planned, held, seconds, detail)
