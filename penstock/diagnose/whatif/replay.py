"""Replay the tasks of an application on other slots, by list scheduling.

Kept as measured: the time that each task held its slot, the driver's time before a stage, before a job and
after it, and when executors came and went, counted from the job's start or end before it. Changed: the number
of slots, or the lengths of tasks. If the graph knows the cores that slots share, tasks slow each other down.
Not modelled: locality.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Generic, TypeVar

import numba
import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.diagnose.log.application import StageKey
from penstock.diagnose.whatif.task_graph import Anchor, JobPlan, Replayed, StagePlan, TaskGraph, TaskNeeds

Item = TypeVar("Item")
Action = Callable[[float], None]
ALONE_TASKS = 16
"""Fewer tasks that wait are not worth the change to arrays."""


class SharedCores(Generic[Item]):
    """Cores that items share equally: an item ends when the virtual clock has passed its demand.

    The virtual clock runs as fast as the real one while there is a core for each item, and slower by the
    ratio of cores to items otherwise. So a change in their number moves no item in the queue.
    """

    def __init__(self, cores: float) -> None:
        self._cores = cores
        self._virtual = self._now = 0.0
        self._queue: list[tuple[float, int, Item]] = []
        self._number = 0

    def enter(self, now: float, demand: float, item: Item) -> None:
        """Let an item use a core for so many seconds from now on."""
        self._advance(now)
        self._number += 1
        heapq.heappush(self._queue, (self._virtual + demand, self._number, item))

    def next_end(self) -> float:
        """Return when the first item ends if none enters before; infinity without an item."""
        if not self._queue:
            return float("inf")
        return self._now + max(0.0, self._queue[0][0] - self._virtual) / self._rate()

    def leave(self, now: float) -> Item:
        """Return the first item to end, at the time that `next_end` returned."""
        self._advance(now)
        demand, _, item = heapq.heappop(self._queue)
        self._virtual = max(self._virtual, demand)
        return item

    def _rate(self) -> float:
        return min(1.0, self._cores / len(self._queue)) if self._queue else 1.0

    def _advance(self, now: float) -> None:
        self._virtual += (now - self._now) * self._rate()
        self._now = now


@dataclass(slots=True)
class _RunningStage:
    """A stage whose tasks may run: how many of them have started, and how many have not ended."""

    job: JobPlan
    stage: StagePlan
    left: int
    started: int = 0

    @property
    def running(self) -> int:
        """Return how many of its tasks run now."""
        return self.started - (len(self.stage.tasks) - self.left)


@numba.njit(cache=True)
def fill_slots(ends: Floats, lengths: Floats, first: int, until: float) -> int:
    """Give every slot that becomes free before `until` the next task; return how many tasks have started.

    `ends` is a heap: for each slot, when its task ends; it is changed in place.
    """
    while first < len(lengths) and ends[0] < until:
        end = ends[0] + lengths[first]
        first += 1
        place = 0
        while True:
            child = 2 * place + 1
            if child >= len(ends):
                break
            if child + 1 < len(ends) and ends[child + 1] < ends[child]:
                child += 1
            if end <= ends[child]:
                break
            ends[place] = ends[child]
            place = child
        ends[place] = end
    return first


class _Replay:
    """A replay of actions in time order: a job starts or ends, a stage is ready, a task goes on or ends.

    Where slots share no cores, all that a task does is end, and most of what happens are ends of tasks: they
    have a queue of their own, and where one stage has all slots it is run through at once.
    """

    def __init__(self, graph: TaskGraph, slots: int | None) -> None:
        self._free = slots or 0
        self._running = 0
        self._now = 0.0
        self._tail = graph.tail
        self._agenda: list[tuple[float, int, Action]] = []
        self._number = 0
        self._cores: SharedCores[Action] = SharedCores(graph.cores or 1.0)
        self._share = graph.cores is not None
        self._tasks: list[tuple[float, int, _RunningStage]] = []
        self._waiting: deque[_RunningStage] = deque()
        self._sharing: deque[tuple[float, Action]] = deque()
        self._done: dict[int, set[StageKey]] = {}
        self._started: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._followers: dict[tuple[int, bool], list[tuple[float, Action]]] = defaultdict(list)
        for change in graph.changes if slots is None else ():
            self._follow(change.anchor, partial(self._add_slots, change.slots))
        for job in graph.jobs:
            self._follow(job.anchor, partial(self._start_job, job))

    def _follow(self, anchor: Anchor, action: Action) -> None:
        if anchor.job is None:
            self._plan(anchor.delay, action)
        else:
            self._followers[anchor.job, anchor.at_end].append((anchor.delay, action))

    def _plan(self, time: float, action: Action) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (time, self._number, action))

    def run(self) -> Replayed:
        if self._share:
            self._run_on_shared_cores()
        else:
            self._run_on_slots()
        seconds = {job: end - self._started[job] for job, end in self._ended.items()}
        return Replayed(max(self._ended.values(), default=0.0) + self._tail, seconds)

    def _run_on_shared_cores(self) -> None:
        while self._agenda or self._cores.next_end() < float("inf") or self._unblock():
            now = self._cores.next_end()
            if self._agenda and self._agenda[0][0] <= now:
                now, _, action = heapq.heappop(self._agenda)
            else:
                action = self._cores.leave(now)
            self._now = now
            action(now)
            self._launch_tasks(now)

    def _run_on_slots(self) -> None:
        agenda: list[Any] = self._agenda  # numbers differ, so no more than them is compared
        tasks, waiting = self._tasks, self._waiting
        while agenda or tasks or self._unblock():
            if not tasks or (agenda and agenda[0] < tasks[0]):
                self._now, _, action = heapq.heappop(agenda)
                action(self._now)
                self._launch_tasks(self._now)
                continue
            now, _, ended = tasks[0]
            if waiting and not self._free and self._has_all_slots(waiting[0]):
                self._run_alone(waiting[0], agenda[0][0] if agenda else float("inf"))
                if now != tasks[0][0]:
                    continue
            heapq.heappop(tasks)
            self._now = now
            self._end_task(ended, now)
            self._launch_tasks(now)

    def _has_all_slots(self, stage: _RunningStage) -> bool:
        """Tell whether all running tasks are of the stage, and so many wait that it pays to run it alone."""
        waiting = len(stage.stage.tasks) - stage.started
        return stage.running == self._running and waiting >= ALONE_TASKS

    def _run_alone(self, stage: _RunningStage, until: float) -> None:
        """Let its tasks start and end until another event, or until none of them waits."""
        ends = np.array([end for end, _, _ in self._tasks])  # a list in the order of a heap is one
        started = fill_slots(ends, stage.stage.tasks, stage.started, until)
        stage.left -= started - stage.started
        stage.started = started
        if started == len(stage.stage.tasks):
            self._waiting.popleft()
        self._tasks[:] = [(end, self._number + place, stage) for place, end in enumerate(ends.tolist(), 1)]
        self._number += len(ends)

    def _add_slots(self, slots: int, _: float) -> None:
        self._free += slots

    def _unblock(self) -> bool:
        """Give tasks one slot where every executor has gone and none will come."""
        if self._running or not (self._waiting or self._sharing):
            return False
        self._free = 1
        self._launch_tasks(self._now)
        return True

    def _start_job(self, job: JobPlan, now: float) -> None:
        self._started[job.job], self._done[job.job] = now, set()
        self._start_followers(job, now, after_end=False)
        self._release_stages(job, now, None)
        if not job.stages:
            self._plan(now + job.tail, partial(self._end_job, job))

    def _end_job(self, job: JobPlan, now: float) -> None:
        self._ended[job.job] = now
        self._start_followers(job, now, after_end=True)

    def _start_followers(self, job: JobPlan, now: float, after_end: bool) -> None:
        for delay, action in self._followers[job.job, after_end]:
            self._plan(now + delay, action)

    def _release_stages(self, job: JobPlan, now: float, finished: StageKey | None) -> None:
        for stage in job.stages:
            is_new = not stage.parents if finished is None else finished in stage.parents
            if is_new and stage.parents <= self._done[job.job]:
                ready = _RunningStage(job, stage, len(stage.tasks))
                self._plan(now + stage.delay, partial(self._queue_tasks, ready))

    def _queue_tasks(self, ready: _RunningStage, _: float) -> None:
        """Queue the tasks of a stage: how long each holds its slot or its core, and what follows."""
        lengths, needs = ready.stage.tasks, ready.stage.needs
        if not self._share:
            self._waiting.extend([ready] if len(lengths) else [])
            return
        end = partial(self._end_task, ready)
        if needs is None:
            self._sharing.extend(zip(lengths.tolist(), repeat(end)))
        else:
            waits = (partial(self._wait, needs, task, end) for task in range(len(lengths)))
            self._sharing.extend(zip(needs.before.tolist(), waits, strict=True))

    def _launch_tasks(self, now: float) -> None:
        while self._free > 0 and (self._waiting or self._sharing):
            self._free -= 1
            self._running += 1
            if self._share:
                self._cores.enter(now, *self._sharing.popleft())
            else:
                stage = self._waiting[0]
                length = float(stage.stage.tasks[stage.started])
                stage.started += 1
                if stage.started == len(stage.stage.tasks):
                    self._waiting.popleft()
                self._number += 1
                heapq.heappush(self._tasks, (now + length, self._number, stage))

    def _wait(self, needs: TaskNeeds, task: int, end: Action, now: float) -> None:
        """Leave the core for the time that the task waits, then need one again until its end."""

        def go_on(now: float) -> None:
            self._cores.enter(now, float(needs.after[task]), end)

        self._plan(now + float(needs.wait[task]), go_on)

    def _end_task(self, ended: _RunningStage, now: float) -> None:
        self._free += 1
        self._running -= 1
        ended.left -= 1
        if ended.left:
            return
        job, stage = ended.job, ended.stage
        self._done[job.job].add(stage.key)
        self._release_stages(job, now, stage.key)
        if len(self._done[job.job]) == len(job.stages):
            self._plan(now + job.tail, partial(self._end_job, job))


def replay(graph: TaskGraph, slots: int | None = None) -> Replayed:
    """Run the task graph on this many slots from the start, by default on those that were there."""
    return _Replay(graph, slots if slots or graph.changes else graph.slots).run()
