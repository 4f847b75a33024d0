"""Proposals and their sizes: what makes no sense, what is needed, and what keeps state from moving."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from penstock.dataflow.readiness import NotReady
from penstock.decide.manager.history import Decision, Trial
from penstock.decide.policy import (
    HELD_LOAD,
    HELD_UTILISATION,
    IDLE_SECONDS,
    PLANNED_RISK,
    SEEN_EXECUTORS,
    ExpectedEffect,
    Hold,
    MoveState,
    Proposal,
    Resize,
    Scale,
)
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Verdict, Waiting

_NEEDS_RESTARTS = "nothing here restarts the application, as new executor settings would need"
_NOT_BY_POLICIES = "state is moved by the mover and by operators, not by policies"


def object_to_proposal(proposal: Proposal, held: Mapping[str, int]) -> Rejected | None:
    """Reject a proposal that cannot be considered at all."""
    if isinstance(proposal, Resize | MoveState):
        why = _NEEDS_RESTARTS if isinstance(proposal, Resize) else _NOT_BY_POLICIES
        return Rejected("unsupported", f"{why}; proposed because: {proposal.reason}")
    if isinstance(proposal, Hold):
        return None
    return _bad_sizes(proposal, held)


def find_pending_size(answer: Proposal | NotReady, verdict: Verdict, held: Mapping[str, int]) -> str | None:
    """Say why the size may change soon after this verdict; None where it stays.

    Growth that was rejected, as beyond the most that is allowed, stays rejected; a reduction may only have
    been put off. The manager may change the size though the policy holds.
    """
    if isinstance(verdict, Accepted):
        return verdict.reason
    if not isinstance(answer, Scale):
        return None
    shrinks = any(size < held.get(unit, size) for unit, size in answer.parallelism.items())
    return verdict.reason if shrinks or not isinstance(verdict, Rejected) else None


def tell_cut_step(verdict: Verdict, trial: Trial | None) -> str | None:
    """Say that the last step went less far than was asked for; None where it did, or the size was judged."""
    if trial is None or not isinstance(verdict, Waiting) or not grows(trial.wanted, trial.action.parallelism):
        return None
    return f"the last step went less far than {write_sizes(trial.wanted)}"


def find_standing(answer: Hold | Scale, decisions: Sequence[Decision]) -> Hold | Scale:
    """Return the last decision again where the policy says that it stands; without one it is a hold."""
    last = decisions[-1].proposal if decisions else None
    if not isinstance(answer, Hold) or not answer.stands or not isinstance(last, Scale):
        return answer
    said = last.reason.partition("; it stands: ")[0]
    return replace(last, reason=f"{said}; it stands: {answer.reason}")


def tell_lapse(verdict: Verdict, recent: Sequence[Decision], held: Mapping[str, int]) -> Verdict:
    """Say of a change that it lapses: the answer before the last asked for it, and the last one holds."""
    if len(recent) < 2 or not isinstance(verdict, NothingToDo):
        return verdict
    before, last = recent[-2], recent[-1]
    if not isinstance(last.proposal, Hold) or before.need == held:
        return verdict
    asked = {unit: size for unit, size in before.need.items() if size != held.get(unit)}
    rule = f"{len(recent)} answers in a row have to ask for it, or to say that it stands"
    return replace(verdict, reason=f"{verdict.reason}; the change to {write_sizes(asked)} lapses: {rule}")


TOO_LARGE_SECONDS = 900.0
"""A size that is too large for a quarter of an hour is worth a word: something keeps it from shrinking."""


def find_oversize(
    since: float | None, now: float, answer: Proposal | NotReady, verdict: Verdict, held: Mapping[str, int]
) -> float | None:
    """Return since when less than what is held is asked for in vain; no answer changes nothing."""
    if isinstance(answer, NotReady):
        return since
    asked = answer.parallelism if isinstance(answer, Scale) else {}
    smaller = any(size < held.get(unit, size) for unit, size in asked.items()) and not grows(asked, held)
    if not smaller or isinstance(verdict, Accepted):
        return None
    return now if since is None else since


def tell_oversize(verdict: Verdict, seconds: float) -> Verdict:
    """Add to a verdict that the size has been too large for long."""
    if seconds < TOO_LARGE_SECONDS or isinstance(verdict, Accepted):
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; too large for {seconds / 60:.0f} minutes")


def object_to_move(move: MoveState) -> Rejected | None:
    """Reject moves that make no sense."""
    if not move.moves:
        return Rejected("bad-proposal", f"no bin is to move; proposed because: {move.reason}")
    return None


def _bad_sizes(scale: Scale, held: Mapping[str, int]) -> Rejected | None:
    if not scale.parallelism:
        return Rejected("bad-proposal", "a change of nothing was proposed")
    for unit, size in scale.parallelism.items():
        if unit not in held:
            return Rejected("bad-proposal", f"{unit!r} is not a unit of this application")
        # the type says int; a policy that computes with floats may still bring a NaN or a fraction
        if size < 1 or (type(size) is not int and not _is_whole(size)):
            return Rejected("bad-proposal", f"{size} is not a size that {unit!r} can have")
    if all(map(math.isfinite, scale.exact.values())):
        return None
    unit, exact = next((unit, exact) for unit, exact in scale.exact.items() if not math.isfinite(exact))
    return Rejected("bad-proposal", f"the need of {unit!r} is {exact}")


def _is_whole(size: float) -> bool:
    return math.isfinite(size) and size == int(size)


def find_need(proposal: Hold | Scale, held: Mapping[str, int]) -> dict[str, int]:
    """Return the size asked for, for every unit; holding asks for what is held."""
    asked = proposal.parallelism if isinstance(proposal, Scale) else {}
    return {unit: int(asked.get(unit, size)) for unit, size in held.items()}


def is_planned(proposal: Hold | Scale) -> bool:
    """Tell whether a policy has weighed noise, delay and the price of a change itself."""
    figures = proposal.figures if isinstance(proposal, Hold) else proposal.expected.figures
    return PLANNED_RISK in figures


def apply_sizes(scale: Scale, sizes: Mapping[str, int]) -> Scale:
    """Return the proposal with other sizes, without the figures that were predicted for the proposed ones."""
    if dict(sizes) == dict(scale.parallelism):
        return scale
    # what describes the load and the held size stays true, whatever size is chosen
    kept = {HELD_LOAD, HELD_UTILISATION, IDLE_SECONDS, PLANNED_RISK, SEEN_EXECUTORS}
    figures = {name: value for name, value in scale.expected.figures.items() if name in kept}
    summary = f"part of what was expected of {write_sizes(scale.parallelism)}: {scale.expected.summary}"
    return replace(scale, parallelism=dict(sizes), expected=ExpectedEffect(summary, figures))


def grows(sizes: Mapping[str, int], held: Mapping[str, int]) -> bool:
    """Tell whether any of these sizes is more than is held."""
    return any(size > held.get(unit, 0) for unit, size in sizes.items())


def write_sizes(sizes: Mapping[str, int]) -> str:
    """Write sizes as people read them; many units are cut short."""
    shown = [f"{unit} {size}" for unit, size in islice(sizes.items(), 4)]
    return ", ".join(shown + [f"and {len(sizes) - 4} more"] * (len(sizes) > 4))
