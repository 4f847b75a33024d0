"""A fleet in the terminal and as a page: what is held and needed, who is too small, what was decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.view import figures
from penstock.view.frame import Figure, render_page
from penstock.view.terminal import Entries

Plain = Mapping[str, Any]
WINDOWS_WAIT = "windows wait: is its controller at work?"


def list_fleet(status: Plain) -> list[Entries]:
    """Return the lists of a status: who is undersized, who has most to spare, what was decided."""
    undersized = [
        (
            row["application"],
            row["parallelism"],
            _whole(row["needed_parallelism"]),
            row["missing_gib"],
            "all used" if row["starved"] else "",
        )
        for row in status["undersized"]
    ]
    spare = [(row["application"], row["spare_cores"], row["spare_gib"]) for row in status["most_wasteful"]]
    decided = [
        (figures.day_and_clock(row["at"]), row["application"], row["rule"], row["reason"])
        for row in status["decisions"]
    ]
    needs, has = ("application", "holds", "needs", "short of GiB", "CPU"), ("application", "cores", "GiB")
    why = ("time", "application", "rule", "why")
    return [
        Entries(needs, undersized, 1, "undersized", "Every application holds what it needs."),
        Entries(has, spare, 1, "most to spare", "No application has anything to spare."),
        Entries(why, decided, 2, "decided in the last hour", "Nothing."),
    ]


def render_fleet(status: Plain) -> Group:
    """Show the sums, and below them the lists that are not empty."""
    sums = Table(box=None, show_header=False)
    for label, text in _sums(status):
        sums.add_row(Text(label, style="dim"), Text(text))
    return Group(sums, *(Group(Text(""), part) for part in list_fleet(status) if part.rows))


def _whole(value: float) -> float:
    """Return a count without its fraction; what is not known stays so."""
    return round(value) if math.isfinite(value) else value


def _sums(status: Plain) -> list[tuple[str, str]]:
    rules = ", ".join(f"{rule} {count}" for rule, count in status["decided_last_hour"].items())
    problem = status["overrides_problem"]
    said = f"; not all that operators said counts: {problem}" if problem else ""
    quiet = status["silent_applications"]
    silent = f", and {quiet:,} of which nothing was heard in the last hour" if quiet else ""
    lines = [("applications", f"{status['applications']:,}{silent}")]
    for label, name in (("cores", "cores"), ("memory in GiB", "gib")) if status["applications"] else ():
        allocated, needed, wasted = (status[f"{kind}_{name}"] for kind in ("allocated", "needed", "wasted"))
        lines.append((label, f"{allocated:,.0f} allocated, {needed:,.0f} needed, {wasted:,.0f} to spare"))
    at = status["last_round_at"]
    waits = f"; {WINDOWS_WAIT}" if status["windows_wait"] else ""
    return [
        *lines,
        ("last round", f"{'none yet' if at is None else figures.day_and_clock(at)}{waits}"),
        ("undersized", f"{status['undersized_applications']:,}"),
        ("overridden", f"{status['overridden_applications']:,}{said}"),
        ("in flight", f"{status['in_flight']:,}"),
        ("decided in the last hour", rules or "nothing"),
        ("bad records", f"{status['dead_letters']:,}"),
    ]


def render_fleet_page(status: Plain) -> str:
    """Render the page of one status."""
    return render_page(
        "fleet.html.j2",
        title="Fleet",
        subtitle=f"{status['applications']:,} applications, {figures.day_and_clock(status['now'])}",
        charts=False,
        figures=list_figures(status),
        problem=status["overrides_problem"],
        waits=WINDOWS_WAIT if status["windows_wait"] else "",
        bars=_bars(status),
        lists=list_fleet(status),
    )


def list_figures(status: Plain) -> list[Figure]:
    """Return the tiles of a status."""
    spare = (
        [
            ("cores to spare", f"{status['wasted_cores']:,.0f}", f"of {status['allocated_cores']:,.0f}"),
            ("memory to spare", f"{status['wasted_gib']:,.0f} GiB", f"of {status['allocated_gib']:,.0f} GiB"),
        ]
        if status["applications"]
        else []
    )
    return [
        *spare,
        ("undersized", f"{status['undersized_applications']:,}", "hold less than they need"),
        ("decided", f"{sum(status['decided_last_hour'].values()):,}", "in the last hour"),
        ("in flight", f"{status['in_flight']:,}", "not acknowledged yet"),
        ("bad records", f"{status['dead_letters']:,}", "set aside"),
        ("overridden", f"{status['overridden_applications']:,}", "by operators"),
        ("silent", f"{status['silent_applications']:,}", "not heard of in the last hour"),
    ]


def _bars(status: Plain) -> list[tuple[str, str, str]]:
    """Return how much of what is held is needed: label, width of the bar, text."""
    bars = []
    for label, name in (("cores", "cores"), ("GiB of memory", "gib")) if status["applications"] else ():
        needed, held = status[f"needed_{name}"], status[f"allocated_{name}"]
        share = min(1.0, needed / held) if held else 0.0
        bars.append((label, f"{share:.1%}", f"{needed:,.0f} of {held:,.0f}"))
    return bars
