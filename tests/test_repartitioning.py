from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.decide.outcome import Status
from penstock.errors import ActionFailed, Unsupported
from penstock.journal.explain import explain
from penstock.journal.store import Journal, open_journal
from penstock.migrate.bins import Bin, BinState, StateView, Worker
from penstock.migrate.repartition import PauseCosts, Repartition, repartition
from penstock.repartitioning import PARTITIONS, Repartitioning

VIEW = StateView(
    "query-id",
    "words",
    7,
    tuple(BinState(Bin("query-id", 0, number), "1", 1000, 100, 1.0) for number in range(4)),
    (Worker("1", "a", 2),),
)


@dataclass
class FakeBins:
    """Tells in which order it was asked for what."""

    done: list[str] = field(default_factory=list)
    obstacle: str | None = None
    failure: ActionFailed | None = None
    comes_back: bool = True

    def expected(self, query: str, bins: int) -> Repartition:
        found = repartition(VIEW, bins, PauseCosts(2.0), self.obstacle)
        assert found is not None
        return found

    def rewrite(self, query: str, bins: int) -> None:
        self.done.append(f"rewrite {query} to {bins}")
        if self.failure is not None:
            raise self.failure

    def first_batch(self, query: str) -> bool:
        self.done.append("first batch")
        return self.comes_back


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "journal.db")


def a_clock() -> Callable[[], float]:
    ticks = iter(range(100, 200))
    return lambda: float(next(ticks))


def test_it_is_written_down_then_done_then_its_pause_is_kept_beside_the_expected_one(journal: Journal):
    bins = FakeBins()
    acting = Repartitioning("app", journal, bins, a_clock())

    def start() -> None:
        assert journal.unfinished("app")[0].planned == {PARTITIONS: 8}
        bins.done.append("start")

    outcome = acting.perform("words", 8, start)
    assert bins.done == ["rewrite words to 8", "start", "first batch"]
    assert (outcome.status, outcome.observed) == (Status.DONE, {PARTITIONS: 8})
    (record,) = journal.actions("app")
    assert (record.policy, record.before, record.seconds) == ("by hand", {PARTITIONS: 4}, 1.0)
    assert record.expected.figures["pause_seconds"] == acting.plan("words", 8).pause_seconds
    assert "needs a pause of about" in explain(record)


def test_a_query_whose_state_cannot_be_rewritten_is_started_as_it_was(journal: Journal):
    bins = FakeBins(failure=ActionFailed("the disk is full"))
    started: list[str] = []
    with pytest.raises(ActionFailed, match="words keeps its bins: the disk is full"):
        Repartitioning("app", journal, bins, a_clock()).perform("words", 8, lambda: started.append("again"))
    assert started == ["again"]
    (record,) = journal.actions("app")
    assert (record.status, record.observed) == (Status.FAILED, {PARTITIONS: 4})
    assert "started again as it was" in record.detail


@pytest.mark.parametrize(
    ("failure", "status"), [(None, Status.UNKNOWN), (ActionFailed("the disk is full"), Status.FAILED)]
)
def test_a_query_that_the_users_code_cannot_start_again_leaves_no_action_open(
    journal: Journal, failure: ActionFailed | None, status: Status
):
    def start() -> None:
        raise ValueError("no such topic")

    with pytest.raises(ValueError, match="no such topic"):
        Repartitioning("app", journal, FakeBins(failure=failure), a_clock()).perform("words", 8, start)
    (record,) = journal.actions("app")
    assert record.status is status and "not started again: ValueError: no such topic" in record.detail


def test_what_spark_cannot_do_is_refused_before_anything_is_stopped(journal: Journal):
    bins = FakeBins(obstacle="this is Spark 4.1")
    with pytest.raises(Unsupported, match=r"is not possible: this is Spark 4\.1"):
        Repartitioning("app", journal, bins, a_clock()).perform("words", 8, lambda: None)
    assert bins.done == [] and journal.actions("app") == ()


def test_a_query_that_does_not_come_back_is_not_called_done(journal: Journal):
    outcome = Repartitioning("app", journal, FakeBins(comes_back=False), a_clock()).perform(
        "words", 8, lambda: None
    )
    assert outcome.status is Status.UNKNOWN and "no batch has ended" in outcome.detail
