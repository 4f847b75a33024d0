"""Where topics lie: directories of Parquet files, Kafka, or any stream that Spark can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.errors import BadInput


@dataclass(frozen=True, slots=True)
class Files:
    """Topics as directories under one root that driver and executors share."""

    root: str
    files_per_batch: int | None = None
    """Files that a batch reads at most; None reads all that are there."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """Topics of a Kafka cluster; records travel as JSON in the value."""

    servers: str
    records_per_batch: int | None = None
    prefix: str = ""
    """Put before the topic's name, where several pipelines share a cluster."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A topic that is only read: any format of `spark.readStream`."""

    form: str
    options: Mapping[str, str] = field(default_factory=dict)


Location: TypeAlias = Files | Kafka | Stream


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic by name; the schema is Spark's own notation, such as `number bigint, word string`."""

    name: str
    schema: str | None = None
    at: Location | None = None


def files(root: str, *, files_per_batch: int | None = None) -> Files:
    """Topics as directories of Parquet files under this root; nothing needs to be installed."""
    return Files(str(root), _at_least_one("files_per_batch", files_per_batch))


def kafka(servers: str, *, records_per_batch: int | None = None, prefix: str = "") -> Kafka:
    """Topics of the Kafka cluster at these bootstrap servers."""
    return Kafka(servers, _at_least_one("records_per_batch", records_per_batch), prefix)


def stream(form: str, **options: object) -> Stream:
    """A topic that is only read, in any format that `spark.readStream` knows."""
    return Stream(form, {key: str(value) for key, value in options.items()})


def _at_least_one(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadInput(f"{name} is {value!r}, not a whole number of 1 or more")
    return value
