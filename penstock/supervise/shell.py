"""Performs what the state machine says: starts and ends the driver's process, and writes the journal."""

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
from typing import Any, Protocol

from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.restarts import RestartRules, judged
from penstock.decide.verdict import Accepted
from penstock.errors import ActionFailed, JournalUnavailable, NotFound
from penstock.former_runs import process_is_over, this_process
from penstock.supervise import channel as wire
from penstock.supervise.job_memory import JobMemory, Memories, recalled, remembered
from penstock.supervise.machine import (
    Asked,
    Attached,
    BatchEnded,
    Close,
    Event,
    Exited,
    Finish,
    Instruction,
    Interrupted,
    Patience,
    QueriesStopped,
    Refuse,
    Remember,
    Request,
    Signal,
    Start,
    Supervision,
    TellToStop,
    Tick,
    begin,
    step,
)

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.2
TRIES_AT_THE_END = 5


class Journal(Memories, Protocol):
    """Where outcomes are written; raises JournalUnavailable."""

    def ended(self, now: float, action_id: int, outcome: Outcome) -> None:
        """Write down what became of an action."""

    def effect(self, now: float, action_id: int, figures: Mapping[str, float]) -> None:
        """Write down what it brought."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is run: its identity across runs, its command for given settings, and where its output goes.

    `given` are settings of the user, which an earlier run's do not replace at the start.
    """

    name: str
    command: Callable[[Mapping[str, str]], Sequence[str]]
    output: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    rules: RestartRules = field(default_factory=RestartRules)


class Supervisor:
    """Owns one driver process after the other, until one ends by itself."""

    def __init__(self, job: Job, journal: Journal, patience: Patience, say: Callable[[str], None]) -> None:
        self._job, self._journal, self._patience, self._say = job, journal, patience, say
        self._known = JobMemory()
        self._state = Supervision()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: wire.Channel | None = None
        self._unwritten: list[tuple[float, Close]] = []
        self._unremembered = False
        self._code: int | None = None
        self._interrupted: int | None = None
        self.statuses: list[Any] = []
        self.restarts: list[dict[str, Any]] = []

    def run(self) -> int:
        """Start the driver and see to it until it is over; gives its exit code."""
        self._known = recalled(self._journal, self._job.name)
        self._take_up()
        with self._minding_signals():
            proven = {k: v for k, v in self._known.proven.items() if k not in self._job.given}
            self._follow(*begin(time.time(), proven, self._patience))
            while self._code is None:
                for event in self._events():
                    self._follow(*step(self._state, time.time(), event))
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
        request = Request(self._known.action_id, self._known.wanted, time.time())
        self._perform(Close(request, Status.UNKNOWN, detail, 0.0, None, works=False))
        self._known = replace(self._known, action_id=None, wanted={}, phase="")

    def _follow(self, state: Supervision, instructions: tuple[Instruction, ...]) -> None:
        """Take a step; what cannot be written down before it begins is not begun."""
        before, self._state = self._state, state
        for instruction in instructions:
            try:
                self._perform(instruction)
            except JournalUnavailable as error:
                if isinstance(instruction, Remember) and before.request is None and state.request is not None:
                    self._state = before
                    self._refuse(state.request, f"not begun, since it could not be written down: {error}")
                    return
                self._unremembered = self._unremembered or isinstance(instruction, Remember)
                self._say(f"the supervisor could not write: {error}")

    def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case Remember():
                self._remember()
            case Start(settings):
                self._start(settings)
            case TellToStop():
                self._say("stopping after the batch, to start again with other settings")
                self._tell(kind="stop")
            case Refuse(request, detail):
                self._refuse(request, detail)
            case Signal(kill):
                self._signal(signal.SIGKILL if kill else signal.SIGTERM)
            case Close():
                self._close(instruction)
            case Finish(code):
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
        remembered(self._journal, now, self._job.name, known)
        # only now: a restart that is not begun, since it could not be written down, counts for nothing
        self._known, self._unremembered = known, False

    def _start(self, settings: Mapping[str, str]) -> None:
        self._channel, theirs = wire.pair()
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
        self._known = replace(self._known, driver=this_process(self._process.pid))
        try:
            remembered(self._journal, time.time(), self._job.name, self._known)
        except JournalUnavailable as error:
            self._say(f"the supervisor could not write: {error}")

    def _events(self) -> Iterator[Event]:
        """What the driver said, whether it has ended, and that time has passed."""
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
            yield Exited(code if code >= 0 else 128 - code)
        elif self._interrupted is not None:
            number, self._interrupted = self._interrupted, None
            yield Interrupted(from_terminal=number == signal.SIGINT)
        else:
            if not is_open:
                time.sleep(LOOK_EVERY_SECONDS)  # nothing more is to be heard: only its end is awaited
            yield Tick()

    def _event(self, message: Mapping[str, Any]) -> Event | None:
        try:
            match message.get("kind"):
                case "attached":
                    return self._attached({str(k): str(v) for k, v in message["settings"].items()})
                case "batch":
                    return BatchEnded(float(message["at"]), bool(message["idle"]))
                case "restart":
                    settings = {str(k): str(v) for k, v in message["settings"].items()}
                    return self._permitted(Asked(int(message["action"]), settings))
                case "stopped":
                    return QueriesStopped()
                case "statuses":
                    self.statuses += list(message["statuses"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("a message of the driver cannot be read: %r", error)
        return None

    def _attached(self, in_effect: Mapping[str, str]) -> Attached:
        known = self._known.seeing(in_effect)
        if known != self._known:
            # the driver asks the journal, too
            self._known, self._unremembered = known, True
        return Attached(in_effect)

    def _permitted(self, asked: Asked) -> Asked | None:
        """The supervisor has the last word on budget, hours and what failed before."""
        now = time.time()
        resize = Resize(asked.settings, f"action {asked.action_id}", ExpectedEffect(""))
        verdict = judged(now, resize, self._job.rules, self._known.history)
        if isinstance(verdict, Accepted):
            return asked
        self._refuse(Request(asked.action_id, asked.settings, now), f"{verdict.guardrail}: {verdict.reason}")
        return None

    def _refuse(self, request: Request, detail: str) -> None:
        self._tell(kind="refused")
        self._close(Close(request, Status.FAILED, detail, 0.0, None, works=True))

    def _close(self, close: Close) -> None:
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
        """Write what is owed: what the journal was away for is written when it is back."""
        try:
            if self._unremembered:
                self._remember()
            while self._unwritten:
                self._write_first()
        except JournalUnavailable as error:
            log.debug("an outcome waits for the journal: %s", error)

    def _write_first(self) -> None:
        at, close = self._unwritten[0]
        try:
            self._write(at, close)
        except NotFound as error:
            self._say(f"an outcome has no place: {error}")
        self._unwritten.pop(0)

    def _write(self, at: float, close: Close) -> None:
        # the settings are in the action's intent; an outcome counts units, of which there are none here
        outcome = Outcome(close.status, {}, {}, {}, close.seconds, close.detail)
        self._journal.ended(at, close.request.action_id, outcome)
        if close.pause is not None:
            self._journal.effect(at, close.request.action_id, {"pause_seconds": close.pause})

    def _tell(self, **message: Any) -> None:
        if self._channel is not None:
            self._channel.say(**message)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @contextmanager
    def _minding_signals(self) -> Iterator[None]:
        """A signal to the supervisor is meant for the driver; one from the terminal reaches both anyway."""

        def noticed(number: int, frame: FrameType | None) -> None:
            self._interrupted = number

        before = {number: signal.signal(number, noticed) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
