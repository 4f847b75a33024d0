"""Settings of AuTraScale, with the symbols of its paper."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.units.fields import Count, Duration, OptionalCount, Ratio
from penstock.units.section import Section


class AutraScaleSettings(Section):
    """Settings of AuTraScale beside goals and bounds; the upper bound is P_max."""

    prefix: ClassVar[str] = "autrascale_"

    latency_weight: Ratio = Field(
        0.8, ge=0, le=1, description="α of AuTraScale: the share of latency in the score, against resources."
    )
    """0.8 is what the scores of tables II and III were computed with."""
    over_allocation: Ratio = Field(
        0.25,
        ge=0,
        le=1_000_000,
        description="w of AuTraScale: how much more than throughput needs ends the search. By equation 9 it "
        "sets the score threshold: α + (1 − α) / (1 + w).",
    )
    """The paper's threshold of 0.9 follows from 1.0."""
    policy_running_time: Duration = Field(
        0.0,
        ge=0,
        le=86_400,
        description="How long a size runs before AuTraScale decides again; the paper waits 5 and 10 minutes "
        "after each restart. Some windows are awaited in any case.",
    )
    exploration: Ratio = Field(
        0.001, ge=0, le=1, description="ξ of AuTraScale: by how much a size must promise to beat the best."
    )
    """One instance of ten less in one of four operators is worth some 0.003."""
    search_factor: Ratio = Field(
        4.0, ge=1, le=1_000_000, description="AuTraScale tries at most so many times what throughput needs."
    )
    uniform_samples: Count = Field(
        3, ge=2, le=1000, description="M of AuTraScale: first samples in which all operators are alike."
    )
    switch_after: OptionalCount = Field(
        None,
        ge=1,
        le=100_000,
        description="Num of AuTraScale: real samples after which the model of another rate is no longer "
        "used; `none` is one more than the first samples.",
    )
    changes_per_hour: Count = Field(
        6, ge=2, le=3600, description="The budget of AuTraScale's trials, the way back from them included."
    )
    most_samples: Count = Field(
        30, ge=1, le=1000, description="Sizes that AuTraScale tries at one rate before it keeps the best."
    )
    rate_tolerance: Ratio = Field(
        0.1, ge=0.001, le=0.5, description="By how much rates may differ and still be one to AuTraScale."
    )
    least_improvement: Ratio = Field(0.0001, ge=0, le=1)
    """The expected improvement below which a search that meets its target ends."""
    settle_windows: Count = Field(1, ge=0, le=1000)
    """Windows left out after a change."""
    sample_windows: Count = Field(2, ge=1, le=1000)
    """Windows measured for one sample."""
    patience_windows: Count = Field(12, ge=1, le=10_000)
    """How long a size is proposed before it is taken for refused."""
    throughput_steps: Count = Field(8, ge=1, le=1000)
    """The number of sizes after which the throughput phase ends in any case."""
    seed: Count = Field(7, ge=0, le=2**32 - 1)
    """Draws the sizes that are judged where the lattice is too large to judge them all."""

    @property
    def score_threshold(self) -> float:
        """Equation 9: the score at which the search ends, from the accepted over-allocation."""
        return self.latency_weight + (1 - self.latency_weight) / (1 + self.over_allocation)
