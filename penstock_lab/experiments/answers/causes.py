"""Causes of trouble in an application: each changes a scene in which nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock_lab.experiments.answers.scene import (
    BatchCosts,
    DynamicAllocation,
    JobWork,
    Piece,
    Scene,
    StageWork,
)

Inject = Callable[[Scene, np.random.Generator], Scene]


@dataclass(frozen=True, slots=True)
class InjectedCause:
    """A cause: how it is put into a scene, the names under which a finding may tell of it, and its scene.

    `prepare` makes the scene fit for it, with the cause and without.
    """

    name: str
    inject: Inject
    told_as: frozenset[str]
    kind: str = "batch"
    prepare: Inject = lambda scene, _: scene


def add_skew(scene: Scene, random: np.random.Generator) -> Scene:
    """Give one key of the longest shuffle of each job far more records."""
    times = float(random.uniform(6, 15))
    return scene.map_jobs(lambda job: _change_longest(job, lambda stage: _heat_up(stage, times)))


def _change_longest(job: JobWork, change: Callable[[StageWork], StageWork]) -> JobWork:
    """Change the stage behind a shuffle that has most to compute."""
    shuffles = [place for place, stage in enumerate(job.stages) if not stage.is_scan]
    place = max(shuffles, key=lambda one: sum(piece.compute for piece in job.stages[one].pieces))
    stages = [change(stage) if number == place else stage for number, stage in enumerate(job.stages)]
    return replace(job, stages=tuple(stages))


def _heat_up(stage: StageWork, times: float) -> StageWork:
    """Move records from all tasks of a stage to one of them; the sum stays."""
    hot, number = len(stage.pieces) // 3, len(stage.pieces)
    others = (number - times) / (number - 1) if number > 2 * times else 0.5
    heat = number - others * (number - 1)
    scale = [heat if place == hot else others for place in range(number)]
    return replace(
        stage, pieces=tuple(_scale(piece, by) for piece, by in zip(stage.pieces, scale, strict=True))
    )


def _scale(piece: Piece, by: float) -> Piece:
    return replace(
        piece,
        compute=piece.compute * by,
        records=int(piece.records * by),
        bytes_in=int(piece.bytes_in * by),
        bytes_out=int(piece.bytes_out * by),
        fetch=piece.fetch * by,
        collect=piece.collect * by,
        write=piece.write * by,
        disk=piece.disk * by,
        commit=piece.commit * by,
    )


def add_spill(scene: Scene, random: np.random.Generator) -> Scene:
    """Let the tasks behind shuffles write what does not fit into memory to disk, and read it again."""
    times = float(random.uniform(1.0, 2.5))

    def spill(piece: Piece) -> Piece:
        return replace(piece, disk=times * piece.compute, spilled=max(5 * piece.bytes_in, 512 << 20))

    return scene.map_stages(lambda stage: stage if stage.is_scan else stage.map_pieces(spill))


def add_collection(scene: Scene, random: np.random.Generator) -> Scene:
    """Let executors collect garbage for a large part of the time."""
    times = float(random.uniform(0.6, 1.5))
    return scene.map_pieces(
        lambda piece: replace(piece, collect=piece.compute * times * float(random.uniform(0.8, 1.2)))
    )


def cut_small(scene: Scene, random: np.random.Generator) -> Scene:
    """Cut all stages into so many tasks that each takes a few milliseconds."""
    wanted = float(random.uniform(0.008, 0.03))

    def cut(stage: StageWork) -> StageWork:
        pieces = []
        for piece in stage.pieces:
            number = max(1, round(piece.compute / wanted))
            part = replace(_scale(piece, 1 / number), deserialise=0.003)
            pieces += [part] * number
        return replace(stage, pieces=tuple(pieces))

    return scene.map_stages(cut)


def shrink_work(scene: Scene, random: np.random.Generator) -> Scene:
    """Leave less work, or the log of small tasks would be large, to a driver slow to launch."""
    less = scene.map_pieces(lambda piece: _scale(piece, 0.15))
    return replace(less, launch_cost=float(random.uniform(0.002, 0.004)))


def join_partitions(scene: Scene, random: np.random.Generator) -> Scene:
    """Leave so few partitions behind each shuffle that most slots are idle."""
    share = float(random.uniform(0.1, 0.3))
    tasks = max(2, round(scene.slots * share))

    def join(stage: StageWork) -> StageWork:
        if stage.is_scan:
            return stage
        groups = [stage.pieces[place::tasks] for place in range(tasks)]
        return replace(stage, pieces=tuple(_join(group) for group in groups if group))

    return scene.map_stages(join)


def _join(pieces: tuple[Piece, ...]) -> Piece:
    return replace(
        pieces[0],
        records=sum(piece.records for piece in pieces),
        bytes_in=sum(piece.bytes_in for piece in pieces),
        bytes_out=sum(piece.bytes_out for piece in pieces),
        compute=sum(piece.compute for piece in pieces),
        fetch=sum(piece.fetch for piece in pieces),
        collect=sum(piece.collect for piece in pieces),
        write=sum(piece.write for piece in pieces),
        disk=sum(piece.disk for piece in pieces),
        commit=sum(piece.commit for piece in pieces),
    )


def slow_driver(scene: Scene, random: np.random.Generator) -> Scene:
    """Let the program on the driver work for long between jobs, such as on rows that it collected."""
    length = _measure_mean_work(scene) * float(random.uniform(0.8, 2.5))
    return scene.map_jobs(
        lambda job: replace(job, program=job.program + length * float(random.uniform(0.7, 1.3)))
    )


def _measure_mean_work(scene: Scene) -> float:
    """Return roughly how long a job takes."""
    whole = sum(piece.compute for job in scene.jobs for stage in job.stages for piece in stage.pieces)
    return whole / scene.slots / len(scene.jobs)


def slow_shuffle(scene: Scene, random: np.random.Generator) -> Scene:
    """Let tasks wait for what they fetch, as on a narrow network."""
    times = float(random.uniform(1.0, 3.0))

    def wait(piece: Piece) -> Piece:
        return replace(piece, fetch=piece.compute * times * float(random.uniform(0.8, 1.2)))

    return scene.map_stages(lambda stage: stage if stage.is_scan else stage.map_pieces(wait))


def slow_host(scene: Scene, random: np.random.Generator) -> Scene:
    """Slow one host down."""
    times, host = float(random.uniform(3.0, 7.0)), f"host-{int(random.integers(3))}"
    machines = (
        replace(machine, slowness=times) if machine.host == host else machine for machine in scene.machines
    )
    return replace(scene, machines=tuple(machines))


def fail_tasks(scene: Scene, random: np.random.Generator) -> Scene:
    """Let some tasks fail once or twice before they succeed."""
    reason = str(random.choice(["ExceptionFailure", "OutOfMemory"]))
    share = float(random.uniform(0.15, 0.5))

    def fail(piece: Piece) -> Piece:
        times = int(random.integers(1, 4)) if random.random() < share else 0
        return replace(piece, failures=(reason,) * times)

    return scene.map_pieces(fail)


def fail_job(scene: Scene, random: np.random.Generator) -> Scene:
    """Let one task of the second job fail until Spark gives up."""
    job = scene.jobs[1]
    stage = job.stages[-1]
    broken = replace(stage.pieces[0], failures=("ExceptionFailure",) * 4)
    stages = (*job.stages[:-1], replace(stage, pieces=(broken, *stage.pieces[1:])))
    return replace(scene, jobs=(scene.jobs[0], replace(job, stages=stages), *scene.jobs[2:]))


def lose_machines(scene: Scene, random: np.random.Generator) -> Scene:
    """Lose a third of the executors or more, one after the other, before half of the work is done."""
    number = max(1, round(len(scene.machines) * float(random.uniform(0.3, 0.6))))
    half = 5.0 + _measure_mean_work(scene) * len(scene.jobs) * 0.5
    machines = tuple(
        replace(machine, lost_at=float(random.uniform(5.0, half)), lost_because="Command exited with code 1")
        if place < number
        else machine
        for place, machine in enumerate(scene.machines)
    )
    return replace(scene, machines=machines)


def allocate_late(scene: Scene, random: np.random.Generator) -> Scene:
    """Let executors come when tasks wait and go soon: each job waits for them anew."""
    start_up = _measure_mean_work(scene) * float(random.uniform(1.0, 2.0)) + 8.0
    properties = scene.properties | {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": str(len(scene.machines)),
    }
    allocation = DynamicAllocation(int(random.integers(0, 2)), start_up, idle_timeout=2.0)
    return replace(scene, allocation=allocation, properties=properties)


def rest_between_jobs(scene: Scene, _: np.random.Generator) -> Scene:
    """Let the driver do something between jobs."""
    return scene.map_jobs(lambda job: replace(job, program=job.program + 3.0))


def start_late(scene: Scene, random: np.random.Generator) -> Scene:
    """Let the cluster take long to give the application its executors."""
    late = 8.0 + _measure_mean_work(scene) * len(scene.jobs) * float(random.uniform(1.5, 3.0))
    machines = (replace(machine, ready=machine.ready + late) for machine in scene.machines)
    return replace(scene, machines=tuple(machines))


def start_cold(scene: Scene, random: np.random.Generator) -> Scene:
    """Let the first batch of a query take many times as long as the others."""
    costs = scene.batch or BatchCosts()
    return replace(scene, batch=replace(costs, cold=float(random.uniform(12.0, 25.0))))


def keep_six_batches(scene: Scene, _: np.random.Generator) -> Scene:
    """Let the query run for six batches only, one after the other."""
    return replace(scene, jobs=scene.jobs[:6], trigger=0.0)


def slow_commit(scene: Scene, random: np.random.Generator) -> Scene:
    """Let tasks take long to commit the state of their partition."""
    times = float(random.uniform(1.5, 4.0))
    return scene.map_stages(
        lambda stage: stage.map_pieces(
            lambda piece: replace(piece, commit=piece.compute * times if piece.commit else 0.0)
        )
    )


def slow_log(scene: Scene, random: np.random.Generator) -> Scene:
    """Let the checkpoint's storage be slow: offsets and commits of batches take seconds to write."""
    costs, seconds = scene.batch or BatchCosts(), float(random.uniform(1.2, 3.0))
    slow = replace(costs, offset_log=seconds, commit_log=seconds * float(random.uniform(0.8, 1.2)))
    return replace(scene, batch=slow)


def slow_offsets(scene: Scene, random: np.random.Generator) -> Scene:
    """Let the source take seconds to say how far it is."""
    costs = scene.batch or BatchCosts()
    return replace(scene, batch=replace(costs, offsets=float(random.uniform(2.5, 6.0))))


def leave_out_trigger(scene: Scene, _: np.random.Generator) -> Scene:
    """Let the batches of the query follow each other."""
    return replace(scene, trigger=0.0)


def pause_often(scene: Scene, random: np.random.Generator) -> Scene:
    """Let a person think before each job."""
    length = _measure_mean_work(scene) * float(random.uniform(2.0, 8.0)) + 20.0
    return scene.map_jobs(lambda job: replace(job, pause=length * float(random.uniform(0.3, 2.0))))


CAUSES: Mapping[str, InjectedCause] = {
    cause.name: cause
    for cause in (
        InjectedCause("skew", add_skew, frozenset({"skew"})),
        InjectedCause("spill", add_spill, frozenset({"spill"})),
        InjectedCause("gc", add_collection, frozenset({"gc"})),
        InjectedCause("small tasks", cut_small, frozenset({"small tasks"}), prepare=shrink_work),
        InjectedCause("few partitions", join_partitions, frozenset({"few partitions"})),
        InjectedCause("slow driver", slow_driver, frozenset({"program"})),
        InjectedCause("slow shuffle", slow_shuffle, frozenset({"fetch"})),
        InjectedCause("slow host", slow_host, frozenset({"slow host", "slow executor"})),
        InjectedCause("failed tasks", fail_tasks, frozenset({"failures"})),
        InjectedCause("failed job", fail_job, frozenset({"failures"})),
        InjectedCause("lost executors", lose_machines, frozenset({"failures"})),
        InjectedCause(
            "dynamic allocation", allocate_late, frozenset({"executors"}), prepare=rest_between_jobs
        ),
        InjectedCause("late executors", start_late, frozenset({"start-up", "executors"})),
        InjectedCause("cold start", start_cold, frozenset({"cold batch"}), "streaming", keep_six_batches),
        InjectedCause(
            "slow commit", slow_commit, frozenset({"state commit"}), "streaming", leave_out_trigger
        ),
        InjectedCause("slow log", slow_log, frozenset({"batch log"}), "streaming", leave_out_trigger),
        InjectedCause("slow offsets", slow_offsets, frozenset({"source"}), "streaming", leave_out_trigger),
        InjectedCause("idle shell", pause_often, frozenset({"idle"}), "shell"),
    )
}
