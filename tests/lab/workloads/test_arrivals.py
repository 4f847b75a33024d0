"""Arrivals invert the profile."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.simulate.profiles import Steps, parse_profile
from penstock_lab.workloads.records import find_arrival, find_arrivals

PROFILES = ["constant:250", "steps:0=100,7=900", "sine:mean=300,amplitude=200,period=20"]


@given(st.sampled_from(PROFILES), st.integers(0, 10**6))
def test_a_record_is_offered_when_the_profile_reaches_it(text, record):
    profile = parse_profile(text)
    assert profile.cumulative(find_arrival(profile, record)) == pytest.approx(record, abs=0.01, rel=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 3000), st.data())
def test_arrivals_do_not_depend_on_the_range(first, count, data):
    profile = parse_profile("bursts:base=100,peak=5000,every=10,length=3")
    cut = data.draw(st.integers(0, count - 1))
    whole = find_arrivals(profile, first, count)
    assert find_arrivals(profile, first + cut, count - cut) == pytest.approx(whole[cut:], abs=1e-9)
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
        due = [profile.cumulative(at) for at in find_arrivals(profile, first, 2500).tolist()]
        assert due == pytest.approx(np.arange(first, first + 2500), abs=0.51)


def test_late_arrivals_of_a_steady_load_are_found_without_looking_at_every_record():
    """A day into the load knots are still exact, so that what lies between them is seen to be straight."""
    asked = []

    class Counted(Steps):
        def cumulative(self, seconds):
            asked.append(seconds)
            return Steps.cumulative(self, seconds)

    found = find_arrivals(Counted((0.0,), (5000.0,), (0.0,)), 5000 * 86_400, 2000)
    assert found == pytest.approx(86_400 + np.arange(2000) / 5000, abs=1e-6)
    assert len(asked) < 1000


@pytest.mark.parametrize("last", [1, 999, 1000, 1001, 2500])
def test_a_load_that_ends_has_arrivals_up_to_its_last_record(last):
    profile = parse_profile(f"steps:0=100,{last / 100:g}=0")
    found = find_arrivals(profile, 0, last)
    assert found == pytest.approx(np.arange(last) / 100, abs=1e-3)
    assert find_arrivals(profile, last - 1, 1)[0] == pytest.approx(found[-1], abs=1e-9)


def test_a_record_that_never_comes_is_refused():
    with pytest.raises(BadInput, match="never offers"):
        find_arrival(parse_profile("steps:0=10,5=0"), 51)
