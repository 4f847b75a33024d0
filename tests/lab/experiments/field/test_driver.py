"""The driver of a trial sends executors away only until the size to begin with is there."""

from penstock_lab.experiments.field.driver import BEGUN_AFTER, LONGEST_START, Beginning


def test_what_comes_after_the_size_to_begin_with_was_held_is_nobodys_but_the_systems():
    """Growth in the first minute was undone by the trial's own driver."""
    beginning = Beginning(1, 100.0)
    # the first of six registers, then all, then five are sent away
    assert not any(
        beginning.is_over(held, at) for held, at in [(1, 100.0), (6, 101.0), (6, 104.0), (1, 105.0)]
    )
    assert not beginning.is_over(1, 105.0 + BEGUN_AFTER / 2)
    assert beginning.is_over(1, 105.0 + BEGUN_AFTER)
    assert beginning.is_over(3, 142.0)


def test_a_size_that_is_never_reached_is_not_awaited_for_ever():
    beginning = Beginning(4, 0.0)
    assert not beginning.is_over(6, LONGEST_START - 1)
    assert beginning.is_over(6, LONGEST_START)
