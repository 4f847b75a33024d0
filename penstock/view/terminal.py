"""The live view: one status in, one renderable out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.view import figures
from penstock.view.words import cause_word, change, critical, decision_word, effect, in_flight, mode

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

Status = Mapping[str, Any]


def render(status: Status) -> RenderableType:
    """The whole view of one application."""
    parts: list[RenderableType] = [_header(status), _queries(status), _History(status), _decisions(status)]
    parts += [Text(f"! {warning}", style="yellow") for warning in status.get("warnings", ())]
    if status.get("error"):
        parts.append(Text(f"! stepping aside: {status['error']}", style="bold red"))
    return Group(*parts)


def line(status: Status) -> str:
    """The same in one line, for output that is not a terminal."""
    latest = status.get("last_decision") or {}
    query = [
        f"{one['name']} {figures.rate(one.get('offered_per_second'))} offered "
        f"{figures.rate(one.get('observed_per_second'))} observed "
        f"backlog {figures.count(one.get('backlog_records'))} batch {_against_trigger(one)}"
        for one in status.get("queries", ())
    ]
    slots = f"slots {figures.count(status.get('slots'))} held {_needed(status)} needed"
    said = f"{decision_word(latest)}: {latest.get('reason', '')}" if latest else "no decision yet"
    return " | ".join([figures.clock(status.get("now")), *(query or ["no query yet"]), slots, said])


def _header(status: Status) -> Panel:
    title = Text.assemble((str(status.get("name") or status["application"]), "bold"))
    facts = Text("   ").join(
        [
            Text.assemble(("executors ", "dim"), (figures.count(status.get("executors")), "bold")),
            Text.assemble(("slots held ", "dim"), (figures.count(status.get("slots")), "bold")),
            Text.assemble(("slots needed ", "dim"), (_needed(status), "bold")),
            Text(in_flight(status) or "", style="bold green"),
        ]
    )
    subtitle = Text(f"{status['application']} · {status['policy']} · {mode(status)}", style="dim")
    return Panel(facts, title=title, title_align="left", subtitle=subtitle, subtitle_align="right")


def _needed(status: Status) -> str:
    return figures.count(status.get("slots_needed"))


def _queries(status: Status) -> RenderableType:
    queries = status.get("queries", ())
    if not queries:
        return Text("  no streaming query has run a batch yet", style="dim")
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
    table.add_column("query", no_wrap=True)
    for name in ("offered", "observed", "backlog", "latency", "batch / trigger"):
        table.add_column(name, justify="right", no_wrap=True)
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
        *(Text(f"  {said}", style="dim") for said in map(critical, queries) if said),
        *(_causes(query) for query in queries if query.get("critical_windows")),
    )


def _causes(query: Mapping[str, Any]) -> Text:
    """What the last analysed batches waited for: the largest causes of the newest, and their past."""
    windows = query["critical_windows"][-WINDOWS_SHOWN:]
    newest = sorted(windows[-1]["causes"].items(), key=lambda item: -item[1])[:CAUSES_SHOWN]
    shown = Text(f"  {query['name']}, last batches waited for: ", style="dim")
    for number, (cause, share) in enumerate(newest):
        past = figures.sparkline([window["causes"].get(cause, 0.0) for window in windows], len(windows), 1.0)
        shown.append(("  " if number else "") + f"{cause_word(cause)} ")
        shown.append(past, style="cyan")
        shown.append(f" {figures.share(share)}")
    return shown


def _phases(query: Mapping[str, Any]) -> Text:
    """Where the newest batch spent its time."""
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
        yield from self._rows(width)
        yield Text("")

    def _rows(self, width: int) -> RenderResult:
        rates = max(self._top("offered_per_second"), self._top("observed_per_second"))
        slots = max(self._top("slots_needed"), self._top("slots_held"))
        yield self._row("offered", "offered_per_second", figures.rate, width, "blue", rates)
        yield self._row("observed", "observed_per_second", figures.rate, width, "green", rates)
        yield self._row("backlog", "backlog_records", figures.count, width, "red", None)
        yield self._row("batch time", "batch_seconds", figures.seconds, width, "magenta", None)
        yield self._row("slots needed", "slots_needed", figures.count, width, "yellow", slots)
        yield self._row("slots held", "slots_held", figures.count, width, "cyan", slots)

    def _column(self, key: str) -> list[float | None]:
        return [point.get(key) for point in self._recent]

    def _top(self, key: str) -> float:
        return max([value for value in self._column(key) if value is not None], default=0.0)

    def _row(self, label: str, key: str, shown: Any, width: int, style: str, top: float | None) -> Text:
        values = self._column(key)
        return Text.assemble(
            (f"  {label:<14}", "dim"),
            (figures.sparkline(values, width, top), style),
            f"  {shown(values[-1])}",
        )


def _decisions(status: Status) -> RenderableType:
    decisions = list(status.get("decisions", ()))[-DECISIONS_SHOWN:]
    if not decisions:
        return Text("  no decision yet", style="dim")
    table = Table(box=None, padding=(0, 2), header_style="dim", expand=True)
    table.add_column("time", no_wrap=True)
    table.add_column("decision", no_wrap=True)
    table.add_column("why", ratio=1)
    for one in reversed(decisions):
        style = STYLES.get(str(one.get("kind")), "")
        word = " ".join(filter(None, (decision_word(one), change(one))))
        why = Text(str(one.get("reason", "")))
        if said := effect(one):
            why.append(f"\n→ {said}", style="dim")
        table.add_row(figures.clock(one.get("at")), Text(word, style=style), why)
    return table
