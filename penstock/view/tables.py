"""Cells of tables that sort: the text to read, the value to sort by, and where it links to."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.view import figures


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; with a value it is a number and stands to the right, with a bar it is drawn as a share."""

    text: str
    value: float | None = None
    link: str = ""
    bar: float | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, with the name by which others link to it."""

    cells: list[Cell]
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class SortedTable:
    """A table whose headings sort it."""

    headings: list[str]
    rows: list[Row]
    note: str = ""


def show_text(text: str, link: str = "", mark: str = "") -> Cell:
    """Return the cell of a text."""
    return Cell(text, link=link, mark=mark)


def show_count(value: float) -> Cell:
    """Return the cell of a whole number."""
    return Cell(figures.count(value), value)


def show_seconds(value: float | None) -> Cell:
    """Return the cell of a length of time."""
    return Cell(figures.seconds(value), -1.0 if value is None else value)


def show_size(value: float) -> Cell:
    """Return the cell of an amount of data; nothing is left empty."""
    return Cell(figures.size(value) if value else "", value)


def show_share(value: float | None) -> Cell:
    """Return the cell of a share, with a bar."""
    text = "" if value is None else f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
    return Cell(text, -1.0 if value is None else value, bar=value)
