"""Decisions within hosts and quotas: never above them, never less than asked for without saying so."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.resizer import Limits
from penstock.decide.sage_fit import fit
from penstock.decide.sage_metrics import HeldSize, Rule, Sizing, Symptom

GIB, MIB = 1024.0**3, 1024.0**2
sizes = st.builds(
    HeldSize,
    parallelism=st.integers(1, 20),
    heap_bytes=st.integers(200, 20_000).map(lambda mb: mb * MIB),
    overhead_bytes=st.integers(100, 8_000).map(lambda mb: mb * MIB),
    cores=st.integers(1, 8),
)


@st.composite
def decisions(draw: st.DrawFn) -> tuple[HeldSize, Sizing]:
    held = draw(sizes)
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


limits = st.builds(
    Limits,
    host_cores=st.integers(1, 32),
    host_bytes=st.floats(0.2, 64.0).map(lambda gb: gb * GIB),
    quota_cores=st.integers(1, 400),
    quota_bytes=st.floats(0.2, 400.0).map(lambda gb: gb * GIB),
    most_executors=st.integers(1, 60),
)


@given(decisions(), limits)
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


@given(decisions(), limits)
def test_giving_back_needs_no_leave(case: tuple[HeldSize, Sizing], allowed: Limits):
    larger, decision = case[1].after, case[1]
    back = replace(decision, after=replace(case[0], parallelism=larger.parallelism))
    held = replace(larger, parallelism=larger.parallelism, task_cpus=1, cores=case[0].cores)
    assert fit(held, back, allowed).decision == back
