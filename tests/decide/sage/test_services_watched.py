"""The watch over services: how often it is wrong, how soon it is right, and what it remembers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from penstock.decide.sage.services import (
    Correlation,
    ServiceReading,
    ServiceTest,
    ServiceWatch,
    correlate,
    draw_orders,
    estimate_memory,
    measure_chance,
)
from tests.fakes import a_query, a_window

CALM, SLOW = 0.1, 2.0


def watch_services(
    growths: Sequence[float],
    latencies: dict[str, Sequence[float]],
    test: ServiceTest | None = None,
) -> list[Correlation | None]:
    """Look at a window of ten seconds for each sample."""
    readings: dict[str, ServiceReading] = {}
    watch = ServiceWatch(lambda now, age: dict(readings), test or ServiceTest())
    backlog, found = 0.0, []
    for number, growth in enumerate(growths):
        backlog += growth
        end = 10.0 * (number + 1)
        for name, latency in latencies.items():
            readings[name] = ServiceReading(name, end - 1, latency[number])
        found.append(watch.look(a_window(end, queries=(a_query(backlog=backlog),))))
    return found


NOISES = {
    "uniform": lambda random, count: random.uniform(0.1, 0.2, count),
    "heavy": lambda random, count: random.pareto(1.1, count),
    "rare": lambda random, count: (random.random(count) < 0.2) * 1.0,
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("services", [1, 3])
@pytest.mark.parametrize("samples", [6, 12])
def test_noise_alone_explains_a_backlog_no_more_often_than_stated(noise: str, services: int, samples: int):
    """One in twenty is stated: 10 of 200 are expected, and more than 20 come up in one run of a thousand."""
    random, wrong = np.random.default_rng((samples, services)), 0
    test = ServiceTest(false_alarms=0.05)
    for _ in range(200):
        growth = 1000.0 * NOISES[noise](random, samples) + 100.0
        latencies = {f"service-{n}": NOISES[noise](random, samples) for n in range(services)}
        wrong += watch_services(growth, latencies, test)[-1] is not None
    assert wrong <= 20


def drift(random: np.random.Generator, count: int, memory: float) -> np.ndarray:
    """Return noise of spread 1, of which so much stays in the next sample: AR(1)."""
    values = random.normal(size=count)
    for number in range(1, count):
        values[number] = memory * values[number - 1] + math.sqrt(1 - memory**2) * values[number]
    return values


@pytest.mark.parametrize("memory", [0.5, 0.9])
@pytest.mark.parametrize("samples", [7, 16, 30])
def test_noise_that_lasts_explains_a_backlog_hardly_more_often_than_stated(memory: float, samples: int):
    """One in a hundred is stated; 8 of 200 come up in one run of a thousand even if it were one in fifty.

    When orders were drawn as if no sample knew of the one before, it was up to one in seven.
    """
    random, wrong = np.random.default_rng((samples, round(10 * memory))), 0
    for _ in range(200):
        growth = 1000.0 + 100.0 * drift(random, samples, memory)
        wrong += (
            watch_services(growth, {"profiles": 1.0 + 0.1 * drift(random, samples, memory)})[-1] is not None
        )
    assert wrong <= 8


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_slow_service_is_found_as_soon_as_ever_whatever_the_noise(lag: int):
    found = [watch_services(*as_watched(a_slow_service(12, 4 + lag, lag, seed)))[-1] for seed in range(60)]
    assert sum(one is not None for one in found) >= 57


@pytest.mark.parametrize(("memory", "low", "high"), [(0.0, 0.0, 0.25), (0.5, 0.3, 0.7), (0.9, 0.7, 0.95)])
def test_memory_is_estimated_without_the_bias_of_few_samples(memory: float, low: float, high: float):
    random = np.random.default_rng(7)
    for samples in (20, 30, 60, 200):
        middle = np.median([estimate_memory(drift(random, samples, memory)) for _ in range(200)])
        assert low <= middle <= high


def test_a_change_of_level_is_no_memory():
    """Else a service that becomes slow would look like noise that lasts."""
    step = np.where(np.arange(16) < 12, 0.0, 1000.0)
    assert estimate_memory(step) == 0.0
    assert estimate_memory(np.zeros(16)) == estimate_memory(np.array([1.0, math.nan, 2.0])) == 0.0
    noise = np.random.default_rng(2).normal(size=(200, 16))
    assert np.median([estimate_memory(step + one) for one in noise]) < 0.25


def test_without_memory_the_orders_are_permutations_and_with_it_neighbours_are_alike():
    growth, known = np.random.default_rng(3).normal(size=50), np.ones(50, dtype=bool)
    plain = draw_orders(growth, known, 0.0, 400)
    np.testing.assert_allclose(np.sort(plain, axis=1)[7], np.sort(growth - growth.mean()))
    lasting = draw_orders(growth, known, 0.9, 400)
    alike = [np.mean([correlate(row, row, 1) for row in rows]) for rows in (plain, lasting)]
    assert abs(alike[0]) < 0.1 and alike[1] > 0.6


def test_more_services_and_lags_ask_for_more():
    random = np.random.default_rng(5)
    growth, latency = random.normal(size=12), random.normal(size=12)
    alone = measure_chance(growth, [latency], (0,), 0.7, 999)
    assert alone < measure_chance(growth, [latency], (0, 1, 2, 3), 0.7, 999)
    others = [random.normal(size=12) for _ in range(5)]
    assert alone < measure_chance(growth, [latency, *others], (0,), 0.7, 999)


def test_the_chance_is_the_share_of_all_orders_that_correlate_as_much():
    random = np.random.default_rng(1)
    growth, latency = random.normal(size=6), random.normal(size=6)
    most = [max(correlate(latency, np.array(o), lag) for lag in (0, 1)) for o in permutations(growth)]
    for bound in (0.3, 0.6, 0.9):
        share = np.mean([one >= bound for one in most])
        assert measure_chance(growth, [latency], (0, 1), bound, 9999) == pytest.approx(share, abs=0.02)


def test_what_was_not_measured_takes_no_part_in_the_orders():
    random = np.random.default_rng(1)
    growth, latency = random.normal(size=8), random.normal(size=8)
    gaps = np.insert(growth, 3, math.nan), np.insert(latency, 3, 7.0)
    assert measure_chance(gaps[0], [gaps[1]], (0,), 0.5, 4999) == pytest.approx(
        measure_chance(growth, [latency], (0,), 0.5, 4999), abs=0.02
    )


def a_slow_service(calm: int, slow: int, lag: int = 0, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Growth and latency: both rise by ten times their noise, the backlog's growth some samples later."""
    random, count = np.random.default_rng(seed), calm + slow
    latency = np.where(np.arange(count) < calm, CALM, SLOW) * random.uniform(0.9, 1.1, count)
    growth = np.where(np.arange(count) < calm + lag, 0.0, 1000.0) + random.uniform(-100, 100, count)
    return growth, latency


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_service_that_becomes_slow_is_found_before_four_samples_have_grown(lag: int):
    growth, latency = a_slow_service(12, 4 + lag, lag)
    found = watch_services(growth, {"profiles": latency})
    assert found[-1] is not None and found[-1].coefficient > 0.9
    assert found[:12] == [None] * 12


def test_few_samples_are_enough_for_one_that_is_followed_closely():
    growth, latency = a_slow_service(4, 4)
    assert watch_services(growth, {"profiles": latency}, ServiceTest(false_alarms=0.05))[-1] is not None


@pytest.mark.parametrize("samples", [31, 60, 360])
@pytest.mark.parametrize("calm", [12, 100])
def test_a_service_that_stays_slow_still_counts(samples: int, calm: int):
    """Five minutes are thirty samples; 360 are an hour."""
    found = watch_services(*as_watched(a_slow_service(calm, samples)))
    assert found[-1] is not None and found[-1].coefficient > 0.9
    assert all(one is not None for one in found[calm + 4 :])


def as_watched(of: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    return of[0], {"profiles": of[1]}


def test_a_service_that_is_as_fast_as_before_explains_no_growth():
    """It was slow for ten minutes, is back for one, and now the load grows."""
    growth, latency = a_slow_service(30, 60)
    back = np.full(12, CALM)
    later = np.concatenate([growth, np.full(6, -3000.0), np.full(6, 1000.0)])
    found = watch_services(later, {"profiles": np.concatenate([latency, back])})
    assert found[len(growth) - 1] is not None
    assert found[-1] is None


def test_a_service_that_stays_slow_without_a_backlog_has_a_new_level():
    growth, latency = a_slow_service(30, 160)
    growth[60:] = np.random.default_rng(3).uniform(-100, 100, len(growth) - 60)
    growth[-6:] = 1000.0
    found = watch_services(growth, {"profiles": latency})
    assert found[55] is not None, "while the backlog grew"
    assert found[-1] is None, "what it grows by now is something else"
