"""How many records a file of a file source holds, told by what was read so far (pure)."""

from __future__ import annotations

import math
from collections import deque

_POINTS_KEPT = 16
"""Files may change in size: the newest points count, enough of them to even out single batches."""


class FileTally:
    """Pairs counts of files with counts of records.

    Spark counts a file as seen when the batch that reads it is planned, its records when that batch is
    reported. So a listing that was taken while a batch ran waits for that batch's report.
    """

    def __init__(self) -> None:
        self._records = 0.0
        self._points: deque[tuple[int, float]] = deque(maxlen=_POINTS_KEPT)
        self._awaiting_report: int | None = None

    def started_empty(self) -> None:
        """The query was seen from its first batch on."""
        self._points.append((0, 0.0))

    def missed_reports(self) -> None:
        """Records were read that nobody counted: what was paired so far says nothing about the rest."""
        self._points.clear()
        self._awaiting_report = None

    def reported(self, records: float) -> None:
        """A batch was reported, with the records it read."""
        self._records += records
        if self._awaiting_report is not None:
            self._points.append((self._awaiting_report, self._records))
            self._awaiting_report = None

    def listed(self, files_read: int, batch_running: bool) -> None:
        """The directory was listed; so many files have been given to batches."""
        if batch_running:
            self._awaiting_report = files_read
        else:
            self._points.append((files_read, self._records))

    @property
    def records_per_file(self) -> float:
        """Records a file, NaN until files were read between two points."""
        if not self._points:
            return math.nan
        (first_files, first_records), (files, records) = self._points[0], self._points[-1]
        return (records - first_records) / (files - first_files) if files > first_files else math.nan
