"""A query that was broken off is started again, less and less often, and given up at last."""

from itertools import pairwise

from penstock.pipeline.mending import CALM_SECONDS, MOST_TRIES, Mending


def tries(mending, start, seconds):
    return [start + n / 2 for n in range(2 * seconds) if mending.is_due(start + n / 2)]


def test_waits_double_and_have_an_end():
    mending = Mending()
    at = tries(mending, 0.0, 200)
    waits = [later - earlier for earlier, later in pairwise([0.0, *at])]
    assert len(at) == MOST_TRIES and waits[0] == 1.0
    assert all(later > earlier for earlier, later in pairwise(waits))
    assert mending.given_up and mending.restarts == MOST_TRIES


def test_a_batch_that_ends_well_begins_the_count_anew():
    mending = Mending()
    for _ in range(5):
        assert len(tries(mending, 0.0, 4)) == 2
        mending.note_batch()
    assert not mending.given_up


def test_a_clock_that_goes_back_does_not_put_a_start_off():
    mending = Mending()
    assert not mending.is_due(5000.0)
    assert not mending.is_due(1000.0)
    assert mending.is_due(1001.0)


def test_a_query_that_runs_for_long_is_well_though_nothing_came():
    mending = Mending()
    tries(mending, 0.0, 20)
    mending.note_running(20.0)
    mending.note_running(20.0 + CALM_SECONDS)
    assert len(tries(mending, 200.0, 200)) == MOST_TRIES
