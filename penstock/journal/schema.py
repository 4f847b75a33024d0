"""The journal's tables, and the steps that bring an older journal to the present version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from penstock.errors import JournalUnavailable

metadata = sa.MetaData()

schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, nullable=False))


def _columns(nullable: bool = False, /, **kinds: Any) -> list[sa.Column[Any]]:
    """Make a column of each name and type."""
    return [sa.Column(name, kind, nullable=nullable) for name, kind in kinds.items()]


_NULLABLE_JSON = sa.JSON(none_as_null=True)

observations = sa.Table(
    "observations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    *_columns(application=sa.Text, at=sa.Double, start=sa.Double, parallelism=sa.JSON, slots=sa.Integer),
    *_columns(queries=sa.JSON, warnings=sa.JSON),
    sa.Index("observations_by_application", "application", "id"),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    *_columns(application=sa.Text, policy=sa.Text, first_at=sa.Double, last_at=sa.Double, count=sa.Integer),
    *_columns(sameness=sa.Text, answer=sa.JSON, verdict=sa.JSON),
    sa.Index("decisions_by_application", "application", "id"),
)

actions = sa.Table(
    "actions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("decision_id", sa.Integer, sa.ForeignKey("decisions.id"), nullable=False),
    *_columns(application=sa.Text, intended_at=sa.Double, seen=sa.JSON, held_before=sa.JSON),
    *_columns(planned=sa.JSON, exact=sa.JSON, reason=sa.Text, expected=sa.JSON),
    *_columns(True, ended_at=sa.Double, status=sa.Text, requested=_NULLABLE_JSON, observed=_NULLABLE_JSON),
    *_columns(True, seconds=sa.Double, detail=sa.Text, effect_at=sa.Double, measured=_NULLABLE_JSON),
    sa.Index("actions_by_application", "application", "id"),
    sa.Index("actions_by_decision", "decision_id"),
)

memories = sa.Table(
    "memories",
    metadata,
    *(sa.Column(name, sa.Text, primary_key=True) for name in ("owner", "kind", "key")),
    *_columns(at=sa.Double, body=sa.JSON),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    *_columns(holder=sa.Text, term=sa.Integer, beats=sa.Integer),
)

Step = Callable[[Connection], None]


STEPS: tuple[Step, ...] = (memories.create, leases.create)
"""The first step brings a journal from version 1 to version 2, and so on; a new one needs no steps."""


def present_version(steps: Sequence[Step] = STEPS) -> int:
    """Return the version that this Penstock writes."""
    return 1 + len(steps)


def read_version(connection: Connection, name: str) -> int:
    """Read a journal's version, 0 for an empty file; refuse a database of something else."""
    tables = sa.inspect(connection).get_table_names()
    if schema_version.name in tables:
        return connection.execute(sa.select(sa.func.max(schema_version.c.version))).scalar() or 0
    if tables:
        raise JournalUnavailable(f"{name} is a database, but not a journal of Penstock")
    return 0


def check_version(version: int, name: str, steps: Sequence[Step] = STEPS) -> None:
    """Refuse a journal that a newer Penstock has written, for it may hold what this one would destroy."""
    if version > present_version(steps):
        raise JournalUnavailable(
            f"the journal {name} has schema version {version}, and this Penstock knows versions up to "
            f"{present_version(steps)}: use a newer Penstock or another journal"
        )


def migrate(connection: Connection, name: str, steps: Sequence[Step] = STEPS) -> None:
    """Bring a journal to the present version, within the caller's transaction."""
    version = read_version(connection, name)
    check_version(version, name, steps)
    if version == present_version(steps):
        return
    if version == 0:
        metadata.create_all(connection)
    else:
        for step in steps[version - 1 :]:
            step(connection)
    connection.execute(sa.delete(schema_version))
    connection.execute(sa.insert(schema_version).values(version=present_version(steps)))
