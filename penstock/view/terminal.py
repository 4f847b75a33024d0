"""Tables for a terminal: a cell is wrapped, never cut; entries that do not fit become blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.view.figures import plain

GAP = 2
LEAST_LAST = 32
"""Cells that the last column, which holds sentences, has at least in a table."""
INDENT = 4


def make_table(
    names: Sequence[str], rows: Iterable[Sequence[RenderableType]] = (), no_wrap: bool = False, **more: Any
) -> Table:
    """Make a table without lines; a name that begins with `>` heads a column of figures, which never wrap."""
    table = Table(box=None, header_style="dim", **more)
    for name in names:
        of_figures = name.startswith(">")
        justify: Literal["left", "right"] = "right" if of_figures else "left"
        table.add_column(name.removeprefix(">"), justify=justify, no_wrap=no_wrap or of_figures)
    for row in rows:
        table.add_row(*row)
    return table


def make_panel(title: str, facts: Mapping[str, str], said: str, *more: Text) -> Panel:
    """Make a box around a few facts, with a title above them and something quiet below."""
    told = [Text.assemble((f"{label} ", "dim"), (value, "bold")) for label, value in facts.items()]
    line, above, below = Text("   ").join([*told, *more]), Text(title, style="bold"), Text(said, style="dim")
    return Panel(line, title=above, title_align="left", subtitle=below, subtitle_align="right")


@dataclass(frozen=True, slots=True)
class Entries:
    """Named cells of some entries; the first `heading` of them identify an entry and head its block."""

    names: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    heading: int
    title: str = ""
    otherwise: str = ""
    """A sentence in place of the entries, where there are none."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows:
            yield Text(self.otherwise)
            return
        if self.title:
            yield Text(self.title, style="italic")
        if self.table_width() <= options.max_width:
            yield self._make_table()
        else:
            for row in self._texts:
                yield from self._make_block(row)

    @property
    def _texts(self) -> list[tuple[Text, ...]]:
        # names and reasons are text, whatever they hold
        return [tuple(one if isinstance(one, Text) else Text(plain(one)) for one in row) for row in self.rows]

    def table_width(self) -> int:
        """Return the cells that a table needs which wraps nothing but its last column."""
        columns = [[row[number] for row in self._texts] for number in range(len(self.names))]
        *widths, last = (
            max(len(name), *(line.cell_len for cell in column for line in cell.split("\n", allow_blank=True)))
            for name, column in zip(self.names, columns, strict=True)
        )
        return sum(widths) + GAP * len(widths) + min(last, LEAST_LAST)

    def _make_table(self) -> Table:
        table = Table(box=None, header_style="dim", padding=(0, GAP, 0, 0), pad_edge=False)
        for name in self.names[:-1]:
            table.add_column(name, no_wrap=True)
        table.add_column(self.names[-1], overflow="fold")
        for row in self._texts:
            table.add_row(*row)
        return table

    def _make_block(self, row: tuple[Text, ...]) -> RenderResult:
        heading = Text(" " * GAP).join(row[: self.heading])
        heading.stylize("bold")
        yield heading
        cells = Table.grid(padding=(0, GAP, 0, 0))
        cells.add_column(style="dim", no_wrap=True)
        cells.add_column(overflow="fold")
        for name, cell in zip(self.names[self.heading :], row[self.heading :], strict=True):
            cells.add_row(name, cell)
        yield Padding(cells, (0, 0, 0, INDENT), expand=False)
