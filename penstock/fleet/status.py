"""How a fleet stands: what is allocated against what is needed, who is too small, what was decided lately."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats
from penstock.decide.sage.columns import COLUMN, CORES, HEAP, OVERHEAD, PARALLELISM, TASK_CPUS
from penstock.decide.sage.rules import find_cores_per_task
from penstock.decide.sage.settings import SageSettings
from penstock.fleet.budget import read_budget
from penstock.fleet.decision import MOST_CLOCK_SECONDS
from penstock.fleet.overrides import read_snapshot
from penstock.fleet.places import SHOWN, STATUS, FleetDirectory
from penstock.fleet.state import FleetState

HOUR = 3600.0
UNJUDGED_SECONDS = 60.0
"""Six rounds: a round may be late, and Spark pauses now and then."""
MOST_LISTED = 20
GIB = 1024.0**3

Plain = dict[str, Any]


def summarise_fleet(directory: FleetDirectory, now: float) -> Plain:
    """Return the fleet as plain data; the longest lists are cut, their lengths are told."""
    everyone = directory.status()
    table = drop_silent(everyone, now)
    decisions = directory.decisions(now - HOUR, now + MOST_CLOCK_SECONDS)
    overrides, problem = read_snapshot(directory.overrides)
    return {
        "now": now,
        "last_round_at": directory.last_round(),
        "windows_wait": _do_windows_wait(directory),
        "silent_applications": 0 if everyone is None or table is None else everyone.num_rows - table.num_rows,
        **_sum_up(table),
        "undersized": _list_undersized(table),
        "most_wasteful": _list_wasteful(table),
        "decided_last_hour": dict(sorted(Counter(str(row["rule"]) for row in decisions).items())),
        "decisions": [{key: row[key] for key in SHOWN} for row in decisions[-MOST_LISTED:]],
        "dead_letters": directory.dead_letters(),
        "overridden_applications": len(overrides),
        "overrides_problem": problem,
        "budget": read_budget(directory.budget),
    }


def _do_windows_wait(directory: FleetDirectory) -> bool:
    """Tell whether windows came for a while and none was judged: the controller hangs, or is not there."""
    judged, came = directory.last_round(), directory.last_arrival()
    return came is not None and (judged is None or came - judged > UNJUDGED_SECONDS)


def drop_silent(table: pa.Table | None, now: float) -> pa.Table | None:
    """Return those that reported in the last hour: what has ended holds nothing, and is in no sum."""
    return None if table is None else table.filter(pc.greater_equal(table["at"], now - HOUR))


def _sum_up(table: pa.Table | None) -> Plain:
    if table is None:
        return {"applications": 0, "undersized_applications": 0, "in_flight": 0}
    columns = {name: table[name].to_numpy() for name in table.column_names if name != "application"}
    return {
        "applications": table.num_rows,
        "allocated_cores": float(columns["allocated_cores"].sum()),
        "needed_cores": float(columns["needed_cores"].sum()),
        "wasted_cores": float(find_spare(table, "cores").sum()),
        "allocated_gib": float(columns["allocated_bytes"].sum() / GIB),
        "needed_gib": float(columns["needed_bytes"].sum() / GIB),
        "wasted_gib": float(find_spare(table, "bytes").sum() / GIB),
        "missing_gib": float(read_added(table, "missing_bytes").sum() / GIB),
        "undersized_applications": int(is_undersized(table).sum()),
        "in_flight": int((columns["in_flight"] > 0).sum()),
    }


def _list_undersized(table: pa.Table | None) -> list[Plain]:
    """List those that are short of something, the shortest first: of executors, memory, then CPU."""
    if table is None:
        return []
    missing, starved = read_added(table, "missing_bytes") / GIB, read_added(table, "starved") > 0
    small = np.flatnonzero(is_undersized(table))
    order = small[np.lexsort((-missing[small], -find_lack(table)[small]))][:MOST_LISTED]
    rows = table.take(pa.array(order)).to_pylist()
    names = ("application", "parallelism", "needed_parallelism")
    return [
        {**{key: row[key] for key in names}, "missing_gib": float(gib), "starved": bool(busy)}
        for row, gib, busy in zip(rows, missing[order], starved[order], strict=True)
    ]


def is_undersized(table: pa.Table) -> NDArray[np.bool_]:
    """Tell which hold less than they need of executors, memory or CPU."""
    return (
        (find_lack(table) > 0) | (read_added(table, "missing_bytes") > 0) | (read_added(table, "starved") > 0)
    )


def find_lack(table: pa.Table) -> Floats:
    """Return the executors needed beyond those held; none where the need is not known."""
    lack: Floats = np.nan_to_num(table["needed_parallelism"].to_numpy() - table["parallelism"].to_numpy())
    return lack


def read_added(table: pa.Table, name: str) -> Floats:
    """Return a column that earlier versions did not write, as numbers; 0 where it is missing."""
    if name not in table.column_names:
        return np.zeros(table.num_rows)
    column: Floats = np.nan_to_num(table[name].cast(pa.float64()).to_numpy())
    return column


def _list_wasteful(table: pa.Table | None) -> list[Plain]:
    if table is None:
        return []
    cores, gib = find_spare(table, "cores"), find_spare(table, "bytes") / GIB
    order = np.lexsort((-cores, -gib))[:MOST_LISTED]
    order = order[(cores[order] > 0) | (gib[order] > 0)]
    names = table["application"].take(pa.array(order)).to_pylist()
    return [
        {"application": name, "spare_cores": float(cores[row]), "spare_gib": float(gib[row])}
        for name, row in zip(names, order, strict=True)
    ]


def find_spare(table: pa.Table, what: str) -> Floats:
    """Return what each holds beyond its need."""
    spare: Floats = np.maximum(
        table[f"allocated_{what}"].to_numpy() - table[f"needed_{what}"].to_numpy(), 0.0
    )
    return spare


def tabulate_status(state: FleetState, settings: SageSettings) -> pa.Table:
    """Return how every application stands: what it is given against what it needs."""
    newest = state.history[:, :, -1].astype(np.float64)
    needed = newest[:, COLUMN["needed_parallelism"]]
    wanted = np.where(np.isnan(needed), state.held[:, PARALLELISM], needed)
    cores, memory = _sum_allocated(state.held)
    lasting = _find_lasting(state, "heap_used_bytes", settings)
    # P3 looks at the same, and takes off what collectors may use
    busy = _find_lasting(state, "cpu_used_cores", settings) / state.held[:, CORES]
    each = _find_needed_bytes(newest, lasting, state.held, settings)
    missing = _find_missing_bytes(newest, lasting, state.held, settings)
    columns = [
        state.names,
        state.newest,
        state.held[:, PARALLELISM].astype(np.int64),
        needed,
        cores,
        wanted * _find_needed_cores(state, settings),
        memory,
        wanted * each,
        state.held[:, PARALLELISM] * missing,
        busy > settings.cpu_high,
        state.in_flight,
    ]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=STATUS)


def _find_lasting(state: FleetState, metric: str, settings: SageSettings) -> Floats:
    """Return what was in use all the while: between two collections heap use rises to the brim."""
    recent = state.history[:, COLUMN[metric], -settings.least_up_samples :]
    lasting: Floats = recent.min(axis=1).astype(np.float64)
    return lasting


def _find_needed_cores(state: FleetState, settings: SageSettings) -> Floats:
    """Return the cores that one executor needs, as P8 would have it; what is not measured counts as held."""
    fresh = state.at > state.fresh_after[:, None]
    used = np.where(fresh, state.history[:, COLUMN["cpu_used_cores"]].astype(np.float64), np.nan)
    cores, slots = state.held[:, CORES], state.held[:, CORES] // state.held[:, TASK_CPUS]
    each = find_cores_per_task(np.fmax.reduce(used, axis=1), slots, settings)
    needed: Floats = np.fmin(cores, slots * each)
    return needed


def _find_needed_bytes(newest: Floats, lasting: Floats, held: Floats, settings: SageSettings) -> Floats:
    """Return the memory that one executor needs by P6 and P7; what is not measured counts as held."""
    committed = newest[:, COLUMN["heap_committed_bytes"]]
    heap = np.fmax(committed, lasting / settings.heap_used_high)
    heap = np.maximum(heap, settings.least_heap_bytes)
    beside = np.maximum(newest[:, COLUMN["memory_used_bytes"]] - committed, 0) / settings.overhead_target
    beside = np.maximum(beside, settings.least_overhead_bytes)
    heap = np.where(np.isnan(heap), held[:, HEAP], heap)
    return heap + np.where(np.isnan(beside), held[:, OVERHEAD], beside)


def _find_missing_bytes(newest: Floats, lasting: Floats, held: Floats, settings: SageSettings) -> Floats:
    """Return the memory that one executor is short of by P1 and P2; none where it is not measured."""
    heap = lasting / settings.heap_used_high - held[:, HEAP]
    beside = newest[:, COLUMN["memory_used_bytes"]] - newest[:, COLUMN["heap_committed_bytes"]]
    full = newest[:, COLUMN["beside_heap_bytes"]] > settings.overhead_high * held[:, OVERHEAD]
    overhead = np.where(full, beside / settings.overhead_target - held[:, OVERHEAD], 0.0)
    missing: Floats = np.nan_to_num(np.maximum(heap, 0.0)) + np.nan_to_num(np.maximum(overhead, 0.0))
    return missing


def _sum_allocated(held: Floats) -> tuple[Floats, Floats]:
    """Return the cores and bytes held in all, executors times their size."""
    each = held[:, HEAP] + held[:, OVERHEAD]
    return held[:, PARALLELISM] * held[:, CORES], held[:, PARALLELISM] * each
