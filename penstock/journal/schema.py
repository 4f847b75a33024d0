"""The journal's tables, and the steps that bring an older journal to the present version."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from penstock.errors import JournalUnavailable

metadata = sa.MetaData()

schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, nullable=False))

observations = sa.Table(
    "observations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("application", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("start", sa.Double, nullable=False),
    sa.Column("parallelism", sa.JSON, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("queries", sa.JSON, nullable=False),
    sa.Column("warnings", sa.JSON, nullable=False),
    sa.Index("observations_by_application", "application", "id"),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("application", sa.Text, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("first_at", sa.Double, nullable=False),
    sa.Column("last_at", sa.Double, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("sameness", sa.Text, nullable=False),
    sa.Column("answer", sa.JSON, nullable=False),
    sa.Column("verdict", sa.JSON, nullable=False),
    sa.Index("decisions_by_application", "application", "id"),
)

actions = sa.Table(
    "actions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("application", sa.Text, nullable=False),
    sa.Column("decision_id", sa.Integer, sa.ForeignKey("decisions.id"), nullable=False),
    sa.Column("intended_at", sa.Double, nullable=False),
    sa.Column("seen", sa.JSON, nullable=False),
    sa.Column("held_before", sa.JSON, nullable=False),
    sa.Column("planned", sa.JSON, nullable=False),
    sa.Column("exact", sa.JSON, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("expected", sa.JSON, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("status", sa.Text),
    sa.Column("requested", sa.JSON(none_as_null=True)),
    sa.Column("observed", sa.JSON(none_as_null=True)),
    sa.Column("seconds", sa.Double),
    sa.Column("detail", sa.Text),
    sa.Column("effect_at", sa.Double),
    sa.Column("measured", sa.JSON(none_as_null=True)),
    sa.Index("actions_by_application", "application", "id"),
    sa.Index("actions_by_decision", "decision_id"),
)

memories = sa.Table(
    "memories",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("term", sa.Integer, nullable=False),
    sa.Column("beats", sa.Integer, nullable=False),
)

Step = Callable[[Connection], None]


def _add_memories(connection: Connection) -> None:
    memories.create(connection)


def _add_leases(connection: Connection) -> None:
    leases.create(connection)


STEPS: tuple[Step, ...] = (_add_memories, _add_leases)
"""The first step brings a journal from version 1 to version 2, and so on; a new one needs no steps."""


def present_version(steps: Sequence[Step] = STEPS) -> int:
    """The version that this Penstock writes."""
    return 1 + len(steps)


def version_of(connection: Connection, name: str) -> int:
    """A journal's version, 0 for an empty file; a database of something else is refused, not written into."""
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
    version = version_of(connection, name)
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
