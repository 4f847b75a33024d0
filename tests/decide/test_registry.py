"""Policies are found by name, and a slip of the pen is met with a suggestion."""

from __future__ import annotations

import pytest

from penstock.decide.registry import POLICIES, make_policy, policy_entry
from penstock.errors import BadSettings
from penstock.settings import Settings


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_is_made_under_its_own_name(name: str) -> None:
    assert make_policy(Settings(policy=name)).name == name
    assert POLICIES[name].summary


@pytest.mark.parametrize("slip", ["ds", "DS2", "ds3", "d2"])
def test_an_unknown_name_suggests_the_nearest(slip: str) -> None:
    with pytest.raises(BadSettings, match="did you mean 'ds2'"):
        policy_entry(slip)


def test_a_name_like_no_other_lists_what_there_is() -> None:
    with pytest.raises(BadSettings, match=r"known: .*\bds2\b"):
        policy_entry("zzzz")
