"""The compiled policies agree with the pure ones, application by application."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.sage import decide
from penstock.decide.sage_metrics import Rule
from penstock.decide.sage_settings import SageSettings
from penstock.fleet.ds2_kernel import evaluate_ds2
from penstock.fleet.operators import reference_needs
from penstock.fleet.sage_columns import input_of, round_of
from penstock.fleet.sage_kernel import evaluate_sage
from tests.fleet.made_up import random_applications, random_operators


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.sampled_from([SageSettings(), SageSettings(least_gain=0.01, cpu_factor=2.0)])
)
def test_every_application_gets_the_decision_of_the_pure_rules(seed: int, chosen: SageSettings):
    applications = random_applications(np.random.default_rng(seed), 60)
    decisions = evaluate_sage(applications, chosen)
    for row in range(60):
        # repr tells floats apart to the last bit, and takes two NaN for the same
        expected = decide(input_of(applications, row), chosen)
        assert repr(round_of(decisions, row)) == repr(expected), row


def test_the_random_fleet_makes_every_rule_decide():
    applications = random_applications(np.random.default_rng(1), 3000)
    decisions = evaluate_sage(applications, SageSettings())
    assert set(decisions.rule.tolist()) == {int(rule) for rule in Rule}
    assert (decisions.held_back > 0).any() and set(decisions.awaiting.tolist()) == {0, 1, 2}


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.sampled_from(
        [
            Ds2Settings(),
            Ds2Settings(utilisation=1.0, catch_up_seconds=60.0),
            Ds2Settings(target_rate_ratio=1.5),
        ]
    ),
)
def test_every_operator_gets_the_instances_of_the_pure_policy(seed: int, chosen: Ds2Settings):
    columns = random_operators(np.random.default_rng(seed), 20)
    needs = evaluate_ds2(columns, chosen)
    for application in range(columns.applications):
        begin, end = columns.first[application], columns.first[application + 1]
        if begin == end:
            assert not needs.ready[application]
            continue
        expected = reference_needs(columns, application, chosen)
        assert needs.ready[application] == (not isinstance(expected, NotReady)), expected
        if not isinstance(expected, NotReady):
            assert needs.exact[begin:end].tolist() == list(expected.exact.values())
            assert needs.wanted[begin:end].tolist() == list(expected.wanted.values())


def test_sums_count_what_is_not_a_source():
    columns = random_operators(np.random.default_rng(5), 30)
    needs = evaluate_ds2(columns, Ds2Settings())
    for application in range(30):
        begin, end = int(columns.first[application]), int(columns.first[application + 1])
        inner = [n for n in range(begin, end) if columns.upstream_first[n + 1] > columns.upstream_first[n]]
        assert needs.instances[application] == sum(needs.wanted[inner])
        assert needs.held[application] == sum(columns.instances[inner])
