"""Outcomes of made-up batches are what was put in, and a rate is sustained only where the run shows it."""

import numpy as np
import pytest

from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.batches import BatchSeen, LoadOutcome, judge_few, judge_load, measure_load

CONSTANT = parse_profile("constant:1000")


def found(growth, error=0.0, batches=30, seconds=30.0):
    return LoadOutcome(1000.0, 990.0, 800.0, 1200.0, 1500.0, 400.0, growth, batches, seconds, error)


@pytest.mark.parametrize(
    ("growth", "error", "expected"),
    [(0.0, 5.0, True), (-200.0, 5.0, True), (300.0, 50.0, False), (45.0, 10.0, None), (55.0, 10.0, None)],
)
def test_the_whole_interval_must_be_on_one_side(growth, error, expected):
    judged = judge_load(found(growth, error), CONSTANT)
    assert judged.sustained is expected
    assert (judged.longer_seconds is None) == (expected is not None)


@pytest.mark.parametrize("growth", [0.0, 900.0])
def test_four_batches_never_tell(growth):
    judged = judge_load(found(growth, batches=4, seconds=32.0), CONSTANT)
    assert (judged.sustained, judged.longer_seconds) == (None, 60.0)
    assert judged.why == "only 4 batches ended in 32 s, and 5 are the fewest that tell"
    assert judge_few(0, 90.0).why.startswith("no batch ended")


def test_five_batches_tell_what_is_plain():
    assert judge_load(found(0.0, 1.0, batches=5), CONSTANT).sustained is True
    assert judge_load(found(600.0, 50.0, batches=5), CONSTANT).sustained is False


@pytest.mark.parametrize(
    ("profile", "seconds", "expected"),
    [
        ("sine:mean=100,amplitude=50,period=60", 30.0, None),
        ("sine:mean=100,amplitude=50,period=60", 61.0, True),
        ("sine:mean=100,amplitude=0,period=60", 30.0, True),
        ("bursts:base=100,peak=400,every=120,length=10", 60.0, None),
        ("bursts:base=100,peak=100,every=120,length=10", 60.0, True),
        ("steps:0=100,60=300", 30.0, True),
    ],
)
def test_a_load_that_swings_needs_one_period(profile, seconds, expected):
    judged = judge_load(found(0.0, seconds=seconds), parse_profile(profile))
    assert judged.sustained is expected
    if expected is None:
        assert "less than one period" in judged.why and judged.longer_seconds >= 90


def test_the_run_asked_for_is_longer_but_not_without_end():
    near = judge_load(found(50.0, 40.0), CONSTANT)
    assert near.longer_seconds == 240.0
    assert judge_load(found(0.0, 30.0), CONSTANT).longer_seconds == 50.0


def noisy(batches, seconds_each, scatter, growth=0.0):
    """Batches that end early and late in turn, at 1000 records/s; `growth` lets them fall behind."""
    made = []
    for number in range(batches):
        began = number * seconds_each
        behind = growth * began
        first, end = (int(max(0.0, 1000 * at - behind)) for at in (began - seconds_each, began))
        late = scatter * (-1) ** number
        made.append(BatchSeen(began, 0.7 * seconds_each + late, end - first, end, first))
    return made


def test_batches_that_scatter_leave_doubt_and_more_of_them_remove_it():
    few, many = (
        judge_load(measure_load(CONSTANT, 0.0, noisy(count, 5.0, 1.5), since=0.0), CONSTANT)
        for count in (6, 40)
    )
    assert (few.sustained, many.sustained) == (None, True)
    behind = measure_load(CONSTANT, 0.0, noisy(40, 5.0, 1.5, growth=200.0), since=0.0)
    assert judge_load(behind, CONSTANT).sustained is False
    assert behind.backlog_growth_per_second == pytest.approx(200.0, abs=3 * behind.backlog_growth_error)


def test_the_error_is_that_of_least_squares():
    seen = noisy(12, 5.0, 0.9)
    measured = measure_load(CONSTANT, 0.0, seen, since=0.0)
    waiting = [1000 * batch.end - batch.records_read for batch in seen]
    line, covariance = np.polyfit([batch.end for batch in seen], waiting, 1, cov=True)
    assert measured.backlog_growth_per_second == pytest.approx(line[0])
    assert measured.backlog_growth_error == pytest.approx(covariance[0, 0] ** 0.5)


def steady(batches=10, rate=100, seconds=2.0, taken=1.0):
    """A trigger of 2 s: each batch takes what was offered before it began."""
    each = int(seconds * rate)
    return [BatchSeen(n * seconds, taken, each, n * each, (n - 1) * each) for n in range(1, batches + 1)]


def test_a_load_that_is_kept_up_with_is_sustained():
    found = measure_load(parse_profile("constant:100"), 0.0, steady(), since=0)
    assert found.sustained
    assert found.offered_per_second == pytest.approx(100)
    assert found.records_per_second == pytest.approx(100, rel=0.06)
    # offered evenly over the 2 s before the batch, committed 1 s after its beginning
    assert found.p50_ms == pytest.approx(2000, abs=50)
    assert found.p99_ms == pytest.approx(3000, abs=50)
    assert found.backlog_records == pytest.approx(100)


def test_a_backlog_that_grows_is_not_sustained():
    slow = [BatchSeen(3.0 * n, 3.0, 200, 200 * (n + 1), 200 * n) for n in range(10)]
    found = measure_load(parse_profile("constant:100"), 0.0, slow, since=0)
    assert not found.sustained
    assert found.backlog_growth_per_second == pytest.approx(100 / 3, rel=0.01)
    assert found.records_per_second == pytest.approx(200 / 3, rel=0.01)


def test_too_few_batches_say_nothing():
    assert measure_load(parse_profile("constant:100"), 0.0, steady(2), since=0) is None
    assert measure_load(parse_profile("constant:100"), 0.0, steady(10), since=17) is None
