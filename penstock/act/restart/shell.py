"""The supervisor: performs what the state machine says, on the driver's process and in the journal."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from penstock.act.restart import channel as wire
from penstock.act.restart import machine
from penstock.act.restart.job_memory import JobMemory, recall_job, remember_job
from penstock.act.restart.settings import RestartSettings
from penstock.decide.manager.restarts import RestartRules, judge_restart
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Rejected
from penstock.errors import ActionFailed, JournalUnavailable, NotFound
from penstock.journal.former_runs import identify_process, process_is_over
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
    """The owner of one driver process after the other, until one ends by itself."""

    def __init__(
        self, job: Job, journal: RecordAndMemories, patience: RestartSettings, say: Callable[[str], None]
    ) -> None:
        self._job, self._journal, self._patience, self._say = job, journal, patience, say
        self._known = JobMemory()
        self._state = machine.Supervision()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: wire.Channel | None = None
        self._unwritten: list[tuple[float, machine.Close]] = []
        self._unremembered = False
        self._code: int | None = None
        self._interrupted: int | None = None
        self.statuses: list[Any] = []
        self.restarts: list[dict[str, Any]] = []

    def run(self) -> int:
        """Start the driver and see to it until it is over; return its exit code."""
        self._known = recall_job(self._journal, self._job.name)
        for complaint in self._known.unusable:
            self._say(f"settings in the journal are not used: {complaint}")
        self._take_up()
        with self._minding_signals():
            proven = {k: v for k, v in self._known.proven.items() if k not in self._job.given}
            self._follow(*machine.begin_supervision(time.time(), proven, self._patience))
            while self._code is None:
                for event in self._events():
                    self._follow(*machine.step_supervision(self._state, time.time(), event))
                self._write_late()
        for _ in range(TRIES_AT_THE_END if self._unwritten or self._unremembered else 0):
            time.sleep(LOOK_EVERY_SECONDS)
            self._write_late()
        return self._code

    def _take_up(self) -> None:
        """Close what a supervisor that was killed left open; a driver that it left behind must end first."""
        driver = self._known.driver
        if driver.get("host") == socket.gethostname() and not process_is_over(driver):
            raise ActionFailed(
                f"this job already runs as process {driver.get('pid')}, and two would share a checkpoint: "
                "end that one first"
            )
        if self._known.action_id is None:
            return
        detail = f"the supervisor ended while it was {self._known.phase}; the settings before are used"
        request = machine.Request(self._known.action_id, self._known.wanted, time.time())
        self._perform(machine.Close(request, Status.UNKNOWN, detail, 0.0, None, works=False))
        self._known = replace(self._known, action_id=None, wanted={}, phase="")

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
                self._unremembered = self._unremembered or remembers
                self._say(f"the supervisor could not write: {error}")

    def _perform(self, instruction: machine.Instruction) -> None:
        match instruction:
            case machine.Remember():
                self._remember()
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

    def _remember(self) -> None:
        state, now = self._state, time.time()
        request = state.request
        begun = request is not None and self._known.action_id != request.action_id
        known = replace(
            self._known.restarting(now) if begun else self._known,
            proven=dict(state.proven),
            action_id=request.action_id if request else None,
            wanted=dict(request.settings) if request else {},
            phase=state.phase.value if request else "",
        )
        remember_job(self._journal, now, self._job.name, known)
        # only now: a restart that is not begun, since it could not be written down, counts for nothing
        self._known, self._unremembered = known, False

    def _start(self, settings: Mapping[str, str]) -> None:
        self._channel, theirs = wire.open_channel()
        environment = {**os.environ, wire.VARIABLE: str(theirs.fileno()), wire.JOB_VARIABLE: self._job.name}
        environment.pop(wire.ACTION_VARIABLE, None)
        if self._state.request is not None:
            environment[wire.ACTION_VARIABLE] = str(self._state.request.action_id)
        shown = ", ".join(f"{key}={value}" for key, value in settings.items()) or "the settings given"
        self._say(f"starting with {shown}")
        with theirs:
            self._process = subprocess.Popen(
                list(self._job.command(settings)),
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdout=self._job.output,
            )
        self._known = replace(self._known, driver=identify_process(self._process.pid))
        try:
            remember_job(self._journal, time.time(), self._job.name, self._known)
        except JournalUnavailable as error:
            self._say(f"the supervisor could not write: {error}")

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
        try:
            match message.get("kind"):
                case "attached":
                    return self._take_attached(_read_settings(message))
                case "batch":
                    return machine.BatchEnded(float(message["at"]), bool(message["idle"]))
                case "restart":
                    return self._check_request(machine.Asked(int(message["action"]), _read_settings(message)))
                case "stopped":
                    return machine.QueriesStopped()
                case "statuses":
                    self.statuses += list(message["statuses"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("a message of the driver cannot be read: %r", error)
        return None

    def _take_attached(self, in_effect: Mapping[str, str]) -> machine.Attached:
        known = self._known.seeing(in_effect)
        if known != self._known:
            # the driver asks the journal, too
            self._known, self._unremembered = known, True
        return machine.Attached(in_effect)

    def _check_request(self, asked: machine.Asked) -> machine.Asked | None:
        """Judge a request once more here: keys, budget, hours, and what failed before."""
        now = time.time()
        resize = Resize(asked.settings, f"action {asked.action_id}", ExpectedEffect(""))
        verdict = judge_restart(now, resize, self._job.rules, self._known.history)
        if isinstance(verdict, Rejected):
            refused = machine.Request(asked.action_id, asked.settings, now)
            self._refuse(refused, f"{verdict.guardrail}: {verdict.reason}")
            return None
        assert isinstance(verdict.action, Resize)
        return replace(asked, settings=verdict.action.settings)

    def _refuse(self, request: machine.Request, detail: str) -> None:
        self._tell(kind="refused")
        self._close(machine.Close(request, Status.FAILED, detail, 0.0, None, works=True))

    def _close(self, close: machine.Close) -> None:
        if close.not_taken or (close.status is Status.FAILED and not close.works):
            self._known = self._known.without_success(close.request.settings, close.not_taken)
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
        self._unwritten.append((time.time(), close))
        self._write_late()

    def _write_late(self) -> None:
        """Write what could not be written while the journal was away."""
        try:
            if self._unremembered:
                self._remember()
            while self._unwritten:
                self._write(*self._unwritten[0])
                self._unwritten.pop(0)
        except JournalUnavailable as error:
            log.debug("an outcome waits for the journal: %s", error)

    def _write(self, at: float, close: machine.Close) -> None:
        # the settings are in the action's intent; an outcome counts units, of which there are none here
        outcome = Outcome(close.status, {}, {}, {}, close.seconds, close.detail)
        try:
            self._journal.ended(at, close.request.action_id, outcome)
            if close.pause is not None:
                self._journal.effect(at, close.request.action_id, {"pause_seconds": close.pause})
        except NotFound as error:
            self._say(f"an outcome has no place: {error}")

    def _tell(self, **message: Any) -> None:
        if self._channel is not None:
            self._channel.say(**message)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

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


def _read_settings(message: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in message["settings"].items()}
