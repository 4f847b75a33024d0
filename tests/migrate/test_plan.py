"""Plans of one's own: plain data in, moves out, and one clear sentence for whatever is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.migrate.bins import Bin
from penstock.migrate.plan import Move, Plan, Strategy, plan_from_plain, read_plan
from tests.migrate.model import QUERY, a_bin, a_view

VIEW = a_view({"1": range(4), "2": ()})
GOOD = (12, (0, 3), "1", "2")


def test_the_forms_in_which_a_move_can_be_written() -> None:
    wanted = (Move(12, a_bin(3), "1", "2"),)
    for entry in (
        GOOD,
        [12, [0, 3], 1, 2],
        (12, a_bin(3), "1", "2"),
        (12, "q/0/3", "1", "2"),
        {"batch": 12, "bin": "q/0/3", "from": "1", "to": "2"},
        {"batch": 12, "operator": 0, "partition": 3, "from": "1", "to": "2", "bytes": 7},
    ):
        assert read_plan(QUERY, [entry], VIEW).moves == wanted


def test_moves_come_in_the_order_of_their_batches() -> None:
    plan = read_plan(QUERY, [(14, (0, 1), "1", "2"), GOOD])
    assert [move.batch for move in plan.moves] == [12, 14]
    assert plan.strategy is Strategy.OWN
    assert plan.last_batch() == 14


def test_a_bin_may_go_and_come_back() -> None:
    plan = read_plan(QUERY, [GOOD, (20, (0, 3), "2", "1")], VIEW)
    assert [move.target for move in plan.moves] == ["2", "1"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ((12, (0, 9), "1", "2"), "move 2: the query has no bin q/0/9"),
        ((12, (0, 1), "2", "1"), "move 2: bin q/0/1 is at 1, not at 2"),
        ((12, (0, 1), "1", "7"), "move 2: there is no executor 7"),
        ((12, (0, 1), "1", "1"), "move 2: bin q/0/1 is to move from 1 to itself"),
        ((12, (0, 3), "2", "1"), "move 2: bin q/0/3 moves twice at batch 12"),
        ((14, (0, 3), "1", "2"), "move 2: bin q/0/3 is at 2, not at 1"),
        ((12, "other/0/1", "1", "2"), "move 2: bin other/0/1 is not of query q"),
        ((12, "q-0-1", "1", "2"), "move 2: 'q-0-1' is no bin"),
        ((12, 5, "1", "2"), "move 2: 5 is no bin"),
        ((-1, (0, 1), "1", "2"), "move 2: 'batch' is -1"),
        ((True, (0, 1), "1", "2"), "move 2: 'batch' is True"),
        ((12, (0, 1), None, "2"), "move 2: 'from' is None"),
        ((12, (0, 1), "1"), "move 2: (12, (0, 1), '1') is neither"),
        ("12 q/0/1 1 2", "move 2: '12 q/0/1 1 2' is neither"),
        ({"batch": 12, "bin": "q/0/1", "from": "1", "target": "2"}, "move 2: unknown key 'target'"),
    ],
)
def test_what_cannot_be_used_is_named(entry: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_plan(QUERY, [GOOD, entry], VIEW)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"moves": []}, "the plan has no 'query'"),
        ({"query": "q"}, "the plan has no 'moves'"),
        ({"query": "q", "moves": [], "strategy": "swift"}, "the plan's strategy is 'swift'"),
        ({"query": "q", "moves": "all"}, "the plan's moves are no list"),
        ({"query": "q", "moves": 7}, "the plan's moves are no list"),
    ],
)
def test_a_plan_that_is_none_is_refused(data: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        plan_from_plain(data)
    assert str(refused.value).startswith(said)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), unique_by=lambda one: one[1], max_size=9))
def test_a_plan_written_is_the_plan_read(entries: list[tuple[int, int]]) -> None:
    moves = tuple(Move(batch, a_bin(number), "1", "2") for batch, number in sorted(entries))
    plan = Plan(QUERY, moves, Strategy.BATCHED, "because")
    assert plan_from_plain(plan.plain()) == plan


def test_the_names_of_strategies() -> None:
    assert Strategy.named("all-at-once") is Strategy.ALL_AT_ONCE
    with pytest.raises(BadInput, match="unknown strategy 'swift': fluid, batched or all-at-once"):
        Strategy.named("swift")
    with pytest.raises(BadInput):
        Strategy.named("own")


@given(st.text(min_size=1), st.integers(0, 99), st.integers(0, 9999))
def test_a_bin_written_is_the_bin_read(query: str, operator: int, partition: int) -> None:
    bin_ = Bin(query, operator, partition)
    assert Bin.parse(str(bin_)) == bin_


@pytest.mark.parametrize("text", ["", "q", "q/1", "/1/2", "q/x/1", "q/1/-1", "q/1/²"])
def test_what_is_no_bin_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no bin"):
        Bin.parse(text)
