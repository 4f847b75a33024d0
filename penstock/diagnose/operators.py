"""Names the operator that a stage works for: the same from batch to batch, apart for stages that differ."""

from __future__ import annotations

from penstock.diagnose.application_log import ApplicationLog, Job, Stage, StageKey


def operator_names(log: ApplicationLog) -> dict[StageKey, str]:
    """The operator of every stage attempt in the log."""
    owners: dict[int, Job] = {}
    for job in log.jobs.values():
        for stage in job.stages:
            owners.setdefault(stage, job)
    return {key: _name(log, stage, owners.get(key[0])) for key, stage in log.stages.items()}


def _name(log: ApplicationLog, stage: Stage, job: Job | None) -> str:
    what = stage.chain or stage.name or "stage"
    if job is None or not job.query:
        return f"stage {stage.stage}: {what}"
    # Stage ids rise from batch to batch; the place among the stages of its own job does not.
    place = sorted(job.stages).index(stage.stage) + 1
    return f"{log.query_names.get(job.query, job.query[:8])} {place}: {what}"
