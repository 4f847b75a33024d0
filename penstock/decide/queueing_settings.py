"""What can be set on the queueing policy, for both execution models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.ranges import require, require_limits


@dataclass(frozen=True, slots=True)
class QueueingSettings:
    """Settings of the queueing policy; times in seconds, ratios as fractions of one.

    `latency_target_seconds` is R_max for every path; `operator_targets` gives operators a target of their
    own (section 4.2.1), which then no path changes. `scale_in_share` is α: a path that takes less than
    α·R_max gives instances back. `utilisation` bounds the load of each operator, since a model of steady
    queues promises little close to a load of one. `catch_up_seconds` is the time to read a backlog in.
    `changes_per_hour` bounds the changes that are made for latency alone: estimates of variation scatter.
    """

    latency_target_seconds: float | None = None
    operator_targets: Mapping[str, float] = field(default_factory=dict)
    scale_in_share: float = 0.5
    utilisation: float = 0.8
    catch_up_seconds: float = 600.0
    default_period_seconds: float = 10.0
    windows_kept: int = 20
    changes_per_hour: int = 12
    min_instances: int = 1
    max_instances: int = 64
    unscalable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.latency_target_seconds is not None:
            require("latency_target_seconds", self.latency_target_seconds)
        for name, target in self.operator_targets.items():
            require(f"operator_targets[{name}]", target)
        require("scale_in_share", self.scale_in_share, 0, 1)
        require("utilisation", self.utilisation, 0, 1)
        require("catch_up_seconds", self.catch_up_seconds)
        require("default_period_seconds", self.default_period_seconds)
        require("windows_kept", self.windows_kept, 2, above=False)
        require("changes_per_hour", self.changes_per_hour, 1, above=False)
        require_limits(self.min_instances, self.max_instances)

    def ds2(self, slots_per_executor: int) -> Ds2Settings:
        """The same for the model of batches on shared slots."""
        return Ds2Settings(
            utilisation=self.utilisation,
            catch_up_seconds=self.catch_up_seconds,
            default_period_seconds=self.default_period_seconds,
            latency_target_seconds=self.latency_target_seconds,
            max_slots=self.max_instances * max(1, slots_per_executor),
            unscalable=self.unscalable,
        )
