"""The change of an application's executors as a pure state machine: executors in, instructions out.

    grow     RequestTotal ──── all registered ──────────────────────────────→ DONE
                          └─── executor timeout, or no longer needed ─→ RequestTotal(what is there) → PARTIAL
    shrink   RequestTotal, StopUsing ─ idle at a batch boundary ─→ Release ─ gone, the rest there ─→ DONE
                                    └─ drain timeout: Release anyway ──┘  └ executor timeout → PARTIAL
    shrink with state    RequestTotal, MoveAway ─ moved, or given up ─→ StopUsing ─→ as above

State moves away first, while its executors still work: then nobody has to load it all in one batch.
Whoever was told to stop is released, even when others die: Spark cannot take a StopUsing back, so an
executor that was spared would hold its place and get no tasks. Spark replaces the dead instead.

The shell that performs the instructions is `actuator.py`; `executors` never holds the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from pydantic import Field

from penstock.dataflow.window import EXECUTORS, ExecutorState
from penstock.decide.outcome import Outcome, Status
from penstock.errors import ActionFailed
from penstock.units.fields import Duration
from penstock.units.section import Section

Executors: TypeAlias = tuple[ExecutorState, ...]

LONGEST_STEP = 10.0
"""Seconds that one step counts as waiting at most: steps come about every second, so more is a clock that
was set forward or a machine that slept, and the cluster had no such time to answer in."""


@dataclass(frozen=True, slots=True)
class RequestTotal:
    """Tell Spark how many executors the application should have in all."""

    total: int


@dataclass(frozen=True, slots=True)
class StopUsing:
    """Give these executors no new tasks; what they run may finish."""

    executor_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Give these executors back to the cluster."""

    executor_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveAway:
    """Move the state of these executors to those that stay, a few bins at a time."""

    executor_ids: tuple[str, ...]


Instruction: TypeAlias = RequestTotal | StopUsing | Release | MoveAway


class ScalingPhase(Enum):
    """The phases of a change."""

    GROWING = "waiting for executors to register"
    MOVING = "moving state off the chosen executors"
    DRAINING = "letting the tasks of the chosen executors finish"
    RELEASING = "waiting until the released executors are gone and those that died are replaced"


class ScalingSettings(Section):
    """How long a change may wait, in seconds."""

    executor_timeout: Duration = Field(
        60.0, gt=0, le=86400, description="How long to wait for requested executors to register."
    )
    drain_timeout: Duration = Field(
        120.0, gt=0, le=86400, description="How long an executor that is to be released may finish its tasks."
    )
    move_timeout: Duration = Field(1800.0, gt=0)
    """For state to move, which is bounded by itself as well."""


@dataclass(frozen=True, slots=True)
class ExecutorChange:
    """A change under way.

    Waited seconds are summed from step to step, so a clock that jumps neither prolongs a wait nor ends it.
    """

    wanted: int
    held_before: int
    patience: ScalingSettings
    phase: ScalingPhase
    seen_at: float
    waited: float = 0.0
    waited_in_phase: float = 0.0
    leaving: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalingProgress:
    """The change after a step, what is to be done now, and the outcome once it has ended."""

    change: ExecutorChange
    instructions: tuple[Instruction, ...] = ()
    outcome: Outcome | None = None


def begin_change(
    now: float,
    wanted: int,
    executors: Executors,
    patience: ScalingSettings | None = None,
    can_move: bool = False,
) -> ScalingProgress:
    """Start a change from the executors that are there now, whatever was there when it was decided.

    `can_move`: state can be moved off executors before they go.
    """
    if wanted < 1:
        raise ActionFailed(f"cannot scale to {wanted} executors: an application needs at least one")
    held = len(executors)
    phase = ScalingPhase.GROWING if wanted >= held else ScalingPhase.DRAINING
    leaving = rank_by_loss(executors)[: held - wanted] if wanted < held else ()
    change = ExecutorChange(wanted, held, patience or ScalingSettings(), phase, now, leaving=leaving)
    # The total is requested even when it is already held, and before a drain: otherwise Spark would
    # replace an executor that died between decision and action, or that dies while it drains.
    ask = RequestTotal(wanted)
    if wanted == held:
        return _end_change(change, executors, (ask,), (f"{held} were held already",))
    if not leaving:
        return ScalingProgress(change, (ask,))
    hosting = any(executor.state_bins for executor in executors if executor.executor_id in leaving)
    if can_move and hosting:
        return ScalingProgress(replace(change, phase=ScalingPhase.MOVING), (ask, MoveAway(leaving)))
    return ScalingProgress(change, (ask, StopUsing(leaving)))


def step_change(
    change: ExecutorChange,
    now: float,
    executors: Executors,
    batch_boundary: bool,
    moving: bool = False,
    stayed: str = "",
) -> ScalingProgress:
    """Advance by the executors that are there now.

    `batch_boundary`: no batch of any query is running; `moving`: the state is still under way; `stayed`: why
    some of it did not move.
    """
    change = _pass_time(change, now)
    if change.phase is ScalingPhase.GROWING:
        return _grow(change, executors)
    if change.phase is ScalingPhase.MOVING:
        return _move(change, executors, moving, stayed)
    if change.phase is ScalingPhase.DRAINING:
        return _drain(change, executors, batch_boundary)
    return _await_gone(change, executors, ())


def withdraw_order(change: ExecutorChange, executors: Executors, why: str) -> ScalingProgress | None:
    """Stop waiting for executors that have not registered; None where none are awaited."""
    if change.phase is not ScalingPhase.GROWING or len(executors) >= change.wanted:
        return None
    return _settle_for_less(change, executors, change.waited, why)


def abandon_change(wanted: int, stopped: tuple[str, ...]) -> tuple[Instruction, ...]:
    """Release, when a change is broken off, all who were told to stop: they would get no tasks."""
    return _release_all(stopped, wanted) if stopped else ()


def rank_by_loss(executors: Iterable[ExecutorState]) -> tuple[str, ...]:
    """Order ids by least state, least cached data, fewest running tasks; among equals the newest first."""
    newest_first = sorted(executors, key=lambda e: _age(e.executor_id), reverse=True)
    ordered = sorted(newest_first, key=lambda e: (e.state_bins, e.cached_bytes, e.active_tasks))
    return tuple(executor.executor_id for executor in ordered)


def _age(executor_id: str) -> tuple[int, str]:
    """Return a key that grows as executors come: Spark numbers them in order."""
    return (int(executor_id) if executor_id.isdecimal() else -1, executor_id)


def _pass_time(change: ExecutorChange, now: float) -> ExecutorChange:
    passed = min(max(0.0, now - change.seen_at), LONGEST_STEP)
    return replace(
        change, seen_at=now, waited=change.waited + passed, waited_in_phase=change.waited_in_phase + passed
    )


def _grow(change: ExecutorChange, executors: Executors) -> ScalingProgress:
    here, wanted = len(executors), change.wanted
    if here >= wanted:
        return _end_change(change, executors, (), (f"{here} registered after {change.waited:.0f} s",))
    if change.waited_in_phase < change.patience.executor_timeout:
        return ScalingProgress(change)
    why = "an executor died" if here < change.held_before else "the cluster has no room for more"
    return _settle_for_less(change, executors, change.patience.executor_timeout, why)


def _settle_for_less(
    change: ExecutorChange, executors: Executors, seconds: float, why: str
) -> ScalingProgress:
    """End a growth with fewer executors than it asked for.

    Otherwise Spark would go on asking for what the cluster could not give, and executors would join long
    after the outcome is written. What was held before is kept as the floor, so that the dead are replaced.
    """
    settled = max(len(executors), change.held_before)
    here = f"{len(executors)} registered within {seconds:.0f} s"
    note = f"asked for {change.wanted}, {here}: {why}; the total is set back to {settled}"
    return _end_change(change, executors, (RequestTotal(settled),), (note,))


def _move(change: ExecutorChange, executors: Executors, moving: bool, stayed: str) -> ScalingProgress:
    """Wait for the state; whether or not all of it moved, the executors go: Spark can load the rest."""
    here = {executor.executor_id for executor in executors}
    change = _strike_lost(change, dict.fromkeys(here, 0))
    in_time = change.waited_in_phase < change.patience.move_timeout
    if moving and change.leaving and in_time:
        return ScalingProgress(change)
    note = _describe_move(change, moving and bool(change.leaving), stayed)
    drained = replace(change, phase=ScalingPhase.DRAINING, waited_in_phase=0.0, notes=(*change.notes, note))
    return ScalingProgress(drained, (StopUsing(drained.leaving),) if drained.leaving else ())


def _describe_move(change: ExecutorChange, too_slow: bool, stayed: str) -> str:
    took = f"state was moved away in {change.waited_in_phase:.0f} s"
    if too_slow:
        return f"not all {took}, which is too long"
    return f"not all {took}: {stayed}" if stayed else took


def _drain(change: ExecutorChange, executors: Executors, batch_boundary: bool) -> ScalingProgress:
    running = {executor.executor_id: executor.active_tasks for executor in executors}
    change = _strike_lost(change, running)
    going = change.leaving
    if not going:
        # they may be gone because of a Release whose answer was lost, before the total was said again
        return _await_gone(_begin_release(change), executors, (RequestTotal(change.wanted),))
    idle = not any(running[executor_id] for executor_id in going)
    if idle and batch_boundary:
        return _release(change, f"released {_name(going)}")
    if change.waited_in_phase < change.patience.drain_timeout:
        return ScalingProgress(change)
    # A drain that never ends would block every later decision; Spark runs lost tasks again elsewhere.
    while_what = "while a batch ran" if idle else "while tasks still ran there"
    drained = f"after a drain of {change.patience.drain_timeout:.0f} s"
    return _release(change, f"released {_name(going)} {while_what}, {drained}")


def _strike_lost(change: ExecutorChange, running: dict[str, int]) -> ExecutorChange:
    """Strike from the chosen those that died; no other is chosen in their place."""
    lost = [executor_id for executor_id in change.leaving if executor_id not in running]
    if not lost:
        return change
    there = tuple(executor_id for executor_id in change.leaving if executor_id in running)
    note = f"{_name(lost)} left by itself during the drain"
    return replace(change, leaving=there, notes=(*change.notes, note))


def _release(change: ExecutorChange, note: str) -> ScalingProgress:
    change = replace(_begin_release(change), notes=(*change.notes, note))
    return ScalingProgress(change, _release_all(change.leaving, change.wanted))


def _release_all(executor_ids: tuple[str, ...], wanted: int) -> tuple[Instruction, ...]:
    # killing lowers Spark's own total by as many, so the wanted total is said again afterwards
    return (Release(executor_ids), RequestTotal(wanted))


def _begin_release(change: ExecutorChange) -> ExecutorChange:
    return replace(change, phase=ScalingPhase.RELEASING, waited_in_phase=0.0)


def _await_gone(
    change: ExecutorChange, executors: Executors, instructions: tuple[Instruction, ...]
) -> ScalingProgress:
    """Wait for the released to go, and for Spark to replace any that died below the wanted total."""
    here = {executor.executor_id for executor in executors}
    staying = [executor_id for executor_id in change.leaving if executor_id in here]
    if not staying and len(here) >= change.wanted:
        joined = len(here) - change.wanted
        notes = (f"{joined} joined meanwhile",) if joined else ()
        return _end_change(change, executors, instructions, notes)
    if change.waited_in_phase < change.patience.executor_timeout:
        return ScalingProgress(change, instructions)
    what = f"{_name(staying)} still registered" if staying else f"only {len(here)} of {change.wanted} there"
    note = f"{what} {change.patience.executor_timeout:.0f} s after the release"
    return _end_change(change, executors, instructions, (note,))


def _end_change(
    change: ExecutorChange,
    executors: Executors,
    instructions: tuple[Instruction, ...],
    notes: tuple[str, ...],
) -> ScalingProgress:
    observed = len(executors)
    enough = observed >= change.wanted if change.phase is ScalingPhase.GROWING else observed == change.wanted
    useless = any(executor.executor_id in change.leaving for executor in executors)
    outcome = Outcome(
        status=Status.DONE if enough and not useless else Status.PARTIAL,
        planned={EXECUTORS: change.wanted},
        requested={EXECUTORS: change.wanted},
        observed={EXECUTORS: observed},
        seconds=change.waited,
        detail="; ".join((*change.notes, *notes)),
    )
    return ScalingProgress(change, instructions, outcome)


def _name(executor_ids: Iterable[str]) -> str:
    ids = tuple(executor_ids)
    return f"executor{'s' if len(ids) > 1 else ''} {', '.join(ids)}"
