"""A Spark streaming source that offers records by a rate profile, whether or not they are read.

    spark.dataSource.register(LoadSource)
    spark.readStream.format("penstock-load").option("profile", "constant:100").load()

Options: `profile` (text, see profiles.py), `partitions` (tasks a batch, default 4), `start` (seconds
since the epoch at which the profile begins; default: when the query first starts), `maxRecords`
(after so many in all the source stays silent), `maxRecordsPerBatch` (admission control), `seed`,
`content` (`sentences`, or `numbers` for record numbers alone, which cost next to nothing), `skew` (the
share of the words of sentences that are one and the same), `preload`
and `preloadPerBatch` (so many records are offered before the profile begins, in batches of that size:
the profile's clock starts when they are read).

Offsets. `{"records": n, "start_ms": t}`: records read in all, and the start of the profile (0 while a
preload lasts). The start travels in the checkpoint, so a query restarted from it continues the same
load and finds a backlog of what was offered meanwhile. Partitions are cut by record number, and a
record's content follows from its number, so a batch that is run again reads the same records.

What Spark 4.3 reports of it in the progress JSON of each batch, under `sources[]`:
- `description`: the JVM wrapper's class and hash, `...PythonMicroBatchStreamWithAdmissionControl@48364695`;
  it names neither the format nor the options, so a reader knows this source by its offsets.
- `startOffset`, `endOffset`: the offsets above, before and after the batch.
- `latestOffset`: what `reportLatestOffset` said when the batch was planned: all records offered so
  far, and `at_ms`, when that was. Offered rate = Δrecords / Δat_ms between two batches; backlog =
  latestOffset.records − endOffset.records, above 0 only when `maxRecordsPerBatch` held some back.
- Rows are counted (`numInputRows`), and each task reports its input records.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.version import __version__ as spark_version

from penstock.errors import BadInput, Unsupported
from penstock.simulate.profiles import Profile, parse_profile, records_offered
from penstock_lab.workloads.records import Load, make_sentences

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
except ModuleNotFoundError as error:
    # 4.1 has no limit for a batch of a Python source, and no report of what it was offered
    raise Unsupported(
        f"the laboratory's sources need Spark 4.2 or later, and pyspark {spark_version} is installed: "
        "install a newer one, or run a job of your own with `penstock run`"
    ) from error

FORMAT = "penstock-load"
PRELOAD_PER_BATCH = 1_000_000
Offset = dict[str, int]


class Content(Protocol):
    """The content of records; it must follow from its number alone."""

    @property
    def schema(self) -> str:
        """The columns, as Spark writes them."""

    @property
    def rows_per_batch(self) -> int:
        """Records in one Arrow batch."""

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """Return the records first … first+count-1."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """The number of the record and a sentence of 20 words."""

    seed: int = 0
    skew: float = 0.0
    schema: str = "number bigint, sentence string"
    rows_per_batch: int = 500
    """Small enough that a paced operator downstream starts early, large enough to be cheap."""

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """Return records by number."""
        columns = [_list_numbers(first, count), make_sentences(first, count, self.seed, self.skew)]
        return pa.RecordBatch.from_arrays(columns, names=["number", "sentence"])


@dataclass(frozen=True, slots=True)
class Numbers:
    """The number of the record and nothing else."""

    schema: str = "number bigint"
    rows_per_batch: int = 50_000

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """Return records by number."""
        return pa.RecordBatch.from_arrays([_list_numbers(first, count)], names=["number"])


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The user's options of the source, checked."""

    profile: Profile
    partitions: int
    start_ms: int | None
    max_records: int | None
    max_records_per_batch: int | None
    seed: int
    preload: int
    preload_per_batch: int

    @staticmethod
    def parse(options: Mapping[str, str]) -> LoadOptions:
        """Read the options of `spark.readStream`."""
        start = read_number(options, "start", math.nan)
        if start <= 0 or math.isinf(start):
            raise BadInput(f"the option start is {start:g}, not seconds since the epoch")
        return LoadOptions(
            profile=parse_profile(options.get("profile", "constant:1")),
            partitions=_read_whole(options, "partitions", 4, least=1) or 1,
            start_ms=None if math.isnan(start) else round(start * 1000),
            max_records=_read_whole(options, "maxRecords", None, least=0),
            max_records_per_batch=_read_whole(options, "maxRecordsPerBatch", None, least=1),
            seed=_read_whole(options, "seed", 0, least=0) or 0,
            preload=_read_whole(options, "preload", 0, least=0) or 0,
            preload_per_batch=_read_whole(options, "preloadPerBatch", PRELOAD_PER_BATCH, least=1) or 1,
        )

    def count_offered(self, start_ms: int, now: float) -> int:
        """Count the records offered so far, bounded by `maxRecords`; the preload alone until it is read."""
        begun = start_ms > 0
        records = self.preload + (records_offered(self.profile, now - start_ms / 1000) if begun else 0)
        return records if self.max_records is None else min(records, self.max_records)


class RecordRange(InputPartition):
    """One task's records: first … end-1."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__((first, end))
        self.first = first
        self.end = end


class LoadReader(DataSourceStreamReader):
    """Runs in one Python process beside the driver; `read` runs on the executors."""

    def __init__(self, options: LoadOptions, content: Content | None = None) -> None:
        self.options = options
        self.content = content or Sentences(options.seed)
        self.start_ms: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a new query begins; the profile starts now unless an option says otherwise."""
        return {"records": 0, "start_ms": 0 if self.options.preload else self._find_start()}

    def _find_start(self) -> int:
        start_ms = self.options.start_ms
        return round(time.time() * 1000) if start_ms is None else start_ms

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the bound on one batch, if one was asked for."""
        most = self.options.max_records_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return up to where the next batch reads; the same offset again when nothing new was offered."""
        self.start_ms = start["start_ms"]
        if self.start_ms == 0 and start["records"] < self.options.preload:
            end = start["records"] + self.options.preload_per_batch
            return {"records": min(end, self.options.preload), "start_ms": 0}
        self.start_ms = self.start_ms or self._find_start()
        end = max(start["records"], self.options.count_offered(self.start_ms, time.time()))
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["records"] + limit.max_rows)
        return {"records": end, "start_ms": self.start_ms}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return all that was offered, read or not: `sources[].latestOffset` of the query's progress."""
        if self.start_ms is None:
            return None
        now = time.time()
        offered = self.options.count_offered(self.start_ms, now)
        return {"records": offered, "start_ms": self.start_ms, "at_ms": round(now * 1000)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[RecordRange]:
        """Return equal ranges of record numbers; fewer than asked for only when records are."""
        return cut_ranges(start["records"], end["records"], self.options.partitions)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Generate the records of one range as Arrow batches."""
        assert isinstance(partition, RecordRange)
        rows = self.content.rows_per_batch
        for first in range(partition.first, partition.end, rows):
            yield self.content.batch(first, min(rows, partition.end - first))


class LoadSource(DataSource):
    """The data source to register; its schema follows from what the records hold."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of the content."""
        return self.make_content().schema

    def make_content(self) -> Content:
        """Return what the records hold, by the option `content`."""
        name = self.options.get("content", "sentences")
        if name not in ("sentences", "numbers"):
            raise BadInput(f"the option content is {name!r}, not sentences or numbers")
        if name == "numbers":
            return Numbers()
        skew = read_number(self.options, "skew", 0.0)
        if not 0 <= skew <= 1:
            raise BadInput(f"the option skew is {skew:g}, not between 0 and 1")
        return Sentences(LoadOptions.parse(self.options).seed, skew)

    def streamReader(self, schema: StructType) -> LoadReader:  # noqa: N802
        """Make the reader; options are checked here, before the query starts to run."""
        return LoadReader(LoadOptions.parse(self.options), self.make_content())


def cut_ranges(start: int, end: int, parts: int) -> list[RecordRange]:
    """Cut start … end into at most `parts` non-empty ranges whose sizes differ by at most one."""
    cuts = [start + (end - start) * part // parts for part in range(parts + 1)]
    return [RecordRange(first, last) for first, last in pairwise(cuts) if last > first]


def _list_numbers(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _read_whole(options: Mapping[str, str], key: str, default: int | None, least: int) -> int | None:
    text = options.get(key)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise BadInput(f"the option {key} is {text!r}, not a whole number") from None
    if value < least:
        raise BadInput(f"the option {key} is {value}, below {least}")
    return value


def read_number(options: Mapping[str, str], key: str, default: float) -> float:
    """Read an option that is a number."""
    text = options.get(key)
    try:
        return default if text is None else float(text)
    except ValueError:
        raise BadInput(f"the option {key} is {text!r}, not a number") from None


def read_load(spark: SparkSession, load: Load) -> DataFrame:
    """Return the records of a load as a streaming DataFrame."""
    spark.dataSource.register(LoadSource)
    return spark.readStream.format(FORMAT).options(**load.list_options()).load()


def start_counts(
    counts: DataFrame,
    checkpoint: str,
    *,
    trigger_seconds: float,
    name: str,
    sink: str = "noop",
    mode: str = "update",
) -> StreamingQuery:
    """Start a query of counts; sink `memory` keeps its rows in a table of the query's name."""
    writer = counts.writeStream.queryName(name).outputMode(mode).format(sink)
    timed = writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds")
    return timed.option("checkpointLocation", checkpoint).start()
