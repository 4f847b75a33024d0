"""`penstock fleet`: decisions for many applications, on Spark, and how the fleet stands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.commands.printing import Json, answer, progress, reported
from penstock.commands.setup import Conf, parse_conf
from penstock.errors import ActionFailed, BadInput

if TYPE_CHECKING:
    from penstock.fleet.places import FleetDirectory, Topic
    from penstock.fleet.round import FleetSettings

Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The fleet's directory.")]

fleet = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(fleet, name="fleet", help="Decisions for many applications, and how they stand.")


@fleet.command("run")
@reported
def run(
    directory: Directory,
    windows: Annotated[
        str | None,
        typer.Option(
            help="Where windows come from: a directory, or kafka://HOST:PORT/TOPIC; default: windows/."
        ),
    ] = None,
    interval: Annotated[str, typer.Option(help="How often a round is played.")] = "10s",
    once: Annotated[bool, typer.Option("--once", help="Work off what is there, and end.")] = False,
    decisions: Annotated[
        str | None, typer.Option(help="Also publish decisions to kafka://HOST:PORT/TOPIC.")
    ] = None,
    journal: Annotated[str | None, typer.Option(help="Also keep decisions in this journal.")] = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Judge all applications that publish windows, round by round, until it is stopped."""
    from penstock.fleet.overrides import read_overrides
    from penstock.fleet.places import FleetDirectory

    # complain before Spark is up, not in the middle of a round
    seconds, topic = _seconds(interval), _topic(decisions)
    settings = _settings(parse_conf(conf or ()))
    place = FleetDirectory(directory)
    place.check()
    read_overrides(place.overrides)
    _check_journal(journal)
    source = _source(windows, directory)
    from penstock.fleet import spark_job

    spark = spark_job.session(parse_conf(conf or ()))
    query = spark_job.start(
        spark,
        source,
        place,
        settings,
        interval=None if once else f"{seconds} seconds",
        overrides=place.overrides,
        after_batch=_after(spark, place, topic, journal),
    )
    _await(query)
    answer(_result(place), as_json, f"{place.root}: done")


@fleet.command("status")
@reported
def status(
    directory: Directory,
    html: Annotated[Path | None, typer.Option("--html", help="Also write it to this HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Show applications, waste, who is undersized, and what was decided in the last hour."""
    from penstock.fleet.places import FleetDirectory
    from penstock.fleet.status import fleet_status, status_table
    from penstock.fleet.status_page import write_page

    if not directory.is_dir():
        raise BadInput(f"{directory}: no such directory")
    found = fleet_status(FleetDirectory(directory), time.time())
    if html is not None:
        write_page(found, html)
    answer(found, as_json, status_table(found))


def _settings(conf: Mapping[str, str]) -> FleetSettings:
    """The policies with the bounds and windows that are configured."""
    from penstock.decide.makers import sage_settings
    from penstock.fleet.round import FleetSettings
    from penstock.settings import load_settings

    settings = load_settings(None, os.environ, conf)
    return FleetSettings(settings.ds2(), sage_settings(settings))


def _seconds(interval: str) -> float:
    from penstock.durations import parse_duration

    try:
        return parse_duration(interval)
    except ValueError as error:
        raise BadInput(f"--interval: {error}") from None


def _source(windows: str | None, directory: Path) -> Path | Topic:
    """Where windows come from; the fleet's own directory for them is made, another one must be there."""
    from penstock.fleet.places import place_of

    if windows is None:
        try:
            (directory / "windows").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{directory}: cannot be made: {error.strerror}") from None
        return directory / "windows"
    source = place_of(windows)
    if isinstance(source, Path) and not source.is_dir():
        raise BadInput(f"--windows: {source}: no such directory")
    return source


def _topic(decisions: str | None) -> Topic | None:
    from penstock.fleet.places import Topic, place_of

    if decisions is None:
        return None
    topic = place_of(decisions)
    if not isinstance(topic, Topic):
        raise BadInput(f"--decisions: {decisions}: kafka://HOST:PORT/TOPIC is expected")
    return topic


def _check_journal(journal: str | None) -> None:
    """An address that is none is said now; a server that is away may come back."""
    from penstock.journal.store import journal_at

    if journal:
        journal_at(journal).close()


def _after(
    spark: Any, directory: FleetDirectory, topic: Topic | None, journal: str | None
) -> Callable[[int, Any], None]:
    """What is done with a batch of decisions beside writing them to the directory."""

    def after(batch: int, table: Any) -> None:
        progress(f"batch {batch}: {table.num_rows} decisions")
        if topic is not None:
            from penstock.fleet.spark_topic import publish

            publish(spark, topic, table)
        if journal:
            _journalled(directory, journal)

    return after


def _journalled(directory: FleetDirectory, journal: str) -> None:
    from penstock.fleet.action_log import ActionLog
    from penstock.journal.store import journal_at

    with closing(journal_at(journal)) as opened:
        ActionLog(directory, opened).catch_up()


def _await(query: Any) -> None:
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    except Exception as error:
        raise ActionFailed(f"the fleet's job has failed: {str(error).splitlines()[0]}") from error


def _result(directory: FleetDirectory) -> dict[str, Any]:
    table = directory.status()
    return {
        "directory": str(directory.root),
        "applications": table.num_rows if table is not None else 0,
        "decisions": directory.decision_count(),
        "dead_letters": directory.dead_letters(),
    }
