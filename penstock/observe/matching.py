"""Which operator reads which source, told by how many records each of them read (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.dataflow.window import SourceRate


@dataclass(frozen=True, slots=True)
class OfferedToSource:
    """One source: what a batch read of it, what it is offered, and whether only reading tells that.

    What a query reads twice, Spark counts twice in `input_records`, and so does an offer told by reading.
    """

    input_records: float
    per_second: float
    backlog_records: float
    told_by_reading: bool = False


def match_sources(read_by_leaf: Mapping[str, float], read_of_source: Sequence[float]) -> dict[int, str]:
    """Source number → the leaf operator that reads it; a leaf is shared only where leaves run out.

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
    """Leaf operator → its rate; `read` is what each leaf read in the batch that `sources` tells of.

    A leaf that no source is left for (the other side of a self-join, one more action on the same batch, a
    table that is joined) reads in proportion to the others, so its rate follows theirs.
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
        observed = observed_per_second * (_ratio(records, counted) if len(read) > 1 else 1.0)
        share = _ratio(records, matched_reads)
        own = matched.get(leaf)
        rates[leaf] = SourceRate(
            sum(source.per_second for source in own) if own else share * offered,
            observed,
            sum(source.backlog_records for source in own) if own else share * backlog,
        )
    return rates


def _told_once(source: OfferedToSource, read_by_leaf: float, leaves: int) -> OfferedToSource:
    if leaves == 1 or not source.told_by_reading:
        return source
    once = _ratio(read_by_leaf, source.input_records)
    return OfferedToSource(source.input_records, once * source.per_second, once * source.backlog_records)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
