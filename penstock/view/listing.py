"""The list of actions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.decide.policy import BINS
from penstock.view import figures

if TYPE_CHECKING:
    from penstock.journal.records import ActionRecord

STYLES = {"done": "green", "partial": "yellow", "failed": "red", "unknown": "yellow"}


def actions_table(records: Iterable[ActionRecord]) -> RenderableType:
    """One line for each action, with its reason."""
    listed = list(records)
    if not listed:
        return Text("no actions")
    table = Table(box=None, header_style="dim", padding=(0, 2))
    table.add_column("action", justify="right")
    for name in ("time", "application", "change", "outcome"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", ratio=1)
    for record in listed:
        table.add_row(
            str(record.action_id),
            figures.day_and_clock(record.intended_at),
            Text(record.application),
            Text(_settings(record.settings) or _change(record.before, record.planned)),
            _outcome(record),
            Text(record.reason),
        )
    return table


def _change(before: Mapping[str, int], planned: Mapping[str, int]) -> str:
    if BINS in planned:
        return f"moves {figures.count(planned[BINS])} bins"
    return ", ".join(
        f"{unit} {figures.count(before.get(unit))} → {figures.count(wanted)}"
        for unit, wanted in planned.items()
        if before.get(unit) != wanted
    )


def _settings(settings: Mapping[str, tuple[str, str]]) -> str:
    return ", ".join(f"{key} {before or 'unset'} → {after}" for key, (before, after) in settings.items())


def _outcome(record: ActionRecord) -> Text:
    if record.status is None:
        return Text("under way", style="bold")
    word = record.status.value
    took = f" in {figures.seconds(record.seconds)}" if record.seconds is not None else ""
    return Text(word + took, style=STYLES.get(word, ""))
