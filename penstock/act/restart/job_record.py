"""The supervisor's record of its job: what is known, and what waits for a journal that is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.act.restart import machine
from penstock.act.restart.job_memory import MOST_RESTARTS, JobMemory, claim_job, recall_job, remember_job
from penstock.decide.manager.restarts import DAY, RestartHistory, find_recent
from penstock.decide.outcome import Outcome, Status
from penstock.errors import JournalUnavailable, NotFound
from penstock.journal.former_runs import identify_process
from penstock.journal.ports import RecordAndMemories

log = logging.getLogger(__name__)

SHARE_AWAY = 4.0
"""Times as long as a question to a journal that is away took, nothing more is asked of it."""


class JobRecord:
    """The record of a job; nothing is written over before it was read.

    `wall` tells the time that is written down. Spans of this process are taken by a clock that is never set.
    """

    def __init__(
        self, job: str, journal: RecordAndMemories, say: Callable[[str], None], wall: Callable[[], float]
    ) -> None:
        self._job, self._journal, self._say, self._wall = job, journal, say, wall
        self.known = JobMemory(supervisor=identify_process())
        self.recalled = False
        self._stale = False
        self._begun: list[float] = []
        self._former: tuple[float, ...] = ()
        self._unwritten: list[tuple[float, machine.Close]] = []
        self._ask_again_at = 0.0

    @property
    def is_late(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._stale or self._unwritten)

    @property
    def history(self) -> RestartHistory:
        """The restarts as the rules look at them; by the clock of now, whatever it was then."""
        return replace(self.known.history, at=self._list_restarts(self._wall()))

    def recall(self) -> machine.Close | None:
        """Recall the job, and claim it; return what closes a restart that a killed supervisor left open.

        Raises JournalUnavailable, or ActionFailed where the job runs already.
        """
        found, now = recall_job(self._journal, self._job), self._wall()
        for complaint in found.unusable:
            self._say(f"settings in the journal are not used: {complaint}")
        self.recalled, self._stale = True, True
        # one from the future is from before the clock went back
        self._former = tuple(min(at, now) for at in found.restarts)
        left, mine = found, self.known
        self.known = replace(
            found,
            restarts=self._former,
            driver=mine.driver,
            supervisor=mine.supervisor,
            action_id=None,
            wanted={},
            phase="",
        )
        try:
            claim_job(self._journal, now, self._job, replace(left, supervisor=mine.supervisor))
        except JournalUnavailable as error:
            self._say(f"the supervisor could not write: {error}")
        if left.action_id is None:
            return None
        detail = f"the supervisor ended while it was {left.phase}; the settings before are used"
        request = machine.Request(left.action_id, left.wanted, time.monotonic())
        return machine.Close(request, Status.UNKNOWN, detail, 0.0, None, works=False)

    def remember(self, state: machine.Supervision) -> None:
        """Write down where the supervision stands; later, if it has not been read what was known before."""
        self._stale = True
        if not self.recalled:
            return
        now, request = self._wall(), state.request
        begun = request is not None and self.known.action_id != request.action_id
        times = self._list_restarts(now)
        known = replace(
            self.known,
            restarts=(*times, now)[-MOST_RESTARTS:] if begun else self.known.restarts,
            proven=dict(state.proven),
            action_id=request.action_id if request else None,
            wanted=dict(request.settings) if request else {},
            phase=state.phase.value if request else "",
        )
        remember_job(self._journal, now, self._job, known)
        # only now: a restart that is not begun, since it could not be written down, counts for nothing
        self.known, self._stale = known, False
        if begun:
            self._begun.append(time.monotonic())

    def note_driver(self, pid: int) -> None:
        """Write down which process runs the job now."""
        self.known = replace(self.known, driver=identify_process(pid))
        if self.recalled:
            remember_job(self._journal, self._wall(), self._job, self.known)

    def see_settings(self, in_effect: Mapping[str, str]) -> None:
        """Forget fixed settings that are in effect nowhere; the driver asks the journal, too."""
        known = self.known.seeing(in_effect)
        if known != self.known:
            self.known, self._stale = known, True

    def close(self, close: machine.Close) -> None:
        """Keep what became of a restart until it can be written."""
        if close.not_taken or (close.status is Status.FAILED and not close.works):
            self.known = self.known.without_success(close.request.settings, close.not_taken)
        self._unwritten.append((self._wall(), close))

    def write_late(self, state: machine.Supervision, at_once: bool = False) -> None:
        """Write what could not be written while the journal was away.

        A journal may take seconds not to answer, and signals and batches are not to wait for it for long.
        """
        begun = time.monotonic()
        if not self.is_late or not self.recalled or (begun < self._ask_again_at and not at_once):
            return
        try:
            if self._stale:
                self.remember(state)
            while self._unwritten:
                self._write(*self._unwritten[0])
                self._unwritten.pop(0)
        except JournalUnavailable as error:
            log.debug("an outcome waits for the journal: %s", error)
            self.wait_for_journal(begun)

    def may_ask_again(self) -> bool:
        """Tell whether it is time to ask a journal that was away."""
        return time.monotonic() >= self._ask_again_at

    def wait_for_journal(self, since: float) -> None:
        """Ask nothing for a while: a question since then had no answer."""
        now = time.monotonic()
        self._ask_again_at = now + SHARE_AWAY * (now - since)

    def _list_restarts(self, wall: float) -> tuple[float, ...]:
        """List the restarts of the last day: of former runs by their dates, of this one by time passed."""
        now = time.monotonic()
        own = [wall - (now - at) for at in self._begun if now - at < DAY]
        return (*find_recent(self._former, wall), *own)

    def _write(self, at: float, close: machine.Close) -> None:
        # the settings are in the action's intent; an outcome counts units, of which there are none here
        outcome = Outcome(close.status, {}, {}, {}, close.seconds, close.detail)
        try:
            self._journal.ended(at, close.request.action_id, outcome)
            if close.pause is not None:
                self._journal.effect(at, close.request.action_id, {"pause_seconds": close.pause})
        except NotFound as error:
            self._say(f"an outcome has no place: {error}")
