"""A pipeline in the terminal, as a table and as a tree, and as a picture in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from penstock.pipeline.topics import Layout
from penstock.view.figures import ABSENT, share
from penstock.view.frame import render_template
from penstock.view.terminal import make_table

Figures = Mapping[str, Mapping[str, Any]]
"""Function → its figures as the status has them; empty for a pipeline that does not run."""
Places = Mapping[str, tuple[int, int]]
"""Function or topic → left and top of its box."""

GAP, ROW, LEAST_WIDTH, HEIGHT, MARGIN, LANE = 44, 84, 150, 58, 24, 14
CHARACTER = 7.3
"""Pixels of a letter of a name, rather too many than too few."""
LONG_BATCH_SECONDS = 120.0
"""A batch that takes longer may be one call that hangs, and is told of."""
RUNNING = (">instances", ">in/s", ">served/s", ">backlog", ">busy", ">dead")
"""The columns of functions that run."""


def render_functions(layout: Layout, figures: Figures, title: str, narrow: bool = False) -> Table:
    """Show one line a function, in the order in which records pass them; figures only where it runs.

    A narrow table leaves the topics of functions that run to the drawing, so that figures stay whole.
    """
    runs = any(one.get("parallelism") for one in figures.values())
    with_topics = not (runs and narrow)
    names = ("function", *(["reads → writes"] if with_topics else []), *(RUNNING if runs else []))
    table = make_table(names, title=title, caption=list_complaints(figures), caption_style="red")
    table.columns[0].no_wrap = True
    for name in layout.functions:
        joined = f"{', '.join(layout.reads[name])} → {layout.writes[name] or '∅'}"
        cells = (*((joined,) if with_topics else ()), *(_cells(figures[name]) if runs else ()))
        table.add_row("  " * layout.depth(name) + name, *cells)
    return table


def render_graph(layout: Layout, figures: Figures, title: str) -> Tree:
    """Draw the graph from the outside topics on; where ways meet, a function is drawn once, then named."""
    root, drawn = Tree(Text(title, style="bold"), guide_style="dim"), set[str]()
    for topic in layout.sources:
        _add_topic(root, layout, figures, topic, drawn)
    return root


def describe_last_decision(seen: Mapping[str, Any]) -> str | None:
    """Say why the controller changed, waits or leaves all as it is, as the status has it."""
    decisions = seen.get("decisions")
    if not decisions:
        return None
    last = decisions[-1]
    ago = max(0.0, seen["now"] - last["at"])
    return f"{seen['policy']}, {ago:.0f} s ago: {last['kind']}: {last['reason']}"


def list_complaints(figures: Figures) -> Text | None:
    """Say what has failed, what was broken off and is being started again, what may hang, what is fused."""
    said = [f"{name} has failed: {one['error']}" for name, one in figures.items() if one.get("error")]
    said += [
        f"{name} is started again: {one['trouble']}"
        for name, one in figures.items()
        if one.get("trouble") and not one.get("error")
    ]
    said += [
        f"{name} has been at one batch for {one['at_batch_seconds']:.0f} s"
        for name, one in figures.items()
        if (one.get("at_batch_seconds") or 0.0) > LONG_BATCH_SECONDS
    ]
    said += [
        f"{name} is fused with {', '.join(one['fused_with'])}: they share their instances"
        for name, one in figures.items()
        if one.get("fused_with")
    ]
    return Text("\n".join(said)) if said else None


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    size = str(one.get("parallelism") or ABSENT)
    if one.get("parallelism"):
        limits = f"of {one.get('least', 1)}–{one.get('most', '')}"
        size = f"{size} {'pinned' if one.get('pinned') else limits}"
    arrived, served, waiting = (
        write_number(one.get(key)) for key in ("arrival_per_second", "observed_per_second", "backlog_records")
    )
    busy, dead = share(one.get("busy_ratio")), write_number(one.get("dead_letters"))
    return size, arrived, served, waiting, busy, dead


def _add_topic(branch: Tree, layout: Layout, figures: Figures, topic: str, drawn: set[str]) -> None:
    name, *said = [text for _, text in describe_topic(layout, figures, topic) if text]
    below = branch.add(_line(name, said, "", "cyan"))
    if topic in drawn:
        return
    drawn.add(topic)
    for function in layout.readers(topic):
        _add_function(below, layout, figures, function, drawn)


def _add_function(branch: Tree, layout: Layout, figures: Figures, name: str, drawn: set[str]) -> None:
    heading, *said = [text for _, text in describe_function(name, figures.get(name, {}))]
    if name in drawn:
        branch.add(_line(name, ["as above"], "▸ ", "dim"))
        return
    drawn.add(name)
    below = branch.add(_line(heading, said, "▸ ", "red" if figures.get(name, {}).get("error") else "bold"))
    writes = layout.writes[name]
    if writes is not None:
        _add_topic(below, layout, figures, writes, drawn)


def _line(name: str, said: list[str], mark: str, style: str) -> Text:
    return Text.assemble((mark, "dim"), (name, style), ("  " + ", ".join(said) if said else "", ""))


def draw_svg(layout: Layout, figures: Figures, title: str) -> str:
    """Draw topics and functions from left to right; the drawing stands alone."""
    return render_template("pipeline.svg.j2", title=title, **place_drawing(layout, figures))


def place_drawing(layout: Layout, figures: Figures) -> dict[str, Any]:
    """Return the boxes and arrows of a drawing, and its size."""
    headings = [_heading(name, figures.get(name, {})) for name in layout.functions] + _topics(layout)
    # room for the longest name, with its instances
    width = max(LEAST_WIDTH, round(24 + CHARACTER * max(len(heading) for heading in headings)))
    places = _place_boxes(layout, width)
    # with other columns between them: such lines pass below all boxes, not behind them
    lanes = [(a, b) for a, b in list_pairs(layout) if places[b][0] - places[a][0] > width + GAP]
    return {
        "width": max(x for x, _ in places.values()) + width + MARGIN,
        "height": max(y for _, y in places.values()) + HEIGHT + MARGIN + LANE * len(lanes),
        "box_width": width,
        "box_height": HEIGHT,
        "paths": list(_paths(layout, places, width, lanes)),
        "boxes": [_box(layout, figures, name, place) for name, place in places.items()],
    }


def describe_function(name: str, one: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of a function, each with its style: name and instances, then figures where it runs."""
    heading = _heading(name, one)
    if not one.get("parallelism"):
        return [("n", heading)]
    served = f"{write_number(one.get('observed_per_second'))}/s, busy {share(one.get('busy_ratio'))}"
    dead = f", {write_number(one['dead_letters'])} dead" if one.get("dead_letters") else ""
    waiting = "failed" if one.get("error") else f"backlog {write_number(one.get('backlog_records'))}{dead}"
    return [("n", heading), ("s", served), ("s", waiting)]


def describe_topic(layout: Layout, figures: Figures, topic: str) -> list[tuple[str, str]]:
    """Return the lines of a topic: its name, and what is written to it, or comes from outside."""
    rate = find_topic_rate(layout, figures, topic)
    return [("n", topic), ("s", "" if rate is None else f"{write_number(rate)}/s")]


def find_topic_rate(layout: Layout, figures: Figures, topic: str) -> float | None:
    """Return the records a second that come to a topic, from functions or from outside; None if unknown."""
    written = [figures.get(one, {}).get("written_per_second") for one in layout.writers(topic)]
    # what comes to a reader of several topics does not tell what comes from each
    alone = [one for one in layout.readers(topic) if layout.reads[one] == (topic,)]
    read = [figures.get(one, {}).get("arrival_per_second") for one in alone]
    rates = [float(rate) for rate in (written or read) if rate is not None]
    return sum(rates) if written and rates else max(rates, default=None)


def write_number(value: Any) -> str:
    """Return a number in as few letters as a box has room for."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ABSENT
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _heading(name: str, one: Mapping[str, Any]) -> str:
    size = f" ×{one['parallelism']}" if one.get("parallelism") else ""
    return f"{name}{size}{' pinned' if one.get('pinned') else ''}"


def _place_boxes(layout: Layout, width: int) -> Places:
    """Place functions in the odd columns and topics in the even ones, each column filled from the top."""
    columns: dict[str, int] = {}
    for name in layout.functions:
        columns[name] = 2 * layout.depth(name) + 1
    for topic in _topics(layout):
        readers = [columns[one] - 1 for one in layout.readers(topic)]
        writers = [columns[one] + 1 for one in layout.writers(topic)]
        columns[topic] = max(writers) if writers else min(readers)
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for name, column in columns.items():
        row = rows.get(column, 0)
        rows[column] = row + 1
        places[name] = (MARGIN + column * (width + GAP), MARGIN + row * ROW)
    return places


def _topics(layout: Layout) -> list[str]:
    read = [topic for name in layout.functions for topic in layout.reads[name]]
    written = [layout.writes[name] for name in layout.functions]
    return list(dict.fromkeys([*read, *(topic for topic in written if topic)]))


def list_pairs(layout: Layout) -> list[tuple[str, str]]:
    """List all arrows: a topic with each of its readers, then a function with the topic that it writes."""
    pairs = [(topic, name) for name in layout.functions for topic in layout.reads[name]]
    return pairs + [(name, topic) for name in layout.functions if (topic := layout.writes[name])]


def _paths(layout: Layout, places: Places, width: int, lanes: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the curve of each arrow."""
    below = max(y for _, y in places.values()) + HEIGHT + LANE
    for pair in list_pairs(layout):
        (x, y), (end, to_y) = places[pair[0]], places[pair[1]]
        start, y, to_y = x + width, y + HEIGHT // 2, to_y + HEIGHT // 2
        if pair in lanes:
            lane, half = below + LANE * lanes.index(pair), GAP // 2
            down = f"M{start} {y} C{start + half} {y} {start} {lane} {start + half} {lane}"
            yield f"{down} H{end - half} C{end} {lane} {end - half} {to_y} {end} {to_y}"
        else:
            middle = (start + end) // 2
            yield f"M{start} {y} C{middle} {y} {middle} {to_y} {end} {to_y}"


def _box(layout: Layout, figures: Figures, name: str, place: tuple[int, int]) -> dict[str, Any]:
    is_function, one = name in layout.reads, figures.get(name, {})
    return {
        "x": place[0],
        "y": place[1],
        "kind": ("w" if one.get("error") else "f") if is_function else "t",
        "corner": 6 if is_function else HEIGHT // 2,
        "error": one.get("error"),
        "texts": describe_function(name, one) if is_function else describe_topic(layout, figures, name),
    }
