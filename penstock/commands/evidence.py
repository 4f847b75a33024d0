"""`penstock evidence`: the headline results of the papers, run again here."""

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

from penstock.commands.printing import DONE, FAILED, Json, answer, json_line, reported, say
from penstock.errors import ActionFailed

if TYPE_CHECKING:
    from penstock.evidence.findings import PartOutcome
    from penstock.evidence.running import Part

DIRECTORY = Path("artifacts") / "evidence"


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("evidence")(evidence)


@reported
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
    """Run the papers' headline results on this machine; write one HTML report and one JSON file."""
    from penstock.evidence.parts import chosen
    from penstock.evidence.running import State, run_parts

    parts = chosen(only or [])
    if listed:
        answer({"parts": [_row(part) for part in parts]}, as_json, _listing(parts))
        return
    from penstock.bench.spark_cluster import clusters_kept

    state = State(directory / "state.json")
    if fresh:
        state.forget(only or [])
    with _watched() as (told, done), clusters_kept():
        outcomes = run_parts(parts, quick, state, told, done)
    answer(write_report(outcomes, quick, directory), as_json, _summary(outcomes))
    if code := exit_code(outcomes):
        raise typer.Exit(code)


@contextmanager
def _watched() -> Iterator[tuple[Callable[[str], None], Callable[[float], None]]]:
    """A bar on a terminal, with what is done and how long it takes yet; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        yield _Lines(), lambda _: None
        return
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield (
            lambda text: bar.update(task, description=text),
            lambda share: bar.update(task, completed=share),
        )


class _Lines:
    """Says what is being done, but no more than a line in so many seconds."""

    EVERY_SECONDS = 15.0

    def __init__(self) -> None:
        self._part, self._said_at = "", 0.0

    def __call__(self, text: str) -> None:
        part = text.partition(",")[0]
        now = time.monotonic()
        if part != self._part or now - self._said_at >= self.EVERY_SECONDS:
            self._part, self._said_at = part, now
            say(text)


def exit_code(outcomes: list[PartOutcome]) -> int:
    """A part that failed makes the command fail; one that is missing does not."""
    return FAILED if any(outcome.status.value == "failed" for outcome in outcomes) else DONE


def write_report(outcomes: list[PartOutcome], quick: bool, directory: Path) -> dict[str, Any]:
    """The page and the JSON file; gives what the JSON file holds."""
    from penstock.evidence.page import counted, write_page
    from penstock.evidence.running import machine, today

    page = write_page(outcomes, machine(), today(), directory / "evidence.html")
    result = {
        "machine": machine(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "summary": counted(outcomes),
        "html": str(page),
        "parts": [outcome.to_json() for outcome in outcomes],
    }
    try:
        (directory / "evidence.json").write_bytes(json_line(result))
    except OSError as error:
        raise ActionFailed(f"cannot write {directory / 'evidence.json'}: {error.strerror}") from error
    say(f"wrote {page} and evidence.json beside it")
    return result


def _row(part: Part) -> dict[str, str | float | None]:
    times = {"quick_seconds": part.quick_seconds, "full_seconds": part.full_seconds}
    return {"name": part.name, "title": part.title, "shows": part.shows, **times}


def _listing(parts: Sequence[Part]) -> Table:
    """One line a part, with how long it takes."""
    table = Table(box=None, header_style="dim")
    # the name is what --only takes
    table.add_column("part", no_wrap=True)
    table.add_column("what it runs", overflow="fold")
    table.add_column("published as", overflow="fold")
    for heading in ("quick", "full"):
        table.add_column(heading, justify="right", no_wrap=True)
    for part in parts:
        quick = "–" if part.quick_seconds is None else _time(part.quick_seconds)
        table.add_row(part.name, part.title, part.shows, quick, _time(part.full_seconds))
    return table


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _summary(outcomes: list[PartOutcome]) -> Table:
    """One line a result, below the name of its part; failed and missing parts say why."""
    from penstock.evidence.page import counted, shown

    table = Table("result", "published", "ours", "verdict", box=None, header_style="dim")
    table.columns[-1].no_wrap = True
    for outcome in outcomes:
        told = "" if outcome.result.findings else outcome.status.value
        table.add_row(Text(outcome.name, "bold"), "", "", told)
        if outcome.reason:
            table.add_row(Text(outcome.reason))
        for finding in outcome.result.findings:
            cells = (finding.result, shown(finding.published), shown(finding.ours), finding.verdict.value)
            table.add_row(*(Text(cell) for cell in cells))
    table.caption = counted(outcomes)
    return table
