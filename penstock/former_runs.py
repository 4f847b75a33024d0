"""What earlier runs of an application left open when their drivers died is closed by the next run.

Each run of a driver is an application of its own to Spark, with executors of its own; the name stays. An
action of a driver that died cannot be finished and needs no undoing: its executors are gone with it, and the
new run reads its state from the checkpoint, wherever it was about to move.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock.decide.outcome import Outcome, Status
from penstock.journal.records import ActionRecord

log = logging.getLogger(__name__)

KIND = "run"
DETAIL = (
    "the driver ended before the action did; its executors went with it, and the next run, {application}, "
    "took up the state from the checkpoint"
)


class Runs(Protocol):
    """The journal, as far as runs go; raises JournalUnavailable."""

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        """Write over what is known by this key."""

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Key → what is known."""

    def unfinished(self, application: str) -> Sequence[ActionRecord]:
        """Actions without an outcome."""

    def ended(self, now: float, action_id: int, outcome: Outcome) -> None:
        """Write down what became of an action."""


class AllRuns(Protocol):
    """The journal, as far as the runs of all applications go; raises JournalUnavailable."""

    def recall_all(self, kind: str) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """Name → id of a run → its process."""


def settle_former_runs(
    runs: Runs,
    name: str,
    application: str,
    now: float,
    is_over: Callable[[Mapping[str, Any]], bool] | None = None,
    spared: frozenset[int] = frozenset(),
) -> None:
    """Close what dead runs of this name left open, and write down that this one began; raises nothing.

    `spared` are actions that somebody else sees to their end.
    """
    try:
        for former, process in runs.recall(name, KIND).items():
            if former != application and (is_over or process_is_over)(process):
                _close(runs, former, application, now, spared)
        runs.remember(now, name, KIND, application, this_process())
    except Exception as error:
        # what an earlier run left behind must not keep this one from being watched
        log.warning("%s: actions that earlier runs left open stay open: %s", name, error)


def name_of(runs: AllRuns, application: str) -> str:
    """The name of the application that has or had a run of this id; else it is a name itself."""
    return _name_in(runs.recall_all(KIND), application)


def also_known_as(runs: AllRuns, application: str) -> tuple[str, ...]:
    """An id and the name of its application, or a name and the ids of its runs."""
    known = runs.recall_all(KIND)
    return (application, _name_in(known, application), *known.get(application, {}))


def _name_in(known: Mapping[str, Mapping[str, Any]], application: str) -> str:
    return next((name for name, ids in known.items() if application in ids), application)


def _close(runs: Runs, former: str, application: str, now: float, spared: frozenset[int]) -> None:
    for action in runs.unfinished(former):
        if action.action_id in spared:
            continue
        seconds = max(0.0, now - action.intended_at)
        detail = DETAIL.format(application=application)
        runs.ended(now, action.action_id, Outcome(Status.UNKNOWN, action.planned, {}, {}, seconds, detail))
        log.warning("%s: action %d: %s", former, action.action_id, detail)


def this_process(pid: int | None = None) -> dict[str, Any]:
    """What tells this process, or another, from all others, also from a later one with its number."""
    number = os.getpid() if pid is None else pid
    return {"host": socket.gethostname(), "pid": number, "started": _started(number)}


def process_is_over(process: Mapping[str, Any]) -> bool:
    """Whether it is known to have ended; of a process on another machine nothing is known."""
    if process.get("host") != socket.gethostname() or not isinstance(process.get("pid"), int):
        return False
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return process.get("started") != _started(process["pid"])


def _started(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty where the system does not tell.

    One that has ended and that its parent has not taken note of began, as far as anybody cares, never.
    """
    try:
        # the name, in brackets, may hold blanks; what follows it does not
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if state == "Z" else fields[18]
    except (OSError, IndexError, ValueError):
        return ""
