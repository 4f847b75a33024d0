"""`penstock diagnose PATH`: finds the logs or traces, diagnoses each, and writes what was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from penstock.diagnose.density import Span
from penstock.diagnose.diagnosis import Diagnosis, diagnose_log, diagnose_trace
from penstock.diagnose.event_log import read_application
from penstock.diagnose.log_files import LogFiles, find_logs, is_empty
from penstock.diagnose.terminal_report import print_diagnosis, print_overview, print_windows
from penstock.errors import BadInput

FOLLOW_WINDOW_SECONDS = 10.0
LOOK_EVERY_SECONDS = 0.5

Output = Callable[[list[Diagnosis]], bytes]
Tell = Callable[[str], None]


def diagnose(  # noqa: PLR0913 - one argument for every option of the command
    path: Path,
    window_seconds: float | None = None,
    start: float | None = None,
    end: float | None = None,
    *,
    outputs: Mapping[Path, Output] | None = None,
    host_cores: int | None = None,
    memory: int | None = None,
    follow: bool = False,
    as_json: bool = False,
    console: Console | None = None,
    print_json: Callable[[dict[str, Any]], None] | None = None,
    tell: Tell = lambda _: None,
) -> int:
    """Diagnoses what is at `path`; `start` and `end` are seconds since the epoch. Gives the exit code.

    `outputs` are the files to write, each with what makes its content; `tell` hears how long work gets on.
    """
    console = console or Console(emoji=False)
    span = Span(_microseconds(window_seconds), _microseconds(start), _microseconds(end), host_cores, memory)
    if span.window_us is not None and span.window_us < 1:
        raise BadInput(f"--window must be longer than nothing, not {window_seconds} s")
    if start is not None and end is not None and start >= end:
        raise BadInput("--from must be before --to")
    if host_cores is not None and host_cores < 1:
        raise BadInput(f"--host-cores must be at least 1, not {host_cores}")
    if follow:
        _follow(path, window_seconds or FOLLOW_WINDOW_SECONDS, Console(stderr=True) if as_json else console)
    found = _diagnoses(path, span, tell, drawn=bool(outputs))
    for file, output in (outputs or {}).items():
        _write(file, output(found))
    if as_json:
        (print_json or _printed_by(console))(_as_plain_data(found))
    else:
        _show(found, console)
    return 0


def _in_progress(path: Path) -> bool:
    return not _is_trace(path) and any(log.in_progress for log in find_logs(path))


def _follow(path: Path, window_seconds: float, console: Console) -> None:
    """Tells each window of the logs that are still written, until none is, or until the user has enough."""
    _wait_for_a_log(path, console)
    if not _in_progress(path):
        return
    # Spark is started only for this
    from penstock.diagnose.spark_follow import follow

    console.print("Following; windows are told as soon as they are over. Ctrl-C ends this.", style="dim")
    try:
        follow(path, window_seconds, lambda rows: print_windows(rows, console))
    except KeyboardInterrupt:
        console.print("No longer following; this is what was written so far.", style="dim")


def _wait_for_a_log(path: Path, console: Console) -> None:
    """One may want to follow an application before it begins to write."""
    if not _is_trace(path) and is_empty(path):
        console.print(f"Waiting for an event log in {path}. Ctrl-C ends this.", style="dim", markup=False)
        while is_empty(path):
            time.sleep(LOOK_EVERY_SECONDS)


def _show(found: list[Diagnosis], console: Console) -> None:
    if len(found) > 1:
        print_overview(found, console)
    for diagnosis in found:
        print_diagnosis(diagnosis, console)


def _printed_by(console: Console) -> Callable[[dict[str, Any]], None]:
    # as it is: printed for people, a name that holds :100: would become a picture
    return lambda answer: console.out(orjson.dumps(answer).decode(), highlight=False)


def _as_plain_data(found: list[Diagnosis]) -> dict[str, Any]:
    """The object of one application, or of several together."""
    answers = [diagnosis.to_json() for diagnosis in found]
    if len(answers) == 1:
        return answers[0]
    windows = [window for answer in answers for window in answer["windows"]]
    warnings = [warning for answer in answers for warning in answer["warnings"]]
    return {"windows": windows, "warnings": warnings, "applications": answers}


def _is_trace(path: Path) -> bool:
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def _diagnoses(path: Path, span: Span, tell: Tell, drawn: bool) -> list[Diagnosis]:
    """All that is at the path; of many logs, those that cannot be diagnosed become warnings of the first."""
    if _is_trace(path):
        with _naming(path):
            return [diagnose_trace(path, span)]
    found: list[Diagnosis] = []
    refused: list[BadInput] = []
    for log in find_logs(path):
        try:
            with _naming(log.path):
                one = _log_diagnosis(log, span, tell)
            # the graphs of many applications would fill the memory for nothing
            found.append(one if drawn else replace(one, drawing=None))
        except BadInput as error:
            refused.append(error)
    if not found:
        raise refused[0]
    first = replace(found[0], warnings=[*found[0].warnings, *(str(error) for error in refused)])
    return [first, *found[1:]]


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Says in a refusal which file it is about."""
    try:
        yield
    except BadInput as error:
        raise error if str(path) in str(error) else BadInput(f"{path}: {error}") from error


def _log_diagnosis(files: LogFiles, span: Span, tell: Tell) -> Diagnosis:
    tell(f"{files.path}: reading {files.size / 1e6:.1f} MB")
    log = read_application(files)
    tell(f"{files.path}: analysing {len(log.tasks)} tasks")
    return diagnose_log(log, span)


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror})") from error
