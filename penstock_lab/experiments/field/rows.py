"""Rows of the field: the figures of one trial, completed once the least size that keeps up is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from penstock.journal.records import ActionRecord, DecisionRecord
from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.field.plan import DAY, FieldTrial
from penstock_lab.experiments.field.trace import (
    DoneBatch,
    FieldTrace,
    find_latencies,
    find_quantile,
    fit_line,
    keeps_up,
)
from penstock_lab.experiments.measurement import Row

SETTLED_SHARE = 0.35
"""The last part of a fixed run counts: before, Python starts and code is compiled."""
LAST_SECONDS = 50.0
"""The end of a steered run, in which its batches are compared with the prediction."""
SHOWN_SECONDS = 35.0
"""A size that was held for the last so many seconds, and kept up, does keep up, whoever chose it."""
WARM_SECONDS = 30
"""Seconds at the beginning in which latencies do not count: Python starts and code is compiled."""
NO_ORACLE = "none"
"""In the column `oracle`: no size keeps up with a backlog that is there from the start."""
UNEVEN = 1.25
"""Times the input of a period that a batch may have which is compared with the one predicted for a period."""
MOST_AGE_PERIODS = 3.0
"""A record may be so many periods old: one it waits, one it is worked on, and one for the unevenness."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The record of a trial that ran; times are seconds since the epoch."""

    trial: FieldTrial
    fed_from: float
    trace: FieldTrace
    decisions: tuple[DecisionRecord, ...] = ()
    actions: tuple[ActionRecord, ...] = ()
    output_equal: bool | None = None
    failure: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the system that differ from its defaults."""
    feed_late_seconds: float | None = None

    @property
    def fed_until(self) -> float:
        """When the input ended, or the job that reads a backlog."""
        if self.trial.is_backlog and self.trace.held:
            return self.trace.held[-1][0]
        return self.fed_from + self.trial.seconds

    @property
    def shows(self) -> bool | None:
        """Whether the last size keeps up with the last rate; None where the run does not tell.

        A steered run that is behind may be catching up, so only a fixed one shows that a size does not do.
        """
        trial, until = self.trial, self.fed_until
        if self.failure or not trial.ends_steady or trial.is_backlog:
            return None
        if trial.system == "fixed":
            since = until - SETTLED_SHARE * trial.seconds
            return keeps_up(self.trace, trial.rate, since, until, trial.find_period)
        since = until - SHOWN_SECONDS
        held = self.trace.unchanged_since(until) <= since
        return True if held and keeps_up(self.trace, trial.rate, since, until, trial.find_period) else None


@dataclass(frozen=True, slots=True)
class DoneTrial:
    """The row of a trial without its oracle, and what the rest of the row is computed from."""

    row: Row
    held_seconds: Mapping[int, float]
    """Size → seconds for which it was held while the input came."""
    latencies: Sequence[float]
    shows: bool | None
    """Whether `final_executors` keep up; None where the run does not tell."""


def measure_trial(ran: Ran) -> DoneTrial:
    """Take the figures of a trial; the oracle's are still to come."""
    trace, trial = ran.trace, ran.trial
    held_seconds = trace.sum_sizes(ran.fed_from, ran.fed_until)
    profile = parse_profile(trial.profile)
    latencies = [] if trial.is_backlog else find_latencies(trace, profile, ran.fed_from, trial.seconds)
    row = {
        **trial.describe(),
        "oracle_executors": None,
        "oracle": None,
        **_measure_sizes(ran),
        "seconds_to_first_decision": _first_decision(ran),
        "prediction_error": _measure_prediction(ran),
        "seconds_behind": sum(age > _most_age(trial) for age in latencies),
        "batch_p99_seconds": find_quantile([batch.seconds for batch in _last_batches(ran)], 0.99),
        "latency_p99_seconds": find_quantile(latencies[WARM_SECONDS:], 0.99),
        "late_share": None,
        "executor_seconds": sum(count * seconds for count, seconds in held_seconds.items()),
        "executor_seconds_over_oracle": None,
        "idle_seconds": trial.idle_seconds,
        "seconds_to_release_when_idle": _measure_release(ran),
        "feed_late_seconds": ran.feed_late_seconds,
        "output_equal": ran.output_equal,
        "settings": ", ".join(f"{name}={value}" for name, value in ran.settings.items()),
        "failure": ran.failure,
    }
    return DoneTrial(row, held_seconds, latencies, ran.shows)


def _measure_sizes(ran: Ran) -> Row:
    scales = [action for action in ran.actions if "executors" in action.planned]
    held = [count for at, count in ran.trace.held if ran.fed_from <= at <= ran.fed_until]
    requested = [int(action.planned["executors"]) for action in scales] or held[-1:]
    return {
        "final_executors": ran.trace.held_at(ran.fed_until),
        "most_requested": max(requested, default=None),
        "most_held": max(held, default=None),
        "steps": len(scales) if ran.trial.system == "penstock" else _count_changes(held),
    }


def _count_changes(held: Sequence[int]) -> int:
    return sum(one != other for one, other in pairwise(held))


def _most_age(trial: FieldTrial) -> float:
    """Return the age beyond which a record is behind; one may wait for the rest of its file, too."""
    return MOST_AGE_PERIODS * trial.longest_period + trial.job.source.every_seconds


def complete_row(done: DoneTrial, oracle: int | None, how: str) -> Row:
    """Add the oracle, and whether it was searched or computed."""
    over = (max(0, count - (oracle or 0)) * seconds for count, seconds in done.held_seconds.items())
    return {
        **done.row,
        "oracle_executors": oracle,
        "oracle": how,
        "executor_seconds_over_oracle": None if oracle is None else sum(over),
    }


def add_lateness(row: Row, done: DoneTrial, peak: DoneTrial) -> Row:
    """Add the share of a day's seconds in which records were older than the peak size's 99th percentile."""
    most, counted = find_quantile(peak.latencies[WARM_SECONDS:], 0.99), done.latencies[WARM_SECONDS:]
    share = sum(age > most for age in counted) / len(counted) if counted and not math.isnan(most) else None
    return {**row, "late_share": share}


def _measure_release(ran: Ran) -> float | None:
    """Return seconds from the last record to one executor; None if not awaited, or never."""
    if not ran.trial.idle_seconds:
        return None
    last = max((batch.end for batch in ran.trace.batches if batch.records), default=ran.fed_until)
    return ran.trace.released_after(max(last, ran.fed_until), 1)


def _last_batches(ran: Ran) -> list[DoneBatch]:
    """Return the batches of the last seconds that ran wholly at the size of the end."""
    since = max(ran.fed_until - LAST_SECONDS, ran.trace.unchanged_since(ran.fed_until), ran.fed_from)
    return [batch for batch in ran.trace.list_batches(since, ran.fed_until) if batch.records]


def _first_decision(ran: Ran) -> float | None:
    """Return seconds from the start of the first query to the first answer with a size; waiting is none."""
    sized = [decision.first_at for decision in ran.decisions if decision.answer["kind"] in {"hold", "scale"}]
    begun = min((batch.start for batch in ran.trace.batches), default=ran.fed_from)
    return max(0.0, min(sized) - begun) if sized else None


def _measure_prediction(ran: Ran) -> float | None:
    """Compare the batch that was last predicted for the size held at the end with those there.

    With a trigger interval that is the median batch, of the query that is busiest for its period, as in
    the prediction. Without one, the prediction is for a batch with the input of `period_seconds`, and a batch
    that runs has the input of the one before it: so the seconds of such a batch are read from a line through
    those that ran. A day has no last rate to predict for, a backlog no rate at all.
    """
    if ran.trial.system != "penstock" or ran.trial.load == DAY or ran.trial.is_backlog:
        return None
    final = ran.trace.held_at(ran.fed_until)
    predicted = [
        figures
        for decision in ran.decisions
        if decision.last_at < ran.fed_until - LAST_SECONDS / 2
        and (figures := _predict_for(decision.answer, ran.trace.held_at(decision.last_at), final)) is not None
    ]
    if not predicted:
        return None
    figures, batches = predicted[-1], _last_batches(ran)
    if ran.trial.has_trigger:
        measured = _find_busiest(ran.trial, batches)
    else:
        measured = fit_seconds(batches, ran.trial.rate * figures["period_seconds"])
    return None if measured is None else abs(figures["batch_seconds"] / measured - 1)


def _find_busiest(trial: FieldTrial, batches: Sequence[DoneBatch]) -> float | None:
    """Return the median batch of the query whose batches take most of their period.

    What is predicted is a batch with the input of a period, so those over a backlog are left out.
    """
    batches = [batch for batch in batches if batch.records <= _most_records(trial, batch.query)]
    queries = {batch.query for batch in batches}
    medians = [
        (median(one.seconds for one in batches if one.query == query), trial.find_period(query))
        for query in queries
    ]
    return max(medians, key=lambda one: one[0] / one[1])[0] if medians else None


def _most_records(trial: FieldTrial, query: str) -> float:
    return UNEVEN * trial.rate * max(trial.find_period(query), trial.job.source.every_seconds)


def fit_seconds(batches: Sequence[DoneBatch], records: float) -> float | None:
    """Return the seconds of a batch with so many records, by the line through those that ran."""
    line = fit_line(batches)
    seconds = line[0] + line[1] * records if line else 0.0
    return seconds if seconds > 0 else None


def _predict_for(answer: Mapping[str, Any], held: int, size: int) -> Mapping[str, float] | None:
    """Return the figures of the batch that an answer predicts, if it is about so many executors."""
    figures: Mapping[str, float] = {}
    if answer["kind"] == "hold" and held == size:
        figures = answer["figures"]
    elif answer["kind"] == "scale" and answer["parallelism"].get("executors") == size:
        figures = answer["expected"]["figures"]
    return figures if {"batch_seconds", "period_seconds"} <= figures.keys() else None


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
    # a backlog that is there from the start may be read in two batches, and nothing falls behind
    sized = [row["seconds_to_first_decision"] for row in rows if row["oracle"] != NO_ORACLE]
    return {
        **({"longest_first_decision": max(map(_or_never, sized))} if sized else {}),
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
