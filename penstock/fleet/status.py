"""How a fleet stands: what is allocated against what is needed, who is too small, what was decided lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.dataflow.metrics import Floats
from penstock.fleet.overrides import overrides_in_effect
from penstock.fleet.places import FleetDirectory
from penstock.view import figures
from penstock.view.entries import Entries

HOUR = 3600.0
MOST_LISTED = 20
GIB = 1024.0**3

Plain = dict[str, Any]


def fleet_status(directory: FleetDirectory, now: float) -> Plain:
    """The fleet as plain data; the longest lists are cut, their lengths are told."""
    everyone = directory.status()
    table = _heard_of(everyone, now)
    decisions = directory.decisions(since=now - HOUR)
    overrides, problem = overrides_in_effect(directory.overrides)
    return {
        "now": now,
        "silent_applications": 0 if everyone is None or table is None else everyone.num_rows - table.num_rows,
        **_sums(table),
        "undersized": _undersized(table),
        "most_wasteful": _wasteful(table),
        "decided_last_hour": dict(sorted(Counter(str(row["rule"]) for row in decisions).items())),
        "decisions": [_short(row) for row in decisions[-MOST_LISTED:]],
        "dead_letters": directory.dead_letters(),
        "overridden_applications": len(overrides),
        "overrides_problem": problem,
    }


def _heard_of(table: pa.Table | None, now: float) -> pa.Table | None:
    """Those that reported in the last hour: what has ended holds nothing, and is not in the sums."""
    return None if table is None else table.filter(pc.greater_equal(table["at"], now - HOUR))


def _sums(table: pa.Table | None) -> Plain:
    if table is None:
        return {"applications": 0, "undersized_applications": 0, "in_flight": 0}
    columns = {name: table[name].to_numpy() for name in table.column_names if name != "application"}
    return {
        "applications": table.num_rows,
        "allocated_cores": float(columns["allocated_cores"].sum()),
        "needed_cores": float(columns["needed_cores"].sum()),
        "wasted_cores": float(_spare(table, "cores").sum()),
        "allocated_gib": float(columns["allocated_bytes"].sum() / GIB),
        "needed_gib": float(columns["needed_bytes"].sum() / GIB),
        "wasted_gib": float(_spare(table, "bytes").sum() / GIB),
        "missing_gib": float(_added(table, "missing_bytes").sum() / GIB),
        "undersized_applications": int(_is_undersized(table).sum()),
        "in_flight": int((columns["in_flight"] > 0).sum()),
    }


def _undersized(table: pa.Table | None) -> list[Plain]:
    """Those that need most beyond what they hold, first: executors, then memory, then CPU."""
    if table is None:
        return []
    missing, starved = _added(table, "missing_bytes") / GIB, _added(table, "starved") > 0
    small = np.flatnonzero(_is_undersized(table))
    order = small[np.lexsort((-missing[small], -_lack(table)[small]))][:MOST_LISTED]
    rows = table.take(pa.array(order)).to_pylist()
    names = ("application", "parallelism", "needed_parallelism")
    return [
        {**{key: row[key] for key in names}, "missing_gib": float(gib), "starved": bool(busy)}
        for row, gib, busy in zip(rows, missing[order], starved[order], strict=True)
    ]


def _is_undersized(table: pa.Table) -> NDArray[np.bool_]:
    return (_lack(table) > 0) | (_added(table, "missing_bytes") > 0) | (_added(table, "starved") > 0)


def _lack(table: pa.Table) -> Floats:
    """Executors that are needed beyond those held; none where the need is not known."""
    lack: Floats = np.nan_to_num(table["needed_parallelism"].to_numpy() - table["parallelism"].to_numpy())
    return lack


def _added(table: pa.Table, name: str) -> Floats:
    """A column that earlier versions did not write, as numbers; 0 where it is missing."""
    if name not in table.column_names:
        return np.zeros(table.num_rows)
    column: Floats = np.nan_to_num(table[name].cast(pa.float64()).to_numpy())
    return column


def _wasteful(table: pa.Table | None) -> list[Plain]:
    if table is None:
        return []
    cores, gib = _spare(table, "cores"), _spare(table, "bytes") / GIB
    order = np.lexsort((-cores, -gib))[:MOST_LISTED]
    order = order[(cores[order] > 0) | (gib[order] > 0)]
    names = table["application"].take(pa.array(order)).to_pylist()
    return [
        {"application": name, "spare_cores": float(cores[row]), "spare_gib": float(gib[row])}
        for name, row in zip(names, order, strict=True)
    ]


def _spare(table: pa.Table, what: str) -> Floats:
    """What each holds beyond its need."""
    spare: Floats = np.maximum(
        table[f"allocated_{what}"].to_numpy() - table[f"needed_{what}"].to_numpy(), 0.0
    )
    return spare


def _short(row: Mapping[str, Any]) -> Plain:
    return {key: row[key] for key in ("application", "decision_id", "at", "rule", "reason")}


def status_table(status: Plain) -> Group:
    """The status for a terminal."""
    sums = Table(box=None, show_header=False)
    for label, text in _lines(status):
        sums.add_row(Text(label, style="dim"), Text(text))
    return Group(sums, *(Group(Text(""), part) for part in _lists(status)))


def _lists(status: Plain) -> Iterator[Entries]:
    undersized = [
        (
            row["application"],
            row["parallelism"],
            figures.count(row["needed_parallelism"]),
            row["missing_gib"],
            "all used" if row["starved"] else "",
        )
        for row in status["undersized"]
    ]
    spare = [(row["application"], row["spare_cores"], row["spare_gib"]) for row in status["most_wasteful"]]
    decided = [
        (figures.day_and_clock(row["at"]), row["application"], row["rule"], row["reason"])
        for row in status["decisions"]
    ]
    for title, names, rows, heading in (
        ("undersized", ("application", "holds", "needs", "short of GiB", "CPU"), undersized, 1),
        ("most to spare", ("application", "cores", "GiB"), spare, 1),
        ("decided in the last hour", ("time", "application", "rule", "why"), decided, 2),
    ):
        if rows:
            yield Entries(names, [tuple(map(_cell, row)) for row in rows], heading, title)


def _cell(value: object) -> Text:
    """Names and reasons are text, whatever they hold."""
    return Text(f"{value:,.1f}" if isinstance(value, float) else str(value))


def _lines(status: Plain) -> list[tuple[str, str]]:
    rules = ", ".join(f"{rule} {count}" for rule, count in status["decided_last_hour"].items())
    problem = status["overrides_problem"]
    said = f"; what was said last counts, since {problem}" if problem else ""
    quiet = status["silent_applications"]
    silent = f", and {quiet:,} of which nothing was heard in the last hour" if quiet else ""
    lines = [("applications", f"{status['applications']:,}{silent}")]
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
        ("overridden", f"{status['overridden_applications']:,}{said}"),
        ("in flight", f"{status['in_flight']:,}"),
        ("decided in the last hour", rules or "nothing"),
        ("bad records", f"{status['dead_letters']:,}"),
    ]


def _three(status: Plain, name: str) -> Sequence[float]:
    return [status[f"{kind}_{name}"] for kind in ("allocated", "needed", "wasted")]
