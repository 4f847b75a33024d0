"""The rows of the timeline: jobs in lanes, the driver and executors, with the critical path on them."""

from __future__ import annotations

from typing import Any

from penstock.diagnose.timeline import ExecutorLine, Timeline
from penstock.view import figures
from penstock.view.stage_tables import PageLinks, name_row

MOST_EXECUTORS, MOST_LANES, MOST_PIECES = 40, 12, 1500
SHADES = 8
"""Steps of how busy a bin is."""


def show_timeline(timeline: Timeline, links: PageLinks) -> dict[str, Any]:
    """Return what the template draws: rows with bars, whose places are percent of the span."""
    rows = [*_show_jobs(timeline, links), {"name": "driver", "kind": "driver", "note": "", "bars": []}]
    on_path: dict[str, float] = {}
    for piece in timeline.path:
        on_path[piece.row] = on_path.get(piece.row, 0.0) + piece.seconds
    chosen = sorted(timeline.executors, key=lambda line: -on_path.get(line.executor, 0.0))[:MOST_EXECUTORS]
    shown = [line for line in timeline.executors if line in chosen]
    rows += [_show_executor(timeline, line) for line in shown]
    path = _show_path(timeline, links)
    left_out = len(timeline.executors) - len(shown)
    return {
        "rows": [row | {"path": path.get(row["name"], [])} for row in rows],
        "ticks": _place_ticks(timeline),
        "note": f"{figures.count(left_out)} executors with less of the path are left out" if left_out else "",
        "has_path": bool(timeline.path),
    }


def _place(timeline: Timeline, start: float, end: float, least: float = 0.0) -> dict[str, Any]:
    whole = max(1, timeline.end_ms - timeline.start_ms)
    left = min(100.0, max(0.0, 100 * (start - timeline.start_ms) / whole))
    return {
        "left": round(left, 3),
        "width": round(min(max(least, 100 * (end - start) / whole), 100 - left), 3),
    }


def _show_jobs(timeline: Timeline, links: PageLinks) -> list[dict[str, Any]]:
    lanes: dict[int, list[dict[str, Any]]] = {}
    for bar in timeline.jobs:
        one = len(bar.jobs) == 1
        name = f"job {bar.jobs[0]}" if one else f"jobs {bar.jobs[0]} to {bar.jobs[-1]}"
        failed = ", failed" if bar.failed else ""
        lanes.setdefault(bar.lane, []).append(
            _place(timeline, bar.start_ms, bar.end_ms, 0.2)
            | {
                "title": f"{name}, {figures.seconds((bar.end_ms - bar.start_ms) / 1000)}{failed}",
                "link": links.to_job(bar.jobs[0]),
                "kind": "failed" if bar.failed else "job",
            }
        )
    return [
        {"name": "jobs" if lane == 0 else "", "kind": "jobs", "note": "", "bars": lanes[lane]}
        for lane in sorted(lanes)[:MOST_LANES]
    ]


def _show_executor(timeline: Timeline, line: ExecutorLine) -> dict[str, Any]:
    """Return an executor while it was there, and bins that are as dark as it was busy."""
    width = (timeline.end_ms - timeline.start_ms) / max(1, len(line.busy))
    there = _place(timeline, line.start_ms, line.end_ms, 0.2)
    bars: list[dict[str, Any]] = [{**there, "kind": "there", "title": "", "link": ""}]
    first = 0
    shades = [round(share * SHADES) for share in line.busy]
    for place in range(1, len(shades) + 1):
        if place < len(shades) and shades[place] == shades[first]:
            continue
        if shades[first]:
            start = timeline.start_ms + first * width
            bar = _place(timeline, start, timeline.start_ms + place * width)
            title = f"{100 * shades[first] // SHADES} % busy"
            shade = shades[first] / SHADES
            bars.append({**bar, "kind": "busy", "title": title, "link": "", "shade": shade})
        first = place
    note = ", ".join(filter(None, (line.host, figures.count_of(line.slots, "slot"), line.reason)))
    return {"name": name_row(line.executor), "kind": "executor", "note": note, "bars": bars}


def _show_path(timeline: Timeline, links: PageLinks) -> dict[str, list[dict[str, Any]]]:
    """Return the longest pieces of the path by row; others could not be seen."""
    found: dict[str, list[dict[str, Any]]] = {}
    for piece in sorted(timeline.path, key=lambda one: -one.seconds)[:MOST_PIECES]:
        what = f"{piece.doing}, {piece.operator}" if piece.operator not in {"", "driver"} else piece.doing
        found.setdefault(name_row(piece.row), []).append(
            _place(timeline, piece.start_ms, piece.end_ms, 0.15)
            | {
                "title": f"critical: {what}, {figures.seconds(piece.seconds)}",
                "link": links.to_stage(*piece.stage) if piece.stage else "",
            }
        )
    return found


def _place_ticks(timeline: Timeline) -> list[dict[str, Any]]:
    span = (timeline.end_ms - timeline.start_ms) / 1000
    return [
        {"left": 25 * part, "text": figures.seconds(span * part / 4) if part else "0"} for part in range(5)
    ]
