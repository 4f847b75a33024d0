"""Settings of the scaling manager and its guardrails."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field, field_validator

from penstock.decide.manager.quiet import QuietSpan, parse_quiet_spans
from penstock.units.fields import Count, Duration, Names, OptionalCount, OrOff, Ratio
from penstock.units.section import Section


class Statistic(Enum):
    """How several policy decisions become one."""

    MEDIAN = "median"
    MAXIMUM = "maximum"


class ManagerSettings(Section):
    """Parameters of DS2 sections 4.2.1 and 4.2.2, and what later practice added; times in seconds."""

    policy_interval: Duration = Field(
        10.0,
        ge=0.1,
        le=86400,
        description="How often metrics are gathered and the policy is asked. A longer interval gives "
        "steadier rates and a slower reaction; it should hold at least one batch.",
    )
    warm_up_intervals: Count = Field(
        1,
        ge=0,
        le=1000,
        description="Policy intervals ignored after the start and after each action, while rates are "
        "unstable.",
    )
    activation_intervals: Count = Field(
        2,
        ge=1,
        le=100,
        description="Consecutive policy decisions that are considered together before acting.",
    )
    activation_statistic: Statistic = Field(
        Statistic.MEDIAN,
        description="What is taken of those decisions, for each scaled unit. Of two middle sizes the "
        "median is the larger, unless only that one asks for growth: then nothing grows.",
    )
    target_rate_ratio: Ratio = Field(
        1.5,
        ge=1,
        le=100,
        description="When the policy sees no need to grow, and yet the offered rate exceeds the observed "
        "one by more than this factor over all considered intervals while the backlog grows, "
        "what binds is multiplied by offered/observed: the executors, or the operators that are "
        "saturated in all their instances. It makes up for costs that the measurements miss. "
        "1 is the strictest: it allows no shortfall.",
    )
    ignore_changes_below: Count = Field(
        1,
        ge=1,
        le=1000,
        description="Changes by fewer executors than this are ignored as noise; 1 ignores none. Growth is "
        "never ignored while the backlog grows.",
    )
    rollback: bool = Field(
        True, description="Whether an action after which the application does worse is undone once."
    )
    rollback_worse_by: Ratio = Field(
        0.1,
        gt=0,
        le=1,
        description="How much worse counts, as a fraction: of observed throughput lost, or of the offered "
        "rate by which an application that kept up before now falls behind.",
    )
    small_gain: Ratio = Field(
        0.05,
        ge=0,
        le=1,
        description="A growth that raises the observed rate by less than this fraction, while the "
        "application still falls behind, brought little.",
    )
    small_gain_limit: Count = Field(
        3,
        ge=1,
        le=1000,
        description="After this many such actions in a row no further growth is accepted until the "
        "offered rate changes materially.",
    )
    utilisation_low: Ratio = Field(
        0.6,
        ge=0,
        lt=1,
        description="Lower end of the band: nothing is changed while the predicted utilisation at the "
        "held size lies in [utilisation_low, 1) and the backlog does not grow. A reduction that makes "
        "batches hardly longer (slots without tasks) is let through.",
    )
    scale_down_delay: Duration = Field(
        60.0,
        ge=0,
        le=604800,
        description="A smaller size must have been proposed without a break for this long; the largest "
        "need seen in that time is what is kept.",
    )
    largest_step_up: Ratio = Field(
        3.0,
        ge=1,
        le=1000,
        description="The most times the held executors that one action grows to; always at least one more. "
        "Beyond the largest size at which costs were seen it goes only as far as two decisions agree, and by "
        "one decision alone to twice that size. "
        "Instances of single operators are not bound by it.",
    )
    largest_step_down: Ratio = Field(
        0.5,
        gt=0,
        le=1,
        description="The largest fraction of the held executors that one action gives up; always at least "
        "one.",
    )
    critical_path: Annotated[Literal["veto", "show", "off"], OrOff] = Field(
        "veto",
        description="`show` analyses finished batches for what was on their critical path and shows it; "
        "`veto` also rejects growth that could not shorten a batch, because the driver or a single task "
        "holds it up; `off` does neither.",
    )
    no_changes: Names = Field(
        (),
        description="Periods, in UTC, in which nothing is changed: no executors, no place of state, no "
        "restart; `22:00-06:00` of every day, or `Fri 18:00-Mon 06:00`. Orders by hand are carried out.",
    )
    fallback_executors: OptionalCount = Field(
        None,
        ge=1,
        le=100000,
        description="How many executors to have while Spark's metrics cannot be had for long, step by step "
        "and within the bounds; `none` keeps what is there.",
    )
    fallback_after: Duration = Field(
        300.0, gt=0, le=604800, description="How long metrics must have failed before that."
    )

    @field_validator("no_changes")
    @classmethod
    def _check_periods(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        parse_quiet_spans(written)
        return written

    @property
    def quiet(self) -> tuple[QuietSpan, ...]:
        """The periods without changes."""
        return parse_quiet_spans(self.no_changes)
