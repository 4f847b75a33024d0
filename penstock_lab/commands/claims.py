"""`penstock bench` and `penstock evidence`: one experiment with its claims, and the report over all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import (
    DONE,
    FAILED,
    Json,
    answer,
    json_line,
    print_json,
    progress,
    report_errors,
    say,
    terminal,
)
from penstock.errors import ActionFailed, BadInput

if TYPE_CHECKING:
    from penstock_lab.claims.claim import Claim
    from penstock_lab.report.runner import PartOutcome, ReportPart

MIGRATION, FIELD = "migration", "field"
PAGE = Path("artifacts") / "migration.html"
DIRECTORY = Path("artifacts") / "evidence"


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("bench")(bench)
    app.command("evidence")(evidence)


@report_errors
def bench(
    name: Annotated[str | None, typer.Argument(help="Which claim to measure.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer or shorter runs; rougher figures.")] = False,
    day: Annotated[
        Path | None,
        typer.Option("--day", help="For field: a recorded day, lines `second,rate` or one rate a line."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
    as_json: Json = False,
) -> None:
    """Measure one claim, its sides against each other in one run."""
    from penstock_lab.experiments.measurement import Extent
    from penstock_lab.report.bench import BenchReport
    from penstock_lab.report.catalog import BENCHES, find_bench

    if listed:
        _list_benches(as_json)
        return
    if name is None:
        raise BadInput(f"bench: name one of {', '.join(BENCHES)}")
    if day is not None:
        _check_day(name, day, quick)
    measured, judged = find_bench(name).run(Extent(quick, day=day), progress)
    if name == MIGRATION:
        from penstock_lab.report.page import write_charts

        subtitle = "batch latency while a quarter of the state moves away and back, as in figure 5.1"
        page = write_charts("Migration", subtitle, judged.charts, PAGE)
        measured.notes.append(f"batch latency over time: {page}")
    report = BenchReport(name, measured, judged)
    report.print_table(terminal())
    if as_json:
        print_json(report.to_json())


def _check_day(name: str, day: Path, quick: bool) -> None:
    """Refuse a recorded day that would not be used, or that cannot be read, before anything runs."""
    from penstock_lab.jobs.loads import load_profile

    if name != FIELD or quick:
        raise BadInput(f"bench: --day is for a whole run of {FIELD}, which follows a day")
    load_profile("day", 1.0, 1.0, day)


def _list_benches(as_json: bool) -> None:
    from penstock_lab.report.catalog import BENCHES

    table = Table("benchmark", "what it measures", box=None, header_style="dim")
    for name, part in BENCHES.items():
        table.add_row(name, part.title)
    rows = [{"name": name, "summary": part.title} for name, part in BENCHES.items()]
    answer({"benches": rows}, as_json, table)


@report_errors
def evidence(
    only: Annotated[list[str] | None, typer.Option("--only", help="A part; give several for more.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs; rougher figures.")] = False,
    directory: Annotated[
        Path, typer.Option("--directory", help="Where report, JSON and state are kept.")
    ] = DIRECTORY,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what earlier runs finished of the parts asked for.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the parts.")] = False,
    as_json: Json = False,
) -> None:
    """Judge all claims, the papers' and Penstock's own, on this machine; write an HTML and a JSON file."""
    from penstock_lab.report.catalog import choose_parts
    from penstock_lab.report.runner import KeptOutcomes, run_parts

    parts = choose_parts(only or [])
    if listed:
        _list_parts(parts, as_json)
        return
    from penstock_lab.ground.spark_cluster import clusters_kept

    state = KeptOutcomes(directory / "state.json")
    if fresh:
        state.forget(only or [])
    with _show_progress() as (told, done), clusters_kept():
        outcomes = run_parts(parts, quick, state, told, done)
    answer(write_report(outcomes, quick, directory), as_json, _list_claims(outcomes))
    if code := find_exit_code(outcomes):
        raise typer.Exit(code)


@contextmanager
def _show_progress() -> Iterator[tuple[Callable[[str], None], Callable[[float], None]]]:
    """Show progress: a bar on a terminal, elsewhere a line now and then."""
    if not sys.stderr.isatty():
        yield _ProgressLines(), lambda _: None
        return
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield (
            lambda text: bar.update(task, description=text),
            lambda share: bar.update(task, completed=share),
        )


class _ProgressLines:
    """Progress in lines, at most one in so many seconds."""

    EVERY_SECONDS = 15.0

    def __init__(self) -> None:
        self._part, self._said_at = "", 0.0

    def __call__(self, text: str) -> None:
        part = text.partition(",")[0]
        now = time.monotonic()
        if part != self._part or now - self._said_at >= self.EVERY_SECONDS:
            self._part, self._said_at = part, now
            say(text)


def find_exit_code(outcomes: list[PartOutcome]) -> int:
    """Fail if a part failed; a missing part is no failure."""
    return FAILED if any(outcome.status.value == "failed" for outcome in outcomes) else DONE


def write_report(outcomes: list[PartOutcome], quick: bool, directory: Path) -> dict[str, Any]:
    """Write the page and the JSON file; return what the JSON file holds."""
    from penstock_lab.report.counts import count_verdicts
    from penstock_lab.report.page import write_page
    from penstock_lab.report.runner import describe_machine, tell_date

    page = write_page(outcomes, describe_machine(), tell_date(), directory / "evidence.html")
    result = {
        "machine": describe_machine(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "summary": count_verdicts(outcomes),
        "claims": _list_counted(outcomes),
        "html": str(page),
        "parts": [outcome.to_json() for outcome in outcomes],
    }
    try:
        (directory / "evidence.json").write_bytes(json_line(result))
    except OSError as error:
        raise ActionFailed(f"cannot write {directory / 'evidence.json'}: {error.strerror}") from error
    say(f"wrote {page} and evidence.json beside it")
    return result


def _list_parts(parts: Sequence[ReportPart], as_json: bool) -> None:
    """List the parts, with how long each takes."""
    table = Table(box=None, header_style="dim")
    # the name is what --only takes
    table.add_column("part", no_wrap=True)
    for heading in ("what it runs", "published as"):
        table.add_column(heading, overflow="fold")
    for heading in ("quick", "full"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = []
    for part in parts:
        row = {"name": part.name, "title": part.title, "shows": part.shows}
        times = {"quick_seconds": part.quick_seconds, "full_seconds": part.full_seconds}
        table.add_row(*row.values(), *map(_format_time, times.values()))
        rows.append({**row, **times})
    answer({"parts": rows}, as_json, table)


def _format_time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _list_counted(outcomes: list[PartOutcome]) -> list[dict[str, str]]:
    """Return each claim with its verdict and parts, those that failed first."""
    from penstock_lab.report.counts import BEST_LAST, count_claims

    order = [verdict.value for verdict in BEST_LAST]
    rows = [
        {
            "claim": claim.name,
            "verdict": claim.verdict.value,
            "parts": ", ".join(dict.fromkeys(outcome.name for outcome, _ in claim.results)),
        }
        for claim in count_claims(outcomes)
    ]
    return sorted(
        rows, key=lambda row: order.index(row["verdict"]) if row["verdict"] in order else len(order)
    )


def _list_claims(outcomes: list[PartOutcome]) -> Table:
    """List what failed, then the claims of each part; failed and missing parts say why."""
    from penstock_lab.report.counts import count_verdicts, list_failed

    table = Table("result", "published or target", "ours", "verdict", box=None, header_style="dim")
    table.columns[-1].no_wrap = True
    failed = list_failed(outcomes)
    if failed:
        table.add_row(Text("what failed", "bold"))
    for outcome, claim in failed:
        _add_result(table, claim, f"{claim.figure or outcome.name}: {claim.name}")
    for outcome in outcomes:
        told = "" if outcome.result.claims else outcome.status.value
        table.add_row(Text(outcome.name, "bold"), "", "", told)
        if outcome.reason:
            table.add_row(Text(outcome.reason))
        for claim in outcome.result.claims:
            _add_result(table, claim, claim.name)
    table.caption = count_verdicts(outcomes)
    return table


def _add_result(table: Table, claim: Claim, name: str) -> None:
    from penstock_lab.report.page import format_figure

    beside = format_figure(claim.target if claim.published is None else claim.published)
    cells = (name, beside, format_figure(claim.measured), claim.verdict.value)
    table.add_row(*(Text(cell) for cell in cells))
