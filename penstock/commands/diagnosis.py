"""`penstock diagnose`: what is on the critical path, from an event log or a trace."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.commands.printing import Json, print_json, progress, reported, terminal
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.diagnose.diagnosis import Diagnosis


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("diagnose")(diagnose)


@reported
def diagnose(  # noqa: PLR0913, PLR0917 - one argument for every option
    path: Annotated[Path, typer.Argument(help="An event log, a directory of them, or a trace in Parquet.")],
    window: Annotated[
        str | None, typer.Option(help="Length of a window, e.g. 10s; default: all in one.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report for a browser to this file.")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto to this file.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Leave out what was before, e.g. 2026-01-31T12:00.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Leave out what was after.")] = None,
    follow: Annotated[bool, typer.Option(help="Tell windows while logs are still written.")] = False,
    host_cores: Annotated[
        int | None, typer.Option(help="Cores of a host, where slots share them; forecasts heed it.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory that may be used, e.g. 4GB; default: what is free.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which activity, worker, operator and channel is on the critical path."""
    from penstock.diagnose.command import diagnose as perform

    seconds = _window(window)
    code = perform(
        path,
        seconds,
        _moment("--from", start),
        _moment("--to", end),
        outputs=_outputs(html, perfetto),
        host_cores=host_cores,
        memory=size_in_bytes(memory),
        follow=follow,
        as_json=as_json,
        console=terminal(),
        print_json=print_json,
        tell=progress,
    )
    raise typer.Exit(code)


def _outputs(html: Path | None, perfetto: Path | None) -> dict[Path, Callable[[list[Diagnosis]], bytes]]:
    """The files to write, each with what makes its content."""
    outputs: dict[Path, Callable[[list[Diagnosis]], bytes]] = {}
    if html is not None:
        # plotly takes half a second to import: only pages need it
        from penstock.view.diagnosis_page import diagnosis_page

        outputs[html] = lambda found: diagnosis_page(found).encode()
    if perfetto is not None:
        from penstock.diagnose.perfetto import perfetto_file

        outputs[perfetto] = perfetto_file
    return outputs


def _window(text: str | None) -> float | None:
    from penstock.durations import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"--window: {error}") from error


def size_in_bytes(text: str | None) -> int | None:
    """A size as people write it; kB are thousands, KiB are 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text or "", re.IGNORECASE)
    if text is None:
        return None
    if match is None or not 0 < float(match[1]) < math.inf:
        raise BadInput(f"--memory: {text!r} is not a size such as 512MB, 4GB or 4GiB")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** (" kmgt".index(match[2].lower()) if match[2] else 0))


def _moment(option: str, text: str | None) -> float | None:
    """Seconds since the epoch, or a time as ISO 8601 writes it."""
    if text is None:
        return None
    try:
        seconds = float(text)
        if math.isfinite(seconds):
            return seconds
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(
            f"{option}: {text!r} is neither seconds since the epoch nor a time like 2026-01-31T12:00"
        ) from None
