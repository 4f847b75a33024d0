"""What only Spark can tell of a pipeline before it runs: schemas, and columns that functions name."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.errors import BadInput
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.topics import Stream

Schemas = Mapping[str, StructType]
"""Topic → its schema; topics that are only read have their own, which the source tells."""


def check_all(pipeline: Pipeline, spark: SparkSession) -> None:
    """Raise BadInput with the name of the function or topic that cannot work."""
    _check_dead_letters(pipeline)
    schemas = {
        name: parsed(spark, f"{pipeline.name}: topic {name!r}", topic.schema)
        for name, topic in pipeline.topics.items()
        if topic.schema is not None
    }
    for function in pipeline.functions.values():
        if function.state is not None:
            parsed(spark, f"{pipeline.name}: the state of function {function.name!r}", function.state)
        check_columns(pipeline.name, function, schemas)


def parsed(spark: SparkSession, what: str, schema: str) -> StructType:
    """A schema in Spark's notation; BadInput says whose it is."""
    try:
        return spark.createDataFrame([], schema).schema
    except (PySparkException, ValueError) as error:
        said = " ".join(str(error).split("== SQL")[0].split())
        raise BadInput(f"{what}: {schema!r} is no schema that Spark reads: {said[:200]}") from None


def check_columns(pipeline: str, function: Function, schemas: Schemas) -> None:
    """Key and order are columns of what is read, and what is read together has the same columns."""
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
    """What a DataFrame function returned has the columns of its topic, whether or not they may be null."""
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
    """Sizes to begin with are those of functions, within what each may have."""
    for name, size in sizes.items():
        function = pipeline.functions.get(name)
        if function is None:
            raise BadInput(f"start_at: no function {name!r}; there are {', '.join(pipeline.functions)}")
        if isinstance(size, bool) or not isinstance(size, int) or not function.least <= size <= function.most:
            raise BadInput(
                f"start_at: {name!r} may have {function.least} to {function.most} instances, not {size!r}"
            )


def _check_dead_letters(pipeline: Pipeline) -> None:
    """A function that writes nothing needs a place for its dead letters all the same."""
    for one in pipeline.functions.values():
        if (
            one.writes is None
            and one.takes is not Takes.QUERY
            and (pipeline.location is None or isinstance(pipeline.location, Stream))
        ):
            raise BadInput(
                f"{pipeline.name}: function {one.name!r} has no place for dead letters; give topics="
            )
