"""One growing event log: lines in, the summaries of the windows that they complete out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from penstock.diagnose.activity_graph import activity_graph
from penstock.diagnose.answer import findings, plain_answer
from penstock.diagnose.application_log import ApplicationLog
from penstock.diagnose.event_log import EventLogReader
from penstock.diagnose.log_trace import trace_of_log
from penstock.diagnose.log_trimming import without_old
from penstock.diagnose.participation import participation, windows
from penstock.diagnose.summary import Summary, summarise

# Events are written when the driver hears of them, which is a little after the times that they tell.
LATE_US = 2_000_000


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """What is still needed of a log that is followed; windows before `next_us` have been told."""

    window_us: int
    log: ApplicationLog | None = None
    next_us: int = -1

    def taking(self, lines: Iterable[bytes]) -> tuple[FollowedLog, list[tuple[Summary, str]]]:
        """The log with these lines, and the windows that they complete, each with its answer in words."""
        reader = EventLogReader(self.log)
        reader.feed(lines)
        log = reader.log()
        first = self.next_us if self.next_us >= 0 else log.start * 1000
        until = _complete(first, log, self.window_us)
        if log.start < 0 or until <= first:
            return replace(self, log=log, next_us=first if log.start >= 0 else -1), []
        told = list(_told(log, first, until, self.window_us))
        return replace(self, log=without_old(log, until // 1000), next_us=until), told

    @property
    def ended(self) -> bool:
        """Whether the log has told the end of its application."""
        return self.log is not None and self.log.is_complete


def _complete(first: int, log: ApplicationLog, window_us: int) -> int:
    """Up to where windows can be told: all of them at the end, before it only what cannot change any more."""
    if log.is_complete:
        return log.end * 1000 + 1
    return first + max(0, log.end * 1000 - LATE_US - first) // window_us * window_us


def _told(log: ApplicationLog, first: int, until: int, window_us: int) -> Iterator[tuple[Summary, str]]:
    graph = activity_graph(trace_of_log(log).trace, gap_threshold_us=0)
    for window in windows(graph, window_us, first, until):
        if window.end_us > window.start_us:
            summary = summarise(graph, participation(graph, window))
            yield summary, plain_answer(findings(summary, log))
