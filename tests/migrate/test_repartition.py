"""More slots than bins: said, and offered as an action with its expected pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.migrate.bins import StateView
from penstock.migrate.repartition import (
    ROW_SECONDS,
    START_SECONDS,
    describe_few_bins,
    find_repartition_obstacle,
    plan_repartition,
)
from penstock_lab.experiments.faults.state_cluster import a_view
from tests.migrate.test_planner import views

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def test_the_slots_without_state_are_counted() -> None:
    said = describe_few_bins("counts", 0, 16, 24)
    assert said.startswith("operator 0 of counts has 16 bins: of 24 slots 8 have no state")
    assert plan_repartition(a_view({"1": range(16)}), 16, 1.0) is None


def test_the_pause_is_the_sum_of_its_steps() -> None:
    # 16 bins of 10 rows on 4 slots
    view, load = a_view({"1": range(8), "2": range(8, 16)}), 160 * ROW_SECONDS
    offer = plan_repartition(view, 20, steady_seconds=2.0)
    assert offer is not None
    parts = [2.0, 2 * load / 4, START_SECONDS, load / 20 + 2.0]
    assert [step.seconds for step in offer.steps] == pytest.approx(parts)
    assert offer.pause_seconds == pytest.approx(14.000704)
    assert (offer.bins_before, offer.bins_after, offer.rows) == (16, 20, 160)
    assert offer.words().startswith("counts: from 16 to 20 bins needs a pause of about 14 s: finish")


def test_what_stands_in_the_way_is_said() -> None:
    assert find_repartition_obstacle("4.3.0", ROCKSDB) is None
    old = find_repartition_obstacle("4.1.2", ROCKSDB)
    assert old == "this is Spark 4.1.2; it takes Spark 4.2 and the RocksDB state store"
    assert "HDFSBackedStateStoreProvider" in (find_repartition_obstacle("4.2.0", HDFS) or "")
    assert "not known" in (find_repartition_obstacle("next", ROCKSDB) or "")
    offer = plan_repartition(a_view({"1": range(2)}), 3, 1.0, old)
    assert offer is not None and offer.words() == f"counts: from 2 to 3 bins is not possible: {old}"


@given(views(), st.integers(1, 40))
def test_an_offer_is_made_where_bins_are_fewer_than_slots_and_nowhere_else(
    view: StateView, slots: int
) -> None:
    by_operator = {state.bin.operator for state in view.bins}
    fewest = min(sum(state.bin.operator == one for state in view.bins) for one in by_operator)
    offer = plan_repartition(view, slots, 1.0)
    assert (offer is not None) == (fewest < slots)
    if offer is not None:
        assert offer.bins_after == slots > offer.bins_before
        assert offer.pause_seconds > 0
