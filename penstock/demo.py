"""The autopilot at work: a word count on a local cluster, whose rate steps up and later down."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.errors import ActionFailed
from penstock.view import figures
from penstock.view.html import slot_seconds, write_page
from penstock.view.terminal import line, render
from penstock.view.words import change, decision_word

if TYPE_CHECKING:
    from penstock.autopilot import Autopilot
    from penstock.workloads.word_count import WordCount

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
class Phase:
    """A stretch of the demo with one offered rate; seconds count from the start of the load."""

    name: str
    start: float
    rate: float


PHASES = (
    Phase("warm-up", 0, 4),
    Phase("low", 14, LOW_RATE),
    Phase("high", 42, FULL_RATE),
    Phase("low again", 115, LOW_RATE),
)
END_SECONDS = 175.0


def run_demo(html: Path | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run the demo and return its summary; `quiet` keeps standard output free for it."""
    console = Console(stderr=quiet)
    begun = time.monotonic()
    console.print("Starting a local cluster; the demo takes about three and a half minutes.", style="dim")
    status = _watched_run(console)
    result = summary(status)
    result["seconds"] = round(time.monotonic() - begun, 1)
    result["html"] = str(write_page(status, html or PAGE))
    for part in (changes_table(result), phases_table(result)):
        console.print(part)
    console.print(
        f"\nRates, slots and decisions over time: {result['html']}", highlight=False, soft_wrap=True
    )
    return result


def demo_workload() -> WordCount:
    """The word count with the demo's rates."""
    from penstock.workloads.word_count import WordCount

    profile = "steps:" + ",".join(f"{phase.start:g}={phase.rate:g}" for phase in PHASES)
    return WordCount.needing(SLOTS_AT_FULL_RATE, FULL_RATE, profile).with_tasks(TASKS)


def _watched_run(console: Console) -> dict[str, Any]:
    """Start cluster, query and autopilot, show them until the end, and return the last status."""
    from penstock.attach import attach
    from penstock.bench.spark_cluster import ClusterShape, cluster, scratch_directory
    from penstock.workloads.word_count import start_word_count

    shape = ClusterShape(EXECUTORS, CORES, name="penstock demo", log_level="OFF")
    with scratch_directory() as scratch, cluster(shape, executors=1) as spark:
        checkpoint = str(scratch / "checkpoint")
        query = start_word_count(spark, demo_workload(), checkpoint, trigger_seconds=TRIGGER_SECONDS)
        autopilot = attach(spark, settings={**SETTINGS, "journal": str(scratch / "journal.db")})
        try:
            _show(console, autopilot, time.monotonic() + END_SECONDS, lambda: query.isActive)
        finally:
            autopilot.detach()
        if not query.isActive:
            raise ActionFailed(f"the demo's query ended early: {query.exception()}")
        return {**autopilot.status(), "load_started": _load_started(query)}


def _load_started(query: Any) -> float:
    """When the profile began, as the source wrote it into its offsets."""
    offset = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]
    return float(offset["start_ms"]) / 1000


def _show(console: Console, autopilot: Autopilot, end: float, going: Callable[[], bool]) -> None:
    with _view(console) as update:
        while time.monotonic() < end and going():
            update(autopilot.status(), end - time.monotonic())
            time.sleep(1)


@contextmanager
def _view(console: Console) -> Iterator[Callable[[dict[str, Any], float], None]]:
    """A live view on a terminal; elsewhere a line whenever there is news."""
    if not console.is_terminal:
        yield _Lines(console).update
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda status, left: live.update(_with_remaining(status, left), refresh=True)


def _with_remaining(status: dict[str, Any], left: float) -> Table:
    grid = Table.grid()
    grid.add_row(render(status))
    grid.add_row(Text(f"\n  ends by itself in {left:.0f} s", style="dim"))
    return grid


class _Lines:
    """Prints the status when it has a new point or decision."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: object = None

    def update(self, status: dict[str, Any], left: float) -> None:
        news = (len(status["recent"]), len(status["decisions"]))
        if news != self._last:
            self._last = news
            self._console.print(line(status), highlight=False, markup=False, soft_wrap=True)


def summary(status: dict[str, Any]) -> dict[str, Any]:
    """What the run came to: changes made, each phase at its end, and slot-seconds held."""
    recent = status["recent"]
    seen_seconds = recent[-1]["at"] - recent[0]["at"] if recent else 0.0
    most = max((point["slots_held"] for point in recent), default=0)
    return {
        "application": status["application"],
        "changes": [one for one in status["decisions"] if one["kind"] in ("scale-out", "scale-in")],
        "phases": [_phase_end(status, number) for number in range(1, len(PHASES))],
        "slot_seconds": round(slot_seconds(recent), 1),
        "slot_seconds_at_peak_size": round(most * seen_seconds, 1),
    }


def _phase_end(status: dict[str, Any], number: int) -> dict[str, Any]:
    """The last point of a phase: by then the autopilot has had its time."""
    phase = PHASES[number]
    end = PHASES[number + 1].start if number + 1 < len(PHASES) else float("inf")
    until = status["load_started"] + end
    points = [point for point in status["recent"] if point["at"] <= until]
    return {"phase": phase.name, "rate": phase.rate, **(points[-1] if points else {})}


def changes_table(result: dict[str, Any]) -> Table:
    """Every change with its reason and what became of it."""
    table = Table(title="\nchanges", title_justify="left", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("at", "change", "executors", "took", "because"):
        table.add_column(column, overflow="fold", vertical="top")
    for one in result["changes"]:
        outcome = one.get("outcome") or {}
        took = f"{outcome.get('status', 'open')} in {figures.seconds(outcome.get('seconds'))}"
        table.add_row(figures.clock(one["at"]), decision_word(one), change(one), took, one["reason"])
    return table


def phases_table(result: dict[str, Any]) -> Table:
    """Each phase as it stood at its end."""
    title = "\nat the end of each phase"
    table = Table(title=title, title_justify="left", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in (
        "phase",
        "offered",
        "observed",
        "backlog",
        "batch / trigger",
        "slots needed",
        "slots held",
    ):
        table.add_column(column, justify="left" if column == "phase" else "right")
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
