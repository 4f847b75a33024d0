"""Queueing formulas, by hand from the paper and against exact results; variations found again in windows."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decide.queueing.queues import (
    FEWEST_SAMPLES,
    MOST_VARIATION,
    UNKNOWN,
    Variation,
    batched_response_seconds,
    erlang_c,
    least_stable_servers,
    markov_response_seconds,
    response_seconds,
    utilisation,
    waiting_probability,
    waiting_seconds,
)


@pytest.mark.parametrize(
    ("servers", "load", "expected"),
    [
        (1, 0.5, 0.5),
        (3, 0.5, 0.25),  # 0.5 ^ ((3 + 1) / 2)
        (3, 0.6, 0.36),
        (1, 0.8, 0.8),  # (0.8 + 0.8) / 2
        (2, 0.8, 0.72),  # (0.64 + 0.8) / 2
        (3, 0.9, 0.8145),  # (0.729 + 0.9) / 2
        (4, 0.7, 0.47005),  # the upper branch holds at 0.7 itself: (0.2401 + 0.7) / 2
        (2, 1.0, 1.0),
        (2, 3.0, 1.0),
        (5, 0.0, 0.0),
    ],
)
def test_waiting_probability_by_hand(servers, load, expected):
    assert waiting_probability(servers, load) == pytest.approx(expected)


def test_allen_cunneen_by_hand():
    # 8/s on two servers of 5/s: rho = 0.8, P = 0.72; (1 + 0.5) / 4 · 0.72 / (5 · 0.2) = 0.27
    assert waiting_seconds(2, 8, 5, 1.0, 0.5) == pytest.approx(0.27)
    assert response_seconds(2, 8, 5, 1.0, 0.5) == pytest.approx(0.47)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.69, 0.7, 0.71, 0.95])
class TestOneServer:
    """With one server and Poisson arrivals the approximation is exact (Pollaczek-Khinchine)."""

    def test_exponential_service(self, load):
        assert waiting_seconds(1, load * 10, 10) == pytest.approx(load / (10 * (1 - load)))
        assert response_seconds(1, load * 10, 10) == pytest.approx(1 / (10 - load * 10))

    def test_constant_service_waits_half_as_long(self, load):
        assert waiting_seconds(1, load * 10, 10, 1.0, 0.0) == pytest.approx(load / (2 * 10 * (1 - load)))

    def test_constant_arrivals_and_service_never_wait(self, load):
        assert waiting_seconds(1, load * 10, 10, 0.0, 0.0) == 0


class TestErlangC:
    def test_by_hand(self):
        # a = 1, k = 2: (1/2 · 2) / (1 + 1 + 1/2 · 2) = 1/3; a = 2, k = 3: (8/6 · 3) / (1 + 2 + 2 + 4) = 4/9
        assert erlang_c(2, 1, 1) == pytest.approx(1 / 3)
        assert erlang_c(3, 2, 1) == pytest.approx(4 / 9)
        assert markov_response_seconds(3, 2, 1) == pytest.approx(1 + 4 / 9)

    @given(st.floats(0.01, 0.99))
    def test_one_server_waits_with_its_load(self, load):
        assert erlang_c(1, load, 1) == pytest.approx(load)
        assert markov_response_seconds(1, load, 1) == pytest.approx(1 / (1 - load))

    @given(st.integers(1, 60), st.floats(0.05, 0.98))
    def test_the_sum_as_the_textbook_writes_it(self, servers, load):
        offered = servers * load
        last = offered**servers / math.factorial(servers) / (1 - load)
        others = sum(offered**count / math.factorial(count) for count in range(servers))
        assert erlang_c(servers, offered, 1) == pytest.approx(last / (others + last))

    def test_thousands_of_servers_do_not_overflow(self):
        assert 0 < erlang_c(5000, 4950, 1) < 1

    @pytest.mark.parametrize("servers", [1, 2, 3, 5, 8])
    @pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.8, 0.9])
    def test_the_approximation_is_near(self, servers, load):
        arrival = servers * load
        exact = markov_response_seconds(servers, arrival, 1)
        # the worst of these is eight servers at 0.7, where the upper branch waits too long by a tenth
        assert response_seconds(servers, arrival, 1) == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("times", [response_seconds, waiting_seconds, markov_response_seconds])
def test_a_full_queue_has_no_steady_state(times):
    assert times(2, 10, 5) == math.inf
    assert times(2, 11, 5) == math.inf
    assert erlang_c(2, 11, 5) == 1


def test_without_service_there_is_no_response():
    assert utilisation(1, 1, 0) == math.inf
    assert response_seconds(1, 1, 0) == math.inf


@pytest.mark.parametrize(
    ("arrival", "most_load", "servers"),
    [(0, 1.0, 1), (9, 1.0, 1), (10, 1.0, 2), (11, 1.0, 2), (16, 0.8, 2), (16.1, 0.8, 3), (3, 0.3, 1)],
)
def test_least_stable_servers_of_rate_ten(arrival, most_load, servers):
    assert least_stable_servers(arrival, 10, most_load) == servers


@given(st.integers(1, 50), st.floats(0.01, 0.99), st.floats(0.001, 1000), st.floats(0, 10), st.floats(0, 10))
def test_another_server_never_makes_it_slower(servers, load, service, arrivals, services):
    arrival = servers * load * service
    now = response_seconds(servers, arrival, service, arrivals, services)
    assert now >= 1 / service
    assert response_seconds(servers + 1, arrival, service, arrivals, services) <= now * (1 + 1e-9)


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6), st.floats(0.1, 1))
def test_least_stable_servers_are_stable_and_least(arrival, service, most_load):
    servers = least_stable_servers(arrival, service, most_load)
    assert utilisation(servers, arrival, service) <= most_load * (1 + 1e-8)
    assert utilisation(servers, arrival, service) < 1
    if servers > 1:
        assert utilisation(servers - 1, arrival, service) > min(most_load, 1 - 1e-8) * (1 - 1e-8)


RANDOM_SEED = 11


def watched(gaps, services, rate=200.0, windows=400, seconds=10.0, kept=400):
    """Windows over a random stream: times between arrivals and service times drawn with mean one."""
    random = np.random.default_rng(RANDOM_SEED)
    arrivals = np.cumsum(gaps(random, int(1.2 * rate * seconds * windows))) / rate
    counts, _ = np.histogram(arrivals, bins=windows, range=(0.0, seconds * windows))
    variation = Variation(windows_kept=kept)
    for count in counts.tolist():
        useful = float(services(random, count).sum()) * 0.003
        variation.remember(count / seconds, seconds, [(float(count), useful)])
    return variation


def constant(random, count):
    return np.ones(count)


def exponential(random, count):
    return random.exponential(1.0, count)


def erlang_four(random, count):
    return random.gamma(4, 1 / 4, count)


@pytest.mark.parametrize(("drawn", "squared"), [(constant, 0.0), (erlang_four, 0.25), (exponential, 1.0)])
def test_known_distributions_are_found_again(drawn, squared):
    variation = watched(drawn, drawn)
    # a median of four hundred squares is good to a fifth
    assert variation.of_arrivals == pytest.approx(squared, rel=0.3, abs=0.01)
    assert variation.of_services == pytest.approx(squared, rel=0.3, abs=0.01)


def test_until_there_is_evidence_poisson_is_assumed():
    variation = Variation()
    assert (variation.of_arrivals, variation.of_services) == (UNKNOWN, UNKNOWN)
    for _ in range(FEWEST_SAMPLES - 1):
        variation.remember(5.0, 10.0, [(50.0, 1.0)])
    assert (variation.of_arrivals, variation.of_services) == (UNKNOWN, UNKNOWN)
    for _ in range(2):
        variation.remember(5.0, 10.0, [(50.0, 1.0)])
    assert (variation.of_arrivals, variation.of_services) == (0.0, 0.0)


def test_a_step_of_the_load_is_not_irregularity():
    variation = Variation()
    for rate in [10.0] * 6 + [1000.0] * 6:
        variation.remember(rate, 10.0, [(rate, 1.0)])
    assert variation.of_arrivals == 0.0


def test_old_windows_are_forgotten():
    variation = Variation(windows_kept=6)
    for rate in (1.0, 9.0, 1.0, 9.0, 1.0, 9.0):
        variation.remember(rate, 10.0, [(rate * 10, rate)])
    assert variation.of_arrivals > 1
    for _ in range(6):
        variation.remember(5.0, 10.0, [(50.0, 5.0)])
    assert variation.of_arrivals == 0.0


def test_what_is_beyond_all_measure_is_bounded():
    variation = Variation()
    for rate in (1e6, 2e6) * 5:
        variation.remember(rate, 10.0, [(rate, rate), (rate, 3 * rate)])
    assert (variation.of_arrivals, variation.of_services) == (MOST_VARIATION, MOST_VARIATION)


def test_idle_windows_say_nothing():
    variation = Variation()
    for _ in range(10):
        variation.remember(0.0, 10.0, [(0.0, 0.0)])
    assert (variation.of_arrivals, variation.of_services) == (UNKNOWN, UNKNOWN)


class TestBatches:
    @pytest.mark.parametrize(
        ("load", "trigger", "fixed", "seconds"),
        [
            # every 10 s a batch of 2 s: 5 s of waiting, and the batch
            (0.1, 10.0, 1.0, 7.0),
            # no trigger to wait for: 2 s fixed at a load of a third make batches of 3 s, one after the other
            (1 / 3, 1.0, 2.0, 4.5),
            (0.0, 1.0, 0.25, 0.75),
            (1.0, 1.0, 0.25, math.inf),
        ],
    )
    def test_by_hand(self, load, trigger, fixed, seconds):
        assert batched_response_seconds(load, trigger, fixed) == pytest.approx(seconds)

    @settings(max_examples=40)
    @given(st.floats(0.05, 0.85), st.floats(0.2, 3.0), st.floats(0.1, 2.0))
    def test_as_a_simulation_that_follows_every_record(self, load, trigger, fixed):
        rate, start, ages, came = 200.0, 0.0, [], 0
        for number in range(400):
            waiting = range(came, math.floor(start * rate) + 1)
            end = start + fixed + len(waiting) * load / rate
            if number >= 200:  # the first batches find no steady state
                ages += [end - record / rate for record in waiting]
            came, start = waiting.stop, max(start + trigger, end)
        assert batched_response_seconds(load, trigger, fixed) == pytest.approx(fmean(ages), rel=0.03)

    @given(st.floats(0.0, 0.9), st.floats(0.0, 0.09), st.floats(0.1, 5), st.floats(0.0, 5))
    def test_less_load_never_takes_longer(self, load, more, trigger, fixed):
        assert batched_response_seconds(load, trigger, fixed) <= batched_response_seconds(
            load + more, trigger, fixed
        )
