"""Reads and writes, beside the checkpoints, as which group each batch of a query runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from penstock.pipeline.definition import Pipeline
from penstock.pipeline.fusing import BatchModes, FusePlan, Group, find_chains
from penstock.pipeline.spark_topics import FileSystem
from penstock.settings.model import Settings

MARKS = "_fused"
"""The directory beside the checkpoints; functions begin with a letter, so none has this name."""
_SEPARATOR = "+"


def plan_fusing(
    pipeline: Pipeline, spark: SparkSession, settings: Settings, checkpoints: str
) -> tuple[FusePlan, Mapping[str, BatchModes]]:
    """Plan what is fused, as the run before left it, and find how the batches of each query ran.

    Where nothing may be changed, nothing is fused by itself.
    """
    chains, fuse = find_chains(pipeline), settings.fuse
    mode = "never" if fuse.mode == "auto" and settings.run.only_observes else fuse.mode
    modes = {name: read_modes(spark, checkpoints, name) for name in pipeline.functions}
    begun = [one.newest for one in modes.values()]
    return FusePlan(chains, mode, fuse.above, begun), modes


def read_modes(spark: SparkSession, checkpoints: str, function: str) -> BatchModes:
    """Read how the batches of a query ran, and which of them has begun and may have to be run again."""
    directory = f"{checkpoints}/{MARKS}/{function}"
    system = FileSystem(spark, directory)
    begun = max(_list_batches(system.list_names(f"{checkpoints}/{function}/offsets")), default=-1)
    marks = parse_marks(system.list_names(directory))

    def write(batch_id: int, group: Group) -> None:
        system.mark(directory, f"{batch_id:09d}{_SEPARATOR}{_SEPARATOR.join(group)}")

    return BatchModes(function, marks, begun, write)


def _list_batches(names: Iterable[str]) -> list[int]:
    return [int(name) for name in names if name.isdecimal()]


def parse_marks(names: Iterable[str]) -> dict[int, Group]:
    """Parse the names of marks; a batch that was tried in two ways ran alone in the end."""
    marks: dict[int, Group] = {}
    for name in names:
        batch, *group = name.split(_SEPARATOR)
        if batch.isdecimal() and group and len(group) < len(marks.get(int(batch), (*group, ""))):
            marks[int(batch)] = tuple(group)
    return marks
