"""`penstock actions` and `penstock explain`: what was done, and why."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from penstock.commands.printing import Json, answer, reported, say
from penstock.errors import BadInput, NotFound

if TYPE_CHECKING:
    from penstock.journal.records import ActionRecord
    from penstock.journal.store import Journal

LARGEST_NUMBER = 2**31 - 1
"""Of a row, and of rows: what every database can be asked for."""
JournalPath = Annotated[
    str | None, typer.Option("--journal", help="The journal to read; default: the one in the settings.")
]
Config = Annotated[Path | None, typer.Option("--config", help="The settings file.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("actions")(actions)
    app.command("explain")(explain)


@reported
def actions(
    app: Annotated[
        str | None, typer.Option("--app", help="Only this application, by its id or its name.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=LARGEST_NUMBER, help="At most this many, the latest.")
    ] = 100,
    decided: Annotated[
        bool, typer.Option("--decided", help="Also what was recommended, decided by a fleet, or overridden.")
    ] = False,
    journal: JournalPath = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List what was done to applications, oldest first."""
    from penstock.former_runs import also_known_as
    from penstock.view.listing import actions_table, decisions_table, overrides_table

    records: tuple[ActionRecord, ...] = ()
    told: dict[str, Any] = {"decisions": [], "overrides": {}} if decided else {}
    place = _place(journal, config)
    if place is None:
        say("nothing was recorded yet: there is no journal")
    else:
        with closing(_open(place)) as opened:
            names = also_known_as(opened, app) if app is not None else None
            records = opened.actions(names, limit)
            if decided:
                told = _decided(opened, names, limit)
    shown = [actions_table(records)]
    if decided:
        shown += [decisions_table(told["decisions"]), overrides_table(told["overrides"])]
    answer({"actions": [plain(record) for record in records], **told}, as_json, Group(*shown))


def _decided(journal: Journal, names: tuple[str, ...] | None, limit: int) -> dict[str, Any]:
    """Changes that were decided and not, or not yet, done here; and what operators said of applications."""
    from penstock.journal.overrides import KEY, KIND

    changes = [one for one in journal.decisions(names) if one.answer["kind"] in ("scale", "resize")]
    overrides = {owner: said[KEY] for owner, said in journal.recall_all(KIND).items() if KEY in said}
    return {
        "decisions": [asdict(one) for one in changes[-limit:]],
        "overrides": {owner: said for owner, said in overrides.items() if names is None or owner in names},
    }


@reported
def explain(
    action: Annotated[
        int,
        typer.Argument(max=LARGEST_NUMBER, help="The number of the action, as `penstock actions` lists it."),
    ],
    journal: JournalPath = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say why an action was taken, what it was expected to bring, and what it brought."""
    from penstock.journal.explain import explain as in_words

    place = _place(journal, config)
    if place is None:
        raise BadInput(f"there is no action {action}: nothing was recorded yet")
    with closing(_open(place)) as opened:
        try:
            record = opened.action(action)
        except NotFound as error:
            raise BadInput(str(error)) from error
    words = in_words(record)
    answer({"action": plain(record), "explanation": words}, as_json, Text(words))


def plain(record: ActionRecord) -> dict[str, Any]:
    """A record as plain JSON values."""
    return {**asdict(record), "status": record.status.value if record.status else None}


def _place(journal: str | None, config: Path | None) -> str | None:
    """Where the journal is, or nothing: one that was never written to is empty, not an error."""
    from penstock.settings import load_settings

    place = journal or load_settings(config).journal
    if "://" in place or Path(place).exists():
        return place
    if journal:
        raise BadInput(f"--journal: {place}: no such file")
    return None


def _open(place: str) -> Journal:
    from penstock.journal.store import open_journal

    return open_journal(place, create=False)
