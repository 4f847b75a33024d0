"""Settings of the queueing policy, for both execution models."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from penstock.units.fields import Count, NamedDurations, Ratio
from penstock.units.section import Section


class QueueingSettings(Section):
    """Settings of the queueing policy beside the goals, whose latency target is R_max for every path.

    An operator with a target of its own keeps it, whatever its paths would give it (section 4.2.1).
    """

    prefix: ClassVar[str] = "queueing_"

    scale_in_share: Ratio = Field(
        0.5,
        gt=0,
        le=1,
        description="α of the queueing policy: a path that takes less than this share of the latency target "
        "gives instances back.",
    )
    operator_targets: NamedDurations = Field(
        {},
        description="Operators with a latency target of their own, which then no path changes: a mapping of "
        "names to durations, `parse=1s,count=2s` outside YAML.",
        json_schema_extra={"default_text": "none"},
    )
    windows_kept: Count = Field(
        20, ge=2, le=10_000, description="Windows from which the queueing policy estimates variation."
    )
    changes_per_hour: Count = Field(
        12,
        ge=1,
        le=3600,
        description="The most changes in an hour that queueing makes for latency alone; what throughput "
        "needs is not bounded.",
    )

    @field_validator("operator_targets")
    @classmethod
    def _check_targets(cls, targets: dict[str, float]) -> dict[str, float]:
        for name, target in targets.items():
            if target <= 0:
                raise ValueError(f"the target of {name} must be longer than 0 s")
        return targets
