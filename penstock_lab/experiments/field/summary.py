"""Figures over the rows of the field: those of the sizes that Penstock ends at, and those of a day."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from penstock_lab.experiments.field.plan import DAY
from penstock_lab.experiments.field.trace import find_quantile
from penstock_lab.experiments.measurement import Row


def summarise_field(rows: Sequence[Row]) -> dict[str, float]:
    """Return the figures that the targets are about; what was not measured is left out."""
    ours = [row for row in rows if row["system"] == "penstock"]
    sized = [row for row in ours if row["oracle_executors"] and not _is_day(row)]
    return {**_summarise_sizes(sized), **_summarise_all(ours), **_summarise_day(rows)}


def _summarise_sizes(rows: Sequence[Row]) -> dict[str, float]:
    """Compare sizes at the end with the oracle; a day ends at night, and its oracle is that of the peak."""
    if not rows:
        return {}
    errors = [row["prediction_error"] for row in rows if row["prediction_error"] is not None]
    return {
        "rows": float(len(rows)),
        "within_one_share": _share(rows, _is_within_one),
        "below_oracle": float(sum(row["final_executors"] < row["oracle_executors"] for row in rows)),
        "worst_requested_over_oracle": max(
            (row["most_requested"] or 0) / row["oracle_executors"] for row in rows
        ),
        "bounded_requests_share": _share(rows, _is_within_bound),
        "two_steps_share": _share(rows, lambda row: row["steps"] <= 2),
        "rows_with_prediction": float(len(errors)),
        "median_prediction_error": median(errors) if errors else math.nan,
        "p90_prediction_error": find_quantile(errors, 0.9),
        "worst_prediction_error": max(errors, default=math.nan),
    }


def _summarise_all(rows: Sequence[Row]) -> dict[str, float]:
    """Summarise what every row of Penstock has, and the release of those that ended without input."""
    if not rows:
        return {}
    waited = [row["seconds_to_release_when_idle"] for row in rows if row["idle_seconds"]]
    released = {"longest_idle_release": max(map(_or_never, waited))} if waited else {}
    return {
        "longest_first_decision": max(_or_never(row["seconds_to_first_decision"]) for row in rows),
        **released,
        "output_equal_share": _share(rows, lambda row: row["output_equal"] is True),
    }


def _summarise_day(rows: Sequence[Row]) -> dict[str, float]:
    """Return executor-seconds over those of the peak size, and the share of late seconds, of each side."""
    day = {row["system"]: row for row in rows if _is_day(row) and not row["failure"]}
    peak = day.get("fixed-peak")
    if peak is None or not peak["executor_seconds"]:
        return {}
    figures: dict[str, float] = {"day_peak_latency_p99_seconds": peak["latency_p99_seconds"]}
    for system in ("penstock", "dynamic-allocation"):
        if system in day and day[system]["late_share"] is not None:
            name = system.replace("-", "_")
            share = day[system]["executor_seconds"] / peak["executor_seconds"]
            figures[f"day_{name}_executor_seconds_share"] = share
            figures[f"day_{name}_late_share"] = day[system]["late_share"]
    return figures


def _is_day(row: Row) -> bool:
    return bool(row["load"].partition(" ")[0] == DAY)


def _or_never(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> float:
    return sum(map(holds, rows)) / len(rows)


def _is_within_one(row: Row) -> bool:
    return bool(0 <= row["final_executors"] - row["oracle_executors"] <= 1)


def _is_within_bound(row: Row) -> bool:
    """Tell whether no more than one and a half times the oracle, and one more, was asked for in growth."""
    asked = row["most_requested"] or 0
    return bool(asked <= max(1.5 * row["oracle_executors"] + 1, row["start_executors"]))
