"""Topics as Spark reads and writes them; a batch that is run again after a crash publishes nothing twice.

File topics. The batch of a function is written beside the topics first, then its directory is renamed into
the topic: readers see all of a batch or nothing, and a batch whose directory is there already is left alone.
So records go from topic to topic exactly once wherever a rename is atomic, as on local disks and HDFS.
Kafka topics. Spark's sink writes at least once: a batch that is run again writes its records again.

Each record comes with two moments, which `timestamps` explains. One without a moment of entry comes from
outside, and enters when it came to its topic: as Kafka's timestamp, the file's last change or the source's
own column says, else when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.pipeline.definition import DEAD_LETTERS
from penstock.pipeline.serving import DEAD, ERROR, OUTCOME, RECORD, SERVED
from penstock.pipeline.timestamps import ARRIVED, ENTERED, ENTERED_HEADER
from penstock.pipeline.topics import Files, Kafka, Location, Stream, Topic

KEY_SEPARATOR = "\u0001"
"""Between the columns of the key of a Kafka record."""

_OLDER_WAYS = ("spark.sql.sources.useV1SourceList", "avro,csv,json,orc,parquet,text")
"""Spark's own list without Kafka.

What is written to Kafka the older way is never told to an observation (seen on Spark 4.3). The newer way
needs the connector's classes from the start of Spark: with those of a later `ADD JAR` the driver cannot read
what its tasks answer. So it is used only where something is observed.
"""


_LONGEST_NAME = 1_000_000
_STAMPED = ("kafka", "rate", "rate-micro-batch")
"""Sources whose column `timestamp` says when a record came."""


def read_topic(spark: SparkSession, topic: Topic, place: Location) -> DataFrame:
    """Return the records of a topic as a streaming DataFrame, each with its moments."""
    if isinstance(place, Stream):
        return _from_stream(spark.readStream.format(place.form).options(**dict(place.options)).load(), place)
    assert topic.schema is not None
    if isinstance(place, Kafka):
        return _from_kafka(spark, topic.name, topic.schema, place)
    directory = f"{place.root}/{topic.name}"
    FileSystem(spark, directory).make(directory)
    reader = spark.readStream.schema(f"{topic.schema}, {ENTERED} timestamp")
    reader = reader.option("recursiveFileLookup", "true")
    if place.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", place.files_per_batch)
    changed = _seconds(sf.col("_metadata.file_modification_time"))
    return _add_moments(reader.parquet(directory), changed, _seconds(sf.col(ENTERED)))


def _from_stream(records: DataFrame, place: Stream) -> DataFrame:
    if place.form in _STAMPED:
        return _add_moments(records, _seconds(sf.col("timestamp")))
    try:
        return _add_moments(records, _seconds(sf.col("_metadata.file_modification_time")))
    except AnalysisException:
        return _add_moments(records, _seconds(sf.current_timestamp()))


def _from_kafka(spark: SparkSession, name: str, schema: str, place: Kafka) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", place.servers)
    reader = reader.option("subscribe", place.prefix + name).option("startingOffsets", "earliest")
    reader = reader.option("includeHeaders", "true")
    if place.records_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", place.records_per_batch)
    own = sf.filter("headers", lambda header: header["key"] == ENTERED_HEADER)
    entered = sf.get(own, sf.lit(0))["value"].cast("string").try_cast("bigint") / 1000
    stamped = _add_moments(reader.load(), _seconds(sf.col("timestamp")), entered)
    value = sf.from_json(sf.col("value").cast("string"), schema).alias("record")
    return stamped.select(value, ENTERED, ARRIVED).select("record.*", ENTERED, ARRIVED)


def _add_moments(records: DataFrame, arrived: Column, entered: Column | None = None) -> DataFrame:
    columns = [sf.col(f"`{name}`") for name in records.columns if name != ENTERED]
    first = arrived if entered is None else sf.coalesce(entered, arrived)
    return records.select(*columns, first.alias(ENTERED), arrived.alias(ARRIVED))


def _seconds(moment: Column) -> Column:
    return sf.unix_micros(moment) / 1e6


@dataclass(frozen=True, slots=True)
class Written:
    """Where a batch goes: the place of its topics, the topic itself, and the batch's unmistakable name."""

    functions: tuple[str, ...]
    """Those that made the batch, whose dead letters are in it."""
    topic: str | None
    place: Location
    batch: str
    key: tuple[str, ...] = ()
    run: str = ""
    """Of the query: two drivers that have the same batch at once, for a moment, do not disturb each other."""
    observed: bool = False
    """Whether observations are waited for."""


def publish(spark: SparkSession, outcome: DataFrame, target: Written) -> None:
    """Write served records to the topic and dead letters to theirs, in one pass over the batch."""
    if isinstance(target.place, Kafka):
        _to_kafka(outcome, target, target.place)
    else:
        assert isinstance(target.place, Files)
        _to_files(spark, outcome, target, target.place.root)


def _to_files(spark: SparkSession, outcome: DataFrame, target: Written, root: str) -> None:
    staged = f"{root}/_penstock/{target.batch}.{target.run}"
    system = FileSystem(spark, staged)
    stamped = outcome.withColumn(ENTERED, sf.timestamp_micros(_count(ENTERED, 1e6)))
    stamped.write.mode("overwrite").partitionBy(OUTCOME).parquet(staged)
    # dead letters first: the served records are what a batch that is run again looks for
    for function in target.functions:
        letters = f"{root}/{DEAD_LETTERS.format(function)}"
        system.move(f"{staged}/{OUTCOME}={DEAD.format(function)}", letters, target.batch)
    if target.topic is not None:
        system.move(f"{staged}/{OUTCOME}={SERVED}", f"{root}/{target.topic}", target.batch)
    system.remove_all(f"{root}/_penstock/{target.batch}.*")  # also what a run that died has left of it


def _count(column: str, per_second: float) -> Column:
    """Return a moment in whole units of time; null where pandas made it NaN, as for dead letters."""
    moment = sf.col(column)
    return sf.when(~sf.isnan(moment), sf.round(moment * per_second).cast("bigint"))


def _to_kafka(outcome: DataFrame, target: Written, place: Kafka) -> None:
    hidden = (OUTCOME, RECORD, ERROR, ENTERED)
    columns = [name for name in outcome.columns if name not in hidden]
    is_dead = sf.col(OUTCOME) != SERVED
    function = sf.substring(OUTCOME, len(DEAD.format("")) + 1, _LONGEST_NAME)
    letter = sf.to_json(
        sf.struct(
            function.alias("function"),
            sf.col(RECORD).alias("record"),
            sf.col(ERROR).alias("error"),
        )
    )
    served = sf.to_json(sf.struct(*columns)) if columns else sf.lit(None).cast("string")
    dead_topic = sf.concat(sf.lit(place.prefix), function, sf.lit(DEAD_LETTERS.format("")))
    topic = sf.when(is_dead, dead_topic).otherwise(f"{place.prefix}{target.topic}")
    # without a key there is none: an empty one would bring all records to one partition
    keys = [sf.col(name).cast("string") for name in target.key if name in columns]
    key = sf.when(~is_dead, sf.concat_ws(KEY_SEPARATOR, *keys)) if keys else sf.lit(None).cast("string")
    rows = outcome if target.topic is not None else outcome.where(is_dead)
    value = sf.when(is_dead, letter).otherwise(served).alias("value")
    rows = rows.select(topic.alias("topic"), key.alias("key"), value, _make_headers().alias("headers"))
    if target.observed:
        rows.sparkSession.conf.set(*_OLDER_WAYS)
    rows.write.format("kafka").option("kafka.bootstrap.servers", place.servers).mode("append").save()


def _make_headers() -> Column:
    """Return the headers of a record: the moment at which it entered, where it has one."""
    entered = _count(ENTERED, 1e3)
    name, value = sf.lit(ENTERED_HEADER).alias("key"), entered.cast("string").cast("binary").alias("value")
    return sf.when(entered.isNotNull(), sf.array(sf.struct(name, value)))


def dead_letters(spark: SparkSession, place: Files, function: str) -> DataFrame:
    """Return the dead letters of a function on file topics: record and error."""
    directory = f"{place.root}/{DEAD_LETTERS.format(function)}"
    FileSystem(spark, directory).make(directory)
    reader = spark.read.schema(f"{RECORD} string, {ERROR} string").option("recursiveFileLookup", "true")
    found = reader.parquet(directory)
    return found.select(sf.col(RECORD).alias("record"), sf.col(ERROR).alias("error"))


class FileSystem:
    """Hadoop's file system of a path, through Py4J; seen to work on Spark 4.3 with local paths."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._paths = jvm.org.apache.hadoop.fs.Path
        context: Any = spark.sparkContext._jsc
        self._system = self._paths(path).getFileSystem(context.hadoopConfiguration())

    def make(self, directory: str) -> None:
        """See that a directory is there."""
        self._system.mkdirs(self._paths(directory))

    def move(self, directory: str, into: str, name: str) -> None:
        """Rename a directory into another one, unless it is empty or that name is there already."""
        origin, target = self._paths(directory), self._paths(f"{into}/{name}")
        if not self._system.exists(origin) or self._system.exists(target):
            return
        self.make(into)
        if not self._system.rename(origin, target):
            raise OSError(f"{directory} could not be renamed to {into}/{name}")

    def mark(self, directory: str, name: str) -> None:
        """Create an empty file, whose name is all that it says."""
        self.make(directory)
        self._system.create(self._paths(f"{directory}/{name}"), True).close()

    def list_names(self, directory: str) -> list[str]:
        """List what is in a directory; nothing if it is not there."""
        found = self._system.globStatus(self._paths(f"{directory}/*")) or ()
        return [one.getPath().getName() for one in found]

    def remove_all(self, pattern: str) -> None:
        """Remove the directories whose names fit, with all that is in them."""
        for found in self._system.globStatus(self._paths(pattern)) or ():
            self._system.delete(found.getPath(), True)
