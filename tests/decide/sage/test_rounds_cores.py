"""P3 and P8: a busy slot is not a starved one, and cores that tasks cannot use are given back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.sage.metrics import HeldSize, Rule, SizingInput, TooSmall
from penstock.decide.sage.rounds import decide, learn_too_small
from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadSettings
from tests.decide.sizing import A_SIZE, Recorder, decision_on, fires_on


def of_cores(slots: int, task_cpus: int) -> HeldSize:
    return replace(A_SIZE, cores=slots * task_cpus, task_cpus=task_cpus)


@pytest.mark.parametrize("used", [3.85, 3.99, 4.0, 4.2])
def test_slots_that_are_busy_with_single_threaded_tasks_are_not_starved(used: float):
    """Four tasks of one thread each keep four cores busy, and a collector runs beside them."""
    assert fires_on(of_cores(4, 1), cpu_used_cores=used) is Rule.NONE


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize("held", [2, 3, 8])
def test_cores_that_single_threaded_tasks_cannot_use_are_given_back(slots: int, held: int):
    decision = decision_on(of_cores(slots, held), cpu_used_cores=0.99 * slots)
    assert decision.rule is Rule.CPU_DOWN
    assert (decision.after.task_cpus, decision.after.cores) == (1, slots)


@pytest.mark.parametrize(
    ("used", "held", "after"),
    [
        # 1.3 cores a slot: two
        (5.2, 1, 2),
        # ten threads a slot: half as many again at a time, from one at least one more
        (40.0, 1, 2),
        (40.0, 2, 3),
        (40.0, 4, 6),
        # 4.5 cores a slot: five, though half as many again would be six
        (18.0, 4, 5),
    ],
)
def test_tasks_with_more_threads_than_cores_get_more_but_no_more_than_they_use(used, held, after):
    decision = decision_on(of_cores(4, held), cpu_used_cores=used)
    assert decision.rule is Rule.CPU_UP
    assert (decision.after.task_cpus, decision.after.cores) == (after, 4 * after)


@given(slots=st.integers(1, 16), held=st.integers(1, 8), threads=st.floats(0.1, 12.0), uncapped=st.booleans())
def test_cores_settle_where_each_is_used(slots: int, held: int, threads: float, uncapped: bool):
    """Tasks of so many busy threads, on hosts that cap an executor at its cores and on those that do not."""
    settings, known, size, course = SageSettings(), TooSmall(), of_cores(slots, held), [held]
    for _ in range(12):
        used = slots * (threads if uncapped else min(threads, float(size.task_cpus)))
        clock = Recorder()
        now = clock.run(40, cpu_used_cores=used, gc_seconds=0.0)
        decision = decide(SizingInput(now, clock.history, size, too_small=known), settings).decision
        if decision is None:
            break
        known, size = learn_too_small(known, size, decision), decision.after
        course.append(size.task_cpus)
    else:
        pytest.fail(f"it never settles: {course}")
    assert course in (sorted(course), sorted(course, reverse=True)), "no step is undone"
    if threads <= 1.0:
        assert size.task_cpus == 1
    if uncapped:
        assert size.task_cpus * 1.1 >= threads


def test_collectors_that_run_beside_one_slot_are_no_threads_of_its_task():
    """Of ten seconds a task works nine and a half; for the rest eight threads collect: 1.35 cores."""
    assert fires_on(of_cores(1, 1), cpu_used_cores=1.35, gc_seconds=0.5) is Rule.NONE
    assert fires_on(of_cores(1, 1), cpu_used_cores=1.35, gc_seconds=0.1) is Rule.CPU_UP


def test_one_calm_sample_is_no_starvation():
    assert fires_on(cpu_used_cores=[*[5.2] * 37, 3.0, 5.2, 5.2]) is Rule.NONE


def test_the_bound_is_above_what_full_slots_use():
    with pytest.raises(BadSettings, match="cpu_high"):
        SageSettings(cpu_high=0.95)
