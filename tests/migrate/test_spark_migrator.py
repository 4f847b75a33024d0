"""What a migration sees of a query from batch to batch, with a made-up cluster in Spark's place."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from penstock.dataflow.moves import Bin, Plan, Strategy
from penstock.migrate.bins import StateView, Worker
from penstock.migrate.migration import MigrationOutcome
from penstock.migrate.pacing import PlaceBins
from penstock.migrate.plan import schedule
from penstock.migrate.planner import Assignment
from penstock.migrate.settings import MigrationSettings
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_placement import StateStage, StoredSize, _read_locations
from penstock_lab.experiments.faults.state_cluster import QUERY, Cluster, Move, a_view

BINS = 48
RUNS = 300
STRAYING = 0.3
"""The share of batches in which a bin runs elsewhere than it should."""


class ClusterViews:
    """A made-up cluster as the migrator sees Spark; whoever asks for the last batch lets one more run."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        self.cluster = cluster
        self.placement = self.status = self
        self.stage = StateStage(QUERY, "run", 0, ((0, "default"),), partitions, "nowhere")
        self.looked_at: list[tuple[int, set[Bin]]] = []
        self.dies_after: tuple[int, str] | None = None

    def query(self, query_id: str) -> Any:
        return SimpleNamespace(query_id=query_id, run_id="run", period_seconds=None)

    def stages(self, _query: Any) -> tuple[StateStage, ...]:
        return (self.stage,)

    def last_batch(self, _query: Any) -> int:
        self.cluster.run()
        if self.dies_after is not None and self.dies_after[0] == self.cluster.batch:
            self.cluster.kill(self.dies_after[1])
        return self.cluster.batch

    def workers(self) -> tuple[Worker, ...]:
        return tuple(self.cluster.workers.values())

    def batch_seconds(self, _query: Any, _most: int) -> list[float]:
        return [self.cluster.steady]

    def newest_seconds(self, _query: Any) -> float:
        return self.cluster.seconds[-1]

    def locations(self, stage: StateStage) -> dict[Bin, str]:
        found = {bin_: self.cluster.locations[bin_] for bin_ in stage.bins()}
        self.looked_at.append((self.cluster.batch, set(found)))
        return found

    def place(self, _stage: StateStage, bin_: Bin, _host: str, executor: str) -> None:
        self.cluster.obey([PlaceBins((Move(0, bin_, "", executor),))])

    def measure_stored(self, _stage: StateStage, _bin: Bin) -> StoredSize:
        return StoredSize(100, None, on_demand=False)

    def hold_placement(self, _seconds: float) -> None:
        pass


def carry_out(views: ClusterViews, plan: Plan, settings: MigrationSettings) -> MigrationOutcome:
    migrator = SparkMigrator(views)  # type: ignore[arg-type]
    migrator.begin([plan], settings)
    assert migrator._thread is not None
    migrator._thread.join()
    (outcome,) = migrator.poll() or ()
    return outcome


def spread_out(strategy: Strategy, settings: MigrationSettings) -> tuple[StateView, Plan]:
    """Two of three bins leave the first worker for two others."""
    view = a_view({"1": range(BINS), "2": (), "3": ()})
    assignments = [
        Assignment(state.bin, "1", str(1 + state.bin.partition % 3))
        for state in view.bins
        if state.bin.partition % 3
    ]
    return view, schedule(view, assignments, strategy, settings)


def stray_at_random(seed: int, plan: Plan) -> Any:
    """In three of ten batches one of the plan's bins runs at any other worker."""
    chance = random.Random(seed)
    drawn: dict[int, tuple[Bin, str] | None] = {}

    def strays(batch: int, bin_: Bin) -> str | None:
        if batch not in drawn:
            strayed = (chance.choice(plan.moves).bin, chance.choice("123"))
            drawn[batch] = strayed if chance.random() < STRAYING else None
        found = drawn[batch]
        return found[1] if found and found[0] == bin_ else None

    return strays


def test_what_is_reported_as_moved_is_there_however_many_bins_stray() -> None:
    settings = MigrationSettings.of(Strategy.BATCHED, prepare=False)
    wrong = []
    for seed in range(RUNS):
        view, plan = spread_out(Strategy.BATCHED, settings)
        cluster = Cluster.of(view, strays=stray_at_random(seed, plan))
        outcome = carry_out(ClusterViews(cluster, BINS), plan, settings)
        if any(cluster.locations[move.bin] != move.target for move in outcome.moved):
            wrong.append(seed)
    assert not wrong, f"{len(wrong)} of {RUNS} runs report a stray as moved"


def test_every_bin_is_looked_at_after_every_batch() -> None:
    settings = MigrationSettings.of(Strategy.BATCHED, prepare=False)
    view, plan = spread_out(Strategy.BATCHED, settings)
    views = ClusterViews(Cluster.of(view), BINS)
    outcome = carry_out(views, plan, settings)
    # one look that makes ready, one before the first placement, and one after each batch
    assert [batch for batch, _ in views.looked_at] == list(range(11, 12 + outcome.batches + 1))
    assert all(seen == {state.bin for state in view.bins} for _, seen in views.looked_at)


def test_bins_of_an_executor_that_died_are_journalled_as_from_where_they_were() -> None:
    settings = MigrationSettings.of(Strategy.BATCHED, prepare=False, bins_per_batch=2)
    view = a_view({"1": range(6), "2": (), "3": ()})
    plan = schedule(
        view, [Assignment(state.bin, "1", "2") for state in view.bins], settings.strategy, settings
    )
    views = ClusterViews(Cluster.of(view), 6)
    # after batch 13 two bins are at 2, the next two are placed from an executor that has just died, and
    # batch 14 loads the last two, which nobody placed, where Spark likes: bin 4 at 2, bin 5 at 3
    views.dies_after = (13, "1")
    outcome = carry_out(views, plan, settings)
    assert {move.bin.partition: (move.batch, move.source) for move in outcome.moved} == {
        0: (13, "1"),
        1: (13, "1"),
        2: (14, "1"),
        3: (14, "1"),
        4: (14, "1"),
        5: (15, "3"),
    }
    assert "2 loaded from the checkpoint: executor 1, which held them, had died" in outcome.detail
    assert "1 found at executor 3, not at 1, which died: moved from there" in outcome.detail
    assert "1 found at the target already" in outcome.detail


def test_the_answers_of_the_coordinator_are_read() -> None:
    text = "[Some(executor_10.0.0.1_3), None, Some(executor_my_host.local_12)]"
    assert _read_locations(text) == ["3", None, "12"]
    assert _read_locations("[]") == []
