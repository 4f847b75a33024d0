"""Settings that several policies share: what an application is sized for, and how large it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from penstock.units.fields import Count, Duration, Names, OptionalDuration, Ratio
from penstock.units.section import Section


class Goals(Section):
    """The goals that sizes are computed for; times in seconds, ratios as fractions of one."""

    utilisation: Ratio = Field(
        0.8, gt=0, le=1, description="The share of its capacity that an application is sized to use."
    )
    catch_up: Duration = Field(
        600.0,
        gt=0,
        le=604800,
        description="The time in which a backlog is to be worked off, beside the offered rate.",
    )
    batch_period: Duration = Field(
        10.0,
        ge=0.01,
        le=86400,
        description="The batch period aimed at for a query without a trigger interval; "
        "batches take up to twice as long when all headroom is used up.",
    )
    latency_target: OptionalDuration = Field(
        None, gt=0, le=604800, description="The end-to-end latency to stay under; `none` for no such target."
    )
    unscalable_operators: Names = Field(
        (), description="Operators that do not gain from more instances; separated by commas outside YAML."
    )

    @property
    def unscalable(self) -> frozenset[str]:
        """The operators that settings tag."""
        return frozenset(self.unscalable_operators)


class SizeBounds(Section):
    """How many executors an application may have, or instances each of its operators."""

    names: ClassVar[Mapping[str, str]] = {"least": "min_executors", "most": "max_executors"}

    least: Count = Field(1, ge=1, le=100000, description="Never fewer executors than this.")
    most: Count = Field(64, ge=1, le=100000, description="Never more executors than this.")

    @model_validator(mode="after")
    def _check_order(self) -> SizeBounds:
        if self.least > self.most:
            raise ValueError(f"min_executors ({self.least}) exceeds max_executors ({self.most})")
        return self

    def clamp(self, size: int) -> int:
        """Return the allowed size nearest to this one."""
        return min(max(size, self.least), self.most)
