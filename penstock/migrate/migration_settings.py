"""What can be set on a migration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from penstock.errors import BadSettings
from penstock.migrate.plan import Strategy


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """Settings of one migration; times as ratios of a steady batch.

    `prepare` lets a batch upload the snapshots of the bins that move next, so that their new workers replay
    little. `latency_budget_ratio` is how long a batch may take during a migration, as a multiple of a steady
    one. A batch is far too long when it takes `far_ratio` times that budget; after `far_batches` of these in
    a row the migration stops.
    `snapshot_patience` is how many batches a snapshot may take to appear before its bin moves without it.
    """

    strategy: Strategy = Strategy.FLUID
    prepare: bool = True
    latency_budget_ratio: float = 1.5
    retries: int = 3
    gap_batches: int = 0
    most_bins_per_batch: int = 8
    hot_first: bool = True
    far_ratio: float = 2.0
    far_batches: int = 3
    snapshot_patience: int = 2

    def __post_init__(self) -> None:
        _at_least("latency_budget_ratio", self.latency_budget_ratio, 1.0)
        _at_least("far_ratio", self.far_ratio, 1.0)
        for key in ("retries", "gap_batches", "snapshot_patience"):
            _at_least(key, getattr(self, key), 0)
        for key in ("most_bins_per_batch", "far_batches"):
            _at_least(key, getattr(self, key), 1)

    @staticmethod
    def of(strategy: Strategy, **changes: Any) -> MigrationSettings:
        """The usual settings of a strategy; all at once, as other engines do it, prepares nothing."""
        prepare = strategy is not Strategy.ALL_AT_ONCE
        return MigrationSettings(**{"strategy": strategy, "prepare": prepare, **changes})


def _at_least(key: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise BadSettings(f"{key} is out of range: {value}")
