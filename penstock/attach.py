"""Attaches the autopilot to a running Spark application: a daemon thread, and the handle that steers it.

This module is loaded by `import penstock`, so it imports at the top only what costs nothing.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput, PenstockError, Unsupported

if TYPE_CHECKING:
    from penstock.control import ControlServer
    from penstock.journal.store import Journal
    from penstock.loop import Actuator, Cycle, Loop
    from penstock.migrate.spark_mover import SparkMover
    from penstock.observe.spark_source import SparkSource
    from penstock.settings import Settings
    from penstock.state_control import StateControl

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
DETACH_SECONDS = 2.0
STOPPING_SECONDS = 5.0
"""How long attaching anew waits for an autopilot that was told to stop and is still at it."""
MOST_UNANSWERED = 5

_attached: dict[str, Autopilot] = {}
_listing = threading.Lock()
"""Held for a moment, to change the list; an autopilot that ends needs it while `_attaching` is held."""
_attaching = threading.Lock()


def attach(
    spark: Any,
    *,
    policy: str | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    report_to: str | None = None,
) -> Autopilot:
    """Attach the autopilot to this session's application; attaching again returns the same handle.

    `config` names a settings file; `settings` given here outrank it, the environment and Spark's own.
    `report_to` is the place of a fleet, a directory or kafka://HOST:PORT/NAME: windows are published there,
    and what the fleet's controller decides is carried out, within this application's own guardrails.
    """
    from penstock.observe.spark_session import application_id, check_supported

    check_supported(spark)
    effective = _settings(spark, policy, config, settings)
    return attach_once(application_id(spark), lambda: _assemble(spark, effective, report_to))


def attach_once(
    application: str, assemble: Callable[[], Autopilot], patience: float = STOPPING_SECONDS
) -> Autopilot:
    """The running autopilot of this application, or a new one; one that is stopping is waited for."""
    with _attaching:
        known = _attached.get(application)
        if known is not None and known.running and not known.stopping:
            log.info("%s: the autopilot is attached already", application)
            return known
        if known is not None and not known.ended_within(patience):
            log.warning("%s: the autopilot before has not ended after %g s", application, patience)
        handle = assemble()
        with _listing:
            _attached[application] = handle
        # inside the lock: another thread must find it at work, or it would start a second one
        handle.start()
    return handle


class Autopilot:
    """The handle of an attached autopilot; its thread ends with `detach`, with Spark or with the process."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        name: str = "",
        alive: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        notes: tuple[str, ...] = (),
        close: Callable[[], None] = lambda: None,
        state: StateControl | None = None,
    ) -> None:
        self.application, self.name, self.settings = loop.application, name, settings
        self._state = state
        self._loop, self._alive, self._clock, self._notes, self._close = loop, alive, clock, notes, close
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-autopilot", daemon=True)
        self._control: ControlServer | None = None
        self._error: str | None = None
        self._warnings: tuple[str, ...] = ()
        self._action_since: float | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is at work."""
        return self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop, or is ending by itself."""
        return self._stopping.is_set()

    def ended_within(self, seconds: float) -> bool:
        """Wait for the thread to end, so long at most; whether it has."""
        if self._thread.ident is not None:
            self._thread.join(timeout=seconds)
        return not self.running

    def start(self) -> None:
        """Begin to watch, and listen for commands."""
        self._control = self._listen()
        self._thread.start()
        for note in self._notes:
            log.warning("%s: %s", self.application, note)
        log.info("%s: attached, policy %s, %s", self.application, self._loop.policy.name, self._mode)

    def status(self) -> dict[str, Any]:
        """How the application stands, as plain data."""
        from penstock.view.status import history

        return {
            "application": self.application,
            "name": self.name,
            "policy": self._loop.policy.name,
            "mode": self._mode,
            "paused": self._loop.paused is not None,
            "pause_reason": self._loop.paused,
            "attached": self.running,
            "now": self._clock(),
            **history(self._loop.timeline),
            "action_in_flight": self._in_flight(),
            "warnings": [*self._notes, *self._warnings],
            "error": self._error,
        }

    def pause(self) -> None:
        """Keep watching, propose and change nothing."""
        self._loop.pause()
        log.info("%s: paused", self.application)

    def resume(self) -> None:
        """Propose and act again."""
        self._loop.resume()
        log.info("%s: resumed", self.application)

    @property
    def state(self) -> StateControl:
        """Where state lies, and moving it by hand; Unsupported says why that cannot be here."""
        if self._state is None:
            raise Unsupported("this autopilot knows nothing of state")
        return self._state

    def detach(self) -> None:
        """Stop watching. May be called twice, and from any thread.

        The application stays as it is; only a change under way is brought to a safe end: executors that were
        already told to stop are released, and a migration ends at its next batch boundary.
        """
        self._stopping.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout=DETACH_SECONDS)

    def __repr__(self) -> str:
        state = "detached" if not self.running else "paused" if self._loop.paused else self._mode
        points = self._loop.timeline.points
        size = f", {points[-1].slots} slots" if points else ""
        return f"<Autopilot of {self.application}: {self._loop.policy.name}, {state}{size}>"

    def _repr_html_(self) -> str:
        from penstock.view.words import brief

        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(label)}</th><td>{escape(text)}</td></tr>"
            for label, text in brief(self.status())
        )
        return f"<table><caption>Penstock</caption>{cells}</table>"

    @property
    def _mode(self) -> str:
        return "observe" if self._loop.actuator is None else "act"

    def _run(self) -> None:
        try:
            while self._alive() and not self._stopping.is_set():
                self._notice(self._loop.tick(self._clock()))
                self._stopping.wait(min(TICK_SECONDS, self.settings.policy_interval / 2))
            log.info("%s: detached", self.application)
        except Exception:
            log.exception("%s: the autopilot has stopped; the application runs on", self.application)
        finally:
            self._end()

    def _notice(self, cycle: Cycle) -> None:
        """Keep for the status what the timeline does not hold; a tick between intervals says nothing new."""
        if cycle.window is not None:
            self._warnings = cycle.window.warnings
        if cycle.error or cycle.verdict is not None or cycle.window is not None:
            self._error = cycle.error
        if cycle.action is None:
            self._action_since = None
        elif self._action_since is None:
            self._action_since = cycle.at
            log.info("%s: changing to %s: %s", self.application, _sizes(cycle), cycle.action.reason)
        if cycle.outcome is not None:
            log.info("%s: %s: %s", self.application, cycle.outcome.status.value, cycle.outcome.detail)

    def _in_flight(self) -> dict[str, Any] | None:
        from penstock.dataflow.window import EXECUTORS

        action, since = self._loop.action_under_way, self._action_since
        if action is None:
            return None
        points = self._loop.timeline.points
        before = points[-1].parallelism.get(EXECUTORS) if points else None
        return {
            "since": since or self._clock(),
            "from": before,
            "to": action.planned.get(EXECUTORS),
            "reason": action.reason,
            "migration": self._state.standing() if self._state is not None else None,
        }

    def _listen(self) -> ControlServer | None:
        if not self.settings.control_socket:
            return None
        from penstock.control import ControlServer

        try:
            return ControlServer(Path(self.settings.runtime_directory), self.application, self._answer)
        except (PenstockError, OSError, RuntimeError) as error:
            # RuntimeError: no more threads; the user's job can do without our socket
            log.warning("%s: %s", self.application, error)
            return None

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match command:
            case "hello":
                return {"application": self.application, "name": self.name}
            case "status":
                return {"status": self.status()}
            case "pause":
                self.pause()
                return {"paused": True}
            case "resume":
                self.resume()
                return {"paused": False}
        known: tuple[str, ...] = ("hello", "pause", "resume", "status")
        if self._state is not None:
            if command in self._state.commands:
                return self._state.answer(command, request)
            known += self._state.commands
        raise BadInput(f"unknown command {command!r}; known: {', '.join(known)}")

    def _end(self) -> None:
        self._stopping.set()
        self._loop.leave(self._clock())
        if self._control is not None:
            self._control.close()
        try:
            self._close()
        except Exception:
            log.exception("%s: closing the journal failed", self.application)
        # last: whoever attaches anew waits while it is listed, and then finds the socket free
        with _listing:
            if _attached.get(self.application) is self:
                del _attached[self.application]


def _sizes(cycle: Cycle) -> str:
    sizes = cycle.action.planned if cycle.action else {}
    return ", ".join(f"{count} {unit}" for unit, count in sizes.items())


@atexit.register
def _detach_all() -> None:
    for handle in list(_attached.values()):
        handle.detach()


def _settings(
    spark: Any,
    policy: str | None,
    config: str | Path | None,
    settings: Mapping[str, object] | Settings | None,
) -> Settings:
    from penstock.settings import Settings, load_settings

    chosen: dict[str, object] = {} if policy is None else {"policy": policy}
    if isinstance(settings, Settings):
        return settings.model_copy(update=chosen)
    spark_conf = dict(spark.sparkContext.getConf().getAll())
    file = Path(config) if config is not None else None
    return load_settings(file, spark_conf=spark_conf, arguments={**(settings or {}), **chosen})


def _assemble(spark: Any, settings: Settings, report_to: str | None) -> Autopilot:
    """Put the real parts together; observing only means that no actuator is built."""
    from penstock.decide.manager import ScalingManager
    from penstock.decide.registry import make_policy
    from penstock.journal.store import journal_at
    from penstock.loop import Loop, LoopSettings
    from penstock.migrate.spark_mover import SparkMover
    from penstock.observe.spark_session import application_id, application_name
    from penstock.observe.spark_source import SparkSource
    from penstock.remembering import remembering
    from penstock.repartitioning import Repartitioning
    from penstock.state_control import StateControl

    journal: Journal = journal_at(settings.journal, retained=settings.retained_observations)
    name = application_name(spark)
    policy = remembering(make_policy(settings), journal, name)
    if report_to is not None:
        from penstock.fleet.reporting import reporting_policy

        conf = dict(spark.sparkContext.getConf().getAll())
        policy = reporting_policy(report_to, name, journal, policy, conf)
    source = SparkSource(spark, settings)
    mover = SparkMover(spark, settings, source.state_tasks)
    actuator, notes = _actuator(spark, settings, source, mover)
    loop = Loop(
        application_id(spark),
        source,
        policy,
        ScalingManager(settings.manager()),
        journal,
        actuator,
        LoopSettings(policy_interval=settings.policy_interval),
        mover,
    )

    def close() -> None:
        journal.close()
        mover.close()

    return Autopilot(
        loop,
        settings,
        name,
        alive=_alive(spark),
        notes=notes,
        close=close,
        state=StateControl(loop, mover, Repartitioning(loop.application, journal, mover.bins(spark))),
    )


def _alive(spark: Any) -> Callable[[], bool]:
    from penstock.observe.spark_status import SparkStatus

    context, status = spark.sparkContext, SparkStatus(spark)
    return patiently(lambda: context._jsc is None, status.stopped)


def patiently(gone: Callable[[], bool], stopped: Callable[[], bool]) -> Callable[[], bool]:
    """Whether the application still runs; one question without an answer is not yet its end."""
    unanswered = 0

    def alive() -> bool:
        nonlocal unanswered
        try:
            ended = gone() or stopped()
        except PenstockError as error:
            unanswered += 1
            if unanswered == MOST_UNANSWERED:
                log.warning("Spark has not answered %d times, so the autopilot ends: %s", unanswered, error)
            # Spark may have been stopped while we asked
            return unanswered < MOST_UNANSWERED and not gone()
        unanswered = 0
        return not ended

    return alive


def _actuator(
    spark: Any, settings: Settings, source: SparkSource, mover: SparkMover
) -> tuple[Actuator | None, tuple[str, ...]]:
    from penstock.act.spark_executors import SparkActuator
    from penstock.observe.spark_session import can_change_executors

    if settings.mode == "observe":
        return None, ()
    obstacle = can_change_executors(spark)
    if obstacle is not None:
        return None, (obstacle,)
    return SparkActuator(spark, settings, source.state_bins, mover), ()
