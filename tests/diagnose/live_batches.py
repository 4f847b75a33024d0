"""Batches as Spark's status store lists them: stages of tasks on slots, jobs, and a progress report."""

from __future__ import annotations

from dataclasses import replace

from penstock.diagnose.live_batch import LiveBatch, LiveStage

BASE_MS = 1_700_000_000_000


def task(index, executor, launch, seconds, *, records=100, status="SUCCESS", fetch=0, commit=0):
    """One task; `launch` is milliseconds after `BASE_MS`."""
    milliseconds = round(seconds * 1000)
    return {
        "index": index,
        "launchTime": BASE_MS + launch,
        "duration": milliseconds,
        "executorId": executor,
        "status": status,
        "speculative": False,
        "taskMetrics": {
            "executorDeserializeTime": min(5, milliseconds),
            "executorRunTime": max(0, milliseconds - 10),
            "executorCpuTime": milliseconds * 400_000,
            "jvmGcTime": 0,
            "resultSerializationTime": 0,
            "shuffleReadMetrics": {"fetchWaitTime": fetch, "remoteBytesRead": fetch, "recordsRead": records},
            "shuffleWriteMetrics": {"bytesWritten": 1000, "writeTime": 1_000_000, "recordsWritten": records},
            "inputMetrics": {"recordsRead": 0},
        },
    }


def waves(lengths, executors, cores, begin):
    """Tasks of these seconds on the slots, the next one as soon as a slot is free; and when all is done."""
    free = {(executor, core): begin for core in range(cores) for executor in executors}
    tasks = []
    for index, seconds in enumerate(lengths):
        slot = min(free, key=lambda one: free[one])
        tasks.append(task(index, slot[0], free[slot], seconds, records=round(100 * seconds)))
        free[slot] += round(seconds * 1000) + 2
    return tasks, max(free.values())


def batch(
    *stage_lengths,
    batch_id=7,
    executors=("0", "1"),
    cores=2,
    planning=100,
    between=20,
    commit=100,
    records=1000.0,
    state_load=0.0,
    state_commit=0.0,
):
    """A batch of one chain of stages; planning, gaps and commit are milliseconds."""
    at = planning
    stages, previous = [], ()
    for number, lengths in enumerate(stage_lengths):
        tasks, at = waves(lengths, executors, cores, at + between)
        operator = ("read", "count", "write")[number]
        stages.append(LiveStage(10 + number, operator, previous, operator == "count", tasks))
        previous = (operator,)
    job = {
        "jobId": 3,
        "submissionTime": BASE_MS + planning,
        "completionTime": BASE_MS + at + between,
        "stageIds": [stage.stage for stage in stages],
    }
    phases = {
        "queryPlanning": planning,
        "addBatch": at + between - planning,
        "commitBatch": commit,
        "triggerExecution": at + between + commit,
    }
    held = dict.fromkeys(executors, cores)
    slots = len(executors) * cores
    state = (state_load, state_commit)
    return LiveBatch(batch_id, BASE_MS / 1000, phases, records, *state, slots, held, [job], stages)


def word_count(batch_id=7, executors=("0",), records=3000.0):
    """Twelve tasks in each of two stages, on two slots an executor: what more slots do shorten."""
    return batch(
        [0.4] * 12, [0.6] * 12, batch_id=batch_id, executors=executors, records=records, planning=300
    )


def driver_bound(batch_id=7, records=1000.0):
    """Little work in tasks, and a driver that plans, launches and commits for seconds."""
    return batch(
        [0.05] * 4, [0.05] * 4, batch_id=batch_id, planning=2000, between=300, commit=700, records=records
    )


def hot_task(batch_id=7, records=1000.0):
    """One task of the second stage runs ten times as long as its siblings."""
    return batch([0.2] * 4, [0.3, 0.3, 0.3, 3.0], batch_id=batch_id, records=records)


def hot_task_first(noted_late, batch_id=7):
    """The hot task comes first on its slot; ends are noted so many ms after a slot is given on."""
    executors = ("0", "1", "2", "3")
    made = batch([0.2] * 4, [3.0] + [0.2] * 15, batch_id=batch_id, executors=executors, cores=1)
    read, count = made.stages
    return replace(made, stages=[read, noted_after(count, 2 + noted_late)])


def noted_after(stage, milliseconds):
    """The same tasks, whose ends are noted later."""
    return replace(stage, tasks=[{**one, "duration": one["duration"] + milliseconds} for one in stage.tasks])


def slow_executor(batch_id=7, records=1000.0):
    """Both tasks on the second executor take four times as long as those on the first."""
    made = batch([0.2] * 4, [0.5, 2.0, 0.5, 2.0], batch_id=batch_id, records=records)
    stage = made.stages[1]
    even = [{**one, "taskMetrics": {**one["taskMetrics"], "shuffleReadMetrics": {"recordsRead": 100}}}
            for one in stage.tasks]  # fmt: skip
    return replace(made, stages=[made.stages[0], replace(stage, tasks=even)])
