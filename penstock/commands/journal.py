"""`penstock actions`, `explain` and `override`: what a journal holds, and what operators add to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from penstock.commands.config import Config
from penstock.commands.printing import Json, answer, say
from penstock.errors import BadInput, NotFound

if TYPE_CHECKING:
    from penstock.journal.records import ActionRecord
    from penstock.journal.store import Journal

LARGEST_NUMBER = 2**31 - 1
"""The largest row number, and number of rows, that every database takes."""
JournalPath = Annotated[
    str | None,
    typer.Option(
        "--journal", metavar="JOURNAL", help="The journal to read; default: the one in the settings."
    ),
]
Names = list[str] | None


def actions(
    app: Annotated[
        str | None, typer.Option("--app", metavar="APP", help="Only this application, by its id or its name.")
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
    from penstock.journal.former_runs import list_aliases
    from penstock.view.decisions_terminal import render_actions, render_decisions, render_overrides

    records: tuple[ActionRecord, ...] = ()
    told: dict[str, Any] = {"decisions": [], "overrides": {}} if decided else {}
    place, is_there = find_journal(journal, config)
    if not is_there:
        say(f"nothing was recorded yet: there is no journal at {place}")
    else:
        with closing(_open(place)) as opened:
            names = list_aliases(opened, app) if app is not None else None
            records = opened.actions(names, limit)
            if decided:
                told = _list_decisions(opened, names, limit)
    shown = [render_actions(records)]
    if decided:
        shown += [render_decisions(told["decisions"]), render_overrides(told["overrides"])]
    answer({"actions": [_to_json(record) for record in records], **told}, as_json, Group(*shown))


def explain(
    action: Annotated[
        int,
        typer.Argument(
            metavar="ACTION",
            min=1,
            max=LARGEST_NUMBER,
            help="The number of the action, as `penstock actions` lists it.",
        ),
    ],
    journal: JournalPath = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say why an action was taken, and what it brought.

    What it was expected to bring is told beside it.
    """
    from penstock.journal.explain import explain as explain_record

    place, is_there = find_journal(journal, config)
    if not is_there:
        raise BadInput(f"there is no action {action}: nothing was recorded yet at {place}")
    with closing(_open(place)) as opened:
        try:
            record = opened.action(action)
        except NotFound as error:
            raise BadInput(f"{error}: `penstock actions` lists those that there are") from error
    words = explain_record(record)
    answer({"action": _to_json(record), "explanation": words}, as_json, Text(words))


def override(
    name: Annotated[
        str, typer.Argument(metavar="APP", help="The application, by its name or the id of a run.")
    ],
    pin: Annotated[
        Names,
        typer.Option(
            "--pin", help="A parameter that stays as it is, such as heap, or gets a value: heap=2g."
        ),
    ] = None,
    veto: Annotated[Names, typer.Option("--veto", help="A rule that is silent, such as P3.")] = None,
    force: Annotated[
        str | None, typer.Option("--force", help="A rule that decides once, such as P6.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget what was said before.")] = False,
    journal: JournalPath = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Pin a parameter, veto or force a rule, or show what holds.

    The running application takes it up by itself.
    """
    from penstock.journal.former_runs import find_name
    from penstock.journal.overrides import add_override, recall_overrides
    from penstock.runtime.by_hand import name_user
    from penstock.runtime.surroundings import is_obeyed

    if not name.strip():
        raise BadInput("the name of an application is expected, not an empty one")
    says_something = bool(pin or veto or force or clear)
    place, _ = find_journal(journal, config, may_be_new=says_something)
    with closing(_open(place, create=True)) as opened:
        # what is said outlives the run
        name = find_name(opened, name)
        if says_something:
            add_override(opened, time.time(), name, name_user(), pin or (), veto or (), force, clear)
        said = recall_overrides(opened, name)
        said["obeyed"] = is_obeyed(opened, name, said["force"])
    answer({"application": name, **said}, as_json, Text(_describe_overrides(name, said)))


def _describe_overrides(name: str, said: Mapping[str, Any]) -> str:
    forced = "forced once, and obeyed" if said["obeyed"] else "forced once"
    rules = [said["force"]["rule"]] if said["force"] else []
    parts = {"pinned": said["pin"], "vetoed": said["veto"], forced: rules}
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    return f"{name}: {told} (by {said['by']})" if told else f"{name}: nothing is overridden"


def _list_decisions(journal: Journal, names: tuple[str, ...] | None, limit: int) -> dict[str, Any]:
    """List changes that were decided but not done here, or not yet, and what operators overrode."""
    from penstock.journal.overrides import KEY, KIND

    changes = [one for one in journal.decisions(names) if one.answer["kind"] in ("scale", "resize")]
    overrides = {owner: said[KEY] for owner, said in journal.recall_all(KIND).items() if KEY in said}
    return {
        "decisions": [asdict(one) for one in changes[-limit:]],
        "overrides": {owner: said for owner, said in overrides.items() if names is None or owner in names},
    }


def _to_json(record: ActionRecord) -> dict[str, Any]:
    return {**asdict(record), "status": record.status.value if record.status else None}


def find_journal(journal: str | None, config: Path | None, may_be_new: bool = False) -> tuple[str, bool]:
    """Return the journal's place, and whether it is there: one never written to is empty, not an error."""
    from penstock.settings.model import load_settings

    place = journal or load_settings(config).run.journal
    is_there = "://" in place or Path(place).exists()
    if journal and not is_there and not may_be_new:
        raise BadInput(f"--journal: {place}: no such file")
    return place, is_there


def _open(place: str, create: bool = False) -> Journal:
    from penstock.journal.store import open_journal

    return open_journal(place, create=create)
