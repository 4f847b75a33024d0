"""How a fleet stands: what is allocated against what is needed, who is too small, what was decided lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.fleet.places import FleetDirectory

HOUR = 3600.0
MOST_LISTED = 20
GIB = 1024.0**3

Plain = dict[str, Any]


def fleet_status(directory: FleetDirectory, now: float) -> Plain:
    """The fleet as plain data; the longest lists are cut, their lengths are told."""
    table = directory.status()
    decisions = directory.decisions(since=now - HOUR)
    return {
        "now": now,
        **_sums(table),
        "undersized": _undersized(table),
        "most_wasteful": _wasteful(table),
        "decided_last_hour": dict(sorted(Counter(str(row["rule"]) for row in decisions).items())),
        "decisions": [_short(row) for row in decisions[-MOST_LISTED:]],
        "dead_letters": directory.dead_letters(),
    }


def _sums(table: pa.Table | None) -> Plain:
    if table is None:
        return {"applications": 0, "undersized_applications": 0, "in_flight": 0}
    columns = {name: table[name].to_numpy() for name in table.column_names if name != "application"}
    waste = {
        "cores": np.maximum(columns["allocated_cores"] - columns["needed_cores"], 0).sum(),
        "gib": np.maximum(columns["allocated_bytes"] - columns["needed_bytes"], 0).sum() / GIB,
    }
    return {
        "applications": table.num_rows,
        "allocated_cores": float(columns["allocated_cores"].sum()),
        "needed_cores": float(columns["needed_cores"].sum()),
        "wasted_cores": float(waste["cores"]),
        "allocated_gib": float(columns["allocated_bytes"].sum() / GIB),
        "needed_gib": float(columns["needed_bytes"].sum() / GIB),
        "wasted_gib": float(waste["gib"]),
        "undersized_applications": int((columns["needed_parallelism"] > columns["parallelism"]).sum()),
        "in_flight": int((columns["in_flight"] > 0).sum()),
    }


def _undersized(table: pa.Table | None) -> list[Plain]:
    """Those that need most beyond what they hold, first."""
    if table is None:
        return []
    lack = table["needed_parallelism"].to_numpy() - table["parallelism"].to_numpy()
    order = np.argsort(-np.nan_to_num(lack))[:MOST_LISTED]
    rows = table.take(pa.array(order[lack[order] > 0])).to_pylist()
    return [{key: row[key] for key in ("application", "parallelism", "needed_parallelism")} for row in rows]


def _wasteful(table: pa.Table | None) -> list[Plain]:
    if table is None:
        return []
    spare = table["allocated_bytes"].to_numpy() - table["needed_bytes"].to_numpy()
    order = np.argsort(-spare)[:MOST_LISTED]
    rows = table.take(pa.array(order[spare[order] > 0])).to_pylist()
    return [
        {
            "application": row["application"],
            "spare_cores": max(0.0, row["allocated_cores"] - row["needed_cores"]),
            "spare_gib": (row["allocated_bytes"] - row["needed_bytes"]) / GIB,
        }
        for row in rows
    ]


def _short(row: Mapping[str, Any]) -> Plain:
    return {key: row[key] for key in ("application", "decision_id", "at", "rule", "reason")}


def status_table(status: Plain) -> Group:
    """The status for a terminal."""
    sums = Table(box=None, show_header=False)
    for label, text in _lines(status):
        sums.add_row(Text(label, style="dim"), text)
    decisions = Table("application", "rule", "why", box=None, header_style="dim")
    for row in status["decisions"]:
        decisions.add_row(row["application"], row["rule"], row["reason"])
    small = Table("undersized", "holds", "needs", box=None, header_style="dim")
    for row in status["undersized"]:
        small.add_row(row["application"], str(row["parallelism"]), f"{row['needed_parallelism']:.0f}")
    return Group(
        sums, *([small] if status["undersized"] else []), *([decisions] if status["decisions"] else [])
    )


def _lines(status: Plain) -> list[tuple[str, str]]:
    rules = ", ".join(f"{rule} {count}" for rule, count in status["decided_last_hour"].items())
    lines = [("applications", f"{status['applications']:,}")]
    if status["applications"]:
        shown = (("cores", "cores"), ("memory in GiB", "gib"))
        lines += [
            (
                label,
                "{:,.0f} allocated, {:,.0f} needed, {:,.0f} to spare".format(*_three(status, name)),
            )
            for label, name in shown
        ]
    return [
        *lines,
        ("undersized", f"{status['undersized_applications']:,}"),
        ("in flight", f"{status['in_flight']:,}"),
        ("decided in the last hour", rules or "nothing"),
        ("bad records", f"{status['dead_letters']:,}"),
    ]


def _three(status: Plain, name: str) -> Sequence[float]:
    return [status[f"{kind}_{name}"] for kind in ("allocated", "needed", "wasted")]
