"""The task that holds up its stage, and the executor whose tasks are slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.diagnose.log.application import SUCCEEDED, ApplicationLog, Column, StageKey
from penstock.diagnose.trace.from_log import name_operators

Names = Mapping[StageKey, str]

# A straggler takes this many times the median of its stage; LONGER is enough if it also reads that much more.
SKEW_RATIO = 2.0
LONGER = 1.25
# A stage is held up by its last task if that takes this share of it; otherwise it waits for slots.
HOLDS_UP = 0.5
# A slow executor's tasks take this many times as long as others, and do not read MORE_RECORDS times as much.
SLOWER = 2.0
MORE_RECORDS = 1.25


@dataclass(frozen=True, slots=True)
class Straggler:
    """The last task of a stage, where it is far longer than the others.

    `median_records` is of the tasks that read any. `copy_was_slow` tells that a speculative copy of it ran
    and was no faster.
    """

    ratio: float
    seconds: float
    executor: str
    partition: int
    records_ratio: float
    records: int = 0
    median_records: float = 0.0
    median_seconds: float = 0.0
    bytes_in: int = 0
    is_scan: bool = False
    copy_was_slow: bool = False
    stage: StageKey = (-1, 0)

    @property
    def is_skewed(self) -> bool:
        """Whether the task reads that many more records than the others."""
        return self.records_ratio >= SKEW_RATIO

    @property
    def kind(self) -> str:
        """Why the task is long: uneven splits, skew, or something that its records do not explain."""
        if self.is_scan and self.records >= self.median_records:
            return "uneven splits"
        return "skew" if self.is_skewed else "straggler"


def find_straggler(log: ApplicationLog, operator: str, names: Names | None = None) -> Straggler | None:
    """Return the worst straggler among the stages of an operator."""
    names = name_operators(log) if names is None else names
    found = list_stragglers(log, frozenset(key for key, name in names.items() if name == operator))
    return max(found, key=lambda one: one.seconds, default=None)


def list_stragglers(log: ApplicationLog, keys: frozenset[StageKey]) -> list[Straggler]:
    """Return the straggler of each of these stages that has one."""
    found = (_find_in_stage(log, key, rows) for key, rows in group_rows(log, keys).items() if len(rows) > 1)
    return [one for one in found if one]


def group_rows(log: ApplicationLog, keys: frozenset[StageKey]) -> dict[StageKey, Column]:
    """Return the tasks of these stage attempts that succeeded."""
    tasks = log.tasks
    inside = np.isin(tasks["stage"], [stage for stage, _ in keys]) & (tasks["outcome"] == SUCCEEDED)
    rows = np.nonzero(inside)[0]
    rows = rows[np.lexsort((tasks["attempt"][rows], tasks["stage"][rows]))]
    if not len(rows):
        return {}
    stage, attempt = tasks["stage"][rows], tasks["attempt"][rows]
    groups = np.split(rows, np.nonzero((np.diff(stage) != 0) | (np.diff(attempt) != 0))[0] + 1)
    found = {(int(tasks["stage"][each[0]]), int(tasks["attempt"][each[0]])): each for each in groups}
    return {key: each for key, each in found.items() if key in keys}


def find_rows(log: ApplicationLog, keys: frozenset[StageKey]) -> Column:
    """Return all tasks of these stage attempts that succeeded."""
    groups = list(group_rows(log, keys).values())
    return np.concatenate(groups) if groups else np.array([], dtype=np.int64)


def _find_in_stage(log: ApplicationLog, stage: StageKey, rows: Column) -> Straggler | None:
    tasks = log.tasks
    seconds = (tasks["finish"][rows] - tasks["launch"][rows]) / 1000
    # the stage ended with this task, whatever took longer before
    last = int(rows[tasks["finish"][rows].argmax()])
    length = float(tasks["finish"][last] - tasks["launch"][last]) / 1000
    median = float(np.median(seconds))
    records, read = int(tasks["records_in"][last]), tasks["records_in"][rows]
    usual = float(np.median(read[read > 0])) if (read > 0).any() else 0.0
    found = Straggler(
        ratio=length / max(median, 1e-3),
        seconds=length,
        executor=tasks.executors[int(tasks["executor"][last])],
        partition=int(tasks["partition"][last]),
        records_ratio=records / usual if usual else 0.0,
        records=records,
        median_records=usual,
        median_seconds=median,
        bytes_in=int(tasks["bytes_in"][last]),
        is_scan=2 * int(tasks["scanned_records"][rows].sum()) > int(read.sum()),
        copy_was_slow=_has_slow_copy(log, last, length),
        stage=stage,
    )
    span = float(tasks["finish"][last] - tasks["launch"][rows].min()) / 1000
    stands_out = found.ratio >= SKEW_RATIO or (found.ratio >= LONGER and found.is_skewed)
    return found if stands_out and found.seconds >= HOLDS_UP * span else None


def _has_slow_copy(log: ApplicationLog, row: int, seconds: float) -> bool:
    """Return whether another copy of the task ran long enough to show that it is no faster."""
    tasks = log.tasks
    if not tasks["speculative"].any():
        return False
    same = (tasks["stage"] == tasks["stage"][row]) & (tasks["attempt"] == tasks["attempt"][row])
    same &= (tasks["partition"] == tasks["partition"][row]) & (tasks["finish"] >= 0)
    if not tasks["speculative"][same].any():
        return False
    copies = np.nonzero(same)[0]
    lengths = (tasks["finish"][copies] - tasks["launch"][copies])[copies != row] / 1000
    return bool((lengths >= HOLDS_UP * seconds).any())


def find_slow_executor(log: ApplicationLog, operator: str, names: Names) -> tuple[str, float] | None:
    """Return the executor whose tasks of the operator are slow without more to read, and how slow."""
    rows = _find_operator_rows(log, operator, names)
    found = _find_slow_group(log, rows, log.tasks["executor"][rows])
    return (log.tasks.executors[found[0]], found[1]) if found else None


def find_slow_host(log: ApplicationLog, operator: str, names: Names) -> tuple[str, float] | None:
    """Return the host on which the operator's tasks are slow without more to read, and how slow."""
    known = (log.executors.get(name) for name in log.tasks.executors)
    hosts = [executor.host if executor else "" for executor in known]
    if "" in hosts or len(set(hosts)) in {1, len(hosts)}:
        return None  # unknown, or the same as executors
    places = {host: place for place, host in enumerate(dict.fromkeys(hosts))}
    rows = _find_operator_rows(log, operator, names)
    of_executor = np.array([places[host] for host in hosts], dtype=np.int64)
    found = _find_slow_group(log, rows, of_executor[log.tasks["executor"][rows]])
    return (list(places)[found[0]], found[1]) if found else None


def _find_operator_rows(log: ApplicationLog, operator: str, names: Names) -> Column:
    stages = [stage for (stage, _), name in names.items() if name == operator]
    return np.nonzero(np.isin(log.tasks["stage"], stages) & (log.tasks["outcome"] == SUCCEEDED))[0]


def _find_slow_group(log: ApplicationLog, rows: Column, group: Column) -> tuple[int, float] | None:
    """Return the group of tasks that is slower than the others, and how many times."""
    tasks = log.tasks
    seconds = (tasks["finish"] - tasks["launch"])[rows] / 1000
    medians = {int(one): float(np.median(seconds[group == one])) for one in np.unique(group)}
    if len(medians) < 2:
        return None
    slowest = max(medians, key=lambda one: medians[one])
    mine = group == slowest
    # even its quickest task must be slower than the others, or one hot task would explain it
    ratio = float(seconds[mine].min() / max(np.median(seconds[~mine]), 1e-3))
    records = tasks["records_in"][rows]
    fair = np.median(records[mine]) <= MORE_RECORDS * max(float(np.median(records[~mine])), 1.0)
    return (slowest, ratio) if ratio >= SLOWER and fair and mine.sum() > 1 else None
