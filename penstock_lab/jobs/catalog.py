"""Every job by name: its script, its input, its right answer, and what a record costs.

    job, place = find_job("small-files-lookup"), RunPlace(directory)
    job.prepare(place)
    feed = [sys.executable, "-m", "penstock_lab.jobs.feed", job.name, str(directory), "--rate", profile, ...]
    script = ["penstock", "run", *job.command(place)]

A job runs until `place.stop_file` appears or SIGTERM comes. Then it finishes what has arrived and ends with
code 0, and `job.check(place, fed)` compares its output with the right answer. `available-now` ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from penstock.errors import BadInput
from penstock.units.fields import suggest_name
from penstock_lab.jobs import answers, outputs
from penstock_lab.jobs.answers import Rows
from penstock_lab.jobs.contents import (
    ORDERS,
    PAYMENTS,
    VISITS,
    Fed,
    JobContent,
    OrdersAndPayments,
    OrderStream,
    Visits,
)
from penstock_lab.jobs.costs import COSTS, Cost
from penstock_lab.jobs.feeds import DirectoryOutlet, Outlet, TopicOutlet
from penstock_lab.jobs.loads import LOADS
from penstock_lab.jobs.outputs import OutputComparison
from penstock_lab.jobs.places import RunPlace
from penstock_lab.jobs.tables import write_model, write_watch_list

SCRIPTS = Path(__file__).parent / "scripts"
COUNTS = "counts"
"""The topic that a job writes."""
WINDOW_COLUMNS = ("orders", "amount")


@dataclass(frozen=True, slots=True)
class FileInput:
    """Input as files: one for each stream, in each span of so many seconds."""

    every_seconds: float
    form: str = "json"


@dataclass(frozen=True, slots=True)
class KafkaInput:
    """Input as JSON records in a topic of so many partitions."""

    partitions: int
    every_seconds: float = 0.1


@dataclass(frozen=True, slots=True)
class OrdinaryJob:
    """One job."""

    name: str
    summary: str
    content: JobContent
    source: FileInput | KafkaInput
    answer: Callable[[JobContent, Fed], Rows]
    output: Callable[[RunPlace], Rows]
    arguments: Callable[[RunPlace], Mapping[str, object]]
    """Options of the script that say where things are, without leading dashes."""
    tables: Callable[[Path], None] | None = None
    """Writes what the job reads beside its streams into a directory."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Topics that it writes, with their partitions."""
    asks_service: bool = False
    at_least_once: bool = False
    """Whether its sink may repeat rows when a task is run again."""
    ends_by_itself: bool = False
    loads: Sequence[str] = LOADS

    @property
    def script(self) -> Path:
        """The user's script."""
        return SCRIPTS / f"{self.name.replace('-', '_')}.py"

    @property
    def cost(self) -> Cost:
        """The cost of one record to a slot."""
        return COSTS[self.name]

    @property
    def uses_kafka(self) -> bool:
        """Whether it needs a broker, and Spark's connector to it."""
        return isinstance(self.source, KafkaInput)

    def command(self, place: RunPlace) -> list[str]:
        """Return the script and its arguments, as `penstock run` or Python take them."""
        stop = {} if self.ends_by_itself else {"stop-file": place.stop_file}
        options = {**self.arguments(place), "checkpoint": place.checkpoint, **stop}
        return [
            str(self.script),
            *(word for name, value in options.items() for word in (f"--{name}", f"{value}")),
        ]

    def prepare(self, place: RunPlace) -> None:
        """Make what must be there before the job or its feed starts; what is there already stays."""
        if self.uses_kafka and not place.brokers:
            raise BadInput(f"the job {self.name} needs a Kafka broker, and none is given")
        if self.asks_service and not place.service:
            raise BadInput(f"the job {self.name} needs the lookup service, and no address is given")
        place.tables.mkdir(parents=True, exist_ok=True)
        if self.tables is not None:
            self.tables(place.tables)
        if isinstance(self.source, KafkaInput):
            inputs = dict.fromkeys(self.content.streams, self.source.partitions)
            _create_topics(place, {**inputs, **self.topics})
        else:
            for stream in self.content.streams:
                place.input(stream).mkdir(parents=True, exist_ok=True)

    def outlets(self, place: RunPlace) -> dict[str, Outlet]:
        """Return where its feed sends each stream."""
        match self.source:
            case FileInput(form=form):
                return {stream: DirectoryOutlet(place.input(stream), form) for stream in self.content.streams}
            case KafkaInput(partitions=partitions):
                return {
                    stream: TopicOutlet(place.brokers, place.topic(stream), partitions)
                    for stream in self.content.streams
                }

    def check(self, place: RunPlace, fed: Fed) -> OutputComparison:
        """Compare what the job has written with the right answer."""
        return outputs.compare_rows(self.answer(self.content, fed), self.output(place), self.at_least_once)


def _create_topics(place: RunPlace, topics: Mapping[str, int]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": place.brokers, "log_level": 0})
    known = admin.list_topics(timeout=30).topics
    wanted = {place.topic(name): count for name, count in topics.items() if place.topic(name) not in known}
    if wanted:
        for made in admin.create_topics([NewTopic(name, count) for name, count in wanted.items()]).values():
            made.result(30)


def find_job(name: str) -> OrdinaryJob:
    """Return the job of this name."""
    if name not in JOBS:
        raise BadInput(f"there is no job {name!r}{suggest_name(name, JOBS)}")
    return JOBS[name]


def _files(place: RunPlace) -> dict[str, object]:
    return {"input": place.input(ORDERS), "output": place.output}


def _topic(place: RunPlace) -> dict[str, object]:
    return {"brokers": place.brokers, "topic": place.topic(ORDERS), "output": place.output}


def _read_appended(*columns: str) -> Callable[[RunPlace], Rows]:
    return lambda place: outputs.read_appended(place.output, columns)


def _windows(key: str) -> Callable[[RunPlace], Rows]:
    columns = ("window_start", key, *WINDOW_COLUMNS)
    return lambda place: outputs.read_newest(place.output, columns[:2], columns)


SMALL = FileInput(every_seconds=0.25)
"""Four files a second."""
ITERATIONS, MANY_ITERATIONS = 300, 2000
"""Rounds of the hash that hides a name, as the scripts have them."""
_LISTED = (
    OrdinaryJob(
        name="kafka-windows",
        summary="JSON from Kafka, parsed, blocked customers left out, counted in windows, into Kafka",
        content=OrderStream(),
        source=KafkaInput(partitions=8),
        answer=answers.closed_windows,
        output=lambda place: outputs.read_topic(
            place.brokers, place.topic(COUNTS), ("window_start", "product", *WINDOW_COLUMNS)
        ),
        arguments=lambda place: {
            "brokers": place.brokers,
            "topic": place.topic(ORDERS),
            "output-topic": place.topic(COUNTS),
        },
        topics={COUNTS: 2},
        at_least_once=True,
    ),
    OrdinaryJob(
        name="small-files-lookup",
        summary="four small files a second, a lookup of 10 ms per record, windows, foreachBatch to Parquet",
        content=OrderStream(),
        source=SMALL,
        answer=answers.totals_by_region,
        output=_windows("region"),
        arguments=_files,
    ),
    OrdinaryJob(
        name="large-files",
        summary="few large files, one a batch, names hidden, windows",
        content=OrderStream(),
        source=FileInput(every_seconds=10.0),
        answer=partial(answers.closed_spending, iterations=ITERATIONS),
        output=_read_appended("window_start", "customer", *WINDOW_COLUMNS),
        arguments=_files,
    ),
    OrdinaryJob(
        name="no-trigger",
        summary="one batch after the other, deduplication, a call of 4 ms per record",
        content=OrderStream(duplicates=0.2),
        source=SMALL,
        answer=answers.charges,
        output=_read_appended("order_id", "amount", "receipt"),
        arguments=_files,
    ),
    OrdinaryJob(
        name="available-now",
        summary="a large backlog of Parquet files read once with availableNow, names hidden",
        content=OrderStream(),
        source=FileInput(every_seconds=1.0, form="parquet"),
        answer=partial(answers.copies, iterations=ITERATIONS),
        output=_read_appended("order_id", "customer", "product", "amount"),
        arguments=_files,
        ends_by_itself=True,
        loads=("steady",),
    ),
    OrdinaryJob(
        name="static-join",
        summary="broadcast join with a watch list by edit distance, windows",
        content=OrderStream(),
        source=SMALL,
        answer=answers.watched_orders,
        output=_windows("watched"),
        arguments=lambda place: {**_files(place), "watch-list": place.tables / "watch-list.parquet"},
        tables=write_watch_list,
    ),
    OrdinaryJob(
        name="stream-join",
        summary="payments joined with orders, blocked customers left out, watermarks on both",
        content=OrdersAndPayments(),
        source=SMALL,
        answer=answers.payments_in_time,
        output=_read_appended("order_id", "amount", "payment_time", "paid"),
        arguments=lambda place: {**_files(place), "payments": place.input(PAYMENTS)},
    ),
    OrdinaryJob(
        name="deduplication",
        summary="dropDuplicatesWithinWatermark on a Kafka topic, names hidden",
        content=OrderStream(duplicates=0.2),
        source=KafkaInput(partitions=8),
        answer=partial(answers.orders_once, iterations=ITERATIONS),
        output=_read_appended("order_id", "customer", "amount"),
        arguments=_topic,
    ),
    OrdinaryJob(
        name="sessions",
        summary="sessions with transformWithStateInPandas and timers, blocked customers left out",
        content=Visits(),
        source=SMALL,
        answer=answers.closed_sessions,
        output=_read_appended("customer", "began", "ended", "views"),
        arguments=lambda place: {"input": place.input(VISITS), "output": place.output},
    ),
    OrdinaryJob(
        name="three-jobs",
        summary="foreachBatch with three jobs: upsert into SQLite, counts, append",
        content=OrderStream(),
        source=SMALL,
        answer=partial(answers.three_places, iterations=ITERATIONS),
        output=outputs.read_three_places,
        arguments=lambda place: {**_files(place), "database": place.database},
    ),
    OrdinaryJob(
        name="two-queries",
        summary="totals every 5 s and an archive every 15 s in one application",
        content=OrderStream(),
        source=SMALL,
        answer=partial(answers.totals_and_archive, iterations=ITERATIONS),
        output=outputs.read_totals_and_archive,
        arguments=_files,
    ),
    OrdinaryJob(
        name="numpy-scoring",
        summary="numpy scoring, bound by the processor",
        content=OrderStream(),
        source=SMALL,
        answer=answers.scores,
        output=_read_appended("order_id", "customer", "score"),
        arguments=lambda place: {**_files(place), "model": place.tables / "model.npz"},
        tables=write_model,
    ),
    OrdinaryJob(
        name="remote-lookup",
        summary="a request of 15 ms over HTTP for each record, bound by waiting",
        content=OrderStream(),
        source=SMALL,
        answer=answers.credit_limits,
        output=_read_appended("order_id", "amount", "credit"),
        arguments=lambda place: {**_files(place), "service": place.service},
        asks_service=True,
    ),
    OrdinaryJob(
        name="hot-key",
        summary="state and scoring by customer, half of the orders from one of them",
        content=OrderStream(customers=100, hot_share=0.5),
        source=SMALL,
        answer=answers.risks,
        output=lambda place: outputs.read_newest(place.output, ("customer",), ("customer", "orders", "risk")),
        arguments=lambda place: {**_files(place), "model": place.tables / "model.npz"},
        tables=write_model,
    ),
    OrdinaryJob(
        name="four-partitions",
        summary="heavy work behind a topic of four partitions: more than four slots are of no use",
        content=OrderStream(),
        source=KafkaInput(partitions=4),
        answer=partial(answers.orders_once, iterations=MANY_ITERATIONS),
        output=_read_appended("order_id", "customer", "amount"),
        arguments=_topic,
    ),
)
JOBS: Mapping[str, OrdinaryJob] = {job.name: job for job in _LISTED}
