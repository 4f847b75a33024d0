"""Sage in the simulator: it grows wherever more and more records wait, and says why it holds elsewhere."""

import pytest

from penstock.simulate.run import Run, simulate
from tests.simulate.experiments import an_experiment

SETTINGS = {"policy_interval": 10, "utilisation": 0.9, "activation_intervals": 1, "warm_up_intervals": 0}
GREW = "P4 (parallelism scale-up): the backlog grew in every sample"


def topics(rate: str, parse: int = 2, count: int = 4, duration: int = 1800):
    """Two operators with queues that nothing bounds, as topics are, so that nothing waits at the source."""
    operators = {
        "parse": {"inputs": ["events"], "service_time": "1ms", "instances": parse},
        "count": {"inputs": ["parse"], "service_time": "4ms", "instances": count},
    }
    sources = {"events": {"rate": rate}}
    return an_experiment(sources=sources, operators=operators, settings=SETTINGS, duration=duration)


def batches(rate: str, **others: object):
    """Four slots that take some 480 records a second; a batch has no limit and reads all that is there."""
    operators = {"count": {"inputs": ["events"], "service_time": "8ms", "tasks": 48, "selectivity": 0}}
    # the manager itself must not make up for what the policy does not see
    settings = {"policy_interval": 20, "batch_period": "10s", "target_rate_ratio": 10}
    return an_experiment(
        sources={"events": {"rate": rate, "tasks": 4}},
        operators=operators,
        batches={"trigger": "10s", "serial": "0.5s", "executors": 2, "cores": 2},
        settings={**settings, **others, "activation_intervals": 1},
        duration=3600,
    )


def growths(run: Run) -> list[float]:
    return [action.intended_at for action in run.actions if action.reason.startswith(GREW)]


def test_it_grows_for_records_that_wait_between_operators():
    run = simulate(topics("steps:0=800,600=1600"), "sage")
    at = growths(run)
    assert run.errors == {} and at and 600 < at[0] <= 720
    assert run.held[-1].tolist() == [1, 2, 8], "1,600 records of 4 ms at 90 % need 7.1 instances"


@pytest.mark.parametrize(("parse", "count"), [(6, 4), (7, 4), (4, 6), (12, 1)])
def test_operators_are_judged_each_by_its_own_need(parse: int, count: int):
    """1,600 records of 1 ms and of 4 ms at 90 % need 1.8 and 7.1 instances, whatever is held in all."""
    run = simulate(topics("constant:1600", parse, count, duration=3600), "sage")
    assert run.errors == {} and growths(run)
    assert run.held[-1].tolist() == [1, 2, 8]


def test_an_operator_with_too_many_is_shrunk_beside_one_that_is_right():
    run = simulate(topics("constant:1600", 6, 8, duration=3600), "sage")
    assert run.held[-1].tolist() == [1, 2, 8] and growths(run) == []
    assert "parse 6 → 2" in run.actions[0].reason and "count" not in run.actions[0].reason


def test_it_grows_for_batches_that_become_longer_though_each_reads_all_there_is():
    run = simulate(batches("steps:0=300,600=800"), "sage")
    at = growths(run)
    assert run.errors == {} and at and 600 < at[0] <= 900
    assert run.held[-1, 0] >= 4, "800 records of 8 ms need 6.4 slots"


def test_it_grows_for_batches_that_outlast_the_window_from_the_start():
    run = simulate(batches("constant:1500", largest_step_up=10), "sage")
    assert growths(run) and run.held[-1, 0] >= 7


@pytest.mark.parametrize(
    "experiment", [topics("constant:800"), batches("constant:300")], ids=["topics", "batches"]
)
def test_where_nothing_waits_it_says_that_no_rule_asks(experiment):
    run = simulate(experiment, "sage")
    assert growths(run) == []
    assert run.decisions[-1].verdict.reason == "no rule asks for a change"
