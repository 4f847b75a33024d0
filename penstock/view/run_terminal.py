"""The live view of one application in the terminal, and the same in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.text import Text

from penstock.runtime.status import describe_mode
from penstock.view import figures
from penstock.view.terminal import make_panel, make_table
from penstock.view.words import (
    describe_action_in_flight,
    describe_change,
    describe_critical_path,
    describe_effect,
    name_cause,
    name_decision,
)

DECISIONS_SHOWN = 8
WINDOWS_SHOWN = 12
CAUSES_SHOWN = 3
STYLES = {
    "scale-out": "bold green",
    "scale-in": "bold cyan",
    "move-state": "bold magenta",
    "rejected": "yellow",
    "failed": "bold red",
    "wait": "dim",
    "hold": "dim",
}

HISTORY = (
    ("offered", "offered_per_second", figures.rate, "blue"),
    ("observed", "observed_per_second", figures.rate, "green"),
    ("backlog", "backlog_records", figures.count, "red"),
    ("batch time", "batch_seconds", figures.seconds, "magenta"),
    ("slots needed", "slots_needed", figures.count, "yellow"),
    ("slots held", "slots_held", figures.count, "cyan"),
)
SAME_SCALE = (("offered_per_second", "observed_per_second"), ("slots_needed", "slots_held"))
"""Columns of the history that can be compared."""

Status = Mapping[str, Any]


def render_run(status: Status) -> RenderableType:
    """Show everything about one application."""
    parts: list[RenderableType] = [_header(status), _queries(status), _History(status), _decisions(status)]
    parts += [Text(f"! {warning}", style="yellow") for warning in status.get("warnings", ())]
    parts += [Text(f"→ {advice}", style="cyan") for advice in status.get("advice", ())]
    if status.get("error"):
        parts.append(Text(f"! stepping aside: {status['error']}", style="bold red"))
    return Group(*parts)


def format_run_line(status: Status) -> str:
    """Return the same in one line, for output that is not a terminal."""
    latest = status.get("last_decision") or {}
    query = [
        f"{one['name']} {figures.rate(one.get('offered_per_second'))} offered "
        f"{figures.rate(one.get('observed_per_second'))} observed "
        f"backlog {figures.count(one.get('backlog_records'))} batch {_against_trigger(one)}"
        for one in status.get("queries", ())
    ]
    slots = (
        f"slots {figures.count(status.get('slots'))} held {figures.count(status.get('slots_needed'))} needed"
    )
    said = f"{name_decision(latest)}: {latest.get('reason', '')}" if latest else "no decision yet"
    return " | ".join([figures.clock(status.get("now")), *(query or ["no query yet"]), slots, said])


def _header(status: Status) -> Panel:
    name = str(status.get("name") or status["application"])
    known = {"executors": "executors", "slots held": "slots", "slots needed": "slots_needed"}
    facts = {label: figures.count(status.get(key)) for label, key in known.items()}
    said = f"{status['application']} · {status['policy']} · {describe_mode(status)}"
    return make_panel(name, facts, said, Text(describe_action_in_flight(status), style="bold green"))


def _queries(status: Status) -> RenderableType:
    queries = status.get("queries", ())
    if not queries:
        return Text("  no streaming query has run a batch yet", style="dim")
    names = ("query", ">offered", ">observed", ">backlog", ">latency", ">batch / trigger")
    table = make_table(names, no_wrap=True, expand=True)
    table.add_column("", width=16)
    for query in queries:
        table.add_row(
            Text(str(query["name"])),
            figures.rate(query.get("offered_per_second")),
            figures.rate(query.get("observed_per_second")),
            figures.count(query.get("backlog_records")),
            figures.seconds(query.get("latency_seconds")),
            _against_trigger(query),
            _load(query),
        )
    return Group(
        table,
        *(_phases(query) for query in queries if query.get("timeline_seconds")),
        *(Text(f"  {said}", style="dim") for said in map(describe_critical_path, queries) if said),
        *(_causes(query) for query in queries if query.get("critical_windows")),
    )


def _causes(query: Mapping[str, Any]) -> Text:
    """Show what the last analysed batches waited for: the largest causes of the newest, and their past."""
    windows = query["critical_windows"][-WINDOWS_SHOWN:]
    newest = sorted(windows[-1]["causes"].items(), key=lambda item: -item[1])[:CAUSES_SHOWN]
    shown = Text(f"  {query['name']}, last batches waited for: ", style="dim")
    for number, (cause, share) in enumerate(newest):
        past = figures.sparkline([window["causes"].get(cause, 0.0) for window in windows], len(windows), 1.0)
        shown.append(("  " if number else "") + f"{name_cause(cause)} ")
        shown.append(past, style="cyan")
        shown.append(f" {figures.share(share)}")
    return shown


def _phases(query: Mapping[str, Any]) -> Text:
    """Show where the newest batch spent its time."""
    spent = query["timeline_seconds"].items()
    shown = ", ".join(f"{phase} {figures.seconds(seconds)}" for phase, seconds in spent)
    return Text(f"  {query['name']}, newest batch: {shown}", style="dim")


def _against_trigger(query: Mapping[str, Any]) -> str:
    period = query.get("period_seconds")
    taken = figures.seconds(query.get("batch_seconds"))
    return f"{taken} / {figures.seconds(period)}" if period else taken


def _load(query: Mapping[str, Any]) -> RenderableType:
    period, taken = query.get("period_seconds"), query.get("batch_seconds")
    if not period or taken is None:
        return Text("")
    ratio = taken / period
    style = "red" if ratio > 1 else "yellow" if ratio > 0.9 else "green"
    return ProgressBar(total=1, completed=min(1, ratio), complete_style=style, finished_style=style)


class _History:
    """Sparklines that use the width they are given."""

    def __init__(self, status: Status) -> None:
        self._recent: Sequence[Mapping[str, Any]] = status.get("recent", ())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._recent:
            return
        width = max(8, min(options.max_width - 36, len(self._recent)))
        span = self._recent[-1]["at"] - self._recent[-min(width, len(self._recent))]["at"]
        yield Text(f"\n  last {figures.seconds(span)}", style="dim")
        tops = {
            key: max(point.get(one) or 0.0 for point in self._recent for one in keys)
            for keys in SAME_SCALE
            for key in keys
        }
        for label, key, write, style in HISTORY:
            values = [point.get(key) for point in self._recent]
            drawn = figures.sparkline(values, width, tops.get(key))
            yield Text.assemble((f"  {label:<14}", "dim"), (drawn, style), f"  {write(values[-1])}")
        yield Text("")


def _decisions(status: Status) -> RenderableType:
    decisions = list(status.get("decisions", ()))[-DECISIONS_SHOWN:]
    if not decisions:
        return Text("  no decision yet", style="dim")
    table = make_table(("time", "decision"), no_wrap=True, padding=(0, 2), expand=True)
    table.add_column("why", ratio=1)
    for one in reversed(decisions):
        style = STYLES.get(str(one.get("kind")), "")
        word = " ".join(filter(None, (name_decision(one), describe_change(one))))
        why = Text(str(one.get("reason", "")))
        if said := describe_effect(one):
            why.append(f"\n→ {said}", style="dim")
        table.add_row(figures.clock(one.get("at")), Text(word, style=style), why)
    return table
