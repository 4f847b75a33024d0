"""Periods in which nothing is changed: hours of the day, spans of the week."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.goals import SizeBounds
from penstock.decide.manager.manager import Accepted, Rejected, ScalingManager
from penstock.decide.manager.quiet import DAY, WEEK, find_quiet_seconds, parse_quiet_spans
from penstock.decide.manager.restarts import RecommendOnly
from penstock.decide.policy import ExpectedEffect, Resize
from tests.decide.manager_run import EAGER, Run, size
from tests.decide.situations import hold, scale, window

HOUR = 3600.0


@pytest.mark.parametrize(
    ("hours", "at", "expected"),
    [
        (["08:00-18:00"], 10 * HOUR, 8 * HOUR),
        (["08:00-18:00"], 18 * HOUR, 0.0),
        (["08:00-18:00"], 7.5 * HOUR, 0.0),
        (["22:00-06:00"], 23 * HOUR, 7 * HOUR),
        (["22:00-06:00"], 5 * DAY + 5 * HOUR, HOUR),
        (["08:00-12:00", "12:00-14:00"], 11 * HOUR, 3 * HOUR),
        ([], 3 * HOUR, 0.0),
        # 1970-01-02 was a Friday
        (["Fri 18:00-Mon 06:00"], DAY + 17 * HOUR, 0.0),
        (["Fri 18:00-Mon 06:00"], DAY + 18 * HOUR, 60 * HOUR),
        (["friday 18:00 - Monday 06:00"], 4 * DAY + 5 * HOUR, HOUR),
        (["Fri 18:00-Mon 06:00"], 4 * DAY + 6 * HOUR, 0.0),
        (["Fri 18:00-Mon 06:00", "06:00-08:00"], 100 * WEEK + 4 * DAY, 8 * HOUR),
        (["Sun 22:00-Sun 23:00"], 3 * DAY + 22.5 * HOUR, 0.5 * HOUR),
    ],
)
def test_how_long_it_stays_quiet(hours, at, expected):
    assert find_quiet_seconds(parse_quiet_spans(hours), at) == expected


@pytest.mark.parametrize(
    "written", ["Fri 18:00-06:00", "Fre 18:00-Mon 06:00", "Fri 18:61-Mon 06:00", "Fri-Mon"]
)
def test_what_is_no_span_is_refused(written):
    with pytest.raises(ValueError, match=r"expected|no day of the week|no time of the day"):
        parse_quiet_spans([written])


def test_a_whole_day_is_no_span():
    with pytest.raises(ValueError, match="no span"):
        parse_quiet_spans(["00:00-24:00"])


@given(st.integers(0, 1439), st.integers(0, 1439), st.floats(0, 10 * DAY))
def test_after_the_wait_it_is_not_quiet_any_more(start, end, now):
    if start == end:
        return
    written = f"{start // 60:02d}:{start % 60:02d}-{end // 60:02d}:{end % 60:02d}"
    spans = parse_quiet_spans([written])
    waited = find_quiet_seconds(spans, now)
    assert waited == 0.0 or find_quiet_seconds(spans, now + waited + 1e-3) == 0.0


QUIET = EAGER.change(no_changes=["Thu 00:00-Thu 12:00"])
"""The epoch, at which the runs of these tests begin, was a Thursday."""


def test_nothing_grows_shrinks_moves_or_is_undone_in_a_period_without_changes():
    run = Run(QUIET)
    rejected = run.step(scale(6))
    assert isinstance(rejected, Rejected) and rejected.guardrail == "no-changes"
    assert "for another 11.7 hours" in rejected.reason
    run.step(hold())
    moved = run.manager.object_to_moves()
    assert moved is not None and moved.guardrail == "no-changes"
    run.now = 12 * HOUR
    assert size(run.step(scale(6))) == 6
    assert run.manager.object_to_moves().guardrail == "size-first"


class Agreeing:
    def judge(self, now: float, resize: Resize) -> Accepted:
        return Accepted(resize)


def test_nothing_is_restarted_in_it_and_recommendations_are_still_told():
    resize = Resize({"spark.executor.memory": "2g"}, "the heap is full", ExpectedEffect("less of it"), {})
    for restarts, told in ((Agreeing(), "no-changes"), (RecommendOnly(), "recommend-only")):
        manager = ScalingManager(QUIET, restarts=restarts)
        verdict = manager.judge(1000.0, window(1000.0), resize)
        assert isinstance(verdict, Rejected) and verdict.guardrail == told


def test_without_metrics_the_size_is_reached_step_by_step_within_the_bounds():
    run, sizes = Run(EAGER, held=2, bounds=SizeBounds(least=1, most=16)), []
    while isinstance(
        verdict := run.manager.judge_fallback(run.now, window(run.now, run.held), scale(20)), Accepted
    ):
        run.perform(verdict)
        run.now += 10.0
        sizes.append(run.held)
    assert sizes == [6, 16] and isinstance(verdict, Rejected) and verdict.guardrail == "bounds"
    quiet = ScalingManager(QUIET)
    assert quiet.judge_fallback(1000.0, window(1000.0), scale(6)).guardrail == "no-changes"
