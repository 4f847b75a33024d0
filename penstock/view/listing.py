"""The list of actions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    for name in ("time", "application"):
        table.add_column(name, no_wrap=True)
    # a setting has a long name, and its value after the change must not be cut off
    resized = any(record.settings for record in listed)
    table.add_column("change", no_wrap=not resized, min_width=16 if resized else None)
    table.add_column("outcome", no_wrap=True)
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


def decisions_table(decisions: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One line for each change that was decided, with what became of it."""
    if not decisions:
        return Text("no decisions")
    table = Table(box=None, header_style="dim", padding=(0, 2), title="decided", title_justify="left")
    for name in ("time", "application", "policy", "change", "verdict"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", ratio=1)
    for one in decisions:
        said = one["answer"]
        before = said.get("before", {})
        asked = {key: f"{before.get(key, '')} → {value}" for key, value in said.get("settings", {}).items()}
        sizes = asked or said.get("parallelism", {})
        table.add_row(
            figures.day_and_clock(one["last_at"]),
            Text(one["application"]),
            Text(one["policy"]),
            Text(", ".join(f"{key} {value}" for key, value in sizes.items())),
            Text(one["verdict"].get("guardrail") or one["verdict"]["kind"]),
            Text(said["reason"]),
        )
    return table


def overrides_table(overrides: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """Who overrode what, one line each time."""
    if not overrides:
        return Text("nothing is overridden")
    table = Table("time", "application", "by", "said", box=None, header_style="dim", padding=(0, 2))
    for name, said in overrides.items():
        for word in said["log"]:
            table.add_row(figures.day_and_clock(word["at"]), Text(name), Text(word["by"]), Text(_word(word)))
    return table


def _word(word: Mapping[str, Any]) -> str:
    parts = ["forget what was said before"] if word["clear"] else []
    parts += [f"pin {', '.join(word['pin'])}"] if word["pin"] else []
    parts += [f"veto {', '.join(word['veto'])}"] if word["veto"] else []
    return "; ".join([*parts, *([f"force {word['force']}"] if word["force"] else [])])


def _change(before: Mapping[str, int], planned: Mapping[str, int]) -> str:
    if BINS in planned:
        return f"moves {figures.count(planned[BINS])} bins"
    return ", ".join(
        f"{unit} {figures.count(before.get(unit))} → {figures.count(wanted)}"
        for unit, wanted in planned.items()
        if before.get(unit) != wanted
    )


def _settings(settings: Mapping[str, tuple[str, str]]) -> str:
    changes = ((key.removeprefix("spark."), before, after) for key, (before, after) in settings.items())
    return ", ".join(f"{key} {before or 'unset'} → {after}" for key, before, after in changes)


def _outcome(record: ActionRecord) -> Text:
    if record.status is None:
        return Text("under way", style="bold")
    word = record.status.value
    took = f" in {figures.seconds(record.seconds)}" if record.seconds is not None else ""
    return Text(word + took, style=STYLES.get(word, ""))
