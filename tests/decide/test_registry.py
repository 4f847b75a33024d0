"""Policies are found by name, and a slip of the pen is met with a suggestion."""

from __future__ import annotations

import pytest

from penstock.decide.policy import Hold
from penstock.decide.registry import POLICIES, make_policy, policy_entry
from penstock.errors import BadSettings
from penstock.settings.model import Settings
from tests.decide.pipelines import Pipeline


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
