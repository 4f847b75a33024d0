"""Windows of instance metrics, kept as columns so that thousands of instances cost microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.graph import LogicalGraph
from penstock.errors import BadMetrics

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class InstanceMetrics:
    """What one instance of an operator did in a window; times in seconds."""

    operator: str
    instance: str
    records_in: float
    records_out: float
    useful_seconds: float
    waiting_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricWindow:
    """Metrics of all instances over one span of observed time [start, end), in columns.

    `operator` holds the operator's number in the graph's topological order.
    """

    start: float
    end: float
    operator: Integers
    records_in: Floats
    records_out: Floats
    useful_seconds: Floats
    waiting_seconds: Floats

    def __post_init__(self) -> None:
        if not self.end > self.start:
            raise BadMetrics(f"the window ends at {self.end}, not after its start at {self.start}")
        columns = self.records_in, self.records_out, self.useful_seconds, self.waiting_seconds
        if not _are_sound(columns, len(self.operator)):
            for name in ("records_in", "records_out", "useful_seconds", "waiting_seconds"):
                _check_column(name, getattr(self, name), len(self.operator))

    @property
    def seconds(self) -> float:
        """Observed time W of equations 3 and 4."""
        return self.end - self.start

    @staticmethod
    def of(
        graph: LogicalGraph, start: float, end: float, instances: Iterable[InstanceMetrics]
    ) -> MetricWindow:
        """Build a window from rows; an unknown operator or an instance seen twice is an error."""
        rows = list(instances)
        seen: set[tuple[str, str]] = set()
        for row in rows:
            if row.operator not in graph.index:
                raise BadMetrics(f"metrics of the unknown operator {row.operator!r}")
            if (row.operator, row.instance) in seen:
                raise BadMetrics(f"instance {row.instance!r} of {row.operator!r} reported twice")
            seen.add((row.operator, row.instance))
        return MetricWindow(
            start=start,
            end=end,
            operator=np.array([graph.index[row.operator] for row in rows], dtype=np.int64),
            records_in=np.array([row.records_in for row in rows], dtype=np.float64),
            records_out=np.array([row.records_out for row in rows], dtype=np.float64),
            useful_seconds=np.array([row.useful_seconds for row in rows], dtype=np.float64),
            waiting_seconds=np.array([row.waiting_seconds for row in rows], dtype=np.float64),
        )


def _are_sound(columns: tuple[Floats, Floats, Floats, Floats], length: int) -> bool:
    """Whether all columns are in order, with few passes; if not, a second look says which is not."""
    one, two, three, four = columns
    if not len(one) == len(two) == len(three) == len(four) == length > 0:
        return False
    least = np.minimum(np.minimum(one, two), np.minimum(three, four)).min()
    most = np.maximum(np.maximum(one, two), np.maximum(three, four)).max()
    # a NaN makes the minimum NaN, so it is not at least 0
    return bool(least >= 0 and most < np.inf)


def _check_column(name: str, column: NDArray[Any], length: int) -> None:
    if len(column) != length:
        raise BadMetrics(f"{name} has {len(column)} values for {length} instances")
    if length and not (column.min() >= 0 and np.isfinite(column.max())):
        raise BadMetrics(f"{name} has a NaN, infinite or negative value")
