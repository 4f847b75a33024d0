"""Schemas that nobody has written down: of files that are there, and of what functions make of some records.

What is declared is never looked for. A topic that has files keeps their schema, from run to run. A function
whose topic has none yet is called once on the driver, with the first records that there are; where there are
none, or it fails on them, its schema has to be given.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NullType, StructType

from penstock.errors import BadInput
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.serving import ERROR, OUTCOME, RECORD, as_table, time_limit
from penstock.pipeline.topics import Files, files

log = logging.getLogger(__name__)

DEFAULT_ROOT = "topics"
"""Where file topics lie that say no place, below the directory in which the program was started."""
SAMPLE_RECORDS = 8


@dataclass(frozen=True, slots=True)
class Found:
    """The schema of a topic, and some of its records where there are any."""

    schema: str
    sample: pa.Table | None = None


class Looker(Protocol):
    """What can be asked of Spark; `SparkLooker` is the real one."""

    def files(self, directory: str) -> Found | None:
        """What is in a directory of Parquet files; None if there are none."""

    def transformed(self, function: Function, schema: str) -> str:
        """The schema that a DataFrame function makes of one."""


def complete(pipeline: Pipeline, look: Looker) -> None:
    """Give a place to a pipeline without one, and schemas to topics that can tell theirs."""
    if pipeline.location is None and all(topic.at is None for topic in pipeline.topics.values()):
        pipeline.location = files(str(Path(DEFAULT_ROOT).absolute()))
    known = {name: Found(one.schema) for name, one in pipeline.topics.items() if one.schema is not None}
    lacking = [one for one in _own(pipeline) if one.writes and one.writes not in known]
    _look_outside(pipeline, known, look, samples=bool(lacking))
    if lacking:
        _try_functions(pipeline, known, look)


def _own(pipeline: Pipeline) -> list[Function]:
    """What a query that runs already reads and writes is its own affair."""
    return [one for one in pipeline.functions.values() if one.takes is not Takes.QUERY]


def _look_outside(pipeline: Pipeline, known: dict[str, Found], look: Looker, samples: bool) -> None:
    """Find the schemas of file topics that no function writes, and records of them where these are used."""
    written = {one.writes for one in pipeline.functions.values()}
    read = dict.fromkeys(topic for one in _own(pipeline) for topic in one.reads)
    for name in read:
        place = pipeline.topics[name].at or pipeline.location
        if name in written or not isinstance(place, Files) or (name in known and not samples):
            continue
        found = look.files(f"{place.root}/{name}")
        if found is None:
            continue
        if name not in known:
            pipeline.assume(name, found.schema)
        known[name] = Found(known.get(name, found).schema, found.sample)


def _try_functions(pipeline: Pipeline, known: dict[str, Found], look: Looker) -> None:
    """From the sources on, since what one function writes is what the next is tried on."""
    own = {one.name for one in _own(pipeline)}
    for name in pipeline.layout().functions:
        function = pipeline.functions[name]
        read = next((known[topic] for topic in function.reads if topic in known), None)
        if name not in own or function.writes is None or function.writes in known or read is None:
            continue
        place = pipeline.topics[function.writes].at or pipeline.location
        earlier = look.files(f"{place.root}/{function.writes}") if isinstance(place, Files) else None
        known[function.writes] = found = earlier or _made(function, read, look)
        pipeline.assume(function.writes, found.schema)
        log.info("topic %s, which %s writes, has the schema %s", function.writes, name, found.schema)


def _made(function: Function, read: Found, look: Looker) -> Found:
    if function.takes is Takes.DATAFRAME:
        return Found(look.transformed(function, read.schema))
    if function.takes is Takes.KEYED:
        raise BadInput(f"function {function.name!r} needs schema=: one with state is not tried")
    if read.sample is None or not len(read.sample):
        raise BadInput(f"function {function.name!r} needs schema=: there is nothing yet to try it on")
    batch = read.sample.combine_chunks().to_batches()[0]
    try:
        with time_limit(function.timeout):
            result = function.call(batch if function.takes is Takes.ARROW else batch.to_pandas())
        made = as_table(function.name, result)
        return Found(written_down(from_arrow_schema(made.schema)), made)
    except Exception as problem:
        raise BadInput(
            f"function {function.name!r} needs schema=: a try on {len(batch)} records failed: {problem}"
        ) from problem


def written_down(schema: StructType) -> str:
    """A schema in Spark's notation, as it is given by hand; BadInput names a column that has no type."""
    for field in schema.fields:
        if isinstance(field.dataType, NullType):
            raise BadInput(f"column {field.name!r} has only nulls")
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


class SparkLooker:
    """Asks Spark, which reads files as the functions will."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def files(self, directory: str) -> Found | None:
        """What is in a directory of Parquet files; None if there are none."""
        try:
            frame = self._spark.read.option("recursiveFileLookup", "true").parquet(directory)
            frame = frame.drop(OUTCOME, RECORD, ERROR)  # files of a function have these beside its columns
            return Found(written_down(frame.schema), frame.limit(SAMPLE_RECORDS).toArrow())
        except PySparkException as problem:
            log.info("nothing can be told of %s: %s", directory, str(problem).partition("\n")[0])
            return None

    def transformed(self, function: Function, schema: str) -> str:
        """The schema that a DataFrame function makes of one; nothing is computed for it."""
        try:
            return written_down(function.call(self._spark.createDataFrame([], schema)).schema)
        except Exception as problem:
            raise BadInput(
                f"function {function.name!r} needs schema=: a try without records failed: {problem}"
            ) from problem
