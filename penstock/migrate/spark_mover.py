"""Moves state of a running application: looks where it lies, plans, and has the plans carried out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Status
from penstock.decide.policy import MoveState
from penstock.errors import ActionFailed, PenstockError, Unsupported
from penstock.migrate.bins import StateView
from penstock.migrate.migration import joint_outcome
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Plan, Strategy, plan_from_plain
from penstock.migrate.planner import Assignment, PlannerSettings, balance, drain
from penstock.migrate.proposal import gain, move_state
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_repartition import SparkBins
from penstock.migrate.spark_views import Loads, SparkViews
from penstock.migrate.strategies import schedule
from penstock.observe.spark_session import can_change_executors
from penstock.settings import Settings

_LOG = logging.getLogger(__name__)

REST_SECONDS = 300.0
"""After a migration state stays where it is for so long, unless executors came or went."""
LEAST_GAIN = 0.1
"""A rebalancing that brings less is not worth disturbing a batch."""


class SparkMover:
    """One migration at a time; raises PenstockError and nothing else on purpose."""

    def __init__(self, spark: SparkSession, settings: Settings, loads: Loads) -> None:
        self._settings = settings
        self._placement = SparkPlacement(spark)
        self._views = SparkViews(spark, self._placement, loads)
        self._migrator = SparkMigrator(self._views, settings.locality_wait)
        self._obstacle = _obstacle(spark, settings)
        self._resting: tuple[float, frozenset[str]] = (float("-inf"), frozenset())

    def obstacle(self) -> str | None:
        """Why state cannot be moved here, in one sentence."""
        return self._obstacle

    def views(self) -> tuple[StateView, ...]:
        """Where the state of each query lies, with sizes."""
        return self._views.full_views()

    def bins(self, spark: SparkSession) -> SparkBins:
        """What can change the number of bins."""
        return SparkBins(spark, self._views)

    def rebalancing(self, strategy: str | None = None) -> list[tuple[StateView, Plan]]:
        """Plans that spread the state evenly, each with the view that it was made from."""
        return self._planned(self._views.full_views(), self._balance, strategy, "state lies unevenly")

    def draining(
        self, executor_ids: Sequence[str], strategy: str | None = None
    ) -> list[tuple[StateView, Plan]]:
        """Plans that take all state off these executors."""
        reason = f"executor {', '.join(executor_ids)} is to be free of state"
        views = self._views.views() or self._views.full_views()
        return self._planned(views, lambda view: drain(view, executor_ids), strategy, reason)

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """A rebalancing, where it is worth its while; what cannot be told now is no reason to fail."""
        try:
            return self._propose(now, window)
        except PenstockError as problem:
            _LOG.info("whether state lies evenly is not known now: %s", problem)
            return None

    def begin(self, plans: Sequence[Mapping[str, Any]]) -> None:
        """Carry out these plain plans."""
        self._start([plan_from_plain(plan) for plan in plans])

    def drain(self, executor_ids: Sequence[str]) -> None:
        """Begin to take all state off these executors."""
        self._start([plan for _, plan in self.draining(executor_ids)])

    def moving(self) -> bool:
        """Whether a migration is under way."""
        return self._migrator.running

    def ended(self) -> tuple[Status, int, str] | None:
        """Status, bins moved and words; None while the migration goes on."""
        outcomes = self._migrator.poll()
        return None if outcomes is None else joint_outcome(outcomes)

    def standing(self) -> dict[str, Any] | None:
        """How the last migration stands, as plain data."""
        standing = self._migrator.standing()
        return None if standing is None else standing.plain()

    def stop(self, reason: str) -> bool:
        """Ask the migration to stop at the next batch boundary; whether there was one."""
        return self._migrator.stop(reason)

    def close(self) -> None:
        """Give back what was set for the user."""
        self._migrator.stop("the autopilot was detached")
        self._placement.release_placement()

    def _start(self, plans: Sequence[Plan]) -> None:
        if self._obstacle is not None:
            raise Unsupported(self._obstacle)
        wanted = [plan for plan in plans if plan.moves]
        if not wanted:
            raise ActionFailed("there is nothing to move")
        own = any(plan.strategy is Strategy.OWN for plan in wanted)
        settings = None if own else self._migration_settings(wanted[0].strategy)
        self._migrator.begin(wanted, settings)

    def _propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        here = frozenset(executor.executor_id for executor in window.executors)
        until, known = self._resting
        without_state = not any(executor.state_bins for executor in window.executors)
        if self._obstacle is not None or self.moving() or without_state or len(here) < 2:
            return None
        if now < until and here == known:
            return None
        uneven = [view for view in self._views.views() if self._balance(view)]
        self._resting = (now + REST_SECONDS if uneven else now, here)
        if not uneven:
            return None
        plans = [(view, plan) for view, plan in self.rebalancing() if gain(view, plan) >= LEAST_GAIN]
        return move_state(plans, "state lies unevenly") if plans else None

    def _balance(self, view: StateView) -> tuple[Assignment, ...]:
        return balance(view, PlannerSettings(imbalance_target=self._settings.migration_imbalance))

    def _planned(
        self, views: Sequence[StateView], assign: Any, strategy: str | None, reason: str
    ) -> list[tuple[StateView, Plan]]:
        if self._obstacle is not None:
            raise Unsupported(self._obstacle)
        chosen = Strategy.named(strategy or self._settings.migration_strategy)
        settings = self._migration_settings(chosen)
        found = []
        for view in views:
            plan = schedule(view, assign(view), chosen, settings, reason)
            if plan.moves:
                found.append((view, plan))
        return found

    def _migration_settings(self, strategy: Strategy) -> MigrationSettings:
        return MigrationSettings.of(
            strategy,
            latency_budget_ratio=self._settings.migration_latency_budget,
            hot_first=self._settings.migration_order == "hot-first",
            most_bins_per_batch=self._settings.migration_bins_per_batch,
            gap_batches=self._settings.migration_gap,
        )


def _obstacle(spark: SparkSession, settings: Settings) -> str | None:
    if not settings.migration:
        return "migration is off (setting migration): state stays where it is"
    if settings.mode == "observe":
        return "this autopilot only observes: state stays where it is"
    reason = can_change_executors(spark)
    return None if reason is None else f"state cannot be moved: {reason}"
