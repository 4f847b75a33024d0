"""Schemas of topics: found where nobody wrote them down, and checked with Spark before a run.

What is declared is never looked for. A topic that has files keeps their schema, from run to run. A function
whose topic has none yet is called once on the driver, with the first records that there are; where there are
none, or it fails on them, its schema has to be given.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
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
from penstock.pipeline.timestamps import ARRIVED, ENTERED
from penstock.pipeline.topics import Files, Stream, files

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
    """Questions that only Spark can answer; `SparkLooker` is the real one."""

    def files(self, directory: str) -> Found | None:
        """Return what is in a directory of Parquet files; None if there are none."""

    def transform_schema(self, function: Function, schema: str) -> str:
        """Return the schema that a DataFrame function makes of one."""


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
    """Leave alone what a query that runs already reads and writes."""
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
    """Try functions from the sources on: what one writes is what the next is tried on."""
    own = {one.name for one in _own(pipeline)}
    for name in pipeline.layout().functions:
        function = pipeline.functions[name]
        read = next((known[topic] for topic in function.reads if topic in known), None)
        if name not in own or function.writes is None or function.writes in known or read is None:
            continue
        place = pipeline.topics[function.writes].at or pipeline.location
        earlier = look.files(f"{place.root}/{function.writes}") if isinstance(place, Files) else None
        known[function.writes] = found = earlier or _try_function(function, read, look)
        pipeline.assume(function.writes, found.schema)
        log.info("topic %s, which %s writes, has the schema %s", function.writes, name, found.schema)


def _try_function(function: Function, read: Found, look: Looker) -> Found:
    if function.takes is Takes.DATAFRAME:
        return Found(look.transform_schema(function, read.schema))
    if function.takes is Takes.KEYED:
        raise BadInput(f"function {function.name!r} needs schema=: one with state is not tried")
    if read.sample is None or not len(read.sample):
        raise BadInput(f"function {function.name!r} needs schema=: there is nothing yet to try it on")
    batch = read.sample.combine_chunks().to_batches()[0]
    try:
        with time_limit(function.timeout):
            result = function.call(batch if function.takes is Takes.ARROW else batch.to_pandas())
        made = as_table(function.name, result)
        return Found(write_schema(from_arrow_schema(made.schema)), made)
    except Exception as problem:
        raise BadInput(
            f"function {function.name!r} needs schema=: a try on {len(batch)} records failed: {problem}"
        ) from problem


def write_schema(schema: StructType) -> str:
    """Write a schema in Spark's notation; BadInput names a column that has no type."""
    for field in schema.fields:
        if isinstance(field.dataType, NullType):
            raise BadInput(f"column {field.name!r} has only nulls")
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


class SparkLooker:
    """Asks Spark, which reads files as the functions will."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def files(self, directory: str) -> Found | None:
        """Return what is in a directory of Parquet files; None if there are none."""
        try:
            frame = self._spark.read.option("recursiveFileLookup", "true").parquet(directory)
            frame = frame.drop(
                OUTCOME, RECORD, ERROR, ENTERED
            )  # files of a function have these beside its columns
            return Found(write_schema(frame.schema), frame.limit(SAMPLE_RECORDS).toArrow())
        except PySparkException as problem:
            log.info("nothing can be told of %s: %s", directory, str(problem).partition("\n")[0])
            return None

    def transform_schema(self, function: Function, schema: str) -> str:
        """Return the schema that a DataFrame function makes of one; nothing is computed for it."""
        try:
            return write_schema(function.call(self._spark.createDataFrame([], schema)).schema)
        except Exception as problem:
            raise BadInput(
                f"function {function.name!r} needs schema=: a try without records failed: {problem}"
            ) from problem


Schemas = Mapping[str, StructType]
"""Topic → its schema; topics that are only read have their own, which the source tells."""


def check_all(pipeline: Pipeline, spark: SparkSession) -> None:
    """Raise BadInput with the name of the function or topic that cannot work."""
    _check_dead_letters(pipeline)
    schemas = {
        name: parse_schema(spark, f"{pipeline.name}: topic {name!r}", topic.schema)
        for name, topic in pipeline.topics.items()
        if topic.schema is not None
    }
    check_reserved(pipeline.name, schemas)
    for function in pipeline.functions.values():
        if function.state is not None:
            parse_schema(spark, f"{pipeline.name}: the state of function {function.name!r}", function.state)
        check_columns(pipeline.name, function, schemas)


def parse_schema(spark: SparkSession, what: str, schema: str) -> StructType:
    """Parse a schema in Spark's notation; BadInput says whose it is."""
    try:
        return spark.createDataFrame([], schema).schema
    except (PySparkException, ValueError) as error:
        said = " ".join(str(error).split("== SQL")[0].split())
        raise BadInput(f"{what}: {schema!r} is no schema that Spark reads: {said[:200]}") from None


def check_reserved(pipeline: str, schemas: Schemas) -> None:
    """Check that no topic has a column of the names under which moments travel with records."""
    for topic, schema in schemas.items():
        taken = [name for name in schema.names if name.lower() in (ENTERED, ARRIVED)]
        if taken:
            raise BadInput(f"{pipeline}: topic {topic!r} has a column {taken[0]!r}; choose another name")


def check_columns(pipeline: str, function: Function, schemas: Schemas) -> None:
    """Check that key and order are columns of what is read, and that topics read together have the same."""
    read = [(topic, schemas[topic].names) for topic in function.reads if topic in schemas]
    place = f"{pipeline}: function {function.name!r}"
    for topic, columns in read:
        for column in (*function.key, *((function.order,) if function.order else ())):
            if column not in columns:
                raise BadInput(
                    f"{place}: topic {topic!r} has no column {column!r}, only {', '.join(columns)}"
                )
        if set(columns) != set(read[0][1]):
            raise BadInput(f"{place} reads {read[0][0]!r} and {topic!r} together, whose columns differ")


def check_result(function: str, found: StructType, wanted: StructType) -> None:
    """Check that what a DataFrame function returned has its topic's columns, null or not."""
    types = {field.name: field.dataType.simpleString() for field in found.fields}
    for field in wanted.fields:
        kind = field.dataType.simpleString()
        if field.name not in types:
            raise BadInput(f"function {function!r} returned no column {field.name!r}")
        if types[field.name] != kind:
            raise BadInput(
                f"function {function!r} returned {types[field.name]} in column {field.name!r}, not {kind}"
            )
    unknown = [name for name in types if name not in wanted.names]
    if unknown:
        raise BadInput(f"function {function!r} returned the column {unknown[0]!r}, which its topic lacks")


def check_start(pipeline: Pipeline, sizes: Mapping[str, int]) -> None:
    """Check that sizes to begin with are those of functions, within what each may have."""
    for name, size in sizes.items():
        function = pipeline.functions.get(name)
        if function is None:
            raise BadInput(f"start_at: no function {name!r}; there are {', '.join(pipeline.functions)}")
        if isinstance(size, bool) or not isinstance(size, int) or not function.least <= size <= function.most:
            raise BadInput(
                f"start_at: {name!r} may have {function.least} to {function.most} instances, not {size!r}"
            )


def _check_dead_letters(pipeline: Pipeline) -> None:
    """Check that a function that writes nothing has a place for its dead letters all the same."""
    for one in pipeline.functions.values():
        if (
            one.writes is None
            and one.takes is not Takes.QUERY
            and (pipeline.location is None or isinstance(pipeline.location, Stream))
        ):
            raise BadInput(
                f"{pipeline.name}: function {one.name!r} has no place for dead letters; give topics="
            )
