"""Waiting and response times of queues: Allen-Cunneen for GI/G/k, and the exact M/M/k.

Equations are those of Elastic Pulsar Functions (Auto-DaSP 2021), section 4.2.
Rates are per second; `service` is the rate of one server, so k servers carry k·service. A queue that is fed
as fast as it can serve, or faster, has no steady state: its times are infinite.
"""

from __future__ import annotations

import math

BUSY = 0.7
"""Where equation 2 changes its branch."""


def utilisation(servers: int, arrival: float, service: float) -> float:
    """The share ρ of their time that the servers work."""
    return arrival / (servers * service) if service > 0 else math.inf


def waiting_probability(servers: int, load: float) -> float:
    """The probability P_k that a record finds all servers busy (Elastic Pulsar Functions, equation 2).

    Below 0.7 the exponent is (k + 1) / 2, as in the approximation that the paper cites: it gives M/M/1 its
    exact ρ and meets the other branch at 0.7. Read as √(k + 1), it would give 0.375 for M/M/1 at half load.
    """
    if load >= 1:
        return 1.0
    if load >= BUSY:
        return (math.pow(load, servers) + load) / 2
    return math.pow(load, (servers + 1) / 2)


def waiting_seconds(
    servers: int,
    arrival: float,
    service: float,
    arrival_variation: float = 1.0,
    service_variation: float = 1.0,
) -> float:
    """Equation 1, Allen-Cunneen: T_q ≈ (c_a² + c_s²) / 2k · P_k / (μ (1 − ρ)).

    The variations are squared coefficients: 1 for Poisson arrivals or exponential service, 0 for constant.
    """
    load = utilisation(servers, arrival, service)
    if load >= 1:
        return math.inf
    spread = (arrival_variation + service_variation) / (2 * servers)
    return spread * waiting_probability(servers, load) / (service * (1 - load))


def response_seconds(
    servers: int,
    arrival: float,
    service: float,
    arrival_variation: float = 1.0,
    service_variation: float = 1.0,
) -> float:
    """Equation 3: one service and the wait before it."""
    waiting = waiting_seconds(servers, arrival, service, arrival_variation, service_variation)
    return 1 / service + waiting if service > 0 else math.inf


def erlang_c(servers: int, arrival: float, service: float) -> float:
    """The exact probability to wait in M/M/k, by the recursion of Erlang B, which cannot overflow."""
    load = utilisation(servers, arrival, service)
    if load >= 1:
        return 1.0
    offered, blocked = arrival / service, 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def markov_response_seconds(servers: int, arrival: float, service: float) -> float:
    """The exact mean response time of M/M/k: 1/μ + C(k, λ/μ) / (kμ − λ)."""
    if utilisation(servers, arrival, service) >= 1:
        return math.inf
    return 1 / service + erlang_c(servers, arrival, service) / (servers * service - arrival)


def least_stable_servers(arrival: float, service: float, most_load: float = 1.0) -> int:
    """The fewest servers that are not overloaded: ρ below 1, and at most `most_load`; at least one."""
    if arrival <= 0:
        return 1
    exact = arrival / (service * most_load)
    # dust of the division must not cost an instance, but a load of exactly one is no steady state
    servers = max(1, math.ceil(exact * (1 - 1e-9)))
    return servers if utilisation(servers, arrival, service) < 1 - 1e-9 else servers + 1
