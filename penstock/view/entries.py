"""Entries as a table where the terminal is wide enough, else as blocks: a cell is wrapped, never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2
LEAST_LAST = 32
"""Cells that the last column, which holds sentences, has at least in a table."""
INDENT = 4


@dataclass(frozen=True, slots=True)
class Entries:
    """Named cells of some entries; the first `heading` of them identify an entry and head its block."""

    names: tuple[str, ...]
    rows: Sequence[tuple[Text, ...]]
    heading: int
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="italic")
        if self.table_width() <= options.max_width:
            yield self._table()
        else:
            for row in self.rows:
                yield from self._block(row)

    def table_width(self) -> int:
        """Cells that a table needs which wraps nothing but its last column."""
        *widths, last = (
            max(len(name), *(_longest_line(row[number]) for row in self.rows))
            for number, name in enumerate(self.names)
        )
        return sum(widths) + GAP * len(widths) + min(last, LEAST_LAST)

    def _table(self) -> Table:
        table = Table(box=None, header_style="dim", padding=(0, GAP, 0, 0), pad_edge=False)
        for name in self.names[:-1]:
            table.add_column(name, no_wrap=True)
        table.add_column(self.names[-1], overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def _block(self, row: tuple[Text, ...]) -> RenderResult:
        heading = Text(" " * GAP).join(row[: self.heading])
        heading.stylize("bold")
        yield heading
        cells = Table.grid(padding=(0, GAP, 0, 0))
        cells.add_column(style="dim", no_wrap=True)
        cells.add_column(overflow="fold")
        for name, cell in zip(self.names[self.heading :], row[self.heading :], strict=True):
            cells.add_row(name, cell)
        yield Padding(cells, (0, 0, 0, INDENT), expand=False)


def _longest_line(cell: Text) -> int:
    return max((line.cell_len for line in cell.split("\n", allow_blank=True)), default=0)
