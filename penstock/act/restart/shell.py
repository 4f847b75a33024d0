"""The supervisor: performs what the state machine says, on the driver's process and in the journal."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from penstock.act.restart import channel as wire
from penstock.act.restart import job_lock, machine
from penstock.act.restart.driver_words import MOST_STATUSES, read_event, read_statuses
from penstock.act.restart.job_lease import JobLease
from penstock.act.restart.job_lock import JobLock
from penstock.act.restart.job_record import JobRecord
from penstock.act.restart.settings import RestartSettings
from penstock.decide.manager.restarts import RestartRules, judge_restart
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Rejected
from penstock.errors import ActionFailed, JournalUnavailable, Unsupported
from penstock.journal.ports import RecordAndMemories

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.2
TRIES_AT_THE_END = 5


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its identity across runs, its command for given settings, and where its output goes.

    `given` are settings of the user, which an earlier run's do not replace at the start.
    """

    name: str
    command: Callable[[Mapping[str, str]], Sequence[str]]
    output: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    rules: RestartRules = field(default_factory=RestartRules)


class Supervisor:
    """The owner of one driver process after the other, until one ends by itself.

    Every wait is timed by a clock that is never set; `wall` tells the time for the journal and quiet hours.
    """

    def __init__(
        self,
        job: Job,
        lock: JobLock,
        journal: RecordAndMemories,
        patience: RestartSettings,
        say: Callable[[str], None],
        wall: Callable[[], float] = time.time,
        lease: JobLease | None = None,
    ) -> None:
        self._lease = lease
        self._job, self._lock, self._patience, self._say, self._wall = job, lock, patience, say, wall
        self._record = JobRecord(job.name, journal, say, wall)
        self._state = machine.Supervision()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: wire.Channel | None = None
        self._code: int | None = None
        self._interrupted: int | None = None
        self.statuses: list[Any] = []
        self.restarts: list[dict[str, Any]] = []

    def run(self) -> int:
        """Start the driver and see to it until it is over; return its exit code."""
        with self._locking(), self._lease.hold(self._say) if self._lease is not None else nullcontext():
            try:
                self._take_up()
            except JournalUnavailable as error:
                self._say(f"{error}; the job runs, and is not restarted before the journal is back")
            with self._minding_signals():
                self._follow(*machine.begin_supervision(time.monotonic(), self._state.proven, self._patience))
                while self._code is None:
                    for event in self._events():
                        self._follow(*machine.step_supervision(self._state, time.monotonic(), event))
                    self._write_late()
            for _ in range(TRIES_AT_THE_END if self._record.is_late else 0):
                time.sleep(LOOK_EVERY_SECONDS)
                self._write_late(at_once=True)
        return self._code

    def _take_up(self) -> None:
        """Recall the job, and close what a supervisor that was killed left open."""
        left = self._record.recall()
        proven = {k: v for k, v in self._record.known.proven.items() if k not in self._job.given}
        self._state = replace(self._state, proven=proven)
        if left is not None:
            self._close(left)

    def _write_late(self, at_once: bool = False) -> None:
        """Read and write what could not be read or written while the journal was away."""
        begun = time.monotonic()
        if not self._record.recalled and (at_once or self._record.may_ask_again()):
            try:
                self._take_up()
            except JournalUnavailable as error:
                log.debug("the journal is still away: %s", error)
                self._record.wait_for_journal(begun)
            except ActionFailed as error:
                # too late to refuse: it is told, and whoever has started both has to choose
                self._say(f"the journal is back, and says that {error}")
        self._record.write_late(self._state, at_once)

    def _follow(self, state: machine.Supervision, instructions: tuple[machine.Instruction, ...]) -> None:
        """Perform a step; do not begin what cannot be written down first."""
        before, self._state = self._state, state
        for instruction in instructions:
            try:
                self._perform(instruction)
            except JournalUnavailable as error:
                remembers = isinstance(instruction, machine.Remember)
                if remembers and before.request is None and state.request is not None:
                    self._state = before
                    self._refuse(state.request, f"not begun, since it could not be written down: {error}")
                    return
                self._say(f"the supervisor could not write: {error}")

    def _perform(self, instruction: machine.Instruction) -> None:
        match instruction:
            case machine.Remember():
                self._record.remember(self._state)
            case machine.Start(settings):
                self._start(settings)
            case machine.TellToStop():
                self._say("stopping after the batch, to start again with other settings")
                self._tell(kind="stop")
            case machine.Refuse(request, detail):
                self._refuse(request, detail)
            case machine.Signal(kill):
                self._signal(signal.SIGKILL if kill else signal.SIGTERM)
            case machine.Close():
                self._close(instruction)
            case machine.Finish(code):
                self._code = code

    def _start(self, settings: Mapping[str, str]) -> None:
        """Start the driver, which inherits the lock: who runs the job is written down before."""
        self._channel, theirs = wire.open_channel()
        given = {wire.VARIABLE: str(theirs.fileno()), wire.JOB_VARIABLE: self._job.name}
        if self._state.request is not None:
            given[wire.ACTION_VARIABLE] = str(self._state.request.action_id)
        for file in self._lock.passed_on():
            given[job_lock.VARIABLE] = str(file)
        inherited = {
            k: v for k, v in os.environ.items() if k not in (wire.ACTION_VARIABLE, job_lock.VARIABLE)
        }
        shown = ", ".join(f"{key}={value}" for key, value in settings.items()) or "the settings given"
        self._say(f"starting with {shown}")
        with theirs:
            self._process = subprocess.Popen(
                list(self._job.command(settings)),
                env={**inherited, **given},
                pass_fds=(theirs.fileno(), *self._lock.passed_on()),
                stdout=self._job.output,
            )
        self._lock.note(supervisor=os.getpid(), driver=self._process.pid)
        self._record.note_driver(self._process.pid)

    def _events(self) -> Iterator[machine.Event]:
        """Yield what the driver said, whether it has ended, and that time has passed."""
        assert self._process is not None and self._channel is not None
        code = self._process.poll()
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel.fileno(), selectors.EVENT_READ)
            selector.select(0 if code is not None else LOOK_EVERY_SECONDS)
        messages, is_open = self._channel.read()
        while code is not None and is_open and messages:
            more, is_open = self._channel.read()
            messages += more
            if not more:
                break
        yield from (event for event in map(self._event, messages) if event is not None)
        if code is not None:
            self._channel.close()
            yield machine.Exited(code if code >= 0 else 128 - code)
        elif self._interrupted is not None:
            number, self._interrupted = self._interrupted, None
            yield machine.Interrupted(from_terminal=number == signal.SIGINT)
        else:
            if not is_open:
                time.sleep(LOOK_EVERY_SECONDS)  # nothing more is to be heard: only its end is awaited
            yield machine.Tick()

    def _event(self, message: Mapping[str, Any]) -> machine.Event | None:
        if message.get("kind") == "statuses":
            self.statuses = (self.statuses + read_statuses(message))[:MOST_STATUSES]
            return None
        event = read_event(message, time.monotonic(), self._wall())
        if isinstance(event, machine.Attached):
            self._record.see_settings(event.in_effect)
        return self._check_request(event) if isinstance(event, machine.Asked) else event

    def _check_request(self, asked: machine.Asked) -> machine.Asked | None:
        """Judge a request once more here: keys, budget, hours, and what failed before."""
        refused = machine.Request(asked.action_id, asked.settings, time.monotonic())
        if not self._record.recalled:
            self._refuse(refused, "what became of earlier restarts is not known: the journal has been away")
            return None
        resize = Resize(asked.settings, f"action {asked.action_id}", ExpectedEffect(""))
        verdict = judge_restart(self._wall(), resize, self._job.rules, self._record.history)
        if isinstance(verdict, Rejected):
            self._refuse(refused, f"{verdict.guardrail}: {verdict.reason}")
            return None
        assert isinstance(verdict.action, Resize)
        return replace(asked, settings=verdict.action.settings)

    def _refuse(self, request: machine.Request, detail: str) -> None:
        self._tell(kind="refused")
        self._close(machine.Close(request, Status.FAILED, detail, 0.0, None, works=True))

    def _close(self, close: machine.Close) -> None:
        self._say(f"restart {close.status.value}: {close.detail}")
        self.restarts.append(
            {
                "action": close.request.action_id,
                "settings": dict(close.request.settings),
                "status": close.status.value,
                "pause_seconds": close.pause,
                "seconds": close.seconds,
                "detail": close.detail,
            }
        )
        self._record.close(close)
        self._record.write_late(self._state)

    def _tell(self, **message: Any) -> None:
        if self._channel is not None:
            self._channel.say(**message)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @contextmanager
    def _locking(self) -> Iterator[None]:
        """Hold the lock on the job; where nothing can be locked it runs all the same."""
        try:
            self._lock.take()
        except Unsupported as error:
            self._say(f"{error}: that the same job is started twice may not be noticed")
        try:
            yield
        finally:
            self._lock.close()

    @contextmanager
    def _minding_signals(self) -> Iterator[None]:
        """Note signals, which are meant for the driver; one from the terminal reaches both anyway."""

        def notice(number: int, frame: FrameType | None) -> None:
            self._interrupted = number

        before = {number: signal.signal(number, notice) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
