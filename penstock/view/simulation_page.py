"""The pages of a simulation and of a replay: timelines above one another, figures, every change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
import plotly.graph_objects as go

from penstock.dataflow.metrics import Floats
from penstock.journal.records import ObservationRecord
from penstock.simulate.comparison import Comparison
from penstock.simulate.replay import Moment, Replay, write_change
from penstock.simulate.run import Run
from penstock.simulate.virtual import BACKLOG, LATENCY, QUEUED, READ
from penstock.view import figures
from penstock.view.charts import (
    add_line,
    add_markers,
    dress_timelines,
    escape_hover,
    make_timelines,
    place_legend,
)
from penstock.view.colours import BLUE, COLOURS, GREY, ORANGE
from penstock.view.frame import Figure, draw_chart, render_page
from penstock.view.simulation_terminal import EXPLAINED, HEADINGS, list_changes, list_rows

MOST_POINTS = 1500
"""Points of one line; a day has 86,400 seconds, and a screen two thousand dots."""
DONE = "really held"
SHADE = "rgba(217, 130, 43, 0.10)"


def render_comparison_page(comparison: Comparison) -> str:
    """Render all timelines on one axis, the figures, and every action."""
    lasts = figures.seconds(comparison.experiment.seconds)
    return render_page(
        "simulation.html.j2",
        title=comparison.experiment.name,
        subtitle=f"simulated, {lasts}, seed {comparison.seed}",
        figures=[
            (run.policy, f"{one.steps} step{'s' * (one.steps != 1)}", "") for run, one in comparison.runs
        ],
        chart=draw_chart(draw_comparison(comparison), "timeline"),
        headings=HEADINGS,
        rows=list_rows(comparison),
        explained=EXPLAINED,
        actions=[(run.policy, _list_actions(run)) for run, _ in comparison.runs],
    )


def render_replay_page(found: Replay, observations: Sequence[ObservationRecord]) -> str:
    """Render what happened, and what the policy would have held and changed."""
    first, last = _utc(found.moments[0].at), _utc(found.moments[-1].at)
    return render_page(
        "replay.html.j2",
        title=found.application,
        subtitle=f"replayed with {found.policy}, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC",
        figures=_replay_figures(found),
        chart=draw_chart(draw_replay(found, observations), "timeline"),
        policy=found.policy,
        remarks=_remarks(found),
        rows=list_changes(found),
    )


def draw_comparison(comparison: Comparison) -> go.Figure:
    """Draw rate, waiting records, latency and slots above one another; a colour for each policy."""
    figure = make_timelines(("Rate", "Waiting records, outside and inside", "Latency", "Slots"))
    experiment = comparison.experiment
    slots, scaled = experiment.slots, experiment.scaled
    oracle = (comparison.oracle[:, scaled] @ slots[scaled]).astype(np.float64)
    _add_thinned(figure, 1, "offered", experiment.offered.sum(axis=1), color=GREY, dash="dot")
    _add_thinned(figure, 4, "oracle", oracle, color=GREY, dash="dot", shape="hv")
    for number, (run, _) in enumerate(comparison.runs):
        colour = COLOURS[number % len(COLOURS)]
        _add_thinned(figure, 1, run.policy, run.seen[:, READ], color=colour)
        _add_thinned(figure, 2, run.policy, run.seen[:, BACKLOG] + run.seen[:, QUEUED], color=colour)
        _add_thinned(figure, 3, run.policy, run.seen[:, LATENCY], color=colour)
        held = (run.held[:, scaled] @ slots[scaled]).astype(np.float64)
        _add_thinned(figure, 4, run.policy, held, color=colour, shape="hv")
        _mark_actions(figure, run, colour, held)
    if experiment.settings.goals.latency_target is not None:
        target = np.full(experiment.seconds, experiment.settings.goals.latency_target)
        _add_thinned(figure, 3, "target", target, color=GREY, dash="dash")
    _dress(figure, "slots", "minutes")
    return figure


def thin_line(values: Floats, mean: bool = False) -> tuple[Floats, Floats]:
    """Return seconds and values of a line of limited length: the largest of each stretch, or its mean."""
    width = -(-len(values) // MOST_POINTS)
    starts = np.arange(0, len(values), width)
    if mean:
        lengths = np.diff(np.append(starts, len(values)))
        return starts.astype(np.float64), np.add.reduceat(values, starts) / lengths
    return starts.astype(np.float64), np.maximum.reduceat(values, starts)


def draw_replay(found: Replay, observations: Sequence[ObservationRecord]) -> go.Figure:
    """Draw the load and what it met, then the size that was held beside the one that would have been."""
    figure = make_timelines(("Rate", "Backlog", "Latency", "Size"))
    at = [_utc(record.at) for record in observations]

    def add(row: int, name: str, key: str, join: Callable[..., float], shown: bool, **look: Any) -> None:
        known = [[getattr(query, key) for query in record.queries] for record in observations]
        values = [[value for value in some if value is not None] for some in known]
        joined = [join(some) if some else None for some in values]
        _add_line(figure, row, name, at, joined, {"showlegend": shown}, **look)

    add(1, "offered", "offered_per_second", sum, True, color=GREY, dash="dot")
    add(1, "read", "observed_per_second", sum, True, color=BLUE)
    add(2, "backlog", "backlog_records", sum, False, color=BLUE)
    add(3, "latency", "latency_seconds", max, False, color=BLUE)
    moments = [_utc(moment.at) for moment in found.moments]
    held = [_total(moment.held) for moment in found.moments]
    would = [_total(moment.would_hold) for moment in found.moments]
    _add_line(figure, 4, DONE, moments, held, {}, color=BLUE, shape="hv")
    named, dashed = f"{found.policy} would hold", {"color": ORANGE, "dash": "dash", "shape": "hv"}
    _add_line(figure, 4, named, moments, would, {}, **dashed)
    _mark_changes(figure, DONE, BLUE, [(m, m.held, m.done) for m in found.moments])
    _mark_changes(figure, found.policy, ORANGE, [(m, m.would_hold, m.decided) for m in found.moments])
    for observed, group in groupby(found.moments, key=lambda moment: moment.observed):
        span = [_utc(moment.at) for moment in group]
        if not observed:
            figure.add_vrect(x0=span[0], x1=span[-1], fillcolor=SHADE, line_width=0, row=4, col=1)
    _dress(figure, "executors or instances", "time, UTC")
    return figure


def _dress(figure: go.Figure, size: str, time: str) -> None:
    layout = {"height": 1000, "margin": {"l": 70, "r": 24, "t": 60, "b": 44}, "legend": place_legend(1.03)}
    dress_timelines(figure, ("records per second", "records", "seconds", size), time, **layout)


def _add_thinned(figure: go.Figure, row: int, name: str, values: Floats, **line: Any) -> None:
    # peaks of what waits must not get lost, but the peaks of a random rate would look like a higher rate
    at, shown = thin_line(values, mean=row == 1)
    legend = {"legendgroup": name, "showlegend": row == 4 or name in ("offered", "target")}
    _add_line(figure, row, name, (at / 60).tolist(), shown.tolist(), legend, **line)


def _add_line(
    figure: go.Figure,
    row: int,
    name: str,
    at: Sequence[Any],
    values: Iterable[float | None],
    legend: Mapping[str, Any],
    **look: Any,
) -> None:
    """Add a line; six digits are more than a screen shows, and a third of the page's size."""
    rounded = [None if value is None else float(f"{value:.6g}") for value in values]
    add_line(figure, row, name, at, rounded, "%{y:,.4g}", legend, **look)


def _mark(
    figure: go.Figure, colour: str, at: Sequence[Any], sizes: Sequence[float], told: Sequence[str], group: str
) -> None:
    """Mark changes of size, each with what it changed."""
    marker = {"color": colour, "size": 9, "line": {"color": "#ffffff", "width": 1}}
    escaped = [escape_hover(text) for text in told]
    add_markers(figure, 4, at, sizes, escaped, marker, legendgroup=group, showlegend=False)


def _mark_actions(figure: go.Figure, run: Run, colour: str, held: Floats) -> None:
    at = [action.intended_at for action in run.actions]
    sizes = [float(held[min(int(second), len(held) - 1)]) for second in at]
    told = [f"{run.policy}: {write_change(action.before, action.planned)}" for action in run.actions]
    if at:
        _mark(figure, colour, [second / 60 for second in at], sizes, told, run.policy)


def _mark_changes(
    figure: go.Figure,
    name: str,
    colour: str,
    changes: Iterable[tuple[Moment, Mapping[str, int], Mapping[str, int] | None]],
) -> None:
    marked = [(moment, before, after) for moment, before, after in changes if after is not None]
    at = [_utc(moment.at) for moment, _, _ in marked]
    told = [f"{name}: {write_change(before, after)}" for _, before, after in marked]
    _mark(figure, colour, at, [_total(before) for _, before, _ in marked], told, "")


def _replay_figures(found: Replay) -> list[Figure]:
    share = found.unobserved / len(found.moments)
    return [
        ("changes made", str(found.steps_done), ""),
        (f"changes by {found.policy}", str(found.steps), ""),
        ("windows", str(len(found.moments)), ""),
        ("of them at another size", f"{share:.0%}", ""),
    ]


def _remarks(found: Replay) -> list[str]:
    beware = f"Beware: {found.warning}. The shaded spans of the size are those." if found.warning else ""
    older = f"{found.unreadable} observations of an older version were left out." if found.unreadable else ""
    return [text for text in (beware, older) if text]


def _list_actions(run: Run) -> list[tuple[str, str, str]]:
    return [
        (
            figures.stopwatch(one.intended_at),
            write_change(one.before, one.planned),
            "; ".join((one.reason, *one.notes)),
        )
        for one in run.actions
    ]


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _total(sizes: Mapping[str, int]) -> float:
    return float(sum(sizes.values()))
