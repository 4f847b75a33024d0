"""A query in virtual time whose state moves: a made-up cluster below the product's plans and migrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.act.actuator import ExecutorActuator, QueryBatches
from penstock.act.scaling import ScalingSettings
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import BatchExecution
from penstock.dataflow.moves import Plan, Strategy
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    ExecutorState,
    SlotQuery,
    SlotWindow,
    SourceRate,
)
from penstock.decide.policy import Hold, MoveState
from penstock.migrate.bins import BinState, StateView
from penstock.migrate.migration import MigrationProgress, advance_migration, begin_migration, join_outcomes
from penstock.migrate.mover import MovesEnded, Planned
from penstock.migrate.plan import propose_moves, schedule
from penstock.migrate.planner import balance
from penstock.settings.model import Settings, load_settings
from penstock_lab.experiments.faults.state_cluster import QUERY, Cluster, a_bin, a_worker, find_out_of_order
from penstock_lab.experiments.faults.virtual_pipeline import (
    BATCH_SECONDS,
)
from penstock_lab.experiments.faults.worlds.world import INTERVAL, SETTINGS, World

BINS = 12


class MovingWorld(World):
    """A query with state, of which one executor has all at first; batches go on while the loop spreads it."""

    def build(self) -> None:
        """Make the cluster; its first worker has all bins."""
        self.cluster = Cluster.of(self._first_view())
        self._owed, self._pace, self._number = 0, 1, len(self.cluster.workers)
        self.start_loop()

    def start_loop(self) -> None:
        """Make the loop, with a mover that knows of no migration."""
        settings = load_settings(environment={}, arguments=SETTINGS)
        self._mover = ClusterMover(self.cluster, settings)
        actuator = ExecutorActuator(_FixedExecutors(self.cluster), ScalingSettings(), mover=self._mover)
        self.put_together(_Holding(), actuator, self, settings, mover=self._mover)

    @staticmethod
    def _first_view() -> StateView:
        bins = tuple(BinState(a_bin(number), "1", 10, 100, 1.0) for number in range(BINS))
        return StateView(QUERY, "counts", 10, bins, tuple(a_worker(name) for name in ("1", "2", "3")))

    def observe(self, now: float) -> SlotWindow:
        """Return a window in which the size is right."""
        batches = tuple(
            BatchExecution(self.cluster.batch - place, now - BATCH_SECONDS * (1 + place), 1.0, 6, 500, ())
            for place in (1, 0)
        )
        graph = LogicalGraph(["read", "count"], [("read", "count")])
        rates = {"read": SourceRate(100.0, 100.0)}
        query = SlotQuery(QUERY, "counts", graph, rates, batches=batches, period_seconds=BATCH_SECONDS)
        executors = self._mover.executors()
        held = {EXECUTORS: len(executors)}
        return SlotWindow(
            self.name, now - INTERVAL, now, held, (query,), executors=executors, slots_per_executor=2
        )

    def advance(self) -> None:
        """Let a batch run every few seconds; what could not run is caught up with, two at a time."""
        goes_on = self._strike.pass_second(self.now, self)
        if self.now % int(BATCH_SECONDS):
            return
        self._owed += 1
        if goes_on and self.now % (self._pace * int(BATCH_SECONDS)) == 0:
            for _ in range(min(self._owed, 2)):
                self._mover.run_batch()
                self._owed -= 1

    def lose_executor(self) -> None:
        """Let the youngest worker die; with the next batch others have its bins."""
        self.cluster.kill(max(self.cluster.workers, key=int))

    def bring_executor(self) -> None:
        """Let a worker without bins come."""
        self._number += 1
        self.cluster.workers[str(self._number)] = a_worker(str(self._number))

    def slow_down(self, share: float) -> None:
        """Let batches wait for the slow worker."""
        self._pace = round(1 / share)

    def end_driver(self) -> None:
        """Lose all workers; the next ones read the state from the checkpoint, the first of them all of it."""
        first = Cluster.of(self._first_view())
        self.cluster.locations, self.cluster.workers = first.locations, first.workers
        self.cluster.forget_orders()

    def start_driver(self) -> None:
        """Begin again with a loop that knows of no migration."""
        self.succeed()

    def size(self) -> object:
        """Return how many bins the fullest worker has."""
        return max(executor.state_bins for executor in self._mover.executors())

    def output(self) -> object:
        """Return how often each bin saw each batch, and what came out of order."""
        seen = sorted({(run.batch, run.bin.partition) for run in self.cluster.executions})
        return tuple(seen), find_out_of_order(self.cluster.executions)


class ClusterMover:
    """A mover over the made-up cluster: the plans and the migration's machine are the product's."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster, self._settings = cluster, settings.migration
        self._progress: MigrationProgress | None = None
        self._stop: str | None = None

    def obstacle(self) -> str | None:
        """Nothing stands in the way."""
        return None

    def executors(self) -> tuple[ExecutorState, ...]:
        """Return the workers as executors with their bins."""
        held = list(self._cluster.locations.values())
        names = sorted(self._cluster.workers)
        return tuple(ExecutorState(name, f"host-{name}", 2, state_bins=held.count(name)) for name in names)

    def views(self) -> tuple[StateView, ...]:
        """Look where the state lies."""
        bins = tuple(BinState(bin_, at, 10, 100, 1.0) for bin_, at in sorted(self._cluster.locations.items()))
        return (StateView(QUERY, "counts", self._cluster.batch, bins, tuple(self._cluster.workers.values())),)

    def plan_rebalancing(self, strategy: Strategy | None = None) -> Planned:
        """Plan to spread it evenly."""
        (view,) = self.views()
        chosen = strategy or self._settings.strategy
        moves = balance(view, self._settings.imbalance)
        plan = schedule(view, moves, chosen, self._settings.following(chosen), "state lies unevenly")
        return [(view, plan)] if plan.moves else []

    def plan_draining(self, executor_ids: Sequence[str], strategy: Strategy | None = None) -> Planned:
        """Nothing is released here."""
        return []

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """Propose to spread the state while it lies unevenly."""
        planned = self.plan_rebalancing() if not self.moving() else []
        return propose_moves(planned, "state lies unevenly") if planned else None

    def begin(self, plans: Sequence[Plan]) -> None:
        """Begin to move."""
        self._stop = None
        self._progress = begin_migration(plans[0], 1.0, self._cluster.look(), self._settings)

    def moving(self) -> bool:
        """Tell whether state moves."""
        return self._progress is not None and self._progress.outcome is None

    def ended(self) -> MovesEnded | None:
        """Tell how it ended."""
        if self._progress is None or self._progress.outcome is None:
            return None
        return join_outcomes([self._progress.outcome])

    def standing(self) -> dict[str, Any] | None:
        """Nobody looks."""
        return None

    def stop(self, reason: str) -> bool:
        """Stop at the next boundary."""
        self._stop = reason
        return self.moving()

    def run_batch(self) -> None:
        """Run a batch, and advance the migration at its boundary."""
        if self.moving() and self._progress is not None:
            self._cluster.obey(self._progress.instructions)
        boundary = self._cluster.run()
        if self.moving() and self._progress is not None:
            self._progress = advance_migration(self._progress.migration, replace(boundary, stop=self._stop))


class _FixedExecutors:
    """The executors of the made-up cluster, which stay as they are."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def executors(self, bins: Mapping[str, int]) -> tuple[ExecutorState, ...]:
        """Return the workers."""
        return tuple(ExecutorState(name, f"host-{name}", 2) for name in sorted(self._cluster.workers))

    def request_total(self, total: int) -> None:
        """Nothing is asked for."""

    def stop_using(self, executor_ids: Sequence[str]) -> None:
        """Nothing is released."""

    def release(self, executor_ids: Sequence[str]) -> None:
        """Nothing is released."""

    def batches(self) -> Mapping[str, QueryBatches]:
        """No batch needs anybody."""
        return {}


class _Holding:
    """A policy that finds every size right."""

    name = "holding"

    def propose(self, window: ApplicationWindow) -> Hold:
        """Hold."""
        return Hold("the size is right")
