"""What can be set on the scaling manager."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Statistic(Enum):
    """How several policy decisions become one."""

    MEDIAN = "median"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Parameters of DS2 sections 4.2.1 and 4.2.2, and what later practice added; times in seconds.

    The generated configuration reference says what each one means.
    """

    policy_interval: float = 10.0
    warm_up_intervals: int = 1
    activation_intervals: int = 2
    activation_statistic: Statistic = Statistic.MEDIAN
    target_rate_ratio: float = 1.5
    ignore_changes_below: int = 1
    rollback: bool = True
    rollback_worse_by: float = 0.1
    small_gain: float = 0.05
    small_gain_limit: int = 3
    utilisation: float = 0.8
    utilisation_low: float = 0.6
    scale_down_delay: float = 60.0
    min_executors: int = 1
    max_executors: int = 64
    largest_step_down: float = 0.5
    critical_path_veto: bool = True
