"""All parts of the evidence, in the order in which they run: short ones first."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from penstock.errors import BadInput
from penstock.evidence import measured, simulated, skewed
from penstock.evidence.running import Part

PARTS: tuple[Part, ...] = (
    Part(
        "heron",
        "DS2 against Dhalion on the word count, simulated",
        "DS2, figures 1 and 6",
        simulated.heron,
        10,
        10,
    ),
    Part(
        "two-phases",
        "DS2 when the rate changes, simulated",
        "DS2, figure 7",
        simulated.two_phases,
        5,
        5,
    ),
    Part(
        "convergence",
        "Convergence from six initial sizes, simulated",
        "DS2, table 4",
        simulated.convergence,
        15,
        30,
    ),
    Part(
        "accuracy",
        "The chosen size, one smaller, one larger, simulated",
        "DS2, figure 8",
        simulated.accuracy,
        10,
        20,
    ),
    Part(
        "skew",
        "DS2 with a skew of 20, 50 and 70 %, simulated",
        "DS2, section 4.2.3",
        skewed.skew,
        5,
        5,
    ),
    Part(
        "image-pipeline",
        "Policies on the image pipeline, simulated",
        "Elastic Pulsar Functions, figures 5 to 8",
        simulated.image_pipeline,
        20,
        20,
    ),
    Part(
        "autrascale-latency",
        "AuTraScale's instances and latency, simulated",
        "AuTraScale, tables II and III",
        simulated.autrascale,
        20,
        80,
    ),
    Part(
        "autrascale-cost",
        "Processor time of AuTraScale's algorithms",
        "AuTraScale, table IV",
        measured.autrascale_cost,
        5,
        20,
    ),
    Part(
        "diagnosis-tables",
        "Latency and throughput of the diagnosis",
        "Snailtrail, tables 3.3 and 3.4",
        measured.diagnosis_tables,
        60,
        240,
    ),
    Part(
        "word-count",
        "DS2 against Spark's dynamic allocation on a real cluster",
        "DS2, figures 1 and 6",
        measured.word_count,
        420,
        1500,
    ),
    Part(
        "overhead",
        "What watching costs",
        "DS2, figure 10",
        measured.overhead,
        200,
        600,
    ),
    Part(
        "migration",
        "State that moves while the query runs",
        "Megaphone, figures 5.1 and 5.15 to 5.19",
        measured.migration,
        300,
        900,
        ("penstock.bench.migration",),
    ),
    Part(
        "sizing",
        "Over-size after Sage's rules",
        "Sage, evaluation",
        measured.sizing,
        300,
        900,
        ("penstock.bench.sizing",),
    ),
    Part(
        "skew-remedies",
        "Skew: what diagnosis says, what migration of hot bins brings",
        "Snailtrail, figures 3.10 and 3.11",
        None,
        lacks="no run puts diagnosis and migration on skewed words yet",
    ),
    Part(
        "migration-queries",
        "Latency timelines while the state of Nexmark queries 3 to 8 moves",
        "Megaphone, figures 5.6 to 5.11",
        None,
        lacks="migration is measured with the key-count alone, not with Nexmark queries",
    ),
)


def chosen(names: Sequence[str], parts: Sequence[Part] = PARTS) -> list[Part]:
    """The parts of these names, all if none is given."""
    known = {part.name: part for part in parts}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise BadInput(f"evidence: there is no part {name!r}; {hint}")
    return [part for part in parts if not names or part.name in names]
