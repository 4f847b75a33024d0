"""One source followed over time, and the operator that reads it (pure, bounded)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from penstock.dataflow.window import SourceRate
from penstock.observe.latency import Arrivals, arrivals_between
from penstock.observe.progress import SourceProgress
from penstock.observe.running import ObservedRun
from penstock.observe.sources.files import FileTrack
from penstock.observe.sources.offered import (
    OfferedSample,
    explain_break,
    offered_rate,
    reader_for,
    sampled_at,
    unread_records,
)

_SAMPLES_KEPT = 64
_TABLE_SCANS = ("Scan ", "FileScan ", "BatchScan ")


class Track(Protocol):
    """One source followed over time."""

    arrivals: Arrivals | None
    """When the records of the newest batch had come; None where the source does not tell."""

    @property
    def problem(self) -> str:
        """Why it is not known now what is offered; empty where it is."""

    @property
    def told_by_reading(self) -> bool:
        """Whether records are known only as the query's own counts, which count what is read twice twice."""

    @property
    def files(self) -> int | None:
        """How many files the newest batch took; None where that is not known, or the source is no files."""

    @property
    def idle_seconds(self) -> float:
        """For how long the source has been seen to offer nothing while nothing waited; 0 if unknown."""

    def add(self, source: SourceProgress, at: float) -> str | None:
        """Take in one report; the answer is a warning, where one is due."""

    def missed_reports(self) -> None:
        """Spark kept fewer reports than there were: what was read in between is not counted."""

    def measure_offered(self, start: float, now: float, period: float, at_rest: bool) -> tuple[float, float]:
        """Return the rate offered in [start, now), and the backlog in records; NaN and 0 while unknown.

        A query `at_rest` waits for something to come, so nothing waits for it but what was seen to.
        """


def begin_track(description: str) -> Track:
    """Begin to follow the source so described."""
    return FileTrack() if reader_for(description).listed else OffsetTrack()


class OffsetTrack:
    """Collects samples of one source by its offsets, or by what was read where they say nothing."""

    files = None

    def __init__(self) -> None:
        self.told_by_reading = False
        self.problem = ""
        self.arrivals: Arrivals | None = None
        self._problem_told = True
        self._latest: Any = None
        self._samples: deque[OfferedSample] = deque(maxlen=_SAMPLES_KEPT)
        self._read = 0.0
        self._last_rate = math.nan
        self._idle_since: float | None = None
        self._has_begun = False
        """Whether the newest sample is of a batch that has begun, and will be reported."""

    def begin(self, source: SourceProgress, at: float) -> str | None:
        """Take in what is offered as a batch begins: its report comes when it ends, maybe minutes later."""
        latest = source.latest_offset or source.end_offset
        offered = reader_for(source.description).records(latest, source.description)
        if offered is None or not self._samples or self._has_begun:
            return None
        read = self._samples[-1].read
        self._begin_anew(source.description, latest, offered)
        if self._samples:
            self._samples.append(OfferedSample(sampled_at(source.latest_offset, at), offered, read))
            self._has_begun = True
        return None if self._problem_told else self.problem

    def missed_reports(self) -> None:
        """Spark kept fewer reports than there were: what was read in between is not counted."""
        if self.told_by_reading:
            self._samples.clear()

    def add(self, source: SourceProgress, at: float) -> str | None:
        """Take in one report; the answer is a warning, where one is due."""
        if self._has_begun:
            self._samples.pop()
            self._has_begun = False
        self._read += source.input_records
        self.arrivals = None
        if self._problem_told:
            self.problem = ""
        reader = reader_for(source.description)
        read = reader.records(source.end_offset, source.description)
        latest = source.latest_offset or source.end_offset
        offered = reader.records(latest, source.description)
        if read is not None and offered is not None:
            self._begin_anew(source.description, latest, offered)
            before = self._samples[-1].read if self._samples else None
            self._note(OfferedSample(sampled_at(source.latest_offset, at), offered, read))
            first = reader.records(source.start_offset, source.description)
            first = before if first is None else first
            self.arrivals = None if first is None else arrivals_between(list(self._samples), first, read)
            return None if self._problem_told else self.problem
        self.told_by_reading = True
        self._samples.append(OfferedSample(at, self._read, self._read))
        return f"what is offered to {source.description} is unknown: what was read is taken instead"

    def _begin_anew(self, description: str, latest: Any, offered: float) -> None:
        """Forget the samples that offsets of now cannot be compared with, and say why."""
        before, self._latest = self._latest, latest
        broken = None
        if self._samples:
            broken = explain_break(before, latest) if _has_partitions(latest) else None
            if offered < self._samples[-1].offered:
                broken = (
                    broken or f"its count went back from {self._samples[-1].offered:,.0f} to {offered:,.0f}"
                )
        if broken is not None:
            self._samples.clear()
            self._last_rate = math.nan
            self.problem = f"{description} was made anew or changed ({broken}): counting starts again"
            self._problem_told = False

    def _note(self, sample: OfferedSample) -> None:
        before = self._samples[-1] if self._samples else None
        if before is None or sample.offered != before.offered or sample.read < sample.offered:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = before.at
        self._samples.append(sample)

    @property
    def idle_seconds(self) -> float:
        """Until the newest report: a query that does not report is not known to be idle."""
        return 0.0 if self._idle_since is None else max(0.0, self._samples[-1].at - self._idle_since)

    def measure_offered(
        self, start: float, now: float, period: float, at_rest: bool = False
    ) -> tuple[float, float]:
        """Return the rate offered in [start, now), and the backlog in records; NaN and 0 while unknown.

        A break of the count makes one window unknown, however many reports came since.
        """
        if self.problem:
            self._problem_told = True
            return math.nan, 0.0
        rate = offered_rate(list(self._samples), start, now)
        if math.isnan(rate):
            rate = self._last_rate
        self._last_rate = rate
        if math.isnan(rate):
            return math.nan, 0.0
        newest = self._samples[-1]
        return rate, unread_records(rate, period, newest, newest.at if at_rest else now)


@dataclass(frozen=True, slots=True)
class OfferedToSource:
    """One source: what a batch read of it, what it is offered, and whether only reading tells that.

    What a query reads twice, Spark counts twice in `input_records`, and so does an offer told by reading.
    """

    input_records: float
    per_second: float
    backlog_records: float
    told_by_reading: bool = False
    problem: str = ""


def match_sources(read_by_leaf: Mapping[str, float], read_of_source: Sequence[float]) -> dict[int, str]:
    """Return source number → the leaf operator that reads it; a leaf is shared only where leaves run out.

    Progress names no stage, so counts decide; among equals names do, and those keep their plan's order.
    """
    matched: dict[int, str] = {}
    leaves = sorted(read_by_leaf)
    for number, records in enumerate(read_of_source):
        unmatched = [leaf for leaf in leaves if leaf not in matched.values()] or leaves
        matched[number] = min(unmatched, key=lambda leaf: abs(read_by_leaf[leaf] - records))
    return matched


def rates_of_leaves(
    read: Mapping[str, float], sources: Sequence[OfferedToSource], observed_per_second: float
) -> dict[str, SourceRate]:
    """Return leaf operator → its rate; `read` is what each leaf read in the batch that `sources` tells of.

    A leaf that no source is left for (the other side of a self-join, one more action on the same batch) reads
    in proportion to the others, so its rate follows theirs. A table that is joined has none.
    """
    matched: dict[str, list[OfferedToSource]] = {}
    for number, leaf in match_sources(read, [source.input_records for source in sources]).items():
        matched.setdefault(leaf, []).append(_told_once(sources[number], read[leaf], len(read)))
    offered = sum(source.per_second for some in matched.values() for source in some)
    backlog = sum(source.backlog_records for some in matched.values() for source in some)
    matched_reads = sum(read[leaf] for leaf in matched)
    counted = sum(source.input_records for source in sources)
    rates: dict[str, SourceRate] = {}
    for leaf, records in read.items():
        if leaf not in matched and _is_table(leaf, matched, records, counted - matched_reads):
            rates[leaf] = SourceRate(0.0, 0.0, rows_per_batch=records)
            continue
        observed = observed_per_second * (_ratio(records, counted) if len(read) > 1 else 1.0)
        share = _ratio(records, matched_reads)
        own = matched.get(leaf)
        rates[leaf] = SourceRate(
            sum(source.per_second for source in own) if own else share * offered,
            observed,
            sum(source.backlog_records for source in own) if own else share * backlog,
            unknown_because="; ".join(one.problem for one in own or sources if one.problem),
        )
    return rates


def _is_table(leaf: str, streams: Iterable[str], records: float, counted_beside: float) -> bool:
    """Tell a table that is joined: its scan is of another kind, and Spark does not count it for a source."""
    kind = _kind_of_scan(leaf)
    is_other = kind.startswith(_TABLE_SCANS) and kind not in map(_kind_of_scan, streams)
    return is_other and counted_beside < records / 2


def _kind_of_scan(leaf: str) -> str:
    """Return the first plan node of a leaf with what it reads, such as `Scan parquet`."""
    return " ".join(leaf.split(" + ", maxsplit=1)[0].split()[:2])


def rates_of_running(run: ObservedRun, offers: Sequence[tuple[float, float]]) -> dict[str, SourceRate]:
    """Return leaf operator → its rate while the first batch runs; NaN where sources cannot be told apart.

    `offers` has the rate and the backlog of each source. The leaves of a single source all read it.
    """
    leaves = [operator.name for operator in run.operators if not operator.fed_by]
    if len(offers) == 1 or (offers and len(leaves) == 1):
        offered, backlog = sum(offer for offer, _ in offers), sum(left for _, left in offers)
    else:
        offered, backlog = math.nan, 0.0
    read = {stage.operator: stage.records_done for stage in run.batch.stages}
    return {
        leaf: SourceRate(offered, _ratio(read.get(leaf, 0.0), run.batch.seconds), backlog) for leaf in leaves
    }


def _told_once(source: OfferedToSource, read_by_leaf: float, leaves: int) -> OfferedToSource:
    if leaves == 1 or not source.told_by_reading:
        return source
    once = _ratio(read_by_leaf, source.input_records)
    return replace(source, per_second=once * source.per_second, backlog_records=once * source.backlog_records)


def _has_partitions(offset: Any) -> bool:
    return isinstance(offset, Mapping) and all(isinstance(one, Mapping) for one in offset.values())


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
