"""The pipeline as a picture: functions and topics with rates, backlog and parallelism, in SVG and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from rich.table import Table
from rich.text import Text

from penstock.pipeline.layout import Layout

Figures = Mapping[str, Mapping[str, Any]]
"""Function → its figures as the status has them; empty for a pipeline that does not run."""

GAP, ROW, LEAST_WIDTH, HEIGHT, MARGIN, LANE = 44, 84, 150, 58, 24, 14
LONG_BATCH_SECONDS = 120.0
"""A batch that takes longer may be one call that hangs, and is told of."""
CHARACTER = 7.3
"""Pixels of a letter of a name, rather too many than too few."""
_STYLE = (
    "text{font:12px sans-serif;fill:#1d2733}.n{font-weight:bold}.s{font-size:10px;fill:#51606f}"
    ".f{fill:#e8f0fe;stroke:#3b6fd4}.w{fill:#fdeaea;stroke:#c43d3d}.t{fill:#f3f4f6;stroke:#8a94a0}"
    "path{fill:none;stroke:#8a94a0;marker-end:url(#a)}"
)
_ARROW = (
    '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" style="fill:#8a94a0;stroke:none"/></marker>'
)


def table(layout: Layout, figures: Figures, title: str, narrow: bool = False) -> Table:
    """One line a function, in the order in which records pass them; figures only where it runs.

    A narrow one leaves the topics of functions that run to the drawing, so that figures stay whole.
    """
    shown = Table(title=title, box=None, header_style="dim", caption=complaints(figures), caption_style="red")
    runs = any(one.get("parallelism") for one in figures.values())
    with_topics = not (runs and narrow)
    shown.add_column("function", no_wrap=True)
    if with_topics:
        shown.add_column("reads → writes")
    for column in ("instances", "in/s", "served/s", "backlog", "busy", "dead") if runs else ():
        shown.add_column(column, justify="right", no_wrap=True)
    for name in layout.functions:
        joined = f"{', '.join(layout.reads[name])} → {layout.writes[name] or '∅'}"
        cells = (*((joined,) if with_topics else ()), *(_cells(figures[name]) if runs else ()))
        shown.add_row("  " * layout.depth(name) + name, *cells)
    return shown


def last_decision(seen: Mapping[str, Any]) -> str | None:
    """What the controller said last, as the status has it: why it changed, waits or leaves all as it is."""
    decisions = seen.get("decisions")
    if not decisions:
        return None
    last = decisions[-1]
    ago = max(0.0, seen["now"] - last["at"])
    return f"{seen['policy']}, {ago:.0f} s ago: {last['kind']}: {last['reason']}"


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        _instances(one),
        _number(one.get("arrival_per_second")),
        _number(one.get("observed_per_second")),
        _number(one.get("backlog_records")),
        _share(one.get("busy_ratio")),
        _number(one.get("dead_letters")),
    )


def complaints(figures: Figures) -> Text | None:
    """What has failed, what was broken off and is being started again, and what may hang."""
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
    return Text("\n".join(said)) if said else None


def svg(layout: Layout, figures: Figures, title: str) -> str:
    """A drawing that stands alone: topics and functions from left to right."""
    width = _width(layout, figures)
    places = _places(layout, width)
    lanes = list(_lanes(layout, places, width))
    right = max(x for x, _ in places.values()) + width + MARGIN
    low = max(y for _, y in places.values()) + HEIGHT + MARGIN + LANE * len(lanes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {low}" '
        f'width="{right}" height="{low}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style><defs>{_ARROW}</defs>",
        *_lines(layout, places, width, lanes),
        *_boxes(layout, figures, places, width),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _width(layout: Layout, figures: Figures) -> int:
    """Wide enough for the longest name, with its instances."""
    headings = [_heading(name, figures.get(name, {})) for name in layout.functions] + _topics(layout)
    return max(LEAST_WIDTH, round(24 + CHARACTER * max(len(heading) for heading in headings)))


def _places(layout: Layout, width: int) -> dict[str, tuple[int, int]]:
    """Functions in the odd columns and topics in the even ones, each column filled from the top."""
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


def _joined(layout: Layout) -> list[tuple[str, str]]:
    pairs = [(topic, name) for name in layout.functions for topic in layout.reads[name]]
    return pairs + [(name, topic) for name in layout.functions if (topic := layout.writes[name])]


def _lanes(layout: Layout, places: Mapping[str, tuple[int, int]], width: int) -> Iterator[tuple[str, str]]:
    """Pairs with other columns between them: their lines pass below all boxes, or they would hide behind."""
    for origin, target in _joined(layout):
        if places[target][0] - places[origin][0] > width + GAP:
            yield origin, target


def _lines(
    layout: Layout, places: Mapping[str, tuple[int, int]], width: int, lanes: list[tuple[str, str]]
) -> Iterator[str]:
    below = max(y for _, y in places.values()) + HEIGHT + LANE
    for pair in _joined(layout):
        (x, y), (end, to_y) = places[pair[0]], places[pair[1]]
        start, y, to_y = x + width, y + HEIGHT // 2, to_y + HEIGHT // 2
        if pair in lanes:
            lane, half = below + LANE * lanes.index(pair), GAP // 2
            down = f"M{start} {y} C{start + half} {y} {start} {lane} {start + half} {lane}"
            yield f'<path d="{down} H{end - half} C{end} {lane} {end - half} {to_y} {end} {to_y}"/>'
        else:
            middle = (start + end) // 2
            yield f'<path d="M{start} {y} C{middle} {y} {middle} {to_y} {end} {to_y}"/>'


def _boxes(
    layout: Layout, figures: Figures, places: Mapping[str, tuple[int, int]], width: int
) -> Iterator[str]:
    for name, (x, y) in places.items():
        is_function = name in layout.reads
        one = figures.get(name, {})
        kind = ("w" if one.get("error") else "f") if is_function else "t"
        corner = 6 if is_function else HEIGHT // 2
        said = f"<title>{escape(str(one['error']))}</title>" if one.get("error") else ""
        box = f'class="{kind}" x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="{corner}"'
        yield f"<rect {box}>{said}</rect>"
        texts = function_texts(name, one) if is_function else topic_texts(layout, figures, name)
        for number, (style, text) in enumerate(texts):
            yield f'<text class="{style}" x="{x + 12}" y="{y + 19 + 15 * number}">{escape(text)}</text>'


def _heading(name: str, one: Mapping[str, Any]) -> str:
    size = f" ×{one['parallelism']}" if one.get("parallelism") else ""
    return f"{name}{size}{' pinned' if one.get('pinned') else ''}"


def function_texts(name: str, one: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The lines of a function, each with its style: name and instances, then figures where it runs."""
    heading = _heading(name, one)
    if not one.get("parallelism"):
        return [("n", heading)]
    served = f"{_number(one.get('observed_per_second'))}/s, busy {_share(one.get('busy_ratio'))}"
    dead = f", {_number(one['dead_letters'])} dead" if one.get("dead_letters") else ""
    waiting = "failed" if one.get("error") else f"backlog {_number(one.get('backlog_records'))}{dead}"
    return [("n", heading), ("s", served), ("s", waiting)]


def topic_texts(layout: Layout, figures: Figures, topic: str) -> list[tuple[str, str]]:
    """The lines of a topic: its name, and what is written to it, or comes from outside."""
    written = [figures.get(one, {}).get("written_per_second") for one in layout.writers(topic)]
    # what comes to a reader of several topics does not tell what comes from each
    alone = [one for one in layout.readers(topic) if layout.reads[one] == (topic,)]
    read = [figures.get(one, {}).get("arrival_per_second") for one in alone]
    rates = [rate for rate in (written or read) if rate is not None]
    total = sum(rates) if written else max(rates, default=None)
    return [("n", topic), ("s", f"{_number(total)}/s" if rates else "")]


def _instances(one: Mapping[str, Any]) -> str:
    if not one.get("parallelism"):
        return "-"
    if one.get("pinned"):
        return f"{one['parallelism']} pinned"
    return f"{one['parallelism']} of {one.get('least', 1)}–{one.get('most', '')}"


def _number(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _share(value: Any) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.0%}"
