"""Decisions become whole executors; what does not fit is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.resizer import Amount, Host, Limits, allocate
from penstock.errors import BadSettings

GIB = 1024.0**3
WIDE = Limits(host_cores=16, host_bytes=64 * GIB, quota_cores=10_000, quota_bytes=10_000 * GIB)


def test_the_papers_examples():
    """100 GB become 25 containers of 4 GB; 2,000 threads become 125 containers of 16 (section 4)."""
    memory = allocate(Amount(1, 1, executor_bytes=4 * GIB, total_bytes=100 * GIB), WIDE)
    assert (memory.executors, memory.executor_bytes, memory.shortfalls) == (25, 4 * GIB, ())
    threads = allocate(Amount(2000, 16, executor_bytes=GIB), WIDE)
    assert (threads.executors, threads.cores, threads.shortfalls) == (125, 16, ())


def test_an_executor_is_cut_down_to_a_host():
    given = allocate(Amount(64, 32, executor_bytes=100 * GIB), WIDE)
    assert (given.executors, given.slots_per_executor, given.executor_bytes) == (4, 16, 64 * GIB)
    assert "16 slots each instead" in given.shortfalls[0] and "64 GiB instead" in given.shortfalls[1]


@pytest.mark.parametrize(
    ("limits", "executors", "said"),
    [
        (replace(WIDE, quota_cores=20), 5, "the quota is 20 cores"),
        (replace(WIDE, quota_bytes=26 * GIB), 3, "the quota is 26 GiB"),
        (replace(WIDE, most_executors=2), 2, "at most 2 executors"),
        (replace(WIDE, hosts=(Host(8, 64 * GIB),)), 2, "8 cores and 64 GiB are free on 1 hosts"),
        (replace(WIDE, hosts=(Host(7, 64 * GIB), Host(5, 64 * GIB))), 2, "scattered over 2 hosts"),
        (replace(WIDE, hosts=(Host(0, 0.0),)), 0, "10 executors are needed and 0 fit"),
    ],
)
def test_what_does_not_fit_is_said_with_what_was_done(limits: Limits, executors: int, said: str):
    given = allocate(Amount(40, 4, executor_bytes=8 * GIB), limits)
    assert given.executors == executors
    assert said in given.shortfalls[-1]


def test_a_slot_larger_than_any_host_gets_nothing():
    given = allocate(Amount(4, 1, cores_per_slot=32, executor_bytes=GIB), WIDE)
    assert given.executors == 0 and "a slot needs 32 cores" in given.shortfalls[0]


def test_amounts_and_limits_must_make_sense():
    with pytest.raises(BadSettings, match="slots"):
        Amount(0, 1, executor_bytes=GIB)
    with pytest.raises(BadSettings, match="quota_bytes"):
        Limits(1, GIB, 1, float("nan"))


sizes = st.floats(0.1 * GIB, 200 * GIB)
amounts = st.builds(
    Amount,
    st.integers(1, 3000),
    st.integers(1, 40),
    st.integers(1, 8),
    sizes,
    st.one_of(st.just(0.0), st.floats(GIB, 5000 * GIB)),
)
host_lists = st.lists(st.builds(Host, st.integers(0, 64), st.floats(0, 256 * GIB)), max_size=6).map(tuple)
all_limits = st.builds(
    Limits, st.integers(1, 64), sizes, st.integers(1, 2000), sizes, st.integers(1, 500), host_lists
)


@given(amounts, all_limits)
def test_never_above_a_limit_and_never_below_the_need_without_saying_so(amount: Amount, limits: Limits):
    given = allocate(amount, limits)
    assert given.cores <= limits.host_cores and given.executor_bytes <= limits.host_bytes
    assert given.executors * given.cores <= limits.quota_cores
    assert given.total_bytes <= limits.quota_bytes
    assert given.executors <= limits.most_executors
    if limits.hosts and given.executors:
        room = sum(_room(host, given.cores, given.executor_bytes) for host in limits.hosts)
        assert given.executors <= room
    enough = (
        given.slots >= amount.slots
        and given.executor_bytes >= amount.executor_bytes
        and given.total_bytes >= amount.total_bytes * (1 - 1e-9)
    )
    assert enough or given.shortfalls


@given(amounts, all_limits)
def test_no_whole_executor_more_than_the_need(amount: Amount, limits: Limits):
    given = allocate(amount, limits)
    fewer = given.executors - 1
    if fewer >= 1:
        short_of_slots = fewer * given.slots_per_executor < amount.slots
        assert short_of_slots or fewer * given.executor_bytes < amount.total_bytes


def _room(host: Host, cores: int, memory: float) -> int:
    count = 0
    while (count + 1) * cores <= host.free_cores and (count + 1) * memory <= host.free_bytes:
        count += 1
    return count
