"""The report of `penstock bench NAME`: rows, summary, claims, published figures, notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from penstock_lab.claims.claim import Claim, Judged, Verdict, to_plain
from penstock_lab.experiments.measurement import Measurement, Row


@dataclass(frozen=True, slots=True)
class BenchReport:
    """One experiment and the claims over its rows, as a table and as JSON."""

    bench: str
    measured: Measurement
    judged: Judged

    @property
    def notes(self) -> list[str]:
        """Cases that failed, and what the reader should know about the rest."""
        return [*self.measured.failures, *self.measured.notes, *self.judged.notes]

    def to_json(self) -> Row:
        """Return the object of the benchmark contract; NaN and infinity become null."""
        return {
            "bench": self.bench,
            "summary": to_plain(self.measured.summary),
            "results": to_plain(self.measured.rows),
            "targets": [
                {"name": one.name, "target": one.target, "measured": to_plain(one.measured), "met": one.met}
                for one in self.judged.targets
            ],
            "published": to_plain(self.judged.published),
            "notes": self.notes,
        }

    def print_table(self, console: Console) -> None:
        """Print rows, summary, claims, published figures and notes for a reader."""
        for table in _list_rows(self.bench, self.measured.rows, console.width):
            console.print(table)
        if self.measured.summary:
            console.print(_list_pairs("summary", self.measured.summary))
        for title, claims in _group_claims(self.judged.claims).items():
            if claims:
                console.print(_list_claims(title, claims))
        if self.judged.published:
            console.print(_list_pairs("published", self.judged.published))
        for note in self.notes:
            console.print(f"note: {note}", highlight=False, markup=False)


def _group_claims(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Group claims by what they are held against; illustrations come last."""
    shown = [claim for claim in claims if claim.verdict is Verdict.ILLUSTRATION]
    return {
        "targets": [claim for claim in claims if claim.target],
        "beside published figures": [claim for claim in claims if not claim.target and claim not in shown],
        "illustrations": shown,
    }


BORDERS = 3
LONGEST_NAME = 30
"""A longer text describes a row and does not name it."""


def _list_rows(title: str, rows: list[Row], width: int) -> Iterator[Table]:
    """Yield as many tables as the width needs for all columns; each begins with the names of its rows."""
    if not rows:
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    words = [column for column in columns if all(isinstance(row.get(column), str) for row in rows)]
    names = [column for column in words if _measure_width(column, rows) <= LONGEST_NAME] or columns[:1]
    figures = [column for column in columns if column not in names]
    room = width - sum(_measure_width(column, rows) for column in names) - 1
    for number, group in enumerate(_pack_columns(figures, rows, room)):
        table = Table(title=title if number == 0 else None)
        for column in (*names, *group):
            least = max(1, min(_measure_width(column, rows), room) - BORDERS)
            side: JustifyMethod = "left" if column in words else "right"
            table.add_column(column.replace("_", " "), justify=side, min_width=least)
        for row in rows:
            table.add_row(*(_format_value(row.get(column)) for column in (*names, *group)))
        yield table


def _pack_columns(columns: list[str], rows: list[Row], room: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    left = room
    for column in columns:
        left -= _measure_width(column, rows)
        if left < 0 and groups[-1]:
            groups.append([])
            left = room - _measure_width(column, rows)
        groups[-1].append(column)
    return groups


def _measure_width(column: str, rows: list[Row]) -> int:
    """Return the width of a column with its borders, when its heading breaks between words."""
    texts = [*column.split("_"), *(_format_value(row.get(column)) for row in rows)]
    return max(len(text) for text in texts) + BORDERS


def _list_pairs(title: str, pairs: Mapping[str, Any]) -> Table:
    table = Table(title=title, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in pairs.items():
        table.add_row(name, _format_value(value))
    return table


def _list_claims(title: str, claims: Sequence[Claim]) -> Table:
    table = Table(title=title)
    for column in ("claim", "target" if claims[0].target else "published", "measured", "verdict"):
        table.add_column(column)
    for claim in claims:
        verdict = ("met" if claim.met else "NOT MET") if claim.target else claim.verdict.value
        beside = claim.target or _format_value(claim.published)
        table.add_row(*map(escape, (claim.name, beside, _format_value(claim.measured), verdict)))
    return table


def _format_value(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
