"""Batches that a busy machine has slowed down, told from those whose own work has become dearer.

A task that waits for a core takes longer and computes no more, and so do the tasks of every other stage of
its batch. A slower service, or larger records, show in one stage, or in what it computes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.dataflow.metrics import BatchExecution, StageExecution

DISTURBED = 1.4
"""Times the usual seconds for a second of computing from which every stage of a batch was disturbed."""

FEWEST_STAGES = 2
"""One stage alone cannot tell a busy machine from a slow service."""

LEAST_COMPUTED = 0.02
"""Seconds of processor time of a stage below which their ratio is rounding."""

FEWEST_BATCHES = 4
"""With fewer batches nothing is usual."""


def keep_undisturbed(batches: tuple[BatchExecution, ...]) -> tuple[BatchExecution, ...]:
    """Return the batches without those that a busy machine has slowed down; all, where most are alike."""
    if len(batches) < FEWEST_BATCHES:
        return batches
    usual = _find_usual(batches)
    calm = tuple(batch for batch in batches if not _is_disturbed(batch, usual))
    return calm if 2 * len(calm) >= len(batches) else batches


def _find_usual(batches: Sequence[BatchExecution]) -> dict[str, float]:
    """Return the usual seconds for a second of computing, operator by operator: the lower quartile."""
    seen: dict[str, list[float]] = {}
    for batch in batches:
        for stage in batch.stages:
            if (ratio := _measure_slowness(stage)) is not None:
                seen.setdefault(stage.operator, []).append(ratio)
    return {name: float(np.quantile(ratios, 0.25)) for name, ratios in seen.items()}


def _is_disturbed(batch: BatchExecution, usual: dict[str, float]) -> bool:
    slowed = [
        ratio / usual[stage.operator]
        for stage in batch.stages
        if (ratio := _measure_slowness(stage)) is not None and usual[stage.operator] > 0
    ]
    return len(slowed) >= FEWEST_STAGES and min(slowed) >= DISTURBED


def _measure_slowness(stage: StageExecution) -> float | None:
    """Divide the useful seconds of a stage by those it computed; None where that is not known."""
    computed = float(stage.cpu_seconds.sum())
    if len(stage.cpu_seconds) != stage.tasks or not LEAST_COMPUTED <= computed < float("inf"):
        return None
    return float(stage.useful_seconds.sum()) / computed
