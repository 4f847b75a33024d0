"""The trials of the field: which job runs with which load, from which size, and how long all take.

Every job is run by Penstock from one executor and from all of them, three of these under a load that changes.
One that ends by itself reads a backlog that is there before it starts, from one executor; no size keeps up
with it. Dynamic allocation and a time without input are left to a few jobs, since the whole is to take two
hours; it takes a quarter of an hour more since searches see warm executors. One job runs through a day, under
Penstock, dynamic allocation and the size that its peak needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock_lab.ground.hosts import HostShape
from penstock_lab.jobs.catalog import OrdinaryJob
from penstock_lab.jobs.loads import LOW, load_profile

QUICK_STARTS = {
    "small-files-lookup": "under",
    "numpy-scoring": "over",
    "no-trigger": "under",
    "three-jobs": "under",
}
"""The jobs of a quick run, and the start of each."""
CHANGING = {
    ("numpy-scoring", "under"): "step-up",
    ("static-join", "under"): "ramp",
    ("three-jobs", "over"): "step-down",
}
"""Loads other than the steady one, by job and start; each ends at the rate that the oracle is for."""
IDLE_JOBS = ("small-files-lookup", "no-trigger")
"""Jobs whose trial from too many executors ends with a time without input."""
DYNAMIC_JOBS = ("small-files-lookup", "numpy-scoring")
DAY, DAY_JOB = "day", "small-files-lookup"

WORKERS = 6
HOST = HostShape(cores=1, cpu=0.2)
BUSY_SLOTS, DAY_BUSY_SLOTS = 2.2, 4.0
"""Slots that records keep busy, and those of a day at its peak: what tasks and batches cost comes on top."""

LENGTHS = {"under": 90.0, "over": 160.0}
"""Seconds of input. A release waits for `scale_down_delay`, 60 s by default, and before that for batches that
are not cold: the first ones of six executors take 40 s on two cores, and their backlog as long again."""
QUICK_LENGTHS = {"under": 80.0, "over": 180.0}
BACKLOG_SECONDS = 60.0
"""Seconds whose input is the backlog of a job that ends by itself."""
MORE_FOR_CHANGE = 30.0
MOST_START = 60.0
"""Seconds that a driver may take before and after its batches."""
SEARCH_SECONDS, DYNAMIC_SECONDS, DAY_SECONDS, IDLE_SECONDS = 100.0, 40.0, 240.0, 90.0
"""A search of 40 s saw three cold batches of five executors (23, 18 and 11 s), and called six the least."""
BESIDE_SECONDS = 30.0
"""Seconds of a trial without input: the driver starts, the last batches end, the output is compared."""
GROUND_SECONDS = 30.0
SEARCH_RUNS = 1.2
"""Runs of a fixed size that a search takes in the mean: steered runs show that their last size keeps up."""
DAY_SEARCH_RUNS = 2.0

PERIOD = 5.0
"""Seconds: the trigger interval of the scripts."""
PERIOD_WITHOUT_TRIGGER = 10.0
"""Seconds: the default batch_period, which a batch may take where there is no trigger interval."""
LONG_PERIODS = {("two-queries", "archive"): 15.0}
"""Trigger intervals of single queries, by job and query."""
SEARCH_PERIODS = 8
"""Periods that a run of a fixed size has at least."""


@dataclass(frozen=True, slots=True)
class FieldTrial:
    """One run of a job: which system steers it, how many executors it begins with, and its load."""

    job: OrdinaryJob
    system: str
    start: str
    executors: int
    rate: float
    """Records a second that the load ends at; of a day, its peak."""
    seconds: float
    load: str = "steady"
    idle_seconds: float = 0.0
    recording: Path | None = None
    """A recorded day; without one it is made."""

    def find_period(self, query: str) -> float:
        """Return the seconds that a batch of a query may take."""
        usual = PERIOD if self.has_trigger else PERIOD_WITHOUT_TRIGGER
        return LONG_PERIODS.get((self.job.name, query), usual)

    @property
    def longest_period(self) -> float:
        """Seconds that a batch of the slowest query may take."""
        return max(self.find_period(query) for query in ("", *(query for _, query in LONG_PERIODS)))

    @property
    def has_trigger(self) -> bool:
        """Whether the job's batches begin at a trigger interval."""
        return self.job.name != "no-trigger"

    @property
    def profile(self) -> str:
        """The load as a rate profile."""
        peak = self.rate / LOW if self.load == "step-down" else self.rate
        return load_profile(self.load, peak, self.seconds, self.recording)

    @property
    def ends_steady(self) -> bool:
        """Whether the load no longer changes at the end."""
        return self.load not in (DAY, "nights")

    @property
    def total_seconds(self) -> float:
        """Estimate what it takes in all."""
        return self.seconds + self.idle_seconds + BESIDE_SECONDS

    @property
    def is_backlog(self) -> bool:
        """Whether all input is there before the job starts."""
        return self.job.ends_by_itself

    @property
    def most_seconds(self) -> float:
        """Seconds that a backlog may take: those on one executor, twice."""
        return 2 * BUSY_SLOTS * self.seconds + MOST_START

    def describe(self) -> dict[str, str | float]:
        """Return what tells it from other trials, as columns of its row."""
        return {
            "job": self.job.name,
            "load": self.load if self.recording is None else f"{self.load} of {self.recording}",
            "start": self.start,
            "system": self.system,
            "records_per_second": self.rate,
            "seconds": self.seconds,
            "start_executors": self.executors,
        }


def find_rate(job: OrdinaryJob, busy_slots: float = BUSY_SLOTS, host: HostShape = HOST) -> float:
    """Return the records a second that keep so many slots of the ground busy, in two digits."""
    return float(f"{job.cost.rate(busy_slots, host.cpu):.2g}")


def plan_job(job: OrdinaryJob, quick: bool) -> list[FieldTrial]:
    """Return the trials of a job that are steered."""
    sizes = {"under": 1, "over": WORKERS}
    starts = ("under",) if job.ends_by_itself else ("under", "over")
    if quick:
        starts = (QUICK_STARTS[job.name],)
    trials = [_plan_start(job, start, sizes[start], quick) for start in starts]
    if job.name in DYNAMIC_JOBS and not quick:
        trials.append(FieldTrial(job, "dynamic-allocation", "under", 1, find_rate(job), DYNAMIC_SECONDS))
    return trials


def _plan_start(job: OrdinaryJob, start: str, executors: int, quick: bool) -> FieldTrial:
    load = "steady" if quick else CHANGING.get((job.name, start), "steady")
    seconds = QUICK_LENGTHS[start] if quick else LENGTHS[start]
    if job.ends_by_itself:
        seconds = BACKLOG_SECONDS
    waits = start == "over" and job.name in IDLE_JOBS and not quick
    return FieldTrial(
        job,
        "penstock",
        start,
        executors,
        find_rate(job),
        seconds if load == "steady" else seconds + MORE_FOR_CHANGE,
        load,
        IDLE_SECONDS if waits else 0.0,
    )


def plan_search(job: OrdinaryJob, rate: float, executors: int) -> FieldTrial:
    """Return the run of a fixed size that tells whether it keeps up."""
    trial = FieldTrial(job, "fixed", "search", executors, rate, SEARCH_SECONDS)
    every = max(trial.longest_period, job.source.every_seconds)
    return replace(trial, seconds=max(SEARCH_SECONDS, SEARCH_PERIODS * every))


def plan_day(job: OrdinaryJob, peak_executors: int, recording: Path | None = None) -> list[FieldTrial]:
    """Return the trials of a day: at the size of its peak, and steered from one executor."""
    rate = find_rate(job, DAY_BUSY_SLOTS)
    sides = (
        ("fixed-peak", "right", peak_executors, 0.0),
        ("dynamic-allocation", "under", 1, 0.0),
        ("penstock", "under", 1, IDLE_SECONDS),
    )
    return [
        FieldTrial(job, system, start, executors, rate, DAY_SECONDS, DAY, idle, recording)
        for system, start, executors, idle in sides
    ]


def guess_executors(busy_slots: float) -> int:
    """Return the least size that could carry so many busy slots, if batches and tasks cost nothing."""
    return math.ceil(busy_slots / HOST.cores)


def estimate_job(job: OrdinaryJob, quick: bool) -> float:
    """Estimate the seconds of a job's trials, with the search for its oracle."""
    searches = not quick and not job.ends_by_itself
    searching = SEARCH_RUNS * plan_search(job, find_rate(job), 1).total_seconds if searches else 0.0
    return searching + _add_up(plan_job(job, quick))


def estimate_day(job: OrdinaryJob) -> float:
    """Estimate the seconds of the day, with the search for the size of its peak."""
    searching = DAY_SEARCH_RUNS * plan_search(job, find_rate(job), 1).total_seconds
    return searching + _add_up(plan_day(job, peak_executors=1))


def estimate_field(jobs: Sequence[OrdinaryJob], quick: bool) -> float:
    """Estimate the seconds of a whole run over these jobs."""
    day = sum(estimate_day(job) for job in jobs if job.name == DAY_JOB and not quick)
    return GROUND_SECONDS + day + sum(estimate_job(job, quick) for job in jobs)


def _add_up(trials: Iterable[FieldTrial]) -> float:
    return sum(trial.total_seconds for trial in trials)
