"""What can be set on Sage's rules: windows, bounds, factors of increase, targets of decrease."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.decide.ranges import require

MEBIBYTE = 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class SageSettings:
    """Bounds and factors of the eight rules; times in seconds, shares as fractions of one.

    A `_high` is the bound above which a resource is too small. A `_target` is how full it is to be after a
    decrease; it lies below the bound, so that no decrease calls for its own remedy (section 4). Spark starts
    no executor with a heap below 450 MiB.
    """

    up_window_seconds: float = 60.0
    down_window_seconds: float = 300.0
    least_up_samples: int = 4
    least_down_samples: int = 20
    heap_used_high: float = 0.85
    gc_time_high: float = 0.1
    gc_per_minute_high: float = 120.0
    heap_factor: float = 1.5
    overhead_high: float = 0.9
    overhead_target: float = 0.8
    overhead_factor: float = 1.5
    least_overhead_bytes: float = 384 * MEBIBYTE
    cpu_high: float = 0.95
    cpu_target: float = 0.7
    cpu_factor: float = 1.5
    memory_fraction_step: float = 0.1
    most_memory_fraction: float = 0.8
    least_backlog_growth: float = 1.0
    drained_seconds: float = 30.0
    least_gain: float = 0.1
    correlation_threshold: float = 0.7
    in_flight_seconds: float = 600.0
    least_heap_bytes: float = 450 * MEBIBYTE

    def __post_init__(self) -> None:
        for key in ("up_window_seconds", "gc_per_minute_high", "drained_seconds", "in_flight_seconds"):
            require(key, getattr(self, key))
        require("down_window_seconds", self.down_window_seconds, self.up_window_seconds, above=False)
        for key in ("least_up_samples", "least_down_samples"):
            require(key, getattr(self, key), 2, above=False)
        for key in ("heap_used_high", "gc_time_high", "overhead_high", "memory_fraction_step", "least_gain"):
            require(key, getattr(self, key), 0, 1)
        for key in ("most_memory_fraction", "correlation_threshold"):
            require(key, getattr(self, key), 0, 1)
        for key in ("heap_factor", "overhead_factor", "cpu_factor"):
            require(key, getattr(self, key), 1, 16)
        for key in ("least_heap_bytes", "least_overhead_bytes", "least_backlog_growth"):
            require(key, getattr(self, key), above=False)
        require("cpu_high", self.cpu_high, 0, 16)
        require("overhead_target", self.overhead_target, 0, self.overhead_high)
        require("cpu_target", self.cpu_target, 0, self.cpu_high)
