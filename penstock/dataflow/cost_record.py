"""Fitted costs as plain data and back, so that they can outlive the driver that measured them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.dataflow.costs import QueryCosts, StageCost
from penstock.errors import BadMetrics

MOST_TASKS = 2000
"""Costs of a stage with more tasks are not kept: each task's share of the records is a number."""
MOST_STAGES = 200

_Plain = Mapping[str, Any]


def plain_costs(costs: QueryCosts) -> dict[str, Any] | None:
    """Plain numbers and text; None where that would be too much of it."""
    if len(costs.stages) > MOST_STAGES or any(stage.tasks > MOST_TASKS for stage in costs.stages):
        return None
    return {
        "slots": costs.slots,
        "per_batch_seconds": costs.per_batch_seconds,
        "error_ratio": costs.error_ratio,
        "stretch": costs.stretch,
        "stages": [_plain_stage(stage) for stage in costs.stages],
    }


def costs_from(plain: object) -> QueryCosts:
    """Read them back; BadMetrics where they are not what `plain_costs` writes."""
    try:
        return _costs(plain)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadMetrics(f"remembered costs cannot be read: {error!r}") from error


def _plain_stage(stage: StageCost) -> dict[str, Any]:
    return {
        "operator": stage.operator,
        "per_task_seconds": stage.per_task_seconds,
        "per_record_seconds": stage.per_record_seconds,
        "shares": [round(share, 9) for share in stage.shares.tolist()],
        "selectivity": stage.selectivity,
        "identified": stage.identified,
    }


def _costs(plain: Any) -> QueryCosts:
    stages = tuple(_stage(stage) for stage in _list(plain["stages"], MOST_STAGES))
    if not stages or len({stage.operator for stage in stages}) < len(stages):
        raise ValueError("stages are missing or named twice")
    slots = plain["slots"]
    if not isinstance(slots, int) or slots < 1:
        raise ValueError(f"{slots!r} slots")
    return QueryCosts(
        per_batch_seconds=_number(plain["per_batch_seconds"]),
        stages=stages,
        slots=slots,
        error_ratio=_number(plain["error_ratio"]),
        stretch=_number(plain["stretch"]),
    )


def _stage(plain: Any) -> StageCost:
    shares = np.array([_number(share) for share in _list(plain["shares"], MOST_TASKS)])
    if not len(shares) or not math.isclose(float(shares.sum()), 1.0, abs_tol=1e-3):
        raise ValueError("the tasks' shares do not make a whole")
    return StageCost(
        operator=str(plain["operator"]),
        per_task_seconds=_number(plain["per_task_seconds"]),
        per_record_seconds=_number(plain["per_record_seconds"]),
        tasks=len(shares),
        shares=shares / shares.sum(),
        selectivity=_number(plain["selectivity"]),
        identified=bool(plain["identified"]),
    )


def _list(value: object, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("a list is missing or too long")
    return value


def _number(value: object) -> float:
    number = float(value) if isinstance(value, int | float) else math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is no cost")
    return number
