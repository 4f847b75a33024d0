"""Print the windows of a diagnosis on the terminal, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.diagnose.causes import CAUSES, share_by_cause
from penstock.diagnose.path.summary import Summary
from penstock.view import figures

MOST_WINDOWS = 60
"""More lines than this nobody reads; the page and JSON have all windows."""


def print_window_table(windows: Sequence[Summary], console: Console) -> None:
    """Print what each window waited for; a single window is the whole, which is printed already."""
    if len(windows) < 2:
        return
    table = Table(title=f"{len(windows)} windows", title_justify="left")
    for column in ("from", "to", "largest cause", "worker", "operator"):
        table.add_column(column, overflow="fold")
    for window in windows[:MOST_WINDOWS]:
        table.add_row(
            figures.clock(window.start_us / 1e6),
            figures.clock(window.end_us / 1e6),
            _describe({CAUSES[key].noun: share for key, share in share_by_cause(window).items()}),
            _describe(window.worker),
            _describe(window.operator),
        )
    console.print(table)
    if len(windows) > MOST_WINDOWS:
        left = len(windows) - MOST_WINDOWS
        console.print(f"  and {left} more; --html and --json have all of them")


def _describe(shares: Mapping[str, float]) -> str:
    name, share = max(shares.items(), key=lambda one: one[1], default=("", 0.0))
    return escape(f"{name} {share:.0%}") if share > 0 else "nothing"
