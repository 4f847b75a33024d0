"""Loads reach their peak, and follow the shape that their names promise."""

import math

import pytest

from penstock.errors import BadInput
from penstock.simulate.profiles import parse_profile
from penstock_lab.jobs.loads import LOADS, MOST_STEPS, load_profile, share_at


def rate_at(profile, second):
    return (profile.cumulative(second + 0.01) - profile.cumulative(second)) / 0.01


def rates(name, peak=120.0, seconds=240.0):
    profile = parse_profile(load_profile(name, peak, seconds))
    return [round(rate_at(profile, second), 6) for second in range(int(seconds))]


@pytest.mark.parametrize("name", LOADS)
def test_every_load_reaches_its_peak_and_never_passes_it(name):
    assert max(rates(name)) == pytest.approx(120)


def test_shapes():
    up, down, ramp, nights = (rates(name) for name in ("step-up", "step-down", "ramp", "nights"))
    assert set(rates("steady")) == {120.0}
    assert (up[0], up[119], up[120]) == pytest.approx((60, 60, 120))
    assert (down[0], down[119], down[120]) == pytest.approx((120, 120, 60))
    assert ramp == sorted(ramp) and ramp[0] == pytest.approx(12) and ramp[119] < 120 == ramp[120]
    assert rates("stairs")[::40] == pytest.approx([90, 90, 30, 120, 60, 90])
    assert nights.count(0) == nights.count(120.0) == 120 and nights[239] == 0


def test_the_made_day_by_hand():
    # 3 h: the bumps are 5 h and 9.5 h away; 8 h: the evening is 9.5 h away; 17.5 h: the morning is
    at_three = 0.1 + 0.9 * math.exp(-(5**2) / (2 * 1.5**2)) + 0.6 * math.exp(-(9.5**2) / (2 * 2.5**2))
    assert share_at(3.0) == pytest.approx(at_three) == pytest.approx(0.1039, abs=1e-4)
    assert share_at(8.0) == pytest.approx(1.0 + 0.6 * math.exp(-7.22))
    assert share_at(17.5) == pytest.approx(0.7, abs=1e-6)
    assert share_at(0.0) == pytest.approx(share_at(24.0)), "the day closes"


def test_the_made_day_has_two_peaks_and_is_the_same_every_time():
    day = rates("day", peak=100, seconds=960)  # ten seconds a quarter of an hour
    assert day == rates("day", peak=100, seconds=960)
    quarters = day[5::10]
    assert 7 * 4 <= quarters.index(max(quarters)) <= 9 * 4
    assert max(quarters) == pytest.approx(100)
    clean = [share_at((quarter + 0.5) / 4) for quarter in range(96)]
    factors = [rate / share for rate, share in zip(quarters, clean, strict=True)]
    assert max(factors) / min(factors) <= 1.1 / 0.9 + 1e-9
    assert len(set(factors)) > 90, "each quarter of an hour has noise of its own"
    assert max(quarters) / (sum(quarters) / 96) == pytest.approx(2.62, abs=0.01)


def test_a_recording_may_have_one_rate_a_line(tmp_path):
    recording = tmp_path / "rates.csv"
    recording.write_text("# from a gauge\nrate\n1\n4\n2\n")
    profile = parse_profile(load_profile("day", 8, 9, recording))
    assert [rate_at(profile, second) for second in (0, 3, 6)] == pytest.approx([2, 8, 4])


def test_a_long_recording_is_averaged(tmp_path):
    recording = tmp_path / "long.csv"
    recording.write_text("".join(f"{second}|{second % 2 * 2}\n" for second in range(2 * MOST_STEPS)))
    text = load_profile("day", 5, 60, recording)
    assert text.count("=") == MOST_STEPS
    assert parse_profile(text).cumulative(60) == pytest.approx(300), "0 and 2 in turn are 1 in the mean"


@pytest.mark.parametrize(("text", "complaint"), [("1\nmany\n", "line 2"), ("0,1\n1,-4\n", "line 2")])
def test_a_wrong_line_is_named(tmp_path, text, complaint):
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(BadInput, match=rf"wrong\.csv, {complaint}"):
        load_profile("day", 8, 9, tmp_path / "wrong.csv")


def test_another_recording(tmp_path):
    recording = tmp_path / "two.csv"
    recording.write_text("second,value\n100,1\n130,4\n160,2\n")
    profile = parse_profile(load_profile("day", 8, 9, recording))
    found = [rate_at(profile, second) for second in (0, 2.9, 3, 5.9, 6, 8.9)]
    assert found == pytest.approx([2, 2, 8, 8, 4, 4])


def test_bad_loads_are_refused(tmp_path):
    with pytest.raises(BadInput, match="did you mean 'ramp'"):
        load_profile("rampe", 10, 10)
    with pytest.raises(BadInput, match="above 0, not 0 and 10"):
        load_profile("steady", 0, 10)
    with pytest.raises(BadInput, match=r"none\.csv cannot be read"):
        load_profile("day", 10, 10, tmp_path / "none.csv")
    (tmp_path / "flat.csv").write_text("0,0\n1,0\n")
    with pytest.raises(BadInput, match="a value above 0"):
        load_profile("day", 10, 10, tmp_path / "flat.csv")
