"""A job of this benchmark under `penstock run --policy sage --allow-restart` until its size is known."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from penstock.bench.sizing_search import MIB, batches, end
from penstock.decide.held_size import size_in_bytes
from penstock.decide.outcome import Status
from penstock.journal.records import ActionRecord
from penstock.journal.store import open_journal

INTERVAL = 1.5
QUIET_WINDOWS = 50
"""Without an action in so many the size is found: rules that shrink look back 30, after a warm-up of 6."""
STALL_SECONDS = 15.0
MEMORY_KEYS = ("spark.executor.memory", "spark.executor.memoryOverhead")
CORES_KEY = "spark.task.cpus"
SIZES = (*MEMORY_KEYS, CORES_KEY)


@dataclass(frozen=True, slots=True)
class Sized:
    """What became of a job: its actions, the batches that ended, whether it ran on without another action."""

    actions: tuple[ActionRecord, ...]
    batches: tuple[tuple[float, str], ...]
    settled: bool
    begun: float


def supervised(job: Sequence[str], conf: Mapping[str, str], place: Path, seconds: float) -> Sized:
    """Let the job be sized until nothing has changed for a while."""
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli", "run", "--policy", "sage", "--allow-restart", *options]
    begun = time.time()
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([*command, *job], env=_environment(place), stdout=log, stderr=log)
        try:
            actions, settled = _until_quiet(place, process, seconds)
        finally:
            (place / "enough").touch()
            end(process, 45.0)
    return Sized(tuple(actions), tuple(batches(place)), settled, begun)


def _environment(place: Path) -> dict[str, str]:
    """The rules in the same proportions as by default, with a shorter interval, on memory and CPU alone."""
    return {
        **os.environ,
        "PENSTOCK_JOURNAL": str(place / "journal.db"),
        "PENSTOCK_RUNTIME_DIRECTORY": str(place / "run"),
        "PENSTOCK_POLICY_INTERVAL": f"{INTERVAL}s",
        "PENSTOCK_SAGE_UP_WINDOW": f"{6 * INTERVAL}s",
        "PENSTOCK_SAGE_DOWN_WINDOW": f"{30 * INTERVAL}s",
        "PENSTOCK_SAGE_FIRST_AFTER": "none",
        "PENSTOCK_SAGE_PIN": "parallelism,driver-heap",
        "PENSTOCK_RESTARTS_PER_DAY": "20",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


def _until_quiet(
    place: Path, process: subprocess.Popen[bytes], seconds: float
) -> tuple[Sequence[ActionRecord], bool]:
    begun = time.time()
    actions: tuple[ActionRecord, ...] = ()
    with closing(open_journal(place / "journal.db")) as journal:
        while process.poll() is None and time.time() - begun < seconds:
            time.sleep(1.0)
            actions = journal.actions()
            first = next((at for at, _ in batches(place)), time.time())
            latest = max([first, *(one.ended_at or time.time() for one in actions)])
            if sum(one.at > latest for one in journal.observations()) >= QUIET_WINDOWS:
                return actions, True
    return actions, False


def final_sizes(conf: Mapping[str, str], actions: Sequence[ActionRecord]) -> dict[str, float]:
    """What is held in the end: MiB of memory, and cores a task."""
    changes = {
        key: pair[1] for one in actions if one.status is Status.DONE for key, pair in one.settings.items()
    }
    return {key: amount({**conf, **changes}[key]) for key in SIZES}


def amount(written: str) -> float:
    """A setting as a number: MiB where it is a size."""
    return float(written) if written.isdecimal() else size_in_bytes(written, "a size") / MIB


def stalls(sized: Sized) -> int:
    """Gaps between batches that no restart explains."""
    restarts = [(one.intended_at, one.ended_at or one.intended_at) for one in sized.actions]

    def explained(begun: float, ended: float) -> bool:
        return any(begun <= until and since <= ended for since, until in restarts)

    gaps = pairwise(at for at, _ in sized.batches)
    return sum(later - one > STALL_SECONDS and not explained(one, later) for one, later in gaps)


def undone(actions: Sequence[ActionRecord]) -> int:
    """How often a setting was raised again after it had been lowered."""
    count, lowered = 0, set[str]()
    for action in actions:
        for key, (before, after) in action.settings.items():
            if key not in SIZES:
                continue
            if amount(after) < amount(before):
                lowered.add(key)
            elif key in lowered:
                count += 1
    return count


def lost_after_decrease(sized: Sized) -> int:
    """Executors that went while nothing was restarted, after something had been lowered."""
    downs = [one.ended_at for one in sized.actions if _lowers(one) and one.ended_at is not None]
    since = min(downs, default=float("inf"))
    ends = [one.intended_at for one in sized.actions]

    def restarted(begun: float, ended: float) -> bool:
        return any(begun <= at <= ended for at in ends)

    pairs = [(one, other) for one, other in pairwise(sized.batches) if one[0] > since]
    return sum(one[1] != other[1] and not restarted(one[0], other[0]) for one, other in pairs)


def downs_by(actions: Sequence[ActionRecord], rule: str) -> int:
    """How many actions this rule took."""
    return sum(one.reason.startswith(f"{rule} ") for one in actions)


def course(actions: Sequence[ActionRecord]) -> str:
    """Rule and change of each action, on one line."""
    return "; ".join(_told(one) for one in actions) or "none"


def _told(action: ActionRecord) -> str:
    changes = ", ".join(
        f"{key.rpartition('.')[2]} {old} → {new}" for key, (old, new) in action.settings.items()
    )
    failed = "" if action.status is Status.DONE else f" ({action.status.value if action.status else 'open'})"
    return f"{action.reason.partition(' ')[0]} {changes}{failed}"


def _lowers(action: ActionRecord) -> bool:
    return any(
        amount(after) < amount(before) for key, (before, after) in action.settings.items() if key in SIZES
    )
