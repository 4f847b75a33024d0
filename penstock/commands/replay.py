"""`penstock replay`: what another policy would have decided over what really happened."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer, reported, say
from penstock.errors import BadInput, BadMetrics, JournalUnavailable

if TYPE_CHECKING:
    from penstock.journal.records import ActionRecord, ObservationRecord
    from penstock.simulate.replay import Moment, Replay

Recorded = tuple[tuple["ObservationRecord", ...], tuple["ActionRecord", ...]]


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("replay")(replay)


@reported
def replay(
    journal: Annotated[str, typer.Argument(help="The journal whose observations are replayed.")],
    policy: Annotated[str, typer.Option("--policy", help="The policy to ask.")] = "ds2",
    app: Annotated[str | None, typer.Option("--app", help="The application, if there are several.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The settings file.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Where to write both timelines as a page.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a policy would have decided over what a journal has recorded."""
    from penstock.decide.registry import policy_entry
    from penstock.journal.address import without_password
    from penstock.settings import load_settings
    from penstock.simulate.replay import replay as replayed

    named = without_password(journal)
    settings = load_settings(config).model_copy(update={"policy": policy})
    made = policy_entry(policy).make(settings)
    try:
        observations, actions = _recorded(journal, app)
        found = replayed(observations, actions, made, settings.manager())
    except (JournalUnavailable, BadMetrics, LookupError, TypeError, AttributeError) as error:
        told = str(error) if isinstance(error, JournalUnavailable | BadMetrics) else repr(error)
        raise BadInput(f"{named}: cannot be replayed: {told}") from error
    except BadInput as error:
        raise BadInput(f"{named}: {error}") from error
    if html is not None:
        from penstock.simulate.replay_page import write_replay_page

        say(f"wrote {write_replay_page(found, observations, html)}")
    answer({"journal": named, **found.to_json()}, as_json, _shown(found))


def _recorded(journal: str, app: str | None) -> Recorded:
    from penstock.former_runs import also_known_as
    from penstock.journal.store import open_journal

    if "://" not in journal and not Path(journal).is_file():
        raise BadInput("no such file")
    with closing(open_journal(journal, create=False)) as opened:
        observations = opened.observations(None if app is None else also_known_as(opened, app))
        names = sorted({record.application for record in observations})
        if not names:
            raise BadInput("has no observations" if app is None else f"has no observations of {app!r}")
        if len(names) > 1:
            raise BadInput(f"has several applications, name one with --app: {', '.join(names)}")
        return observations, opened.actions(names[0])


def _shown(found: Replay) -> RenderableType:
    title = f"{found.application}, {found.policy}: {len(found.moments)} windows"
    table = Table("at, UTC", f"{found.policy} decides", "was done", "why", title=title, box=None)
    table.header_style = "dim"
    for moment in found.moments:
        if moment.decided is not None or moment.done is not None:
            table.add_row(*_row(moment))
    noun = "change" if found.steps == 1 else "changes"
    steps = f"{found.steps} {noun} by {found.policy}, {found.steps_done} made in reality"
    parts: list[RenderableType] = [table, "", Text(steps)]
    if found.unreadable:
        parts.append(Text(f"{found.unreadable} observations of an older version were left out", "yellow"))
    if found.warning:
        parts.append(Text(f"Beware: {found.warning}", "yellow"))
    return Group(*parts)


def _row(moment: Moment) -> tuple[Text, ...]:
    at = datetime.fromtimestamp(moment.at, UTC).strftime("%m-%d %H:%M:%S")
    return tuple(Text(cell) for cell in (at, moment.told_decided, moment.told_done, moment.reason))
