"""What a benchmark found: rows, a summary, targets that are judged here and not by hand."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from penstock.errors import BadInput

Row = dict[str, Any]

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_BOUND = re.compile(r"^(<=|>=|==|<|>)\s*(\S+)$")


@dataclass(frozen=True, slots=True)
class Target:
    """One promise: `target` is a comparison and a number, such as "<= 2" or ">= 0.99"."""

    name: str
    target: str
    measured: float | None

    def __post_init__(self) -> None:
        _bound(self.target)

    @property
    def met(self) -> bool:
        """Whether the measured value keeps the promise; what was not measured does not."""
        if self.measured is None or math.isnan(self.measured):
            return False
        compare, bound = _bound(self.target)
        return compare(self.measured, bound)

    def to_json(self) -> Row:
        """The four fields of the benchmark contract."""
        return {
            "name": self.name,
            "target": self.target,
            "measured": _plain(self.measured),
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All that `penstock bench NAME` says, as a table and as JSON."""

    bench: str
    summary: dict[str, float]
    results: list[Row]
    targets: list[Target]
    published: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What could not be measured, and what the reader should know about the rest."""

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return all(target.met for target in self.targets)

    def to_json(self) -> Row:
        """One JSON-ready object; NaN and infinity become null, since JSON has neither."""
        return {
            "bench": self.bench,
            "summary": _plain(self.summary),
            "results": _plain(self.results),
            "targets": [target.to_json() for target in self.targets],
            "published": _plain(self.published),
            "notes": list(self.notes),
        }

    def print_table(self, console: Console) -> None:
        """Print rows, summary, targets, published figures and notes for a reader."""
        if self.results:
            for table in _rows_tables(self.bench, self.results, console.width):
                console.print(table)
        if self.summary:
            console.print(_pairs_table("summary", self.summary))
        if self.targets:
            console.print(_targets_table(self.targets))
        if self.published:
            console.print(_pairs_table("published", self.published))
        for note in self.notes:
            console.print(f"note: {note}", highlight=False, markup=False)


def _bound(target: str) -> tuple[Callable[[float, float], bool], float]:
    match = _BOUND.match(target)
    if match is None:
        raise BadInput(f'the target {target!r} is not a comparison and a number, such as "<= 2"')
    try:
        return _COMPARISONS[match.group(1)], float(match.group(2))
    except ValueError:
        raise BadInput(f"the target {target!r} compares with {match.group(2)!r}, not a number") from None


def _plain(value: Any) -> Any:
    """The value with plain JSON types; numpy scalars know `.item()`."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


BORDERS = 3
LONGEST_NAME = 30
"""What is longer tells the course of a row, and does not name it."""


def _rows_tables(title: str, rows: list[Row], width: int) -> Iterator[Table]:
    """All columns, in as many tables as the width asks for; each begins with the names of its rows."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    words = [column for column in columns if all(isinstance(row.get(column), str) for row in rows)]
    names = [column for column in words if _width(column, rows) <= LONGEST_NAME] or columns[:1]
    figures = [column for column in columns if column not in names]
    room = width - sum(_width(column, rows) for column in names) - 1
    for number, group in enumerate(_packed(figures, rows, room)):
        table = Table(title=title if number == 0 else None)
        for column in (*names, *group):
            least = max(1, min(_width(column, rows), room) - BORDERS)
            side: JustifyMethod = "left" if column in words else "right"
            table.add_column(column.replace("_", " "), justify=side, min_width=least)
        for row in rows:
            table.add_row(*(_text(row.get(column)) for column in (*names, *group)))
        yield table


def _packed(columns: list[str], rows: list[Row], room: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    left = room
    for column in columns:
        left -= _width(column, rows)
        if left < 0 and groups[-1]:
            groups.append([])
            left = room - _width(column, rows)
        groups[-1].append(column)
    return groups


def _width(column: str, rows: list[Row]) -> int:
    """What a column needs with its borders, when its heading breaks between words."""
    texts = [*column.split("_"), *(_text(row.get(column)) for row in rows)]
    return max(len(text) for text in texts) + BORDERS


def _pairs_table(title: str, pairs: Mapping[str, Any]) -> Table:
    table = Table(title=title, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in pairs.items():
        table.add_row(name, _text(value))
    return table


def _targets_table(targets: list[Target]) -> Table:
    table = Table(title="targets")
    for column in ("target", "asked", "measured", "met"):
        table.add_column(column)
    for target in targets:
        table.add_row(target.name, target.target, _text(target.measured), "yes" if target.met else "NO")
    return table


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
