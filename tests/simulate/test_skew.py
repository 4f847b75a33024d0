"""A hot key: DS2 ends near the size without skew, says so, and no rollback makes it worse."""

from functools import cache

import pytest
import yaml

from penstock.decide.verdict import Rejected
from penstock.simulate.loading import SHIPPED, parse
from penstock.simulate.run import simulate
from penstock.simulate.virtual import BACKLOG, QUEUED
from tests.simulate.experiments import an_experiment

PUBLISHED = {
    "policy_interval": "60s",
    "warm_up_intervals": 0,
    "activation_intervals": 1,
    "target_rate_ratio": 1.0,
    "utilisation": 1.0,
    "utilisation_low": 0.99,
}
SETTINGS = {
    "defaults": {},
    "eager": {"activation_intervals": 1},
    "published": PUBLISHED,
    "published, two windows": {**PUBLISHED, "activation_intervals": 2},
}
QUEUES = [20_000, 1_000_000]


def word_count(share, settings, queue, noise=0.0):
    """Heron's word count on a source that keeps its backlog; one word has this share of 20 counters' load."""
    path = SHIPPED / "dhalion-wordcount.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["sources"]["sentences"]["keeps_backlog"] = True
    values["operators"]["count"] |= {"skew": share * 19, "queue": queue}
    values["operators"]["flatmap"]["queue"] = queue
    changes = {"duration": "60min", "scaling": {"kind": "live", "pause": "10s"}, "noise": noise}
    return parse(yaml.safe_dump({**values, **changes, "settings": {"max_executors": 200, **settings}}), path)


@cache
def run_without_skew(chosen, queue):
    return simulate(word_count(0.0, SETTINGS[chosen], queue), "ds2")


def sizes(run):
    return [(action.planned["flatmap"], action.planned["count"]) for action in run.actions]


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("chosen", SETTINGS)
def test_ds2_ends_near_the_size_without_skew_and_says_that_a_key_is_hot(chosen, share, queue):
    even = run_without_skew(chosen, queue)
    run = simulate(word_count(share, SETTINGS[chosen], queue), "ds2")
    assert even.seen[-1, BACKLOG] < run.seen[-1, BACKLOG] and run.errors == {}
    for least, most, asked in zip(even.held[-1][1:], map(max, zip(*sizes(even), strict=True)),
                                  zip(*sizes(run), strict=True), strict=True):  # fmt: skip
        # without skew there was a backlog to catch up with, too; while it grows nothing is given back
        assert least <= asked[-1] <= max(asked) <= most, (sizes(run), sizes(even))
    assert len(run.actions) == 1
    reason = run.decisions[-1].verdict.reason
    assert "count: 1 of " in reason and "a key is hot" in reason


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chosen", SETTINGS)
def test_measurements_that_are_noisy_change_little_of_that(chosen, seed):
    even = run_without_skew(chosen, 20_000)
    run = simulate(word_count(0.5, SETTINGS[chosen], 20_000, noise=0.05), "ds2", seed)
    most = max(count for _, count in sizes(even))
    assert max(count for _, count in sizes(run)) <= 1.25 * most, sizes(run)


@pytest.mark.parametrize("policy", ["ds2", "ds2-learned", "threshold", "dhalion", "reactive-cpu"])
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("chosen", ["defaults", "eager"])
def test_no_rollback_returns_to_a_size_at_which_the_backlog_grew(chosen, queue, policy):
    run = simulate(word_count(0.5, SETTINGS[chosen], queue), policy)
    grew = set()
    for action in run.actions:
        until = int(action.intended_at)
        waiting = run.seen[:, BACKLOG] + run.seen[:, QUEUED]
        if waiting[until - 1] > waiting[until - 11]:
            grew.add(tuple(sorted(action.before.items())))
        if "does worse" in action.reason:
            assert tuple(sorted(action.planned.items())) not in grew
    assert run.actions[-1].planned["count"] > 1


@pytest.mark.parametrize("chosen", ["defaults", "eager"])
@pytest.mark.parametrize("policy", ["threshold", "reactive-cpu", "ds2"])
def test_growth_that_brings_little_comes_to_an_end_whatever_the_activation(chosen, policy):
    # a remote service takes 400 of 1,000 records a second, however many ask it
    call = {"inputs": ["events"], "service_time": "10ms", "instances": 4, "limit": 400, "queue": 500}
    settings = {"max_executors": 10_000, **SETTINGS[chosen]}
    run = simulate(an_experiment(operators={"call": call}, settings=settings), policy)
    verdict = run.decisions[-1].verdict
    assert isinstance(verdict, Rejected) and verdict.guardrail == "small-gain"
    assert len(run.actions) == 3
