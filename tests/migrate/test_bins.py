"""State as it lies on workers, the configuration function, and its three properties, kept and broken."""

from __future__ import annotations

import orjson
import pytest

from penstock.dataflow.moves import Move
from penstock.errors import BadInput
from penstock.migrate.bins import BinState, StateView, Worker, describe_state
from penstock_lab.experiments.faults.state_cluster import (
    QUERY,
    BinRun,
    Configuration,
    a_bin,
    a_view,
    find_misplaced,
    find_out_of_order,
    find_unfinished,
)

FIRST = {a_bin(0): "1", a_bin(1): "1"}
AWAY = Move(12, a_bin(0), "1", "2")
BACK = Move(15, a_bin(0), "2", "1")
THERE = Configuration(FIRST, (AWAY, BACK))


def test_an_update_holds_until_the_next_one() -> None:
    assert [THERE.worker(batch, a_bin(0)) for batch in range(10, 18)] == list("11222111")
    assert {THERE.worker(batch, a_bin(1)) for batch in range(10, 18)} == {"1"}
    assert THERE.placement(13) == {a_bin(0): "2", a_bin(1): "1"}
    assert THERE.settled_from() == 15
    assert Configuration(FIRST, (AWAY,)).placement(99) == {a_bin(0): "2", a_bin(1): "1"}


@pytest.mark.parametrize(
    ("updates", "said"),
    [
        ((AWAY, Move(12, a_bin(0), "1", "3")), "would be at two workers from batch 12 on"),
        ((BACK,), "is at 1 before batch 15, not 2"),
        ((Move(12, a_bin(7), "1", "2"),), "has no bin q/0/7"),
    ],
)
def test_what_is_no_function_is_refused(updates: tuple[Move, ...], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Configuration(FIRST, updates)


def test_property_5_each_bin_sees_each_batch_once_and_in_order() -> None:
    def runs(*batches: int) -> list[BinRun]:
        return [BinRun(batch, a_bin(0), "1") for batch in batches]

    assert find_out_of_order(runs(10, 11, 12)) == ()
    assert find_out_of_order(runs(10, 11, 11)) == ("bin q/0/0 ran batch 11 after batch 11",)
    assert find_out_of_order(runs(10, 12)) == ("bin q/0/0 ran batch 12 after batch 10",)
    assert find_out_of_order(runs(11, 10)) == ("bin q/0/0 ran batch 10 after batch 11",)


def test_property_6_each_batch_runs_where_the_configuration_says() -> None:
    kept = [BinRun(batch, a_bin(0), THERE.worker(batch, a_bin(0))) for batch in range(10, 18)]
    assert find_misplaced(THERE, kept) == ()
    late = BinRun(12, a_bin(0), "1")
    assert find_misplaced(THERE, [*kept, late]) == (late,)


def test_property_7_after_the_last_update_every_bin_is_at_its_place() -> None:
    wanted = {a_bin(0): "1", a_bin(1): "1"}
    assert find_unfinished(THERE, 15, wanted) == ()
    assert find_unfinished(THERE, 15, {a_bin(0): "2"}) == (a_bin(0), a_bin(1))
    # the frontier has not reached the last update: nothing is owed yet
    assert find_unfinished(THERE, 14, {}) == ()


def test_imbalance_is_load_per_slot_over_the_mean() -> None:
    assert a_view({"1": range(6), "2": range(6, 12), "3": ()}).imbalance() == pytest.approx(0.5)
    assert a_view({"1": range(4), "2": range(4, 8)}).imbalance() == pytest.approx(0.0)
    assert a_view({"1": (), "2": ()}).imbalance() == 0.0
    # a worker of four slots bears twice the load of one of two
    workers = (Worker("1", "a", 4), Worker("2", "a", 2))
    states = tuple(BinState(a_bin(n), "1" if n < 4 else "2", load_seconds=1.0) for n in range(6))
    assert StateView(QUERY, "counts", 10, states, workers).imbalance() == pytest.approx(0.0)


def test_what_was_not_measured_counts_as_usual() -> None:
    measured = a_view({"1": range(2), "2": (2,)}, loads=lambda n: [3.0, 1.0, 0.0][n])
    assert measured.loads() == {a_bin(0): 3.0, a_bin(1): 1.0, a_bin(2): 2.0}
    nothing = a_view({"1": range(2), "2": (2,)}, loads=lambda _: 0.0)
    assert set(nothing.loads().values()) == {1.0}


def test_the_state_has_every_bin_and_worker() -> None:
    view = a_view({"1": range(6), "2": range(6, 12), "3": ()})
    state = describe_state((view, view), None)
    assert orjson.loads(orjson.dumps(state)) == state
    assert [worker["worker"] for worker in state["workers"]] == ["1", "2", "3"]
    [query, _] = state["queries"]
    assert (query["query"], query["name"], query["batch"]) == ("q", "counts", 10)
    assert query["imbalance"] == pytest.approx(0.5)
    assert query["bins"][0] == {
        "operator": 0, "partition": 0, "worker": "1", "rows": 10, "bytes": 100, "load_seconds": 1.0,
    }  # fmt: skip
