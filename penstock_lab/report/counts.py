"""Claims counted, one for each published figure or table and one for each target, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_lab.claims.claim import Claim, Verdict
from penstock_lab.report.runner import PartOutcome, PartStatus

BEST_LAST = (Verdict.WORSE, Verdict.NOT_MET, Verdict.REPRODUCED, Verdict.MET, Verdict.BETTER)
"""A claim has the first of these that one of its results has: one that is worse makes it worse."""
UNFINISHED = (PartStatus.FAILED, PartStatus.MISSING, PartStatus.LEFT)


@dataclass(frozen=True, slots=True)
class CountedClaim:
    """One claim, with all its results and the parts that they are from."""

    name: str
    results: tuple[tuple[PartOutcome, Claim], ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of its worst result; not comparable where none could be judged."""
        found = {claim.verdict for _, claim in self.results}
        return next((verdict for verdict in BEST_LAST if verdict in found), Verdict.NOT_COMPARABLE)


def count_claims(outcomes: Sequence[PartOutcome]) -> list[CountedClaim]:
    """Gather results: those of a published figure from all parts, a target of Penstock by itself."""
    found: dict[str, list[tuple[PartOutcome, Claim]]] = {}
    for outcome in outcomes:
        for claim in outcome.result.claims:
            if claim.counts:
                found.setdefault(claim.figure or f"{outcome.name}: {claim.name}", []).append((outcome, claim))
    return [CountedClaim(name, tuple(results)) for name, results in found.items()]


def list_failed(outcomes: Sequence[PartOutcome]) -> list[tuple[PartOutcome, Claim]]:
    """List the results that are worse than published or miss their target."""
    return [(outcome, claim) for outcome in outcomes for claim in outcome.result.claims if claim.failed]


def count_by_verdict(outcomes: Sequence[PartOutcome]) -> dict[Verdict, int]:
    """Count claims by their verdict, what failed first."""
    found = Counter(claim.verdict for claim in count_claims(outcomes))
    order = (*BEST_LAST, Verdict.NOT_COMPARABLE)
    return {verdict: found[verdict] for verdict in order if found[verdict]}


def count_verdicts(outcomes: Sequence[PartOutcome]) -> str:
    """Tell the claims by verdict, and the parts that have none."""
    counted = count_by_verdict(outcomes)
    total = sum(counted.values())
    said = [f"{count} {verdict.value}" for verdict, count in counted.items()]
    if total > 1:
        said[0] = f"of {total} claims {said[0]}"
    statuses = Counter(outcome.status for outcome in outcomes)
    said += [
        f"{statuses[status]} {name_parts(statuses[status])} {status.value}"
        for status in UNFINISHED
        if statuses[status]
    ]
    return ", ".join(said) or "nothing was judged"


def name_parts(count: int) -> str:
    """Return the word for so many parts."""
    return "part" if count == 1 else "parts"
