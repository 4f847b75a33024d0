"""The autopilot at work: a query whose rate steps up and later down.

On a proving ground payments are scored by real computing, on executors with real limits. Where control
groups cannot be made, a word count with paced operators stands in for it, and is called that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
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
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock_lab.workloads.scoring import Scoring
    from penstock_lab.workloads.word_count import WordCount

EXECUTORS = 4
TRIGGER_SECONDS = 5.0
BUSY_SLOTS = 1.8
"""Slots that records alone keep busy at the full rate; fixed costs and whole waves of tasks make it more."""
LOW = 0.3
"""Share of the full rate before the step up and after the step down."""
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
    """A stretch of the demo with one share of the full rate; seconds count from the start of the load."""

    name: str
    start: float
    share: float


PHASES = (
    Stretch("warm-up", 0, 0.05),
    Stretch("low", 14, LOW),
    Stretch("high", 42, 1.0),
    Stretch("low again", 115, LOW),
)
END_SECONDS = 175.0


@dataclass(frozen=True, slots=True)
class DemoStage:
    """Where the demo plays: the cores of an executor, the full rate in records a second, and what runs."""

    cores: int
    full_rate: float
    tasks: int
    host_cpu: float | None
    """Cores of the machine that an executor may use; None where nothing limits it."""
    story: str

    @property
    def profile(self) -> str:
        """The offered rate over time."""
        return "steps:" + ",".join(f"{one.start:g}={one.share * self.full_rate:g}" for one in PHASES)


GROUND = DemoStage(
    1, 3000.0, 4, 0.25, "payments scored by real computing, on executors of a quarter core each"
)
PACED = DemoStage(2, 72.0, 8, None, "a word count whose operators are paced by sleeping")


def run_demo(html: Path | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run the demo and return its summary; `quiet` keeps standard output free for it."""
    # refused by a Spark that is too old for it, before a cluster is started
    from penstock_lab.workloads import source  # noqa: F401

    console = Console(stderr=quiet)
    begun = time.monotonic()
    stage = _choose_stage(console)
    console.print(
        f"Starting a cluster for {stage.story}; the demo takes about three and a half minutes.", style="dim"
    )
    status, reports = _run_and_watch(stage, console)
    result = {
        "stage": stage.story,
        **sum_up(status, stage),
        **measure_latency(reports, after=PHASES[1].start),
    }
    result["seconds"] = round(time.monotonic() - begun, 1)
    result["html"] = str(write_text(render_run_page(status), html or PAGE))
    for part in (list_changes(result), list_phases(result)):
        console.print(part)
    console.print(f"\n{write_conclusion(result)}", highlight=False, style="bold")
    console.print(
        f"\nRates, slots and decisions over time: {result['html']}", highlight=False, soft_wrap=True
    )
    return result


def _choose_stage(console: Console) -> DemoStage:
    from penstock_lab.ground.control_groups import explain_refusal

    refusal = explain_refusal()
    if refusal is None:
        return GROUND
    console.print(f"No executors with real limits here: {refusal}", style="dim", soft_wrap=True)
    return PACED


def make_workload(stage: DemoStage) -> WordCount | Scoring:
    """Return the query's load with the demo's rates; what a record computes is fitted to this machine."""
    from penstock_lab.workloads.scoring import Scoring, choose_layers
    from penstock_lab.workloads.word_count import WordCount

    if stage.host_cpu is None:
        return WordCount.make_for(BUSY_SLOTS, stage.full_rate, stage.profile).with_tasks(stage.tasks)
    layers = choose_layers(BUSY_SLOTS * stage.host_cpu / stage.full_rate)
    return Scoring(stage.profile, layers, source_partitions=stage.tasks)


@contextmanager
def _start_session(stage: DemoStage) -> Iterator[SparkSession]:
    """Start the cluster with one executor."""
    from penstock_lab.ground.hosts import HostShape
    from penstock_lab.ground.proving_ground import ProvingGround
    from penstock_lab.ground.spark_cluster import ClusterShape, cluster

    with ExitStack() as stack:
        if stage.host_cpu is None:
            shape = ClusterShape(EXECUTORS, stage.cores, name="penstock demo", log_level="OFF")
        else:
            host = HostShape(stage.cores, stage.host_cpu)
            ground = stack.enter_context(ProvingGround(EXECUTORS, host))
            shape = replace(ground.shape("penstock demo"), log_level="OFF")
        yield stack.enter_context(cluster(shape, executors=1))


def _start_query(spark: SparkSession, stage: DemoStage, checkpoint: str) -> StreamingQuery:
    from penstock_lab.workloads.scoring import Scoring, build_scoring
    from penstock_lab.workloads.source import start_counts
    from penstock_lab.workloads.word_count import build_word_count

    workload = make_workload(stage)
    if isinstance(workload, Scoring):
        counts, name = build_scoring(spark, workload), "suspicious-payments"
    else:
        counts, name = build_word_count(spark, workload), "word-count"
    return start_counts(counts, checkpoint, trigger_seconds=TRIGGER_SECONDS, name=name)


def _run_and_watch(stage: DemoStage, console: Console) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Start cluster, query and autopilot, show them until the end; return the last status and all reports."""
    from penstock.runtime.attach import attach
    from penstock_lab.ground.spark_cluster import scratch_directory

    with scratch_directory() as scratch, _start_session(stage) as spark:
        query = _start_query(spark, stage, str(scratch / "checkpoint"))
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
        reports = [json.loads(report.json) for report in query.recentProgress]
        return {**autopilot.status(), "load_started": find_load_start(reports)}, reports


def find_load_start(reports: Sequence[Mapping[str, Any]]) -> float:
    """Return when the profile began: the source writes it into its offsets."""
    return float(reports[-1]["sources"][0]["endOffset"]["start_ms"]) / 1000


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


def sum_up(status: dict[str, Any], stage: DemoStage) -> dict[str, Any]:
    """Sum up the run: changes made, each phase at its end, and slot-seconds held."""
    recent = status["recent"]
    seen_seconds = recent[-1]["at"] - recent[0]["at"] if recent else 0.0
    most = max((point["slots_held"] for point in recent), default=0)
    return {
        "application": status["application"],
        "changes": [one for one in status["decisions"] if one["kind"] in ("scale-out", "scale-in")],
        "phases": [_find_phase_end(status, stage, number) for number in range(1, len(PHASES))],
        "slot_seconds": round(sum_slot_seconds(recent), 1),
        "slot_seconds_at_peak_size": round(most * seen_seconds, 1),
    }


def measure_latency(reports: Sequence[Mapping[str, Any]], after: float) -> dict[str, float]:
    """Return the time from a record's arrival to the end of its batch: the median, and for 99 % of records.

    `after` is when to begin, in seconds of the load. The records of a batch came between the start of the
    batch before and its own, evenly; ten of them stand for all.
    """
    ran = [one for one in reports if one["numInputRows"] > 0]
    begun = find_load_start(ran) + after if ran else 0.0
    latencies: list[float] = []
    weights: list[float] = []
    for before, batch in pairwise(ran):
        first, last = _read_start(before), _read_start(batch)
        if first < begun:
            continue
        done = last + batch["durationMs"]["triggerExecution"] / 1000
        latencies += [done - (first + (last - first) * (part + 0.5) / 10) for part in range(10)]
        weights += [batch["numInputRows"] / 10] * 10
    if not latencies:
        return {}
    order = np.argsort(latencies)
    share = np.cumsum(np.array(weights)[order]) / sum(weights)
    ordered = np.array(latencies)[order]
    median, most = (round(float(ordered[np.searchsorted(share, part)]), 2) for part in (0.5, 0.99))
    return {"latency_median_seconds": median, "latency_p99_seconds": most}


def _read_start(report: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(report["timestamp"]).timestamp()


def write_conclusion(result: Mapping[str, Any]) -> str:
    """Say in one sentence what was held, what the peak size would have cost, and what latency was kept."""
    held, peak = result["slot_seconds"], result["slot_seconds_at_peak_size"]
    saved = f", {1 - held / peak:.0%} less" if peak > held > 0 else ""
    sentence = (
        f"Penstock held {held:,.0f} slot-seconds where the peak size would have cost {peak:,.0f}{saved}"
    )
    if "latency_p99_seconds" not in result:
        return f"{sentence}."
    return f"{sentence}, and 99 % of the records were through within {result['latency_p99_seconds']:.1f} s."


def _find_phase_end(status: dict[str, Any], stage: DemoStage, number: int) -> dict[str, Any]:
    """Return the last point of a phase: by then the autopilot has had its time."""
    phase = PHASES[number]
    end = PHASES[number + 1].start if number + 1 < len(PHASES) else float("inf")
    until = status["load_started"] + end
    points = [point for point in status["recent"] if point["at"] <= until]
    rate = phase.share * stage.full_rate
    return {"phase": phase.name, "rate": rate, **(points[-1] if points else {})}


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
    return table
