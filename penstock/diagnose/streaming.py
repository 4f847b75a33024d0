"""The streaming view: each query's batches with their phases, rates and state, and which were slow and why.

Medians are over the batches that had something to do, without the first one of each run, which is cold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.diagnose.log.application import ApplicationLog, Batch

PHASES: Mapping[str, tuple[str, ...]] = {
    "asking the source": ("latestOffset", "getOffset", "getEndOffset", "setOffsetRange"),
    "offset log": ("walCommit",),
    "planning": ("getBatch", "queryPlanning"),
    "running": ("addBatch",),
    "commit log": ("commitBatch", "commitOffsets"),
}
OTHER = "other"
# A batch is slow at this many times the median; it has more to do if it has that many times the rows.
SLOW_RATIO = 1.5
# Triggers are told by batches that leave this share of the time to the next one free.
FREE_SHARE = 0.1
_COMMIT_PART = re.compile(r"^rocksdb(?:Commit(\w+?)|(ChangeLogWriter)Commit|Save(ZipFiles))Latency(?:Ms)?$")
_PART_NAMES = {"FileSync": "upload", "ChangeLogWriter": "changelog", "ZipFiles": "upload of files"}


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch; seconds of state are summed over its tasks, which ran side by side."""

    number: int
    start_ms: int
    seconds: float
    rows_in: float
    rows_out: float
    offered_per_second: float
    processed_per_second: float
    phases: dict[str, float]
    watermark_delay_seconds: float | None
    late_rows: float
    state_rows: float
    state_bytes: float
    state_seconds: dict[str, float]
    commit_parts: dict[str, float]
    is_cold: bool = False
    slow_because: str = ""


@dataclass(frozen=True, slots=True)
class QueryView:
    """One run of a query; without a trigger interval its batches follow each other."""

    query: str
    name: str
    run: str
    trigger_seconds: float | None
    median_seconds: float
    cold_seconds: float | None
    batches: list[BatchView]

    @property
    def slow(self) -> list[BatchView]:
        """The batches that were slow."""
        return [batch for batch in self.batches if batch.slow_because]


def view_queries(log: ApplicationLog, start_ms: float, end_ms: float) -> list[QueryView]:
    """Return the runs of the log's queries, with their batches between two times."""
    runs: dict[tuple[str, str], list[Batch]] = {}
    for batch in log.batches:
        runs.setdefault((batch.query, batch.run), []).append(batch)
    viewed = [_view_run(log.query_names.get(key[0], key[0][:8]), key, held) for key, held in runs.items()]
    return [one for one in (_cut(view, start_ms, end_ms) for view in viewed) if one.batches]


def _cut(view: QueryView, start_ms: float, end_ms: float) -> QueryView:
    inside = [
        batch
        for batch in view.batches
        if batch.start_ms <= end_ms and batch.start_ms + batch.seconds * 1000 >= start_ms
    ]
    return QueryView(
        view.query, view.name, view.run, view.trigger_seconds, view.median_seconds, view.cold_seconds, inside
    )


def _view_run(name: str, key: tuple[str, str], batches: Sequence[Batch]) -> QueryView:
    ordered = sorted(batches, key=lambda batch: batch.start)
    viewed = [_view_batch(batch) for batch in ordered]
    # the first batch is cold; triggers that found nothing to do run no job
    steady = [one for one in viewed[1:] if one.phases["running"] > 0] or viewed[1:] or viewed
    usual = _find_usual(steady)
    trigger = infer_trigger(ordered)
    first_is_cold = len(viewed) > 2 and viewed[0].seconds > SLOW_RATIO * usual.seconds
    judged = [
        _judge(batch, usual, trigger, is_cold=first_is_cold and place == 0)
        for place, batch in enumerate(viewed)
    ]
    cold = viewed[0].seconds if first_is_cold else None
    return QueryView(key[0], name, key[1], trigger, usual.seconds, cold, judged)


def infer_trigger(batches: Sequence[Batch]) -> float | None:
    """Return the seconds between triggers, or None if batches follow each other: the log does not tell."""
    gaps = [
        (after.start - before.start) / 1000
        for before, after in pairwise(batches)
        if before.milliseconds <= (1 - FREE_SHARE) * (after.start - before.start)
    ]
    return float(np.median(gaps)) if len(gaps) * 2 >= max(2, len(batches) - 1) else None


def _view_batch(batch: Batch) -> BatchView:
    phases = {
        name: sum(batch.phases.get(part, 0.0) for part in parts) / 1000 for name, parts in PHASES.items()
    }
    phases[OTHER] = max(0.0, batch.milliseconds / 1000 - sum(phases.values()))
    delay = (batch.start - batch.watermark) / 1000 if batch.watermark >= 0 else None
    states = batch.states
    return BatchView(
        number=batch.number,
        start_ms=batch.start,
        seconds=batch.milliseconds / 1000,
        rows_in=batch.rows_in,
        rows_out=batch.rows_out,
        offered_per_second=batch.offered_per_second,
        processed_per_second=batch.processed_per_second,
        phases=phases,
        watermark_delay_seconds=delay,
        late_rows=sum(one.late for one in states),
        state_rows=sum(one.rows for one in states),
        state_bytes=sum(one.memory_bytes for one in states),
        state_seconds={
            "update": sum(one.update_ms for one in states) / 1000,
            "removal": sum(one.removal_ms for one in states) / 1000,
            "commit": sum(one.commit_ms for one in states) / 1000,
        },
        commit_parts=_sum_commit_parts(one.measures for one in states),
    )


def _sum_commit_parts(measured: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds of each part of RocksDB's commits, largest first."""
    parts: dict[str, float] = {}
    for measures in measured:
        for name, milliseconds in measures.items():
            if (found := _COMMIT_PART.match(name)) and milliseconds > 0:
                part = next(filter(None, found.groups()))
                words = _PART_NAMES.get(part) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part).lower()
                parts[words] = parts.get(words, 0.0) + milliseconds / 1000
    return dict(sorted(parts.items(), key=lambda one: -one[1]))


@dataclass(frozen=True, slots=True)
class _Usual:
    """The medians of a run's steady batches."""

    seconds: float
    rows_in: float
    phases: dict[str, float]
    state_seconds: dict[str, float]


def _find_usual(batches: Sequence[BatchView]) -> _Usual:
    def middle(values: Iterable[float]) -> float:
        return float(np.median(list(values)))

    return _Usual(
        seconds=middle(one.seconds for one in batches),
        rows_in=middle(one.rows_in for one in batches),
        phases={name: middle(one.phases[name] for one in batches) for name in batches[0].phases},
        state_seconds={
            name: middle(one.state_seconds[name] for one in batches) for name in batches[0].state_seconds
        },
    )


def _judge(batch: BatchView, usual: _Usual, trigger: float | None, *, is_cold: bool) -> BatchView:
    values = {name: getattr(batch, name) for name in BatchView.__slots__}
    late = trigger is not None and batch.seconds > trigger
    if is_cold or (batch.seconds <= SLOW_RATIO * usual.seconds and not late):
        return BatchView(**values | {"is_cold": is_cold})
    return BatchView(**values | {"slow_because": _explain(batch, usual, trigger if late else None)})


def _explain(batch: BatchView, usual: _Usual, trigger: float | None) -> str:
    """Say which phase grew most, and what made it grow."""
    phase = max(batch.phases, key=lambda name: batch.phases[name] - usual.phases[name])
    if batch.phases[phase] <= usual.phases[phase]:
        phase = max(batch.phases, key=lambda name: batch.phases[name])
    said = f"{phase} took {batch.phases[phase]:.1f} s, usually {usual.phases[phase]:.1f} s"
    if phase == "running" and usual.rows_in > 0 and batch.rows_in >= SLOW_RATIO * usual.rows_in:
        said += f", with {batch.rows_in / usual.rows_in:.1f} times the usual rows"
    elif phase == "running" and (state := _find_slow_state(batch, usual)):
        said += f", with {state}"
    return said + (f"; longer than the trigger of {trigger:.1f} s" if trigger is not None else "")


def _find_slow_state(batch: BatchView, usual: _Usual) -> str:
    """Return the part of the state's work that grew most, if it grew much."""
    times = batch.state_seconds
    part = max(times, key=lambda name: times[name] - usual.state_seconds[name])
    if times[part] <= SLOW_RATIO * usual.state_seconds[part]:
        return ""
    largest = next(iter(batch.commit_parts), "") if part == "commit" else ""
    mostly = f", most of it {largest}" if largest else ""
    return f"{times[part]:.1f} task-seconds of state {part}{mostly}, usually {usual.state_seconds[part]:.1f}"
