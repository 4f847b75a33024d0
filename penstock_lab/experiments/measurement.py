"""The extent of an experiment, the rows that it returns, and figures that several experiments take alike."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.settings.model import Settings, load_settings

Row = dict[str, Any]
Progress = Callable[[str], None]
MOST_LINES, MOST_CHARACTERS = 3, 500
"""Characters and lines kept of an error; one from Java has its cause in the second line."""
_OF_A_STACK = ("at ", "...", "File ", "Traceback")


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of an experiment that is run."""

    quick: bool = False
    """Fewer or shorter runs, and rougher figures."""
    report: bool = False
    """Only the cases that the report over all claims needs: it runs every experiment."""
    day: Path | None = None
    """A recorded day, for the experiment that follows one; it is made where none is given."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The rows of one experiment, and what its claims and charts need beside them."""

    rows: list[Row]
    summary: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """For the reader: how the figures were measured."""
    failures: list[str] = field(default_factory=list)
    """Cases that could not be measured, with the reason."""
    found: Any = None
    """The runs themselves, for claims and charts that need more than rows."""
    quick: bool = False


def shorten_error(text: str) -> str:
    """Return an error on one line, without the stacks of Java and Python."""
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith(_OF_A_STACK)]
    short = " ".join(told[:MOST_LINES])
    return short if len(short) <= MOST_CHARACTERS else f"{short[:MOST_CHARACTERS]}…"


PLACES = frozenset({"journal", "runtime_directory", "control_socket"})
"""Settings that say where files are."""


def tell_settings(given: Settings | Mapping[str, object]) -> str:
    """Tell the settings of a run that differ from the defaults: a row has them as `settings`."""
    chosen = given if isinstance(given, Settings) else load_settings(environment={}, arguments=given)
    changed = find_changes(chosen, load_settings(environment={}))
    return ", ".join(f"{name}={value}" for name, value in changed.items() if name not in PLACES)


def find_changes(given: Settings, usual: Settings) -> dict[str, object]:
    """Return the settings that are not the usual ones."""
    before = usual.flat()
    return {name: value for name, value in given.flat().items() if value != before[name]}


def tell_row(row: Row) -> str:
    """Tell a row on one line, for progress."""
    return ", ".join(f"{key} {value}" for key, value in row.items())


def summarise_rows(rows: Sequence[Row], *keys: str) -> dict[str, float]:
    """Return these figures of each system, as far as they were measured."""
    return {f"{row['system']}_{key}": row[key] for row in rows for key in keys if row[key] is not None}


def fit_growth(seconds: Mapping[int, float]) -> float:
    """Return the slope of log seconds over log size; 1 is linear."""
    return float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def read_peak_memory() -> int:
    """Return the most bytes that this process has held in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
