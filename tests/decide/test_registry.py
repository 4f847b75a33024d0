"""Policies are found by name, and a slip of the pen is met with a suggestion."""

from __future__ import annotations

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Hold, Policy, Proposal
from penstock.decide.registry import POLICIES, make_policy, policy_entry
from penstock.errors import BadSettings
from penstock.settings.model import Settings
from penstock.simulate.run import run_policy
from tests.decide.pipelines import Pipeline
from tests.simulate.experiments import an_experiment


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_is_made_under_its_own_name(name: str) -> None:
    assert make_policy(name, Settings()).name == name
    assert POLICIES[name].summary


@pytest.mark.parametrize("slip", ["ds", "DS2", "ds3", "d2"])
def test_an_unknown_name_suggests_the_nearest(slip: str) -> None:
    with pytest.raises(BadSettings, match="did you mean 'ds2'"):
        policy_entry(slip)


def test_a_name_like_no_other_lists_what_there_is() -> None:
    with pytest.raises(BadSettings, match=r"known: .*\bds2\b"):
        policy_entry("zzzz")


def test_parameters_change_what_the_policy_does() -> None:
    window = Pipeline({"work": 100.0}, {"work": 2}, backlog=120.0).run(200.0)
    calm = make_policy("threshold", Settings())
    eager = make_policy("threshold", Settings(threshold_scale_out_records=100))
    assert isinstance(calm.propose(window), Hold)
    assert eager.propose(window).parallelism["work"] == 3


class Listening:
    """A policy whose answers are kept."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.answers: list[Proposal | NotReady] = []

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        self.answers.append(self._policy.propose(window))
        return self.answers[-1]


QUICK = {"flink_metrics_window": 60, "flink_stabilization_interval": 0}
"""Ten minutes are shorter than the window over which Flink's autoscaler takes its means."""
OF_SLOTS = an_experiment(
    sources={"events": {"rate": "constant:300", "tasks": 4}},
    operators={"count": {"inputs": ["events"], "service_time": "8ms", "tasks": 48, "selectivity": 0}},
    batches={"trigger": "10s", "serial": "0.5s", "executors": 2, "cores": 2},
    settings={"policy_interval": 20, "latency_target": "30s", "activation_intervals": 1, **QUICK},
)
OF_OPERATORS = an_experiment(
    settings={"policy_interval": 10, "latency_target": "5s", "activation_intervals": 1, **QUICK}
)
PLACES = {
    "run": OF_SLOTS,
    "pipeline run": OF_OPERATORS,
}
"""What each command shows a policy: batches on shared slots, or operators with instances of their own."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_is_offered_where_it_answers_and_nowhere_else(name: str, place: str) -> None:
    experiment, entry = PLACES[place], POLICIES[name]
    listening = Listening(entry.make(experiment.settings))
    run_policy(experiment, listening)
    answered = any(not isinstance(answer, NotReady) for answer in listening.answers)
    assert (place in entry.usable_in) is answered
    if answered:
        entry.check_place(place)
    else:
        with pytest.raises(BadSettings, match=f"policy: '{name}' .*; it can be used in .*simulate"):
            entry.check_place(place)


def test_the_list_of_places_is_that_of_each_policy() -> None:
    places = {name: entry.usable_in for name, entry in POLICIES.items()}
    assert places["ds2"] == ("run", "pipeline run", "decide", "simulate", "replay")
    assert places["drs"] == places["drs-observed"] == ("pipeline run", "decide", "simulate", "replay")
    assert places["dynamic-allocation"] == places["trigger-interval"] == ("run", "simulate", "replay")
    assert places["sage"] == ("run", "pipeline run", "simulate", "replay")
    assert policy_entry("forecast:drs").usable_in == places["drs"]
