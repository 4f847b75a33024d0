"""What every policy of the registry keeps: the contract that anyone can run, and more of the same."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.decide.policy import Policy
from penstock.decide.registry import POLICIES
from penstock.plugins.contract import CHECKS, check_answer, check_unknown_rate
from penstock.plugins.windows import on_operators
from penstock.settings.model import Settings

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))
LOOK_AT_BATCHES_ALONE = {"dynamic-allocation", "trigger-interval"}


@every_policy
@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.__name__)
def test_the_contract(name, check):
    if check is check_unknown_rate and name in LOOK_AT_BATCHES_ALONE:
        return
    check(POLICIES[name].make)


@every_policy
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30, deadline=None)
@given(
    offered=st.floats(0, 1e6),
    backlog=st.floats(0, 1e9),
    held=st.integers(1, 12),
    target=st.one_of(st.none(), st.floats(0.01, 100)),
)
def test_any_load_gives_a_well_formed_answer(name, offered, backlog, held, target):
    policy = POLICIES[name].make(Settings(latency_target=target))
    window = on_operators(offered, backlog, held)
    check_answer(policy.propose(window), window)


@every_policy
def test_the_registry_says_when_to_choose_it(name):
    entry = POLICIES[name]
    for text in (entry.summary, entry.needs, entry.promises, entry.choose_when):
        assert text
        assert not text.endswith(".")


@every_policy
def test_it_is_a_policy_of_its_own_name(name):
    policy: Policy = POLICIES[name].make(Settings())
    assert policy.name == name
