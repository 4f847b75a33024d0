"""The figures of a placement by hand and by brute force, and the search for cheap ones."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.migrate.packing import JudgedPlacement, Packing, Places, keep_best, measure_finish
from penstock.migrate.search import STEP, Search, find_cheapest, find_evenest, part_queues
from tests.migrate.placements import deal_best

LOADS = st.sampled_from([0.5, 1.0, 1.1, 2.0, 7.0])


@st.composite
def packings(draw: st.DrawFn, most_bins: int = 6, most_workers: int = 3) -> Packing:
    """Any bins of one operator; some may not move."""
    workers = draw(st.integers(2, most_workers))
    slots = draw(st.lists(st.integers(1, 3), min_size=workers, max_size=workers))
    bins = draw(st.lists(st.tuples(LOADS, st.integers(0, 9), st.booleans()), min_size=1, max_size=most_bins))
    homes = [draw(st.integers(0, workers - 1)) for _ in bins]
    costs = [
        [0.0 if at == home else (1.0 + size if moves else math.inf) for at in range(workers)]
        for (_, size, moves), home in zip(bins, homes, strict=True)
    ]
    return Packing(np.array([load for load, _, _ in bins]), np.array(slots, dtype=float), np.array(costs))


def a_packing(loads: list[float], slots: list[float], homes: list[int]) -> Packing:
    """Bins that all cost 1 to move."""
    costs = [[float(at != home) for at in range(len(slots))] for home in homes]
    return Packing(np.array(loads), np.array(slots), np.array(costs))


def every(packing: Packing) -> list[Places]:
    count = range(len(packing.slots))
    found = (np.array(one, dtype=np.intp) for one in product(count, repeat=len(packing.loads)))
    return [places for places in found if math.isfinite(packing.cost(places))]


def test_the_figures_of_a_placement_by_hand() -> None:
    # worker 0 has 3, 2 and 2 on two slots: 3.5 a slot, and done at 4; worker 1 has 5 on one
    packing = a_packing([3.0, 2.0, 2.0, 5.0], [2.0, 1.0], [0, 0, 1, 1])
    choice = packing.judge(np.array([0, 0, 0, 1]))
    assert (choice.fullest, choice.longest, choice.cost) == (5.0, 5.0, 1.0)
    assert packing.finish(choice.places, 0) == 4.0
    assert packing.even() == 4.0
    assert packing.least_fullest() == 4.0
    # of four bins on three slots two share one: at best 2 and 2
    assert packing.least_longest() == 5.0
    assert a_packing([3.0, 2.0, 2.0, 2.0], [2.0, 1.0], [0, 0, 0, 0]).least_longest() == 4.0


@given(st.lists(LOADS, max_size=5), st.integers(1, 3))
def test_when_a_worker_is_done_against_every_deal(loads: list[float], slots: int) -> None:
    best, found = deal_best(loads, slots), measure_finish(np.array(loads), slots)
    # heaviest first is at most a third longer than the best (Graham 1969)
    assert best - 1e-9 <= found <= best * 4 / 3 + 1e-9


@given(packings())
def test_no_placement_is_below_the_bounds(packing: Packing) -> None:
    choices = [packing.judge(places) for places in every(packing)]
    assert packing.count_placements() == len(choices) == len(list(packing.all_placements()))
    assert packing.least_fullest() <= min(one.fullest for one in choices) + 1e-9
    assert packing.least_longest() <= min(one.longest for one in choices) + 1e-9
    assert packing.cost(packing.rest()) == min(one.cost for one in choices)


@given(packings())
def test_what_is_kept_is_as_good_as_what_is_not(packing: Packing) -> None:
    choices = [packing.judge(places) for places in every(packing)]
    kept = keep_best(choices)
    assert all(any(one.beats(choice) for one in kept) for choice in choices)
    assert not any(first.beats(second) for first in kept for second in kept if first is not second)


def test_equal_choices_are_kept_once() -> None:
    places = np.zeros(1, dtype=np.intp)
    assert (
        len(keep_best([JudgedPlacement(places, 1.0, 1.0, 1.0), JudgedPlacement(places, 1.0, 1.0, 1.0)])) == 1
    )


@settings(max_examples=60)
@given(packings(), st.sampled_from([1.0, 1.1, 1.5]))
def test_a_cheap_placement_is_below_the_limit_if_a_start_is(packing: Packing, factor: float) -> None:
    start = find_evenest(packing, 0.01)
    limit = factor * packing.fullest(start)
    found = find_cheapest(packing, limit, [packing.rest(), start])
    assert packing.fullest(found) <= limit + 1e-6
    assert packing.cost(found) <= packing.cost(start)


@settings(max_examples=60)
@given(packings())
def test_parted_queues_keep_the_limit_and_are_not_longer(packing: Packing) -> None:
    start = packing.judge(packing.rest())
    parted = packing.judge(part_queues(packing, start.places, start.fullest, packing.least_longest()))
    assert parted.fullest <= start.fullest + 1e-6
    assert parted.longest <= start.longest + 1e-6
    assert math.isfinite(parted.cost)


def test_others_make_room_for_a_heavy_bin() -> None:
    # 4, 4, 4 on two slots take 8 where 6 is possible: one of them changes places with four of 1
    packing = a_packing([4.0] * 3 + [1.0] * 12, [2.0, 2.0], [0] * 3 + [1] * 12)
    parted = part_queues(packing, packing.rest(), 6.0, 6.0)
    assert packing.judge(parted).longest == pytest.approx(6.0)
    assert packing.cost(parted) == 5.0


@pytest.mark.parametrize("count", [40, 400])
def test_a_limit_out_of_reach_takes_no_more_work_than_allowed(count: int) -> None:
    packing = a_packing([1.0 + number % 3 / 10 for number in range(count)], [1.0] * 7, [0] * count)
    search = Search(packing, 0.9 * packing.even(), 100 * STEP)
    found = search.run([packing.rest()], 0.0)
    # a step that has begun is done: at most 64 bins against at most 1000
    assert search.work >= -2 * (STEP + 64 * 1000)
    assert len(found) == count
