"""`penstock workload` and `penstock demo`: one workload alone, and the autopilot at work."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer, print_json, report_errors
from penstock.errors import BadInput
from penstock.units.fields import parse_duration

if TYPE_CHECKING:
    from penstock_lab.experiments.batches import LoadOutcome, SustainedVerdict
    from penstock_lab.workloads.catalog import Ask, Workload


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("workload")(workload)
    app.command("demo")(demo)


VERDICTS = {True: "yes", False: "NO: the backlog grows", None: "cannot tell"}
Rate = Annotated[
    str | None,
    typer.Option(
        help="Records a second, or a rate profile such as sine:mean=100,...; --list has each's own."
    ),
]
Skew = Annotated[
    float | None, typer.Option(min=0, max=1, help="Share that goes to one key or instance; none by default.")
]
Keys = Annotated[
    int | None, typer.Option(min=1, max=2**31 - 2, help="Keys of the key-count; 100000 by default.")
]
Service = Annotated[
    str | None, typer.Option(help="Service time of a record where operators are paced; 1ms by default.")
]
RedisAddress = Annotated[
    str | None, typer.Option(help="Where the Yahoo benchmark's Redis listens; 127.0.0.1:6379 by default.")
]


@report_errors
def workload(  # noqa: PLR0913, PLR0917
    name: Annotated[str | None, typer.Argument(help="Which workload to run; --list names them.")] = None,
    rate: Rate = None,
    duration: Annotated[str, typer.Option(help="How long to measure.")] = "30s",
    warm_up: Annotated[str, typer.Option("--warm-up", help="How long to run before that.")] = "10s",
    trigger: Annotated[str, typer.Option(help="Trigger interval; 0s begins a batch at once.")] = "1s",
    cores: Annotated[int, typer.Option(min=1, help="Slots of the embedded cluster.")] = 2,
    skew: Skew = None,
    keys: Keys = None,
    service: Service = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same records.")] = 0,
    redis: RedisAddress = None,
    listed: Annotated[bool, typer.Option("--list", help="List the workloads.")] = False,
    as_json: Json = False,
) -> None:
    """Run one workload alone on a local cluster; print what it sustains and how long records take."""
    from penstock_lab.workloads.catalog import WORKLOADS, Ask, find_workload

    if listed:
        _list_workloads(as_json)
        return
    if name is None:
        raise BadInput(f"workload: name one of {', '.join(WORKLOADS)}")
    entry, served = find_workload(name), None if service is None else _parse_time("--service", service)
    given = {"skew": skew, "keys": keys, "service_seconds": served, "redis": redis}
    times = {"--warm-up": warm_up, "--duration": duration, "--trigger": trigger}
    lengths = [_parse_time(option, text) for option, text in times.items()]
    if lengths[1] <= 0:
        raise BadInput(f"--duration: {duration} leaves nothing to measure")
    tasks: dict[str, Any] = {"source_partitions": cores, "shuffle_partitions": cores, "seed": seed}
    profile = parse_rate(rate or f"{entry.rate:g}", sum(lengths[:2]))
    result = _run(entry, Ask(profile, 0.0, **tasks, **check_options(entry, given)), lengths, cores)
    answer(result, as_json, render_result(result))


def check_options(entry: Workload, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options; reject one that would change nothing about this workload."""
    wanted = {key: value for key, value in given.items() if value is not None}
    for key in wanted:
        if key not in entry.minds:
            option = key.removesuffix("_seconds")
            takes = ", ".join(f"--{one.removesuffix('_seconds')}" for one in entry.minds) or "no such option"
            raise BadInput(f"--{option}: {entry.name} does not go by it; it takes {takes}")
    return wanted


def _parse_time(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error


def parse_rate(rate: str, seconds: float) -> str:
    """Return the profile of a rate, which must offer a record in these seconds; a bare number is constant."""
    from penstock.simulate.profiles import parse_profile, records_offered

    profile = rate if ":" in rate else f"constant:{rate}"
    try:
        offered = records_offered(parse_profile(profile), seconds)
    except BadInput as error:
        raise BadInput(f"--rate: {error}") from error
    if not offered:
        raise BadInput(f"--rate: {rate} offers no record in {seconds:g} s")
    return profile


def _run(entry: Workload, ask: Ask, seconds: list[float], cores: int) -> dict[str, Any]:
    from penstock_lab.experiments.spark_query import RunLength, describe_workload_cluster, warm_up, watch_load
    from penstock_lab.ground.spark_cluster import cluster, scratch_directory

    if entry.prepare is not None:
        entry.prepare(ask)
    rate = find_mean_rate(ask.profile, sum(seconds[:2]))
    ask, pace = dataclasses.replace(ask, events_per_second=rate), RunLength(*seconds)
    shape = describe_workload_cluster(cores, f"penstock workload {entry.name}")
    with (
        _show_bar(entry.name, sum(seconds[:2])) as advance,
        cluster(shape) as spark,
        scratch_directory() as scratch,
    ):
        warm_up(spark, entry, ask, scratch / "warm", round(rate))
        found, ended = watch_load(spark, entry, ask, scratch / "checkpoint", pace, advance)
    few = describe_few(ended, 3 * pace.seconds)
    figures = describe_outcome(found, ask.profile, cores) if found else few
    result = {"workload": entry.name, "profile": ask.profile, "cores": cores, **figures}
    return {**result, **_measure_windows(ask.redis, seconds[0])} if entry.name == "yahoo" else result


def find_mean_rate(profile: str, seconds: float) -> float:
    """Return the records a second over the whole run; the pace of event time where events carry one."""
    from penstock.simulate.profiles import parse_profile

    return max(1.0, parse_profile(profile).cumulative(seconds) / max(seconds, 1e-9))


def describe_outcome(found: LoadOutcome, profile: str, cores: int) -> dict[str, Any]:
    """Return the fields of the report; `sustained` is null where the run cannot tell."""
    from penstock.simulate.profiles import parse_profile
    from penstock_lab.experiments.batches import judge_load

    figures = {key: round(value, 1) for key, value in dataclasses.asdict(found).items()}
    per_core = round(found.records_per_second / cores, 1)
    verdict = _describe_verdict(judge_load(found, parse_profile(profile)))
    return {**figures, "records_per_second_per_core": per_core, **verdict}


def describe_few(batches: int, seconds: float) -> dict[str, Any]:
    """Return the fields of a run with so few batches that there are no figures."""
    from penstock_lab.experiments.batches import judge_few

    return {"batches": batches, "seconds": seconds, **_describe_verdict(judge_few(batches, seconds))}


def _describe_verdict(judged: SustainedVerdict) -> dict[str, Any]:
    longer = None if judged.longer_seconds is None else f"{judged.longer_seconds:.0f}s"
    return {"sustained": judged.sustained, "why": judged.why, "run_longer": longer}


def _measure_windows(redis: str, warm_up_seconds: float) -> dict[str, float]:
    """Return the Yahoo benchmark's own latency, over windows that are final."""
    import numpy as np

    from penstock_lab.workloads.yahoo import list_final_latencies, read_results

    latencies = list_final_latencies(read_results(redis), warm_up_seconds)
    if not latencies:
        return {}
    p50, p99 = (round(float(one) * 1000, 1) for one in np.percentile(latencies, [50, 99]))
    return {"window_latency_p50_ms": p50, "window_latency_p99_ms": p99, "windows": len(latencies)}


def render_result(result: dict[str, Any]) -> Group:
    """Render the figures for a reader, the reason of the verdict, and how long to run if it cannot tell."""
    table = Table(title=f"{result['workload']}, {result['profile']}", show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("sustained", VERDICTS[result["sustained"]])
    for key, value in result.items():
        if key not in ("workload", "profile", "sustained", "why", "run_longer"):
            table.add_row(key.replace("_", " "), f"{value:,}")
    longer = f"; run longer: --duration {result['run_longer']}" if result["run_longer"] else ""
    return Group(table, Text(f"{result['why']}{longer}"))


@contextmanager
def _show_bar(name: str, seconds: float) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on a terminal; each call is a second gone by."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    shown, console = sys.stderr.isatty(), Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(name, total=seconds)
        yield lambda _message: bar.advance(task)


def _list_workloads(as_json: bool) -> None:
    from penstock_lab.workloads.catalog import WORKLOADS

    table = Table("workload", "what it is", "records/s unless --rate", box=None, header_style="dim")
    for name, entry in WORKLOADS.items():
        table.add_row(name, entry.summary, f"{entry.rate:g}")
    rows = [{"name": name, "summary": entry.summary, "rate": entry.rate} for name, entry in WORKLOADS.items()]
    answer({"workloads": rows}, as_json, table)


@report_errors
def demo(
    html: Annotated[Path | None, typer.Option("--html", help="Where to write the page of the run.")] = None,
    as_json: Json = False,
) -> None:
    """Show the autopilot at work on a local cluster of executor processes; ends by itself."""
    from penstock_lab.demo import run_demo

    result = run_demo(html=html, quiet=as_json)
    if as_json:
        print_json(result)
