"""Rows of the field: the figures of a trial, their summary, and rows that are kept in a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from penstock.journal.records import ActionRecord, DecisionRecord
from penstock_lab.experiments.field_trace import (
    MOST_LAG_PERIODS,
    DoneBatch,
    FieldTrace,
    find_lags,
    find_quantile,
    keeps_up,
    sum_behind,
)
from penstock_lab.experiments.measurement import Row
from penstock_lab.jobs.catalog import OrdinaryJob

PERIOD = 5.0
"""Seconds: the trigger interval of the scripts; without one, batches may take ten."""

PERIOD_WITHOUT_TRIGGER = 10.0

SETTLED_SHARE = 0.5
"""The part of a fixed run that counts: before, Python starts and code is compiled."""

LAST_SECONDS = 50.0
"""The end of a steered run, in which its size is judged."""


@dataclass(frozen=True, slots=True)
class FieldTrial:
    """One run of a job: which system steers it, how many executors it begins with, and its load."""

    job: OrdinaryJob
    system: str
    executors: int
    rate: float
    seconds: float
    idle_seconds: float = 0.0

    @property
    def period(self) -> float:
        """Seconds that a batch may take."""
        return PERIOD_WITHOUT_TRIGGER if self.job.name == "no-trigger" else PERIOD


@dataclass(frozen=True, slots=True)
class Ran:
    """What a trial has shown; times are seconds since the epoch."""

    trial: FieldTrial
    fed_from: float
    fed_until: float
    trace: FieldTrace
    decisions: tuple[DecisionRecord, ...] = ()
    actions: tuple[ActionRecord, ...] = ()
    output_equal: bool | None = None
    failure: str = ""

    @property
    def keeps_up(self) -> bool:
        """Whether the end of the run took what came."""
        since = self.fed_from + SETTLED_SHARE * (self.fed_until - self.fed_from)
        return keeps_up(self.trace, self.trial.rate, since, self.fed_until, self.trial.period)


def make_row(ran: Ran, start: str, system: str, oracle: int | None) -> Row:
    """Make the row of a trial."""
    trial, trace = ran.trial, ran.trace
    sent = [(ran.fed_from + second, second * trial.rate) for second in range(int(trial.seconds) + 1)]
    lags = find_lags(trace, sent, ran.fed_from, ran.fed_until)
    scales = [action for action in ran.actions if "executors" in action.planned]
    held = [count for at, count in trace.held if ran.fed_from <= at <= ran.fed_until]
    requested = [int(action.planned["executors"]) for action in scales] or held[-1:]
    return {
        "job": trial.job.name,
        "start": start,
        "system": system,
        "records_per_second": trial.rate,
        "start_executors": trial.executors,
        "oracle_executors": oracle,
        "final_executors": trace.held_at(ran.fed_until),
        "most_requested": max(requested, default=None),
        "most_held": max(held, default=None),
        "steps": len(scales) if trial.system == "penstock" else _count_changes(held),
        "seconds_to_first_decision": _first_decision(ran),
        "prediction_error": _measure_prediction(ran),
        "seconds_behind": sum_behind(lags, MOST_LAG_PERIODS * trial.rate * trial.period),
        "batch_p99_seconds": find_quantile([batch.seconds for batch in _last_batches(ran)], 0.99),
        "executor_seconds": trace.executor_seconds(ran.fed_from, ran.fed_until),
        "executor_seconds_over_oracle": _over_oracle(ran, oracle),
        "seconds_to_release_when_idle": _released(ran),
        "output_equal": ran.output_equal,
        "failure": ran.failure,
    }


def _count_changes(held: Sequence[int]) -> int:
    return sum(one != other for one, other in pairwise(held))


def _over_oracle(ran: Ran, oracle: int | None) -> float | None:
    return None if oracle is None else ran.trace.integrate_over(oracle, ran.fed_from, ran.fed_until)


def _released(ran: Ran) -> float | None:
    """Return seconds from the last record to one executor; None if not awaited, or never."""
    if not ran.trial.idle_seconds:
        return None
    last = max((batch.end for batch in ran.trace.batches if batch.records), default=ran.fed_until)
    return ran.trace.released_after(max(last, ran.fed_until), 1)


def _last_batches(ran: Ran) -> list[DoneBatch]:
    since = max(ran.fed_from, ran.fed_until - LAST_SECONDS)
    return [batch for batch in ran.trace.list_batches(since, ran.fed_until) if batch.records]


def _first_decision(ran: Ran) -> float | None:
    """Return seconds from the start of the first query to the first answer with a size; waiting is none."""
    sized = [decision.first_at for decision in ran.decisions if decision.answer["kind"] in {"hold", "scale"}]
    begun = min((batch.start for batch in ran.trace.batches), default=ran.fed_from)
    return max(0.0, min(sized) - begun) if sized else None


def _measure_prediction(ran: Ran) -> float | None:
    """Compare the batch that was last predicted for the size held at the end with the median one there."""
    if ran.trial.system != "penstock" or ran.trial.job.name == "no-trigger":
        return None
    final = ran.trace.held_at(ran.fed_until)
    predicted = [
        (decision.last_at, seconds)
        for decision in ran.decisions
        if decision.last_at < ran.fed_until - LAST_SECONDS / 2
        and (seconds := _predict_for(decision.answer, final)) is not None
    ]
    measured = [batch.seconds for batch in _last_batches(ran)]
    if not predicted or not measured:
        return None
    return abs(predicted[-1][1] / median(measured) - 1)


def _predict_for(answer: Mapping[str, Any], size: int) -> float | None:
    """Return the batch that an answer predicts, if it is about this size."""
    if answer["kind"] == "hold":
        figures: Mapping[str, float] = answer["figures"]
        return figures.get("batch_seconds")
    if answer["kind"] == "scale" and answer["parallelism"].get("executors") == size:
        figures = answer["expected"]["figures"]
        return figures.get("batch_seconds")
    return None


class KeptRows:
    """The rows that are done, in a file: what was measured once is not measured again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_bytes().splitlines() if path.exists() else []
        self._rows = {self._key(row): row for row in map(orjson.loads, lines)}

    def find(self, job: str, start: str, system: str) -> Row | None:
        """Return a row that is done."""
        return self._rows.get((job, start, system))

    def add(self, row: Row) -> Row:
        """Keep a row."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(orjson.dumps(row) + b"\n")
        self._rows[self._key(row)] = row
        return row

    def forget(self) -> None:
        """Begin anew."""
        self._path.unlink(missing_ok=True)
        self._rows = {}

    @staticmethod
    def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
        return row["job"], row["start"], row["system"]


def summarise_field(rows: Sequence[Row]) -> dict[str, float]:
    """Return the figures that the targets are about, over Penstock's rows."""
    ours = [row for row in rows if row["system"] == "penstock" and row["oracle_executors"]]
    if not ours:
        return {}
    errors = [row["prediction_error"] for row in ours if row["prediction_error"] is not None]
    firsts = [row["seconds_to_first_decision"] for row in ours]
    idle = [row["seconds_to_release_when_idle"] for row in ours]
    return {
        "rows": float(len(ours)),
        "within_one_share": _share(ours, _is_within_one),
        "below_oracle": float(sum(row["final_executors"] < row["oracle_executors"] for row in ours)),
        "worst_requested_over_oracle": max(
            (row["most_requested"] or 0) / row["oracle_executors"] for row in ours
        ),
        "bounded_requests_share": _share(ours, _is_within_bound),
        "two_steps_share": _share(ours, lambda row: row["steps"] <= 2),
        "longest_first_decision": max(one if one is not None else math.inf for one in firsts),
        "median_prediction_error": median(errors) if errors else math.nan,
        "p90_prediction_error": find_quantile(errors, 0.9),
        "worst_prediction_error": max(errors, default=math.nan),
        "longest_idle_release": max(one if one is not None else math.inf for one in idle),
        "output_equal_share": _share(ours, lambda row: row["output_equal"] is True),
    }


def _share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> float:
    return sum(map(holds, rows)) / len(rows)


def _is_within_one(row: Row) -> bool:
    return bool(0 <= row["final_executors"] - row["oracle_executors"] <= 1)


def _is_within_bound(row: Row) -> bool:
    """Tell whether no more than one and a half times the oracle, and one more, was asked for in growth."""
    asked = row["most_requested"] or 0
    return bool(asked <= max(1.5 * row["oracle_executors"] + 1, row["start_executors"]))
