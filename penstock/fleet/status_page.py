"""How a fleet stands as one HTML page: what is held and needed, who is too small, who has most to spare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from penstock.view import figures
from penstock.view.page import Figure, page_text, tiles, write_text

Plain = Mapping[str, Any]

_STYLE = """
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 10px 14px;
  align-items: center; }
.bars .track { height: 14px; border-radius: 7px; background: var(--rule); overflow: hidden; }
.bars .needed { height: 100%; background: var(--out); }
"""


def page(status: Plain) -> str:
    """The page as text."""
    problem = status["overrides_problem"]
    parts = [
        tiles(_figures(status)),
        f'<p class="quiet">The last readable overrides count: {escape(problem)}</p>' if problem else "",
        _shares(status),
        _listed("Undersized", status["undersized"], "Every application holds what it needs."),
        _listed("Most to spare", status["most_wasteful"], "No application has anything to spare."),
        _listed("Decided in the last hour", [_dated(row) for row in status["decisions"]], "Nothing."),
    ]
    subtitle = f"{status['applications']:,} applications, {figures.day_and_clock(status['now'])}"
    return page_text("Fleet", subtitle, "\n".join(parts), style=_STYLE)


def write_page(status: Plain, path: Path) -> Path:
    """Write the page and return its absolute path."""
    return write_text(page(status), path)


def _figures(status: Plain) -> list[Figure]:
    decided = status["decided_last_hour"]
    return [
        *(_spare(status) if status["applications"] else []),
        ("undersized", f"{status['undersized_applications']:,}", "hold less than they need"),
        ("decided", f"{sum(decided.values()):,}", "in the last hour"),
        ("in flight", f"{status['in_flight']:,}", "not acknowledged yet"),
        ("bad records", f"{status['dead_letters']:,}", "set aside"),
        ("overridden", f"{status['overridden_applications']:,}", "by operators"),
        ("silent", f"{status['silent_applications']:,}", "not heard of in the last hour"),
    ]


def _spare(status: Plain) -> list[Figure]:
    return [
        ("cores to spare", f"{status['wasted_cores']:,.0f}", f"of {status['allocated_cores']:,.0f}"),
        ("memory to spare", f"{status['wasted_gib']:,.0f} GiB", f"of {status['allocated_gib']:,.0f} GiB"),
    ]


def _shares(status: Plain) -> str:
    """How much of what is held is needed, as bars."""
    if not status["applications"]:
        return ""
    rows = (("cores", "cores"), ("GiB of memory", "gib"))
    bars = "".join(_bar(label, status[f"needed_{name}"], status[f"allocated_{name}"]) for label, name in rows)
    return f'<h2>Needed of what is held</h2>\n<section class="card"><div class="bars">{bars}</div></section>'


def _bar(label: str, needed: float, held: float) -> str:
    share = min(1.0, needed / held) if held else 0.0
    filled = f'<div class="needed" style="width:{share:.1%}"></div>'
    said = f"{needed:,.0f} of {held:,.0f}"
    return f'<span>{escape(label)}</span><div class="track">{filled}</div><span class="quiet">{said}</span>'


def _listed(title: str, rows: Sequence[Plain], otherwise: str) -> str:
    content = _table(rows) if rows else f'<p class="quiet">{otherwise}</p>'
    return f'<h2>{title}</h2>\n<section class="card">{content}</section>'


def _table(rows: Sequence[Plain]) -> str:
    head = "".join(
        _cell("th", name.replace("_", " ").replace("gib", "GiB"), rows[0][name]) for name in rows[0]
    )
    body = "".join(
        "<tr>" + "".join(_cell("td", _text(value), value) for value in row.values()) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str, value: Any) -> str:
    kind = ' class="number"' if isinstance(value, int | float) else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if math.isfinite(value) else figures.ABSENT
    return str(value)


def _dated(row: Plain) -> Plain:
    """A decision with its time as people write it, and without its number."""
    return {
        "time": figures.clock(row["at"]),
        "application": row["application"],
        "rule": row["rule"],
        "why": row["reason"],
    }
