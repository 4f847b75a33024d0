"""Settings of migrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from penstock.dataflow.moves import Strategy
from penstock.errors import BadInput
from penstock.units.fields import Count, Duration, Ratio
from penstock.units.section import Section


def _name_strategy(written: object) -> object:
    if not isinstance(written, str):
        return written
    try:
        return Strategy.parse(written)
    except BadInput as error:
        raise ValueError(str(error)) from None


class MigrationSettings(Section):
    """Whether and how state moves; batch times are ratios of a steady batch.

    `prepare` lets a batch upload the snapshots of the bins that move next, so that their new workers replay
    little. A batch is far too long when it takes `far_ratio` times the latency budget; after `far_batches` of
    these in a row the migration stops. A bin whose snapshot does not appear within `snapshot_patience`
    batches moves without it.
    """

    prefix: ClassVar[str] = "migration_"
    names: ClassVar[Mapping[str, str]] = {"enabled": "migration", "locality_wait": "locality_wait"}

    enabled: bool = Field(
        True,
        description="Whether state is moved between executors: onto new ones after a scale-out, and "
        "off those that are released before a scale-in.",
    )
    strategy: Annotated[Strategy, BeforeValidator(_name_strategy)] = Field(
        Strategy.OPTIMIZED,
        description="How state moves: `fluid` a bin at a time; `batched` a fixed number of bins at a time; "
        "`optimized` bins at a time that do not disturb each other, as many as the latency budget allows; "
        "`all-at-once` in one batch.",
        json_schema_extra={"range_text": "`fluid`, `batched`, `optimized`, `all-at-once`"},
    )
    latency_budget: Ratio = Field(
        1.5,
        ge=1,
        le=100,
        description="How long a batch may take while state moves, as a multiple of a steady batch; where it "
        "is exceeded, fewer bins move at a time.",
    )
    imbalance: Ratio = Field(
        0.2,
        ge=0,
        le=10,
        description="State is spread when the fullest executor's load per slot exceeds the mean by more than "
        "this fraction. A smaller one moves more bytes.",
    )
    order: Literal["hot-first", "cold-first"] = Field(
        "hot-first",
        description="Which bins move first: `hot-first` relieves stragglers soonest, `cold-first` disturbs "
        "least while the pace is being found.",
    )
    bins_per_batch: Count = Field(
        8,
        ge=1,
        le=10_000,
        description="The most bins that move in one batch. `batched` begins with it, `optimized` begins with "
        "one and rises to it as the latency budget and the slots of the executors allow.",
    )
    gap: Count = Field(
        0,
        ge=0,
        le=1000,
        description="Batches without a move between two with one, in which records that queued up can drain.",
    )
    locality_wait: Duration = Field(
        10.0,
        ge=0,
        le=600,
        description="`spark.locality.wait` is raised to this when state begins to move, and set back when "
        "the autopilot is detached: with a shorter one a busy executor loses the bins placed on it, with a "
        "longer one it can hold a batch up.",
    )
    prepare: bool = True
    retries: Count = Field(3, ge=0)
    far_ratio: Ratio = Field(2.0, ge=1)
    far_batches: Count = Field(3, ge=1)
    snapshot_patience: Count = Field(2, ge=0)

    @staticmethod
    def of(strategy: Strategy, **changes: Any) -> MigrationSettings:
        """Return the usual settings of a strategy; all at once, as other engines do it, prepares nothing."""
        prepare = strategy is not Strategy.ALL_AT_ONCE
        return MigrationSettings(**{"strategy": strategy, "prepare": prepare, **changes})

    def following(self, strategy: Strategy) -> MigrationSettings:
        """Return the same for another strategy."""
        prepare = self.prepare and strategy is not Strategy.ALL_AT_ONCE
        return self.model_copy(update={"strategy": strategy, "prepare": prepare})

    @property
    def hot_first(self) -> bool:
        """Whether the bins with the most load move first."""
        return self.order == "hot-first"
