"""The journal: observations, decisions, and actions with their intent, outcome and measured effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import summarise, write_query
from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Action, Proposal, Resize
from penstock.decide.verdict import Verdict
from penstock.errors import BadInput, NotFound, NotLeading
from penstock.journal import records
from penstock.journal.databases import Database, PostgresDatabase, SqliteFile
from penstock.journal.leases import Lease, Leases, still_holds
from penstock.journal.ports import Sizes
from penstock.journal.records import ActionRecord, DecisionRecord, ObservationRecord, Plain, RunRecord
from penstock.journal.schema import actions, decisions, memories, observations

RETAINED = 10_000
"""Observations, and decisions that led to no action, kept for each application."""
APPLICATIONS_KEPT = 10
"""Times as many are kept in all: each run of a driver is an application of its own, and none returns."""
KEYS_KEPT, MEMORIES_KEPT = 200, 10_000
"""Memories of one kind kept for an owner, and for all: their names may come without end, too.

Each kind by itself: runs, of which there are many, must not drive out what an operator said long ago."""

ROWS_AT_ONCE = 500
LARGEST_NUMBER = 2**31
"""Of a row: PostgreSQL and SQLite refuse to compare with what they cannot hold."""

Named = str | Sequence[str] | None
"""One application, several, or all."""


def open_journal(url_or_path: str | Path, *, create: bool = True, retained: int = RETAINED) -> Journal:
    """Open a journal and see that it can be used; JournalUnavailable says what stands in the way."""
    journal = journal_at(url_or_path, create=create, retained=retained)
    journal.check()
    return journal


def journal_at(url_or_path: str | Path, *, create: bool = True, retained: int = RETAINED) -> Journal:
    """Return a journal that is opened at its first use: one that fails now may work later."""
    scheme, separator, rest = str(url_or_path).partition("://")
    if scheme in ("postgresql", "postgres") and separator:
        return Journal(PostgresDatabase(f"postgresql://{rest}", create=create), retained)
    if separator and scheme != "sqlite":
        raise BadInput(
            f"a journal in {scheme!r} is not supported; give the path of a file or postgresql://HOST/DATABASE"
        )
    path = rest.removeprefix("/") if separator else str(url_or_path)
    return Journal(SqliteFile(Path(path), create=create), retained)


class Journal:
    """The journal. Each method is one transaction; any thread of any process may call it."""

    def __init__(
        self, database: Database, retained: int = RETAINED, lease: Callable[[], Lease | None] | None = None
    ) -> None:
        """With `lease` an intent is written only while the lease holds; NotLeading otherwise."""
        self.database, self.retained, self._lease = database, retained, lease
        self._since_pruned: dict[str, int] = {}

    @property
    def leases(self) -> Leases:
        """The leases, for what has several controllers."""
        return Leases(self.database)

    def bind_to(self, lease: Callable[[], Lease | None]) -> Journal:
        """Return the same journal, with intents bound to this lease."""
        return Journal(self.database, self.retained, lease)

    def check(self) -> None:
        """Raise JournalUnavailable unless the journal can be read."""
        with self.database.reading() as connection:
            connection.execute(sa.select(actions.c.id).limit(1))

    def close(self) -> None:
        """Give back what is held open."""
        self.database.close()

    def observed(self, now: float, window: ApplicationWindow) -> None:
        """Keep the figures of a window; without room for them they are left out."""
        if not self.database.has_room():
            return
        row = {
            "application": window.application,
            "at": now,
            "start": window.start,
            "parallelism": dict(window.parallelism),
            "slots": window.slots,
            "queries": [{**asdict(summarise(one)), "detail": write_query(one)} for one in window.queries],
            "warnings": list(window.warnings),
        }
        with self.database.writing() as connection:
            connection.execute(sa.insert(observations).values(row))
            self._prune(connection, observations, window.application)

    def decided(
        self, now: float, application: str, answer: Proposal | NotReady, verdict: Verdict, policy: str = ""
    ) -> int:
        """Keep an answer and its verdict; the same again only raises the count of the row before."""
        said, judged = records.plain_answer(answer), records.plain_verdict(verdict)
        key = records.write_sameness(policy, said, verdict)
        known = None if self.database.has_room() else self._find_said(application, key)
        if known is not None:
            return known
        with self.database.writing() as connection:
            repeated = _find_repeated(connection, application, key)
            if repeated is not None:
                again = {"last_at": now, "count": decisions.c.count + 1, "answer": said, "verdict": judged}
                connection.execute(sa.update(decisions).where(decisions.c.id == repeated).values(again))
                return repeated
            row = {"application": application, "policy": policy, "first_at": now, "last_at": now, "count": 1}
            row |= {"sameness": key, "answer": said, "verdict": judged}
            decision_id = _insert(connection, decisions, row)
            self._prune(connection, decisions, application)
            return decision_id

    def intend(
        self, now: float, application: str, decision_id: int, action: Action | Resize, before: Sizes
    ) -> int:
        """Write down what is about to be done; it is durable before this returns."""
        with self.database.writing() as connection:
            self._check_lease(connection)
            row = {
                "application": application,
                "decision_id": decision_id,
                "intended_at": now,
                "seen": _last_seen(connection, application),
                "held_before": dict(before),
                "planned": dict(action.settings if isinstance(action, Resize) else action.planned),
                "exact": records.drop_infinite(action.exact),
                "reason": action.reason,
                "expected": records.plain_effect(action.expected),
            }
            return _insert(connection, actions, row)

    def ended(self, now: float, action_id: int, outcome: Outcome) -> None:
        """Write down what became of an action; the first outcome stands."""
        values = {
            "ended_at": now,
            "status": outcome.status.value,
            "requested": dict(outcome.requested),
            "observed": dict(outcome.observed),
            "seconds": outcome.seconds,
            "detail": outcome.detail,
        }
        self._complete(action_id, actions.c.ended_at, values)

    def effect(self, now: float, action_id: int, figures: Mapping[str, float]) -> None:
        """Write down what was measured some time after an action, beside what was expected."""
        self._complete(
            action_id, actions.c.effect_at, {"effect_at": now, "measured": records.drop_infinite(figures)}
        )

    def unfinished(self, application: str) -> tuple[ActionRecord, ...]:
        """Return actions whose outcome was never written, oldest first."""
        return self._actions(actions.c.application == application, actions.c.ended_at.is_(None))

    def actions(
        self, application: Named = None, limit: int | None = None, since: float | None = None
    ) -> tuple[ActionRecord, ...]:
        """Return actions in the order of their intent; a limit keeps the latest."""
        later = _from(actions.c.intended_at, since)
        return self._actions(*_of(actions, application), *later, limit=limit)

    def action(self, action_id: int) -> ActionRecord:
        """Return one action, or raise NotFound."""
        # a larger number than a column can hold is nobody's
        found = self._actions(actions.c.id == action_id) if abs(action_id) < LARGEST_NUMBER else ()
        if not found:
            raise NotFound(f"there is no action {action_id} in the journal {self.database.name}")
        return found[0]

    def decisions(self, application: Named = None, since: float | None = None) -> tuple[DecisionRecord, ...]:
        """Return decisions in the order of their first time."""
        later = _from(decisions.c.last_at, since)
        query = sa.select(decisions).where(*_of(decisions, application), *later)
        return tuple(map(records.read_decision, self._read(query, decisions)))

    def observations(
        self, application: Named = None, limit: int | None = None
    ) -> tuple[ObservationRecord, ...]:
        """Return observations in the order in which they were written; a limit keeps the latest."""
        query = sa.select(observations).where(*_of(observations, application))
        return tuple(map(records.read_observation, self._read(query, observations, limit)))

    def runs(self, application: Named = None, limit: int | None = None) -> tuple[RunRecord, ...]:
        """Return the runs that were seen last, the latest first."""
        seen = observations.c
        executors = sa.func.coalesce(seen.parallelism[EXECUTORS].as_integer(), 0)
        first = sa.select(
            seen.application,
            sa.func.min(seen.id).label("first"),
            sa.func.min(seen.start).label("first_at"),
            sa.func.max(seen.at).label("last_at"),
            sa.func.max(seen.slots).label("slots_at_peak"),
            sa.func.sum(seen.slots * (seen.at - seen.start)).label("slot_seconds"),
            sa.func.max(executors).label("executors_at_peak"),
            sa.func.sum(executors * (seen.at - seen.start)).label("executor_seconds"),
        ).where(*_of(observations, application))
        runs = first.group_by(seen.application).subquery()
        at_first = seen.slots.label("slots_at_start"), executors.label("executors_at_start")
        query = sa.select(runs, *at_first)
        query = query.join(observations, seen.id == runs.c.first).order_by(runs.c.last_at.desc()).limit(limit)
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(RunRecord(**{k: v for k, v in row.items() if k != "first"}) for row in rows)

    def outlines(self, application: Named, since: float) -> tuple[ObservationRecord, ...]:
        """Return observations since a time without what only policies need: weeks of them fit into memory."""
        which = (*_of(observations, application), observations.c.at >= since)
        query = sa.select(observations).where(*which).order_by(observations.c.id)
        with self.database.reading() as connection:
            rows = connection.execute(query.execution_options(yield_per=ROWS_AT_ONCE)).mappings()
            return tuple(records.read_outline(dict(row)) for row in rows)

    def remember(self, now: float, owner: str, kind: str, key: str, body: Plain) -> None:
        """Keep what was learned under a name that outlives the driver; the same key is written over."""
        self.revise(now, owner, kind, key, lambda known: body)

    def revise(
        self, now: float, owner: str, kind: str, key: str, change: Callable[[Plain | None], Plain]
    ) -> Plain:
        """Change what is known by a key, with nobody in between, and return it."""
        this = sa.and_(memories.c.owner == owner, memories.c.kind == kind, memories.c.key == key)
        with self.database.writing() as connection:
            body = change(connection.execute(sa.select(memories.c.body).where(this)).scalar())
            connection.execute(sa.delete(memories).where(this))
            row = {"owner": owner, "kind": kind, "key": key, "at": now, "body": body}
            connection.execute(sa.insert(memories).values(row))
            self._prune_memories(connection, owner, kind)
        return body

    def recall(self, owner: str, kind: str) -> dict[str, Plain]:
        """Return key → what was learned, the oldest first."""
        return self._recall(memories.c.kind == kind, memories.c.owner == owner).get(owner, {})

    def recall_all(self, kind: str) -> dict[str, dict[str, Plain]]:
        """Return owner → key → what was learned."""
        return self._recall(memories.c.kind == kind)

    def _recall(self, *which: sa.ColumnElement[bool]) -> dict[str, dict[str, Plain]]:
        with self.database.reading() as connection:
            rows = connection.execute(sa.select(memories).where(*which).order_by(memories.c.at)).all()
        found: dict[str, dict[str, Plain]] = {}
        for row in rows:
            found.setdefault(row.owner, {})[row.key] = row.body
        return found

    def _find_said(self, application: str, key: str) -> int | None:
        """Find the last decision if it said the same; where there is no room it is not even counted."""
        with self.database.reading() as connection:
            return _find_repeated(connection, application, key)

    def _check_lease(self, connection: Connection) -> None:
        """Refuse an intent without a lease, in its transaction: a later leader finds what was written."""
        if self._lease is None:
            return
        lease = self._lease()
        if lease is None or not still_holds(connection, lease):
            raise NotLeading("another controller leads: nothing is changed here")

    def _actions(
        self, *conditions: sa.ColumnElement[bool], limit: int | None = None
    ) -> tuple[ActionRecord, ...]:
        joined = sa.join(actions, decisions, actions.c.decision_id == decisions.c.id)
        query = sa.select(actions, decisions.c.policy, decisions.c.answer, decisions.c.verdict)
        query = query.select_from(joined).where(*conditions)
        return tuple(map(records.read_action, self._read(query, actions, limit)))

    def _read(
        self, query: sa.Select[Any], table: sa.Table, limit: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Read the latest rows, so many at most, in the order of their numbers."""
        query = query.order_by(table.c.id.desc()).limit(limit)
        with self.database.reading() as connection:
            return [dict(row) for row in reversed(connection.execute(query).mappings().all())]

    def _complete(self, action_id: int, still_empty: sa.Column[Any], values: Plain) -> None:
        with self.database.writing() as connection:
            known = connection.execute(sa.select(actions.c.id).where(actions.c.id == action_id)).first()
            if known is None:
                raise NotFound(f"there is no action {action_id} in the journal {self.database.name}")
            this = sa.and_(actions.c.id == action_id, still_empty.is_(None))
            connection.execute(sa.update(actions).where(this).values(values))

    def _prune(self, connection: Connection, table: sa.Table, application: str) -> None:
        """Now and then drop the oldest rows, never a decision that an action refers to."""
        if not self._is_due(f"{table.name} {application}", self.retained // 100):
            return
        mine = table.c.application == application
        _drop_oldest(connection, table, self.retained, mine)
        _drop_oldest(connection, table, self.retained * APPLICATIONS_KEPT, sa.true())

    def _prune_memories(self, connection: Connection, owner: str, kind: str) -> None:
        """Drop the oldest memories: keys that no run asks for, and owners that never come back, pile up."""
        if self._is_due(f"{memories.name} {owner} {kind}", KEYS_KEPT // 10):
            alike = memories.c.kind == kind
            mine = sa.and_(memories.c.owner == owner, alike)
            for which, kept in ((mine, KEYS_KEPT), (alike, MEMORIES_KEPT)):
                newest_first = sa.select(memories.c.at).where(which).order_by(memories.c.at.desc())
                oldest = connection.execute(newest_first.offset(kept - 1).limit(1)).scalar()
                if oldest is not None:
                    connection.execute(sa.delete(memories).where(which, memories.c.at < oldest))

    def _is_due(self, key: str, every: int) -> bool:
        """Tell whether it is time again; it is at first, or short runs would never prune."""
        self._since_pruned[key] = self._since_pruned.get(key, every) + 1
        if self._since_pruned[key] < every:
            return False
        self._since_pruned[key] = 0
        return True


def _drop_oldest(connection: Connection, table: sa.Table, kept: int, which: sa.ColumnElement[bool]) -> None:
    newest_first = sa.select(table.c.id).where(which).order_by(table.c.id.desc())
    oldest_kept = connection.execute(newest_first.offset(kept - 1).limit(1)).scalar()
    if oldest_kept is not None:
        used = sa.select(actions.c.decision_id)
        spare = table.c.id.not_in(used) if table is decisions else sa.true()
        connection.execute(sa.delete(table).where(which, table.c.id < oldest_kept, spare))


def _find_repeated(connection: Connection, application: str, key: str) -> int | None:
    """Find the application's last decision, if it said the same and nothing was done for it."""
    mine = sa.select(decisions.c.id, decisions.c.sameness).where(decisions.c.application == application)
    last = connection.execute(mine.order_by(decisions.c.id.desc()).limit(1)).first()
    if last is None or last.sameness != key:
        return None
    acted = connection.execute(sa.select(actions.c.id).where(actions.c.decision_id == last.id).limit(1))
    return None if acted.first() else int(last.id)


def _last_seen(connection: Connection, application: str) -> list[Plain]:
    """Read the last observation; a copy of it explains the action when the observation is long gone."""
    mine = sa.select(observations.c.queries).where(observations.c.application == application)
    seen = connection.execute(mine.order_by(observations.c.id.desc()).limit(1)).scalar() or []
    return [{**query, "detail": {}} for query in seen]


def _insert(connection: Connection, table: sa.Table, row: Plain) -> int:
    key = connection.execute(sa.insert(table).values(row)).inserted_primary_key
    assert key is not None
    return int(key[0])


def _from(column: sa.Column[Any], since: float | None) -> tuple[sa.ColumnElement[bool], ...]:
    return () if since is None else (column >= since,)


def _of(table: sa.Table, application: Named) -> tuple[sa.ColumnElement[bool], ...]:
    if application is None:
        return ()
    return (table.c.application.in_((application,) if isinstance(application, str) else application),)
