"""Finds what was on the critical path of newly finished batches, within a share of the driver's time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import thread_time
from typing import Any

from penstock.dataflow.window import CriticalWindow
from penstock.errors import BadMetrics
from penstock.observe.progress import BatchProgress
from penstock.observe.stages import OperatorOutline

SHARE_OF_TIME = 0.002
"""Of one core, for all queries together."""
_QUERIES_KEPT = 64

Fields = Mapping[str, Any]
StageTasks = tuple[int, OperatorOutline, Sequence[Fields]]


class BatchAnalysis:
    """Analyses a batch, and then none of that query until what it took is a small share of the time since."""

    def __init__(self, spent: Callable[[], float] = thread_time) -> None:
        self._spent = spent
        self._resume: dict[str, float] = {}
        self._compiled = False

    def critical(
        self,
        now: float,
        progress: BatchProgress,
        jobs: Sequence[Fields],
        stages: Sequence[StageTasks],
        cores: Mapping[str, int],
        slots: int,
    ) -> CriticalWindow | None:
        """Return what held the batch up; nothing while resting, nor where its times make no path."""
        if now < self._resume.get(progress.run_id, now):
            return None
        begun = self._spent()
        try:
            return _analyse_batch(progress, jobs, stages, cores, slots)
        except (KeyError, TypeError, ValueError) as error:
            raise BadMetrics(f"batch {progress.batch_id} cannot be analysed: {error!r}") from error
        finally:
            self._rest(progress.run_id, now, self._spent() - begun)

    def _rest(self, run_id: str, now: float, seconds: float) -> None:
        # the first pass loads or compiles the kernels, which says nothing about the next ones
        counted = seconds if self._compiled else 0.0
        self._compiled = True
        self._resume[run_id] = now + counted * len(self._resume | {run_id: now}) / SHARE_OF_TIME
        if len(self._resume) > _QUERIES_KEPT:
            del self._resume[next(iter(self._resume))]


def _analyse_batch(
    progress: BatchProgress,
    jobs: Sequence[Fields],
    stages: Sequence[StageTasks],
    cores: Mapping[str, int],
    slots: int,
) -> CriticalWindow | None:
    # loading the compiled passes takes half a second, which applications that never ask need not pay
    from penstock.diagnose.live_batch import LiveBatch, LiveStage, find_critical_window

    return find_critical_window(
        LiveBatch(
            batch_id=progress.batch_id,
            start=progress.start,
            phases=progress.phases_ms,
            input_records=progress.input_records,
            state_load_ms=progress.state_load_ms,
            state_commit_ms=progress.state_commit_ms,
            slots=slots,
            cores=cores,
            jobs=jobs,
            stages=[
                LiveStage(number, operator.name, operator.fed_by, operator.stateful, tasks)
                for number, operator, tasks in stages
            ],
        )
    )
