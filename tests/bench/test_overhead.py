"""Ratios of attached to unattached windows, from windows whose answers are plain; no Spark runs here."""

import pytest

from penstock.bench.overhead import ORDER, Window, report, window_of
from penstock.bench.traces import BatchSeen
from penstock.errors import ActionFailed


def windows(attached, alone, blocks=3):
    rates = {"attached": attached, "not attached": alone}
    return [Window(system, rates[system], 1000 / rates[system], 20) for system in ORDER * blocks]


def test_equal_windows_have_a_ratio_of_one():
    found = report(windows(500.0, 500.0))
    assert found.summary["throughput_ratio"] == pytest.approx(1.0)
    assert found.summary["latency_ratio"] == pytest.approx(1.0)
    assert found.met
    assert [row["system"] for row in found.results] == list(ORDER) * 3


def test_two_percent_lost_miss_both_targets():
    found = report(windows(490.0, 500.0))
    assert found.summary["throughput_ratio"] == pytest.approx(0.98)
    assert [target.met for target in found.targets] == [False, False]


def test_a_steady_drift_falls_on_both_sides_alike():
    drifting = [Window(system, 1000.0 - 10 * number, 1.0, 20) for number, system in enumerate(ORDER)]
    assert report(drifting).summary["throughput_ratio"] == pytest.approx(1.0)


def test_one_disturbed_block_does_not_move_the_median_but_raises_doubt():
    calm = windows(500.0, 500.0)
    found = report([Window("attached", 100.0, 10.0, 4), *calm[1:]])
    assert found.summary["throughput_ratio"] == pytest.approx(1.0)
    assert found.summary["throughput_ratio_low"] < 0.7
    assert found.summary["throughput_ratio_standard_error"] > 0.01
    assert not found.met
    assert any(note.startswith("throughput: not measured") for note in found.notes)


def test_one_block_is_never_enough_to_judge_even_when_it_looks_good():
    found = report(windows(550.0, 500.0, blocks=1))
    assert [target.measured for target in found.targets] == [None, None]
    assert not found.met
    assert found.to_json()["summary"]["throughput_ratio_standard_error"] is None


def test_the_driver_share_is_taken_for_each_side():
    attached, alone = (window_of(s, steady(), 0.5, 10.5, used) for s, used in (("a", 0.5), ("b", 0.1)))
    assert (attached.driver_share, alone.driver_share) == pytest.approx((0.05, 0.01))


def steady():
    return [BatchSeen(float(start), 1.0, 100, 0) for start in range(-1, 12)]


def test_a_window_counts_whole_batches_only():
    found = window_of("attached", steady(), 0.5, 10.5)
    assert (found.batches, found.records_per_second, found.batch_seconds) == (9, 100.0, 1.0)


def test_a_window_without_batches_is_said_to_be_one():
    with pytest.raises(ActionFailed, match="only 0 batches"):
        window_of("attached", [], 0.0, 10.0)
