"""Recorded topologies and rates, in the CSV formats that DS2 published.

Every function takes lines of text and the name of their file, which errors repeat with the line.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.dataflow.graph import LogicalGraph
from penstock.errors import BadGraph, BadRecording

USE_OBSERVED_RATE = -1.0
"""In a file of source rates: take the observed rate of this source as its target."""

TOPOLOGY_COLUMNS = (
    "operator_id1",
    "operator_name1",
    "instances1",
    "operator_id2",
    "operator_name2",
    "instances2",
)
RATE_COLUMNS = (
    "operator_id",
    "instance_id",
    "instances",
    "epoch_timestamp",
    "true_processing_rate",
    "true_output_rate",
    "observed_processing_rate",
    "observed_output_rate",
)
SOURCE_RATE_COLUMNS = ("source_operator_name", "output_rate_per_instance")


@dataclass(frozen=True, slots=True)
class RecordedTopology:
    """The graph of a recording, keyed by operator name; `name_of` leads from id to name."""

    graph: LogicalGraph
    name_of: Mapping[str, str]
    instances: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RecordedRates:
    """The report of one instance at the end of one epoch, in records per second.

    `instances` is how many instances its operator had then, which a rescale may have changed since the
    topology was written.
    """

    operator: str
    instance: str
    instances: int
    timestamp: float
    true_processing: float
    true_output: float
    observed_processing: float
    observed_output: float


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a file, split into the columns that its format names."""

    place: str
    fields: Mapping[str, str]

    def error(self, what: str) -> BadRecording:
        return BadRecording(f"{self.place}: {what}")

    def text(self, column: str) -> str:
        if not self.fields[column]:
            raise self.error(f"{column} is empty")
        return self.fields[column]

    def number(self, column: str) -> float:
        text = self.text(column)
        try:
            # Python would take 1_000 for a number; a CSV file that holds it is broken
            value = float(text) if "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(f"{column} is {text!r}, not a number")
        return value

    def rate(self, column: str) -> float:
        value = self.number(column)
        if value < 0:
            raise self.error(f"{column} is {self.fields[column]}, a rate cannot be negative")
        return value

    def count(self, column: str) -> int:
        value = self.number(column)
        if value < 1 or value != int(value):
            raise self.error(f"{column} is {self.fields[column]}, not a whole number from 1 up")
        return int(value)


def parse_topology(lines: Iterable[str], file: str) -> RecordedTopology:
    """Read one edge a line; an operator keeps the same id, name and instances throughout."""
    known: dict[str, tuple[str, int]] = {}
    edges: dict[tuple[str, str], str] = {}
    for line in _split(lines, file, TOPOLOGY_COLUMNS):
        edge = (_declare(line, known, "1"), _declare(line, known, "2"))
        if edge in edges:
            raise line.error(f"the edge {edge[0]!r} → {edge[1]!r} is already in {edges[edge]}")
        edges[edge] = line.place
    if not edges:
        raise BadRecording(f"{file}: no edge in the topology")
    try:
        graph = LogicalGraph((name for name, _ in known.values()), edges)
    except BadGraph as error:
        raise BadRecording(f"{file}: {error}") from None
    return RecordedTopology(graph, {key: name for key, (name, _) in known.items()}, dict(known.values()))


def _declare(line: _Line, known: dict[str, tuple[str, int]], side: str) -> str:
    """Note one end of an edge; what an earlier line said of it must agree, and names key the answer."""
    key, name = line.text(f"operator_id{side}"), line.text(f"operator_name{side}")
    count = line.count(f"instances{side}")
    if key not in known:
        if any(name == other for other, _ in known.values()):
            raise line.error(f"the name {name!r} already belongs to another operator id than {key!r}")
        known[key] = (name, count)
    if known[key] != (name, count):
        told = "named {!r} with {} instances".format(*known[key])
        raise line.error(f"operator {key!r} was {told} before, here {name!r} with {count}")
    return name


def parse_rates(lines: Iterable[str], file: str, topology: RecordedTopology) -> tuple[RecordedRates, ...]:
    """Read one instance and epoch a line, in file order; the same report twice is an error."""
    rows: list[RecordedRates] = []
    places: dict[tuple[str, str, float], str] = {}
    for line in _split(lines, file, RATE_COLUMNS):
        row = _rates_of(line, topology)
        report = (row.operator, row.instance, row.timestamp)
        if report in places:
            what = f"instance {row.instance!r} of {row.operator!r} at {line.fields['epoch_timestamp']}"
            raise line.error(f"{what} is already in {places[report]}")
        places[report] = line.place
        rows.append(row)
    return tuple(rows)


def _rates_of(line: _Line, topology: RecordedTopology) -> RecordedRates:
    name = topology.name_of.get(line.text("operator_id"))
    if name is None:
        raise line.error(f"operator {line.fields['operator_id']!r} is not in the topology")
    return RecordedRates(
        operator=name,
        instance=line.text("instance_id"),
        instances=line.count("instances"),
        timestamp=line.number("epoch_timestamp"),
        true_processing=line.rate("true_processing_rate"),
        true_output=line.rate("true_output_rate"),
        observed_processing=line.rate("observed_processing_rate"),
        observed_output=line.rate("observed_output_rate"),
    )


def parse_source_rates(lines: Iterable[str], file: str, topology: RecordedTopology) -> dict[str, float]:
    """Read a rate per instance of each source; -1 stands for the observed rate."""
    rates: dict[str, float] = {}
    for line in _split(lines, file, SOURCE_RATE_COLUMNS):
        given = line.text("source_operator_name")
        name = given if given in topology.instances else topology.name_of.get(given)
        if name is None:
            raise line.error(f"operator {given!r} is not in the topology")
        if name not in topology.graph.sources:
            raise line.error(f"operator {name!r} is not a source")
        if name in rates:
            raise line.error(f"the rate of source {name!r} is given twice")
        observed = line.number("output_rate_per_instance") == USE_OBSERVED_RATE
        rates[name] = USE_OBSERVED_RATE if observed else line.rate("output_rate_per_instance")
    return rates


def split_epochs(rows: Iterable[RecordedRates]) -> list[tuple[RecordedRates, ...]]:
    """Cut the reports, in order of time, wherever an instance reports again.

    The instances of one epoch carry slightly different timestamps, so time alone cannot tell.
    """
    epochs: list[list[RecordedRates]] = []
    seen: set[tuple[str, str]] = set()
    for row in sorted(rows, key=lambda row: row.timestamp):
        reporter = (row.operator, row.instance)
        if not epochs or reporter in seen:
            epochs.append([])
            seen.clear()
        seen.add(reporter)
        epochs[-1].append(row)
    return [tuple(epoch) for epoch in epochs]


def _split(lines: Iterable[str], file: str, columns: tuple[str, ...]) -> Iterator[_Line]:
    """Yield the lines that hold data; comments and blank lines are left out, quotes are understood."""
    for number, raw in enumerate(lines, start=1):
        text = raw.removeprefix("\ufeff").strip()
        if not text or text.startswith("#"):
            continue
        place = f"{file}, line {number}"
        try:
            fields = [field.strip() for field in next(csv.reader([text], strict=True, skipinitialspace=True))]
        except csv.Error as error:
            raise BadRecording(f"{place}: {error}") from None
        if len(fields) != len(columns):
            wanted = ",".join(columns)
            raise BadRecording(f"{place}: {len(fields)} columns, expected {len(columns)}: {wanted}")
        yield _Line(place, dict(zip(columns, fields, strict=True)))
