"""Print the streaming view on the terminal: each query with its slow and its newest batches."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.diagnose.streaming import OTHER, PHASES, BatchView, QueryView
from penstock.view import figures

MOST_SLOW, NEWEST = 10, 5


def print_streaming(queries: Sequence[QueryView], console: Console) -> None:
    """Print the queries of an application, if it has any."""
    for query in queries:
        shown = choose_batches(query)
        console.print(escape(describe_query(query)), style="bold", highlight=False)
        console.print(_tabulate_times(query, shown))
        if any(batch.state_rows or batch.late_rows for batch in shown):
            console.print(_tabulate_state(shown))
        for batch in shown:
            if batch.slow_because:
                console.print(escape(f"  batch {batch.number} was slow: {batch.slow_because}"))
        if len(query.slow) > MOST_SLOW:
            console.print(f"  and {len(query.slow) - MOST_SLOW} more were slow; --json has all batches")


def describe_query(query: QueryView) -> str:
    """Return one sentence about a run of a query."""
    every = "one after the other" if query.trigger_seconds is None else "one every"
    interval = "" if query.trigger_seconds is None else f" {figures.seconds(query.trigger_seconds)}"
    batches = f"{len(query.batches)} batch{'es' if len(query.batches) != 1 else ''}"
    said = f"query {query.name}: {batches}, {every}{interval}, median {figures.seconds(query.median_seconds)}"
    if query.cold_seconds is not None:
        said += f"; the first was cold and took {figures.seconds(query.cold_seconds)}"
    return f"{said}; {len(query.slow)} slow"


def choose_batches(query: QueryView) -> list[BatchView]:
    """Return the longest slow batches and the newest ones, in order."""
    slow = sorted(query.slow, key=lambda batch: -batch.seconds)[:MOST_SLOW]
    numbers = {id(batch) for batch in [*slow, *query.batches[-NEWEST:]]}
    return [batch for batch in query.batches if id(batch) in numbers]


def _tabulate_times(query: QueryView, batches: Sequence[BatchView]) -> Table:
    table = Table(title="slow and newest batches", title_justify="left")
    columns = ("batch", "at", "took", "of trigger", "rows in", "rows out", "in", "processed", *PHASES, OTHER)
    for column in columns:
        table.add_column(column, justify="right")
    for batch in batches:
        of_trigger = None if query.trigger_seconds is None else batch.seconds / query.trigger_seconds
        table.add_row(
            f"{batch.number}{' cold' if batch.is_cold else ' slow' if batch.slow_because else ''}",
            figures.clock(batch.start_ms / 1000),
            figures.seconds(batch.seconds),
            figures.share(of_trigger),
            figures.count(batch.rows_in),
            figures.count(batch.rows_out),
            figures.rate(batch.offered_per_second),
            figures.rate(batch.processed_per_second),
            *(figures.seconds(length) for length in batch.phases.values()),
        )
    return table


def _tabulate_state(batches: Sequence[BatchView]) -> Table:
    table = Table(title="state; times are summed over tasks", title_justify="left")
    for column in ("batch", "watermark delay", "late rows", "rows", "memory", "update", "removal", "commit"):
        table.add_column(column, justify="right")
    table.add_column("parts of the commit", overflow="fold")
    for batch in batches:
        table.add_row(
            str(batch.number),
            figures.seconds(batch.watermark_delay_seconds),
            figures.count(batch.late_rows),
            figures.count(batch.state_rows),
            figures.size(batch.state_bytes),
            *(figures.seconds(length) for length in batch.state_seconds.values()),
            ", ".join(f"{name} {figures.seconds(length)}" for name, length in batch.commit_parts.items()),
        )
    return table
