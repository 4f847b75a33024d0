"""How restarts ended is read from the journal, over all runs of a name."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Accepted
from penstock.journal.former_runs import KIND, identify_process
from penstock.journal.store import Journal
from penstock.runtime.telemetry.restarts import RestartWatch
from tests.fakes import a_scale, an_outcome

RESIZE = Resize({"spark.executor.memory": "2g"}, "heap is full", ExpectedEffect("room"))


def act(journal: Journal, application: str, at: float, status: Status, restart: bool = True) -> None:
    action = RESIZE if restart else a_scale(3)
    decision = journal.decided(at, application, action, Accepted(action), "sage")
    number = journal.intend(at, application, decision, action, {})
    outcome = Outcome(status, {}, {}, {}, 5.0) if restart else an_outcome(3, status)
    journal.ended(at + 5.0, number, outcome)


def test_the_last_end_by_status_over_all_runs_once_a_minute(journal: Journal) -> None:
    for application in ("app-1", "app-2"):
        journal.remember(1.0, "words", KIND, application, identify_process())
    act(journal, "app-1", 10.0, Status.FAILED)
    act(journal, "app-2", 20.0, Status.DONE)
    act(journal, "app-2", 30.0, Status.FAILED)
    act(journal, "app-2", 40.0, Status.FAILED, restart=False)
    act(journal, "app-9", 50.0, Status.FAILED)  # of another name
    told: list[Mapping[str, float]] = []
    watch = RestartWatch(journal, "words", told.append)
    for now in (100.0, 159.0, 160.0, 50.0):
        watch.look(now)
    assert told == [{"failed": 35.0, "done": 25.0}] * 3
