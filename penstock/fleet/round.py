"""One round for many applications: windows in, decisions and the state that follows out (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.policy import Resize
from penstock.decide.sage import columns
from penstock.decide.sage.columns import COLUMN, SIZE, Applications, Decisions
from penstock.decide.sage.metrics import Overrides, Rule
from penstock.decide.sage.rounds import WHY, judge, keep_too_small
from penstock.decide.sage.settings import SageSettings
from penstock.decide.sage.sizes import make_proposal
from penstock.fleet.decision import DECISION
from penstock.fleet.overrides import ORDERED_BY, ORDERS
from penstock.fleet.records import MEASURED, floats, sizes
from penstock.fleet.state import FleetState, add_applications, push_samples


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
    windows: pa.Table
    ignored: int
    """Windows that were late or came twice."""


def play_round(state: FleetState, windows: pa.Table, settings: SageSettings) -> RoundResult:
    """Take in the windows, oldest first, and judge every application that has a new one.

    The time of a round is the end of the application's newest window, not the clock's: the same windows give
    the same decisions, also when a batch is done again after a failure.
    """
    # most batches hold one window of each application, all of the same time
    in_order = bool((np.diff(floats(windows, "end")) >= 0).all())
    windows = windows if in_order else windows.sort_by("end")
    state, rows = add_applications(state, _names(windows))
    taken = push_samples(state, rows, floats(windows, "end"), _samples(windows))
    place = np.flatnonzero(taken)
    # of several windows of one application the newest stands for it
    judged, last = np.unique(rows[place][::-1], return_index=True)
    newest = place[::-1][last]
    _note(state, judged, newest, windows)
    decisions = judge(select_applications(state, judged, newest, windows), settings)
    held = state.held[judged]
    _remember(state, judged, newest, windows, decisions, settings)
    late = int(len(taken) - len(place))
    return RoundResult(state, judged, newest, state.newest[judged], held, decisions, windows, late)


def decision_ids(now: Floats) -> Integers:
    """Return the numbers of decisions, which rise with time: the milliseconds of their round."""
    return np.round(now * 1000).astype(np.int64)


def _names(windows: pa.Table) -> pa.StringArray:
    whole = windows["application"].combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _samples(windows: pa.Table) -> NDArray[np.float32]:
    """Return the metrics of each window."""
    samples = np.empty((windows.num_rows, len(COLUMN)), dtype=np.float32)
    samples[:, COLUMN["seconds"]] = floats(windows, "end") - floats(windows, "start")
    for name in MEASURED:
        samples[:, COLUMN[name]] = floats(windows, name)
    samples[:, COLUMN["beside_heap_bytes"]] = _beside(samples)
    return samples


def _beside(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what is surely beside the heap; where an agent does not tell it apart, what is likely."""
    surely = samples[:, COLUMN["beside_heap_bytes"]]
    likely = samples[:, COLUMN["memory_used_bytes"]] - samples[:, COLUMN["heap_committed_bytes"]]
    return np.where(np.isnan(surely), np.maximum(likely, np.float32(0)), surely)


def _note(state: FleetState, judged: Integers, newest: Integers, windows: pa.Table) -> None:
    """Note what the newest window says beside its metrics; it may end the flight of a decision."""
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
    """Return whether executors have another size: somebody restarted them, and what was before is over."""
    before, held = before[:, columns.HEAP :], held[:, columns.HEAP :]
    other = (before != held) & ~(np.isnan(before) & np.isnan(held))
    known = ~np.isnan(before[:, 0])
    differ: NDArray[np.bool_] = known & other.any(axis=1)
    return differ


def select_applications(
    state: FleetState, judged: Integers, newest: Integers, windows: pa.Table
) -> Applications:
    """Return the applications to be judged, as the rules take them."""
    everyone = len(judged) == len(state.at)
    rows: slice | Integers = slice(None) if everyone else judged
    known = np.column_stack([state.too_small[rows], state.correlation[rows]])
    return Applications(
        now=state.newest[rows],
        at=state.at[rows],
        history=state.history[rows],
        held=state.held[rows],
        known=known,
        fresh_after=state.fresh_after[rows],
        in_flight=state.in_flight[rows] > 0,
        orders=_orders(state, judged, newest, windows),
    )


def _orders(state: FleetState, judged: Integers, newest: Integers, windows: pa.Table) -> Integers:
    """Return pins, vetoes and a force that was not obeyed yet."""
    orders = np.zeros((len(judged), 3), dtype=np.int64)
    if ORDERS[0] in windows.column_names:
        for place, name in enumerate(ORDERS[:3]):
            orders[:, place] = floats(windows, name)[newest]
        obeyed = windows["force_id"].to_numpy()[newest] == state.forced[judged]
        orders[obeyed, columns.FORCED_RULE] = 0
    return orders


def _remember(
    state: FleetState,
    judged: Integers,
    newest: Integers,
    windows: pa.Table,
    decisions: Decisions,
    settings: SageSettings,
) -> None:
    """Put decisions in flight until they are acknowledged or out of date, and keep what was too small."""
    decided = decisions.rule > 0
    now = state.newest[judged]
    state.in_flight[judged] = np.where(decided, decision_ids(now), state.in_flight[judged])
    until = now + settings.in_flight_seconds
    state.in_flight_until[judged] = np.where(decided, until, state.in_flight_until[judged])
    state.too_small[judged] = keep_too_small(
        state.too_small[judged], state.held[judged], decisions.rule, decisions.after
    )
    if ORDERS[0] in windows.column_names:
        forced = decided & (floats(windows, "forced")[newest] == decisions.rule)
        state.forced[judged[forced]] = windows["force_id"].to_numpy()[newest][forced]


def tabulate_decisions(result: RoundResult, settings: SageSettings) -> pa.Table:
    """Return the decisions of a round, in the order of the applications' names."""
    decided = np.flatnonzero(result.decisions.rule > 0)
    names = result.state.names.take(pa.array(result.rows[decided])).to_pylist()
    rows = [_decision(result, int(i), name, settings) for i, name in zip(decided, names, strict=True)]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["application"])), schema=DECISION)


def _decision(result: RoundResult, place: int, name: str, settings: SageSettings) -> dict[str, object]:
    sizing = columns.sizing_of(result.decisions, place)
    assert sizing is not None
    held, now = result.held[place], float(result.now[place])
    proposal = make_proposal(columns.held_of(held), sizing, Overrides(by=_find_orderer(result, place)))
    row: dict[str, object] = {
        "application": name,
        "decision_id": int(decision_ids(result.now[place : place + 1])[0]),
        "at": now,
        "expires_at": now + settings.in_flight_seconds,
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
    return row | {"parallelism": sizing.after.parallelism}


def _find_orderer(result: RoundResult, place: int) -> str:
    if ORDERED_BY not in result.windows.column_names:
        return ""
    return str(result.windows[ORDERED_BY][int(result.window[place])].as_py() or "")


def describe_round(result: RoundResult) -> dict[str, object]:
    """Describe a round in a few numbers and words: rules that decided, why others did not."""
    back = [columns.held_back_of(int(packed)) for packed in np.unique(result.decisions.held_back) if packed]
    counts = np.bincount(result.decisions.rule, minlength=len(Rule))
    return {
        "judged": len(result.rows),
        "ignored": result.ignored,
        "decided": {f"P{rule}": int(count) for rule, count in enumerate(counts) if rule and count},
        "held_back": sorted({f"P{int(rule)}: {WHY[why]}" for pairs in back for rule, why in pairs}),
        "awaiting": sorted({columns.AWAITING[code] for code in np.unique(result.decisions.awaiting) if code}),
    }
