"""Policies that aim at a latency, on a real cluster: they decide, act within the limits, and stop trying."""

from __future__ import annotations

import math
from contextlib import closing

import pytest

import penstock
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.journal.store import open_journal
from penstock_lab.ground.spark_cluster import executor_ids, hold_executors
from penstock_lab.workloads.word_count import WordCount, start_word_count
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak]
HELD = 1

MOST, CORES = 3, 2
FOR_THROUGHPUT = "throughput phase"
CHANGES_PER_HOUR = 2
LOAD = WordCount.make_for(slots=0.6, rate=10).with_tasks(6)
"""What one executor of two slots carries, so that whatever is added is added for latency."""
SETTINGS = {
    # a record waits a second and a half for its batch, so no size is fast enough for this
    "latency_target": "1.6s",
    "policy_interval": "3s",
    "warm_up_intervals": 1,
    "activation_intervals": 1,
    "scale_down_delay": "0s",
    "largest_step_down": 1.0,
    "max_executors": MOST,
    "queueing_changes_per_hour": CHANGES_PER_HOUR,
    "autrascale_changes_per_hour": CHANGES_PER_HOUR,
    "migration": False,
    "control_socket": False,
}


@pytest.fixture(scope="module")
def query(spark, tmp_path_factory):
    place = str(tmp_path_factory.mktemp("words") / "checkpoint")
    started = start_word_count(spark, LOAD, place, trigger_seconds=3, name="words")
    yield started
    started.stop()


class Watched:
    """One policy at the wheel for a while, and what its journal says of that."""

    def __init__(self, spark, policy, folder):
        self.path, self.policy = folder / f"{policy}.db", policy
        self.application = spark.sparkContext.applicationId
        self.autopilot = penstock.attach(
            spark, policy=policy, settings={**SETTINGS, "journal": str(self.path)}
        )

    def changes(self, told=""):
        """The changes of size that have ended, those with such a reason."""
        with closing(open_journal(self.path)) as journal:
            actions = journal.actions(self.application)
        return [action for action in actions if action.status is not None and told in action.reason]

    def reasons(self):
        with closing(open_journal(self.path)) as journal:
            return [decision.reason for decision in journal.decisions(self.application)]

    def latencies(self):
        with closing(open_journal(self.path)) as journal:
            seen = journal.observations(self.application)
        return [query.latency_seconds for one in seen for query in one.queries]

    def check(self):
        """Whatever it did, it did within the limits and for a reason."""
        for change in self.changes():
            assert 1 <= change.planned[EXECUTORS] <= MOST
            assert change.policy == self.policy and change.reason
            assert (change.status, change.observed) == (Status.DONE, change.planned)
        assert (
            len([change for change in self.changes() if FOR_THROUGHPUT not in change.reason])
            <= CHANGES_PER_HOUR
        )
        assert any(seconds is not None and seconds > 1.5 for seconds in self.latencies())
        assert self.autopilot.running and self.autopilot.status()["error"] is None


def test_queueing_grows_for_the_latency_target_and_says_that_it_is_out_of_reach(spark, query, tmp_path):
    watched = Watched(spark, "queueing", tmp_path)
    try:
        wait_for("more executors", lambda: len(executor_ids(spark)) > 1)
        wait_for("the end of the change", watched.changes)
        watched.check()
        (first, *_) = watched.changes()
        assert first.before == {EXECUTORS: 1}
        assert "its records are through in" in first.reason and "no size up to" in first.reason
        figures = first.expected.figures
        assert figures["throughput_slots"] <= figures["slots_needed"]
        assert first.planned[EXECUTORS] == min(MOST, math.ceil(figures["slots_needed"] / CORES))
    finally:
        watched.autopilot.detach()
        hold_executors(spark, 1)
    assert query.isActive


def test_autrascale_tries_a_size_and_ends_within_its_budget(spark, query, tmp_path):
    watched = Watched(spark, "autrascale", tmp_path)
    ends = ("the size that the search ended with", "misses 1.6 s", "changes an hour too few are left")
    try:
        (trial, *_) = wait_for("a size that is tried", lambda: watched.changes("latency search"))
        assert trial.planned[EXECUTORS] > trial.before[EXECUTORS]
        wait_for(
            "the end of the search", lambda: any(end in why for why in watched.reasons() for end in ends)
        )
        watched.check()
    finally:
        watched.autopilot.detach()
    assert query.isActive
