"""What is set by hand while a pipeline runs: at once on the board, and an action in the journal."""

from __future__ import annotations

import pytest

from penstock.decide.outcome import Status
from penstock.errors import BadInput
from penstock.pipeline.board import KIND, SizeMemory
from penstock.pipeline.spark_term import Term
from penstock.settings.model import Settings
from penstock_lab.experiments.faults.virtual_pipeline import VirtualPipeline, word_count
from tests.pipeline.test_monitor import SETTINGS


class Kept:
    """Memories of this process alone."""

    def __init__(self):
        self.bodies = {}

    def remember(self, now, owner, kind, key, body):
        self.bodies[owner, kind, key] = body

    def recall(self, owner, kind):
        return {key[2]: body for key, body in self.bodies.items() if key[:2] == (owner, kind)}


@pytest.fixture
def virtual():
    return VirtualPipeline(Settings(policy="ds2", **SETTINGS))


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def term(virtual, kept):
    memory = SizeMemory(kept, "words")
    return Term(word_count(), {}, virtual.board, virtual.monitor, virtual.loop, memory)


def test_a_size_set_by_hand_holds_at_once_and_is_an_action_like_any_other(virtual, term, kept):
    assert term.scale("split", 7) == 7
    assert virtual.board.begin_batch("split") == 7
    virtual.board.end_batch("split")
    for now in (1.0, 1.5, 2.0):
        term.tick(now)
    (action,) = virtual.record.records
    assert dict(action.planned) == {"split": 7} and action.reason == "set by hand"
    assert action.status is Status.DONE
    assert kept.bodies["words", KIND, "split"] == {"instances": 7, "pinned": True, "at": 1.0}
    term.scale("split", None)
    term.tick(2.5)
    assert kept.bodies["words", KIND, "split"] == {"instances": 7, "pinned": False, "at": 2.5}
    assert len(virtual.record.records) == 1


def test_what_is_set_while_another_change_is_under_way_is_recorded_after_it(virtual, term):
    virtual.board.begin_batch("split")
    term.scale("split", 7)
    term.tick(1.0)
    term.scale("count", 9)
    term.tick(2.0)
    assert len(virtual.record.records) == 1
    virtual.board.end_batch("split")
    for now in (3.0, 4.0, 5.0):
        term.tick(now)
    assert [dict(one.planned) for one in virtual.record.records] == [{"split": 7}, {"count": 9}]


def test_what_is_not_allowed_is_refused_at_once(virtual, term):
    with pytest.raises(BadInput):
        term.scale("split", 99)
    term.tick(1.0)
    assert virtual.record.records == []


def test_where_executors_follow_they_do_so_from_the_start_on(virtual, kept):
    memory = SizeMemory(kept, "words")
    term = Term(word_count(), {}, virtual.board, virtual.monitor, virtual.loop, memory, executors_follow=True)
    term.tick(1.0)
    term.tick(2.0)
    (action,) = virtual.record.records
    assert dict(action.planned) == {"split": 1, "count": 1}
    assert action.reason == "executors follow the sum of instances"


class Ended:
    """A query of the user that has ended."""

    def failure(self):
        return "the query has ended"


def test_what_no_longer_runs_is_named(virtual, kept):
    parts = virtual.board, virtual.monitor, virtual.loop, SizeMemory(kept, "words")
    term = Term(word_count(), {"archive": Ended()}, *parts)
    assert term.failures() == ["archive: the query has ended"]
