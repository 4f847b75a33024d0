"""The word count of DS2's section 5.2 on a real cluster: DS2 beside Spark's dynamic allocation.

Three cases: from under-provisioned, from over-provisioned, and two phases as in section 5.3. The
optimum is found by trying sizes on the same cluster: the least on which a batch of one trigger
interval's records ends within the trigger interval, so that no backlog grows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from penstock.dataflow.window import EXECUTORS
from penstock.errors import ActionFailed
from penstock.journal.records import ActionRecord, DecisionRecord
from penstock.journal.store import journal_at
from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.batches import (
    BatchSeen,
    SlotsSeen,
    find_size_changes,
    find_slots,
    sum_backlog,
    sum_slot_seconds,
    time_settled_batch,
)
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    Row,
    tell_row,
    tell_settings,
)
from penstock_lab.experiments.spark_query import (
    QUICK_DECISIONS,
    attach_autopilot,
    await_count,
    await_moment,
    list_batches,
    make_endless,
    note_failure,
    read_size_changes,
    stop_after,
)
from penstock_lab.ground.spark_cluster import (
    ClusterShape,
    SlotRecorder,
    cluster,
    executor_ids,
    hold_executors,
    scratch_directory,
    start_cluster,
    stop_cluster,
)
from penstock_lab.workloads.word_count import WordCount, start_word_count

DS2, DYNAMIC_ALLOCATION = "ds2", "dynamic-allocation"
PATIENCE_SECONDS = 600.0
SHAPE = ClusterShape(executors=5, cores=3, name="penstock bench wordcount", log_level="OFF")
TRIGGER_SECONDS = 6.0
HIGH_RATE, LOW_RATE, WARM_UP_RATE = 60.0, 30.0, 3.0
LOAD = WordCount.make_for(slots=4.5, rate=HIGH_RATE).with_tasks(9)
"""Service times alone keep these slots busy; fixed costs and whole waves of tasks need more."""
LOAD_AFTER_SECONDS = 40.0
"""Java and Python warm up on a trickle first: the first batches of a process say nothing about later ones."""
SETTINGS: Mapping[str, object] = {
    **QUICK_DECISIONS,
    "policy_interval": "12s",
    "scale_down_delay": "12s",
    "max_executors": SHAPE.executors,
}
SAME_STEP_SECONDS = 5.0
"""Executors that were asked for together register one after the other."""
SIZES, QUICK_SIZES = [5, 4, 3, 2, 1], [3, 2]
"""Executors of the search for the least size that keeps up."""
BATCHES = 5
"""Timed at each rate on each size."""
REPORT_SECONDS = {DS2: 62.0, DYNAMIC_ALLOCATION: 16.0}
"""Of load in a quick run of the report: DS2 steps within half a minute, dynamic allocation at once."""
BatchSeconds = Mapping[float, Mapping[int, tuple[float, ...]]]
"""Rate → slots → seconds of batches."""


@dataclass(frozen=True, slots=True)
class WordCountCase:
    """A starting size and the rates that follow; a phase is (seconds after the load begins, rate)."""

    name: str
    executors_at_start: int
    phases: tuple[tuple[float, float], ...]
    seconds: float

    @property
    def profile(self) -> str:
        """The rate profile of the whole run, with the warm-up."""
        steps = [f"{LOAD_AFTER_SECONDS + start:g}={rate:g}" for start, rate in self.phases]
        return f"steps:{','.join([f'0={WARM_UP_RATE:g}', *steps])}"

    def list_spans(self, origin: float) -> list[tuple[float, float, float]]:
        """Return start, end and rate of each phase, in clock time."""
        begun = origin + LOAD_AFTER_SECONDS
        ends = [start for start, _ in self.phases[1:]] + [self.seconds]
        return [
            (begun + start, begun + end, rate) for (start, rate), end in zip(self.phases, ends, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """The course of a run; `origin` is when the load's profile began."""

    origin: float
    ended: float
    batches: tuple[BatchSeen, ...]
    slots: tuple[SlotsSeen, ...]
    actions: tuple[ActionRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()


def run_ds2(case: WordCountCase) -> ClusterRun:
    """Let DS2 size the query from the moment at which the load begins."""
    with cluster(SHAPE, case.executors_at_start) as spark, scratch_directory() as scratch:
        journal = str(scratch / "journal.db")
        settings = {**SETTINGS, "journal": journal, "control_socket": False}

        def steer(until: Callable[[float], None]) -> None:
            until(LOAD_AFTER_SECONDS)
            with attach_autopilot(spark, settings, DS2):
                until(LOAD_AFTER_SECONDS + case.seconds)

        run = _watch(spark, case, scratch, steer)
        application = spark.sparkContext.applicationId
        with closing(journal_at(journal)) as opened:
            decisions = opened.decisions(application)
        return replace(run, actions=read_size_changes(journal, application), decisions=decisions)


def run_dynamic_allocation(case: WordCountCase) -> ClusterRun:
    """Let Spark's dynamic allocation with shuffle tracking size it; its other settings are the defaults."""
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.initialExecutors": str(case.executors_at_start),
        "spark.dynamicAllocation.maxExecutors": str(SHAPE.executors),
    }
    spark = start_cluster(replace(SHAPE, conf=conf))
    try:
        deadline = time.monotonic() + 90
        while len(executor_ids(spark)) < case.executors_at_start:
            if time.monotonic() > deadline:
                raise ActionFailed(
                    f"{len(executor_ids(spark))} of {case.executors_at_start} executors came up"
                )
            time.sleep(0.2)
        with scratch_directory() as scratch:
            return _watch(spark, case, scratch, lambda until: until(LOAD_AFTER_SECONDS + case.seconds))
    finally:
        stop_cluster()


def _watch(
    spark: SparkSession, case: WordCountCase, scratch: Path, steer: Callable[[Callable[[float], None]], None]
) -> ClusterRun:
    """Run the load from now on and sample the slots."""
    origin, checkpoint = time.time(), str(scratch / "checkpoint")
    workload = replace(LOAD, profile=case.profile, start=origin)
    with (
        SlotRecorder(spark, SHAPE.cores) as recorder,
        stop_after(start_word_count(spark, workload, checkpoint, trigger_seconds=TRIGGER_SECONDS)) as query,
    ):
        steer(lambda seconds: await_moment(query, origin + seconds))
        ended, batches = time.time(), list_batches(query)
    slots = tuple(SlotsSeen(at, count) for at, count in recorder.samples)
    return ClusterRun(origin, ended, tuple(batches), slots)


def search_sizes(rates: list[float], sizes: list[int], batches: int, progress: Progress) -> BatchSeconds:
    """Time batches of one trigger interval's records, of each rate on each number of executors.

    Sizes go down, and executors leave while no query runs, so that no batch has to be repeated. Below a size
    whose batches outlast the trigger interval a rate is not tried.
    """
    found: dict[float, dict[int, tuple[float, ...]]] = {rate: {} for rate in rates}
    with cluster(SHAPE) as spark, scratch_directory() as scratch:
        for executors in sorted(sizes, reverse=True):
            hold_executors(spark, executors)
            for rate in list(rates):
                endless, checkpoint = (
                    make_endless(LOAD, round(rate * TRIGGER_SECONDS)),
                    str(scratch / f"{rate:g}"),
                )
                with stop_after(start_word_count(spark, endless, checkpoint, trigger_seconds=0)) as query:
                    # the first two warm things up
                    seen = await_count(query, batches + 2, PATIENCE_SECONDS)[2 : batches + 2]
                slots, seconds = executors * SHAPE.cores, tuple(batch.seconds for batch in seen)
                progress(f"{rate:g} records/s on {slots} slots: batches of {median(seconds):.2f} s")
                found[rate][slots] = seconds
                if median(seconds) > TRIGGER_SECONDS:
                    rates = [other for other in rates if other != rate]
    return found


UNDER = WordCountCase("under", 1, ((0, HIGH_RATE),), 150)
OVER = WordCountCase("over", SHAPE.executors, ((0, HIGH_RATE),), 110)
TWO_PHASE = WordCountCase("two-phase", 1, ((0, HIGH_RATE), (150, LOW_RATE)), 270)
RUNNERS = {DS2: run_ds2, DYNAMIC_ALLOCATION: run_dynamic_allocation}


@dataclass(frozen=True, slots=True)
class WordCounts:
    """The cases, their runs and rows by case and system, and the batches of the search."""

    cases: Sequence[WordCountCase]
    runs: Mapping[tuple[str, str], ClusterRun]
    rows: Mapping[tuple[str, str], Row]
    tried: BatchSeconds
    """Empty where no least size was searched for."""


def run(extent: Extent, progress: Progress) -> Measurement:
    """Find the optimum, then run every case with both systems; quick runs one case against few sizes.

    A quick run of the report searches no optimum.
    """
    cases = [replace(UNDER, seconds=110)] if extent.quick else [UNDER, OVER, TWO_PHASE]
    rates = [HIGH_RATE] if extent.quick else [HIGH_RATE, LOW_RATE]
    sizes, batches = (QUICK_SIZES, 2) if extent.quick else (SIZES, BATCHES)
    shortened = extent.quick and extent.report
    tried = {} if shortened else search_sizes(rates, sizes, batches, progress)
    seconds = take_medians(tried)
    optimum = {rate: find_least(seconds.get(rate, {})) for rate in rates}
    runs: dict[tuple[str, str], ClusterRun] = {}
    rows: dict[tuple[str, str], Row] = {}
    failures: list[str] = []
    for case in cases:
        for system, runner in RUNNERS.items():
            asked = replace(case, seconds=REPORT_SECONDS[system]) if shortened else case
            progress(f"{case.name}, {system}: {LOAD_AFTER_SECONDS + asked.seconds:.0f} s")
            with note_failure(failures, f"{case.name}, {system}"):
                runs[case.name, system] = seen = runner(asked)
                rows[case.name, system] = row = make_row(asked, system, seen, optimum)
                progress(tell_row(row))
    found, made = WordCounts(cases, runs, rows, tried), list(rows.values())
    notes = [] if shortened else _describe_method(made, seconds)
    for case in cases:
        for seen in (runs[case.name, system] for system in RUNNERS if (case.name, system) in runs):
            notes += tell_last_words(case, seen)
    return Measurement(made, _summarise(made, seconds), notes, failures, found, extent.quick)


def take_medians(found: BatchSeconds) -> dict[float, dict[int, float]]:
    """Return the usual batch time by slots for each rate."""
    return {rate: {slots: median(seconds) for slots, seconds in by.items()} for rate, by in found.items()}


def find_least(seconds_by_slots: Mapping[int, float]) -> int | None:
    """Return the fewest slots whose batch ends within the trigger interval; None if none does."""
    return min((slots for slots, taken in seconds_by_slots.items() if taken <= TRIGGER_SECONDS), default=None)


def make_row(case: WordCountCase, system: str, seen: ClusterRun, optimum: Mapping[float, int | None]) -> Row:
    """Reduce one case with one system to the fields of the report."""
    spans = case.list_spans(seen.origin)
    loaded, ended = spans[0][0], spans[-1][1]
    offered = parse_profile(case.profile).cumulative
    changes = _list_changes(seen, system)
    held = [find_slots(seen.slots, end) for _, end, _ in spans]
    errors = [_compare_prediction(case, seen, action) for action in seen.actions]
    # steps before the load began count with the first phase
    starts = [float("-inf"), *(start for start, _, _ in spans[1:])]
    backlog = sum_backlog(seen.batches, lambda t: offered(t - seen.origin), loaded, ended)
    # of several phases the longest time from the begin to the last step
    times = [change.at - start for start, end, _ in spans for change in changes if start <= change.at < end]
    return {
        "case": case.name,
        "system": system,
        "steps": len(changes),
        "steps_by_phase": [
            sum(start <= change.at < end for change in changes)
            for start, (_, end, _) in zip(starts, spans, strict=True)
        ],
        "final_slots": held[-1],
        "optimal_slots": optimum[spans[-1][2]],
        "slots_by_phase": held,
        "optimal_by_phase": [optimum[rate] for _, _, rate in spans],
        "slots_per_executor": SHAPE.cores,
        "seconds_to_converge": round(max(times, default=0.0), 1),
        "backlog_record_seconds": round(backlog),
        "slot_seconds": round(sum_slot_seconds(seen.slots, loaded, ended)),
        "prediction_error": max((error for error in errors if error is not None), default=None),
        "settings": tell_settings(SETTINGS) if system == DS2 else "",
    }


def tell_last_words(case: WordCountCase, seen: ClusterRun) -> list[str]:
    """Tell the last decision of each phase, so that a size that is off can be understood."""
    said = []
    for number, (start, end, _) in enumerate(case.list_spans(seen.origin), start=1):
        within = [one for one in seen.decisions if start <= one.last_at and one.first_at < end]
        if within:
            said.append(
                f"{case.name}, last decision of phase {number}: {within[-1].kind}: {within[-1].reason}"
            )
    return said


def _list_changes(seen: ClusterRun, system: str) -> list[SlotsSeen]:
    """Return the steps: what was decided where that is known, else what was seen to change."""
    if system != DS2:
        return find_size_changes(seen.slots, SAME_STEP_SECONDS)
    return [
        SlotsSeen(action.ended_at or action.intended_at, action.planned[EXECUTORS] * SHAPE.cores)
        for action in seen.actions
    ]


def _compare_prediction(case: WordCountCase, seen: ClusterRun, action: ActionRecord) -> float | None:
    """Compare the predicted batch time with the batches that ran at that size, as a fraction of these."""
    predicted = action.expected.figures.get("batch_seconds")
    # a decision in the moment in which the load ends has no batches
    phase = next((span for span in case.list_spans(seen.origin) if action.intended_at < span[1]), None)
    if predicted is None or action.ended_at is None or phase is None:
        return None
    later = [other.intended_at for other in seen.actions if other.intended_at > action.intended_at]
    start, phase_end, rate = phase
    # the first batch on new executors warms them up
    settled = max(action.ended_at, start) + 2 * TRIGGER_SECONDS
    measured = time_settled_batch(seen.batches, settled, min([phase_end, *later]), rate * TRIGGER_SECONDS)
    return None if measured is None else abs(predicted - measured) / measured


def _summarise(rows: list[Row], measured: Mapping[float, Mapping[int, float]]) -> dict[str, float]:
    figures = {
        f"batch_seconds_{rate:g}_per_second_{slots}_slots": round(seconds, 2)
        for rate, by_slots in measured.items()
        for slots, seconds in sorted(by_slots.items())
    }
    for system, name in ((DS2, "ds2"), (DYNAMIC_ALLOCATION, "dynamic_allocation")):
        ours = [row for row in rows if row["system"] == system]
        figures[f"{name}_slot_seconds"] = sum(row["slot_seconds"] for row in ours)
        figures[f"{name}_backlog_record_seconds"] = sum(row["backlog_record_seconds"] for row in ours)
    errors = [row["prediction_error"] for row in rows if row["prediction_error"] is not None]
    if errors:
        figures["median_prediction_error"] = round(median(errors), 3)
    return figures


def _describe_method(rows: list[Row], measured: Mapping[float, Mapping[int, float]]) -> list[str]:
    notes = [
        f"rates are scaled down to {HIGH_RATE:g} and {LOW_RATE:g} sentences/s; a sentence takes FlatMap "
        f"{LOAD.seconds_per_sentence * 1000:g} ms and a word takes Count a tenth of that, as in the paper",
        "dynamic allocation counts pending tasks, so it grows during the warm-up already: its steps count "
        "from the start of the query, and seconds_to_converge from the start of the load",
        "published figures are of Heron and Flink on other machines; the load's ratios are the same",
    ]
    tried = sorted({slots for by_slots in measured.values() for slots in by_slots})
    notes.append(f"sizes tried in the search: {', '.join(map(str, tried))} slots")
    unpredicted = [row for row in rows if row["system"] == DS2 and row["prediction_error"] is None]
    notes += [f"{row['case']}: no prediction could be compared with settled batches" for row in unpredicted]
    return notes
