"""The autopilot at work: a word count on a local cluster, whose rate steps up and later down."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.errors import ActionFailed
from penstock.view import figures
from penstock.view.frame import write_text
from penstock.view.run_page import render_run_page, sum_slot_seconds
from penstock.view.run_terminal import format_run_line, render_run
from penstock.view.words import describe_change, name_decision

if TYPE_CHECKING:
    from penstock_lab.workloads.word_count import WordCount

EXECUTORS, CORES = 4, 2
TRIGGER_SECONDS = 5.0
TASKS = 8
FULL_RATE, LOW_RATE = 72.0, 20.0
SLOTS_AT_FULL_RATE = 2.7
"""Slots that the service times alone keep busy; fixed costs and whole waves of tasks make it more."""
PAGE = Path("artifacts") / "demo.html"
SETTINGS: dict[str, object] = {
    "policy_interval": "6s",
    "warm_up_intervals": 2,
    "activation_intervals": 2,
    "scale_down_delay": "15s",
    "catch_up": "60s",
    "largest_step_down": 1.0,
    "max_executors": EXECUTORS,
}
"""Shorter waits than one would choose for a job that runs for months."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the demo with one offered rate; seconds count from the start of the load."""

    name: str
    start: float
    rate: float


PHASES = (
    Stretch("warm-up", 0, 4),
    Stretch("low", 14, LOW_RATE),
    Stretch("high", 42, FULL_RATE),
    Stretch("low again", 115, LOW_RATE),
)
END_SECONDS = 175.0


def run_demo(html: Path | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run the demo and return its summary; `quiet` keeps standard output free for it."""
    console = Console(stderr=quiet)
    begun = time.monotonic()
    console.print("Starting a local cluster; the demo takes about three and a half minutes.", style="dim")
    status = _run_and_watch(console)
    result = sum_up(status)
    result["seconds"] = round(time.monotonic() - begun, 1)
    result["html"] = str(write_text(render_run_page(status), html or PAGE))
    for part in (list_changes(result), list_phases(result)):
        console.print(part)
    console.print(
        f"\nRates, slots and decisions over time: {result['html']}", highlight=False, soft_wrap=True
    )
    return result


def make_workload() -> WordCount:
    """Return the word count with the demo's rates."""
    from penstock_lab.workloads.word_count import WordCount

    profile = "steps:" + ",".join(f"{phase.start:g}={phase.rate:g}" for phase in PHASES)
    return WordCount.make_for(SLOTS_AT_FULL_RATE, FULL_RATE, profile).with_tasks(TASKS)


def _run_and_watch(console: Console) -> dict[str, Any]:
    """Start cluster, query and autopilot, show them until the end, and return the last status."""
    from penstock.runtime.attach import attach
    from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory
    from penstock_lab.workloads.word_count import start_word_count

    shape = ClusterShape(EXECUTORS, CORES, name="penstock demo", log_level="OFF")
    with scratch_directory() as scratch, cluster(shape, executors=1) as spark:
        checkpoint = str(scratch / "checkpoint")
        query = start_word_count(spark, make_workload(), checkpoint, trigger_seconds=TRIGGER_SECONDS)
        autopilot = attach(spark, settings={**SETTINGS, "journal": str(scratch / "journal.db")})
        try:
            end = time.monotonic() + END_SECONDS
            with _open_view(console) as update:
                while time.monotonic() < end and query.isActive:
                    update(autopilot.status(), end - time.monotonic())
                    time.sleep(1)
        finally:
            autopilot.detach()
        if not query.isActive:
            raise ActionFailed(f"the demo's query ended early: {query.exception()}")
        # the source writes into its offsets when the profile began
        offset = json.loads(query.recentProgress[-1].json)["sources"][0]["endOffset"]
        return {**autopilot.status(), "load_started": float(offset["start_ms"]) / 1000}


@contextmanager
def _open_view(console: Console) -> Iterator[Callable[[dict[str, Any], float], None]]:
    """Show a live view on a terminal; elsewhere a line whenever there is news."""
    if not console.is_terminal:
        yield _StatusLines(console).update
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def update(status: dict[str, Any], left: float) -> None:
            ends = Text(f"\n  ends by itself in {left:.0f} s", style="dim")
            live.update(Group(render_run(status), ends), refresh=True)

        yield update


class _StatusLines:
    """Lines of status, printed when there is a new point or decision."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: object = None

    def update(self, status: dict[str, Any], left: float) -> None:
        news = (len(status["recent"]), len(status["decisions"]))
        if news != self._last:
            self._last = news
            self._console.print(format_run_line(status), highlight=False, markup=False, soft_wrap=True)


def sum_up(status: dict[str, Any]) -> dict[str, Any]:
    """Sum up the run: changes made, each phase at its end, and slot-seconds held."""
    recent = status["recent"]
    seen_seconds = recent[-1]["at"] - recent[0]["at"] if recent else 0.0
    most = max((point["slots_held"] for point in recent), default=0)
    return {
        "application": status["application"],
        "changes": [one for one in status["decisions"] if one["kind"] in ("scale-out", "scale-in")],
        "phases": [_find_phase_end(status, number) for number in range(1, len(PHASES))],
        "slot_seconds": round(sum_slot_seconds(recent), 1),
        "slot_seconds_at_peak_size": round(most * seen_seconds, 1),
    }


def _find_phase_end(status: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the last point of a phase: by then the autopilot has had its time."""
    phase = PHASES[number]
    end = PHASES[number + 1].start if number + 1 < len(PHASES) else float("inf")
    until = status["load_started"] + end
    points = [point for point in status["recent"] if point["at"] <= until]
    return {"phase": phase.name, "rate": phase.rate, **(points[-1] if points else {})}


def _make_table(title: str) -> Table:
    style: dict[str, Any] = {"title_justify": "left", "header_style": "dim", "padding": (0, 2, 0, 0)}
    return Table(title=f"\n{title}", box=None, **style)


def list_changes(result: dict[str, Any]) -> Table:
    """List every change with its reason and outcome."""
    table = _make_table("changes")
    for column in ("at", "change", "executors", "took", "because"):
        table.add_column(column, overflow="fold", vertical="top")
    for one in result["changes"]:
        outcome = one.get("outcome") or {}
        took = f"{outcome.get('status', 'open')} in {figures.seconds(outcome.get('seconds'))}"
        table.add_row(figures.clock(one["at"]), name_decision(one), describe_change(one), took, one["reason"])
    return table


def list_phases(result: dict[str, Any]) -> Table:
    """List each phase as it stood at its end."""
    table = _make_table("at the end of each phase")
    table.add_column("phase")
    for column in ("offered", "observed", "backlog", "batch / trigger", "slots needed", "slots held"):
        table.add_column(column, justify="right")
    for phase in result["phases"]:
        table.add_row(
            phase["phase"],
            figures.rate(phase.get("offered_per_second")),
            figures.rate(phase.get("observed_per_second")),
            figures.count(phase.get("backlog_records")),
            f"{figures.seconds(phase.get('batch_seconds'))} / {figures.seconds(phase.get('period_seconds'))}",
            figures.count(phase.get("slots_needed")),
            figures.count(phase.get("slots_held")),
        )
    held, peak = result["slot_seconds"], result["slot_seconds_at_peak_size"]
    table.caption = f"{held:,.0f} slot-seconds held; the largest size throughout would have been {peak:,.0f}"
    return table
