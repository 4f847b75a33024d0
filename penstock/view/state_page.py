"""The page of where state lies: figures, a heat map of bins, and what each executor holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.view import figures
from penstock.view.charts import DASHED, LOOK, escape_hover
from penstock.view.colours import BLUE
from penstock.view.frame import Figure, draw_chart, render_page
from penstock.view.state_terminal import (
    AMOUNTS,
    group_by_worker,
    list_amounts,
    list_partitions,
    warn_of_few_bins,
)

HEADINGS = ("executor", "host", *AMOUNTS, "partitions")
MEASURES = (("load", "load_seconds"), ("bytes", "bytes"), ("rows", "rows"))
HEAT = [[0.0, "#fde8cf"], [0.35, "#f5a94e"], [0.7, "#d9542b"], [1.0, "#8c1d18"]]
ROW_PIXELS, BETWEEN_PIXELS, TOP_PIXELS, BOTTOM_PIXELS = 34, 104, 48, 56

Plain = Mapping[str, Any]


def render_state_page(state: Plain, application: str, name: str) -> str:
    """Render the page of one answer to `state`."""
    title, workers = name or application, state["workers"]
    return render_page(
        "state.html.j2",
        title=title,
        subtitle=f"{application} · where its state lies",
        tab=f"State of {title}",
        charts=bool(state["queries"]),
        obstacle=state.get("obstacle"),
        figures=_summarise(state),
        chart=draw_chart(draw_heat_map(state), "heat-map") if state["queries"] else "",
        measures=measure_bins(state),
        headings=HEADINGS,
        queries=[
            {
                "name": query.get("name") or query["query"],
                "batch": query["batch"],
                "warnings": warn_of_few_bins(query, workers),
                "rows": [
                    (one["worker"], one["host"], *list_amounts(one), list_partitions(one["bins"]))
                    for one in group_by_worker(query, workers)
                ],
            }
            for query in state["queries"]
        ],
    )


def draw_heat_map(state: Plain) -> go.Figure:
    """Draw a heat map for each operator with state, and beside it the load per slot of every executor."""
    shown = list(_operators(state))
    heights = [max(2, len(held)) * ROW_PIXELS for _, held in shown]
    inside = sum(heights) + BETWEEN_PIXELS * (len(shown) - 1)
    figure = make_subplots(
        rows=len(shown),
        cols=2,
        column_widths=[0.76, 0.24],
        row_heights=heights,
        horizontal_spacing=0.03,
        vertical_spacing=BETWEEN_PIXELS / inside if len(shown) > 1 else 0.0,
        shared_yaxes=True,
        subplot_titles=[title for heading, _ in shown for title in (heading, "load a slot")],
    )
    for title in figure.layout.annotations:
        title.update(font={"size": 14}, text=f"<b>{title.text}</b>")
    for row, (_, held) in enumerate(shown, start=1):
        labels = [_label(one) for one in held]
        _add_bins(figure, row, held, labels)
        _add_loads(figure, row, held, labels)
    figure.update_layout(
        **LOOK,
        height=inside + TOP_PIXELS + BOTTOM_PIXELS,
        margin={"l": 110, "r": 90, "t": TOP_PIXELS, "b": BOTTOM_PIXELS},
        coloraxis={"colorscale": HEAT, "colorbar": {"thickness": 12, "outlinewidth": 0}},
    )
    figure.update_xaxes(showgrid=False, ticks="outside", ticklen=3, title_font={"size": 12}, title_standoff=6)
    figure.update_yaxes(showgrid=False, zeroline=False)
    return figure


def measure_bins(state: Plain) -> list[dict[str, Any]]:
    """Return for each measure its name and the cells of every heat map: the page changes between them."""
    shown = [held for _, held in _operators(state)]
    return [
        {"name": name, "cells": [_cells(held, _partitions(held), key) for held in shown]}
        for name, key in MEASURES
    ]


def _operators(state: Plain) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield for each operator of each query a title and what the workers hold of it."""
    for query in state["queries"]:
        imbalance = figures.share(query.get("imbalance"))
        for operator in sorted({one["operator"] for one in query["bins"]}):
            bins = [one for one in query["bins"] if one["operator"] == operator]
            title = f"{query.get('name') or query['query']}, operator {operator} · imbalance {imbalance}"
            yield escape_hover(title), group_by_worker({**query, "bins": bins}, state["workers"])


def _label(held: Plain) -> str:
    return escape_hover(f"{held['worker']} ({held['host']})")


def _partitions(held: Sequence[Plain]) -> list[int]:
    return sorted(one["partition"] for of_worker in held for one in of_worker["bins"])


def _add_bins(figure: go.Figure, row: int, held: Sequence[Plain], labels: list[str]) -> None:
    partitions = _partitions(held)
    figure.add_trace(
        go.Heatmap(
            x=[str(partition) for partition in partitions],
            y=labels,
            z=_cells(held, partitions, "load_seconds"),
            hovertext=[[_hover(one, partition) for partition in partitions] for one in held],
            hovertemplate="%{hovertext}<extra></extra>",
            hoverongaps=False,
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
        ),
        row=row,
        col=1,
    )
    figure.update_xaxes(type="category", title_text="partition", row=row, col=1)
    figure.update_yaxes(type="category", autorange="reversed", row=row, col=1)


def _add_loads(figure: go.Figure, row: int, held: Sequence[Plain], labels: list[str]) -> None:
    """Add the load per slot of each executor, with the mean as a line."""
    loads = [one["load_per_slot"] or 0.0 for one in held]
    shown = [
        f"{len(one['bins'])} bins, {figures.seconds(load)} a slot"
        for one, load in zip(held, loads, strict=True)
    ]
    bars = go.Bar(
        x=loads,
        y=labels,
        orientation="h",
        marker={"color": BLUE},
        hovertext=shown,
        width=0.62,
        hovertemplate="%{y}: %{hovertext}<extra></extra>",
        showlegend=False,
    )
    figure.add_trace(bars, row=row, col=2)
    figure.update_xaxes(title_text="slot-seconds a batch", rangemode="tozero", row=row, col=2)
    slots = sum(one["slots"] or 0 for one in held)
    if slots:
        mean = sum(one["load_seconds"] for one in held if one["slots"]) / slots
        figure.add_vline(x=mean, line=DASHED, row=row, col=2)


def _cells(held: Sequence[Plain], partitions: Sequence[int], key: str) -> list[list[float | None]]:
    """Return a value where the bin is, and nothing where it is not."""
    rows = []
    for of_worker in held:
        here = {one["partition"]: float(one[key]) for one in of_worker["bins"]}
        rows.append([here.get(partition) for partition in partitions])
    return rows


def _hover(held: Plain, partition: int) -> str:
    for one in held["bins"]:
        if one["partition"] == partition:
            size = f"{figures.count(one['rows'])} rows, {figures.size(one['bytes'])}"
            load = f"{figures.seconds(one['load_seconds'])} a batch"
            return f"<b>bin {one['operator']}/{partition}</b> at {_label(held)}<br>{size}<br>{load}"
    return ""


def _summarise(state: Plain) -> list[Figure]:
    bins = [one for query in state["queries"] for one in query["bins"]]
    worst = max((query["imbalance"] for query in state["queries"]), default=None)
    slots = sum(worker["slots"] for worker in state["workers"])
    return [
        ("queries", figures.count(len(state["queries"])), "with state"),
        ("bins", figures.count(len(bins)), f"on {len(state['workers'])} executors"),
        ("rows", figures.count(sum(one["rows"] for one in bins)), "in all"),
        ("state", figures.size(sum(one["bytes"] for one in bins)), "in all"),
        ("slots", figures.count(slots), "in all"),
        ("imbalance", figures.share(worst), "fullest executor over the mean"),
    ]
