"""Decisions become whole executors within hosts and quotas; what does not fit is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.sage.metrics import HeldSize, Rule, Sizing, Symptom
from penstock.decide.sage.resizer import Allocation, Host, Limits, allocate, fit

GIB, MIB = 1024.0**3, 1024.0**2
WIDE = Limits(host_cores=16, host_bytes=64 * GIB, quota_cores=10_000, quota_bytes=10_000 * GIB)


def a_size(executors: int, slots: int, executor_bytes: float, cores_per_slot: int = 1) -> HeldSize:
    cores = slots * cores_per_slot
    return HeldSize(executors, executor_bytes, 0.0, cores=cores, task_cpus=cores_per_slot)


def test_the_papers_example():
    """2,000 threads become 125 containers of 16 (section 4)."""
    threads = allocate(a_size(125, 16, GIB), WIDE)
    assert (threads.executors, threads.cores, threads.shortfalls) == (125, 16, ())


def test_an_executor_is_cut_down_to_a_host():
    given = allocate(a_size(2, 32, 100 * GIB), WIDE)
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
    given = allocate(a_size(10, 4, 8 * GIB), limits)
    assert given.executors == executors
    assert said in given.shortfalls[-1]


def test_a_slot_larger_than_any_host_gets_nothing():
    given = allocate(a_size(4, 1, GIB, cores_per_slot=32), WIDE)
    assert given.executors == 0 and "a slot needs 32 cores" in given.shortfalls[0]


sizes = st.floats(0.1 * GIB, 200 * GIB)
wanted_sizes = st.builds(a_size, st.integers(1, 100), st.integers(1, 40), sizes, st.integers(1, 8))
host_lists = st.lists(st.builds(Host, st.integers(0, 64), st.floats(0, 256 * GIB)), max_size=6).map(tuple)
all_limits = st.builds(
    Limits, st.integers(1, 64), sizes, st.integers(1, 2000), sizes, st.integers(1, 500), host_lists
)


@given(wanted_sizes, all_limits)
def test_never_above_a_limit_and_never_below_the_need_without_saying_so(size: HeldSize, limits: Limits):
    given = allocate(size, limits)
    assert given.cores <= limits.host_cores and given.executor_bytes <= limits.host_bytes
    assert given.executors * given.cores <= limits.quota_cores
    assert given.executors * given.executor_bytes <= limits.quota_bytes
    assert given.executors <= limits.most_executors
    if limits.hosts and given.executors:
        room = sum(_room(host, given.cores, given.executor_bytes) for host in limits.hosts)
        assert given.executors <= room
    enough = _slots(given) >= size.parallelism * size.slots and given.executor_bytes >= size.heap_bytes
    assert enough or given.shortfalls


@given(wanted_sizes, all_limits)
def test_no_whole_executor_more_than_the_need(size: HeldSize, limits: Limits):
    given = allocate(size, limits)
    assert _slots(given) - given.slots_per_executor < size.parallelism * size.slots


def _slots(given: Allocation) -> int:
    return given.executors * given.slots_per_executor


def _room(host: Host, cores: int, memory: float) -> int:
    count = 0
    while (count + 1) * cores <= host.free_cores and (count + 1) * memory <= host.free_bytes:
        count += 1
    return count


held_sizes = st.builds(
    HeldSize,
    parallelism=st.integers(1, 20),
    heap_bytes=st.integers(200, 20_000).map(lambda mb: mb * MIB),
    overhead_bytes=st.integers(100, 8_000).map(lambda mb: mb * MIB),
    cores=st.integers(1, 8),
)


@st.composite
def decisions(draw: st.DrawFn) -> tuple[HeldSize, Sizing]:
    held = draw(held_sizes)
    more = draw(st.floats(1.01, 4.0))
    after = draw(
        st.sampled_from(
            [
                replace(held, heap_bytes=round(held.heap_bytes * more / MIB + 1) * MIB),
                replace(held, overhead_bytes=round(held.overhead_bytes * more / MIB + 1) * MIB),
                replace(held, parallelism=held.parallelism + draw(st.integers(1, 30))),
                replace(held, heap_bytes=held.heap_bytes * 2, overhead_bytes=held.overhead_bytes * 2),
                replace(held, task_cpus=2, cores=held.cores * 2),
            ]
        )
    )
    return held, Sizing(Rule.HEAP_UP, Symptom.HEAP_USED, 0.9, 0.85, after)


tight_limits = st.builds(
    Limits,
    host_cores=st.integers(1, 32),
    host_bytes=st.floats(0.2, 64.0).map(lambda gb: gb * GIB),
    quota_cores=st.integers(1, 400),
    quota_bytes=st.floats(0.2, 400.0).map(lambda gb: gb * GIB),
    most_executors=st.integers(1, 60),
)


@given(decisions(), tight_limits)
def test_what_is_let_through_fits_and_what_is_cut_is_said(case: tuple[HeldSize, Sizing], allowed: Limits):
    held, decision = case
    fitted = fit(held, decision, allowed)
    if fitted.decision is None:
        assert fitted.notes
        return
    after = fitted.decision.after
    each = after.heap_bytes + after.overhead_bytes
    assert each <= allowed.host_bytes and after.cores <= allowed.host_cores
    assert after.parallelism * each <= allowed.quota_bytes * (1 + 1e-9)
    assert after.parallelism * after.cores <= allowed.quota_cores
    assert after.parallelism <= allowed.most_executors
    assert after.heap_bytes >= held.heap_bytes and after.overhead_bytes >= held.overhead_bytes
    assert after.parallelism >= held.parallelism and after != held
    assert fitted.notes or after == decision.after


@given(decisions(), tight_limits)
def test_giving_back_needs_no_leave(case: tuple[HeldSize, Sizing], allowed: Limits):
    larger, decision = case[1].after, case[1]
    back = replace(decision, after=replace(case[0], parallelism=larger.parallelism))
    held = replace(larger, parallelism=larger.parallelism, task_cpus=1, cores=case[0].cores)
    assert fit(held, back, allowed).decision == back
