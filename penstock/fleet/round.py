"""One round for many applications: windows in, decisions out, and the state that follows (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.propagation import MOST_INSTANCES
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.sage_metrics import Rule
from penstock.decide.sage_settings import SageSettings
from penstock.fleet.ds2_kernel import Needs, evaluate_ds2
from penstock.fleet.records import MEASURED, floats, operator_columns, sizes
from penstock.fleet.sage_columns import (
    COLUMN,
    CORES,
    FORCED_RULE,
    HEAP,
    LOWERED_HEAP,
    OVERHEAD,
    PARALLELISM,
    SMALL_CPUS,
    SMALL_HEAP,
    SMALL_OVERHEAD,
    TASK_CPUS,
    Applications,
    Decisions,
)
from penstock.fleet.sage_kernel import evaluate_sage
from penstock.fleet.state import FleetState, push, with_applications

ORDERS = ("pinned", "vetoed", "forced", "force_id")
"""Columns of what operators said, which are joined to windows before the round."""
ORDERED_BY = "ordered_by"
"""The column of who said it."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The policies that are evaluated."""

    ds2: Ds2Settings = field(default_factory=Ds2Settings)
    sage: SageSettings = field(default_factory=SageSettings)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A round: the state after it, the rows of the applications that were judged, and what was decided.

    `window` is the place of each judged application's newest window among those that came in.
    """

    state: FleetState
    rows: Integers
    window: Integers
    now: Floats
    held: Floats
    decisions: Decisions
    needs: Needs
    first: Integers
    """Where the operators of each window begin among all of them."""
    windows: pa.Table
    ignored: int
    """Windows that were late or came twice."""


def play(state: FleetState, windows: pa.Table, settings: FleetSettings) -> RoundResult:
    """Take in the windows, oldest first, and judge every application that has a new one.

    The time of a round is the end of the application's newest window, not the clock's: the same windows give
    the same decisions, also when a batch is done again after a failure.
    """
    # most batches hold one window of each application, all of the same time: sorting nested lists is dear
    in_order = bool((np.diff(floats(windows, "end")) >= 0).all())
    windows = windows if in_order else windows.sort_by("end")
    state, rows = with_applications(state, _names(windows))
    operators = operator_columns(windows)
    needs = evaluate_ds2(operators, settings.ds2)
    taken = push(state, rows, floats(windows, "end"), _samples(windows, needs))
    place = np.flatnonzero(taken)
    # of several windows of one application the newest stands for it
    judged, last = np.unique(rows[place][::-1], return_index=True)
    newest = place[::-1][last]
    _note(state, judged, newest, windows)
    decisions = evaluate_sage(_applications(state, judged, newest, windows), settings.sage)
    held = state.held[judged]
    _remember(state, judged, newest, windows, decisions, settings)
    late = int(len(taken) - len(place))
    return RoundResult(
        state, judged, newest, state.newest[judged], held, decisions, needs, operators.first, windows, late
    )


def decision_ids(now: Floats) -> Integers:
    """A decision's number rises with time for each application: the milliseconds of its round."""
    return np.round(now * 1000).astype(np.int64)


def _names(windows: pa.Table) -> pa.StringArray:
    whole = windows["application"].combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _samples(windows: pa.Table, needs: Needs) -> NDArray[np.float32]:
    """The metrics of each window; what the agent did not compute itself is taken from its operators."""
    samples = np.empty((windows.num_rows, len(COLUMN)), dtype=np.float32)
    samples[:, COLUMN["seconds"]] = floats(windows, "end") - floats(windows, "start")
    for name in MEASURED:
        samples[:, COLUMN[name]] = floats(windows, name)
    samples[:, COLUMN["beside_heap_bytes"]] = _beside(samples)
    slots = np.nan_to_num(floats(windows, "slots_per_executor"))
    executors = np.maximum(np.ceil(needs.slots * (1 - 1e-9) / np.maximum(slots, 1)), 1)
    computed = np.minimum(np.where(slots > 0, executors, needs.instances), MOST_INSTANCES)
    computed = np.where(needs.ready & (computed >= 1), computed, np.nan)
    column = samples[:, COLUMN["needed_parallelism"]]
    samples[:, COLUMN["needed_parallelism"]] = np.where(np.isnan(column), computed, column)
    return samples


def _beside(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """What is surely beside the heap; an agent that does not tell it apart means what is likely."""
    surely = samples[:, COLUMN["beside_heap_bytes"]]
    likely = samples[:, COLUMN["memory_used_bytes"]] - samples[:, COLUMN["heap_committed_bytes"]]
    return np.where(np.isnan(surely), np.maximum(likely, np.float32(0)), surely)


def _note(state: FleetState, judged: Integers, newest: Integers, windows: pa.Table) -> None:
    """What the newest window says beside its metrics; it may end the flight of a decision."""
    acknowledged = np.nan_to_num(floats(windows, "acknowledged")[newest]).astype(np.int64)
    sent, now = state.in_flight[judged], state.newest[judged]
    answered = (sent > 0) & (acknowledged >= sent)
    held = sizes(windows)[newest]
    restarted = _differ(state.held[judged], held)
    fresh = np.where(restarted, floats(windows, "start")[newest], state.fresh_after[judged])
    state.fresh_after[judged] = np.where(answered, now, fresh)
    over = answered | (now > state.in_flight_until[judged])
    state.in_flight[judged] = np.where(over, 0, sent)
    state.held[judged] = held
    state.correlation[judged] = floats(windows, "service_correlation")[newest]
    state.acknowledged[judged] = acknowledged


def _differ(before: Floats, held: Floats) -> NDArray[np.bool_]:
    """Whether executors are of another size, which takes a restart, by whomever: what was before is over."""
    before, held = before[:, HEAP:], held[:, HEAP:]
    other = (before != held) & ~(np.isnan(before) & np.isnan(held))
    known = ~np.isnan(before[:, 0])
    differ: NDArray[np.bool_] = known & other.any(axis=1)
    return differ


def _applications(state: FleetState, judged: Integers, newest: Integers, windows: pa.Table) -> Applications:
    everyone = len(judged) == len(state.at)
    rows: slice | Integers = slice(None) if everyone else judged
    known = np.column_stack([state.too_small[rows], state.correlation[rows]])
    return Applications(
        # one layout of arrays, so that the rules are compiled once
        now=np.ascontiguousarray(state.newest[rows]),
        at=state.at[rows],
        history=state.history[rows],
        held=state.held[rows],
        known=known,
        fresh_after=state.fresh_after[rows],
        in_flight=state.in_flight[rows] > 0,
        orders=_orders(state, judged, newest, windows),
    )


def _orders(state: FleetState, judged: Integers, newest: Integers, windows: pa.Table) -> Integers:
    """Pins, vetoes and a force that was not obeyed yet."""
    orders = np.zeros((len(judged), 3), dtype=np.int64)
    if ORDERS[0] in windows.column_names:
        for place, name in enumerate(ORDERS[:3]):
            orders[:, place] = floats(windows, name)[newest]
        obeyed = windows["force_id"].to_numpy()[newest] == state.forced[judged]
        orders[obeyed, FORCED_RULE] = 0
    return orders


def _remember(
    state: FleetState,
    judged: Integers,
    newest: Integers,
    windows: pa.Table,
    decisions: Decisions,
    settings: FleetSettings,
) -> None:
    """A decision is in flight until it is acknowledged or out of date; what was too small is kept."""
    decided = decisions.rule > 0
    now = state.newest[judged]
    state.in_flight[judged] = np.where(decided, decision_ids(now), state.in_flight[judged])
    until = now + settings.sage.in_flight_seconds
    state.in_flight_until[judged] = np.where(decided, until, state.in_flight_until[judged])
    for rule, column, small in (
        (Rule.HEAP_UP, HEAP, SMALL_HEAP),
        (Rule.MEMORY_UP, OVERHEAD, SMALL_OVERHEAD),
        (Rule.CPU_UP, TASK_CPUS, SMALL_CPUS),
    ):
        held, after = state.held[judged, column], decisions.after[:, column]
        grown = (decisions.rule == int(rule)) & (after > held)
        state.too_small[judged, small] = np.where(grown, held, state.too_small[judged, small])
    lowered, after = decisions.rule == int(Rule.HEAP_DOWN), decisions.after[:, HEAP]
    known = state.too_small[judged, LOWERED_HEAP]
    state.too_small[judged, LOWERED_HEAP] = np.where(lowered, after, known)
    if ORDERS[0] in windows.column_names:
        forced = decided & (floats(windows, "forced")[newest] == decisions.rule)
        state.forced[judged[forced]] = windows["force_id"].to_numpy()[newest][forced]


def allocated(held: Floats) -> tuple[Floats, Floats]:
    """Cores and bytes that are held in all, executors times their size."""
    each = held[:, HEAP] + held[:, OVERHEAD]
    return held[:, PARALLELISM] * held[:, CORES], held[:, PARALLELISM] * each
