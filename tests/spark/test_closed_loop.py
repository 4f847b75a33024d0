"""The whole loop on a real cluster, deciding and acting by itself: out, in again, and every word counted."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

import penstock
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.journal.store import open_journal
from penstock_lab.ground.spark_cluster import executor_ids
from penstock_lab.workloads.records import WORDS_PER_SENTENCE, count_words
from penstock_lab.workloads.word_count import WordCount, start_word_count
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 1

SEED = 3
LOAD = WordCount(
    # a trickle, then what two slots cannot carry, then a trickle again
    profile="steps:0=10,4=140,22=10",
    seconds_per_sentence=0.009,
    seconds_per_word=0.0009,
    source_partitions=6,
    count_partitions=6,
    state_partitions=2,
    seed=SEED,
)
SETTINGS = {
    "policy_interval": "2s",
    "warm_up_intervals": 1,
    "activation_intervals": 1,
    "scale_down_delay": "3s",
    "largest_step_down": 1.0,
    "max_executors": 3,
    "control_socket": False,
}


def records_read(query):
    progress = query.lastProgress
    return 0 if progress is None else json.loads(progress.json)["sources"][0]["endOffset"]["records"]


def actions_of(path, application):
    with closing(open_journal(path)) as journal:
        return journal.actions(application), journal.unfinished(application)


def test_it_scales_out_under_load_and_in_again_and_loses_no_word(spark, tmp_path):
    journal = tmp_path / "journal.db"
    query = start_word_count(
        spark, LOAD, str(tmp_path / "checkpoint"), trigger_seconds=3, name="loop", sink="memory"
    )
    autopilot = penstock.attach(spark, policy="ds2", settings={**SETTINGS, "journal": str(journal)})
    try:
        wait_for("more executors", lambda: len(executor_ids(spark)) > 1)
        wait_for("one executor again", lambda: len(executor_ids(spark)) == 1)
        wait_for("the end of the last action", lambda: autopilot.status()["action_in_flight"] is None)
        after = records_read(query)
        wait_for("a batch after it", lambda: records_read(query) > after)
        assert query.isActive and autopilot.running
        assert autopilot.status()["error"] is None
    finally:
        autopilot.detach()
        query.stop()
    check_counts({row["word"]: row["count"] for row in spark.table("loop").collect()}, after)
    check_journal(journal, spark.sparkContext.applicationId)


def check_counts(counts, at_least):
    """As in a run without changes: each of the first so many records counts once."""
    records, rest = divmod(sum(counts.values()), WORDS_PER_SENTENCE)
    assert rest == 0 and records > at_least
    assert counts == count_words(records, seed=SEED)


def check_journal(path, application):
    """Every change has its intent, its reason and its outcome, in the order in which they happened."""
    actions, unfinished = actions_of(path, application)
    assert not unfinished
    changes = [action for action in actions if EXECUTORS in action.planned]
    sizes = [action.planned[EXECUTORS] for action in changes]
    assert max(sizes) > 1 and sizes[-1] == 1
    assert actions[0].before == {EXECUTORS: 1}
    assert all("state lies unevenly" in action.reason for action in actions if action not in changes)
    for action in changes:
        assert action.policy == "ds2"
        assert "records/s" in action.reason or "back to" in action.reason
        assert (action.status, action.observed) == (Status.DONE, action.planned)
        assert action.intended_at <= action.ended_at
