"""The mover of a running Spark application: looks where state lies, plans, and has the plans carried out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession

from penstock.dataflow.moves import Plan, Strategy
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import MoveState
from penstock.errors import ActionFailed, PenstockError, Unsupported
from penstock.migrate.bins import StateView
from penstock.migrate.migration import join_outcomes
from penstock.migrate.mover import MovesEnded, Planned
from penstock.migrate.plan import propose_moves, schedule
from penstock.migrate.planner import LEAST_GAIN, Assignment, UnevenState, balance, drain
from penstock.migrate.settings import MigrationSettings
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_repartition import SparkBins
from penstock.migrate.spark_views import Loads, SparkViews
from penstock.observe.spark_session import can_change_executors

_LOG = logging.getLogger(__name__)


class SparkMover:
    """A `Mover` with one migration at a time; raises PenstockError and nothing else on purpose."""

    def __init__(
        self, spark: SparkSession, settings: MigrationSettings, loads: Loads, only_observes: bool = False
    ) -> None:
        self._settings = settings
        self._placement = SparkPlacement(spark)
        self._views = SparkViews(spark, self._placement, loads)
        self._migrator = SparkMigrator(self._views, settings.locality_wait)
        self._obstacle = _find_obstacle(spark, settings.enabled, only_observes)
        self._uneven = UnevenState(self._balance)

    def obstacle(self) -> str | None:
        """Say in one sentence why state cannot be moved here."""
        return self._obstacle

    def views(self) -> tuple[StateView, ...]:
        """Look where the state of each query lies, with sizes."""
        return self._views.full_views()

    def bins(self, spark: SparkSession) -> SparkBins:
        """Return the part that changes the number of bins."""
        return SparkBins(spark, self._views)

    def plan_rebalancing(self, strategy: Strategy | None = None) -> Planned:
        """Plan to spread the state evenly."""
        return self._plan(self._views.full_views(), self._balance, strategy, "state lies unevenly")

    def plan_draining(self, executor_ids: Sequence[str], strategy: Strategy | None = None) -> Planned:
        """Plan to take all state off these executors."""
        reason = f"executor {', '.join(executor_ids)} is to be free of state"
        views = self._views.views() or self._views.full_views()
        return self._plan(views, lambda view: drain(view, executor_ids), strategy, reason)

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """Propose a rebalancing that is worth its while; where Spark does not answer, propose nothing."""
        try:
            return self._propose(now, window)
        except PenstockError as problem:
            _LOG.info("whether state lies evenly is not known now: %s", problem)
            return None

    def begin(self, plans: Sequence[Plan]) -> None:
        """Begin to carry out these plans."""
        if self._obstacle is not None:
            raise Unsupported(self._obstacle)
        wanted = [plan for plan in plans if plan.moves]
        if not wanted:
            raise ActionFailed("there is nothing to move")
        own = any(plan.strategy is Strategy.OWN for plan in wanted)
        settings = None if own else self._settings.following(wanted[0].strategy)
        self._migrator.begin(wanted, settings)

    def moving(self) -> bool:
        """Tell whether a migration is under way."""
        return self._migrator.running

    def ended(self) -> MovesEnded | None:
        """Tell how the migration ended; None while it goes on."""
        outcomes = self._migrator.poll()
        return None if outcomes is None else join_outcomes(outcomes)

    def standing(self) -> dict[str, Any] | None:
        """Describe how the last migration stands, as plain data."""
        standing = self._migrator.standing()
        return None if standing is None else asdict(standing)

    def stop(self, reason: str) -> bool:
        """Ask the migration to stop at the next batch boundary; tell whether there was one."""
        return self._migrator.stop(reason)

    def close(self) -> None:
        """Give back what was set for the user."""
        self._migrator.stop("the autopilot was detached")
        self._placement.release_placement()

    def _propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        here = frozenset(executor.executor_id for executor in window.executors)
        without_state = not any(executor.state_bins for executor in window.executors)
        if self._obstacle is not None or self.moving() or without_state or len(here) < 2:
            return None
        uneven = [] if self._uneven.rests(now, here) else self._uneven.find(now, here, self._views.views())
        if not uneven:
            return None
        worth = [
            (view, plan)
            for view, plan in self.plan_rebalancing()
            if view.imbalance() - view.follow(plan).imbalance() >= LEAST_GAIN
        ]
        if not worth:
            self._uneven.settle(uneven)
        return propose_moves(worth, "state lies unevenly") if worth else None

    def _balance(self, view: StateView) -> tuple[Assignment, ...]:
        return balance(view, self._settings.imbalance)

    def _plan(
        self,
        views: Sequence[StateView],
        assign: Callable[[StateView], tuple[Assignment, ...]],
        strategy: Strategy | None,
        reason: str,
    ) -> Planned:
        if self._obstacle is not None:
            raise Unsupported(self._obstacle)
        chosen = strategy or self._settings.strategy
        settings = self._settings.following(chosen)
        planned = [(view, schedule(view, assign(view), chosen, settings, reason)) for view in views]
        return [(view, plan) for view, plan in planned if plan.moves]


def _find_obstacle(spark: SparkSession, enabled: bool, only_observes: bool) -> str | None:
    if not enabled:
        return "migration is off (setting migration): state stays where it is"
    if only_observes:
        return "this autopilot only observes: state stays where it is"
    reason = can_change_executors(spark)
    return None if reason is None else f"state cannot be moved: {reason}"
