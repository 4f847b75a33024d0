"""Print a diagnosis on the terminal: the answer first, then the summaries, then what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.diagnose.answer import advise, describe_settings
from penstock.diagnose.comparison import RunComparison
from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.findings.failed_work import FailedWork
from penstock.diagnose.findings.idle_time import SlotUse
from penstock.diagnose.findings.waste import Observation
from penstock.diagnose.path.summary import Summary
from penstock.diagnose.whatif.scenarios import WhatIf
from penstock.view import figures
from penstock.view.streaming_terminal import print_streaming
from penstock.view.windows_terminal import print_window_table
from penstock.view.words import name_cause

MOST_SHOWN = 8
SMALLEST_SHARE = 0.0005
LEAST_GAIN_SHARE = 0.01


def print_diagnoses(found: Sequence[Diagnosis], console: Console) -> None:
    """Print each application in full; of several, print one line for each first."""
    if len(found) > 1:
        table = Table(title=f"{len(found)} applications", title_justify="left", show_header=False)
        for diagnosis in found:
            table.add_row(escape(f"{diagnosis.name} {diagnosis.application}"), escape(diagnosis.answer))
        console.print(table)
    for diagnosis in found:
        _print_diagnosis(diagnosis, console)


def print_comparison(found: RunComparison, console: Console) -> None:
    """Print what changed from another run to this one."""
    console.print(f"[bold]against {escape(found.other)}: {escape(found.answer)}[/bold]")
    table = Table(title="seconds of the critical path", title_justify="left")
    table.add_column("", overflow="fold")
    for column in ("there", "here", "change"):
        table.add_column(column, justify="right")
    causes = [replace(one, name=name_cause(one.name)) for one in found.causes]
    for one in [found.total, *causes[:MOST_SHOWN], *found.operators[:MOST_SHOWN]]:
        if max(one.seconds, one.other_seconds) >= SMALLEST_SHARE * found.total.seconds:
            cells = (f"{one.other_seconds:.1f}", f"{one.seconds:.1f}", f"{one.more_seconds:+.1f}")
            table.add_row(escape(one.name), *cells)
    console.print(table)


def rank_shares(values: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the shares that can be seen, the largest first."""
    return sorted((one for one in values.items() if one[1] >= SMALLEST_SHARE), key=lambda one: -one[1])


def rank_gains(found: WhatIf) -> list[tuple[str, float]]:
    """Return what would be faster by how many seconds without something; the largest gain first."""
    least = LEAST_GAIN_SHARE * found.measured_seconds
    return sorted((one for one in found.gains.items() if one[1] >= least), key=lambda one: -one[1])


def rank_operators(summary: Summary) -> list[tuple[str, float, int]]:
    """Return operators with their share of the critical path and the workers that ran them, largest first."""
    ranked = rank_shares(summary.sum_operators())
    return [(name, share, summary.instances.get(name, 1)) for name, share in ranked]


def share_channels(summary: Summary) -> dict[str, float]:
    """Return the shares of messages that others waited for."""
    return {f"{source} → {target}": share for source, target, share in summary.communication}


def advise_on_failures(failed: FailedWork) -> str:
    """Say what to do about what failed, and what it cost."""
    gain = failed.gain.seconds if failed.gain else 0.0
    cost = f"It cost {figures.seconds(gain)}." if gain >= 0.1 else ""
    return " ".join(filter(None, (failed.advice, describe_settings(failed.settings), cost)))


def describe_slots(use: SlotUse) -> str:
    """Say how many core-seconds were there, and how many of them nobody used."""
    share = use.idle_seconds / use.slot_seconds if use.slot_seconds else 0.0
    there, idle = figures.count(use.core_seconds), figures.count(use.idle_core_seconds)
    said = f"{there} core-seconds were there; {idle} of them ({share:.0%}) were idle"
    if use.cost is None:
        return said
    return f"{said}: {use.idle_cost:,.2f} of {use.cost:,.2f} at {use.price_per_core_hour:g} a core-hour"


def advise_on_waste(found: Observation) -> str:
    """Say what to do about waste, and what to set."""
    return " ".join(filter(None, (found.advice, describe_settings(found.settings))))


def _print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    console.print(f"[bold]{escape(diagnosis.name)}[/bold] {escape(diagnosis.application)}")
    console.print(f"[bold]{escape(diagnosis.answer)}[/bold]")
    _print_activities(diagnosis, console)
    whole = diagnosis.whole
    _print_shares(console, "workers", whole.worker)
    _print_operators(console, whole)
    _print_shares(console, "channels", share_channels(whole))
    if diagnosis.slots and diagnosis.slots.slot_seconds:
        console.print(describe_slots(diagnosis.slots))
    print_window_table(diagnosis.windows, console)
    print_streaming(diagnosis.streaming, console)
    if diagnosis.what_if:
        _print_forecasts(diagnosis.what_if, console)
    console.print("[bold]what to do[/bold]")
    if diagnosis.failed:
        console.print(f"  {escape(diagnosis.failed.sentence)} {escape(advise_on_failures(diagnosis.failed))}")
    for finding in diagnosis.findings:
        console.print(f"  {escape(finding.sentence)} {escape(advise(finding))}")
    for one in diagnosis.waste:
        console.print(f"  {escape(one.sentence)} {escape(advise_on_waste(one))}")
    for warning in diagnosis.warnings:
        console.print(f"  warning: {escape(warning)}")


def _print_activities(diagnosis: Diagnosis, console: Console) -> None:
    table = Table(title="activities", title_justify="left")
    for column in ("activity", "critical path", "busy time", "one random path"):
        table.add_column(column, justify="left" if column == "activity" else "right")
    for name, shares in diagnosis.compare_activities().items():
        if max(shares) >= SMALLEST_SHARE:
            table.add_row(name, *(f"{share:.1%}" for share in shares))
    console.print(table)


def _print_shares(console: Console, title: str, values: Mapping[str, float]) -> None:
    if not values:
        return
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    ranked = rank_shares(values)
    for name, value in ranked[:MOST_SHOWN]:
        table.add_row(escape(name), f"{value:.1%}")
    if len(ranked) > MOST_SHOWN:
        table.add_row(f"and {len(ranked) - MOST_SHOWN} more", "")
    console.print(table)


def _print_operators(console: Console, whole: Summary) -> None:
    ranked = rank_operators(whole)
    if not ranked:
        return
    table = Table(title="operators", title_justify="left")
    table.add_column("operator", overflow="fold")
    for column in ("critical path", "workers", "for each worker"):
        table.add_column(column, justify="right")
    for name, share, workers in ranked[:MOST_SHOWN]:
        table.add_row(escape(name), f"{share:.1%}", figures.count(workers), f"{share / workers:.1%}")
    if len(ranked) > MOST_SHOWN:
        table.add_row(f"and {len(ranked) - MOST_SHOWN} more", "", "", "")
    console.print(table)


def _print_forecasts(found: WhatIf, console: Console) -> None:
    measured = f"measured: {found.measured_seconds:.1f} s on {figures.count_of(found.slots, 'slot')}"
    if not found.is_trusted:
        console.print(f"{measured}; a replay takes {found.replayed_seconds:.1f} s, so there is no forecast")
        return
    times = ", ".join(f"{item.seconds:.1f} s on {item.slots}" for item in found.forecasts)
    console.print(f"{measured}; forecast: {times}")
    if found.jobs > 1:
        times = ", ".join(f"{item.median_job_seconds:.2f} s on {item.slots}" for item in found.forecasts)
        measured = f"{found.measured_job_seconds:.2f} s"
        console.print(f"  median of {found.jobs} jobs: {measured}; forecast: {times}")
    for name, gain in rank_gains(found):
        console.print(f"  without {name}: {figures.seconds(gain)} less")


def print_windows(rows: Iterable[Any], console: Console) -> None:
    """Print the windows of a followed log, one line each: when, the answer, and the largest shares."""
    windows: dict[tuple[str, int], list[Any]] = {}
    ends: list[Any] = []
    for row in rows:
        if row.summary in {"ended", "error"}:
            ends.append(row)
        else:
            windows.setdefault((row.application, row.start_us), []).append(row)
    for (application, start), found in sorted(windows.items()):
        said = next((row.name for row in found if row.summary == "answer"), "")
        when = f"{figures.clock(start / 1e6)}–{figures.clock(found[0].end_us / 1e6)}"
        console.print(escape(f"{when} {application}: {said}{_format_largest(found)}"), soft_wrap=True)
    for row in ends:
        console.print(escape(f"{row.application}: {row.summary} {row.name}"), soft_wrap=True)


def _format_largest(rows: list[Any]) -> str:
    """Return the largest share of each summary of a window."""
    shown = []
    for kind in ("activity", "worker", "operator"):
        shares = [row for row in rows if row.summary == kind and (row.participation or 0.0) > 0]
        if shares:
            largest = max(shares, key=lambda row: row.participation)
            shown.append(f"{kind} {largest.name} {largest.participation:.0%}")
    return f" ({', '.join(shown)})" if shown else ""
