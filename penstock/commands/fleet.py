"""`penstock fleet`: decisions for many applications, on Spark, and how the fleet stands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.commands.config import Conf, parse_conf, parse_seconds
from penstock.commands.ending import interruptible
from penstock.commands.live import CONTROLLERS, Html
from penstock.commands.printing import Json, answer, progress, say, write_page
from penstock.errors import ActionFailed, BadInput, PenstockError, Unsupported

if TYPE_CHECKING:
    from penstock.fleet.admission import Admission
    from penstock.fleet.keys import FleetKey
    from penstock.fleet.places import FleetDirectory, FleetTopic
    from penstock.fleet.standby import Standby
    from penstock.journal.store import Journal
    from penstock.settings.model import Settings

Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The fleet's directory.")]
Windows = Annotated[
    str | None,
    typer.Option(help="Where windows come from: a directory, or kafka://HOST:PORT/TOPIC; default: windows/."),
]
Decisions = Annotated[str | None, typer.Option(help="Also publish decisions to kafka://HOST:PORT/TOPIC.")]
KeyFile = Annotated[Path | None, typer.Option(help="The fleet's key; default: the setting fleet_key_file.")]
FleetJournal = Annotated[
    str | None,
    typer.Option(
        help="Keep decisions in this journal, and heed `penstock override` in it; default: heed that in "
        "DIRECTORY/journal.db."
    ),
]


def run(  # noqa: PLR0913, PLR0917
    directory: Directory,
    windows: Windows = None,
    interval: Annotated[str, typer.Option(help="How often a round is played.")] = "10s",
    once: Annotated[bool, typer.Option("--once", help="Work off what is there, and end.")] = False,
    decisions: Decisions = None,
    journal: FleetJournal = None,
    key_file: KeyFile = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Decide for all applications, round by round.

    It runs until it is stopped. While another one decides for the same directory it stands by.
    """
    from penstock.fleet.budget import FleetBudget
    from penstock.fleet.places import FleetDirectory
    from penstock.fleet.standby import Standby, make_keeper

    # complain before Spark is up, not in the middle of a round
    known = _load_settings(conf)
    security = known.membership.kafka_options
    seconds, topic = parse_seconds("--interval", interval), _find_topic(decisions, security)
    admission, place = _admit(known, key_file), FleetDirectory(directory)
    place.check()
    _check_journal(journal)
    source = _find_source(windows, directory, security)
    for one in (source, topic or directory):
        admission.check(one)

    shared = _open_shared(journal, place)
    with interruptible(), closing(shared), answering_health(known, directory) as beat:
        standby = Standby(make_keeper(shared, directory), progress, beat=beat)

        def start() -> Any:
            from penstock.fleet import spark_job
            from penstock.fleet.overrides import FleetOverrides

            spark = spark_job.session(parse_conf(conf or ()))
            return spark_job.start(
                spark,
                source,
                place,
                known.sage.with_windows_for(known.manager.policy_interval),
                interval=None if once else f"{seconds} seconds",
                admission=admission,
                overrides=FleetOverrides(journal or place.journal, place.overrides),
                budget=FleetBudget(place, known.membership.changes_per_hour),
                require_lead=standby.require_lead,
                after_batch=_follow_up(spark, place, topic, journal, admission.key),
            )

        _serve(standby, start, once)
    answer(_summarise(place), as_json, f"{place.root}: done")


def status(directory: Directory, html: Html = None, as_json: Json = False) -> None:
    """Show what is needed and held, and what was decided."""
    from penstock.fleet.places import FleetDirectory
    from penstock.fleet.status import summarise_fleet
    from penstock.view.fleet import render_fleet, render_fleet_page

    if not directory.is_dir():
        raise BadInput(f"{directory}: no such directory")
    found = summarise_fleet(FleetDirectory(directory), time.time())
    if html is not None:
        write_page(render_fleet_page(found), html)
    answer(found, as_json, render_fleet(found))


def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of the fleet's key.")],
    application: Annotated[
        str | None, typer.Option("--for", help="Derive the key of this application from the one in FILE.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Write that key to this new file, and do not print it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the key of a fleet, or of one application."""
    from penstock.fleet.keys import make_fleet_key, read_fleet_key, write_key

    if application is None:
        if to is not None:
            raise BadInput("--to: goes with --for NAME; the fleet's own key is written to FILE")
        write_key(file, make_fleet_key())
        answer({"file": str(file)}, as_json, f"{file}: a new key; keep it where only this user can read it")
        return
    derived = read_fleet_key(file).for_application(application)
    if to is not None:
        write_key(to, derived)
        answer({"file": str(to), "application": application}, as_json, f"{to}: the key of {application}")
    elif as_json:
        answer({"application": application, "key": derived.text}, as_json, "")
    else:
        typer.echo(derived.text)


def _load_settings(conf: list[str] | None) -> Settings:
    from penstock.settings.model import load_settings

    return load_settings(None, os.environ, parse_conf(conf or ()))


def _admit(settings: Settings, key_file: Path | None) -> Admission:
    from penstock.fleet.admission import Admission
    from penstock.fleet.keys import read_fleet_key

    known = settings.membership
    file = key_file or (Path(known.key_file) if known.key_file else None)
    return Admission(None if file is None else read_fleet_key(file), known.clock_tolerance)


def _find_source(windows: str | None, directory: Path, security: Mapping[str, str]) -> Path | FleetTopic:
    """Return where windows come from; the fleet's own directory is made, another one must be there."""
    from penstock.fleet.files import make_directory

    if windows is None:
        try:
            make_directory(directory / "windows")
        except OSError as error:
            raise BadInput(f"{directory}: cannot be made: {error.strerror}") from None
        return directory / "windows"
    source = _parse_place("--windows", windows, security)
    if isinstance(source, Path) and not source.is_dir():
        raise BadInput(f"--windows: {source}: no such directory")
    return source


def _parse_place(option: str, text: str, security: Mapping[str, str]) -> Path | FleetTopic:
    from penstock.fleet.places import parse_place

    try:
        return parse_place(text, security)
    except BadInput as error:
        raise BadInput(f"{option}: {error}") from None


def _find_topic(decisions: str | None, security: Mapping[str, str]) -> FleetTopic | None:
    from penstock.fleet.places import FleetTopic

    if decisions is None:
        return None
    topic = _parse_place("--decisions", decisions, security)
    if not isinstance(topic, FleetTopic):
        raise BadInput(f"--decisions: {decisions}: kafka://HOST:PORT/TOPIC is expected")
    return topic


def _check_journal(journal: str | None) -> None:
    """Refuse an address that is none now; a server that is away may come back."""
    from penstock.journal.store import journal_at

    try:
        if journal:
            journal_at(journal).close()
    except BadInput as error:
        raise BadInput(f"--journal: {error}") from None


def _follow_up(
    spark: Any, directory: FleetDirectory, topic: FleetTopic | None, journal: str | None, key: FleetKey | None
) -> Callable[[int, Any], None]:
    """Return what is done with a batch of decisions beside writing them to the directory."""
    from penstock.fleet.action_log import ActionLog
    from penstock.fleet.spark_job import publish
    from penstock.journal.store import journal_at

    def follow_up(batch: int, table: Any) -> None:
        progress(f"batch {batch}: {table.num_rows} decisions")
        if topic is not None:
            publish(spark, topic, table)
        if journal:
            with closing(journal_at(journal)) as opened:
                ActionLog(directory, opened, key).catch_up(batch)

    return follow_up


def _open_shared(journal: str | None, place: FleetDirectory) -> Journal:
    """Open the journal with the fleet's lease; the fleet's own must be there now, a server may come back."""
    from penstock.fleet.files import make_directory
    from penstock.journal.store import journal_at, open_journal

    if journal:
        return journal_at(journal)
    try:
        # as for other files of the fleet: agents of other users read them
        make_directory(place.root)
    except OSError as error:
        raise BadInput(f"{place.root}: cannot be made: {error.strerror}") from None
    return open_journal(place.journal)


@contextmanager
def answering_health(
    settings: Settings, directory: Path, timer: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Answer `penstock health` while the controller runs; yields what its loop calls as it comes round."""
    from penstock.fleet.standby import LEASE_SECONDS
    from penstock.runtime.control import ControlServer, secure_directory
    from penstock.runtime.heartbeat import Heartbeat

    heart = Heartbeat(LEASE_SECONDS, timer)
    sockets, own = Path(settings.run.runtime_directory), f"fleet-{os.getpid()}"

    def handle(command: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if command != "health":
            raise Unsupported("the controller of a fleet answers `penstock health` alone")
        return {"application": own, "name": str(directory), **heart.plain()}

    with ExitStack() as serving:
        try:
            if settings.run.control_socket:
                secure_directory(sockets)
                serving.enter_context(closing(ControlServer(sockets / CONTROLLERS, own, handle)))
        except Unsupported as error:
            say(f"{error}: `penstock health` does not see this controller")
        yield heart.beat


def _serve(standby: Standby, start: Callable[[], Any], once: bool) -> None:
    """Decide while it is this controller's turn, until the job ends or somebody ends it."""
    running: list[Any] = []

    def begin() -> Any:
        running[:] = [start()]
        return running[0]

    try:
        standby.run(begin, once)
    except KeyboardInterrupt:
        for query in running:
            query.stop()
    except PenstockError:
        raise
    except Exception as error:
        raise ActionFailed(f"the fleet's job has failed: {str(error).splitlines()[0]}") from error


def _summarise(directory: FleetDirectory) -> dict[str, Any]:
    table = directory.status()
    return {
        "directory": str(directory.root),
        "applications": table.num_rows if table is not None else 0,
        "decisions": directory.decision_count(),
        "dead_letters": directory.dead_letters(),
    }
