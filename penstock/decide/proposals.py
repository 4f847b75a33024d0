"""What a policy's answer must be like before it is considered."""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.decide.policy import Hold, MoveState, Proposal, Resize, Scale
from penstock.decide.verdict import Rejected

_NEEDS_RESTARTS = "nothing here restarts the application, as new executor settings would need"
_NOT_BY_POLICIES = "state is moved by the mover and by operators, not by policies"


def objection(proposal: Proposal, held: Mapping[str, int]) -> Rejected | None:
    """Why a proposal cannot be considered at all, if so."""
    if isinstance(proposal, Resize | MoveState):
        why = _NEEDS_RESTARTS if isinstance(proposal, Resize) else _NOT_BY_POLICIES
        return Rejected("unsupported", f"{why}; proposed because: {proposal.reason}")
    if isinstance(proposal, Hold):
        return None
    return _bad_sizes(proposal, held)


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


def need(proposal: Hold | Scale, held: Mapping[str, int]) -> dict[str, int]:
    """The size asked for, for every unit; holding asks for what is held."""
    asked = proposal.parallelism if isinstance(proposal, Scale) else {}
    return {unit: int(asked.get(unit, size)) for unit, size in held.items()}
