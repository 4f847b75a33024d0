"""Arrivals invert the profile; outcomes of made-up batches are what was put in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.workloads.arrivals import Committed, arrival, arrivals, outcome
from penstock.workloads.profiles import Steps, parse_profile

PROFILES = ["constant:250", "steps:0=100,7=900", "sine:mean=300,amplitude=200,period=20"]


@given(st.sampled_from(PROFILES), st.integers(0, 10**6))
def test_a_record_is_offered_when_the_profile_reaches_it(text, record):
    profile = parse_profile(text)
    assert profile.cumulative(arrival(profile, record)) == pytest.approx(record, abs=0.01, rel=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 3000), st.data())
def test_arrivals_do_not_depend_on_the_range(first, count, data):
    profile = parse_profile("bursts:base=100,peak=5000,every=10,length=3")
    cut = data.draw(st.integers(0, count - 1))
    whole = arrivals(profile, first, count)
    assert arrivals(profile, first + cut, count - cut) == pytest.approx(whole[cut:], abs=1e-9)
    assert (np.diff(whole) >= 0).all()


@pytest.mark.parametrize(
    "text",
    [
        "steps:0=100,5=1",
        "steps:0=100,5=0,60=100",
        "bursts:base=100,peak=5000,every=20,length=2.1",
        "bursts:base=0,peak=100,every=10,length=2.5",
        "sine:mean=10,amplitude=10,period=6.25",
        "constant:5000",
    ],
)
def test_arrivals_follow_the_profile_between_knots(text):
    """Where many records come at once, and where hardly any: within half a record of when each is due."""
    profile = parse_profile(text)
    for first in (0, 9300):
        due = [profile.cumulative(at) for at in arrivals(profile, first, 2500).tolist()]
        assert due == pytest.approx(np.arange(first, first + 2500), abs=0.51)


def test_late_arrivals_of_a_steady_load_are_found_without_looking_at_every_record():
    """A day into the load knots are still exact, so that what lies between them is seen to be straight."""
    asked = []

    class Counted(Steps):
        def cumulative(self, seconds):
            asked.append(seconds)
            return Steps.cumulative(self, seconds)

    found = arrivals(Counted((0.0,), (5000.0,), (0.0,)), 5000 * 86_400, 2000)
    assert found == pytest.approx(86_400 + np.arange(2000) / 5000, abs=1e-6)
    assert len(asked) < 1000


@pytest.mark.parametrize("last", [1, 999, 1000, 1001, 2500])
def test_a_load_that_ends_has_arrivals_up_to_its_last_record(last):
    profile = parse_profile(f"steps:0=100,{last / 100:g}=0")
    found = arrivals(profile, 0, last)
    assert found == pytest.approx(np.arange(last) / 100, abs=1e-3)
    assert arrivals(profile, last - 1, 1)[0] == pytest.approx(found[-1], abs=1e-9)


def test_a_record_that_never_comes_is_refused():
    with pytest.raises(BadInput, match="never offers"):
        arrival(parse_profile("steps:0=10,5=0"), 51)


def steady(batches=10, rate=100, seconds=2.0, taken=1.0):
    """A trigger of 2 s: each batch takes what was offered before it began."""
    return [
        Committed(n * seconds, n * seconds + taken, int((n - 1) * seconds * rate), int(n * seconds * rate))
        for n in range(1, batches + 1)
    ]


def test_a_load_that_is_kept_up_with_is_sustained():
    found = outcome(parse_profile("constant:100"), 0.0, steady(), since=0)
    assert found.sustained
    assert found.offered_per_second == pytest.approx(100)
    assert found.records_per_second == pytest.approx(100, rel=0.06)
    # offered evenly over the 2 s before the batch, committed 1 s after its beginning
    assert found.p50_ms == pytest.approx(2000, abs=50)
    assert found.p99_ms == pytest.approx(3000, abs=50)
    assert found.backlog_records == pytest.approx(100)


def test_a_backlog_that_grows_is_not_sustained():
    slow = [Committed(3.0 * n, 3.0 * n + 3, 200 * n, 200 * (n + 1)) for n in range(10)]
    found = outcome(parse_profile("constant:100"), 0.0, slow, since=0)
    assert not found.sustained
    assert found.backlog_growth_per_second == pytest.approx(100 / 3, rel=0.01)
    assert found.records_per_second == pytest.approx(200 / 3, rel=0.01)


def test_too_few_batches_say_nothing():
    assert outcome(parse_profile("constant:100"), 0.0, steady(2), since=0) is None
    assert outcome(parse_profile("constant:100"), 0.0, steady(10), since=17) is None
