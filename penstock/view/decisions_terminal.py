"""Decisions in the terminal: actions and overrides of a journal, offline decisions, and the policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.decide.policy import BINS
from penstock.decide.registry import BUILT_IN
from penstock.view import figures
from penstock.view.terminal import Entries, make_table

if TYPE_CHECKING:
    from penstock.decide.offline.decisions import OfflineDecisions
    from penstock.decide.registry import PolicyEntry
    from penstock.journal.records import ActionRecord
    from penstock.plugins.contract import CheckResult

STYLES = {"done": "green", "partial": "yellow", "failed": "red", "unknown": "yellow"}


def render_actions(records: Iterable[ActionRecord]) -> Entries:
    """List one entry for each action, with its reason."""
    rows = [
        (
            str(record.action_id),
            figures.day_and_clock(record.intended_at),
            record.application,
            _describe_settings(record.settings) or _describe_change(record.before, record.planned),
            _describe_outcome(record),
            record.reason,
        )
        for record in records
    ]
    names = ("action", "time", "application", "change", "outcome", "why")
    return Entries(names, rows, heading=3, otherwise="no actions")


def render_decisions(decisions: Sequence[Mapping[str, Any]]) -> Entries:
    """List one entry for each change that was decided, with what became of it."""
    rows = [
        (
            figures.day_and_clock(one["last_at"]),
            one["application"],
            one["policy"],
            _describe_answer(one["answer"]),
            one["verdict"].get("guardrail") or one["verdict"]["kind"],
            one["answer"]["reason"],
        )
        for one in decisions
    ]
    names = ("time", "application", "policy", "change", "verdict", "why")
    return Entries(names, rows, heading=2, title="decided", otherwise="no decisions")


def render_overrides(overrides: Mapping[str, Mapping[str, Any]]) -> Entries:
    """List who overrode what, one entry each time."""
    words = [(name, word) for name, said in overrides.items() for word in said["log"]]
    rows = [
        (figures.day_and_clock(word["at"]), name, word["by"], _describe_override(word))
        for name, word in words
    ]
    names = ("time", "application", "by", "said")
    return Entries(names, rows, heading=2, title="overridden", otherwise="nothing is overridden")


def render_offline_decisions(decisions: OfflineDecisions) -> Group:
    """Show what each epoch of a recording needs, and below it the reasons."""
    reasons: list[Text] = []
    table = make_table((">epoch", "operator", ">exact", ">parallelism"))
    for number, epoch in enumerate(decisions.epochs, start=1):
        if epoch.not_ready is not None:
            table.add_row(str(number), Text(f"not ready: {epoch.not_ready}", style="yellow"))
        for operator, wanted in epoch.parallelism.items():
            exact = f"{epoch.exact[operator]:.4f}" if operator in epoch.exact else "–"
            table.add_row(str(number), Text(operator), exact, str(wanted))
        if epoch.reason is not None:
            reasons.append(Text.assemble((f"{number:>6}  ", "dim"), epoch.reason))
    return Group(table, "", *reasons) if reasons else Group(table)


def render_policies(entries: Sequence[PolicyEntry]) -> Table:
    """Show one block of lines a policy: four columns of sentences would be too narrow to read."""
    table = Table(box=None, show_header=False, padding=(0, 2, 1, 0))
    for entry in entries:
        told = Table.grid(padding=(0, 1, 0, 0))
        usable = ", ".join(entry.usable_in)
        origin = "" if entry.origin == BUILT_IN else entry.origin
        texts = (entry.needs, entry.promises, entry.choose_when, usable, origin)
        for label, text in zip(("needs", "promises", "when", "in", "from"), texts, strict=True):
            if text:
                told.add_row(Text(label, style="dim"), Text(text))
        summary = Text.assemble(("baseline: " if entry.baseline else "", "dim"), entry.summary)
        table.add_row(Text(entry.name, style="bold"), Group(summary, told))
    return table


def render_checks(policy: str, results: Sequence[CheckResult]) -> Table:
    """Show one row a check, with what breaks the contract."""
    rows = [
        (Text("broken", "red") if one.problem else Text("kept", "green"), Text(one.check), Text(one.problem))
        for one in results
    ]
    return make_table(("", "check", "problem"), rows, title=policy)


def _describe_answer(answer: Mapping[str, Any]) -> str:
    """Return what a decision asks for: settings with their values before, or sizes."""
    before = answer.get("before", {})
    settings = {key: (before.get(key, ""), value) for key, value in answer.get("settings", {}).items()}
    sizes = answer.get("parallelism", {})
    return _describe_settings(settings) or ", ".join(f"{unit} {count}" for unit, count in sizes.items())


def _describe_override(word: Mapping[str, Any]) -> str:
    forgets = ["forget what was said before"] if word["clear"] else []
    told = {"pin": ", ".join(word["pin"]), "veto": ", ".join(word["veto"]), "force": word["force"]}
    return "; ".join([*forgets, *(f"{verb} {names}" for verb, names in told.items() if names)])


def _describe_change(before: Mapping[str, int], planned: Mapping[str, int]) -> str:
    if BINS in planned:
        return f"moves {figures.count(planned[BINS])} bins"
    return ", ".join(
        f"{unit} {figures.count(before.get(unit))} → {figures.count(wanted)}"
        for unit, wanted in planned.items()
        if before.get(unit) != wanted
    )


def _describe_settings(settings: Mapping[str, tuple[str, str]]) -> str:
    """Write one line for each setting: their names are long."""
    changes = ((key.removeprefix("spark."), before, after) for key, (before, after) in settings.items())
    return "\n".join(f"{key} {before or 'unset'} → {after}" for key, before, after in changes)


def _describe_outcome(record: ActionRecord) -> Text:
    if record.status is None:
        return Text("under way", style="bold")
    word = record.status.value
    took = f" in {figures.seconds(record.seconds)}" if record.seconds is not None else ""
    return Text(word + took, style=STYLES.get(word, ""))
