"""The pipeline as a picture: functions and topics with rates, backlog and parallelism, in SVG and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from rich.table import Table

from penstock.pipeline.layout import Layout

Figures = Mapping[str, Mapping[str, Any]]
"""Function → its figures as the status has them; empty for a pipeline that does not run."""

COLUMN, ROW, WIDTH, HEIGHT, MARGIN = 190, 84, 150, 58, 24
_STYLE = (
    "text{font:12px sans-serif;fill:#1d2733}.n{font-weight:bold}.s{font-size:10px;fill:#51606f}"
    ".f{fill:#e8f0fe;stroke:#3b6fd4}.w{fill:#fdeaea;stroke:#c43d3d}.t{fill:#f3f4f6;stroke:#8a94a0}"
    "path{fill:none;stroke:#8a94a0;marker-end:url(#a)}"
)
_ARROW = (
    '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" style="fill:#8a94a0;stroke:none"/></marker>'
)


def table(layout: Layout, figures: Figures, title: str) -> Table:
    """One line a function, in the order in which records pass them."""
    shown = Table(title=title, box=None, header_style="dim")
    shown.add_column("function")
    shown.add_column("reads → writes")
    for column in ("instances", "arriving/s", "served/s", "backlog", "busy", "dead"):
        shown.add_column(column, justify="right")
    for name in layout.functions:
        one = figures.get(name, {})
        joined = f"{', '.join(layout.reads[name])} → {layout.writes[name] or '∅'}"
        shown.add_row(
            "  " * layout.depth(name) + name,
            joined,
            _instances(one),
            _number(one.get("arrival_per_second")),
            _number(one.get("observed_per_second")),
            _number(one.get("backlog_records")),
            _share(one.get("busy_ratio")),
            _number(one.get("dead_letters")),
        )
    return shown


def svg(layout: Layout, figures: Figures, title: str) -> str:
    """A drawing that stands alone: topics and functions from left to right."""
    places = _places(layout)
    right = max(x for x, _ in places.values()) + WIDTH + MARGIN
    low = max(y for _, y in places.values()) + HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {low}" '
        f'width="{right}" height="{low}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style><defs>{_ARROW}</defs>",
        *_lines(layout, places),
        *_boxes(layout, figures, places),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _places(layout: Layout) -> dict[str, tuple[int, int]]:
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
        places[name] = (MARGIN + column * COLUMN, MARGIN + row * ROW)
    return places


def _topics(layout: Layout) -> list[str]:
    read = [topic for name in layout.functions for topic in layout.reads[name]]
    written = [layout.writes[name] for name in layout.functions]
    return list(dict.fromkeys([*read, *(topic for topic in written if topic)]))


def _lines(layout: Layout, places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    pairs = [(topic, name) for name in layout.functions for topic in layout.reads[name]]
    pairs += [(name, topic) for name in layout.functions if (topic := layout.writes[name])]
    for origin, target in pairs:
        (x, y), (to_x, to_y) = places[origin], places[target]
        start, end = x + WIDTH, to_x
        middle = (start + end) // 2
        y, to_y = y + HEIGHT // 2, to_y + HEIGHT // 2
        yield f'<path d="M{start} {y} C{middle} {y} {middle} {to_y} {end} {to_y}"/>'


def _boxes(layout: Layout, figures: Figures, places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for name, (x, y) in places.items():
        is_function = name in layout.reads
        one = figures.get(name, {})
        kind = ("w" if one.get("error") else "f") if is_function else "t"
        corner = 6 if is_function else HEIGHT // 2
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="{corner}"/>'
        texts = _function_texts(name, one) if is_function else _topic_texts(layout, figures, name)
        for number, (style, text) in enumerate(texts):
            yield f'<text class="{style}" x="{x + 12}" y="{y + 19 + 15 * number}">{escape(text)}</text>'


def _function_texts(name: str, one: Mapping[str, Any]) -> list[tuple[str, str]]:
    heading = f"{name} ×{one['parallelism']}" if one.get("parallelism") else name
    if not one:
        return [("n", heading)]
    served = f"{_number(one.get('observed_per_second'))}/s, busy {_share(one.get('busy_ratio'))}"
    return [("n", heading), ("s", served), ("s", f"backlog {_number(one.get('backlog_records'))}")]


def _topic_texts(layout: Layout, figures: Figures, topic: str) -> list[tuple[str, str]]:
    written = [figures.get(one, {}).get("written_per_second") for one in layout.writers(topic)]
    read = [figures.get(one, {}).get("arrival_per_second") for one in layout.readers(topic)]
    rates = [rate for rate in (written or read) if rate is not None]
    total = sum(rates) if written else max(rates, default=None)
    return [("n", topic), ("s", f"{_number(total)}/s" if rates else "")]


def _instances(one: Mapping[str, Any]) -> str:
    if not one.get("parallelism"):
        return "-"
    pin = " pinned" if one.get("pinned") else ""
    return f"{one['parallelism']} of {one.get('least', 1)}–{one.get('most', '')}{pin}"


def _number(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _share(value: Any) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.0%}"
