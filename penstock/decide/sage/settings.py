"""Settings of Sage's rules: windows, bounds, factors of increase, targets of decrease, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from penstock.decide.sage.services import ServiceTest
from penstock.errors import BadInput
from penstock.units.fields import Count, Duration, Names, OptionalCount, OptionalDuration, OptionalSize, Ratio
from penstock.units.section import Section

MEBIBYTE = 1024.0 * 1024.0
LEAST_HEAP_BYTES = 450 * MEBIBYTE
"""Spark starts no JVM with less."""
SINGLE_THREADED = 1.05
"""The cores that a task of one thread keeps busy, and the JVM beside it."""
MOST_LAG = 1000
"""Intervals by which a backlog may follow a service; twice as many samples are kept of both."""
LEAST_UP_INTERVALS, LEAST_DOWN_INTERVALS = 6, 30
"""A window holds enough samples whatever the interval is."""


class SageSettings(Section):
    """Windows, bounds and factors of the eight rules; times in seconds, shares as fractions of one.

    A `_high` is the bound above which a resource is too small. A `_target` is how full it is to be after a
    decrease; it lies below the bound, so that no decrease calls for its own remedy (section 4).
    """

    prefix: ClassVar[str] = "sage_"
    names: ClassVar[Mapping[str, str]] = {
        "up_window_seconds": "sage_up_window",
        "down_window_seconds": "sage_down_window",
        "lags": "service_lags",
        "correlation_threshold": "service_correlation",
        "false_alarms": "service_false_alarms",
    }

    up_window_seconds: Duration = Field(
        60.0,
        gt=0,
        le=86400,
        description="The time over which Sage's rules that grow look, at least six intervals.",
    )
    down_window_seconds: Duration = Field(
        300.0,
        gt=0,
        le=604800,
        description="The time over which Sage's rules that shrink look, at least thirty intervals; no more "
        "than 10,000 samples are kept.",
    )
    first_after: OptionalDuration = Field(
        180.0,
        gt=0,
        le=86400,
        description="When a new application gets a first size for memory and cores together, from what it "
        "has used since its start and from similar applications in the journal; `none` for never. It must be "
        "below `sage_down_window`, after which the rules know enough by themselves.",
    )
    pin: Names = Field(
        (),
        description="Parameters that stay as they are: parallelism, heap, overhead, memory-fraction, cpu, "
        "driver-heap.",
    )
    veto: Names = Field((), description="Rules of Sage that are silent, such as P3.")
    lags: Names = Field(
        ("0", "1", "2", "3"),
        description="By how many policy intervals a backlog may follow a remote service, in whole numbers.",
        json_schema_extra={"default_text": "`0,1,2,3`"},
    )
    correlation_threshold: Ratio = Field(
        0.7,
        gt=0,
        le=1,
        description="From this correlation with a remote service on, a growing backlog does not scale, "
        "unless as much is likely by chance.",
    )
    false_alarms: Ratio = Field(
        0.01,
        ge=0.001,
        le=1,
        description="How often services that vary at random may hold back growth all the same, as a share of "
        "the intervals; all services, their figures and `service_lags` together.",
    )
    least_up_samples: Count = Field(4, ge=2)
    least_down_samples: Count = Field(20, ge=2)
    heap_used_high: Ratio = Field(0.85, gt=0, le=1)
    gc_time_high: Ratio = Field(0.1, gt=0, le=1)
    gc_per_minute_high: Ratio = Field(120.0, gt=0)
    heap_factor: Ratio = Field(1.5, gt=1, le=16)
    overhead_high: Ratio = Field(0.9, gt=0, le=1)
    overhead_target: Ratio = Field(0.8, gt=0, le=1)
    overhead_factor: Ratio = Field(1.5, gt=1, le=16)
    least_overhead_bytes: Ratio = Field(384 * MEBIBYTE, ge=0)
    cpu_high: Ratio = Field(1.1, gt=SINGLE_THREADED, le=16)
    cpu_target: Ratio = Field(0.7, gt=0, le=16)
    cpu_factor: Ratio = Field(1.5, gt=1, le=16)
    memory_fraction_step: Ratio = Field(0.1, gt=0, le=1)
    most_memory_fraction: Ratio = Field(0.8, gt=0, le=1)
    least_backlog_growth: Ratio = Field(1.0, ge=0)
    drained_seconds: Ratio = Field(30.0, gt=0)
    least_gain: Ratio = Field(0.1, gt=0, le=1)
    in_flight_seconds: Ratio = Field(600.0, gt=0)
    least_heap_bytes: Ratio = Field(LEAST_HEAP_BYTES, ge=0)

    @field_validator("pin")
    @classmethod
    def _check_pins(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        from penstock.decide.sage.overrides import find_parameter

        return _check_names(names, lambda name: find_parameter(name, "sage_pin"))

    @field_validator("veto")
    @classmethod
    def _check_vetoes(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        from penstock.decide.sage.overrides import find_rule

        return _check_names(names, lambda name: find_rule(name, "sage_veto"))

    @field_validator("lags")
    @classmethod
    def _check_lags(cls, lags: tuple[str, ...]) -> tuple[str, ...]:
        for lag in lags:
            if not str(lag).isdecimal() or int(lag) > MOST_LAG:
                raise ValueError(f"a whole number of intervals up to {MOST_LAG} is expected, not {lag!r}")
        return lags

    @model_validator(mode="after")
    def _check_targets(self) -> SageSettings:
        for target, high in (("overhead_target", "overhead_high"), ("cpu_target", "cpu_high")):
            if getattr(self, target) > getattr(self, high):
                raise ValueError(f"{target} ({getattr(self, target)}) exceeds {high} ({getattr(self, high)})")
        return self

    def with_windows_for(self, policy_interval: float) -> SageSettings:
        """Lengthen the windows until they hold enough samples, and the longer one the shorter."""
        up = max(self.up_window_seconds, LEAST_UP_INTERVALS * policy_interval)
        down = max(up, self.down_window_seconds, LEAST_DOWN_INTERVALS * policy_interval)
        return self.model_copy(update={"up_window_seconds": up, "down_window_seconds": down})

    @property
    def service_test(self) -> ServiceTest:
        """When a remote service explains a backlog."""
        return ServiceTest(
            tuple(int(lag) for lag in self.lags), self.correlation_threshold, self.false_alarms
        )


class ClusterLimits(Section):
    """The most that hosts and quotas let an application have."""

    host_cores: OptionalCount = Field(
        None, ge=1, le=100_000, description="The cores of one host, the most that an executor may have."
    )
    host_memory: OptionalSize = Field(
        None, description="The memory of one host, such as `64g`, the most that an executor may have."
    )
    quota_cores: OptionalCount = Field(
        None, ge=1, le=10_000_000, description="The most cores of all executors together."
    )
    quota_memory: OptionalSize = Field(
        None, description="The most memory of all executors together, such as `256g`."
    )


def _check_names(names: tuple[str, ...], check: Callable[[str], object]) -> tuple[str, ...]:
    for name in names:
        try:
            check(name)
        except BadInput as error:
            raise ValueError(str(error)) from None
    return names
