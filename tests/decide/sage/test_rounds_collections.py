"""P6 looks at what P1 looks at: on the same metrics neither undoes the other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.decide.sage.metrics import Rule, SizingInput, TooSmall
from penstock.decide.sage.rounds import decide, learn_too_small
from penstock.decide.sage.settings import SageSettings
from tests.decide.sizing import A_SIZE, GIB, Recorder, fires_on

LARGE = replace(A_SIZE, heap_bytes=12 * GIB)
"""Half of it is committed, so that P1 does not look at collections yet."""


@pytest.mark.parametrize(("count", "rule"), [(25.0, Rule.NONE), (21.0, Rule.NONE), (19.0, Rule.HEAP_DOWN)])
def test_many_short_collections_keep_a_heap_large(count: float, rule: Rule):
    """150 and 126 a minute are above P1's bound of 120, 114 are not; all take a hundredth of the time."""
    assert fires_on(LARGE, gc_count=count) is rule


@pytest.mark.parametrize(("metric", "burst"), [("gc_seconds", 1.5), ("gc_count", 25.0)])
@pytest.mark.parametrize("ago", [0, 10, 20])
def test_a_minute_of_collections_among_five_keeps_a_heap_large(metric: str, burst: float, ago: int):
    """On average they are few, and a smaller heap would have met P1's bound in that minute."""
    calm = {"gc_seconds": 0.1, "gc_count": 3.0}[metric]
    told = [calm] * (34 - ago) + [burst] * 6 + [calm] * ago
    assert fires_on(LARGE, **{metric: told}) is Rule.NONE


def test_a_heap_is_not_shrunk_where_collections_were_never_counted():
    assert fires_on(LARGE, gc_count=math.nan) is Rule.NONE


def test_use_that_lasted_counts_though_other_metrics_of_its_samples_were_lost():
    """P1 would look at the last six samples; of three of them it is not known what was committed."""
    used = [3.6 * GIB] * 34 + [5.6 * GIB] * 6
    lost = [5.8 * GIB] * 34 + [5.8 * GIB, math.nan] * 3
    clock = Recorder()
    now = clock.run(40, heap_used_bytes=used, heap_committed_bytes=lost, memory_used_bytes=6.6 * GIB)
    decision = decide(SizingInput(now, clock.history, LARGE), SageSettings()).decision
    assert decision is not None and decision.rule is Rule.HEAP_DOWN
    assert decision.after.heap_bytes >= 5.6 * GIB / 0.85


LOST = ("heap_used_bytes", "gc_seconds", "gc_count")
levels = st.lists(st.sampled_from([0.0, 0.3, 0.45, 0.6, 1.1, 3.0]), min_size=7, max_size=7)
"""Shares of P1's bounds, each for six samples."""


@given(
    seconds=levels,
    counts=levels,
    used=st.lists(st.floats(0.1, 1.0), min_size=7, max_size=7),
    committed=st.floats(0.05, 1.0),
    heap=st.floats(1.0, 64.0),
    lost=st.sets(
        st.tuples(st.sampled_from(["heap_used_bytes", "gc_seconds", "gc_count"]), st.integers(0, 41))
    ),
)
@example([0.3] * 7, [1.1] * 7, [0.6] * 7, 0.5, 12.0, set())
def test_a_heap_that_was_lowered_is_not_raised_on_the_same_metrics(
    seconds: list[float], counts: list[float], used: list[float], committed: float, heap: float, lost: set
):
    clock, taken = Recorder(), committed * heap * GIB
    metrics = {
        "gc_seconds": [0.1 * 10.0 * share for share in seconds for _ in range(6)],
        "gc_count": [120.0 / 6 * share for share in counts for _ in range(6)],
        "heap_used_bytes": [taken * share for share in used for _ in range(6)],
    }
    for metric, sample in lost:
        metrics[metric][sample] = math.nan
    now = clock.run(42, heap_committed_bytes=taken, memory_used_bytes=taken + 0.8 * GIB, **metrics)
    size, known, course = replace(A_SIZE, heap_bytes=heap * GIB), TooSmall(), []
    for _ in range(8):
        decision = decide(SizingInput(now, clock.history, size, too_small=known), SageSettings()).decision
        if decision is None:
            break
        known, size = learn_too_small(known, size, decision), decision.after
        course.append(decision.rule)
    lowered = course.index(Rule.HEAP_DOWN) if Rule.HEAP_DOWN in course else len(course)
    assert Rule.HEAP_UP not in course[lowered:], course
