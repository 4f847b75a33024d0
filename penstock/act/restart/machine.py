"""A supervised driver as a pure state machine: what happens in, instructions out.

    RUNNING ─ asked ─→ STOPPING ─ it ended ─→ VERIFYING ─ a batch ended ─→ RUNNING   (done)
                                              │ it failed, or no batch in time
                                              └→ GIVING_UP ─→ FALLING_BACK ─ a batch ended ─→ RUNNING (failed)
                                                              └ it failed too ─→ OVER

The request that is under way is written down before each step (`Remember`), so that a supervisor that is
killed leaves behind what it was at; the next one closes it and begins with the settings that were proven.
The shell that performs the instructions is `shell.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from penstock.act.restart.settings import RestartSettings
from penstock.decide.outcome import Status

Settings: TypeAlias = Mapping[str, str]
EXIT_SECONDS = 15.0
"""How long a script may take to end by itself once its queries have stopped."""
KILL_SECONDS = 15.0
"""How long it may take to end after it was told to by a signal."""


class RestartPhase(Enum):
    """The phases of a supervised driver."""

    RUNNING = "running"
    STOPPING = "stopping"
    VERIFYING = "verifying"
    GIVING_UP = "giving-up"
    FALLING_BACK = "falling-back"
    ENDING = "ending"
    OVER = "over"


class Push(Enum):
    """The pressure on a driver to end."""

    NOT = 0
    ASKED = 1
    TERMINATED = 2
    KILLED = 3


@dataclass(frozen=True, slots=True)
class Request:
    """New settings that the application asked for, under the number of the action in the journal."""

    action_id: int
    settings: Settings
    at: float


@dataclass(frozen=True, slots=True)
class Supervision:
    """Everything that is known; `settings` are those of the driver that runs, `proven` those that worked."""

    phase: RestartPhase = RestartPhase.RUNNING
    since: float = 0.0
    settings: Settings = field(default_factory=dict)
    proven: Settings = field(default_factory=dict)
    patience: RestartSettings = field(default_factory=RestartSettings)
    request: Request | None = None
    push: Push = Push.NOT
    pushed_at: float = 0.0
    last_batch: float | None = None
    idle: bool = False
    not_taken: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The driver asks to be restarted with these settings."""

    action_id: int
    settings: Settings


@dataclass(frozen=True, slots=True)
class Attached:
    """Spark is up, with these settings in effect."""

    in_effect: Settings


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """A batch has ended; an idle trigger has read nothing."""

    at: float
    idle: bool = False


@dataclass(frozen=True, slots=True)
class QueriesStopped:
    """All queries have stopped after their batches."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The driver has ended."""

    code: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Somebody wants all of it to end; from a terminal, the driver has been told so as well."""

    from_terminal: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = Asked | Attached | BatchEnded | QueriesStopped | Exited | Interrupted | Tick


@dataclass(frozen=True, slots=True)
class TellToStop:
    """Ask the driver to stop its queries after their batches."""


@dataclass(frozen=True, slots=True)
class Signal:
    """End the driver by a signal: politely, or for good."""

    kill: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the driver that its request is not followed, so that it goes on without, and write that down."""

    request: Request
    detail: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start the driver with these settings."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Remember:
    """Write down what is under way."""


@dataclass(frozen=True, slots=True)
class Close:
    """Write down what became of the request; `pause` is from the last batch before to the first after.

    Of a restart that failed `works` tells that the new settings are not to blame, and may be tried again.
    """

    request: Request
    status: Status
    detail: str
    seconds: float
    pause: float | None
    works: bool
    not_taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """It is over: end with this code."""

    code: int


Instruction: TypeAlias = TellToStop | Refuse | Signal | Start | Remember | Close | Finish
Step: TypeAlias = tuple[Supervision, tuple[Instruction, ...]]


def begin_supervision(now: float, settings: Settings, patience: RestartSettings) -> Step:
    """Start the driver for the first time; its settings count as proven, there are no others."""
    state = Supervision(since=now, settings=settings, proven=settings, patience=patience)
    return state, (Remember(), Start(settings))


def step_supervision(state: Supervision, now: float, event: Event) -> Step:
    """Return the state and the instructions that follow from an event."""
    if state.phase is RestartPhase.OVER:
        return state, ()
    match event:
        case Asked(action_id, settings):
            follows = _take_request(state, now, Request(action_id, settings, now))
        case Attached(in_effect):
            follows = _compare_settings(state, in_effect), ()
        case BatchEnded(at, idle):
            follows = _take_batch(state, now, at, idle)
        case QueriesStopped():
            follows = _shorten_wait(state, now), ()
        case Exited(code):
            follows = _follow_exit(state, now, code)
        case Interrupted(from_terminal):
            follows = _begin_end(state, now, from_terminal)
        case Tick():
            follows = _check_wait(state, now)
    return follows


def _shorten_wait(state: Supervision, now: float) -> Supervision:
    """Wait only for the script's own end from here on."""
    if state.push is not Push.ASKED:
        return state
    return replace(state, pushed_at=min(state.pushed_at, now - _longest_ask(state) + EXIT_SECONDS))


def _take_request(state: Supervision, now: float, request: Request) -> Step:
    if state.phase is not RestartPhase.RUNNING:
        return state, (Refuse(request, "another restart is under way"),)
    return _tell_to_stop(replace(state, request=request), now, RestartPhase.STOPPING)


def _tell_to_stop(state: Supervision, now: float, phase: RestartPhase) -> Step:
    asked = replace(state, phase=phase, since=now, push=Push.ASKED, pushed_at=now)
    return asked, (Remember(), TellToStop())


def _compare_settings(state: Supervision, in_effect: Settings) -> Supervision:
    if state.phase is not RestartPhase.VERIFYING or state.request is None:
        return state
    wanted = state.request.settings
    return replace(state, not_taken=tuple(k for k, v in wanted.items() if in_effect.get(k) != v))


def _take_batch(state: Supervision, now: float, at: float, idle: bool) -> Step:
    if state.phase in (RestartPhase.VERIFYING, RestartPhase.FALLING_BACK):
        # a trigger without data proves that the query has started, not that executors can work
        return (replace(state, idle=True), ()) if idle else _prove_settings(state, now, at)
    return (state if idle else replace(state, last_batch=at)), ()


def _prove_settings(state: Supervision, now: float, first_batch: float | None) -> Step:
    """Take the driver's settings for proven: it makes progress."""
    request = state.request
    assert request is not None
    since = state.last_batch if state.last_batch is not None else request.at
    pause = max(0.0, first_batch - since) if first_batch is not None else None
    status, detail = _judge_restart(state, pause)
    running = replace(
        state,
        phase=RestartPhase.RUNNING,
        since=now,
        proven={key: value for key, value in state.settings.items() if key not in state.not_taken},
        request=None,
        idle=False,
        not_taken=(),
        trouble="",
        last_batch=first_batch,
    )
    works = state.phase is RestartPhase.VERIFYING
    close = Close(request, status, detail, now - request.at, pause, works, state.not_taken)
    return running, (close, Remember())


def _judge_restart(state: Supervision, pause: float | None) -> tuple[Status, str]:
    paused = "no data came to show the length of the pause" if pause is None else f"paused for {pause:.1f} s"
    if state.phase is RestartPhase.FALLING_BACK:
        return Status.FAILED, f"{state.trouble}; the old settings run again; {paused}"
    if state.not_taken:
        names = ", ".join(state.not_taken)
        return Status.FAILED, f"the script sets {names} itself, so the restart changed nothing; {paused}"
    return Status.DONE, paused


def _follow_exit(state: Supervision, now: float, code: int) -> Step:
    if state.phase in (RestartPhase.RUNNING, RestartPhase.ENDING):
        return _finish(state, code)
    if state.phase is RestartPhase.STOPPING:
        assert state.request is not None
        return _start_driver(state, now, RestartPhase.VERIFYING, {**state.proven, **state.request.settings})
    if state.phase is RestartPhase.VERIFYING and code == 0:
        # the script has done what it had to do
        close = _close(state, now, Status.UNKNOWN, "the script ended by itself before a batch had ended")
        return _finish(state, code, close)
    if state.phase is RestartPhase.FALLING_BACK:
        detail = f"{state.trouble}; with the old settings it ended with code {code}"
        close = _close_without_blame(state, now, detail)
        return _finish(state, code or 1, close)
    trouble = state.trouble or f"with the new settings it ended with code {code}"
    return _start_driver(replace(state, trouble=trouble), now, RestartPhase.FALLING_BACK, state.proven)


def _begin_end(state: Supervision, now: float, from_terminal: bool) -> Step:
    """Begin nothing new; leave a restart under way where it is, and say so."""
    push = Push.ASKED if from_terminal else Push.TERMINATED
    ended = replace(state, phase=RestartPhase.ENDING, since=now, push=push, pushed_at=now)
    signals: tuple[Instruction, ...] = () if from_terminal else (Signal(),)
    if state.request is None:
        return ended, signals
    close = _close(state, now, Status.UNKNOWN, "the supervisor was told to end before the restart had ended")
    return replace(ended, request=None), (close, Remember(), *signals)


def _check_wait(state: Supervision, now: float) -> Step:
    if state.push is not Push.NOT:
        return _push_harder(state, now)
    awaited = state.phase in (RestartPhase.VERIFYING, RestartPhase.FALLING_BACK)
    if not awaited or now - state.since < state.patience.verify_timeout:
        return state, ()
    if state.idle:
        return _prove_settings(state, now, None)
    if state.phase is RestartPhase.FALLING_BACK:
        # it runs with the settings that it had: nothing more can be done for it by changing them
        detail = f"{state.trouble}; with the old settings no batch ended either"
        close = _close_without_blame(state, now, detail)
        running = replace(state, phase=RestartPhase.RUNNING, since=now, request=None, trouble="")
        return running, (close, Remember())
    trouble = f"with the new settings no batch ended within {state.patience.verify_timeout:g} s"
    return _tell_to_stop(replace(state, trouble=trouble), now, RestartPhase.GIVING_UP)


def _push_harder(state: Supervision, now: float) -> Step:
    """Escalate while the driver does not end: stop, then SIGTERM, then SIGKILL."""
    waited = now - state.pushed_at
    if state.push is Push.ASKED and waited >= _longest_ask(state):
        return replace(state, push=Push.TERMINATED, pushed_at=now), (Signal(),)
    if state.push is Push.TERMINATED and waited >= KILL_SECONDS:
        return replace(state, push=Push.KILLED, pushed_at=now), (Signal(kill=True),)
    return state, ()


def _longest_ask(state: Supervision) -> float:
    """Return how long to wait after asking; only a stop for a restart waits for batches."""
    return state.patience.stop_timeout if state.phase is RestartPhase.STOPPING else EXIT_SECONDS


def _start_driver(state: Supervision, now: float, phase: RestartPhase, settings: Settings) -> Step:
    started = replace(
        state, phase=phase, since=now, settings=settings, push=Push.NOT, idle=False, not_taken=()
    )
    return started, (Remember(), Start(settings))


def _close(state: Supervision, now: float, status: Status, detail: str) -> Close:
    assert state.request is not None
    return Close(state.request, status, detail, now - state.request.at, None, works=False)


def _close_without_blame(state: Supervision, now: float, detail: str) -> Close:
    """Close a restart after which the old settings failed as well: the new ones need not be the cause."""
    return replace(_close(state, now, Status.FAILED, detail), works=True)


def _finish(state: Supervision, code: int, *closes: Close) -> Step:
    return replace(state, phase=RestartPhase.OVER, request=None), (*closes, Remember(), Finish(code))
