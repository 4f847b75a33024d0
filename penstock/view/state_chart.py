"""The heat map of bins: which executor has which, how heavy each is, and the load that adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.view import figures
from penstock.view.charts import BLUE, GREY, escape_hover
from penstock.view.state import held_by

MEASURES = (("load", "load_seconds"), ("bytes", "bytes"), ("rows", "rows"))
COLOURS = [[0.0, "#fde8cf"], [0.35, "#f5a94e"], [0.7, "#d9542b"], [1.0, "#8c1d18"]]
ROW_PIXELS, BETWEEN_PIXELS, TOP_PIXELS, BOTTOM_PIXELS = 34, 104, 48, 56

Plain = Mapping[str, Any]


def heat_map(state: Plain) -> go.Figure:
    """One heat map for each operator with state, beside it the load per slot of every executor."""
    rows = [
        (query, operator)
        for query in state["queries"]
        for operator in sorted({one["operator"] for one in query["bins"]})
    ]
    heights = [_executors(query, operator, state["workers"]) * ROW_PIXELS for query, operator in rows]
    inside = sum(heights) + BETWEEN_PIXELS * (len(rows) - 1)
    figure = make_subplots(
        rows=len(rows),
        cols=2,
        column_widths=[0.76, 0.24],
        row_heights=heights,
        horizontal_spacing=0.03,
        vertical_spacing=BETWEEN_PIXELS / inside if len(rows) > 1 else 0.0,
        shared_yaxes=True,
        subplot_titles=[
            title for query, operator in rows for title in (_title(query, operator), "load a slot")
        ],
    )
    for number, (query, operator) in enumerate(rows, start=1):
        _add(figure, number, query, operator, state["workers"])
    _dress(figure, inside + TOP_PIXELS + BOTTOM_PIXELS)
    return figure


def _title(query: Plain, operator: int) -> str:
    imbalance = figures.share(query.get("imbalance"))
    return escape_hover(f"{query.get('name') or query['query']}, operator {operator} · imbalance {imbalance}")


def _of_operator(query: Plain, operator: int) -> dict[str, Any]:
    return {**query, "bins": [one for one in query["bins"] if one["operator"] == operator]}


def _executors(query: Plain, operator: int, workers: Sequence[Plain]) -> int:
    return max(2, len(held_by(_of_operator(query, operator), workers)))


def _label(held: Plain) -> str:
    return escape_hover(f"{held['worker']} ({held['host']})")


def _add(figure: go.Figure, row: int, query: Plain, operator: int, workers: Sequence[Plain]) -> None:
    held = held_by(_of_operator(query, operator), workers)
    partitions = sorted(one["partition"] for of_worker in held for one in of_worker["bins"])
    labels = [_label(one) for one in held]
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
    _add_loads(figure, row, held, labels)
    figure.update_xaxes(type="category", title_text="partition", row=row, col=1)
    figure.update_yaxes(type="category", autorange="reversed", row=row, col=1)
    figure.update_xaxes(title_text="slot-seconds a batch", rangemode="tozero", row=row, col=2)


def _add_loads(figure: go.Figure, row: int, held: Sequence[Plain], labels: list[str]) -> None:
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
    slots = sum(one["slots"] or 0 for one in held)
    if slots:
        mean = sum(one["load_seconds"] for one in held if one["slots"]) / slots
        figure.add_vline(x=mean, line={"color": GREY, "dash": "dash", "width": 1.5}, row=row, col=2)


def _cells(held: Sequence[Plain], partitions: Sequence[int], key: str) -> list[list[float | None]]:
    """A value where the bin is, and nothing where it is not."""
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


def measures(state: Plain) -> list[dict[str, Any]]:
    """For each measure its name and the cells of every heat map, so that the page can change between them."""
    found = []
    for name, key in MEASURES:
        cells = []
        for query in state["queries"]:
            for operator in sorted({one["operator"] for one in query["bins"]}):
                held = held_by(_of_operator(query, operator), state["workers"])
                partitions = sorted(one["partition"] for of_worker in held for one in of_worker["bins"])
                cells.append(_cells(held, partitions, key))
        found.append({"name": name, "cells": cells})
    return found


def _dress(figure: go.Figure, height: int) -> None:
    figure.update_layout(
        height=height,
        margin={"l": 110, "r": 90, "t": TOP_PIXELS, "b": BOTTOM_PIXELS},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 13},
        coloraxis={"colorscale": COLOURS, "colorbar": {"thickness": 12, "outlinewidth": 0}},
        template="none",
    )
    figure.update_xaxes(showgrid=False, ticks="outside", ticklen=3, title_font={"size": 12}, title_standoff=6)
    figure.update_yaxes(showgrid=False, zeroline=False)
    for annotation in figure.layout.annotations:
        annotation.update(font={"size": 14}, text=f"<b>{annotation.text}</b>")
