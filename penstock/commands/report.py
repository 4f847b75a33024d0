"""`penstock report`: what an application held, how it kept up and what was changed, as a page to forward."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.commands.config import Config, parse_seconds
from penstock.commands.journal import JournalPath, find_journal
from penstock.commands.live import Html
from penstock.commands.printing import Json, answer, say, write_page
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.journal.report import ApplicationReport
    from penstock.journal.store import Journal
    from penstock.journal.terms import Terms
    from penstock.settings.telemetry import PriceSettings


def report(
    application: Annotated[
        str, typer.Argument(metavar="APP", help="The application, by its name or the id of a run.")
    ],
    since: Annotated[str, typer.Option(help="How far back, such as 12h or 7d.")] = "7d",
    html: Html = None,
    pdf: Annotated[
        Path | None, typer.Option("--pdf", metavar="FILE", help="Also print it as PDF, by Chromium.")
    ] = None,
    journal: JournalPath = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Report what an application held, kept and changed.

    What it held is compared with what its peak size would have cost; what to change in the job is told.
    """
    from penstock.settings.model import load_settings
    from penstock.view.report_page import render_report, render_report_page

    seconds = parse_seconds("--since", since)
    if seconds <= 0:
        raise BadInput(f"--since must be above zero, not {since}")
    place, is_there = find_journal(journal, config)
    if not is_there:
        raise BadInput(f"nothing was recorded yet: there is no journal at {place}")
    made = _gather(place, application, seconds, load_settings(config).prices)
    if html is not None or pdf is not None:
        page = render_report_page(made)
        if html is not None:
            write_page(page, html)
        if pdf is not None:
            from penstock.view.pdf import print_pdf

            say(f"wrote {print_pdf(page, pdf)}")
    answer(_to_json(made), as_json, render_report(made))


def _gather(place: str, application: str, seconds: float, prices: PriceSettings) -> ApplicationReport:
    from penstock.journal.former_runs import find_name, list_aliases
    from penstock.journal.report import make_report
    from penstock.journal.store import open_journal
    from penstock.journal.terms import recall_terms

    until = time.time()
    since = until - seconds
    with closing(open_journal(place, create=False)) as opened:
        name, names = find_name(opened, application), list_aliases(opened, application)
        seen, decided = opened.outlines(names, since), opened.decisions(names, since)
        done = opened.actions(names, since=since)
        if not (seen or decided or done):
            raise BadInput(f"the journal has nothing of {application!r} since then{_list_names(opened)}")
        terms = _set_prices(recall_terms(opened, name), prices)
    return make_report(name, since, until, seen, decided, done, terms)


def _set_prices(terms: dict[str, Terms], prices: PriceSettings) -> dict[str, Terms]:
    """Let prices of the settings outrank those that a run wrote down."""
    from penstock.journal.terms import Terms

    given = {
        "price_per_core_hour": prices.per_core_hour,
        "price_per_gb_hour": prices.per_gb_hour,
    }
    chosen: dict[str, Any] = {key: price for key, price in given.items() if price is not None}
    return {run: replace(one, **chosen) for run, one in (terms or {"": Terms()}).items()}


def _list_names(journal: Journal) -> str:
    from penstock.journal.former_runs import KIND

    names = sorted(journal.recall_all(KIND))
    return f"; it knows {', '.join(names)}" if names else ""


def _to_json(made: ApplicationReport) -> dict[str, Any]:
    plain = asdict(replace(made, observations=()))
    plain.pop("observations")
    plain["holding"] |= {
        "peak_core_hours": made.holding.peak_core_hours,
        "peak_gb_hours": made.holding.peak_gb_hours,
        "saved_share": made.holding.saved_share,
    }
    plain["actions"] = [
        {
            "action": one.action_id,
            "at": one.intended_at,
            "before": dict(one.before),
            "planned": dict(one.planned),
            "settings": dict(one.settings),
            "reason": one.reason,
            "rollback": one.rollback,
            "status": one.status.value if one.status else None,
        }
        for one in made.actions
    ]
    return plain
