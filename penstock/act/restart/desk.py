"""The driver's side of a supervised application: asks for restarts, tells of batches, stops when told to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.act.restart.channel import Channel
from penstock.act.restart.job_memory import recall_job
from penstock.decide.manager.restarts import RestartRules, judge_restart
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Resize
from penstock.decide.verdict import Accepted, Rejected
from penstock.errors import PenstockError
from penstock.journal.ports import RecordAndMemories

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.25


class Driver(Protocol):
    """The driver's queries, as far as the desk needs them; raises SparkUnavailable."""

    def in_effect(self) -> Mapping[str, str]:
        """Return the settings that say how large the application is."""

    def new_batches(self) -> list[tuple[float, bool]]:
        """Return batches that ended since the last call: when, and whether it was an idle trigger."""

    def stop_after_batch(self) -> None:
        """Stop every query when its batch has ended."""


class RestartDesk:
    """The desk that judges and asks for restarts; two daemon threads report batches and take orders."""

    def __init__(
        self,
        channel: Channel,
        journal: RecordAndMemories,
        job: str,
        rules: RestartRules,
        driver: Driver,
    ) -> None:
        self._channel, self._journal, self._job, self._rules = channel, journal, job, rules
        self._driver = driver
        self._closed = threading.Event()
        self._supervised = True
        self._refused: Callable[[], None] = lambda: None

    def start(self, application: str, name: str, refused: Callable[[], None]) -> None:
        """Tell the supervisor who is here, and begin to report; `refused` is called if it cannot restart."""
        self._refused = refused
        self._channel.say(
            kind="attached", application=application, name=name, settings=dict(self._driver.in_effect())
        )
        for work in (self._report, self._obey):
            threading.Thread(target=work, name=f"penstock-{work.__name__[1:]}", daemon=True).start()

    def close(self) -> None:
        """Report no more."""
        self._closed.set()

    def judge(self, now: float, resize: Resize) -> Accepted | Rejected:
        """Judge whether a restart may be asked for now; earlier ones are in the journal."""
        if not self._supervised:
            return Rejected("recommend-only", f"the supervisor has gone; wanted because: {resize.reason}")
        known = recall_job(self._journal, self._job)
        if known.action_id is not None:
            reason = f"the restart before it is not proven yet (action {known.action_id})"
            return Rejected("restart-under-way", f"{reason}; wanted because: {resize.reason}")
        return judge_restart(now, resize, self._rules, known.history)

    def ask(self, now: float, application: str, decision_id: int, resize: Resize) -> str:
        """Write the intent, then ask; from here on the supervisor sees to it."""
        action_id = self._journal.intend(now, application, decision_id, resize, resize.before)
        if self._channel.say(kind="restart", action=action_id, settings=dict(resize.settings)):
            return f"a restart with new settings is under way: {resize.reason}"
        self._supervised = False
        gone = Outcome(Status.FAILED, {}, {}, {}, 0.0, "the supervisor has gone: nothing was restarted")
        self._journal.ended(now, action_id, gone)
        return "a restart was wanted, and the supervisor has gone: resume to go on without restarts"

    def _report(self) -> None:
        while not self._closed.wait(LOOK_EVERY_SECONDS):
            try:
                for at, idle in self._driver.new_batches():
                    self._channel.say(kind="batch", at=at, idle=idle)
            except PenstockError as error:
                log.debug("batches cannot be told of: %s", error)

    def _obey(self) -> None:
        for message in self._channel.messages():
            if message.get("kind") == "stop":
                log.info("stopping after the batch, for a restart with new settings")
                self._stop()
            elif message.get("kind") == "refused":
                self._refused()
        self._supervised = False

    def _stop(self) -> None:
        try:
            self._driver.stop_after_batch()
        except PenstockError as error:
            # a script may go on to its end, and take Spark with it, as soon as a query is no longer active
            log.info("Spark ended while its queries were stopping: %s", error)
        self._channel.say(kind="stopped")
