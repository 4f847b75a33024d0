"""`penstock diagnose`: what is on the critical path, from event logs or a trace.

The diagnosis is imported where it is used: numba, Arrow and plotly take a second that no other command needs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from penstock.commands.config import parse_seconds
from penstock.commands.printing import Json, print_json, progress, say, terminal, write_output
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.diagnose.comparison import RunComparison
    from penstock.diagnose.diagnosis import Diagnosis
    from penstock.diagnose.path.spans import Span

FOLLOW_WINDOW_SECONDS = 10.0
LOOK_EVERY_SECONDS = 0.5

Outputs = dict[Path, Callable[[list["Diagnosis"]], bytes]]
"""The files to write, each with the function that makes its content."""


def diagnose(  # noqa: PLR0913, PLR0917 - one argument for every option
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="An event log, a directory of them, or a trace in Parquet."),
    ],
    window: Annotated[
        str | None, typer.Option(help="Length of a window, e.g. 10s; default: all in one.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report for a browser to this file.")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto to this file.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Leave out what was before, e.g. 2026-01-31T12:00.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Leave out what was after.")] = None,
    follow: Annotated[bool, typer.Option(help="Print windows while logs are still written.")] = False,
    host_cores: Annotated[
        int | None, typer.Option(help="Cores that the slots of a host share, for forecasts.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Log of another run of the same job, to say what changed.")
    ] = None,
    price_per_core_hour: Annotated[
        float | None, typer.Option(help="What a core costs for an hour, to tell idle cores in money.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory that may be used, e.g. 4GB; default: all that is free.")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the report on a page in a browser, with progress.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say where the time goes: what is on the critical path."""
    seconds = None if window is None else parse_seconds("--window", window)
    times = parse_moment("--from", start), parse_moment("--to", end)
    span = make_span(seconds, *times, host_cores, parse_memory(memory), price_per_core_hour)
    if serve:
        _refuse_beside_serve(
            {"--html": html, "--perfetto": perfetto, "--follow": follow, "--against": against}
        )
        _serve(path, span, as_json)
        return
    outputs = _choose_outputs(html, perfetto)
    run_diagnosis(path, span, terminal(), outputs=outputs, follow=follow, against=against, as_json=as_json)


def _refuse_beside_serve(others: Mapping[str, object]) -> None:
    given = [name for name, value in others.items() if value]
    if given:
        raise BadInput(
            f"{given[0]} does not go with --serve, which writes no file and shows the report itself"
        )


def _serve(path: Path, span: Span, as_json: bool) -> None:
    """Serve the diagnosis of a path on loopback, until it is interrupted."""
    from penstock.settings.model import load_settings
    from penstock.view.dashboard.access import choose_access
    from penstock.view.dashboard.app import make_app
    from penstock.view.dashboard.diagnosis_jobs import Jobs
    from penstock.view.dashboard.server import Address, describe_address, listen_at, serve

    if not path.exists():
        raise BadInput(f"{path}: there is no such file or directory")
    jobs, where = Jobs(), Address("127.0.0.1", 0)
    access, listening = choose_access(where.host, None, None, (), False), listen_at(where)
    opened = f"{describe_address(listening, access)}diagnosis/{jobs.plan(path.absolute(), span).key}"
    if as_json:
        print_json({"address": opened})
    else:
        say(f"the report is at {opened}  (control-C ends it)")
    serve(make_app(load_settings(None), access, diagnoses=jobs), listening)


def parse_memory(text: str | None) -> int | None:
    """Return the bytes of a size such as 4GB; kB are thousands, KiB are 1024."""
    from penstock.units.fields import parse_size

    if text is None:
        return None
    try:
        size = int(parse_size(text))
    except ValueError:
        size = 0
    if size < 1:
        raise BadInput(f"--memory: {text!r} is not a size such as 512MB, 4GB or 4GiB")
    return size


def parse_moment(option: str, text: str | None) -> float | None:
    """Return the seconds since the epoch of a number or of a time in ISO 8601."""
    if text is None:
        return None
    with suppress(ValueError):
        if math.isfinite(seconds := float(text)):
            return seconds
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        wrong = "neither seconds since the epoch nor a time like 2026-01-31T12:00"
        raise BadInput(f"{option}: {text!r} is {wrong}") from None


def make_span(
    window_seconds: float | None = None,
    start: float | None = None,
    end: float | None = None,
    host_cores: int | None = None,
    memory: int | None = None,
    price_per_core_hour: float | None = None,
) -> Span:
    """Return the span of these options; `start` and `end` are seconds since the epoch."""
    from penstock.diagnose.path.spans import Span

    if window_seconds is not None and round(window_seconds * 1e6) < 1:
        raise BadInput(f"--window must be at least 0.001ms, not {window_seconds} s")
    if start is not None and end is not None and start >= end:
        raise BadInput("--from must be before --to")
    if host_cores is not None and host_cores < 1:
        raise BadInput(f"--host-cores must be at least 1, not {host_cores}")
    if price_per_core_hour is not None and not 0 <= price_per_core_hour < math.inf:
        raise BadInput(f"--price-per-core-hour must be 0 or more, not {price_per_core_hour}")
    window_us, start_us, end_us = (
        None if one is None else round(one * 1e6) for one in (window_seconds, start, end)
    )
    return Span(window_us, start_us, end_us, host_cores, memory, price_per_core_hour)


def _choose_outputs(html: Path | None, perfetto: Path | None) -> Outputs:
    outputs: Outputs = {}
    if html is not None:
        from penstock.view.diagnosis_page import render_diagnosis_page

        outputs[html] = lambda found: render_diagnosis_page(found).encode()
    if perfetto is not None:
        from penstock.view.perfetto import render_perfetto

        outputs[perfetto] = render_perfetto
    return outputs


def run_diagnosis(
    path: Path,
    span: Span,
    console: Console,
    *,
    outputs: Outputs | None = None,
    follow: bool = False,
    against: Path | None = None,
    as_json: bool = False,
) -> None:
    """Diagnose the logs or the trace at `path`, write the files and print the answer."""
    from penstock.diagnose.diagnosis import diagnose_path, diagnoses_to_json
    from penstock.view.diagnosis_terminal import print_comparison, print_diagnoses

    if follow:
        window_seconds = span.window_us / 1e6 if span.window_us else FOLLOW_WINDOW_SECONDS
        _follow(path, window_seconds, terminal(error=True) if as_json else console)
    found = diagnose_path(path, span, progress, drawn=bool(outputs))
    compared = _compare(path, found, against, span) if against else None
    for file, render in (outputs or {}).items():
        write_output(file, render(found))
    if as_json:
        more = {"comparison": compared.to_json()} if compared else {}
        print_json(diagnoses_to_json(found) | more)
        return
    if compared:
        print_comparison(compared, console)
    print_diagnoses(found, console)


def _compare(path: Path, found: list[Diagnosis], against: Path, span: Span) -> RunComparison:
    """Compare one run with one other; --from and --to are about the first alone."""
    from penstock.diagnose.comparison import compare_runs
    from penstock.diagnose.diagnosis import diagnose_path

    others = diagnose_path(against, replace(span, start_us=None, end_us=None), progress, drawn=False)
    for where, runs in ((path, found), (against, others)):
        if len(runs) > 1:
            raise BadInput(f"--against compares one run with one other: {where} holds {len(runs)}")
    return compare_runs(found[0], others[0])


def _follow(path: Path, window_seconds: float, console: Console) -> None:
    """Print each window of the logs that are still written, until all are finished or the user stops it."""
    from penstock.diagnose.log.files import find_logs, has_no_log
    from penstock.diagnose.trace.events import is_trace

    if is_trace(path):
        return
    if has_no_log(path):
        console.print(f"Waiting for an event log in {path}. Ctrl-C ends this.", style="dim", markup=False)
        while has_no_log(path):
            time.sleep(LOOK_EVERY_SECONDS)
    if not any(log.in_progress for log in find_logs(path)):
        return
    # Spark is needed for this alone
    from penstock.diagnose.spark_follow import follow_logs
    from penstock.view.diagnosis_terminal import print_windows

    console.print("Following: each window is printed when it is complete. Ctrl-C ends this.", style="dim")
    try:
        follow_logs(_start_spark, path, window_seconds, lambda rows: print_windows(rows, console))
    except KeyboardInterrupt:
        console.print("Stopped following. The diagnosis of what was written so far:", style="dim")


def _start_spark() -> Any:
    from penstock.observe.spark_session import start_session

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        # Spark's Python worker would print a warning about pandas for every window
        "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
    }
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return start_session("penstock diagnose --follow", settings, "local[2]")
