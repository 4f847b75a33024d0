"""Simulations and replays in the terminal: policies side by side, many seeds, another policy's changes."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.simulate.bound import NAME
from penstock.simulate.comparison import SHOWN, Comparison, ManySeeds
from penstock.simulate.measures import Measures
from penstock.simulate.replay import Replay, write_change
from penstock.simulate.run import Run
from penstock.view import figures
from penstock.view.terminal import make_table

MOST_SHOWN = 20
"""Actions of one policy that the terminal shows; JSON and the page have all."""
HEADINGS = (
    *("policy", "steps", "flips", "over", "under", "short", "late"),
    *("p50", "p95", "p99", "backlog"),
)
EXPLAINED = (
    "over, under: slot-seconds above and below the oracle, as a share of the oracle's; short: time in which "
    "some operator could take less than it was offered; late: time over the latency target; p50 to p99: "
    "latency of all seconds, or of single records where those are followed; backlog: the largest before the "
    "sources; causal-bound: what a controller could hold that knows all but the future, the best predictor "
    "taken in hindsight"
)


def render_comparison(comparison: Comparison) -> RenderableType:
    """Show the figures of all policies, and below what each of them did and why."""
    parts: list[RenderableType] = [_figures(comparison)]
    for run, _ in comparison.runs:
        parts += ["", _actions(run)]
        parts += [Text(f"{run.policy}: {error} (×{count})", "yellow") for error, count in run.errors.items()]
    return Group(*parts, "", Text(EXPLAINED, "dim"))


def list_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """List a row for each policy, and the causal bound as the last one."""
    bound = comparison.bound
    measured = [(run.policy, measures) for run, measures in comparison.runs]
    measured += [(NAME, bound.measures)] if bound else []
    return [(name, *list_measures(measures)) for name, measures in measured]


def list_measures(measures: Measures) -> tuple[str, ...]:
    """Return a row under `HEADINGS`, without the policy."""
    oracle = measures.oracle_slot_seconds
    return (
        str(measures.steps),
        str(measures.flips),
        f"{measures.over_slot_seconds / oracle:.1%}",
        f"{measures.under_slot_seconds / oracle:.1%}",
        figures.seconds(measures.under_seconds),
        figures.seconds(measures.over_latency_target_seconds),
        figures.seconds(measures.p50_latency_seconds),
        figures.seconds(measures.p95_latency_seconds),
        figures.seconds(measures.p99_latency_seconds),
        figures.count(measures.largest_backlog_records),
    )


def render_seeds(found: ManySeeds) -> Table:
    """Show a row for each policy: median, 95th percentile and largest of its runs."""
    title = f"{found.scenario}, {len(found.seeds)} seeds: median / p95 / largest"
    table = make_table(("policy", *(f">{heading}" for heading in SHOWN.values())), title=title)
    for policy in found.runs:
        spread = found.spread(policy)
        cells = [
            " / ".join(f"{value:,.3g}" for value in spread[name].values())
            if name in spread
            else figures.ABSENT
            for name in SHOWN
        ]
        table.add_row(policy, *cells)
    return table


def render_replay(found: Replay) -> RenderableType:
    """Show every change that the policy would have made beside those that were made."""
    title = f"{found.application}, {found.policy}: {len(found.moments)} windows"
    names = ("at, UTC", f"{found.policy} decides", "was done", "why")
    table = make_table(names, [tuple(map(Text, cells)) for cells in list_changes(found)], title=title)
    noun = "change" if found.steps == 1 else "changes"
    steps = f"{found.steps} {noun} by {found.policy}, {found.steps_done} made in reality"
    parts: list[RenderableType] = [table, "", Text(steps)]
    if found.unreadable:
        parts.append(Text(f"{found.unreadable} observations of an older version were left out", "yellow"))
    if found.warning:
        parts.append(Text(f"Beware: {found.warning}", "yellow"))
    return Group(*parts)


def list_changes(found: Replay) -> list[tuple[str, ...]]:
    """List the moments in which the policy changes something, or something was changed."""
    rows: list[tuple[str, ...]] = []
    for one in found.moments:
        if one.decided is not None or one.done is not None:
            at = datetime.fromtimestamp(one.at, UTC).strftime("%m-%d %H:%M:%S")
            # what rests on what was not observed is in doubt
            doubt = "" if one.observed or one.decided is None else " (?)"
            decided, done = write_change(one.would_hold, one.decided), write_change(one.held, one.done)
            rows.append((at, decided + doubt, done, one.reason))
    return rows


def _figures(comparison: Comparison) -> Table:
    lasts = figures.seconds(comparison.experiment.seconds)
    title = f"{comparison.experiment.name}, {lasts}, seed {comparison.seed}"
    # eleven columns fit into 80 characters if they stand close
    table = Table(title=title, box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        # where they do not fit, half a figure would be a wrong one
        table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
    for cells in list_rows(comparison):
        table.add_row(*cells)
    return table


def _actions(run: Run) -> RenderableType:
    if not run.actions:
        last = run.decisions[-1].verdict.reason if run.decisions else "nothing was decided"
        return Text(f"{run.policy}: no action; in the end: {last}")
    rows = [
        (figures.stopwatch(one.intended_at), Text(write_change(one.before, one.planned)), Text(one.reason))
        for one in run.actions[:MOST_SHOWN]
    ]
    table = make_table(("at", run.policy, "why"), rows)
    left = len(run.actions) - MOST_SHOWN
    if left > 0:
        table.add_row("", Text(f"and {left} more"), Text("--json and --html have all of them"))
    return table
