"""The batches of a function: what instances did in each, how long it took, and when its records had come.

Records carry the moment at which they entered the pipeline, and topics know when a record came to them. So
a latency is measured at the end of a batch, and follows from no formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from penstock.dataflow.window import OperatorBatches


@dataclass(frozen=True, slots=True)
class InstanceWork:
    """The work of one instance in one batch; `useful_seconds` leaves out all waiting."""

    instance: int
    records_in: float
    records_out: float
    dead: float
    useful_seconds: float


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One batch of one function, at the parallelism that it ran with; NaN where a moment is unknown."""

    function: str
    batch_id: int
    start: float
    end: float
    parallelism: int
    work: tuple[InstanceWork, ...]
    entered_at: float = math.nan
    """The moment at which its mean record entered the pipeline."""
    arrived_at: float = math.nan
    """The moment at which its mean record came to the topic that is read."""
    instances: int | None = None
    """Those that did the work, where neighbours were fused: its own and theirs."""
    others_seconds: float = 0.0
    """The part of the batch that belongs to the functions fused with it."""
    straight: bool = False
    """Whether its records came straight from the function before, and not from a topic."""

    @property
    def records(self) -> float:
        """Records read."""
        return sum(one.records_in for one in self.work)

    @property
    def written(self) -> float:
        """Records written."""
        return sum(one.records_out for one in self.work)

    @property
    def seconds(self) -> float:
        """From its start until its records were written, without the part of functions fused with it."""
        return max(0.0, self.end - self.start - self.others_seconds)

    @property
    def useful_seconds(self) -> float:
        """The useful time of the mean instance that did the work."""
        return sum(one.useful_seconds for one in self.work) / (self.instances or self.parallelism)

    @property
    def fixed_seconds(self) -> float:
        """The part of it in which the mean instance did nothing useful: no instance more would shorten it."""
        return max(0.0, self.seconds - self.useful_seconds)

    @property
    def latency_seconds(self) -> float:
        """From the pipeline's entrance to the end of the batch; clocks that differ make no time negative."""
        return max(0.0, self.end - self.entered_at) if math.isfinite(self.entered_at) else math.nan

    @property
    def response_seconds(self) -> float:
        """From the arrival in the topic that is read to the end of the batch."""
        return max(0.0, self.end - self.arrived_at) if math.isfinite(self.arrived_at) else math.nan


def sum_up_batch(
    function: str,
    batch_id: int,
    start: float,
    end: float,
    parallelism: int,
    accounts: Mapping[int, Sequence[float]],
) -> BatchDone:
    """Make a batch of the accounts of its instances, each as `spark_worker.Work` has it."""
    ordered = sorted(accounts.items())
    work = tuple(InstanceWork(number, *figures[:4]) for number, figures in ordered)
    records = sum(one.records_in for one in work)
    moments = [sum(figures[column] for _, figures in ordered) for column in (4, 5)]
    entered, arrived = (total / records if records else math.nan for total in moments)
    return BatchDone(function, batch_id, start, end, parallelism, work, entered, arrived)


def sum_up_group(
    batch_id: int,
    start: float,
    end: float,
    sizes: Mapping[str, int],
    accounts: Mapping[str, Mapping[int, Sequence[float]]],
) -> list[BatchDone]:
    """Make a batch for each of the functions that shared one, from the first to the last.

    What is useful in it belongs to whoever did it, and what is left to the first, which read the records:
    functions that are handed theirs have no fixed costs.
    """
    alone = [sum_up_batch(name, batch_id, start, end, size, accounts[name]) for name, size in sizes.items()]
    if len(alone) == 1:
        return alone
    shared = [replace(one, instances=sum(sizes.values())) for one in alone]
    first, *handed = shared
    total = sum(one.useful_seconds for one in handed)
    return [
        replace(first, others_seconds=min(total, end - start)),
        *(replace(b, others_seconds=end - start - b.useful_seconds, straight=True) for b in handed),
    ]


def measure_latency(batches: Sequence[BatchDone]) -> float:
    """Return the mean latency of the records of some batches; NaN if none is known."""
    return _weigh([(one.records, one.latency_seconds) for one in batches])


def measure_response(batches: Sequence[BatchDone]) -> float:
    """Return the mean response time of the records of some batches; NaN if none is known."""
    return _weigh([(one.records, one.response_seconds) for one in batches])


def _weigh(seconds: list[tuple[float, float]]) -> float:
    known = [(records, one) for records, one in seconds if records > 0 and math.isfinite(one)]
    total = sum(records for records, _ in known)
    return sum(records * one for records, one in known) / total if total else math.nan


def describe_batches(batches: Sequence[BatchDone], trigger_seconds: float | None) -> OperatorBatches | None:
    """Sum up the batches of a window for policies; None where there are none.

    Without a trigger, as of a query that is not ours, it is the mean time from start to start.
    """
    if not batches:
        return None
    if all(one.straight for one in batches):
        trigger_seconds = 0.0  # records that are handed on wait for no trigger
    seconds, response = fmean(one.seconds for one in batches), measure_response(batches)
    if trigger_seconds is None:
        trigger_seconds = fmean([b.start - a.start for a, b in pairwise(batches)] or [seconds])
    return OperatorBatches(
        trigger_seconds=trigger_seconds,
        seconds=seconds,
        fixed_seconds=fmean(one.fixed_seconds for one in batches),
        response_seconds=None if math.isnan(response) else response,
    )
