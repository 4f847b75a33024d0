"""Every rule of Sage: fires, does not fire, held back by a higher priority, an action in flight, a pin."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Resize, Scale
from penstock.decide.sage.metrics import (
    HeldSize,
    Overrides,
    Parameter,
    Rule,
    Sizing,
    SizingInput,
    Symptom,
    TooSmall,
)
from penstock.decide.sage.rounds import (
    NO_NEED,
    PINNED,
    SERVICE,
    VETOED,
    WHY,
    SizingRound,
    decide,
    learn_too_small,
)
from penstock.decide.sage.settings import SageSettings
from penstock.decide.sage.sizes import make_proposal
from penstock.errors import BadMetrics, BadSettings
from tests.decide.sage.reference import changed
from tests.decide.sizing import A_SIZE, GIB, MIB, Recorder, decision_on, fired, fires_on

SETTINGS = SageSettings()

CASES: dict[Rule, tuple[HeldSize, dict[str, object], HeldSize]] = {
    Rule.HEAP_UP: (A_SIZE, {"heap_used_bytes": 5.5 * GIB}, replace(A_SIZE, heap_bytes=9 * GIB)),
    Rule.MEMORY_UP: (A_SIZE, {"memory_used_bytes": 6.89 * GIB}, replace(A_SIZE, overhead_bytes=1396 * MIB)),
    Rule.CPU_UP: (A_SIZE, {"cpu_used_cores": 5.2}, replace(A_SIZE, cores=8, task_cpus=2)),
    Rule.PARALLELISM_UP: (
        A_SIZE,
        {"backlog_records": [1000.0 * n for n in range(1, 41)], "needed_parallelism": 7.0},
        replace(A_SIZE, parallelism=7),
    ),
    Rule.PARALLELISM_DOWN: (
        replace(A_SIZE, parallelism=9),
        {"needed_parallelism": [4.0, 6.0] * 20},
        replace(A_SIZE, parallelism=6),
    ),
    Rule.HEAP_DOWN: (replace(A_SIZE, heap_bytes=12 * GIB), {}, replace(A_SIZE, heap_bytes=5940 * MIB)),
    Rule.MEMORY_DOWN: (
        replace(A_SIZE, overhead_bytes=4 * GIB),
        {},
        replace(A_SIZE, overhead_bytes=1024 * MIB),
    ),
    Rule.CPU_DOWN: (replace(A_SIZE, cores=12, task_cpus=3), {}, replace(A_SIZE, cores=4, task_cpus=1)),
}
"""Rule → what is held, what is measured all the time, what is held after the one decision."""


def a_round(rule: Rule, **changes: object) -> SizingInput:
    held, metrics, _ = CASES[rule]
    clock = Recorder()
    now = clock.run(40, **metrics)
    return SizingInput(**{"now": now, "history": clock.history, "held": held, **changes})


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_fires_and_goes_straight_to_its_size(rule: Rule):
    decision = decide(a_round(rule), SETTINGS).decision
    assert decision is not None and decision.rule is rule
    assert decision.after == CASES[rule][2]


def proposed(given: SizingInput) -> Scale | Resize:
    decision = decide(given, SETTINGS).decision
    assert decision is not None
    return make_proposal(given.held, decision, given.overrides)


def test_nothing_fires_at_a_size_that_is_right():
    clock = Recorder()
    given = SizingInput(clock.run(40), clock.history, A_SIZE)
    assert decide(given, SETTINGS) == SizingRound()


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_waits_until_its_window_is_full(rule: Rule):
    """The clock steps sample by sample: the decision comes with the first sample that fills the window."""
    held, metrics, _ = CASES[rule]
    least = SETTINGS.least_up_samples if rule <= Rule.PARALLELISM_UP else SETTINGS.least_down_samples
    clock = Recorder()
    constant = {k: v for k, v in metrics.items() if isinstance(v, float)}
    rising = {k: v for k, v in metrics.items() if not isinstance(v, float)}
    for sample in range(1, least + 1):
        now = clock.run(1, **constant, **{k: v[sample - 1] for k, v in rising.items()})
        round_ = decide(SizingInput(now, clock.history, held), SETTINGS)
        assert (round_.decision is not None and round_.decision.rule is rule) == (sample == least), sample


@pytest.mark.parametrize("rule", CASES)
def test_samples_from_before_the_last_action_count_for_nothing(rule: Rule):
    given = a_round(rule)
    assert fired(replace(given, fresh_after=given.now - 15.0)) is Rule.NONE


@pytest.mark.parametrize("rule", CASES)
def test_an_application_that_fell_silent_is_not_judged_by_old_samples(rule: Rule):
    given = a_round(rule)
    assert decide(replace(given, now=given.now + 3600.0), SETTINGS).awaiting


@pytest.mark.parametrize("rule", CASES)
def test_no_rule_is_applied_while_an_action_is_in_flight(rule: Rule):
    outcome = decide(a_round(rule, action_in_flight=True), SETTINGS)
    assert outcome.decision is None and "in flight" in outcome.awaiting


@pytest.mark.parametrize("rule", CASES)
def test_a_pin_keeps_the_parameter(rule: Rule):
    held, _, after = CASES[rule]
    pinned = Overrides(pinned=frozenset({changed(held, after)}))
    outcome = decide(a_round(rule, overrides=pinned), SETTINGS)
    assert outcome.decision is None
    assert outcome.held_back[0] == (rule, PINNED)


@pytest.mark.parametrize("rule", CASES)
def test_a_veto_silences_the_rule(rule: Rule):
    vetoed = Overrides(vetoed=frozenset({rule}))
    outcome = decide(a_round(rule, overrides=vetoed), SETTINGS)
    assert (outcome.decision, outcome.held_back[0]) == (None, (rule, VETOED))


HIGHER = {
    Rule.MEMORY_UP: {"heap_used_bytes": 5.5 * GIB},
    Rule.CPU_UP: {"memory_used_bytes": 6.9 * GIB},
    Rule.PARALLELISM_UP: {"cpu_used_cores": 5.2},
    Rule.PARALLELISM_DOWN: {"gc_seconds": 2.0},
    Rule.HEAP_DOWN: {"memory_kill_count": 1.0},
    Rule.MEMORY_DOWN: {"heap_committed_bytes": 4.0 * GIB},
    Rule.CPU_DOWN: {"needed_parallelism": 2.0},
}


@pytest.mark.parametrize("rule", HIGHER)
def test_a_higher_priority_goes_first_and_alone(rule: Rule):
    held, metrics, _ = CASES[rule]
    decision = decision_on(held, **{**metrics, **HIGHER[rule]})
    assert decision.rule < rule


@pytest.mark.parametrize("rule", CASES)
def test_force_decides_without_a_symptom_where_there_is_an_amount(rule: Rule):
    clock = Recorder()
    now = clock.run(40, needed_parallelism=[6.0] * 40)
    held = {Rule.PARALLELISM_UP: A_SIZE}.get(rule, CASES[rule][0])
    forced = Overrides(forced=rule, by="ops", vetoed=frozenset({rule}))
    given = SizingInput(now, clock.history, held, overrides=forced)
    answer = proposed(given)
    assert isinstance(answer, Scale | Resize) and answer.reason.startswith(f"P{int(rule)} ")
    assert "forced by ops" in answer.reason


def test_a_pin_outranks_a_force_and_that_is_said():
    forced = Overrides(forced=Rule.HEAP_UP, pinned=frozenset({Parameter.HEAP}))
    clock = Recorder()
    outcome = decide(SizingInput(clock.run(40), clock.history, A_SIZE, overrides=forced), SETTINGS)
    assert (outcome.decision, outcome.held_back) == (None, ((Rule.HEAP_UP, PINNED),))
    assert fired(a_round(Rule.CPU_UP, overrides=forced)) is Rule.CPU_UP, "nor does it stop the others"


def test_a_force_that_finds_nothing_to_decide_stops_no_other_rule():
    forced = Overrides(forced=Rule.PARALLELISM_UP)
    assert fired(a_round(Rule.HEAP_UP, overrides=forced)) is Rule.HEAP_UP
    clock = Recorder()
    nothing = SizingInput(clock.run(1), clock.history, A_SIZE, overrides=forced)
    assert "samples" in decide(nothing, SETTINGS).awaiting


def test_a_scale_up_that_is_held_back_forbids_scale_downs():
    clock = Recorder()
    now = clock.run(40, cpu_used_cores=9.5, needed_parallelism=2.0)
    held = replace(A_SIZE, parallelism=8, cores=8, task_cpus=2)
    given = SizingInput(now, clock.history, held)
    assert fired(replace(given, overrides=Overrides(vetoed=frozenset({Rule.CPU_UP})))) is Rule.NONE


@pytest.mark.parametrize(
    "said", [Overrides(vetoed=frozenset({Rule.CPU_UP})), Overrides(pinned=frozenset({Parameter.CPU}))]
)
def test_a_scale_up_that_is_held_back_leaves_those_after_it_free(said: Overrides):
    clock = Recorder()
    growing = [1000.0 * number for number in range(40)]
    now = clock.run(40, cpu_used_cores=5.2, needed_parallelism=9.0, backlog_records=growing)
    given = SizingInput(now, clock.history, A_SIZE)
    assert fired(given) is Rule.CPU_UP
    assert fired(replace(given, overrides=said)) is Rule.PARALLELISM_UP


class TestHeap:
    @pytest.mark.parametrize(
        ("metrics", "symptom"),
        [
            ({"out_of_memory_count": [0.0] * 39 + [1.0]}, Symptom.OUT_OF_MEMORY),
            ({"gc_seconds": 1.5}, Symptom.GC_TIME),
            ({"gc_count": 25.0}, Symptom.GC_COUNT),
        ],
    )
    def test_any_of_its_bounds_asks_for_more(self, metrics: dict[str, object], symptom: Symptom):
        decision = decision_on(**metrics)
        assert (decision.rule, decision.symptom) == (Rule.HEAP_UP, symptom)
        assert decision.after.heap_bytes == 9 * GIB

    def test_a_saw_tooth_that_falls_after_each_collection_is_no_pressure(self):
        assert fires_on(heap_used_bytes=[5.9 * GIB, 2.0 * GIB] * 20) is Rule.NONE

    def test_spill_first_raises_the_share_then_the_heap(self):
        clock = Recorder()
        given = SizingInput(clock.run(40, spilled_bytes=5e8), clock.history, A_SIZE)
        answer = proposed(given)
        assert isinstance(answer, Resize) and answer.settings == {"spark.memory.fraction": "0.7"}
        full = proposed(replace(given, held=replace(A_SIZE, memory_fraction=0.8)))
        assert isinstance(full, Resize) and full.settings == {"spark.executor.memory": "9216m"}

    def test_the_driver_is_sized_too(self):
        clock = Recorder()
        given = SizingInput(clock.run(40, driver_heap_used_bytes=1.9 * GIB), clock.history, A_SIZE)
        answer = proposed(given)
        assert isinstance(answer, Resize) and answer.settings == {"spark.driver.memory": "3072m"}

    def test_a_pinned_heap_does_not_keep_the_driver_from_growing(self):
        clock = Recorder()
        now = clock.run(40, driver_heap_used_bytes=1.9 * GIB, heap_used_bytes=5.5 * GIB)
        pinned = Overrides(pinned=frozenset({Parameter.HEAP}))
        decision = decide(SizingInput(now, clock.history, A_SIZE, overrides=pinned), SETTINGS).decision
        assert decision is not None and decision.symptom is Symptom.DRIVER_HEAP_USED

    def test_only_use_that_lasts_keeps_the_heap_large(self):
        """5.5 of 5.8 GiB committed between two collections is no need; for four samples in a row it is."""
        held = replace(A_SIZE, heap_bytes=12 * GIB)
        brim = [5.5 * GIB, 5.5 * GIB, 5.5 * GIB, 3.0 * GIB] * 10
        assert decision_on(held, heap_used_bytes=brim).after.heap_bytes == 5940 * MIB, "what is committed"
        lasts = [3.0 * GIB] * 20 + [5.5 * GIB] * 4 + [3.0 * GIB] * 16
        assert decision_on(held, heap_used_bytes=lasts).after.heap_bytes == 6626 * MIB, "5.5 GiB at 85 %"

    def test_the_heap_is_never_shrunk_below_what_is_committed_nor_after_spill(self):
        held = replace(A_SIZE, heap_bytes=12 * GIB)
        assert fires_on(held, spilled_bytes=[0.0] * 15 + [1.0] + [0.0] * 24) is Rule.NONE

    @pytest.mark.parametrize(
        ("metric", "value", "usual"),
        [("gc_seconds", 0.8, 0.1), ("spilled_bytes", 1e8, 0.0), ("heap_used_bytes", 5.7 * GIB, 3.6 * GIB)],
    )
    def test_one_report_that_was_lost_hides_nothing_from_a_shrink(self, metric, value, usual):
        """GC, spill, or use that lasted, all over by now; each metric is a datagram of its own."""
        held = replace(A_SIZE, heap_bytes=6.5 * GIB)
        for before, fires in ((value, Rule.NONE), (usual, Rule.HEAP_DOWN)):
            for told in ([before] * 30, [*[before] * 20, math.nan, *[before] * 9]):
                assert fires_on(held, **{metric: [*told, *[usual] * 10]}) is fires

    @pytest.mark.parametrize("metric", ["gc_seconds", "heap_used_bytes"])
    def test_the_heap_is_not_shrunk_by_what_was_never_measured(self, metric):
        assert fires_on(replace(A_SIZE, heap_bytes=12 * GIB), **{metric: math.nan}) is Rule.NONE


class TestParallelism:
    def test_one_step_back_is_no_monotonic_growth(self):
        clock = Recorder()
        backlog = [1000.0 * n for n in range(1, 41)]
        backlog[-2] = backlog[-3]
        now = clock.run(40, backlog_records=backlog, needed_parallelism=7.0)
        assert fired(SizingInput(now, clock.history, A_SIZE)) is Rule.NONE

    def test_growth_that_follows_a_service_is_not_scaled_and_says_so(self):
        given = a_round(Rule.PARALLELISM_UP, service_correlation=0.9)
        outcome = decide(given, SETTINGS)
        assert (outcome.decision, outcome.held_back) == (None, ((Rule.PARALLELISM_UP, SERVICE),))
        assert "remote service" in WHY[SERVICE]
        assert fired(replace(given, service_correlation=0.3)) is Rule.PARALLELISM_UP

    def test_growth_without_a_need_is_told_and_forbids_scale_downs(self):
        clock = Recorder()
        now = clock.run(40, backlog_records=[1000.0 * n for n in range(1, 41)], needed_parallelism=4.0)
        outcome = decide(SizingInput(now, clock.history, replace(A_SIZE, heap_bytes=12 * GIB)), SETTINGS)
        assert (outcome.decision, outcome.held_back) == (None, ((Rule.PARALLELISM_UP, NO_NEED),))

    def test_samples_with_an_unknown_need_count_for_nothing(self):
        assert fires_on(needed_parallelism=[2.0, math.nan] * 20) is Rule.NONE, "15 of 30 are not 20"
        enough = decision_on(needed_parallelism=[2.0, 2.0, 3.0, math.nan] * 10)
        assert enough.after.parallelism == 3

    def test_it_is_a_scale_with_the_reason(self):
        answer = proposed(a_round(Rule.PARALLELISM_UP))
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 7}
        assert "the backlog grew in every sample" in answer.reason and "4 → 7" in answer.reason


def test_what_was_too_small_once_is_not_tried_again():
    up = decide(a_round(Rule.HEAP_UP), SETTINGS).decision
    assert up is not None
    known = learn_too_small(TooSmall(), A_SIZE, up)
    assert known == TooSmall(heap_bytes=6 * GIB)
    clock = Recorder()
    given = SizingInput(clock.run(40), clock.history, up.after)
    assert fired(given) is Rule.HEAP_DOWN
    assert fired(replace(given, too_small=known)) is Rule.NONE


def test_resizes_name_sparks_keys():
    expected = {
        Rule.HEAP_UP: {"spark.executor.memory": "9216m"},
        Rule.MEMORY_UP: {"spark.executor.memoryOverhead": "1396m"},
        Rule.CPU_UP: {"spark.executor.cores": "8", "spark.task.cpus": "2"},
        Rule.HEAP_DOWN: {"spark.executor.memory": "5940m"},
    }
    for rule, settings in expected.items():
        answer = proposed(a_round(rule))
        assert isinstance(answer, Resize) and answer.settings == settings


def test_what_makes_no_sense_is_refused():
    with pytest.raises(BadMetrics, match="no application"):
        HeldSize(0, GIB, GIB)
    with pytest.raises(BadMetrics, match="order"):
        replace(Recorder().history, **{c: np.zeros(2) for c in ("at", *_columns())})
    with pytest.raises(BadSettings, match="overhead_target"):
        SageSettings(overhead_target=0.95)


def _columns() -> list[str]:
    from penstock.decide.sage.metrics import METRICS

    return list(METRICS)


sizes = st.builds(
    HeldSize,
    st.integers(1, 50),
    st.floats(0.5 * GIB, 64 * GIB),
    st.floats(0.0, 16 * GIB),
    st.sampled_from([0.4, 0.6, 0.8]),
    st.just(8),
    st.sampled_from([1, 2, 4]),
    st.floats(0.5 * GIB, 8 * GIB),
)


@given(
    held=sizes,
    used=st.floats(0.1, 1.0),
    committed=st.floats(0.1, 1.0),
    beside=st.floats(0.0, 8.0),
    cpu=st.floats(0.1, 8.0),
    needed=st.integers(1, 60),
)
def test_a_scale_down_never_calls_for_its_own_remedy(
    held: HeldSize, used: float, committed: float, beside: float, cpu: float, needed: int
):
    """Decide, apply, decide again on the same metrics: the second decision undoes nothing of the first."""
    clock = Recorder()
    heap = held.heap_bytes * max(used, committed)
    metrics = {
        "heap_used_bytes": held.heap_bytes * used,
        "heap_committed_bytes": heap,
        "memory_used_bytes": heap + beside * GIB,
        "cpu_used_cores": cpu,
        "needed_parallelism": float(needed),
    }
    now = clock.run(40, **metrics)
    first = decide(SizingInput(now, clock.history, held), SETTINGS).decision
    if first is None or first.rule <= Rule.PARALLELISM_UP:
        return
    second = decide(SizingInput(now, clock.history, first.after), SETTINGS).decision
    assert second is None or second.rule > first.rule or not _undoes(first, second, held)


def _undoes(first: Sizing, second: Sizing, held: HeldSize) -> bool:
    return changed(held, first.after) is changed(first.after, second.after)
