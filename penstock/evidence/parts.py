"""All parts of the evidence, in the order in which they run: short ones first."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from penstock.errors import BadInput
from penstock.evidence import (
    against_dhalion,
    converging,
    diagnosed,
    images,
    latency_targets,
    measured,
    moving,
    other_rates,
    simulated,
    skewed,
    word_counts,
)
from penstock.evidence.running import Part

PARTS: tuple[Part, ...] = (
    Part(
        "heron",
        "DS2 against Dhalion on the word count, simulated",
        "DS2, figures 1 and 6",
        simulated.heron,
        2,
        2,
    ),
    Part(
        "two-phases",
        "DS2 when the rate changes, simulated",
        "DS2, figure 7",
        simulated.two_phases,
        1,
        1,
    ),
    Part(
        "convergence",
        "Convergence from six initial sizes, simulated",
        "DS2, table 4",
        simulated.convergence,
        1,
        3,
    ),
    Part(
        "accuracy",
        "The chosen size, one smaller, one larger, simulated",
        "DS2, figure 8",
        simulated.accuracy,
        1,
        1,
    ),
    Part(
        "skew",
        "DS2 with a skew of 20, 50 and 70 %, simulated",
        "DS2, section 4.2.3",
        skewed.skew,
        1,
        1,
    ),
    Part(
        "image-pipeline",
        "Policies on the image pipeline, simulated",
        "Elastic Pulsar Functions, figures 5 to 8",
        images.image_pipeline,
        1,
        1,
    ),
    Part(
        "autrascale-latency",
        "AuTraScale's instances and latency, simulated",
        "AuTraScale, tables II and III",
        latency_targets.latency_targets,
        3,
        10,
    ),
    Part(
        "autrascale-rates",
        "What AuTraScale learned at one rate, used at the next, simulated",
        "AuTraScale, figure 8",
        other_rates.other_rates,
        3,
        8,
    ),
    Part(
        "autrascale-cost",
        "Processor time of AuTraScale's algorithms",
        "AuTraScale, table IV",
        measured.autrascale_cost,
        3,
        20,
    ),
    Part(
        "diagnosis-tables",
        "Latency and throughput of the diagnosis",
        "Snailtrail, tables 3.3 and 3.4",
        diagnosed.diagnosis_tables,
        8,
        45,
    ),
    Part(
        "word-count",
        "DS2 against Spark's dynamic allocation on a real cluster",
        "DS2, figures 1, 6, 7 and 8",
        word_counts.word_count,
        190,
        1690,
    ),
    Part(
        "word-count-functions",
        "DS2 against Dhalion on a real cluster",
        "DS2, figures 1 and 6",
        against_dhalion.word_count_functions,
        None,
        560,
    ),
    Part(
        "overhead",
        "What watching costs",
        "DS2, figure 10",
        word_counts.overhead,
        None,
        530,
    ),
    Part(
        "migration",
        "State that moves while the key-count runs",
        "Megaphone, figures 5.1 and 5.15 to 5.19",
        moving.migration,
        80,
        820,
    ),
    Part(
        "migration-queries",
        "State that moves while Nexmark queries 3 to 8 run",
        "Megaphone, figures 5.6 to 5.11",
        moving.migration_queries,
        60,
        680,
    ),
    Part(
        "bottlenecks",
        "The operator to scale and the driver, as diagnosis finds them",
        "Snailtrail, figures 3.1, 3.8 and 3.11",
        diagnosed.bottlenecks,
        45,
        80,
    ),
    Part(
        "hot-keys",
        "Skew on a real cluster: what diagnosis says, what DS2 does, what moving bins brings",
        "Snailtrail, figure 3.10; DS2, section 4.2.3",
        diagnosed.hot_keys,
        120,
        300,
    ),
    Part(
        "image-pipeline-cluster",
        "Policies on the image pipeline, a real cluster",
        "Elastic Pulsar Functions, figures 5 to 8",
        images.image_pipeline_cluster,
        None,
        580,
        ("penstock.bench.images",),
    ),
    Part(
        "convergence-cluster",
        "Convergence from two initial sizes on a real cluster",
        "DS2, table 4",
        converging.convergence_cluster,
        None,
        1100,
    ),
    Part(
        "sizing",
        "Over-size after Sage's rules",
        "Sage, evaluation",
        measured.sizing,
        None,
        600,
        ("penstock.bench.sizing",),
    ),
)


def chosen(names: Sequence[str], parts: Sequence[Part] = PARTS) -> list[Part]:
    """The parts of these names, all if none is given."""
    known = {part.name: part for part in parts}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise BadInput(f"evidence: there is no part {name!r}; {hint}")
    return [part for part in parts if not names or part.name in names]
