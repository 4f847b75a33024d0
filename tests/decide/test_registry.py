"""Policies are found by name, and a slip of the pen is met with a suggestion."""

from __future__ import annotations

from dataclasses import fields

import pytest

from penstock.decide.autrascale_settings import AutraScaleSettings
from penstock.decide.dhalion import DhalionSettings
from penstock.decide.dynamic_allocation import DynamicAllocationSettings
from penstock.decide.forecast_settings import ForecastSettings
from penstock.decide.learned_settings import LearnedSettings
from penstock.decide.makers import own_parameters
from penstock.decide.policy import Hold
from penstock.decide.queueing_settings import QueueingSettings
from penstock.decide.reactive import ReactiveSettings
from penstock.decide.registry import POLICIES, make_policy, policy_entry
from penstock.decide.threshold import ThresholdSettings
from penstock.decide.trigger_interval import TriggerIntervalSettings
from penstock.errors import BadSettings
from penstock.settings import Settings
from tests.decide.pipelines import Pipeline


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


SHARED = {
    *("min_instances", "max_instances", "least_parallelism", "most_parallelism", "unscalable"),
    *("latency_target_seconds", "utilisation", "catch_up_seconds", "default_period_seconds", "busy_share"),
    *("throughput", "ds2", "horizon_seconds", "season_seconds"),
}
"""Fields that follow from settings of all policies."""
FIXED = {
    *("most_backpressure", "empty_queue_seconds", "forget_change", "largest_growth", "seed"),
    *("least_improvement", "settle_windows", "sample_windows", "patience_windows", "throughput_steps"),
}
"""Fields that nobody was seen to need to change."""


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [
        ("autrascale", AutraScaleSettings),
        ("dhalion", DhalionSettings),
        ("ds2_learned", LearnedSettings),
        ("dynamic_allocation", DynamicAllocationSettings),
        ("forecast", ForecastSettings),
        ("queueing", QueueingSettings),
        ("reactive", ReactiveSettings),
        ("threshold", ThresholdSettings),
        ("trigger_interval", TriggerIntervalSettings),
    ],
)
def test_the_parameters_of_a_policy_are_settings_with_the_same_defaults(prefix, kind) -> None:
    own = own_parameters(Settings(), prefix, kind)
    assert own
    assert {one.name for one in fields(kind)} - own.keys() <= SHARED | FIXED
    assert all(getattr(kind(), name) == value for name, value in own.items())


def test_parameters_change_what_the_policy_does() -> None:
    window = Pipeline({"work": 100.0}, {"work": 2}, backlog=120.0).run(200.0)
    calm = make_policy(Settings(policy="threshold"))
    eager = make_policy(Settings(policy="threshold", threshold_scale_out_records=100))
    assert isinstance(calm.propose(window), Hold)
    assert eager.propose(window).parallelism["work"] == 3
