"""`penstock workload`: one workload alone, and what it sustains."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer, reported
from penstock.durations import parse_duration
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.workloads.arrivals import LoadOutcome
    from penstock.workloads.catalog import Ask, Workload
    from penstock.workloads.sustaining import Judgement


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("workload")(workload)


@reported
def workload(  # noqa: PLR0913, PLR0917
    name: Annotated[str | None, typer.Argument(help="Which workload to run; --list names them.")] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            help="Records a second, or a rate profile such as sine:mean=100,...; --list has each's own."
        ),
    ] = None,
    duration: Annotated[str, typer.Option(help="How long to measure.")] = "30s",
    warm_up: Annotated[str, typer.Option("--warm-up", help="How long to run before that.")] = "10s",
    trigger: Annotated[str, typer.Option(help="Trigger interval; 0s begins a batch at once.")] = "1s",
    cores: Annotated[int, typer.Option(min=1, help="Slots of the embedded cluster.")] = 2,
    skew: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share that goes to one key or instance; none by default."),
    ] = None,
    keys: Annotated[
        int | None, typer.Option(min=1, max=2**31 - 2, help="Keys of the key-count; 100000 by default.")
    ] = None,
    service: Annotated[
        str | None, typer.Option(help="Service time of a record where operators are paced; 1ms by default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same records.")] = 0,
    redis: Annotated[
        str | None, typer.Option(help="Where the Yahoo benchmark's Redis listens; 127.0.0.1:6379 by default.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the workloads.")] = False,
    as_json: Json = False,
) -> None:
    """Run one workload alone on a local cluster; print what it sustains and how long records take."""
    from penstock.workloads.catalog import WORKLOADS, Ask
    from penstock.workloads.catalog import workload as entry_of

    if listed:
        _list(as_json)
        return
    if name is None:
        raise BadInput(f"workload: name one of {', '.join(WORKLOADS)}")
    entry = entry_of(name)
    seconds = None if service is None else _seconds(service, "--service")
    given = {"skew": skew, "keys": keys, "service_seconds": seconds, "redis": redis}
    ask = Ask(
        profile=profile_of(rate or f"{entry.rate:g}"),
        start=0.0,
        partitions=cores,
        shuffle_partitions=cores,
        seed=seed,
        **minded(entry, given),
    )
    times = {"--warm-up": warm_up, "--duration": duration, "--trigger": trigger}
    lengths = [_seconds(text, option) for option, text in times.items()]
    if lengths[1] <= 0:
        raise BadInput(f"--duration: {duration} leaves nothing to measure")
    if not any_offered(ask.profile, sum(lengths[:2])):
        raise BadInput(f"--rate: {rate} offers no record in {sum(lengths[:2]):g} s")
    result = _run(entry, ask, lengths, cores)
    answer(result, as_json, shown(result))


def minded(entry: Workload, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given; one that would change nothing about this workload is an error."""
    wanted = {key: value for key, value in given.items() if value is not None}
    for key in wanted:
        if key not in entry.minds:
            option = key.removesuffix("_seconds")
            takes = ", ".join(f"--{one.removesuffix('_seconds')}" for one in entry.minds) or "no such option"
            raise BadInput(f"--{option}: {entry.name} does not go by it; it takes {takes}")
    return wanted


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error


def profile_of(rate: str) -> str:
    """A bare number is a constant rate."""
    from penstock.workloads.profiles import parse_profile

    profile = rate if ":" in rate else f"constant:{rate}"
    try:
        parse_profile(profile)
    except BadInput as error:
        raise BadInput(f"--rate: {error}") from error
    return profile


def any_offered(profile: str, seconds: float) -> bool:
    """Whether there is anything to deal with in so many seconds."""
    from penstock.workloads.profiles import parse_profile, records_offered

    return records_offered(parse_profile(profile), seconds) > 0


def _run(entry: Workload, ask: Ask, seconds: list[float], cores: int) -> dict[str, Any]:
    from penstock.bench.spark_cluster import cluster, scratch_directory
    from penstock.bench.spark_workload import Pace, warm, watched_load, workload_shape

    if entry.prepare is not None:
        entry.prepare(ask)
    rate = mean_rate(ask.profile, sum(seconds[:2]))
    ask, pace = dataclasses.replace(ask, events_per_second=rate), Pace(*seconds)
    with _bar(entry.name, pace.warm_up_seconds + pace.seconds) as advance:
        shape = workload_shape(cores, f"penstock workload {entry.name}")
        with cluster(shape) as spark, scratch_directory() as scratch:
            warm(spark, entry, ask, scratch / "warm", round(rate))
            found, ended = watched_load(spark, entry, ask, scratch / "checkpoint", pace, advance)
    result = {
        "workload": entry.name,
        "profile": ask.profile,
        "cores": cores,
        **(figures_of(found, ask.profile, cores) if found else none_of(ended, 3 * pace.seconds)),
    }
    return {**result, **_yahoo_latency(ask.redis, seconds[0])} if entry.name == "yahoo" else result


def mean_rate(profile: str, seconds: float) -> float:
    """Records a second over the whole run; the pace of event time where events carry one."""
    from penstock.workloads.profiles import parse_profile

    return max(1.0, parse_profile(profile).cumulative(seconds) / max(seconds, 1e-9))


def figures_of(found: LoadOutcome, profile: str, cores: int) -> dict[str, Any]:
    """The outcome in the fields of the report; `sustained` is null where the run cannot tell."""
    from penstock.workloads.profiles import parse_profile
    from penstock.workloads.sustaining import judge

    figures = {key: round(value, 1) for key, value in dataclasses.asdict(found).items()}
    per_core = round(found.records_per_second / cores, 1)
    verdict = _verdict(judge(found, parse_profile(profile)))
    return {**figures, "records_per_second_per_core": per_core, **verdict}


def none_of(batches: int, seconds: float) -> dict[str, Any]:
    """The report of a run with so few batches that there are no figures."""
    from penstock.workloads.sustaining import too_few

    return {"batches": batches, "seconds": seconds, **_verdict(too_few(batches, seconds))}


def _verdict(judged: Judgement) -> dict[str, Any]:
    longer = None if judged.longer_seconds is None else f"{judged.longer_seconds:.0f}s"
    return {"sustained": judged.sustained, "why": judged.why, "run_longer": longer}


def _yahoo_latency(redis: str, warm_up_seconds: float) -> dict[str, float]:
    """The benchmark's own latency, over windows that are final."""
    import numpy as np

    from penstock.workloads.yahoo import final_latencies, results

    latencies = final_latencies(results(redis), warm_up_seconds)
    if not latencies:
        return {}
    p50, p99 = (round(float(one) * 1000, 1) for one in np.percentile(latencies, [50, 99]))
    return {"window_latency_p50_ms": p50, "window_latency_p99_ms": p99, "windows": len(latencies)}


def shown(result: dict[str, Any]) -> Group:
    """The figures for a reader, and why the verdict is what it is."""
    table = Table(title=f"{result['workload']}, {result['profile']}", show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("sustained", verdict_of(result))
    for key, value in result.items():
        if key not in ("workload", "profile", "sustained", "why", "run_longer"):
            table.add_row(key.replace("_", " "), f"{value:,}")
    return Group(table, Text(verdict_reason(result)))


def verdict_of(result: dict[str, Any]) -> str:
    """Yes, no, or that the run cannot tell."""
    if result["sustained"] is None:
        return "cannot tell"
    return "yes" if result["sustained"] else "NO: the backlog grows"


def verdict_reason(result: dict[str, Any]) -> str:
    """Why, and how long a run would be needed where this one cannot tell."""
    why, longer = str(result["why"]), result["run_longer"]
    return why if longer is None else f"{why}; run longer: --duration {longer}"


@contextmanager
def _bar(name: str, seconds: float) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal; each call is a second gone by."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(name, total=seconds)
        yield lambda _message: bar.advance(task)


def _list(as_json: bool) -> None:
    from penstock.workloads.catalog import WORKLOADS

    table = Table("workload", "what it is", "records/s unless --rate", box=None, header_style="dim")
    for name, entry in WORKLOADS.items():
        table.add_row(name, entry.summary, f"{entry.rate:g}")
    rows = [{"name": name, "summary": entry.summary, "rate": entry.rate} for name, entry in WORKLOADS.items()]
    answer({"workloads": rows}, as_json, table)
