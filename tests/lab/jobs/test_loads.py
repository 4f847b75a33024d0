"""Loads reach their peak, and follow the shape that their names promise."""

import pytest

from penstock.errors import BadInput
from penstock.simulate.profiles import parse_profile
from penstock_lab.jobs.loads import DAY, LOADS, load_profile


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
    assert (up[0], up[119], up[120]) == pytest.approx((40, 40, 120))
    assert (down[0], down[119], down[120]) == pytest.approx((120, 120, 40))
    assert ramp == sorted(ramp) and ramp[0] == pytest.approx(12)
    assert nights.count(0) == nights.count(120.0) == 120 and nights[239] == 0


def test_a_day_is_the_one_of_the_file_compressed():
    day = rates("day", peak=982)
    assert day[:120:10] == pytest.approx([70, 52, 37, 68, 165, 510, 859, 982, 659, 519, 460, 487])
    assert sum(day) / 10 == pytest.approx(9513)
    assert DAY.read_text().startswith("# A day of hourly counts")


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
