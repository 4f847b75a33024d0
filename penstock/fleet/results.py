"""What a round gives out: decisions for agents and the action log, and how every application stands."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa

from penstock.dataflow.metrics import Floats
from penstock.decide.policy import Resize
from penstock.decide.sage import WHY
from penstock.decide.sage_metrics import Overrides, Rule, Sizing
from penstock.decide.sage_words import proposal_of
from penstock.fleet.round import ORDERED_BY, FleetSettings, RoundResult, allocated, decision_ids
from penstock.fleet.sage_columns import (
    AWAITING,
    COLUMN,
    CORES,
    HEAP,
    OVERHEAD,
    PARALLELISM,
    SIZE,
    TASK_CPUS,
    held_back_of,
    held_of,
    round_of,
)
from penstock.fleet.state import FleetState

DECISION = pa.schema(
    [
        ("application", pa.string()),
        ("decision_id", pa.int64()),
        ("at", pa.float64()),
        ("expires_at", pa.float64()),
        ("rule", pa.string()),
        ("symptom", pa.string()),
        ("measured", pa.float64()),
        ("bound", pa.float64()),
        *((f"held_{name}", pa.float64()) for name in SIZE),
        *((f"after_{name}", pa.float64()) for name in SIZE),
        ("parallelism", pa.int64()),
        ("operators", pa.list_(pa.int64())),
        ("settings", pa.string()),
        ("reason", pa.string()),
    ]
)
"""One decision: a change of parallelism, in all and per operator, or else of Spark settings."""
STATUS = pa.schema(
    [
        ("application", pa.string()),
        ("at", pa.float64()),
        ("parallelism", pa.int64()),
        ("needed_parallelism", pa.float64()),
        ("allocated_cores", pa.float64()),
        ("needed_cores", pa.float64()),
        ("allocated_bytes", pa.float64()),
        ("needed_bytes", pa.float64()),
        ("missing_bytes", pa.float64()),
        ("starved", pa.bool_()),
        ("in_flight", pa.int64()),
    ]
)


def decisions_of(result: RoundResult, settings: FleetSettings) -> pa.Table:
    """The decisions of a round, in the order of the applications' names."""
    decided = np.flatnonzero(result.decisions.rule > 0)
    names = result.state.names.take(pa.array(result.rows[decided])).to_pylist()
    rows = [_decision(result, int(i), name, settings) for i, name in zip(decided, names, strict=True)]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["application"])), schema=DECISION)


def _decision(result: RoundResult, place: int, name: str, settings: FleetSettings) -> dict[str, object]:
    sizing = round_of(result.decisions, place).decision
    assert sizing is not None
    held, now = result.held[place], float(result.now[place])
    proposal = proposal_of(held_of(held), sizing, Overrides(by=_ordered_by(result, place)))
    row: dict[str, object] = {
        "application": name,
        "decision_id": int(decision_ids(result.now[place : place + 1])[0]),
        "at": now,
        "expires_at": now + settings.sage.in_flight_seconds,
        "rule": f"P{int(sizing.rule)}",
        "symptom": sizing.symptom.name.lower().replace("_", "-"),
        "measured": sizing.measured,
        "bound": sizing.bound,
        "reason": proposal.reason,
    }
    row |= {f"held_{column}": held[number] for number, column in enumerate(SIZE)}
    row |= {f"after_{column}": float(getattr(sizing.after, column)) for column in SIZE}
    if isinstance(proposal, Resize):
        return row | {"settings": orjson.dumps(dict(proposal.settings)).decode()}
    return row | {"parallelism": sizing.after.parallelism, "operators": _wanted(result, place, sizing)}


def _ordered_by(result: RoundResult, place: int) -> str:
    if ORDERED_BY not in result.windows.column_names:
        return ""
    return str(result.windows[ORDERED_BY][int(result.window[place])].as_py() or "")


def _wanted(result: RoundResult, place: int, sizing: Sizing) -> list[int] | None:
    """Instances of every operator, where each has its own and they add up to what was decided."""
    window = int(result.window[place])
    begin, end = result.first[window : window + 2].tolist()
    if result.needs.instances[window] != sizing.after.parallelism or not result.needs.ready[window]:
        return None
    wanted: list[int] = result.needs.wanted[begin:end].tolist()
    return wanted


def status_of(state: FleetState, settings: FleetSettings) -> pa.Table:
    """How every application of a state stands: what it is given against what it needs."""
    newest = state.history[:, -1, :].astype(np.float64)
    needed = newest[:, COLUMN["needed_parallelism"]]
    wanted = np.where(np.isnan(needed), state.held[:, PARALLELISM], needed)
    cores, memory = allocated(state.held)
    lasting = _lasting(state, "heap_used_bytes", settings)
    # P3 looks at the same
    busy = _lasting(state, "cpu_used_cores", settings) / state.held[:, CORES]
    each = _needed_bytes(newest, lasting, state.held, settings)
    missing = _missing_bytes(newest, lasting, state.held, settings)
    columns = [
        state.names,
        state.newest,
        state.held[:, PARALLELISM].astype(np.int64),
        needed,
        cores,
        wanted * _needed_cores(state, settings),
        memory,
        wanted * each,
        state.held[:, PARALLELISM] * missing,
        busy > settings.sage.cpu_high,
        state.in_flight,
    ]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=STATUS)


def _lasting(state: FleetState, metric: str, settings: FleetSettings) -> Floats:
    """What was in use all the while: heap rises to the brim between two collections, whatever lives."""
    recent = state.history[:, -settings.sage.least_up_samples :, COLUMN[metric]]
    lasting: Floats = recent.min(axis=1).astype(np.float64)
    return lasting


def _needed_cores(state: FleetState, settings: FleetSettings) -> Floats:
    """Cores that one executor needs, as P8 would have it; what is not measured is taken as held."""
    fresh = state.at > state.fresh_after[:, None]
    used = np.where(fresh, state.history[:, :, COLUMN["cpu_used_cores"]].astype(np.float64), np.nan)
    cores, slots = state.held[:, CORES], state.held[:, CORES] // state.held[:, TASK_CPUS]
    each = np.ceil(np.fmax.reduce(used, axis=1) / settings.sage.cpu_target / slots)
    needed: Floats = np.fmin(cores, slots * np.maximum(each, 1.0))
    return needed


def _needed_bytes(newest: Floats, lasting: Floats, held: Floats, settings: FleetSettings) -> Floats:
    """Memory that one executor needs, as P6 and P7 would have it; what is not measured is taken as held."""
    committed = newest[:, COLUMN["heap_committed_bytes"]]
    heap = np.fmax(committed, lasting / settings.sage.heap_used_high)
    heap = np.maximum(heap, settings.sage.least_heap_bytes)
    beside = np.maximum(newest[:, COLUMN["memory_used_bytes"]] - committed, 0) / settings.sage.overhead_target
    beside = np.maximum(beside, settings.sage.least_overhead_bytes)
    heap = np.where(np.isnan(heap), held[:, HEAP], heap)
    return heap + np.where(np.isnan(beside), held[:, OVERHEAD], beside)


def _missing_bytes(newest: Floats, lasting: Floats, held: Floats, settings: FleetSettings) -> Floats:
    """Memory that one executor is short of by the bounds of P1 and P2; none where it is not measured."""
    heap = lasting / settings.sage.heap_used_high - held[:, HEAP]
    beside = newest[:, COLUMN["memory_used_bytes"]] - newest[:, COLUMN["heap_committed_bytes"]]
    full = newest[:, COLUMN["beside_heap_bytes"]] > settings.sage.overhead_high * held[:, OVERHEAD]
    overhead = np.where(full, beside / settings.sage.overhead_target - held[:, OVERHEAD], 0.0)
    missing: Floats = np.nan_to_num(np.maximum(heap, 0.0)) + np.nan_to_num(np.maximum(overhead, 0.0))
    return missing


def told(result: RoundResult) -> dict[str, object]:
    """A round in a few numbers and words: rules that decided, why others did not."""
    back = [held_back_of(int(packed)) for packed in np.unique(result.decisions.held_back) if packed]
    counts = np.bincount(result.decisions.rule, minlength=len(Rule))
    return {
        "judged": len(result.rows),
        "ignored": result.ignored,
        "decided": {f"P{rule}": int(count) for rule, count in enumerate(counts) if rule and count},
        "held_back": sorted({f"P{int(rule)}: {WHY[why]}" for pairs in back for rule, why in pairs}),
        "awaiting": sorted({AWAITING[code] for code in np.unique(result.decisions.awaiting) if code}),
    }
