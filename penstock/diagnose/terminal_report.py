"""The diagnosis on the terminal: the answer first, then the summaries, then what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.trace import Activity

_MOST = 8
_SMALLEST = 0.0005


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Prints everything that a reader needs to act."""
    console.print(f"[bold]{escape(diagnosis.name)}[/bold] {escape(diagnosis.application)}")
    console.print(f"[bold]{escape(diagnosis.answer)}[/bold]")
    _activities(diagnosis, console)
    _table(console, "workers", diagnosis.whole.worker)
    instances = diagnosis.whole.instances
    operators = {f"{name} (on {instances.get(name, 1)})": v for name, v in diagnosis.whole.operator.items()}
    _table(console, "operators, for each worker that ran them", operators)
    channels = {f"{source} → {target}": share for source, target, share in diagnosis.whole.communication}
    _table(console, "channels", channels)
    _forecasts(diagnosis, console)
    console.print("[bold]what to do[/bold]")
    for finding in diagnosis.findings:
        gain = finding.gain_seconds or 0.0
        worth = f" Worth up to {gain:.1f} s." if gain >= 0.1 else ""
        console.print(f"  {escape(finding.sentence)} {escape(finding.advice)}{worth}")
    for warning in diagnosis.warnings:
        console.print(f"  warning: {escape(warning)}")


def print_overview(found: Sequence[Diagnosis], console: Console) -> None:
    """Prints one line for each of many applications, before they are told in full."""
    table = Table(title=f"{len(found)} applications", title_justify="left", show_header=False)
    for diagnosis in found:
        table.add_row(escape(f"{diagnosis.name} {diagnosis.application}"), escape(diagnosis.answer))
    console.print(table)


def print_windows(rows: Iterable[Any], console: Console) -> None:
    """Prints the windows of a followed log, one line each: when, the answer, and the largest shares."""
    windows: dict[tuple[str, int], list[Any]] = {}
    ends: list[Any] = []
    for row in rows:
        if row.summary in {"ended", "error"}:
            ends.append(row)
        else:
            windows.setdefault((row.application, row.start_us), []).append(row)
    for (application, start), found in sorted(windows.items()):
        said = next((row.name for row in found if row.summary == "answer"), "")
        when = f"{_clock(start)}–{_clock(found[0].end_us)}"
        console.print(escape(f"{when} {application}: {said}{_largest(found)}"), soft_wrap=True)
    for row in ends:
        console.print(escape(f"{row.application}: {row.summary} {row.name}"), soft_wrap=True)


def _largest(rows: list[Any]) -> str:
    """The largest share of each summary of a window."""
    best: dict[str, Any] = {}
    for row in rows:
        if row.participation is not None and row.participation > getattr(
            best.get(row.summary), "participation", 0.0
        ):
            best[row.summary] = row
    shown = [
        f"{kind} {best[kind].name} {best[kind].participation:.0%}"
        for kind in ("activity", "worker", "operator")
        if kind in best
    ]
    return f" ({', '.join(shown)})" if shown else ""


def _clock(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6).strftime("%H:%M:%S")


def _activities(diagnosis: Diagnosis, console: Console) -> None:
    whole = diagnosis.whole
    busy = {name: value for name, value in whole.profile.activity.items() if name != Activity.WAITING.label}
    total = sum(busy.values()) or 1.0
    table = Table(title="activities", title_justify="left")
    for column in ("activity", "critical path", "busy time", "one random path"):
        table.add_column(column, justify="left" if column == "activity" else "right")
    for name in sorted({*whole.activity, *busy}, key=lambda name: -whole.activity.get(name, 0.0)):
        shares = (
            whole.activity.get(name, 0.0),
            busy.get(name, 0.0) / total,
            diagnosis.single_path.get(name, 0.0),
        )
        if max(shares) >= _SMALLEST:
            table.add_row(name, *(f"{share:.1%}" for share in shares))
    console.print(table)


def _table(console: Console, title: str, values: Mapping[str, float]) -> None:
    if not values:
        return
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    ranked = sorted(((n, v) for n, v in values.items() if v >= _SMALLEST), key=lambda item: -item[1])
    for name, value in ranked[:_MOST]:
        table.add_row(escape(name), f"{value:.1%}")
    if len(ranked) > _MOST:
        table.add_row(f"and {len(ranked) - _MOST} more", "")
    console.print(table)


def _forecasts(diagnosis: Diagnosis, console: Console) -> None:
    found = diagnosis.what_if
    if found is None:
        return
    times = ", ".join(f"{item.seconds:.1f} s on {item.slots}" for item in found.forecasts)
    console.print(f"measured: {found.measured_seconds:.1f} s on {found.slots} slots; replayed: {times}")
    if found.jobs > 1:
        times = ", ".join(f"{item.median_job_seconds:.2f} s on {item.slots}" for item in found.forecasts)
        measured = f"{found.measured_job_seconds:.2f} s"
        console.print(f"  median of {found.jobs} jobs: {measured}; replayed: {times}")
    gains = {name: gain for name, gain in found.gains.items() if gain >= 0.01 * found.measured_seconds}
    for name, gain in sorted(gains.items(), key=lambda item: -item[1]):
        console.print(f"  without {name}: {gain:.1f} s less")
