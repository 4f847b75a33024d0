"""Verdicts counted: one that says the same again, one that does not, and one that was acted upon."""

from __future__ import annotations

import pytest

from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Verdict, VerdictLog, Waiting
from tests.fakes import a_scale


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (NothingToDo("3.4 of 8 slots"), NothingToDo("3.5 of 8 slots"), True),
        (NothingToDo("the size is right"), Waiting("the size is right"), False),
        (Waiting("warming up", 10.0), Waiting("warming up", 20.0), True),
        (Rejected("bounds", "at most 4"), Rejected("bounds", "at most 5"), True),
        (Rejected("bounds", "too many"), Rejected("small-gain", "too many"), False),
        (Accepted(a_scale(4)), Accepted(a_scale(4)), True),
        (Accepted(a_scale(4)), Accepted(a_scale(5)), False),
    ],
)
def test_figures_in_words_may_differ_and_sizes_may_not(first: Verdict, second: Verdict, same: bool):
    log = VerdictLog()
    log.add(1.0, first)
    log.add(2.0, second)
    *_, last = log
    assert (last.first_at, last.last_at, last.count) == ((1.0, 2.0, 2) if same else (2.0, 2.0, 1))
    assert last.verdict == second, "the latest words stand"


def test_what_was_acted_upon_is_not_counted_again():
    log = VerdictLog()
    for now in (1.0, 2.0, 3.0):
        log.add(now, Accepted(a_scale(4)))
        if now == 2.0:
            log.close_last()
    assert [one.count for one in log] == [2, 1]


def test_the_oldest_are_dropped():
    log = VerdictLog(2)
    for name in ("a", "b", "c"):
        log.add(1.0, NothingToDo(name))
    assert [one.verdict.reason for one in log] == ["b", "c"]
    nothing = VerdictLog(0)
    nothing.add(1.0, NothingToDo("a"))
    nothing.add(2.0, NothingToDo("a"))
    assert len(nothing) == 0
