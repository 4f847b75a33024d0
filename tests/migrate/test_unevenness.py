"""When a placement is searched for again: not while nothing has changed that matters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.moves import Bin
from penstock.migrate.bins import BinState, StateView, Worker
from penstock.migrate.planner import LEAST_GAIN, REST_SECONDS, UnevenState, balance, has_changed

HERE = frozenset({"1", "2"})


def view_of(loads, workers=2, slots=1):
    """Return bins with these loads and places."""
    bins = tuple(
        BinState(Bin("q", 0, number), worker, 10, 1000, load) for number, (load, worker) in enumerate(loads)
    )
    hosts = tuple(Worker(str(number), "host", slots) for number in range(1, workers + 1))
    return StateView("q", "counts", 7, bins, hosts)


def a_hot_bin(heat=10.0):
    """Return one hot bin alone on its executor, which no placement can relieve."""
    return view_of([(heat, "1"), *[(1.0, "2")] * 4])


class CountedBalance:
    """The planner, and how often it was asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, view):
        self.asked += 1
        return balance(view)


def test_state_at_its_best_is_not_planned_for_again_in_every_cycle():
    view, planner = a_hot_bin(), CountedBalance()
    assert view.imbalance() > 0.1, "uneven, but it cannot be better"
    state = UnevenState(planner)
    for cycle in range(10):
        assert state.find(10.0 * cycle, HERE, [replace(view, batch=cycle)]) == []
    assert planner.asked == 1


def test_a_view_for_which_moves_were_not_worth_it_is_left_alone_too():
    view, planner = view_of([(1.0, "1"), (1.0, "1"), (1.0, "1"), (1.0, "2")]), CountedBalance()
    state = UnevenState(planner)
    assert state.find(0.0, HERE, [view]) == [view]
    state.settle([view])
    assert state.find(REST_SECONDS, HERE, [view]) == []
    assert planner.asked == 1


def change_bin(view, number, **changes):
    bins = list(view.bins)
    bins[number] = replace(bins[number], **changes)
    return replace(view, bins=tuple(bins))


@pytest.mark.parametrize(
    "changed",
    [
        change_bin(a_hot_bin(), 0, load_seconds=6.0),
        change_bin(a_hot_bin(), 2, load_seconds=3.0),
        change_bin(a_hot_bin(), 2, worker="1"),
        change_bin(a_hot_bin(), 2, worker=None),
        change_bin(a_hot_bin(), 1, bytes=9000),
        replace(a_hot_bin(), workers=(*a_hot_bin().workers, Worker("3", "host", 1))),
        replace(a_hot_bin(), workers=tuple(replace(one, slots=2) for one in a_hot_bin().workers)),
        replace(a_hot_bin(), bins=a_hot_bin().bins[:-1]),
    ],
    ids=["cooler", "a second one", "moved", "lost", "larger", "more executors", "more slots", "fewer bins"],
)
def test_what_matters_is_planned_for(changed):
    planner = CountedBalance()
    state = UnevenState(planner)
    state.find(0.0, HERE, [a_hot_bin()])
    state.find(10.0, HERE, [changed])
    assert planner.asked == 2


def test_a_slow_drift_is_planned_for_once_it_adds_up():
    planner = CountedBalance()
    state = UnevenState(planner)
    for step in range(20):
        state.find(10.0 * step, HERE, [a_hot_bin(10.0 * 0.97**step)])
    assert 1 < planner.asked < 20


@settings(deadline=None)
@given(st.lists(st.floats(0.98, 1.02), min_size=5, max_size=5), st.floats(0.01, 100.0))
def test_noise_and_another_rate_for_all_bins_change_nothing(noise, rate):
    before = a_hot_bin()
    now = replace(
        before,
        bins=tuple(
            replace(
                state, load_seconds=state.load_seconds * rate * factor, bytes=int(state.bytes * rate * 100)
            )
            for state, factor in zip(before.bins, noise, strict=True)
        ),
    )
    assert not has_changed(change_bytes(before, rate), now)


def change_bytes(view, rate):
    return replace(view, bins=tuple(replace(one, bytes=int(one.bytes * rate * 100)) for one in view.bins))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.sampled_from("12")), min_size=2, max_size=8), st.data())
def test_where_nothing_has_changed_no_placement_known_gains_what_is_worth_a_move(loads, data):
    """The imbalance of where state lies cannot rise by a worthwhile gain unnoticed."""
    before = view_of(loads)
    factors = data.draw(st.lists(st.floats(0.5, 2.0), min_size=len(loads), max_size=len(loads)))
    now = view_of([(load * factor, place) for (load, place), factor in zip(loads, factors, strict=True)])
    if not has_changed(before, now):
        assert abs(now.imbalance() - before.imbalance()) < LEAST_GAIN


def test_a_rest_ends_with_time_or_with_other_executors():
    state = UnevenState(balance)
    assert state.find(0.0, HERE, [view_of([(1.0, "1")] * 4)])
    assert state.rests(REST_SECONDS - 1, HERE)
    assert not state.rests(REST_SECONDS, HERE)
    assert not state.rests(1.0, HERE | {"3"})
