"""What can be set on single policies: the policy's name, then the parameter's."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from penstock.settings_types import Count, Duration, NamedDurations, OptionalCount, OptionalDuration, Ratio


class PolicySettings(BaseModel):
    """The part of the settings that belongs to single policies; defaults are those of the papers."""

    forecast: bool = Field(
        False,
        description="Whether the policy is shown the rate that is expected at the end of `forecast_horizon`, "
        "where that can be told. The policy `forecast:ds2` is ds2 with it, and so on.",
    )
    forecast_horizon: Duration = Field(
        60.0,
        gt=0,
        le=86400,
        description="How far ahead a forecast looks: the time from a decision until the new size works.",
    )
    forecast_season: OptionalDuration = Field(
        86400.0, gt=0, le=31_536_000, description="After how long loads come back; `none` if they do not."
    )
    forecast_worst_error: Ratio = Field(
        0.15,
        gt=0,
        le=1,
        description="The recent error of forecasts, as a share of the rate, above which none is used.",
    )
    forecast_trend_windows: Count = Field(
        6, ge=3, le=1000, description="The last policy intervals that a trend is drawn through."
    )
    forecast_least_checks: Count = Field(
        6, ge=1, le=1000, description="Forecasts that must have come due before one is believed."
    )
    ds2_learned_least_sizes: Count = Field(
        2,
        ge=2,
        le=64,
        description="Sizes that an operator must have had before ds2-learned draws a curve through them.",
    )
    threshold_scale_in_records: Ratio = Field(
        50.0,
        ge=0,
        le=1_000_000_000,
        description="T_in of the threshold policy: a backlog up to this is low load.",
    )
    threshold_scale_out_records: Ratio = Field(
        150.0,
        gt=0,
        le=1_000_000_000,
        description="T_out of the threshold policy: a backlog above this is overload.",
    )
    queueing_scale_in_share: Ratio = Field(
        0.5,
        gt=0,
        le=1,
        description="α of the queueing policy: a path that takes less than this share of the latency target "
        "gives instances back.",
    )
    queueing_operator_targets: NamedDurations = Field(
        {},
        description="Operators with a latency target of their own, which then no path changes: a mapping of "
        "names to durations, `parse=1s,count=2s` outside YAML.",
        json_schema_extra={"default_text": "none"},
    )
    queueing_windows_kept: Count = Field(
        20, ge=2, le=10_000, description="Windows from which the queueing policy estimates variation."
    )
    queueing_changes_per_hour: Count = Field(
        12,
        ge=1,
        le=3600,
        description="The most changes in an hour that queueing makes for latency alone; what throughput "
        "needs is not bounded.",
    )
    autrascale_latency_weight: Ratio = Field(
        0.8, ge=0, le=1, description="α of AuTraScale: the share of latency in the score, against resources."
    )
    autrascale_over_allocation: Ratio = Field(
        0.25,
        ge=0,
        le=1_000_000,
        description="w of AuTraScale: how much more than throughput needs ends the search.",
    )
    autrascale_exploration: Ratio = Field(
        0.001, ge=0, le=1, description="ξ of AuTraScale: by how much a size must promise to beat the best."
    )
    autrascale_search_factor: Ratio = Field(
        4.0, ge=1, le=1_000_000, description="AuTraScale tries at most so many times what throughput needs."
    )
    autrascale_uniform_samples: Count = Field(
        3, ge=2, le=1000, description="M of AuTraScale: first samples in which all operators are alike."
    )
    autrascale_switch_after: OptionalCount = Field(
        None,
        ge=1,
        le=100_000,
        description="Num of AuTraScale: real samples after which the model of another rate is no longer "
        "used; `none` is one more than the first samples.",
    )
    autrascale_changes_per_hour: Count = Field(
        6, ge=2, le=3600, description="The budget of AuTraScale's trials, the way back from them included."
    )
    autrascale_most_samples: Count = Field(
        30, ge=1, le=1000, description="Sizes that AuTraScale tries at one rate before it keeps the best."
    )
    autrascale_rate_tolerance: Ratio = Field(
        0.1, ge=0.001, le=0.5, description="By how much rates may differ and still be one to AuTraScale."
    )
    dhalion_backpressure_share: Ratio = Field(
        0.1, gt=0, lt=0.99, description="Sources held back by more than this share mean backpressure."
    )
    dhalion_least_gain: Ratio = Field(
        0.05, gt=0, le=1, description="Dhalion blacklists what lowers backpressure by a smaller share of it."
    )
    dhalion_patience_windows: Count = Field(
        3, ge=1, le=1000, description="Windows in which an action of Dhalion has to show its effect."
    )
    dhalion_scale_down_share: Ratio = Field(
        0.2, gt=0, le=1, description="The share of its instances that Dhalion takes from an idle operator."
    )
    reactive_records_per_instance: Ratio = Field(
        1000.0, gt=0, le=1_000_000_000, description="The lag that reactive-lag allows for each instance."
    )
    reactive_tolerance: Ratio = Field(
        0.1, ge=0, le=1, description="The reactive policies change nothing within this share of their target."
    )
    reactive_stabilisation_seconds: Duration = Field(
        300.0, ge=0, le=86400, description="The reactive policies shrink to the largest need of this time."
    )
    dynamic_allocation_backlog_seconds: Duration = Field(
        1.0, ge=0, le=86400, description="Tasks that wait longer make dynamic-allocation ask for executors."
    )
    dynamic_allocation_idle_seconds: Duration = Field(
        60.0, ge=0, le=86400, description="After so long without tasks dynamic-allocation releases executors."
    )
    trigger_interval_scale_out_share: Ratio = Field(
        0.9, gt=0, le=1, description="The share of its interval from which a batch asks for executors."
    )
    trigger_interval_scale_in_share: Ratio = Field(
        0.5, gt=0, le=1, description="The share of its interval below which batches let executors go."
    )
    trigger_interval_release_share: Ratio = Field(
        0.1, gt=0, le=1, description="The share of the executors that trigger-interval lets go at once."
    )

    @model_validator(mode="after")
    def _check_pairs(self) -> PolicySettings:
        for lower, upper in (
            ("threshold_scale_in_records", "threshold_scale_out_records"),
            ("trigger_interval_scale_in_share", "trigger_interval_scale_out_share"),
        ):
            if getattr(self, lower) >= getattr(self, upper):
                raise ValueError(
                    f"{lower} ({getattr(self, lower)}) is not below {upper} ({getattr(self, upper)})"
                )
        if self.forecast_season is not None and self.forecast_season <= self.forecast_horizon:
            raise ValueError(
                f"forecast_season ({self.forecast_season:g}) is not longer than forecast_horizon "
                f"({self.forecast_horizon:g})"
            )
        return self
