"""Ordinary jobs on the proving ground: Penstock with all defaults beside dynamic allocation and fixed sizes.

The least size that keeps up, the oracle, is searched on the same ground, by runs of a fixed size. Trials that
are done are kept in a file, so that a run that was broken off goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from penstock.errors import ActionFailed, PenstockError
from penstock_lab.experiments.field import plan
from penstock_lab.experiments.field.ground import Field
from penstock_lab.experiments.field.kept import KeptTrials
from penstock_lab.experiments.field.plan import FieldTrial
from penstock_lab.experiments.field.rows import (
    NO_ORACLE,
    DoneTrial,
    Ran,
    add_lateness,
    complete_row,
    measure_trial,
    summarise_field,
)
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row
from penstock_lab.jobs.catalog import JOBS, OrdinaryJob

KEPT, KEPT_QUICK = Path("artifacts") / "field.jsonl", Path("artifacts") / "field-quick.jsonl"
SEARCHED, COMPUTED, SHOWN = "searched", "computed", "shown"
"""How the oracle was found: by search, from what a record costs, or by a smaller size that kept up."""


class TrialPlace(Protocol):
    """Where trials run."""

    def run(self, trial: FieldTrial) -> Ran:
        """Run one trial; one that fails is told, with what was seen of it."""


class FieldRun:
    """The trials of one run: those that are kept are not run again, and after each is told what is left."""

    def __init__(self, trials: TrialPlace, kept: KeptTrials, tell: Progress, seconds_left: float) -> None:
        self._trials, self._kept, self._tell, self._left = trials, kept, tell, seconds_left

    def run_job(self, job: OrdinaryJob, quick: bool) -> list[Row]:
        """Return the rows of a job: each steered trial, and those of the search for its oracle.

        A quick run computes the oracle from what a record costs, unless a smaller size was seen to keep up,
        and says so in `oracle`: a machine may be faster than the one on which costs were measured.
        """
        left = self._left - plan.estimate_job(job, quick)
        steered = [self.run_trial(trial) for trial in plan.plan_job(job, quick)]
        guess = plan.guess_executors(plan.BUSY_SLOTS)
        if job.ends_by_itself:
            rows = [complete_row(done, None, NO_ORACLE) for done in steered]
        elif quick:
            rows = [complete_row(done, *_bound_guess(done, guess)) for done in steered]
        else:
            oracle, fixed = self.search_oracle(job, plan.find_rate(job), guess, steered)
            rows = [complete_row(done, oracle, SEARCHED) for done in steered]
            rows += [_name_peak(complete_row(done, oracle, SEARCHED)) for done in fixed]
        self._left = left
        return rows

    def run_day(self, job: OrdinaryJob, recording: Path | None) -> list[Row]:
        """Return the rows of a day: the size of its peak is searched first."""
        guess = plan.guess_executors(plan.DAY_BUSY_SLOTS)
        oracle, fixed = self.search_oracle(job, plan.find_rate(job, plan.DAY_BUSY_SLOTS), guess, ())
        rows = [_name_peak(complete_row(done, oracle, SEARCHED)) for done in fixed]
        done = [self.run_trial(trial) for trial in plan.plan_day(job, oracle, recording)]
        completed = [complete_row(one, oracle, SEARCHED) for one in done]
        return rows + [add_lateness(row, one, done[0]) for row, one in zip(completed, done, strict=True)]

    def search_oracle(
        self, job: OrdinaryJob, rate: float, guess: int, steered: Sequence[DoneTrial]
    ) -> tuple[int, list[DoneTrial]]:
        """Search the least size that keeps up, and return it with the runs of a fixed size that it took."""
        fixed: dict[int, DoneTrial] = {}

        def does(size: int) -> bool:
            fixed[size] = self.run_trial(plan.plan_search(job, rate, size))
            if fixed[size].row["failure"]:
                raise ActionFailed(f"the search stopped at {size} executors: {fixed[size].row['failure']}")
            return fixed[size].shows is True

        shown = {done.row["final_executors"]: True for done in steered if done.shows}
        oracle = find_least(shown, guess, plan.WORKERS, does)
        if oracle is None:
            raise ActionFailed(f"no size up to {plan.WORKERS} keeps up with {rate:g} records/s")
        self._tell(f"{job.name}: {oracle} executors keep up with {rate:g} records/s")
        return oracle, list(fixed.values())

    def run_trial(self, trial: FieldTrial) -> DoneTrial:
        """Return a trial that is kept, or run it and keep it."""
        done = self._kept.find(trial)
        if done is None:
            self._tell(f"{_tell_trial(trial)}; about {max(1.0, self._left / 60):.0f} min left")
            done = self._kept.add(measure_trial(self._trials.run(trial)))
        self._left -= trial.total_seconds
        return done


def _bound_guess(done: DoneTrial, guess: int) -> tuple[int, str]:
    """Return the computed oracle, or the smaller size of a trial that kept up; and how it was found."""
    final = done.row["final_executors"]
    return (final, SHOWN) if done.shows and final < guess else (guess, COMPUTED)


def find_least(shown: Mapping[int, bool], guess: int, most: int, does: Callable[[int], bool]) -> int | None:
    """Return the least size that does, from the least one shown to do, or from a guess; None if none does."""
    known = dict(shown)

    def ask(size: int) -> bool:
        if size not in known:
            known[size] = does(size)
        return known[size]

    size = min((one for one, holds in shown.items() if holds), default=min(max(1, guess), most))
    if ask(size):
        while size > 1 and ask(size - 1):
            size -= 1
        return size
    return next((larger for larger in range(size + 1, most + 1) if ask(larger)), None)


def _name_peak(row: Row) -> Row:
    """Call a run of the search at the oracle's own size what it is."""
    is_peak = row["start_executors"] == row["oracle_executors"]
    return {**row, "system": "fixed-peak", "start": "right"} if is_peak else row


def _tell_trial(trial: FieldTrial) -> str:
    return f"{trial.job.name}, {trial.load}, {trial.system} from {trial.executors}"


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run the jobs, and one of them through a day."""
    jobs = list(JOBS.values())
    if extent.quick or extent.report:
        jobs = [job for job in jobs if job.name in plan.QUICK_STARTS]
    kept = KeptTrials(KEPT_QUICK if extent.quick else KEPT)
    estimate, began = plan.estimate_field(jobs, extent.quick), time.monotonic()
    progress(f"{len(jobs)} jobs, about {estimate / 60:.0f} min in all")
    with Field(jobs) as ground:
        running = FieldRun(ground, kept, progress, estimate - plan.GROUND_SECONDS)
        rows, failures = run_all(running, jobs, extent, progress)
        hosts = f"{ground.ground.describe()['ground']}, {plan.WORKERS} hosts of {plan.HOST.cpu:g} cores"
    failures += [f"{row['job']}, {row['system']}: {row['failure']}" for row in rows if row["failure"]]
    if not failures:
        kept.forget()
    took = f"estimated {estimate / 60:.0f} min, took {(time.monotonic() - began) / 60:.0f} min"
    notes = [hosts, took, *tell_guesses(jobs)]
    return Measurement(rows, summarise_field(rows), notes, failures, quick=extent.quick)


def tell_guesses(jobs: Sequence[OrdinaryJob]) -> list[str]:
    """Say which jobs have a rate that follows from a cost that was never measured."""
    names = [job.name for job in jobs if job.cost.is_guess]
    measure = "python -m penstock_lab.experiments.field.costs"
    return [f"rates from guessed costs: {', '.join(names)}; measure them by `{measure}`"] if names else []


def run_all(
    running: FieldRun, jobs: Sequence[OrdinaryJob], extent: Extent, tell: Progress
) -> tuple[list[Row], list[str]]:
    """Return the rows of all jobs and of the day, and which of them could not be measured."""
    rows: list[Row] = []
    failures: list[str] = []
    for number, job in enumerate(jobs, start=1):
        tell(f"job {number} of {len(jobs)}: {job.name}")
        try:
            rows += running.run_job(job, extent.quick)
        except PenstockError as error:
            failures.append(f"{job.name}: {error}")
    for job in jobs:
        if job.name == plan.DAY_JOB and not extent.quick:
            try:
                rows += running.run_day(job, extent.day)
            except PenstockError as error:
                failures.append(f"the day of {job.name}: {error}")
    return rows, failures
