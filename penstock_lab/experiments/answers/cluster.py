"""A small model of a cluster that plays a scene: tasks on slots over time, launched one by one by the driver.

It knows nothing of how logs are diagnosed. Tasks go to executors at random, each takes a little more or less
time than its work, messages take a while, a slow host stretches what is computed, executors may be lost or
come late.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from penstock_lab.experiments.answers.scene import JobWork, Machine, Piece, Scene, StageWork

NOISE = 0.06
MESSAGE_SECONDS = 0.004
MOST_FAILURES = 4
LOST = "ExecutorLostFailure"
Action = Callable[[], None]


@dataclass(slots=True)
class RanTask:
    """An attempt of a task as it ran; `reason` is empty if it succeeded."""

    number: int
    stage: int
    partition: int
    attempt: int
    executor: str
    launch: float
    piece: Piece
    begin: float = 0.0
    stretch: float = 1.0
    finish: float = -1.0
    reason: str = ""


@dataclass(slots=True)
class RanStage:
    """A stage as it ran."""

    number: int
    work: StageWork
    parents: tuple[int, ...]
    submitted: float
    completed: float = -1.0
    failure: str = ""


@dataclass(slots=True)
class RanJob:
    """A job as it ran, from where the driver began to plan it."""

    number: int
    planned: float
    started: float
    stages: tuple[int, ...]
    ended: float = -1.0
    returned: float = -1.0
    failure: str = ""


@dataclass(slots=True)
class RanBatch:
    """A micro-batch as it ran; phases are seconds."""

    number: int
    started: float
    phases: dict[str, float]
    rows: int
    commit: float


@dataclass(slots=True)
class PlayedScene:
    """Everything that happened, up to `ended`."""

    scene: Scene
    tasks: list[RanTask] = field(default_factory=list)
    stages: list[RanStage] = field(default_factory=list)
    jobs: list[RanJob] = field(default_factory=list)
    batches: list[RanBatch] = field(default_factory=list)
    added: list[tuple[float, Machine]] = field(default_factory=list)
    removed: list[tuple[float, str, str]] = field(default_factory=list)
    ended: float = 0.0


@dataclass(slots=True)
class _Stage:
    ran: RanStage
    waiting: deque[tuple[int, int]]
    left: int
    failed: int = 0


class ScenePlayer:
    """Plays one scene from its start to its end."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.history = PlayedScene(scene)
        self._scene = scene
        self._random = np.random.default_rng(seed)
        self._agenda: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._now = 0.0
        self._driver_free = 0.0
        self._free: dict[str, int] = {}
        self._idle_since: dict[str, float] = {}
        self._there: dict[str, Machine] = {}
        self._running: dict[int, tuple[RanTask, _Stage]] = {}
        self._ready: list[_Stage] = []
        self._slower = 1.0
        self._asked_at = -1.0
        self._next_ask = 1
        self._coming = 0

    def play(self) -> PlayedScene:
        """Run all jobs one after the other."""
        self._bring_first_machines()
        if self._scene.batch:
            self._play_batches()
        else:
            for job in self._scene.jobs:
                self._pass(job.pause + job.program)
                if self._play_job(job).failure:
                    break
        self._pass(0.4)
        self.history.ended = self._now
        return self.history

    def _bring_first_machines(self) -> None:
        machines, allocation = self._scene.machines, self._scene.allocation
        first = machines[: allocation.least] if allocation else machines
        for machine in first:
            self._at(machine.ready, partial(self._add, machine))
        # the driver's program begins when the first executors are there, or at once if none is kept
        self._pass(max((machine.ready for machine in first), default=3.0) + 0.2)

    def _play_batches(self) -> None:
        costs = self._scene.batch
        assert costs is not None
        for number, job in enumerate(self._scene.jobs):
            begun = self._now
            slower = 1.0 + (costs.cold if number == 0 else 0.0)
            phases = {"latestOffset": self._vary(costs.offsets), "walCommit": self._vary(costs.offset_log)}
            phases["queryPlanning"] = self._vary(job.planning) * slower
            self._pass(sum(phases.values()))
            ran = self._play_job(JobWork(job.stages, planning=0.02, after=0.03), slower)
            phases["addBatch"] = ran.returned - ran.planned
            phases["commitOffsets"] = self._vary(costs.commit_log)
            self._pass(phases["commitOffsets"] + 0.005)
            phases["triggerExecution"] = self._now - begun
            rows = sum(piece.records for piece in job.stages[0].pieces)
            commit = sum(piece.commit for stage in job.stages for piece in stage.pieces)
            self.history.batches.append(RanBatch(number, begun, phases, rows, commit))
            if self._scene.trigger:
                self._pass(max(0.0, begun + self._scene.trigger - self._now))

    def _play_job(self, job: JobWork, slower: float = 1.0) -> RanJob:
        planned = self._now
        self._pass(self._vary(job.planning))
        first = len(self.history.stages)
        numbers = tuple(range(first, first + len(job.stages)))
        ran = RanJob(len(self.history.jobs), planned, self._now, numbers)
        self.history.jobs.append(ran)
        left = dict(enumerate(job.stages))
        done: set[int] = set()
        running: dict[int, _Stage] = {}
        self._submit(left, running, done, first, slower)
        while running:
            self._step()
            for place, stage in list(running.items()):
                if stage.failed >= MOST_FAILURES:
                    self._abort(ran, running)
                elif not stage.left:
                    stage.ran.completed = self._now
                    done.add(place)
                    del running[place]
                    self._submit(left, running, done, first, slower)
        ran.ended = self._now = self._now + 0.006
        self._pass(self._vary(job.after))
        ran.returned = self._now
        return ran

    def _submit(
        self,
        left: dict[int, StageWork],
        running: dict[int, _Stage],
        done: set[int],
        first: int,
        slower: float,
    ) -> None:
        for place, work in list(left.items()):
            if not set(work.parents) <= done:
                continue
            del left[place]
            parents = tuple(first + parent for parent in work.parents)
            number = first + place
            ran = RanStage(number, work, parents, self._now + 0.01)
            self.history.stages.append(ran)
            self._driver_free = max(self._driver_free, self._now + 0.015 * slower)
            stage = _Stage(ran, deque((n, 0) for n in range(len(work.pieces))), len(work.pieces))
            running[place] = stage
            self._ready.append(stage)
            self._slower = slower
        self._launch()

    def _abort(self, ran: RanJob, running: dict[int, _Stage]) -> None:
        stage = next(one for one in running.values() if one.failed >= MOST_FAILURES)
        ran.failure = f"Job aborted due to stage failure: Task failed {MOST_FAILURES} times"
        for one in running.values():
            one.ran.completed, one.ran.failure = self._now, ran.failure if one is stage else "cancelled"
        for task, _ in self._running.values():
            task.finish, task.reason = self._now, "TaskKilled"
        self._running.clear()
        self._ready.clear()
        running.clear()

    def _at(self, time: float, action: Action) -> None:
        heapq.heappush(self._agenda, (time, next(self._order), action))

    def _step(self) -> None:
        self._now, _, action = heapq.heappop(self._agenda)
        action()
        self._launch()

    def _pass(self, seconds: float) -> None:
        """Let time go by on the driver."""
        until = self._now + seconds
        while self._agenda and self._agenda[0][0] <= until:
            self._step()
        self._now = until

    def _vary(self, seconds: float) -> float:
        return seconds * float(self._random.lognormal(0.0, 2 * NOISE))

    def _add(self, machine: Machine) -> None:
        self._coming = max(0, self._coming - 1)
        self._there[machine.name] = machine
        self._free[machine.name] = machine.cores
        self._idle_since[machine.name] = self._now
        self.history.added.append((self._now, machine))
        if machine.lost_at < float("inf"):
            self._at(max(machine.lost_at, self._now), lambda: self._lose(machine))
        self._watch_idle(machine.name)

    def _lose(self, machine: Machine) -> None:
        self._remove(machine.name, machine.lost_because)
        for number, (task, stage) in list(self._running.items()):
            if task.executor == machine.name:
                del self._running[number]
                task.finish, task.reason = self._now, LOST
                stage.waiting.append((task.partition, task.attempt + 1))

    def _remove(self, name: str, reason: str) -> None:
        del self._there[name], self._free[name]
        self.history.removed.append((self._now, name, reason))

    def _watch_idle(self, name: str) -> None:
        allocation = self._scene.allocation
        if not allocation or name not in self._there:
            return
        idle = self._free[name] == self._there[name].cores
        rest = self._idle_since[name] + allocation.idle_timeout - self._now
        if idle and rest <= 1e-9 and len(self._there) > allocation.least:
            self._remove(name, f"Executor {name} idle for {allocation.idle_timeout:.0f} seconds")
            return
        self._at(self._now + (rest if idle and rest > 1e-9 else 1.0), lambda: self._watch_idle(name))

    def _ask_for_more(self) -> None:
        """Ask for executors while tasks wait: one after a second, then two, four and so on."""
        allocation, waiting = self._scene.allocation, sum(len(stage.waiting) for stage in self._ready)
        if not allocation or not waiting:
            self._next_ask, self._asked_at = 1, -1.0
            return
        if self._asked_at < 0:
            self._asked_at = self._now + 1.0
            self._at(self._asked_at, lambda: None)
        if self._now < self._asked_at - 1e-9:
            return
        known = len(self.history.added) + self._coming
        cores = self._scene.machines[0].cores
        wanted = -(-waiting // cores) - self._coming
        number = max(
            0, min(self._next_ask, wanted, len(self._scene.machines) - len(self._there) - self._coming)
        )
        for place in range(known, known + number):
            self._request(place, allocation.start_up)
        self._next_ask = 2 * self._next_ask
        self._asked_at = self._now + 1.0
        self._at(self._asked_at, lambda: None)

    def _request(self, place: int, start_up: float) -> None:
        like = self._scene.machines[place % len(self._scene.machines)]
        machine = Machine(str(place + 1), like.host, like.cores, 0.0, like.slowness)
        self._coming += 1
        self._at(self._now + self._vary(start_up), lambda: self._add(machine))

    def _launch(self) -> None:
        """Launch waiting tasks on free slots, earlier stages first, each after the one before."""
        for stage in self._ready:
            while stage.waiting:
                free = [name for name, slots in self._free.items() if slots > 0]
                if not free:
                    break
                executor = free[int(self._random.integers(len(free)))]
                self._start(stage, *stage.waiting.popleft(), executor)
        self._ready = [stage for stage in self._ready if stage.left]
        if self._scene.allocation:
            self._ask_for_more()

    def _start(self, stage: _Stage, partition: int, attempt: int, executor: str) -> None:
        self._free[executor] -= 1
        self._driver_free = max(self._driver_free, self._now) + self._vary(self._scene.launch_cost)
        piece = stage.ran.work.pieces[partition]
        stretch = float(self._random.lognormal(0.0, NOISE)) * self._slower
        task = RanTask(
            number=len(self.history.tasks),
            stage=stage.ran.number,
            partition=partition,
            attempt=attempt,
            executor=executor,
            launch=self._driver_free,
            piece=piece,
            begin=self._driver_free + self._vary(MESSAGE_SECONDS),
            stretch=stretch,
        )
        self.history.tasks.append(task)
        self._running[task.number] = task, stage
        length = measure_task(task, self._there[executor].slowness)
        if attempt < len(piece.failures):
            length *= 0.3 + 0.6 * float(self._random.random())
        self._at(task.begin + length + self._vary(MESSAGE_SECONDS), lambda: self._finish(task.number))

    def _finish(self, number: int) -> None:
        if number not in self._running:
            return  # lost with its executor, or its job was aborted
        task, stage = self._running.pop(number)
        task.finish = self._now
        self._free[task.executor] += 1
        self._idle_since[task.executor] = self._now
        if task.attempt < len(task.piece.failures):
            task.reason = task.piece.failures[task.attempt]
            stage.failed = max(stage.failed, task.attempt + 1)
            stage.waiting.append((task.partition, task.attempt + 1))
            return
        stage.left -= 1


def measure_task(task: RanTask, slowness: float) -> float:
    """Return the seconds that a task takes on its executor."""
    piece = task.piece
    work = piece.compute * slowness + piece.fetch + piece.collect + piece.disk + piece.write + piece.commit
    return (piece.deserialise + work) * task.stretch


def play(scene: Scene, seed: int) -> PlayedScene:
    """Play a scene; the seed decides what is left to chance."""
    return ScenePlayer(scene, seed).play()
