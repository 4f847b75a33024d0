"""Follow one growing event log: lines in, summaries of the windows that they complete out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.answer import answer_in_words
from penstock.diagnose.explain import list_findings
from penstock.diagnose.log.application import ApplicationLog, Batch, Executor, Stage, Tasks
from penstock.diagnose.log.reader import EventLogReader
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.summary import Summary, summarise_graph
from penstock.diagnose.trace.from_log import build_timelines

# The driver writes an event when it hears of it, a little after the times that the event has.
LATE_US = 2_000_000


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """The part of a followed log that is still needed; windows before `next_us` are done."""

    window_us: int
    log: ApplicationLog | None = None
    next_us: int = -1

    def take_lines(self, lines: Iterable[bytes]) -> tuple[FollowedLog, list[tuple[Summary, str]]]:
        """Return the log with these lines, and the windows they complete, each with its answer in words."""
        reader = EventLogReader(self.log)
        reader.feed(lines)
        log = reader.build_log()
        first = self.next_us if self.next_us >= 0 else log.start * 1000
        until = _find_complete_end(first, log, self.window_us)
        if log.start < 0 or until <= first:
            return replace(self, log=log, next_us=first if log.start >= 0 else -1), []
        windows = list(_summarise_windows(log, first, until, self.window_us))
        return replace(self, log=drop_old(log, until // 1000), next_us=until), windows

    @property
    def ended(self) -> bool:
        """Whether the application has ended."""
        return self.log is not None and self.log.is_complete


def _find_complete_end(first: int, log: ApplicationLog, window_us: int) -> int:
    """Return the time up to which windows can no longer change; once the application has ended, its end."""
    if log.is_complete:
        return log.end * 1000 + 1
    return first + max(0, log.end * 1000 - LATE_US - first) // window_us * window_us


def _summarise_windows(
    log: ApplicationLog, first: int, until: int, window_us: int
) -> Iterator[tuple[Summary, str]]:
    graph = build_graph(build_timelines(log).build_trace(), gap_threshold_us=0)
    for summary in summarise_graph(graph, window_us, first, until):
        if summary.end_us > summary.start_us:
            yield summary, answer_in_words(list_findings(summary, log))


def drop_old(log: ApplicationLog, before: int) -> ApplicationLog:
    """Return the log without what ended before this millisecond, so that what is kept does not grow.

    Jobs stay whole until they end: the input of a task comes from tasks of earlier stages.
    """
    jobs = {number: job for number, job in log.jobs.items() if _lasts_until(job.ended, before)}
    needed = {stage for job in jobs.values() for stage in job.stages}
    finish = log.tasks["finish"]
    kept = np.isin(log.tasks["stage"], list(needed)) | (finish < 0) | (finish >= before)
    needed |= set(log.tasks["stage"][kept].tolist())
    tasks = Tasks({name: column[kept] for name, column in log.tasks.columns.items()}, log.tasks.executors)
    begun = [before, *(job.started for job in jobs.values()), *tasks["launch"].tolist()]
    executions = tuple(one for one in log.executions if _lasts_until(one.ended, before))
    return replace(
        log,
        start=min([*begun, *(one.started for one in executions if one.ended >= 0)]),
        tasks=tasks,
        stages={key: one for key, one in log.stages.items() if key[0] in needed or _is_open(one, before)},
        jobs=jobs,
        executors=_keep_executors(log.executors, min(begun)),
        executions=executions,
        batches=_keep_batches(log.batches, before),
        failures=tuple(one for one in log.failures if one.at >= before),
        warnings={},
    )


def _lasts_until(ended: int, before: int) -> bool:
    return ended < 0 or ended >= before


def _is_open(stage: Stage, before: int) -> bool:
    return stage.submitted >= 0 and _lasts_until(stage.completed, before)


def _keep_executors(executors: Mapping[str, Executor], start: int) -> dict[str, Executor]:
    """Keep executors for their cores, but forget when an old one was added."""
    there = {name: one for name, one in executors.items() if _lasts_until(one.removed, start)}
    return {name: one if one.added >= start else replace(one, added=-1) for name, one in there.items()}


def _keep_batches(batches: tuple[Batch, ...], before: int) -> tuple[Batch, ...]:
    """Keep recent batches, and the last one of each run: after it the driver waits for a trigger."""
    last = {batch.run: number for number, batch in enumerate(batches)}
    return tuple(
        batch
        for number, batch in enumerate(batches)
        if batch.start + batch.phases.get("triggerExecution", 0.0) >= before or last[batch.run] == number
    )
