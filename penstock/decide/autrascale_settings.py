"""What can be set on the AuTraScale policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.decide.ds2_settings import Ds2Settings
from penstock.errors import BadSettings


@dataclass(frozen=True, slots=True)
class AutraScaleSettings:
    """Settings of AuTraScale; times in seconds, ratios as fractions of one, parameters by the paper's symbol.

    `latency_weight` (α) is the share of latency in the score, against resources; 0.8 is what the scores of
    tables II and III were computed with.
    `over_allocation` (w) is how much more than throughput needs is accepted without further search.
    `exploration` (ξ) is by how much a size must promise to beat the best score known; one instance of ten
    less in one of four operators is worth some 0.003.
    `most_parallelism` (P_max) bounds every unit; `search_factor` bounds the search further, to so many times
    the largest parallelism that throughput needs, since what is tried is really run and paid for.
    `uniform_samples` (M) is the number of bootstrap samples in which all units are alike.
    `switch_after` (Num) is the number of real samples after which the model of another rate is no longer
    used; None stands for one more than the bootstrap set has.
    `changes_per_hour` bounds exploration, the way back to the best known size included.
    `most_samples` is the number of sizes tried at one rate before the best of them is kept.
    `least_improvement` is the expected improvement below which a search that meets its target ends.
    `rate_tolerance` is by how much two offered rates may differ and still be one.
    `settle_windows` are left out after a change; `sample_windows` more are measured for a sample.
    `patience_windows` is how long a size is proposed before it is taken for refused.
    `throughput_steps` is the number of sizes after which the throughput phase ends in any case.
    `seed` draws the sizes that are judged where the lattice is too large to judge them all.
    """

    throughput: Ds2Settings = field(default_factory=Ds2Settings)
    latency_target_seconds: float | None = None
    least_parallelism: int = 1
    most_parallelism: int = 64
    search_factor: float = 4.0
    latency_weight: float = 0.8
    over_allocation: float = 0.25
    exploration: float = 0.001
    uniform_samples: int = 3
    switch_after: int | None = None
    changes_per_hour: int = 6
    most_samples: int = 30
    least_improvement: float = 0.0001
    rate_tolerance: float = 0.1
    settle_windows: int = 1
    sample_windows: int = 2
    patience_windows: int = 12
    throughput_steps: int = 8
    seed: int = 7

    def __post_init__(self) -> None:
        for key, least, most in _RANGES:
            value = getattr(self, key)
            if value is not None and not (math.isfinite(value) and least <= value <= most):
                raise BadSettings(f"{key} is out of range: {value}")
        if self.latency_target_seconds is not None and self.latency_target_seconds <= 0:
            raise BadSettings(f"latency_target_seconds is out of range: {self.latency_target_seconds}")
        if self.least_parallelism > self.most_parallelism:
            raise BadSettings(
                f"least_parallelism ({self.least_parallelism}) exceeds most_parallelism "
                f"({self.most_parallelism})"
            )

    @property
    def score_threshold(self) -> float:
        """Equation 9: the score at which the search ends, from the accepted over-allocation."""
        return self.latency_weight + (1 - self.latency_weight) / (1 + self.over_allocation)


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("latency_target_seconds", 0.0, 1e9),
    ("least_parallelism", 1, 1_000_000),
    ("most_parallelism", 1, 1_000_000),
    ("search_factor", 1.0, 1e6),
    ("latency_weight", 0.0, 1.0),
    ("over_allocation", 0.0, 1e6),
    ("exploration", 0.0, 1.0),
    ("uniform_samples", 2, 1_000),
    ("switch_after", 1, 100_000),
    # at least one change to try a size, and one to come back from it
    ("changes_per_hour", 2, 3_600),
    ("most_samples", 1, 1_000),
    ("least_improvement", 0.0, 1.0),
    ("rate_tolerance", 0.001, 0.5),
    ("settle_windows", 0, 1_000),
    ("sample_windows", 1, 1_000),
    ("patience_windows", 1, 10_000),
    ("throughput_steps", 1, 1_000),
    ("seed", 0, 2**32 - 1),
)
