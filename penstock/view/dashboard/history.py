"""Applications that ran: read from the journal, in the form of a status, so that pages need not know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from penstock.dataflow.window import EXECUTORS
from penstock.errors import JournalUnavailable
from penstock.journal.explain import explain
from penstock.journal.former_runs import KIND as RUN
from penstock.journal.former_runs import find_name
from penstock.journal.records import ActionRecord, DecisionRecord, RunRecord
from penstock.journal.store import Journal, open_journal
from penstock.journal.terms import Terms, recall_all_terms
from penstock.runtime.status import plain_point
from penstock.runtime.tally import KINDS
from penstock.runtime.timeline import TimelinePoint
from penstock.view import figures
from penstock.view.dashboard.standing import describe_cost

SHOWN = 50
POINTS = 1000
ACTIONS = 500
FRESH_SECONDS = 30.0
SAME_MOMENT = 0.01

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FormerRow:
    """An application of the past in the table, every figure written out."""

    key: str
    name: str
    began: str
    lasted: str
    peak: str
    cost: str
    saved: str


class JournalHistory:
    """The journal as the dashboard reads it; where there is none yet, there is no past."""

    def __init__(self, place: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._place, self._clock = place, clock
        self._listed_at = float("-inf")
        self._runs: tuple[RunRecord, ...] = ()
        self._names: dict[str, str] = {}
        self._terms: dict[str, Terms] = {}

    @contextmanager
    def open(self) -> Iterator[Journal]:
        """Open the journal; JournalUnavailable where there is none."""
        with closing(open_journal(self._place, create=False)) as journal:
            yield journal

    def list_runs(self) -> tuple[RunRecord, ...]:
        """List the latest runs that the journal knows, read anew every half minute at most."""
        if self._clock() - self._listed_at > FRESH_SECONDS:
            self._listed_at = self._clock()
            try:
                with self.open() as journal:
                    self._runs = journal.runs(limit=SHOWN)
                    known: Mapping[str, Mapping[str, Any]] = journal.recall_all(RUN)
                    self._terms = recall_all_terms(journal)
                self._names = {run: name for name, runs in known.items() for run in runs}
            except JournalUnavailable:
                self._runs = ()
        return self._runs

    def list_rows(self, running: frozenset[str]) -> list[FormerRow]:
        """List the applications that ran and do not run now."""
        return [self._write_row(run) for run in self.list_runs() if run.application not in running]

    def find_status(self, application: str) -> Plain | None:
        """Return the last status of an application of the past; None for one that is unknown."""
        try:
            with self.open() as journal:
                seen = journal.observations(application, limit=POINTS)
                if not seen:
                    return None
                decisions = journal.decisions(application)
                actions = {one.decision_id: one for one in journal.actions(application, limit=ACTIONS)}
                (run,), name = journal.runs(application), find_name(journal, application)
                terms = recall_all_terms(journal).get(application, Terms())
        except JournalUnavailable:
            return None
        points = [TimelinePoint(one.at, one.parallelism, one.slots, one.queries) for one in seen]
        return {
            "application": application,
            "name": name,
            "policy": decisions[-1].policy if decisions else "",
            "now": points[-1].at,
            "executors": points[-1].parallelism.get(EXECUTORS),
            "slots": points[-1].slots,
            "recent": [plain_point(point) for point in points],
            "decisions": [_plain_decision(one, actions.get(one.decision_id)) for one in decisions],
            "queries": [],
            "usage": run.usage,
            "terms": asdict(terms),
        }

    def explain_action(self, application: str, at: float) -> str | None:
        """Tell the whole story of the action that was begun at this moment; None where there was none."""
        try:
            with self.open() as journal:
                actions = journal.actions(application, limit=ACTIONS)
        except JournalUnavailable:
            return None
        near = (one for one in reversed(actions) if abs(one.intended_at - at) < SAME_MOMENT)
        found = next(near, None)
        return explain(found) if found is not None else None

    def _write_row(self, run: RunRecord) -> FormerRow:
        cost, saved = describe_cost(run.usage, self._terms.get(run.application, Terms()))
        return FormerRow(
            key=run.application,
            name=self._names.get(run.application, run.application),
            began=figures.day_and_clock(run.first_at),
            lasted=figures.seconds(run.last_at - run.first_at),
            peak=figures.count(run.usage["slots_at_peak"]),
            cost=cost,
            saved=saved,
        )


def _plain_decision(decision: DecisionRecord, action: ActionRecord | None) -> Plain:
    plain: Plain = {
        "at": decision.last_at,
        "kind": KINDS.get(decision.kind, decision.kind),
        "reason": decision.reason,
        "count": decision.count,
    }
    if action is None:
        return plain
    before, after = action.before.get(EXECUTORS), action.planned.get(EXECUTORS)
    shrinks = before is not None and after is not None and after < before
    outcome = {"status": action.status.value, "seconds": action.seconds} if action.status else None
    return plain | {
        "at": action.intended_at,
        "kind": ("scale-in" if shrinks else "scale-out") if after is not None else "move-state",
        "from": before,
        "to": after,
        "expected": action.expected.summary,
        "outcome": outcome,
    }
