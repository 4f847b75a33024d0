"""Another number of bins: stop, repartition, restart; by hand only, its pause said before and measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Action, ExpectedEffect, Proposal, Resize
from penstock.decide.verdict import Accepted, Verdict
from penstock.errors import ActionFailed, PenstockError, Unsupported
from penstock.migrate.repartition import Repartition

PARTITIONS = "spark.sql.shuffle.partitions"


class Bins(Protocol):
    """What can change the number of a query's bins; `penstock.migrate.spark_repartition` for Spark."""

    def expected(self, query: str, bins: int) -> Repartition:
        """What it would take."""

    def rewrite(self, query: str, bins: int) -> None:
        """Stop the query after its batch, and rewrite its state; the query is stopped also if this fails."""

    def first_batch(self, query: str) -> bool:
        """Wait for the first batch after the restart, within bounds; whether there was one."""


class Record(Protocol):
    """The journal, as far as it is written here."""

    def decided(
        self, now: float, application: str, answer: Proposal, verdict: Verdict, policy: str = ""
    ) -> int:
        """Keep a decision."""

    def intend(
        self,
        now: float,
        application: str,
        decision_id: int,
        action: Action | Resize,
        before: Mapping[str, int],
    ) -> int:
        """Write down what is about to be done."""

    def ended(self, now: float, action_id: int, outcome: Outcome) -> None:
        """Write down what became of it."""


class Repartitioning:
    """Gives a query another number of bins; the user's code starts it again, for only that knows how."""

    def __init__(
        self, application: str, record: Record, bins: Bins, clock: Callable[[], float] = time.time
    ) -> None:
        self._application, self._record, self._bins, self._clock = application, record, bins, clock

    def plan(self, query: str, bins: int) -> Repartition:
        """What it would take, with the expected pause; nothing is done."""
        return self._bins.expected(query, bins)

    def perform(self, query: str, bins: int, start: Callable[[], object]) -> Outcome:
        """Stop the query, rewrite its state, call `start`; if rewriting fails, start it as it was."""
        expected = self._bins.expected(query, bins)
        if expected.obstacle is not None:
            raise Unsupported(expected.words())
        action_id, begun = self._intend(expected), self._clock()
        try:
            self._bins.rewrite(query, bins)
        except PenstockError as problem:
            self._restart(start, action_id, expected, Status.FAILED, begun)
            self._end(action_id, expected, Status.FAILED, begun, f"{problem}; started again as it was")
            raise ActionFailed(f"{query} keeps its bins: {problem}") from problem
        self._restart(start, action_id, expected, Status.UNKNOWN, begun)
        alive = self._bins.first_batch(query)
        detail = "the query runs again" if alive else "no batch has ended since the restart"
        return self._end(action_id, expected, Status.DONE if alive else Status.UNKNOWN, begun, detail)

    def _restart(
        self, start: Callable[[], object], action_id: int, expected: Repartition, status: Status, begun: float
    ) -> None:
        """Call the user's code; what it raises is his own, and ends the action as well."""
        try:
            start()
        except Exception as problem:
            said = f"the query was not started again: {type(problem).__name__}: {problem}"
            self._end(action_id, expected, status, begun, said)
            raise

    def _intend(self, expected: Repartition) -> int:
        figures = {"pause_seconds": expected.pause_seconds}
        effect = ExpectedEffect(expected.words(), figures)
        action = Resize({PARTITIONS: str(expected.bins_after)}, f"{expected.name} gets more bins", effect)
        now, held = self._clock(), {PARTITIONS: expected.bins_before}
        decision_id = self._record.decided(now, self._application, action, Accepted(action), "by hand")
        return self._record.intend(now, self._application, decision_id, action, held)

    def _end(
        self, action_id: int, expected: Repartition, status: Status, begun: float, detail: str
    ) -> Outcome:
        wanted = {PARTITIONS: expected.bins_after}
        now = self._clock()
        seconds = max(0.0, now - begun)
        said = f"{detail}; it stood still for {seconds:.0f} s"
        outcome = Outcome(status, wanted, wanted, wanted, seconds, said)
        if status is Status.FAILED:
            outcome = replace(outcome, observed={PARTITIONS: expected.bins_before})
        self._record.ended(now, action_id, outcome)
        return outcome
