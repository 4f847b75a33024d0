"""Nexmark events as a Spark streaming source, at the pace of a rate profile.

    spark.dataSource.register(NexmarkSource)
    spark.readStream.format("penstock-nexmark").options(kind="bids", profile="constant:1000").load()

Options beside those of the load source (source.py): `kind` (persons, auctions or bids), `columns` (a
comma-separated choice of that kind's columns: what is not asked for is not made), `eventsPerSecond`,
`firstTime`, `outOfOrderShare`, `outOfOrderSeconds`, `lateShare`, `lateSeconds`, `hotAuctions`, `hotPersons`
(shares), `auctionsInFlight`, `activePersons`.

Offsets count events of all kinds: a query that reads bids from a load of 1000 events/s sees 920 rows/s.
Two sources with the same options and different kinds are two parts of one stream of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import BadInput
from penstock.workloads.nexmark import COLUMNS, Nexmark, schema_of
from penstock.workloads.source import Content, LoadOptions, LoadSource, number_option

NEXMARK_FORMAT = "penstock-nexmark"

_NUMBERS = {
    "eventsPerSecond": "events_per_second",
    "firstTime": "first_time",
    "outOfOrderShare": "out_of_order_share",
    "outOfOrderSeconds": "out_of_order_seconds",
    "lateShare": "late_share",
    "lateSeconds": "late_seconds",
    "hotAuctions": "hot_auctions",
    "hotPersons": "hot_persons",
    "auctionsInFlight": "auctions_in_flight",
    "activePersons": "active_persons",
}
"""Option of the source → field of the generator."""
_COUNTS = ("auctionsInFlight", "activePersons")


@dataclass(frozen=True, slots=True)
class EventsOfKind:
    """The content of one source: one kind of event, some of its columns."""

    stream: Nexmark
    kind: str
    columns: tuple[str, ...]
    rows_per_batch: int = 50_000

    @property
    def schema(self) -> str:
        """The columns asked for."""
        return schema_of(self.kind, self.columns)

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """The events of this kind in a range of events."""
        return self.stream.batch(self.kind, first, count, self.columns)


class NexmarkSource(LoadSource):
    """The data source to register."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NEXMARK_FORMAT

    def content(self) -> Content:
        """One kind of event, by the options."""
        kind = self.options.get("kind", "bids")
        if kind not in COLUMNS:
            raise BadInput(f"the option kind is {kind!r}, not one of {', '.join(COLUMNS)}")
        return EventsOfKind(_stream(self.options), kind, _columns(self.options.get("columns"), kind))


def source_options(stream: Nexmark, kind: str, columns: tuple[str, ...] = ()) -> dict[str, str]:
    """The options that make a source give this stream's events of one kind."""
    options = {option: repr(getattr(stream, field)) for option, field in _NUMBERS.items()}
    chosen = {"columns": ",".join(columns)} if columns else {}
    return {**options, **chosen, "kind": kind, "seed": str(stream.seed)}


def _stream(options: Mapping[str, str]) -> Nexmark:
    given = {field: _number(options, option) for option, field in _NUMBERS.items() if option in options}
    return replace(Nexmark(seed=LoadOptions.of(options).seed), **given)  # type: ignore[arg-type]


def _number(options: Mapping[str, str], option: str) -> float:
    number = number_option(options, option, 0.0)
    if option not in _COUNTS:
        return number
    if not number.is_integer():
        raise BadInput(f"the option {option} is {options[option]!r}, not a whole number")
    return int(number)


def _columns(text: str | None, kind: str) -> tuple[str, ...]:
    if text is None:
        return tuple(COLUMNS[kind])
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS[kind]]
    if unknown:
        raise BadInput(f"the option columns names {unknown[0]!r}; {kind} have {', '.join(COLUMNS[kind])}")
    return names
