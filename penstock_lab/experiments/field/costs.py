"""Measures what a record of a job costs a slot, by a run of a fixed size under a rate that changes.

    python -m penstock_lab.experiments.field.costs kafka-windows stream-join

A batch of n records on S slots takes h + c · n / S seconds, if its tasks share the work evenly; a robust line
through the batches gives c. The load is made from the cost that is known, and made again from the one that
was found until both agree. What is printed belongs into `penstock_lab/jobs/costs.py`. A hot key keeps one
slot busy and not all, so the figure of such a job is what S slots are kept for, not what they work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import orjson

from penstock.errors import ActionFailed, BadInput, PenstockError
from penstock_lab.experiments.field.ground import Field
from penstock_lab.experiments.field.plan import BUSY_SLOTS, HOST, WORKERS, FieldTrial
from penstock_lab.experiments.field.rows import Ran
from penstock_lab.experiments.field.trace import DoneBatch, fit_line
from penstock_lab.experiments.field.trials import TrialPlace
from penstock_lab.jobs.catalog import OrdinaryJob, find_job
from penstock_lab.jobs.costs import Cost
from penstock_lab.jobs.loads import STAIRS_FROM

EXECUTORS, SECONDS = 4, 120.0
BUSY_SHARE = 0.7
"""The share of the slots that the load's peak is to keep busy: a batch is to end within its period."""
AGREES, MOST_RUNS = 0.2, 3
"""By how much a cost may differ from the one that the load was made from, and runs until then."""
LEAST_COMPUTING = 1e-6
WRONG, FAILED = 2, 1


@dataclass(frozen=True, slots=True)
class FittedCost:
    """The cost of a record, and of a batch without any, as a run has shown them."""

    job: str
    cost: Cost
    slot_seconds: float
    """Seconds that a record keeps a slot of the ground."""
    batch_seconds: float
    """Seconds of a batch without records."""
    batches: int
    records_per_second: float
    """The rate that keeps BUSY_SLOTS slots busy."""


def measure_cost(trials: TrialPlace, job: OrdinaryJob, executors: int = EXECUTORS) -> FittedCost:
    """Run a job until the cost that its load is made from agrees with the one that is found."""
    cost = job.cost
    for _ in range(MOST_RUNS):
        rate = float(f"{cost.rate(BUSY_SHARE * executors * HOST.cores, HOST.cpu):.2g}")
        ran = trials.run(FieldTrial(job, "fixed", "search", executors, rate, SECONDS, "stairs"))
        if ran.failure:
            raise ActionFailed(f"{job.name}: {ran.failure}")
        before, found = cost.slot_seconds(HOST.cpu), fit_cost(ran)
        cost = found.cost
        if abs(found.slot_seconds / before - 1) <= AGREES:
            break
    return found


def fit_cost(ran: Ran) -> FittedCost:
    """Fit the cost of a record from the batches of a run; queries that share it are added up."""
    job, slots = ran.trial.job, ran.trial.executors * HOST.cores
    since = ran.fed_from + STAIRS_FROM * ran.trial.seconds
    batches = [batch for batch in ran.trace.list_batches(since, ran.fed_until) if batch.records]
    lines = [_fit_query(job, batches, query) for query in sorted({batch.query for batch in batches})]
    if not lines:
        raise ActionFailed(f"{job.name}: no batch ended in the last {ran.fed_until - since:.0f} s of the run")
    per_record = slots * sum(slope for _, slope in lines)
    waiting = job.cost.waiting_seconds
    computing = max(LEAST_COMPUTING, (per_record - waiting) * HOST.cpu)
    cost = Cost(waiting, float(f"{computing:.2g}"))
    fixed = max(seconds for seconds, _ in lines)
    rate = cost.rate(BUSY_SLOTS, HOST.cpu)
    return FittedCost(job.name, cost, cost.slot_seconds(HOST.cpu), fixed, len(batches), rate)


def _fit_query(job: OrdinaryJob, batches: Sequence[DoneBatch], query: str) -> tuple[float, float]:
    mine = [batch for batch in batches if batch.query == query]
    line = fit_line(mine)
    if line is None or line[1] <= 0:
        raise ActionFailed(
            f"{job.name}: {len(mine)} batches of {query} do not show what a record costs; "
            "is the machine busy, or the rate too low to matter?"
        )
    return line


def tell_cost(found: FittedCost) -> str:
    """Tell a cost as a line of `penstock_lab/jobs/costs.py`, and what it means."""
    cost = found.cost
    return (
        f'"{found.job}": Cost({cost.waiting_seconds:g}, {cost.computing_seconds:g}),'
        f"  # {found.slot_seconds * 1000:.3g} ms of a slot a record, {found.batch_seconds:.2g} s a batch, "
        f"{found.batches} batches; {found.records_per_second:.2g} records/s keep {BUSY_SLOTS:g} slots busy"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the jobs of the command line, one after the other."""
    args = _parser().parse_args(arguments)
    found: list[FittedCost] = []
    try:
        jobs = [find_job(name) for name in args.jobs]
        _check(jobs, args.executors)
        with Field(jobs) as ground:
            for job in jobs:
                found.append(measure_cost(ground, job, args.executors))
                print(tell_cost(found[-1]), file=sys.stderr if args.json else sys.stdout, flush=True)
    except BadInput as error:
        print(error, file=sys.stderr)
        return WRONG
    except PenstockError as error:
        print(error, file=sys.stderr)
        return FAILED
    if args.json:
        print(orjson.dumps({"costs": [asdict(one) for one in found]}).decode())
    return 0


def _check(jobs: Sequence[OrdinaryJob], executors: int) -> None:
    if not 1 <= executors <= WORKERS:
        raise BadInput(f"the ground has 1 to {WORKERS} executors, not {executors}")
    for job in jobs:
        if job.ends_by_itself:
            raise BadInput(f"the job {job.name} ends by itself: there is no rate to follow")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("jobs", nargs="+", metavar="JOB")
    parser.add_argument("--executors", type=int, default=EXECUTORS)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
