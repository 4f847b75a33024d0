"""Any policy on recorded rates: the windows made of them, and the answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.rates import OperatorRates, measure_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.decide.offline.decisions import (
    NO_BACKLOGS,
    Epoch,
    decide_by_policy,
    decide_offline,
    make_epoch_window,
)
from penstock.decide.offline.recording import parse_rates, parse_topology
from penstock.decide.registry import POLICIES
from penstock.settings.model import Settings

TOPOLOGY = parse_topology(["s,source,1,f,flatmap,2", "f,flatmap,2,c,count,1"], "topology.csv")
NO_HEADROOM = Goals(utilisation=1.0)


def rows(source=(0, 40, 0, 30), flatmap=(10, 200, 5, 100), count=(400, 0, 200, 0), at=10.0):
    lines = [("s", 1, 1, source), ("f", 1, 2, flatmap), ("f", 2, 2, flatmap), ("c", 1, 1, count)]
    told = [f"{o},{i},{n},{at},{','.join(str(rate) for rate in rates)}" for o, i, n, rates in lines]
    return parse_rates(told, "rates.csv", TOPOLOGY)


def window_of(recorded, **source_rates) -> ApplicationWindow:
    window = make_epoch_window(TOPOLOGY, Epoch(recorded, 0.0, 10.0), source_rates)
    assert isinstance(window, ApplicationWindow)
    return window


def test_the_window_has_the_recorded_rates():
    query = window_of(rows()).queries[0]
    rates = measure_rates(query.graph, query.metrics)
    assert isinstance(rates, OperatorRates)
    # in order source, flatmap, count; two instances of flatmap
    assert rates.true_processing.tolist() == pytest.approx([0, 20, 400])
    assert rates.true_output.tolist() == pytest.approx([40, 400, 0])
    assert rates.observed_processing.tolist() == pytest.approx([0, 10, 200])
    source = query.sources["source"]
    assert (source.offered_per_second, source.observed_per_second) == (40, 30)
    assert source.backlog_records == 0


def test_instances_held_and_a_given_source_rate_are_in_the_window():
    window = window_of(rows(), source=70.0)
    assert window.parallelism == {"source": 1, "flatmap": 2, "count": 1}
    assert window.queries[0].sources["source"].offered_per_second == 70


@given(
    true=st.floats(1, 1e4), busy=st.floats(0.01, 1), selectivity=st.floats(0.1, 50), offered=st.floats(1, 1e4)
)
def test_ds2_asked_as_a_policy_gives_what_its_equations_give(true, busy, selectivity, offered):
    flatmap = (true, true * selectivity, true * busy, true * busy * selectivity)
    recorded = rows(source=(0, offered, 0, offered), flatmap=flatmap)
    equations = decide_offline(TOPOLOGY, recorded).epochs[0]
    asked = decide_by_policy(TOPOLOGY, recorded, Ds2Policy(NO_HEADROOM)).epochs[0]
    assert asked.parallelism == equations.parallelism
    if asked.exact:
        assert asked.exact == pytest.approx(equations.exact)


def test_epochs_last_from_the_one_before_and_the_first_as_long_as_the_second():
    seen: list[tuple[float, float]] = []

    class Watching:
        name = "watching"

        def propose(self, window):
            seen.append((window.start, window.end))
            return NotReady("only looks")

    recorded = (*rows(at=10.0), *rows(at=25.0), *rows(at=45.0))
    answer = decide_by_policy(TOPOLOGY, recorded, Watching())
    assert seen == [(-5.0, 10.0), (10.0, 25.0), (25.0, 45.0)]
    assert [epoch.not_ready for epoch in answer.epochs] == ["only looks"] * 3
    assert answer.warnings == (NO_BACKLOGS,)


def test_an_idle_operator_and_a_missing_instance_are_not_ready():
    idle = decide_by_policy(TOPOLOGY, rows(flatmap=(0, 0, 0, 0)), Ds2Policy(NO_HEADROOM))
    assert "'flatmap' was idle" in str(idle.epochs[0].not_ready)
    missing = decide_by_policy(TOPOLOGY, (*rows()[:2], *rows(at=20.0)), Ds2Policy(NO_HEADROOM))
    assert "instances of 'flatmap' reported" in str(missing.epochs[0].not_ready)


@pytest.mark.parametrize("name", [name for name, entry in POLICIES.items() if "decide" in entry.usable_in])
def test_every_policy_that_recordings_tell_enough_for_decides(name):
    policy = POLICIES[name].make(Settings(latency_target=1.0, reactive_rate_per_instance=5.0))
    # flatmap is fed twice what its two instances take
    epoch = decide_by_policy(TOPOLOGY, rows(flatmap=(10, 200, 10, 200)), policy).epochs[0]
    assert epoch.not_ready is None
    assert epoch.parallelism["flatmap"] > 2
    assert epoch.reason
    assert "source" not in epoch.parallelism
