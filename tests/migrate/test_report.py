"""State and plans as plain data, and plans as an action of the loop."""

from __future__ import annotations

import orjson
import pytest

from penstock.migrate.plan import Strategy, plan_from_plain
from penstock.migrate.planner import balance, drain
from penstock.migrate.proposal import gain, move_state
from penstock.migrate.report import plain_plan, plain_state
from penstock.migrate.strategies import schedule
from tests.migrate.model import a_view

VIEW = a_view({"1": range(6), "2": range(6, 12), "3": ()})
SPREAD = schedule(VIEW, balance(VIEW), Strategy.FLUID, reason="state lies unevenly")
EMPTIED = schedule(VIEW, drain(VIEW, {"2"}), Strategy.BATCHED, reason="executor 2 leaves")


def test_the_state_has_every_bin_and_worker() -> None:
    state = plain_state((VIEW, VIEW), None)
    assert orjson.loads(orjson.dumps(state)) == state
    assert [worker["worker"] for worker in state["workers"]] == ["1", "2", "3"]
    [query, _] = state["queries"]
    assert (query["query"], query["name"], query["batch"]) == ("q", "counts", 10)
    assert query["imbalance"] == pytest.approx(0.5)
    assert query["bins"][0] == {
        "operator": 0, "partition": 0, "worker": "1", "rows": 10, "bytes": 100, "load_seconds": 1.0,
    }  # fmt: skip


def test_a_plan_tells_bytes_batches_and_what_it_brings() -> None:
    plain = plain_plan(VIEW, SPREAD)
    assert (plain["strategy"], plain["reason"], plain["bytes"]) == ("fluid", "state lies unevenly", 400)
    # after batch 10: one batch to prepare, then one bin a batch
    assert plain["batches"] == 5
    assert (plain["imbalance_before"], plain["imbalance_after"]) == (pytest.approx(0.5), pytest.approx(0.0))
    assert plan_from_plain(plain, VIEW) == SPREAD


def test_a_drained_worker_is_not_missed_afterwards() -> None:
    plain = plain_plan(VIEW, EMPTIED)
    assert {move["from"] for move in plain["moves"]} == {"2"}
    # six and six: even among those who stay
    assert plain["imbalance_after"] == pytest.approx(0.0)


def test_plans_become_an_action_with_its_expected_effect() -> None:
    action = move_state([(VIEW, SPREAD)], "state lies unevenly")
    assert len(action.moves) == 4
    assert action.expected.figures == {"imbalance_ratio": pytest.approx(0.0), "bytes_moved": 400.0}
    assert "50% more load a slot than the mean" in action.reason
    assert plan_from_plain(action.plans[0]) == SPREAD
    assert gain(VIEW, SPREAD) == pytest.approx(0.5)
