"""Hours in which nothing is restarted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.manager.restarts import DAY, find_quiet_seconds, parse_quiet_hours

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
    ],
)
def test_how_long_it_stays_quiet(hours, at, expected):
    assert find_quiet_seconds(parse_quiet_hours(hours), at) == expected


def test_a_whole_day_is_no_span():
    with pytest.raises(ValueError, match="no span"):
        parse_quiet_hours(["00:00-24:00"])


@given(st.integers(0, 1439), st.integers(0, 1439), st.floats(0, 10 * DAY))
def test_after_the_wait_it_is_not_quiet_any_more(start, end, now):
    if start == end:
        return
    written = f"{start // 60:02d}:{start % 60:02d}-{end // 60:02d}:{end % 60:02d}"
    spans = parse_quiet_hours([written])
    waited = find_quiet_seconds(spans, now)
    assert waited == 0.0 or find_quiet_seconds(spans, now + waited + 1e-3) == 0.0
