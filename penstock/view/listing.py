"""Actions, decisions and overrides, as `penstock actions` lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from penstock.decide.policy import BINS
from penstock.view import figures
from penstock.view.entries import Entries

if TYPE_CHECKING:
    from penstock.journal.records import ActionRecord

STYLES = {"done": "green", "partial": "yellow", "failed": "red", "unknown": "yellow"}


def actions_table(records: Iterable[ActionRecord]) -> RenderableType:
    """One entry for each action, with its reason."""
    rows = [
        (
            Text(str(record.action_id)),
            Text(figures.day_and_clock(record.intended_at)),
            Text(record.application),
            Text(_settings(record.settings) or _change(record.before, record.planned)),
            _outcome(record),
            Text(record.reason),
        )
        for record in records
    ]
    names = ("action", "time", "application", "change", "outcome", "why")
    return Entries(names, rows, heading=3) if rows else Text("no actions")


def decisions_table(decisions: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One entry for each change that was decided, with what became of it."""
    rows = [
        (
            Text(figures.day_and_clock(one["last_at"])),
            Text(one["application"]),
            Text(one["policy"]),
            Text(_asked(one["answer"])),
            Text(one["verdict"].get("guardrail") or one["verdict"]["kind"]),
            Text(one["answer"]["reason"]),
        )
        for one in decisions
    ]
    names = ("time", "application", "policy", "change", "verdict", "why")
    return Entries(names, rows, heading=2, title="decided") if rows else Text("no decisions")


def overrides_table(overrides: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """Who overrode what, one entry each time."""
    rows = [
        (Text(figures.day_and_clock(word["at"])), Text(name), Text(word["by"]), Text(_word(word)))
        for name, said in overrides.items()
        for word in said["log"]
    ]
    names = ("time", "application", "by", "said")
    return Entries(names, rows, heading=2, title="overridden") if rows else Text("nothing is overridden")


def _asked(answer: Mapping[str, Any]) -> str:
    """What a decision asks for: settings with their values before, or sizes."""
    before = answer.get("before", {})
    settings = {key: (before.get(key, ""), value) for key, value in answer.get("settings", {}).items()}
    sizes = answer.get("parallelism", {})
    return _settings(settings) or ", ".join(f"{unit} {count}" for unit, count in sizes.items())


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
    """One line for each setting: their names are long."""
    changes = ((key.removeprefix("spark."), before, after) for key, (before, after) in settings.items())
    return "\n".join(f"{key} {before or 'unset'} → {after}" for key, before, after in changes)


def _outcome(record: ActionRecord) -> Text:
    if record.status is None:
        return Text("under way", style="bold")
    word = record.status.value
    took = f" in {figures.seconds(record.seconds)}" if record.seconds is not None else ""
    return Text(word + took, style=STYLES.get(word, ""))
