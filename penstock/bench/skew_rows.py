"""What a hot key did to a query, and what was said and done about it, as rows and targets; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.bench.report import Row, Target
from penstock.bench.traces import BatchSeen


@dataclass(frozen=True, slots=True)
class Skewed:
    """One share of hot records: batches before, with and after the remedy, and what diagnosis and DS2 said.

    `even` are batches before the key became hot. `settled` are those after the hot bin's neighbours
    moved; none where nothing was to be moved.
    """

    share: float
    executors: int
    even: tuple[BatchSeen, ...]
    skewed: tuple[BatchSeen, ...]
    settled: tuple[BatchSeen, ...]
    bins_moved: int
    imbalance: tuple[float, float]
    """How much more load a slot the fullest executor has than the mean, before and after."""
    straggler_found: bool
    times_median: float | None
    participation: Mapping[str, float]
    """What each slot has of the critical path."""
    answer: str
    ds2: str
    ds2_executors: int | None
    veto: str
    hot_seconds: float
    """Service time of the hot bin alone in a batch: no placement can do it in less."""
    moving: tuple[BatchSeen, ...] = ()
    """Batches while bins moved."""
    ds2_answered: bool = True
    """Whether DS2 could say anything: a window in which no batch ended is no ground to stay, either."""

    @property
    def case(self) -> str:
        """The share in words."""
        return f"{self.share:.0%} to one key"

    def row(self) -> Row:
        """The fields of the report."""
        before, after = _median(self.skewed), _median(self.settled)
        return {
            "case": self.case,
            "hot_share": self.share,
            "straggler_found": self.straggler_found,
            "straggler_times_median": self.times_median,
            "straggler_participation": max(self.participation.values(), default=None),
            "ds2_executors": self.ds2_executors,
            "executors": self.executors,
            "growth_vetoed": bool(self.veto),
            "even_batch_s": _median(self.even),
            "skewed_batch_s": before,
            "settled_batch_s": after,
            "gain": None if before is None or after is None else 1 - after / before,
            "least_batch_s": self.hot_seconds,
            "bins_moved": self.bins_moved,
            "imbalance_before": self.imbalance[0],
            "imbalance_after": self.imbalance[1],
        }

    def note(self) -> str:
        """What was said of it, in words."""
        said = f"{self.case}: diagnosis: {self.answer} DS2: {self.ds2}"
        return f"{said}; vetoed: {self.veto}" if self.veto else said


def targets(rows: Sequence[Row]) -> list[Target]:
    """What the benchmark promises."""
    missed = sum(not row["straggler_found"] for row in rows)
    gains = [row["gain"] for row in rows if row["gain"] is not None and row["bins_moved"]]
    worse = [row["imbalance_after"] - row["imbalance_before"] for row in rows]
    return [
        Target("stragglers that diagnosis did not name", "== 0", missed),
        Target("gain of moving bins, the least", ">= 0", min(gains, default=None)),
        Target("imbalance after less before, the most", "<= 0", max(worse, default=None)),
    ]


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """The gain of each share."""
    return {f"gain_{row['hot_share']:.0%}": row["gain"] for row in rows if row["gain"] is not None}


def _median(batches: Sequence[BatchSeen]) -> float | None:
    return median(batch.seconds for batch in batches) if batches else None
