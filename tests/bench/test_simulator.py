"""The simulator's benchmark says what it measured, of a day that really is one."""

from penstock.bench.simulator import DAY_SECONDS, OPERATORS, day
from penstock.simulate.run import simulate


def test_the_day_has_its_seconds_and_operators_and_the_policy_acts():
    experiment = day(interval=600)
    assert experiment.seconds == DAY_SECONDS and experiment.graph.is_scalable.sum() == OPERATORS
    assert len(simulate(experiment, "ds2").actions) > 2
