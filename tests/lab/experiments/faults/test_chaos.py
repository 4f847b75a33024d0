"""Chaos replays by its seed, and what grows without bound is seen."""

from __future__ import annotations

from penstock_lab.experiments.faults.chaos import KINDS, TAIL_SECONDS, DriverUse, find_growth, plan_chaos


def test_a_seed_gives_the_same_faults_at_the_same_moments():
    first = plan_chaos(7, 3600.0)
    assert first == plan_chaos(7, 3600.0) != plan_chaos(8, 3600.0)
    assert {strike.kind for strike in first} == set(KINDS), "an hour has all of them"
    assert 60 < len(first) < 180
    assert all(strike.at < 3600.0 - TAIL_SECONDS for strike in first)
    assert 2 <= len(plan_chaos(7, 180.0)) <= 6


def held(run: int, step: int, **growth: float) -> DriverUse:
    figures = {"memory_mb": 400.0, "descriptors": 100.0, "threads": 40.0}
    return DriverUse(run, **{name: value + growth.get(name, 0.0) * step for name, value in figures.items()})


def test_what_stays_or_varies_has_not_grown():
    assert find_growth([held(1, step % 5, memory_mb=20.0) for step in range(400)]) == []


def test_each_thing_that_grows_is_named():
    for name, each in (("memory_mb", 2.0), ("descriptors", 1.0), ("threads", 0.5)):
        (told,) = find_growth([held(1, step, **{name: each}) for step in range(400)])
        assert told.startswith(f"{name} grew from")


def test_a_driver_that_was_started_again_is_not_compared_with_the_one_before():
    samples = [held(1, 0) for _ in range(50)] + [held(2, step, threads=1.0) for step in range(200)]
    assert find_growth(samples)[0].startswith("threads grew")
    assert find_growth([held(1, 0)] * 100 + [held(2, 999, threads=1.0)] * 60) == []


def test_too_few_samples_show_nothing():
    assert "too few" in find_growth([held(1, 0)] * 3)[0]
