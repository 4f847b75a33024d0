"""The manager: waiting, activation, corrections, rollback, limits, bad input, and its log."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.manager import (
    Accepted,
    ManagerSettings,
    NothingToDo,
    Rejected,
    ScalingManager,
    Statistic,
    Waiting,
)
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, MoveState, Resize, Scale
from tests.decide.situations import INTERVAL, hold, outcome, scale, window

EAGER = ManagerSettings(warm_up_intervals=0, activation_intervals=1, scale_down_delay=0.0)


class Run:
    """A manager with a stepped clock: one policy interval a step."""

    def __init__(self, settings: ManagerSettings = EAGER, held=4) -> None:
        self.manager = ScalingManager(settings)
        self.now = 1000.0
        self.held = held
        self.backlog = 0.0

    def step(self, answer, **load):
        self.now += INTERVAL
        offered, observed = load.get("offered", 1000.0), load.get("observed", load.get("offered", 1000.0))
        self.backlog = max(0.0, self.backlog + (offered - observed) * INTERVAL)
        return self.manager.judge(self.now, window(self.now, self.held, backlog=self.backlog, **load), answer)

    def perform(self, verdict, status=Status.DONE, observed=None) -> None:
        assert isinstance(verdict, Accepted)
        self.manager.action_started(self.now, verdict.action)
        ended = outcome(verdict.action, status, observed)
        self.manager.action_ended(self.now, verdict.action, ended)
        if status is not Status.FAILED:
            self.held = ended.observed[EXECUTORS] if isinstance(self.held, int) else ended.observed


def size(verdict) -> int:
    assert isinstance(verdict, Accepted), verdict
    return verdict.action.parallelism[EXECUTORS]


def test_intervals_after_the_start_are_ignored():
    run = Run(replace(EAGER, warm_up_intervals=2))
    first, second, third = (run.step(scale(6)) for _ in range(3))
    assert isinstance(first, Waiting)
    assert "warming up" in first.reason
    # the first window began at 1000, so windows count from 1020 on, and the first of them ends at 1030
    assert first.until == 1030.0
    assert isinstance(second, Waiting)
    assert size(third) == 6


def test_intervals_after_an_action_are_ignored():
    run = Run(replace(EAGER, warm_up_intervals=1))
    run.step(scale(6))
    run.perform(run.step(scale(6)))
    assert isinstance(run.step(scale(8)), Waiting)
    assert size(run.step(scale(8))) == 8


def test_nothing_is_judged_while_an_action_is_under_way():
    run = Run()
    accepted = run.step(scale(6))
    run.manager.action_started(run.now, accepted.action)
    waiting = run.step(scale(8))
    assert isinstance(waiting, Waiting)
    assert "under way" in waiting.reason


def test_not_ready_is_waiting_with_its_own_reason():
    verdict = Run().step(NotReady("nothing ran yet", "a batch", until=1234.0))
    assert verdict == Waiting("nothing ran yet; awaiting a batch", 1234.0)


def test_hold_is_nothing_to_do():
    assert Run().step(hold()) == NothingToDo("the size is right")


def test_several_decisions_are_considered():
    run = Run(replace(EAGER, activation_intervals=3))
    first, second, third = run.step(scale(6)), run.step(scale(20)), run.step(scale(7))
    assert isinstance(first, Waiting)
    assert "1 of 3" in first.reason
    assert isinstance(second, Waiting)
    assert size(third) == 7


def test_the_maximum_can_be_taken_instead():
    run = Run(replace(EAGER, activation_intervals=3, activation_statistic=Statistic.MAXIMUM))
    verdicts = [run.step(scale(wanted)) for wanted in (6, 20, 7)]
    assert size(verdicts[-1]) == 20


@pytest.mark.parametrize(
    ("needs", "left"),
    [((4, 20), None), ((20, 4), None), ((6, 7), 7), ((7, 6), 7), ((2, 3), 3), ((2, 4), None)],
)
def test_of_two_decisions_one_outlier_does_not_decide(needs, left):
    run = Run(replace(EAGER, activation_intervals=2))
    verdicts = [run.step(hold() if need == 4 else scale(need)) for need in needs]
    if left is None:
        assert isinstance(verdicts[-1], NothingToDo)
    else:
        assert size(verdicts[-1]) == left


def test_a_change_is_told_in_the_words_of_the_decision_that_asked_for_it():
    run = Run(replace(EAGER, activation_intervals=3))
    run.step(Scale({EXECUTORS: 6}, "first words", ExpectedEffect("")))
    run.step(Scale({EXECUTORS: 6}, "second words", ExpectedEffect("")))
    verdict = run.step(hold())
    assert size(verdict) == 6
    assert verdict.action.reason == "second words"


def test_decisions_far_apart_are_not_consecutive():
    run = Run(replace(EAGER, activation_intervals=2))
    run.step(scale(6))
    run.now += 20 * INTERVAL
    assert isinstance(run.step(scale(6)), Waiting)


def test_not_ready_in_between_does_not_start_over():
    run = Run(replace(EAGER, activation_intervals=2))
    run.step(scale(6))
    run.step(NotReady("a long batch runs"))
    assert size(run.step(scale(6))) == 6


def test_costs_that_measurements_miss_are_made_up_for():
    run = Run(replace(EAGER, activation_intervals=2))
    verdicts = [run.step(hold(), offered=1000.0, observed=500.0) for _ in range(2)]
    # twice as much is offered as is read: 4 · 2 = 8
    assert isinstance(verdicts[0], NothingToDo)
    assert size(verdicts[1]) == 8
    assert "offered is 2.00 times observed" in verdicts[1].action.reason


@pytest.mark.parametrize(
    "load",
    [
        {"offered": 1000.0, "observed": 700.0},  # within the ratio of 1.5
        {"offered": 1000.0, "observed": 0.0},  # stalled: the ratio says nothing
        {"offered": 1000.0, "observed": 500.0, "busy": 0.2},  # read with a limit: executors would idle
        {"offered": 1000.0, "observed": 1000.0},
    ],
)
def test_no_correction_where_it_would_not_help(load):
    run = Run(replace(EAGER, activation_intervals=2))
    assert [type(run.step(hold(), **load)) for _ in range(3)] == [NothingToDo] * 3


def test_low_rates_without_a_growing_backlog_are_not_corrected():
    run = Run()
    for _ in range(4):
        run.backlog = 0.0  # so that it is the same 6000 records in every window
        assert isinstance(run.step(hold(), offered=1000.0, observed=400.0), NothingToDo)


def test_no_correction_while_the_policy_begins_to_ask_for_growth():
    run = Run(replace(EAGER, activation_intervals=2))
    run.step(hold(), offered=1000.0, observed=500.0)
    verdict = run.step(scale(6), offered=1000.0, observed=500.0)
    assert isinstance(verdict, NothingToDo)
    assert size(run.step(scale(6), offered=1000.0, observed=500.0)) == 6


def test_reductions_that_the_band_dismissed_do_not_count_towards_the_delay():
    run = Run(replace(EAGER, scale_down_delay=30.0))
    dismissed = [run.step(scale(3, utilisation=0.7)) for _ in range(10)]
    delayed = [run.step(scale(1, utilisation=0.2)) for _ in range(4)]
    assert {verdict.guardrail for verdict in dismissed} == {"utilisation-band"}
    assert [type(verdict) for verdict in delayed] == [Rejected, Rejected, Rejected, Accepted]


def test_the_correction_leaves_sources_and_unscalable_operators_alone():
    run = Run(replace(EAGER, activation_intervals=2), held={"read": 2, "map": 4, "write": 1})
    verdict = [run.step(hold(), offered=1000.0, observed=500.0) for _ in range(2)][-1]
    assert isinstance(verdict, Accepted)
    assert verdict.action.parallelism == {"read": 2, "map": 8, "write": 1}


def test_overrunning_batches_count_as_falling_behind():
    run = Run()
    run.step(hold(), busy=1.3)
    verdict = run.step(scale(3, utilisation=0.3), busy=1.3)
    assert isinstance(verdict, Rejected)
    assert verdict.guardrail == "falling-behind"


def test_minor_growth_is_not_ignored_while_the_backlog_grows():
    run = Run(replace(EAGER, ignore_changes_below=3))
    ignored = run.step(scale(5))
    assert isinstance(ignored, Rejected)
    assert ignored.guardrail == "minor-change"
    assert size([run.step(scale(5), offered=1000.0, observed=800.0) for _ in range(2)][-1]) == 5


def test_a_scale_down_that_no_longer_keeps_up_is_rolled_back_and_not_tried_again():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(2)))
    run.step(hold(), observed=700.0)
    verdict = run.step(hold(), observed=700.0)
    assert size(verdict) == 4
    assert "does worse" in verdict.action.reason
    run.perform(verdict)
    refused = run.step(scale(2))
    assert isinstance(refused, Rejected)
    assert refused.guardrail == "rolled-back"
    # at half the load, what was learned no longer holds
    run.step(scale(2), offered=500.0)
    assert size(run.step(scale(2), offered=500.0)) == 2


def test_growth_that_has_yet_to_work_off_a_backlog_is_not_rolled_back():
    run = Run()
    run.perform(run.step(scale(8), observed=400.0, busy=2.5))
    # batches hold what waited meanwhile, so they overrun by even more, and yet more is read than is offered
    verdicts = [run.step(hold(), observed=1500.0, busy=4.0) for _ in range(3)]
    assert all(isinstance(verdict, NothingToDo) for verdict in verdicts), verdicts


def test_growth_that_costs_throughput_is_rolled_back():
    run = Run()
    run.step(hold(), observed=800.0)
    run.perform(run.step(scale(8), observed=800.0))
    run.step(hold(), observed=600.0)
    verdict = run.step(hold(), observed=600.0)
    assert size(verdict) == 4
    run.perform(verdict)
    refused = [run.step(scale(8), observed=800.0) for _ in range(2)][-1]
    assert isinstance(refused, Rejected)
    assert refused.guardrail == "rolled-back"


def test_rollback_can_be_off():
    run = Run(replace(EAGER, rollback=False))
    run.step(hold())
    run.perform(run.step(scale(2)))
    verdicts = [run.step(hold(), observed=700.0) for _ in range(2)]
    assert [type(verdict) for verdict in verdicts] == [NothingToDo, NothingToDo]


@pytest.mark.parametrize(
    "after",
    [
        {"busy": 0.95},  # busier, and it keeps up: that is what a scale-down is for
        {"offered": 1500.0, "observed": 1300.0},  # the load grew meanwhile
        {"offered": 1000.0, "observed": 960.0},  # within what counts as worse
    ],
)
def test_no_rollback_where_nothing_got_worse_by_the_change(after):
    run = Run()
    run.step(hold(), busy=0.4)
    run.perform(run.step(scale(2), busy=0.4))
    assert [type(run.step(hold(), **after)) for _ in range(2)] == [NothingToDo, NothingToDo]


def test_a_drained_backlog_is_no_lost_throughput():
    run = Run()
    run.backlog = 100_000.0
    run.step(hold(), observed=2000.0)
    run.perform(run.step(scale(6), observed=2000.0))
    assert [type(run.step(hold())) for _ in range(2)] == [NothingToDo, NothingToDo]


def test_a_change_from_outside_ends_the_comparison():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(2)))
    run.held = 1
    verdicts = [run.step(hold(), observed=700.0) for _ in range(2)]
    assert [type(verdict) for verdict in verdicts] == [NothingToDo, NothingToDo]


def test_a_failed_action_is_not_rolled_back():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(2)), Status.FAILED)
    verdicts = [run.step(hold(), observed=700.0) for _ in range(2)]
    assert [type(verdict) for verdict in verdicts] == [NothingToDo, NothingToDo]


def test_a_partial_action_is_judged_by_what_it_reached():
    run = Run()
    run.step(hold(), observed=800.0)
    run.perform(run.step(scale(8), observed=800.0), Status.PARTIAL, observed=6)
    verdict = [run.step(hold(), observed=600.0) for _ in range(2)][-1]
    assert size(verdict) == 4


def test_growths_that_bring_little_come_to_an_end_until_the_load_changes():
    run = Run(replace(EAGER, small_gain_limit=2))
    for wanted in (6, 8):
        run.step(hold(), observed=800.0)
        run.perform(run.step(scale(wanted), observed=800.0))
    run.step(scale(10), observed=800.0)
    limited = run.step(scale(10), observed=800.0)
    assert isinstance(limited, Rejected)
    assert limited.guardrail == "small-gain"
    run.step(scale(12), offered=1500.0, observed=1000.0)
    assert size(run.step(scale(12), offered=1500.0, observed=1000.0)) == 12


def test_held_outside_the_bounds_is_brought_back():
    verdict = Run(replace(EAGER, min_executors=6)).step(hold())
    assert size(verdict) == 6
    assert any("at least 6" in note for note in verdict.notes)
    assert "at least 6" in verdict.reason


def test_a_clock_that_goes_back_makes_it_measure_anew():
    run = Run(replace(EAGER, warm_up_intervals=1))
    run.step(hold())
    run.now -= 3600
    verdict = run.step(scale(6))
    assert isinstance(verdict, Waiting)
    assert "clock went back by 3590 s" in verdict.reason
    assert isinstance(run.step(scale(6)), Waiting)
    assert size(run.step(scale(6))) == 6


def test_a_window_from_before_the_last_action_is_not_judged():
    run = Run()
    run.perform(run.step(scale(6)))
    old = window(run.now, 6)
    verdict = run.manager.judge(run.now + 1, old, scale(8))
    assert verdict == Waiting("the window began before the last change", run.now + INTERVAL)


def test_the_same_window_is_not_judged_twice():
    run = Run()
    run.step(hold())
    for end in (run.now, run.now - 1):
        verdict = run.manager.judge(run.now + 1, window(end), scale(8))
        assert isinstance(verdict, Waiting)
        assert "no newer window" in verdict.reason


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({EXECUTORS: float("nan")}, "nan is not a size"),
        ({EXECUTORS: float("inf")}, "inf is not a size"),
        ({EXECUTORS: 0}, "0 is not a size"),
        ({EXECUTORS: -3}, "-3 is not a size"),
        ({EXECUTORS: 2.5}, "2.5 is not a size"),
        ({"mystery": 3}, "'mystery' is not a unit"),
        ({}, "nothing"),
    ],
)
def test_proposals_that_make_no_sense_are_rejected(sizes, says):
    verdict = Run().step(scale(sizes))
    assert isinstance(verdict, Rejected)
    assert verdict.guardrail == "bad-proposal"
    assert says in verdict.reason


def test_a_need_that_is_no_number_is_rejected():
    verdict = Run().step(scale(6, exact={EXECUTORS: float("nan")}))
    assert isinstance(verdict, Rejected)
    assert "the need of 'executors' is nan" in verdict.reason


def test_rates_that_are_no_numbers_harm_nothing():
    run = Run()
    verdicts = [run.step(scale(6), offered=float("nan"), observed=1.0) for _ in range(2)]
    assert [size(verdict) for verdict in verdicts] == [6, 6]


@pytest.mark.parametrize(
    "proposal",
    [
        Resize({"spark.executor.memory": "4g"}, "the heap is full", ExpectedEffect("")),
        MoveState((("bin", "1", "2"),), "the heap is full", ExpectedEffect("")),
    ],
)
def test_what_no_actuator_performs_is_rejected_plainly(proposal):
    verdict = Run().step(proposal)
    assert isinstance(verdict, Rejected)
    assert verdict.guardrail == "unsupported"
    assert "no actuator performs" in verdict.reason
    assert "the heap is full" in verdict.reason


def test_every_rejection_is_logged_with_its_reason(caplog):
    caplog.set_level(logging.INFO, logger="penstock.decide.manager")
    verdict = Run(replace(EAGER, max_executors=4)).step(scale(9))
    assert isinstance(verdict, Rejected)
    assert [record.getMessage() for record in caplog.records] == [
        f"app: rejected by bounds: {verdict.reason}"
    ]


def test_what_is_not_rejected_is_not_logged_as_such(caplog):
    caplog.set_level(logging.INFO, logger="penstock.decide.manager")
    run = Run()
    run.step(hold())
    run.step(scale(6))
    assert not caplog.records


def test_many_units_are_judged_each_by_itself():
    held = {f"operator{number}": 4 for number in range(200)}
    wanted = {**held, "operator7": 9, "operator8": 3}
    run = Run(replace(EAGER, ignore_changes_below=2), held=held)
    verdict = run.step(scale(wanted))
    assert isinstance(verdict, Accepted)
    assert verdict.action.parallelism == {**held, "operator7": 9}


def test_a_proposal_may_name_only_the_units_that_change():
    verdict = Run(held={"map": 4, "write": 2}).step(scale({"map": 6}))
    assert isinstance(verdict, Accepted)
    assert verdict.action.parallelism == {"map": 6, "write": 2}


def test_after_a_restart_the_last_actions_warm_up_still_counts():
    manager = ScalingManager(replace(EAGER, warm_up_intervals=2))
    manager.restore(1000.0)
    assert isinstance(manager.judge(1010.0, window(1010.0), scale(6)), Waiting)
    assert isinstance(manager.judge(1020.0, window(1020.0), scale(6)), Waiting)
    assert size(manager.judge(1030.0, window(1030.0), scale(6))) == 6


def test_after_a_restart_without_actions_it_starts_afresh():
    manager = ScalingManager(EAGER)
    manager.restore(None)
    assert size(manager.judge(1010.0, window(1010.0), scale(6))) == 6


def test_an_action_from_the_future_does_not_block_for_ever():
    manager = ScalingManager(EAGER)
    manager.restore(9000.0)
    assert isinstance(manager.judge(1010.0, window(1010.0), scale(6)), Waiting)
    assert size(manager.judge(1020.0, window(1020.0), scale(6))) == 6


def test_memory_is_bounded():
    run = Run(replace(EAGER, scale_down_delay=1e6))
    for _ in range(2000):
        run.step(scale(3))
    assert len(run.manager.state.decisions) <= 512
    assert len(run.manager.state.measured) == 2
    assert isinstance(run.step(scale(3)), Rejected)


def test_a_long_delay_is_kept_though_decisions_were_merged():
    run = Run(replace(EAGER, scale_down_delay=10_000.0))
    verdicts = [run.step(scale(2)) for _ in range(1001)]
    assert all(isinstance(verdict, Rejected) for verdict in verdicts[:-1])
    assert size(verdicts[-1]) == 2
