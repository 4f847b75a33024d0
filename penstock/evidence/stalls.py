"""What moving state did to the batches around it, held beside what Megaphone's figures show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from penstock.bench.report import Row
from penstock.evidence.findings import Finding, Verdict, agreed, incomparable

if TYPE_CHECKING:
    from penstock.bench.migration_rows import Phase

FLUID, ALL_AT_ONCE = "fluid", "all-at-once"
STALL = 1.5
"""A batch stalls that takes longer than this many usual ones, and than all of those while nothing moved."""
MOST_MEMORY = 1.1


@dataclass(frozen=True, slots=True)
class Claim:
    """What the paper says of one case; `gain`: by how much all at once is slower, None if it is not."""

    said: str
    gain: float | None


KEY_COUNT = Claim("10 to 100 times lower latency than all at once", 10.0)
QUERIES: Mapping[str, Claim] = {
    "q3": Claim("more than 100 ms all at once, 10 ms batched", 10.0),
    "q4": Claim("more than 2 s all at once, up to 100 ms batched", 20.0),
    "q5": Claim("all at once ten times the usual peaks, batched none", 10.0),
    "q6": Claim("as query 4: 20 times", 20.0),
    "q7": Claim("no difference: its state is one value", None),
    "q8": Claim("hardly any latency from either", None),
}
"""Queries of figures 5.6 to 5.11, whose fine-grained strategy is batched."""


def gain_findings(
    rows: Sequence[Row], claims: Mapping[str, Claim], conditions: str, doubts: Mapping[tuple[str, str], str]
) -> list[Finding]:
    """One for each case that has both strategies; all at once and Spark's own ways are the baseline.

    `doubts` are what is to be said of a case and system whose bins did not all move.
    """
    found = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = {row["system"]: row for row in rows if row["case"] == case}
        if FLUID not in mine or ALL_AT_ONCE not in mine:
            continue
        unsure = [doubts[case, system] for system in (ALL_AT_ONCE, FLUID) if doubts.get((case, system))]
        found.append(_gain(case, claims.get(case, KEY_COUNT), mine, conditions, "; ".join(unsure)))
    return found


def _gain(case: str, claim: Claim, mine: Mapping[str, Row], conditions: str, doubt: str) -> Finding:
    fluid, at_once = mine[FLUID], mine[ALL_AT_ONCE]
    over = {name: row["max_over_steady"] for name, row in mine.items()}
    ours = f"slowest batch over the steady one: fluid {over[FLUID]:.2f}, all at once {over[ALL_AT_ONCE]:.2f}"
    ours += f"; {at_once['bytes_moved'] / 1e6:.1f} MB moved all at once"
    others = ", ".join(f"{name} {value:.2f}" for name, value in over.items() if name != FLUID)
    verdict, why = _judged(claim, fluid, at_once)
    if doubt:
        verdict, why = Verdict.NOT_COMPARABLE, doubt
    return Finding(case, claim.said, ours, verdict, why, others, conditions)


def _judged(claim: Claim, fluid: Row, at_once: Row) -> tuple[Verdict, str]:
    stalled = {"fluid": _stalls(fluid), "all at once": _stalls(at_once)}
    if claim.gain is None:
        names = " and ".join(name for name, stalls in stalled.items() if stalls)
        return (Verdict.WORSE, f"a batch stalls: {names}") if names else (Verdict.REPRODUCED, "")
    if not any(stalled.values()):
        # a claim about stalls cannot be tried where there is none
        return Verdict.NOT_COMPARABLE, "so little state moves that no batch stalls, not even all at once"
    gain = at_once["max_batch_ms"] / fluid["max_batch_ms"]
    why = (
        f"the slowest batch all at once takes {gain:.1f} times that of fluid, published {claim.gain:g} times"
    )
    return (Verdict.REPRODUCED if gain >= claim.gain else Verdict.WORSE), why


def _stalls(row: Row) -> bool:
    return bool(row["max_over_steady"] > max(STALL, row["steady_max_over_median"]))


def memory_findings(
    rows: Sequence[Row], conditions: str, doubts: Mapping[tuple[str, str], str]
) -> list[Finding]:
    """Figure 5.19: a fluid migration hardly needs memory, one at once nearly doubles it."""
    found = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = {row["system"]: row for row in rows if row["case"] == case and row["steady_rss_bytes"]}
        over = {name: row["peak_rss_bytes"] / row["steady_rss_bytes"] for name, row in mine.items()}
        if FLUID not in over:
            continue
        said = f"{over[FLUID]:.2f} times the steady memory"
        beside = f"all at once: {over[ALL_AT_ONCE]:.2f}" if ALL_AT_ONCE in over else None
        claim, name = "hardly more than in steady state", f"{case}: peak memory, fluid (figure 5.19)"
        shown = {"baseline": beside, "conditions": conditions}
        if doubt := doubts.get((case, FLUID)):
            found.append(incomparable(name, claim, said, doubt, **shown))
        else:
            found.append(agreed(name, claim, said, over[FLUID] <= MOST_MEMORY, **shown))
    return found


def size_findings(phases: Sequence[Phase], conditions: str) -> list[Finding]:
    """Figures 5.15 to 5.17: what more bins, more keys, and more bins of one size do to slowest batches."""
    ordered = sorted(phases, key=lambda one: (one.bins, one.keys))
    fluid, at_once = ([one for one in ordered if one.system == system] for system in (FLUID, ALL_AT_ONCE))
    return [*_compared(fluid, conditions), *_grown(at_once, conditions)]


def _grown(at_once: Sequence[Phase], conditions: str) -> Iterator[Finding]:
    for few, many in combinations(at_once, 2):
        if few.bins != many.bins or few.keys == many.keys:
            continue
        ours = "; ".join(
            f"{one.keys:,} keys: {one.longest_seconds:.1f} s, all in {one.end - one.start:.0f} s"
            for one in (few, many)
        )
        name = "more keys in as many bins, all at once (figure 5.16)"
        claim = "the slowest batch and the duration grow with the state"
        grows = many.longest_seconds > few.longest_seconds and many.end - many.start > few.end - few.start
        if doubt := _doubt(few, many):
            yield incomparable(name, claim, ours, doubt, conditions=conditions)
        else:
            yield agreed(name, claim, ours, grows, conditions=conditions)


def _doubt(few: Phase, many: Phase) -> str:
    """What is to be said of migrations that did not move all bins: they cannot be compared."""
    return "; ".join(one.note for one in (few, many) if one.note)


def _compared(fluid: Sequence[Phase], conditions: str) -> Iterator[Finding]:
    for few, many in combinations(fluid, 2):
        if few.bins == many.bins:
            continue
        ours = (
            f"{few.over_steady:.2f} steady batches with {few.case}, {many.over_steady:.2f} with {many.case}"
        )
        growth = many.over_steady / few.over_steady
        if few.keys == many.keys:
            name, claim, most = "more bins, as many keys (figure 5.15)", "lower latency, fluid", 1.0
        elif few.keys * many.bins == many.keys * few.bins:
            name, claim, most = "more bins of the same size (figure 5.17)", "the same latency, fluid", STALL
        else:
            continue
        if doubt := _doubt(few, many):
            yield incomparable(name, claim, ours, doubt, conditions=conditions)
        elif max(few.over_steady, many.over_steady) <= STALL:
            why = "neither stalls: there is nothing that bins could shorten"
            yield incomparable(name, claim, ours, why, conditions=conditions)
        else:
            yield agreed(name, claim, ours, growth <= most, conditions=conditions)
