"""The rules over columns agree with the plain reference, application by application."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decide.sage.metrics import Rule
from penstock.decide.sage.rounds import judge, round_of
from penstock.decide.sage.settings import SageSettings
from tests.decide.sage.made_up import input_of, random_applications
from tests.decide.sage.reference import decide


@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from(
        [
            SageSettings(),
            SageSettings(least_gain=0.01, cpu_factor=2.0),
            SageSettings(least_up_samples=6, least_down_samples=2),
        ]
    ),
)
def test_every_application_gets_the_decision_of_the_pure_rules(seed: int, chosen: SageSettings):
    applications = random_applications(np.random.default_rng(seed), 60)
    decisions = judge(applications, chosen)
    for row in range(60):
        # repr tells floats apart to the last bit, and takes two NaN for the same
        expected = decide(input_of(applications, row), chosen)
        assert repr(round_of(decisions, row)) == repr(expected), row


def test_the_random_fleet_makes_every_rule_decide():
    applications = random_applications(np.random.default_rng(1), 3000)
    decisions = judge(applications, SageSettings())
    assert set(decisions.rule.tolist()) == {int(rule) for rule in Rule}
    assert (decisions.held_back > 0).any() and set(decisions.awaiting.tolist()) == {0, 1, 2}
