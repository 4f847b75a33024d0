"""The autopilot of one application: a daemon thread that ticks the loop, and the handle that steers it.

This module is loaded by `import penstock`, so it imports at the top only what costs nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput, PenstockError, Unsupported
from penstock.runtime.heartbeat import Heartbeat, Watchdog

if TYPE_CHECKING:
    from penstock.journal.terms import Terms
    from penstock.runtime.control import ControlServer
    from penstock.runtime.loop import Cycle, Loop
    from penstock.runtime.notebook_view import LiveTable
    from penstock.runtime.state_control import StateControl
    from penstock.runtime.telemetry.outlets import Outlets
    from penstock.settings.model import Settings

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
DETACH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found as an application's parts were put together: notes for its user, and its terms."""

    notes: tuple[str, ...] = ()
    terms: Terms | None = None


class Autopilot:
    """The handle of an attached autopilot; its thread ends with `detach`, with Spark or with the process."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        name: str = "",
        alive: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        found: Findings | None = None,
        life: AbstractContextManager[object] | None = None,
        state: StateControl | None = None,
    ) -> None:
        """Assemble the handle; if `life` yields a callable, it is called after each cycle."""
        from penstock.runtime.advice import JobAdvice
        from penstock.runtime.sizing_board import SizingBoard

        self.application, self.name, self.settings = loop.application, name, settings
        self._sizing, self._advice = SizingBoard(), JobAdvice(settings)
        self._state = state
        self._loop, self._alive, self._clock = loop, alive, clock
        self._notes, self._terms = (found.notes, found.terms) if found is not None else ((), None)
        self._life: AbstractContextManager[object] = life or nullcontext()
        self._ended: Callable[[Autopilot], None] = lambda autopilot: None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-autopilot", daemon=True)
        self._heart = Heartbeat(settings.manager.policy_interval)
        self._watchdog = Watchdog(self._heart, loop.application, self._thread, self._tell_hang)
        self._control: ControlServer | None = None
        self._outlets: Outlets | None = None
        self._error: str | None = None
        self._warnings: tuple[str, ...] = ()
        self._action_since: float | None = None
        self._table: LiveTable | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is at work."""
        return self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop, or is ending by itself."""
        return self._stopping.is_set()

    def ended_within(self, seconds: float) -> bool:
        """Wait for the thread to end, `seconds` at most; return whether it has."""
        if self._thread.ident is not None:
            self._thread.join(timeout=seconds)
        return not self.running

    def start(self, ended: Callable[[Autopilot], None] = lambda autopilot: None) -> None:
        """Begin to watch, and listen for commands; `ended` is called when all of it is over."""
        self._ended = ended
        self._control = self._listen()
        self._outlets = self._open_outlets()
        self._heart.beat()
        self._thread.start()
        self._watchdog.start()
        for note in self._notes:
            log.warning("%s: %s", self.application, note)
        log.info("%s: attached, policy %s, %s", self.application, self._loop.policy.name, self._mode)

    def status(self, known: str | None = None) -> dict[str, Any]:
        """Return how the application stands, as plain data; without its past, if that is `known` already."""
        from penstock.runtime.status import summarise_timeline

        return {
            "application": self.application,
            "name": self.name,
            "policy": self._loop.policy.name,
            "mode": self._mode,
            "bounds": self.settings.bounds.model_dump(),
            "paused": self._loop.paused is not None,
            "pause_reason": self._loop.paused,
            "attached": self.running,
            "now": self._clock(),
            "terms": asdict(self._terms) if self._terms is not None else {},
            **summarise_timeline(self._loop.timeline, known),
            "action_in_flight": self._in_flight(),
            "heartbeat": self._heart.plain(),
            "notifications": self._outlets.notifications() if self._outlets is not None else {},
            "metrics_url": self._outlets.metrics_url if self._outlets is not None else None,
            "warnings": [*filter(None, [self._heart.describe()]), *self._notes, *self._warnings],
            "advice": list(self._advice.list(self._loop.timeline)),
            "error": self._error,
        }

    def pause(self, by: str = "hand") -> None:
        """Keep watching, propose and change nothing; the journal tells by whom."""
        self._set_paused(True, by)

    def resume(self, by: str = "hand") -> None:
        """Propose and act again."""
        self._set_paused(False, by)

    def scale(self, executors: int, by: str = "hand") -> int:
        """Set the number of executors, now; unless it is paused, the policy may soon ask for another."""
        from penstock.runtime import by_hand

        return by_hand.order_size(self._loop, self.settings.bounds, executors, by)

    @property
    def state(self) -> StateControl:
        """The control over state: where it lies, and how to move it; Unsupported where there is none."""
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

    def _ipython_display_(self) -> None:
        """Show a table that keeps itself up to date in a notebook, and one line elsewhere."""
        from penstock.runtime.notebook_view import LiveTable, find_notebook

        show = find_notebook()
        if show is None:
            sys.stdout.write(f"{self!r}\n")
            return
        if self._table is not None:
            self._table.stop()
        self._table = LiveTable(self._repr_html_, lambda: self.running)
        self._table.start(show)

    def _repr_html_(self) -> str:
        from penstock.runtime.status import list_essentials

        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(label)}</th><td>{escape(text)}</td></tr>"
            for label, text in list_essentials(self.status())
        )
        return f"<table><caption>Penstock</caption>{cells}</table>"

    def _set_paused(self, paused: bool, by: str) -> bool:
        from penstock.runtime import by_hand

        (by_hand.pause if paused else by_hand.resume)(self._loop, self._clock(), by)
        return paused

    @property
    def _mode(self) -> str:
        return "observe" if self._loop.actuator is None else "act"

    def _run(self) -> None:
        try:
            with self._life as after_cycle:
                self._watch(after_cycle if callable(after_cycle) else lambda now: None)
        except Exception:
            log.exception("%s: the autopilot did not end cleanly", self.application)
        finally:
            # last: whoever attaches anew waits for it, and then finds the socket free
            self._ended(self)

    def _watch(self, after_cycle: Callable[[float], None]) -> None:
        try:
            while self._alive() and not self._stopping.is_set():
                self._notice(cycle := self._loop.tick(self._clock()))
                after_cycle(cycle.at)
                self._heart.beat()
                self._stopping.wait(min(TICK_SECONDS, self.settings.manager.policy_interval / 2))
            log.info("%s: detached", self.application)
        except Exception:
            log.exception("%s: the autopilot has stopped; the application runs on", self.application)
        finally:
            self._stopping.set()
            self._watchdog.stop()
            self._loop.leave(self._clock())
            for door in (self._control, self._outlets):
                if door is not None:
                    door.close()

    def _notice(self, cycle: Cycle) -> None:
        """Keep for the status what the timeline does not hold; a tick between intervals says nothing new."""
        self._sizing.notice(cycle)
        if self._outlets is not None:
            self._outlets.notice(cycle)
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
        if not self.settings.run.control_socket:
            return None
        from penstock.runtime.control import ControlServer

        try:
            return ControlServer(Path(self.settings.run.runtime_directory), self.application, self._answer)
        except (PenstockError, OSError, RuntimeError) as error:
            # RuntimeError: no more threads; the user's job can do without our socket
            log.warning("%s: %s", self.application, error)
            return None

    def _tell_hang(self, hangs: str | None) -> None:
        if self._outlets is not None:
            self._outlets.tell_hang(hangs)

    def _open_outlets(self) -> Outlets | None:
        if not self.settings.tell_others:
            return None
        from penstock.runtime.telemetry.outlets import Outlets

        outlets = Outlets(self.settings, self.application, self.name, self.status)
        self._notes += outlets.notes
        return outlets

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        from penstock.runtime import by_hand

        by, names = by_hand.read_name(request), {"application": self.application, "name": self.name}
        answers: dict[str, Callable[[], Mapping[str, Any]]] = {
            "health": lambda: {**names, **self._heart.plain()},
            "hello": lambda: names,
            "outlooks": lambda: {"outlooks": by_hand.list_outlooks(self._loop)},
            "pause": lambda: {"paused": self._set_paused(True, by)},
            "resume": lambda: {"paused": self._set_paused(False, by)},
            "scale": lambda: {"executors": self.scale(by_hand.read_size(request), by)},
            "sizing": lambda: {"sizing": self._sizing.plain()},
            "status": lambda: {"status": self.status(request.get("timeline"))},
        }
        if command in answers:
            return answers[command]()
        of_state = self._state.commands if self._state is not None else ()
        if self._state is not None and command in of_state:
            return self._state.answer(command, request)
        raise BadInput(f"unknown command {command!r}; known: {', '.join((*answers, *of_state))}")


def _sizes(cycle: Cycle) -> str:
    sizes = cycle.action.planned if cycle.action else {}
    return ", ".join(f"{count} {unit}" for unit, count in sizes.items())
