"""The journal: observations, decisions, and actions with their intent, outcome and measured effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import summarise
from penstock.dataflow.window import ApplicationWindow
from penstock.dataflow.window_record import plain_query
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Action, Proposal, Resize
from penstock.decide.verdict import Verdict
from penstock.errors import BadInput, NotFound, NotLeading
from penstock.journal.leases import Lease, Leases, holds
from penstock.journal.records import (
    ActionRecord,
    DecisionRecord,
    ObservationRecord,
    Plain,
    finite,
    plain_answer,
    plain_effect,
    plain_verdict,
    sameness,
)
from penstock.journal.rows import action_from, decision_from, observation_from
from penstock.journal.schema import actions, decisions, memories, observations
from penstock.journal.sqlite import SqliteFile

RETAINED = 10_000
"""Observations, and decisions that led to no action, kept for each application."""
APPLICATIONS_KEPT = 10
"""Times as many are kept in all: each run of a driver is an application of its own, and none returns."""
KEYS_KEPT, MEMORIES_KEPT = 200, 10_000
"""Memories of one kind kept for an owner, and for all: their names may come without end, too.

Each kind by itself: runs, of which there are many, must not drive out what an operator said long ago."""

LARGEST_NUMBER = 2**31
"""Of a row: PostgreSQL and SQLite refuse to compare with what they cannot hold."""

Named = str | Sequence[str] | None
"""One application, several, or all."""


class Database(Protocol):
    """Where the tables are; raises JournalUnavailable and nothing else of its own."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that is durable when the block has ended."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A consistent view."""

    def close(self) -> None:
        """Give back what is held open."""


def open_journal(url_or_path: str | Path, *, create: bool = True, retained: int = RETAINED) -> Journal:
    """Open a journal and see that it can be used; JournalUnavailable says what stands in the way."""
    journal = journal_at(url_or_path, create=create, retained=retained)
    journal.check()
    return journal


def journal_at(url_or_path: str | Path, *, create: bool = True, retained: int = RETAINED) -> Journal:
    """A journal that is opened at its first use, so that one that fails now may work later."""
    scheme, separator, rest = str(url_or_path).partition("://")
    if scheme in ("postgresql", "postgres") and separator:
        # imported where it is asked for: one machine's journal needs no driver
        from penstock.journal.postgres import PostgresDatabase

        return Journal(PostgresDatabase(f"postgresql://{rest}", create=create), retained)
    if separator and scheme != "sqlite":
        raise BadInput(
            f"a journal in {scheme!r} is not supported; give the path of a file or postgresql://HOST/DATABASE"
        )
    path = rest.removeprefix("/") if separator else str(url_or_path)
    return Journal(SqliteFile(Path(path), create=create), retained)


class Journal:
    """Each method is one transaction; any thread and any process may call any of them."""

    def __init__(self, database: Database, retained: int = RETAINED) -> None:
        self.database = database
        self.retained = retained
        self._since_pruned: dict[str, int] = {}
        self._lease: Callable[[], Lease | None] | None = None

    @property
    def leases(self) -> Leases:
        """Who leads, for what has several controllers."""
        return Leases(self.database)

    def led_by(self, lease: Callable[[], Lease | None]) -> None:
        """From now on write an intent only while this lease holds; NotLeading otherwise."""
        self._lease = lease

    def check(self) -> None:
        """Raise JournalUnavailable unless the journal can be read."""
        with self.database.reading() as connection:
            connection.execute(sa.select(actions.c.id).limit(1))

    def close(self) -> None:
        """Give back what is held open."""
        self.database.close()

    def observed(self, now: float, window: ApplicationWindow) -> None:
        """Keep the figures of a window."""
        row = {
            "application": window.application,
            "at": now,
            "start": window.start,
            "parallelism": dict(window.parallelism),
            "slots": window.slots,
            "queries": [{**asdict(summarise(one)), "detail": plain_query(one)} for one in window.queries],
            "warnings": list(window.warnings),
        }
        with self.database.writing() as connection:
            connection.execute(sa.insert(observations).values(row))
            self._prune(connection, observations, window.application)

    def decided(
        self, now: float, application: str, answer: Proposal | NotReady, verdict: Verdict, policy: str = ""
    ) -> int:
        """Keep an answer and its verdict; the same again only raises the count of the row before."""
        said, judged = plain_answer(answer), plain_verdict(verdict)
        key = sameness(policy, said, judged)
        with self.database.writing() as connection:
            repeated = _repeated(connection, application, key)
            if repeated is not None:
                again = {"last_at": now, "count": decisions.c.count + 1, "answer": said, "verdict": judged}
                connection.execute(sa.update(decisions).where(decisions.c.id == repeated).values(again))
                return repeated
            row = {"application": application, "policy": policy, "first_at": now, "last_at": now, "count": 1}
            row |= {"sameness": key, "answer": said, "verdict": judged}
            decision_id = _inserted(connection, decisions, row)
            self._prune(connection, decisions, application)
            return decision_id

    def intend(
        self,
        now: float,
        application: str,
        decision_id: int,
        action: Action | Resize,
        before: Mapping[str, int] | Mapping[str, str],
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
                "exact": finite(action.exact),
                "reason": action.reason,
                "expected": plain_effect(action.expected),
            }
            return _inserted(connection, actions, row)

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
        self._complete(action_id, actions.c.effect_at, {"effect_at": now, "measured": finite(figures)})

    def unfinished(self, application: str) -> tuple[ActionRecord, ...]:
        """Actions whose outcome was never written, oldest first."""
        return self._actions(actions.c.application == application, actions.c.ended_at.is_(None))

    def actions(self, application: Named = None, limit: int | None = None) -> tuple[ActionRecord, ...]:
        """Actions in the order of their intent; a limit keeps the latest."""
        return self._actions(*_of(actions, application), limit=limit)

    def action(self, action_id: int) -> ActionRecord:
        """One action, or NotFound."""
        # a larger number than a column can hold is nobody's
        found = self._actions(actions.c.id == action_id) if abs(action_id) < LARGEST_NUMBER else ()
        if not found:
            raise NotFound(f"there is no action {action_id} in the journal {self.database.name}")
        return found[0]

    def decisions(
        self, application: Named = None, since: float | None = None, limit: int | None = None
    ) -> tuple[DecisionRecord, ...]:
        """Decisions in the order of their first time; `since` is compared with their last time."""
        conditions = [*_of(decisions, application)]
        if since is not None:
            conditions.append(decisions.c.last_at >= since)
        query = _latest(sa.select(decisions).where(*conditions), decisions.c.id, limit)
        return tuple(decision_from(row) for row in self._rows(query))

    def observations(
        self, application: Named = None, since: float | None = None, limit: int | None = None
    ) -> tuple[ObservationRecord, ...]:
        """Observations in the order in which they were written."""
        conditions = [*_of(observations, application)]
        if since is not None:
            conditions.append(observations.c.at >= since)
        query = _latest(sa.select(observations).where(*conditions), observations.c.id, limit)
        return tuple(observation_from(row) for row in self._rows(query))

    def remember(self, now: float, owner: str, kind: str, key: str, body: Plain) -> None:
        """Keep what was learned under a name that outlives the driver; the same key is written over."""
        self.revise(now, owner, kind, key, lambda known: body)

    def revise(
        self, now: float, owner: str, kind: str, key: str, change: Callable[[Plain | None], Plain]
    ) -> Plain:
        """Change what is known by a key, and give it; nobody else changes it in between."""
        this = sa.and_(memories.c.owner == owner, memories.c.kind == kind, memories.c.key == key)
        with self.database.writing() as connection:
            body = change(connection.execute(sa.select(memories.c.body).where(this)).scalar())
            connection.execute(sa.delete(memories).where(this))
            row = {"owner": owner, "kind": kind, "key": key, "at": now, "body": body}
            connection.execute(sa.insert(memories).values(row))
            self._prune_memories(connection, owner, kind)
        return body

    def recall(self, owner: str, kind: str) -> dict[str, Plain]:
        """Key → what was learned, the oldest first."""
        mine = sa.select(memories).where(memories.c.owner == owner, memories.c.kind == kind)
        with self.database.reading() as connection:
            rows = connection.execute(mine.order_by(memories.c.at)).mappings().all()
        return {row["key"]: row["body"] for row in rows}

    def recall_all(self, kind: str) -> dict[str, dict[str, Plain]]:
        """Owner → key → what was learned."""
        query = sa.select(memories).where(memories.c.kind == kind).order_by(memories.c.at)
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        found: dict[str, dict[str, Plain]] = {}
        for row in rows:
            found.setdefault(row["owner"], {})[row["key"]] = row["body"]
        return found

    def _check_lease(self, connection: Connection) -> None:
        """In the transaction of the intent: whoever takes over after it finds the intent, and closes it."""
        if self._lease is None:
            return
        lease = self._lease()
        if lease is None or not holds(connection, lease):
            raise NotLeading("another controller leads: nothing is changed here")

    def _actions(
        self, *conditions: sa.ColumnElement[bool], limit: int | None = None
    ) -> tuple[ActionRecord, ...]:
        joined = sa.join(actions, decisions, actions.c.decision_id == decisions.c.id)
        query = sa.select(actions, decisions.c.policy, decisions.c.answer, decisions.c.verdict)
        query = _latest(query.select_from(joined).where(*conditions), actions.c.id, limit)
        return tuple(action_from(row) for row in self._rows(query))

    def _rows(self, query: sa.Select[Any]) -> list[Mapping[str, Any]]:
        with self.database.reading() as connection:
            newest_first = connection.execute(query).mappings().all()
        return [dict(row) for row in reversed(newest_first)]

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
        """Keys that no later run asks for any more, and owners that never come back, must not pile up."""
        if self._is_due(f"{memories.name} {owner} {kind}", KEYS_KEPT // 10):
            alike = memories.c.kind == kind
            mine = sa.and_(memories.c.owner == owner, alike)
            for which, kept in ((mine, KEYS_KEPT), (alike, MEMORIES_KEPT)):
                newest_first = sa.select(memories.c.at).where(which).order_by(memories.c.at.desc())
                oldest = connection.execute(newest_first.offset(kept - 1).limit(1)).scalar()
                if oldest is not None:
                    connection.execute(sa.delete(memories).where(which, memories.c.at < oldest))

    def _is_due(self, key: str, every: int) -> bool:
        """Whether it is time again, which it is at first: short runs would otherwise never prune."""
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


def _repeated(connection: Connection, application: str, key: str) -> int | None:
    """The application's last decision, if it said the same and nothing was done for it."""
    mine = sa.select(decisions.c.id, decisions.c.sameness).where(decisions.c.application == application)
    last = connection.execute(mine.order_by(decisions.c.id.desc()).limit(1)).first()
    if last is None or last.sameness != key:
        return None
    acted = connection.execute(sa.select(actions.c.id).where(actions.c.decision_id == last.id).limit(1))
    return None if acted.first() else int(last.id)


def _last_seen(connection: Connection, application: str) -> list[Plain]:
    """Copied into the action, so that it can still be explained when the observation is long gone."""
    mine = sa.select(observations.c.queries).where(observations.c.application == application)
    seen = connection.execute(mine.order_by(observations.c.id.desc()).limit(1)).scalar() or []
    return [{**query, "detail": {}} for query in seen]


def _inserted(connection: Connection, table: sa.Table, row: Plain) -> int:
    key = connection.execute(sa.insert(table).values(row)).inserted_primary_key
    assert key is not None
    return int(key[0])


def _of(table: sa.Table, application: Named) -> tuple[sa.ColumnElement[bool], ...]:
    if application is None:
        return ()
    return (table.c.application.in_((application,) if isinstance(application, str) else application),)


def _latest(query: sa.Select[Any], key: sa.Column[Any], limit: int | None) -> sa.Select[Any]:
    return query.order_by(key.desc()).limit(limit)
