"""DS2 against Dhalion on a real cluster: the word count as two functions with instances of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.bench.report import Row
from penstock.evidence.findings import (
    Chart,
    Finding,
    PartResult,
    agreed,
    incomparable,
    judged,
    steps_judged,
    unmeasured,
)
from penstock.evidence.running import in_short

if TYPE_CHECKING:
    from penstock.bench.wordcount_functions import Sample

Progress = Callable[[str], None]
Courses = Mapping[str, Sequence["Sample"]]

DS2, DHALION = "ds2", "dhalion"
PACED = "real cluster, 30 sentences a second, paced functions with instances of their own; published: Heron"


def word_count_functions(_quick: bool, progress: Progress) -> PartResult:
    """Figures 1 and 6: both policies from the same few instances, one after the other on one cluster."""
    from penstock.bench import wordcount_functions as bench
    from penstock.bench.spark_cluster import cluster

    rows: dict[str, Row] = {}
    courses: dict[str, Sequence[Sample]] = {}
    failures, lengths = [], {system: bench.SECONDS[system] for system in (DS2, DHALION)}
    with cluster(bench.SHAPE) as spark:
        progress("warming up")
        bench.run_system(spark, "threshold", bench.WARM_UP_SECONDS)
        for system, seconds in lengths.items():
            progress(f"{system}: {seconds:.0f} s")
            try:
                rows[system], courses[system] = bench.run_system(spark, system, seconds)
            except Exception as error:
                failures.append(f"{system} could not be measured: {in_short(str(error))}")
    findings = [*findings_of(rows.get(DS2), rows.get(DHALION)), *unmeasured(failures, len(rows), PACED)]
    return PartResult(findings, charts(courses), bench.notes(lengths))


def findings_of(ds2: Row | None, dhalion: Row | None) -> list[Finding]:
    """What DS2 does, with Dhalion as its baseline, and what is published of Dhalion."""
    found = []
    if ds2 is not None:
        found += _ds2(ds2, dhalion)
    if dhalion is not None:
        found += _dhalion(ds2, dhalion)
    return found


def _ds2(row: Row, other: Row | None) -> list[Finding]:
    steps, sizes, waited = (
        (f"dhalion: {other['steps']}", f"dhalion: {_sizes(other)}", f"dhalion: {_waited(other)}")
        if other
        else (None, None, None)
    )
    exact = row["final"] == row["optimal"]
    paper = "the paper has none"
    return [
        steps_judged("steps of DS2 (figure 6)", 1, row["steps"], baseline=steps, conditions=PACED),
        agreed(
            "instances of split and count, DS2",
            "10 and 20, the least that keep up",
            _sizes(row),
            exact,
            baseline=sizes,
            conditions=PACED,
        ),
        incomparable(
            "records that waited, DS2", None, _waited(row), paper, baseline=waited, conditions=PACED
        ),
    ]


def _dhalion(ds2: Row | None, row: Row) -> list[Finding]:
    more = sum(row["final"].values()) > sum(row["optimal"].values())
    found = [
        agreed(
            "Dhalion takes more than one step", "6", str(row["steps"]), row["steps"] > 1, conditions=PACED
        ),
        agreed("Dhalion holds more than it needs", "22 and 30", _sizes(row), more, conditions=PACED),
    ]
    ours, theirs = (one["seconds_to_converge"] if one else None for one in (ds2, row))
    ratio = theirs / ours if ours and theirs else None
    why = "both wait for the long batches of the first sizes, which take most of DS2's time"
    name = "seconds to the last size, Dhalion's over DS2's (figure 6)"
    return [*found, judged(name, 2000 / 60, ratio, lower_is_better=False, why=why, conditions=PACED)]


def _sizes(row: Row) -> str:
    return " and ".join(str(row["final"][name]) for name in ("split", "count"))


def _waited(row: Row) -> str:
    return f"{row['backlog_record_seconds']:,} record-seconds"


def charts(courses: Courses) -> list[Chart]:
    """Instances of each function over time (figure 6), and the records that wait meanwhile (figure 1)."""
    if not courses:
        return []
    held, waiting = [], []
    for system, samples in courses.items():
        at = [round(one.at - samples[0].at, 1) for one in samples]
        held += [
            (f"{system}, {name}", at, [float(one.sizes[name]) for one in samples])
            for name in (samples[0].sizes if samples else ())
        ]
        waiting.append((system, at, [one.waiting for one in samples]))
    return [
        Chart("instances on a cluster (figure 6)", "seconds", "instances", held, steps=True),
        Chart("records that wait (figure 1)", "seconds", "records", waiting),
    ]
