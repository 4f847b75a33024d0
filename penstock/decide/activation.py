"""Several policy decisions become one (activation time, DS2 section 4.2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.decide.guardrails import resized
from penstock.decide.history import Decision
from penstock.decide.manager_settings import Statistic
from penstock.decide.policy import ExpectedEffect, Hold, Scale


def combined_need(
    decisions: Sequence[Decision], held: Mapping[str, int], statistic: Statistic
) -> dict[str, int]:
    """The median or the maximum of the decisions, for each unit."""
    needs = [decision.need for decision in decisions]
    if all(need == needs[0] for need in needs) and needs[0].keys() == held.keys():
        return dict(needs[0])
    combined = {}
    for unit, size in held.items():
        asked = sorted([need.get(unit, size) for need in needs])
        same = asked[0] == asked[-1] or statistic is Statistic.MAXIMUM
        combined[unit] = asked[-1] if same else _median(asked, size)
    return combined


def as_scale(decisions: Sequence[Decision], sizes: Mapping[str, int], held: Mapping[str, int]) -> Scale:
    """The combined size as one change, in the words of the last decision that asked for just that."""
    exactly = [decision.proposal for decision in decisions if decision.need == sizes]
    if exactly:
        return as_change(exactly[-1], sizes)
    if sizes == held:
        return as_change(
            Hold(f"the last {len(decisions)} decisions, taken together, ask for what is held"), sizes
        )
    scales = [decision for decision in decisions if isinstance(decision.proposal, Scale)]
    last = scales[-1]
    return resized(as_change(last.proposal, last.need), sizes)


def as_change(proposal: Hold | Scale, sizes: Mapping[str, int]) -> Scale:
    """A proposal that names every unit."""
    if isinstance(proposal, Hold):
        return Scale(dict(sizes), proposal.reason, ExpectedEffect("no change", proposal.figures))
    return Scale(dict(sizes), proposal.reason, proposal.expected, proposal.exact)


def _median(sizes: Sequence[int], held: int) -> int:
    """Of two middle sizes the larger, unless only that one asks for growth: then one outlier would decide."""
    lower, upper = sizes[(len(sizes) - 1) // 2], sizes[len(sizes) // 2]
    return held if lower <= held < upper else upper
