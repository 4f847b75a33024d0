"""The moments that travel with records, so that latency is measured and not estimated.

ENTERED is when a record entered the pipeline, or those that it was made of, in the mean. It goes with the
record from topic to topic: on file topics as a column, on Kafka as a header. ARRIVED is when the record came
to the topic that is read, as the topic tells. Inside a function's query both are columns of seconds; the
function itself never sees them. Python workers import this module, so it imports little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ENTERED, ARRIVED = "penstock_entered", "penstock_arrived"
"""Columns of seconds since 1970; on file topics ENTERED is a column of timestamps."""
ENTERED_HEADER = "penstock-entered"
"""The header of Kafka records: milliseconds since 1970, as text."""


@dataclass(frozen=True, slots=True)
class Moments:
    """The records of one call, with the sums of their moments."""

    records: int
    entered_sum: float
    arrived_sum: float

    @property
    def entered(self) -> float | None:
        """The moment at which the mean record entered the pipeline; None without records."""
        return self.entered_sum / self.records if self.records else None


def split_batch(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Moments]:
    """Return the records as the function gets them, and their moments."""
    sums = [pc.sum(batch.column(name)).as_py() or 0.0 for name in (ENTERED, ARRIVED)]
    return batch.drop_columns([ENTERED, ARRIVED]), Moments(len(batch), *sums)


def split_frame(frame: Any) -> tuple[Any, Moments]:
    """Return a pandas DataFrame as the function gets it, and the moments of its records."""
    sums = [float(frame[name].sum()) for name in (ENTERED, ARRIVED)]
    return frame.drop(columns=[ENTERED, ARRIVED]), Moments(len(frame), *sums)
