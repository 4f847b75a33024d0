"""The page of a fleet as plain data: headings that sort, rows, pages to turn, teams; values in, dict out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from penstock.fleet.listing import Question, shorten
from penstock.view import figures

PATH = "/fleet"
COLUMNS = (
    ("application", "application", False),
    ("team", "team", False),
    ("parallelism", "executors", True),
    ("missing_executors", "short of", True),
    ("missing_gib", "short of GiB", True),
    ("starved", "CPU", True),
    ("spare_cores", "cores to spare", True),
    ("spare_gib", "GiB to spare", True),
    ("rule", "decided in the last hour", False),
    ("at", "heard of", True),
)
"""The columns shown: the column to sort by, its heading, and whether it holds numbers."""
MOST_DECISIONS = 100
KINDS = {
    "all": "all",
    "undersized": "under-sized",
    "spare": "with something to spare",
    "decided": "decided on in the last hour",
    "silent": "silent for an hour",
}

Plain = dict[str, Any]


def describe_list(question: Question, page: Mapping[str, Any], now: float) -> Plain:
    """Return what the list shows: headings, rows, and links to the other pages."""
    shown = page["page"]
    first = (shown - 1) * question.rows + 1
    last = first + len(page["rows"]) - 1
    counted = f"{first:,} to {last:,} of {page['matching']:,}" if page["rows"] else "none"
    return {
        "headings": [_describe_heading(question, *column) for column in COLUMNS],
        "rows": [describe_row(row, now) for row in page["rows"]],
        "counted": counted + (f", {page['of']:,} in all" if page["matching"] != page["of"] else ""),
        "page": f"page {shown:,} of {page['pages']:,}",
        "first": _link(question, page=1) if shown > 1 else "",
        "before": _link(question, page=shown - 1) if shown > 1 else "",
        "next": _link(question, page=shown + 1) if shown < page["pages"] else "",
        "last": _link(question, page=page["pages"]) if shown < page["pages"] else "",
    }


def describe_row(row: Mapping[str, Any], now: float) -> Plain:
    """Write one application's figures; what is nothing stays empty, so that what is something stands out."""
    needed = row["needed_parallelism"]
    return {
        "name": row["application"],
        "address": f"{PATH}/application?{urlencode({'name': row['application']})}" if row["is_whole"] else "",
        "team": row["team"],
        "executors": figures.count(row["parallelism"]),
        "needed": f"{math.ceil(needed):,} needed" if math.isfinite(needed) else "need not known",
        "missing": _count_some(row["missing_executors"]),
        "missing_gib": _write_some(row["missing_gib"]),
        "cpu": "all used" if row["starved"] else "",
        "spare_cores": f"{row['spare_cores']:,.1f}",
        "of_cores": f"of {row['allocated_cores']:,.0f}",
        "spare_gib": f"{row['spare_gib']:,.1f}",
        "of_gib": f"of {row['allocated_gib']:,.1f}",
        "rule": row["rule"],
        "reason": row["reason"],
        "in_flight": row["in_flight"] > 0,
        "heard": _tell_age(now - row["at"]),
        "silent": row["silent"],
        "undersized": row["undersized"],
    }


def describe_teams(found: Mapping[str, Any]) -> Plain:
    """Return the table of teams, and what is left out of it."""
    rows = [
        {
            "team": one["team"] or "without a team",
            "address": f"{PATH}?{urlencode({'search': one['team'], 'sort': 'spare_gib'})}"
            if one["team"]
            else "",
            "applications": figures.count(one["applications"]),
            "undersized": _count_some(one["undersized"]),
            "cores": f"{one['spare_cores']:,.0f} of {one['allocated_cores']:,.0f}",
            "cores_share": _share(one["spare_cores"], one["allocated_cores"]),
            "gib": f"{one['spare_gib']:,.0f} of {one['allocated_gib']:,.0f}",
            "gib_share": _share(one["spare_gib"], one["allocated_gib"]),
        }
        for one in found["teams"]
    ]
    left = found["of"] - len(rows)
    return {"rows": rows, "left": f"and {left:,} more with less to spare" if left > 0 else ""}


def describe_decisions(decisions: Sequence[Mapping[str, Any]]) -> list[Plain]:
    """Return decisions, newest first, as they are shown."""
    return [
        {
            "at": figures.day_and_clock(one["at"]),
            "application": shorten(str(one["application"])),
            "rule": shorten(str(one["rule"])),
            "reason": shorten(str(one["reason"])),
        }
        for one in sorted(decisions, key=lambda one: -float(one["at"]))
    ]


def _describe_heading(question: Question, sort: str, text: str, is_number: bool) -> Plain:
    """Return a heading; pressing that of the order at hand turns it round, numbers begin with the most."""
    chosen = sort == question.sort
    descending = not question.descending if chosen else is_number
    way = ("descending" if question.descending else "ascending") if chosen else ""
    return {
        "text": text,
        "number": is_number,
        "way": way,
        "address": _link(question, sort=sort, order="desc" if descending else "asc", page=1),
    }


def _link(question: Question, **changes: object) -> str:
    given: dict[str, object] = {
        "search": question.search,
        "show": question.show,
        "sort": question.sort,
        "order": "desc" if question.descending else "asc",
        "page": question.page,
    }
    return f"{PATH}?{urlencode({**given, **changes})}"


def _share(part: float, whole: float) -> float:
    return round(100 * min(1.0, part / whole), 1) if whole > 0 else 0.0


def _count_some(value: float) -> str:
    return f"{value:,.0f}" if value > 0 else ""


def _write_some(value: float) -> str:
    return f"{value:,.1f}" if value > 0 else ""


def _tell_age(seconds: float) -> str:
    return f"{figures.seconds(max(0.0, seconds))} ago"
