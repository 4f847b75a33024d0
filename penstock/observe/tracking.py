"""One source of one query followed over time: what it was offered and what waits (pure, bounded)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from penstock.observe.files import FileTally
from penstock.observe.latency import Arrivals, arrivals_between
from penstock.observe.progress import SourceProgress
from penstock.observe.sources import OfferedSample, offered_rate, reader_for, sampled_at, unread_records

_SAMPLES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a listing of a file source's directory showed, and whether a batch ran at that moment."""

    at: float
    files_unread: int
    files_read: int
    batch_running: bool = False


class SourceTrack:
    """Collects samples of one source; a file source's samples count files, all others' count records."""

    def __init__(self) -> None:
        self.told_by_reading = False
        """Whether records are known only as the query's own counts, which count what is read twice twice."""
        self._samples: deque[OfferedSample] = deque(maxlen=_SAMPLES_KEPT)
        self._read = 0.0
        self._files = FileTally()
        self._listed = False
        self._last_rate = math.nan
        self.arrivals: Arrivals | None = None
        """When the records of the newest batch had come; None where the source's offsets do not tell."""

    def begin(self, batch_id: int) -> None:
        """The first report of the run that was seen; batch 0 means that nothing was read before."""
        if batch_id == 0:
            self._files.started_empty()

    def missed_reports(self) -> None:
        """Spark kept fewer reports than there were: what was read in between is not counted."""
        self._files.missed_reports()
        if self.told_by_reading:
            self._samples.clear()

    def add(self, source: SourceProgress, at: float, waiting: Waiting | None) -> str | None:
        """Take in one report; the answer is a warning, where one is due."""
        self._read += source.input_records
        self.arrivals = None
        reader = reader_for(source.description)
        read = reader.records(source.end_offset, source.description)
        offered = reader.records(source.latest_offset or source.end_offset, source.description)
        if read is not None and offered is not None:
            before = self._samples[-1].read if self._samples else None
            self._samples.append(OfferedSample(sampled_at(source.latest_offset, at), offered, read))
            first = reader.records(source.start_offset, source.description)
            first = before if first is None else first
            self.arrivals = None if first is None else arrivals_between(list(self._samples), first, read)
            return None
        self.told_by_reading = True
        self._listed = reader.listed
        if reader.listed:
            self._add_files(source.input_records, waiting)
            return None
        self._samples.append(OfferedSample(at, self._read, self._read))
        return f"what is offered to {source.description} is unknown: what was read is taken instead"

    def _add_files(self, records: float, waiting: Waiting | None) -> None:
        self._files.reported(records)
        if waiting is not None:
            self._files.listed(waiting.files_read, waiting.batch_running)
            present = float(waiting.files_read + waiting.files_unread)
            self._samples.append(OfferedSample(waiting.at, present, float(waiting.files_read)))

    def offered(self, start: float, now: float, period: float) -> tuple[float, float]:
        """Records offered per second in [start, now), and the backlog in records; NaN, 0 while unknown."""
        rate = offered_rate(list(self._samples), start)
        if math.isnan(rate):
            rate = self._last_rate
        self._last_rate = rate
        unit = self._files.records_per_file if self._listed else 1.0
        if math.isnan(rate) or math.isnan(unit):
            return math.nan, 0.0
        return rate * unit, unit * unread_records(rate, period, self._samples[-1], now)
