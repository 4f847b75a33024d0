"""Former runs of an application: the next run closes what they left open when their drivers died.

Each run of a driver is an application of its own to Spark, with executors of its own; the name stays. An
action of a driver that died cannot be finished and needs no undoing: its executors are gone with it, and the
new run reads its state from the checkpoint, wherever it was about to move.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

import psutil

from penstock.decide.outcome import Outcome, Status
from penstock.errors import PenstockError
from penstock.journal.ports import Memories, RecordAndMemories
from penstock.journal.pulses import HEARTBEAT, JOURNAL_SECONDS, read_pulse

log = logging.getLogger(__name__)

KIND = "run"
DETAIL = (
    "the driver ended before the action did; its executors went with it, and the next run, {application}, "
    "took up the state from the checkpoint"
)


def settle_former_runs(
    journal: RecordAndMemories,
    name: str,
    application: str,
    now: float,
    spared: frozenset[int] = frozenset(),
) -> bool:
    """Close what dead runs of this name left open, and write down that this one began; raise nothing.

    `spared` are actions that somebody else sees to their end. Returns whether more may have to be closed
    later: a run on another machine, whose process nobody here sees, is dead once its heartbeat fell silent.
    """
    awaited = False
    try:
        pulses = journal.recall(name, HEARTBEAT)
        for former, process in journal.recall(name, KIND).items():
            if former == application:
                continue
            elsewhere = process.get("host") != socket.gethostname()
            pulse = read_pulse(pulses.get(former), now) if elsewhere else None
            if process_is_over(process) or (pulse is not None and (pulse.ended or pulse.is_late)):
                _close(journal, former, application, now, spared)
            elif pulse is not None:
                awaited = awaited or bool(journal.unfinished(former))
        journal.remember(now, name, KIND, application, identify_process())
    except Exception as error:
        # what an earlier run left behind must not keep this one from being watched
        trace = None if isinstance(error, PenstockError) else error
        log.warning("%s: actions that earlier runs left open stay open: %s", name, error, exc_info=trace)
    return awaited


class FormerRuns:
    """Settles the former runs of a name at the start, and again while one on another machine may live."""

    def __init__(
        self,
        journal: RecordAndMemories,
        name: str,
        application: str,
        spared: frozenset[int] = frozenset(),
    ) -> None:
        self._journal, self._name, self._application, self._spared = journal, name, application, spared
        self._next_at = float("-inf")

    def look(self, now: float) -> None:
        """Settle them, if it is time."""
        if now >= self._next_at:
            again = settle_former_runs(self._journal, self._name, self._application, now, self._spared)
            self._next_at = now + JOURNAL_SECONDS if again else float("inf")


def find_name(memories: Memories, application: str) -> str:
    """Find the name of the application that has or had a run of this id; any other id is a name itself."""
    return _name_in(memories.recall_all(KIND), application)


def list_aliases(memories: Memories, application: str) -> tuple[str, ...]:
    """List an id with the name of its application, or a name with the ids of its runs."""
    known = memories.recall_all(KIND)
    return (application, _name_in(known, application), *known.get(application, {}))


def _name_in(known: Mapping[str, Mapping[str, Any]], application: str) -> str:
    return next((name for name, ids in known.items() if application in ids), application)


def _close(
    journal: RecordAndMemories, former: str, application: str, now: float, spared: frozenset[int]
) -> None:
    for action in journal.unfinished(former):
        if action.action_id in spared:
            continue
        seconds = max(0.0, now - action.intended_at)
        detail = DETAIL.format(application=application)
        journal.ended(now, action.action_id, Outcome(Status.UNKNOWN, action.planned, {}, {}, seconds, detail))
        log.warning("%s: action %d: %s", former, action.action_id, detail)


def identify_process(pid: int | None = None) -> dict[str, Any]:
    """Describe this process, or another, so that it is not taken for a later one with its number."""
    number = os.getpid() if pid is None else pid
    return {"host": socket.gethostname(), "pid": number, "started": _read_start(number)}


def process_is_over(process: Mapping[str, Any]) -> bool:
    """Tell whether a process is known to have ended; of one on another machine nothing is known."""
    pid = process.get("pid")
    if process.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    started = _read_start(pid)
    return not started or process.get("started") != started


def _read_start(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; nothing if it does not run.

    The difference to the boot is unaffected by a clock that is set. A zombie counts as not running.
    """
    try:
        process = psutil.Process(pid)
        seconds = process.create_time() - psutil.boot_time()
        zombie = process.status() == psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):
        return ""
    return "" if zombie else str(round(seconds * os.sysconf("SC_CLK_TCK")))
