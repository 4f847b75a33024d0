"""Made-up trials of the field, for tests of what is made of them."""

from __future__ import annotations

from dataclasses import replace

from penstock.journal.records import DecisionRecord
from penstock_lab.experiments.field.plan import FieldTrial
from penstock_lab.experiments.field.rows import Ran
from penstock_lab.experiments.field.trace import DoneBatch, FieldTrace
from penstock_lab.jobs.catalog import find_job


def batches(*lengths: float, every: float = 5.0, records: float = 50.0) -> tuple[DoneBatch, ...]:
    return tuple(
        DoneBatch("q", number, number * every, seconds, records) for number, seconds in enumerate(lengths)
    )


def a_trial(system: str = "penstock", job: str = "small-files-lookup", **changes: object) -> FieldTrial:
    trial = FieldTrial(find_job(job), system, "under", 1, 10.0, 60.0, idle_seconds=30.0)
    return replace(trial, **changes)


HELD = tuple((float(second), 3 if second < 61 else 1) for second in range(95))
"""Three executors while input comes, then one."""


def a_run(
    trial: FieldTrial | None = None,
    held: tuple[tuple[float, int], ...] = HELD,
    batches: tuple[DoneBatch, ...] = batches(*[3.0] * 12),
    decisions: tuple[DecisionRecord, ...] = (),
) -> Ran:
    return Ran(trial or a_trial(), 0.0, FieldTrace(held, batches), decisions, output_equal=True)
