"""`penstock override`: an operator pins or sets a parameter, vetoes a rule of Sage, or forces one."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.commands.audit import Config, JournalPath
from penstock.commands.printing import Json, answer, reported
from penstock.errors import BadInput

Named = list[str] | None


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("override")(override)


@reported
def override(
    name: Annotated[str, typer.Argument(help="The application, by its name or the id of a run.")],
    pin: Annotated[
        Named,
        typer.Option(
            "--pin", help="A parameter that stays as it is, such as heap, or gets a value: heap=2g."
        ),
    ] = None,
    veto: Annotated[Named, typer.Option("--veto", help="A rule that is silent, such as P3.")] = None,
    force: Annotated[
        str | None, typer.Option("--force", help="A rule that decides once, such as P6.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget what was said before.")] = False,
    journal: JournalPath = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Add to what operators said of an application, or show it; the running one takes it up by itself."""
    from penstock.former_runs import name_of
    from penstock.journal.overrides import override as keep
    from penstock.journal.overrides import said_by_operators
    from penstock.journal.store import open_journal
    from penstock.sizing import is_obeyed

    if not name.strip():
        raise BadInput("the name of an application is expected, not an empty one")
    says_something = bool(pin or veto or force or clear)
    with closing(open_journal(_place(journal, config, says_something))) as opened:
        # what is said outlives the run
        name = name_of(opened, name)
        if says_something:
            keep(opened, time.time(), name, who(), pin or (), veto or (), force, clear)
        said = said_by_operators(opened, name)
        said["obeyed"] = is_obeyed(opened, name, said["force"])
    answer({"application": name, **said}, as_json, Text(in_words(name, said)))


def who(ask: Callable[[], str] = getpass.getuser) -> str:
    """Whose word it is; in a container a user may have a number and no name."""
    try:
        return ask()
    except (KeyError, OSError, ImportError):
        return f"user {os.getuid()}"


def in_words(name: str, said: Mapping[str, Any]) -> str:
    """What is in force, on one line."""
    force = [said["force"]["rule"]] if said["force"] else []
    parts = (
        ("pinned", said["pin"]),
        ("vetoed", said["veto"]),
        ("forced once, and obeyed" if said["obeyed"] else "forced once", force),
    )
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
    return f"{name}: {told} (by {said['by']})" if told else f"{name}: nothing is overridden"


def _place(journal: str | None, config: Path | None, written: bool) -> str:
    """Where the journal is; who only looks, and names one that is not there, has the wrong one in mind."""
    from penstock.settings import load_settings

    if journal and not written and "://" not in journal and not Path(journal).exists():
        raise BadInput(f"--journal: {journal}: no such file")
    return journal or load_settings(config).journal
