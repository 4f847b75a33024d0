"""What a migration did to the batches around it, as rows and targets; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.bench.report import Row, Target
from penstock.bench.traces import BatchSeen

FLUID, BATCHED = "fluid", "batched"
ALL_AT_ONCE, PREPARED = "all-at-once", "all-at-once-prepared"
ADDED, KILLED, REPARTITION = "spark-added", "spark-killed", "spark-repartition"

MOST_OVER_STEADY = 1.5
LEAST_GAIN = 10.0
MOST_MEMORY = 1.1
MOST_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Phase:
    """One system at work from start to end, on a state of so many keys and bins.

    `steady` are batches of the same query while nothing moved, from before this phase; memory is the sum over
    all processes of the application, `memory` its course from the first steady batch on, as (time, bytes).
    """

    keys: int
    bins: int
    system: str
    start: float
    end: float
    steady: tuple[BatchSeen, ...]
    batches: tuple[BatchSeen, ...]
    bytes_moved: int = 0
    steady_rss_bytes: float = 0.0
    peak_rss_bytes: float = 0.0
    note: str = ""
    memory: tuple[tuple[float, float], ...] = ()

    @property
    def case(self) -> str:
        """State size and bins."""
        return f"{self.keys:,} keys, {self.bins} bins"

    @property
    def steady_seconds(self) -> float:
        """The usual batch."""
        return median(batch.seconds for batch in self.steady)

    @property
    def longest_seconds(self) -> float:
        """The slowest batch, or the longest time without one that a stop costs beyond the usual."""
        return max(batch.seconds for batch in self.batches)

    @property
    def over_steady(self) -> float:
        """How many usual batches the slowest one took."""
        return self.longest_seconds / self.steady_seconds

    def row(self) -> Row:
        """The fields of the benchmark's contract."""
        seconds = self.end - self.start
        return {
            "case": self.case,
            "system": self.system,
            "steady_median_ms": 1000 * self.steady_seconds,
            "max_batch_ms": 1000 * self.longest_seconds,
            "max_over_steady": self.over_steady,
            "duration_s": seconds,
            "batches": len(self.batches),
            "bytes_moved": self.bytes_moved,
            "peak_rss_bytes": self.peak_rss_bytes,
            "steady_rss_bytes": self.steady_rss_bytes,
            "rows_per_s_during": sum(batch.records for batch in self.batches) / seconds if seconds else 0.0,
            "steady_max_over_median": max(b.seconds for b in self.steady) / self.steady_seconds,
        }


def summary(phases: Sequence[Phase]) -> dict[str, float]:
    """The main case's figures, one for each system."""
    main = _main(phases)
    found = {f"{phase.system}_max_over_steady": phase.over_steady for phase in main.values()}
    if FLUID in main and ALL_AT_ONCE in main:
        found["all_at_once_over_fluid"] = main[ALL_AT_ONCE].longest_seconds / main[FLUID].longest_seconds
    if FLUID in main and PREPARED in main:
        found["prepared_over_fluid"] = main[PREPARED].longest_seconds / main[FLUID].longest_seconds
    if FLUID in main and main[FLUID].steady_rss_bytes:
        found["fluid_rss_over_steady"] = main[FLUID].peak_rss_bytes / main[FLUID].steady_rss_bytes
    for system in (FLUID, BATCHED):
        growth = _growth(phases, system)
        if growth is not None:
            found[f"{system}_growth_with_bins"] = growth
    return found


def targets(figures: Mapping[str, float]) -> list[Target]:
    """The promises, judged; what was not measured is not kept."""
    return [
        Target("fluid max_over_steady", f"<= {MOST_OVER_STEADY}", figures.get("fluid_max_over_steady")),
        Target("all-at-once max over fluid max", f">= {LEAST_GAIN}", figures.get("all_at_once_over_fluid")),
        Target(
            "fluid max as state grows with bins", f"<= {MOST_GROWTH}", figures.get("fluid_growth_with_bins")
        ),
        Target(
            "batched max as state grows with bins",
            f"<= {MOST_GROWTH}",
            figures.get("batched_growth_with_bins"),
        ),
        Target("fluid peak memory over steady", f"<= {MOST_MEMORY}", figures.get("fluid_rss_over_steady")),
    ]


def _main(phases: Sequence[Phase]) -> dict[str, Phase]:
    """The systems of the first case, in which all of them ran."""
    return {phase.system: phase for phase in phases if phase.case == phases[0].case} if phases else {}


def _growth(phases: Sequence[Phase], system: str) -> float | None:
    """Slowest batch over steady at the most bins against the fewest, at about the same keys a bin."""
    mine = [phase for phase in phases if phase.system == system]
    if not mine:
        return None
    usual = mine[0].keys / mine[0].bins
    alike = sorted((one for one in mine if 0.5 < one.keys / one.bins / usual < 2), key=lambda one: one.bins)
    if len({one.bins for one in alike}) < 2:
        return None
    return alike[-1].over_steady / alike[0].over_steady
