"""`penstock recommend`: the settings that would have been best for what a journal has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.commands.config import Config, parse_seconds
from penstock.commands.offline import read_journal
from penstock.commands.printing import Json, answer, progress, write_page
from penstock.errors import BadInput, BadMetrics, JournalUnavailable


def recommend(
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="The journal of the application.")],
    app: Annotated[
        str | None, typer.Option("--app", metavar="APP", help="The application, if there are several.")
    ] = None,
    last: Annotated[str, typer.Option("--last", help="Look at the last so much, e.g. 12h or 3d.")] = "7d",
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A policy to try; default: those that can size it."),
    ] = None,
    config: Config = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recommend settings, from what a journal has seen.

    Policies, their headroom and the band are replayed over the recorded load. It is an estimate, and says
    how far it can be believed.
    """
    from penstock.journal.ports import hide_password
    from penstock.plugins.finding import find_policy
    from penstock.settings.model import load_settings
    from penstock.simulate.recommend import recommend as find_best
    from penstock.simulate.replay import read_recording
    from penstock.view.recommendation import render_recommendation, render_recommendation_page

    settings, seconds, place = load_settings(config), parse_seconds("--last", last), hide_password(journal)
    for name in policy or ():
        find_policy(name)
    try:
        observations, actions = read_journal(journal, app)
        recent = [one for one in observations if one.at > observations[-1].at - seconds]
        found = find_best(read_recording(recent, actions), settings, policy or (), progress)
    except (BadMetrics, JournalUnavailable) as error:
        raise BadInput(f"{place}: cannot be replayed: {error}") from error
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error
    if html is not None:
        write_page(render_recommendation_page(found), html)
    answer({"journal": place, **found.to_json()}, as_json, render_recommendation(found))
