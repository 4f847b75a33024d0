"""Offsets are the exact integral of the rate, whatever the profile."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.simulate.profiles import (
    Bursts,
    Sine,
    Steps,
    parse_profile,
    parse_recording,
    records_offered,
)

rates = st.floats(0, 1e5)
seconds = st.floats(0, 1e5)


@st.composite
def steps(draw):
    starts = sorted(draw(st.sets(st.integers(0, 10_000), min_size=1, max_size=6)))
    return Steps.of([(float(start), draw(rates)) for start in starts])


@st.composite
def sines(draw):
    mean = draw(st.floats(1, 1e5))
    return Sine(mean, mean * draw(st.floats(0, 1)), draw(st.floats(1, 1e4)))


@st.composite
def bursts(draw):
    every = draw(st.floats(1, 1e4))
    base = draw(rates)
    return Bursts(base, base + draw(rates), every, every * draw(st.floats(0.01, 1)))


profiles = st.one_of(steps(), sines(), bursts())


def rate_of(profile, second):
    """What each profile is said to be; its `cumulative` must be the integral of this."""
    match profile:
        case _ if second < 0:
            return 0
        case Steps(starts=starts, rates=rates):
            return ([0] + [rate for start, rate in zip(starts, rates, strict=True) if start <= second])[-1]
        case Sine(mean=mean, amplitude=amplitude, period=period):
            return mean + amplitude * math.sin(2 * math.pi * second / period)
        case Bursts(base=base, peak=peak, every=every, length=length):
            return peak if math.fmod(second, every) < length else base


@settings(deadline=None)
@given(profiles, seconds, st.floats(0, 1e4))
def test_cumulative_never_falls(profile, start, span):
    before, after = profile.cumulative(start), profile.cumulative(start + span)
    assert after >= before - 1e-9 * max(1.0, before)


@settings(deadline=None)
@given(profiles, seconds, st.floats(0.001, 100))
def test_cumulative_grows_by_the_mean_rate(profile, start, span):
    """The mean slope lies between the least and the greatest rate in the span (mean value theorem)."""
    parts = 400
    seen = [rate_of(profile, start + span * part / parts) for part in range(parts + 1)]
    edges = [edge for edge in getattr(profile, "starts", ()) if start <= edge <= start + span]
    seen += [rate_of(profile, edge) for edge in edges]
    if isinstance(profile, Bursts):
        seen += [profile.base, profile.peak]
    slack = 0.0
    if isinstance(profile, Sine):
        slack = profile.amplitude * 7 * span / parts / profile.period
    slope = (profile.cumulative(start + span) - profile.cumulative(start)) / span
    tolerance = 1e-6 + 1e-9 * profile.cumulative(start + span) / span
    assert min(seen) - slack - tolerance <= slope <= max(seen) + slack + tolerance


@settings(deadline=None)
@given(steps(), st.lists(st.floats(0, 2e4), min_size=1, max_size=20))
def test_steps_are_the_sum_of_their_pieces(profile, times):
    for time in times:
        expected = sum(
            rate * max(0.0, min(time, end) - start)
            for start, end, rate in zip(
                profile.starts, [*profile.starts[1:], float("inf")], profile.rates, strict=True
            )
        )
        assert profile.cumulative(time) == pytest.approx(expected, rel=1e-12, abs=1e-9)


@settings(deadline=None)
@given(steps(), st.lists(st.floats(0, 2e4), min_size=2, max_size=30))
def test_offsets_never_go_back(profile, times):
    offsets = [records_offered(profile, time) for time in sorted(times)]
    assert sorted(offsets) == offsets


def test_nothing_is_offered_before_the_start():
    for text in ("constant:5", "sine:mean=1,amplitude=1,period=10", "bursts:base=1,peak=2,every=9,length=3"):
        profile = parse_profile(text)
        assert profile.cumulative(-3) == 0


def test_a_record_that_is_due_is_not_hidden_by_rounding():
    assert records_offered(parse_profile("constant:0.1"), 30) == 3
    assert records_offered(parse_profile("constant:100"), 0.07) == 7


@pytest.mark.parametrize(
    ("text", "second", "rate", "cumulative"),
    [
        ("constant:100", 7, 100, 700),
        ("steps:0=100,60=300,120=100", 90, 300, 6000 + 9000),
        ("steps:0=100,60=300,120=100", 130, 100, 6000 + 18000 + 1000),
        ("steps:10=4", 5, 0, 0),
        ("sine:mean=100,amplitude=50,period=60", 60, 100, 6000),
        ("bursts:base=10,peak=40,every=60,length=10", 65, 40, 650 + 30 * 15),
        ("bursts:base=10,peak=40,every=60,length=10", 30, 10, 300 + 30 * 10),
    ],
)
def test_text_becomes_a_profile(text, second, rate, cumulative):
    profile = parse_profile(text)
    assert rate_of(profile, second) == pytest.approx(rate)
    assert profile.cumulative(second) == pytest.approx(cumulative)


def test_a_recording_counts_from_its_first_second():
    profile = parse_recording("second|value\n1000|20\n1001|40\n\n1003|10\n")
    assert [rate_of(profile, t) for t in (0, 1, 2.5, 3, 99)] == [20, 40, 40, 10, 10]
    assert profile.cumulative(3) == 20 + 40 + 40


def test_a_recording_can_be_scaled_and_hurried():
    read = {"trace.csv": "1000|20\n1010|40\n"}.__getitem__
    profile = parse_profile("recorded:path=trace.csv,scale=0.5,speed=10", read)
    assert rate_of(profile, 0.9) == 10
    assert profile.cumulative(2) == 10 + 20


@pytest.mark.parametrize(
    "text",
    [
        "constant",
        "constant:fast",
        "constant:-1",
        "constant:nan",
        "zigzag:1",
        "steps:",
        "steps:0=1,0=2",
        "steps:5=1,3=2",
        "steps:0",
        "sine:mean=1,amplitude=2,period=3",
        "sine:mean=1,amplitude=1",
        "bursts:base=2,peak=1,every=10,length=1",
        "sine:mean=inf,amplitude=0,period=60",
        "sine:mean=1,amplitude=1,period=inf",
        "bursts:base=1,peak=inf,every=60,length=1",
        "recorded:speed=2",
        "recorded:path=/no/such/file.csv",
    ],
)
def test_text_that_is_no_profile_is_refused(text):
    with pytest.raises(BadInput):
        parse_profile(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("1|2\nx|3", "line 2"),
        ("1o|2\n3|4", "line 1: the second is '1o'"),
        ("time,rate\nagain,rate\n1,2", "line 2"),
        ("1|2\n3", "line 2"),
        ("", "no lines"),
        ("second|value\n1|inf", "line 2"),
        ("1|2\n2|-3", "line 2: the value is -3"),
        ("5|2\n\n5|3", "line 3: second 5"),
    ],
)
def test_a_bad_recording_names_the_line(text, named):
    with pytest.raises(BadInput, match=named):
        parse_recording(text)


def test_a_recording_may_have_any_heading_and_come_from_a_spreadsheet(tmp_path):
    recording = tmp_path / "trace.csv"
    for text in ("\ufeffTime,Messages/s\n0,10\n5,20\n", "\ufeff0,10\r\n5,20\r\n"):
        recording.write_text(text, encoding="utf-8")
        profile = parse_profile(f"recorded:path={recording}")
        assert [rate_of(profile, second) for second in (0, 4.9, 5)] == [10, 10, 20]


@pytest.mark.parametrize("text", ["second,value\n0,10\n# a pause\n5,20\n", "second|value\n0|10\n5|20\n"])
def test_a_recording_may_use_commas_or_bars(text):
    profile = parse_recording(text)
    assert [rate_of(profile, second) for second in (0, 4.9, 5, 50)] == [10, 10, 20, 20]
