"""The one place that puts a loop together for Spark: for an application's autopilot and for a pipeline."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from penstock.act.actuator import ExecutorActuator
from penstock.act.restart.channel import ACTION_VARIABLE, JOB_VARIABLE, find_own_channel
from penstock.act.restart.desk import RestartDesk
from penstock.act.restart.spark_driver import SparkDriver
from penstock.act.spark_executors import SparkExecutors
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.manager.restarts import RecommendOnly
from penstock.decide.policy import Policy
from penstock.decide.sage.sizes import read_executor_memory
from penstock.decide.surroundings import Surroundings
from penstock.errors import PenstockError
from penstock.journal.former_runs import FormerRuns
from penstock.journal.notebook import add_memory
from penstock.journal.pulses import JournalPulse
from penstock.journal.store import Journal, journal_at
from penstock.journal.terms import Terms, remember_terms
from penstock.migrate.mover import MoveProposer
from penstock.migrate.spark_mover import SparkMover
from penstock.observe.executors.metrics import find_sink, listener_on
from penstock.observe.executors.spark_sizing import SizingSource
from penstock.observe.executors.standalone import StandaloneCluster
from penstock.observe.services.scraping import Scraper, list_scrapes
from penstock.observe.spark_session import application_id, application_name, can_change_executors
from penstock.observe.spark_source import SparkSource
from penstock.observe.spark_status import SparkStatus
from penstock.plugins.finding import find_policy
from penstock.runtime.autopilot import Autopilot, Findings
from penstock.runtime.beside import serve_dashboard
from penstock.runtime.doctor.checks import describe_room
from penstock.runtime.fallback import SourceWithFallback
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Actuator, Ports, Source
from penstock.runtime.spark_ui import SparkMetrics, SparkTab
from penstock.runtime.state_control import Repartitioning, StateControl
from penstock.runtime.surroundings import look_around, name_need_policy, report_to_fleet
from penstock.runtime.telemetry.exposition import expose
from penstock.runtime.telemetry.restarts import RestartWatch
from penstock.runtime.ui_tab import PartKeeper, render_tab, serves_prometheus
from penstock.settings.model import Settings, load_settings

log = logging.getLogger(__name__)

MOST_UNANSWERED = 5
Notes = tuple[str, ...]


def read_settings(
    spark: Any,
    given: Mapping[str, object] | Settings | None,
    chosen: Mapping[str, object],
    file: Path | None = None,
) -> Settings:
    """Read the settings of a session: `chosen` outrank `given`, these the file, the environment and Spark."""
    if isinstance(given, Settings):
        return given.change(**chosen)
    return load_settings(file, spark_conf=_read_conf(spark), arguments={**(given or {}), **chosen})


def assemble_autopilot(spark: Any, settings: Settings, report_to: str | None) -> Autopilot:
    """Put the autopilot of an application together; observing only means that no actuator is built."""
    find_policy(settings.run.policy).check_place("run")
    journal = journal_at(settings.run.journal, retained=settings.run.retained_observations)
    name, desk = application_name(spark), _build_desk(spark, settings, journal)
    analyse = settings.manager.critical_path != "off"
    source = SparkSource(spark, settings.observe, settings.goals.unscalable, analyse)
    mover = SparkMover(spark, settings.migration, source.state_tasks, settings.run.only_observes)
    actuator, notes = _build_actuator(spark, settings, source, mover)
    sized, unknown = _add_sizing(source, spark, settings, report_to)
    cluster = _build_cluster(settings)
    around = look_around(journal, name, desk or RecommendOnly(), cluster.hosts if cluster else None)
    policy = _assemble_steered_policy(spark, settings, journal, name, around, report_to)
    loop = assemble_loop(application_id(spark), settings, journal, sized, policy, actuator, mover, desk)
    state = StateControl(loop, mover, Repartitioning(loop.application, journal, mover.bins(spark)))
    terms = read_terms(_read_conf(spark), settings)
    kept = _keep_terms(journal, name, loop.application, terms)
    beside = serve_dashboard(settings, loop.application)
    watchers = (closing(mover), _build_scraper(settings), cluster or nullcontext(), kept, beside)
    parts = tuple(_build_ui_parts(spark, settings, loop, lambda: autopilot))
    life = _live_with(watchers, journal, loop, name, desk, settings.manager.policy_interval, parts)
    alive = make_patient_check(lambda: spark.sparkContext._jsc is None, SparkStatus(spark).stopped)
    found = Findings(notes + unknown, terms)
    autopilot = Autopilot(loop, settings, name, alive, found=found, life=life, state=state)
    return autopilot  # noqa: RET504: the parts of the Spark UI ask it


def assemble_policy(settings: Settings, journal: Journal, name: str, around: Surroundings) -> Policy:
    """Make the policy of the settings; what it learns is kept in the journal under `name`."""
    return add_memory(find_policy(settings.run.policy).make(settings, around), journal, name)


def assemble_loop(
    application: str,
    settings: Settings,
    journal: Journal,
    source: Source,
    policy: Policy,
    actuator: Actuator | None,
    mover: MoveProposer | None,
    desk: RestartDesk | None = None,
) -> Loop:
    """Put the loop over these parts together, with the manager of the settings."""
    restarts = desk or RecommendOnly()
    manager = ScalingManager(settings.manager, settings.bounds, settings.goals, restarts=restarts)
    stated = settings.manager.fallback_executors, settings.manager.fallback_after
    steady = SourceWithFallback(application, source, actuator, *stated)
    ports = Ports(steady, policy, manager, journal, actuator, mover, desk)
    return Loop(application, ports, LoopSettings(policy_interval=settings.manager.policy_interval))


def make_patient_check(gone: Callable[[], bool], stopped: Callable[[], bool]) -> Callable[[], bool]:
    """Return what tells whether the application still runs; a question without an answer is not its end."""
    unanswered = 0

    def alive() -> bool:
        nonlocal unanswered
        try:
            ended = gone() or stopped()
        except PenstockError as error:
            unanswered += 1
            if unanswered == MOST_UNANSWERED:
                log.warning("Spark has not answered %d times, so the autopilot ends: %s", unanswered, error)
            # Spark may have been stopped while we asked
            return unanswered < MOST_UNANSWERED and not gone()
        unanswered = 0
        return not ended

    return alive


def _read_conf(spark: Any) -> dict[str, str]:
    return dict(spark.sparkContext.getConf().getAll())


def _assemble_steered_policy(
    spark: Any, settings: Settings, journal: Journal, name: str, around: Surroundings, report_to: str | None
) -> Policy:
    """Make the application's own policy, or, where it reports to a fleet, the one that obeys the fleet."""
    if report_to is None:
        return assemble_policy(settings, journal, name, around)
    own = settings.change(policy=name_need_policy(settings.run.policy))
    policy = assemble_policy(own, journal, name, around)
    return report_to_fleet(policy, report_to, settings, journal, name, _read_conf(spark), around.hosts)


def _build_actuator(
    spark: Any, settings: Settings, source: SparkSource, mover: SparkMover
) -> tuple[Actuator | None, Notes]:
    if settings.run.only_observes:
        return None, ()
    obstacle = can_change_executors(spark)
    if obstacle is not None:
        return None, (obstacle,)
    room = describe_room(_read_conf(spark), settings.bounds.most)
    notes = () if room is None else (room,)
    return ExecutorActuator(SparkExecutors(spark), settings.scaling, source.state_bins, mover), notes


def _build_desk(spark: Any, settings: Settings, journal: Journal) -> RestartDesk | None:
    """Return what asks the supervisor of this process for restarts; None where nobody supervises it."""
    channel = find_own_channel()
    if channel is None or settings.run.only_observes:
        return None
    driver = SparkDriver(spark, settings.restart.stop_timeout)
    return RestartDesk(channel, journal, os.environ.get(JOB_VARIABLE, ""), settings.restart.rules, driver)


def _add_sizing(
    source: SparkSource, spark: Any, settings: Settings, report_to: str | None
) -> tuple[Source, Notes]:
    """Let windows tell what executors use, where Sage or a fleet looks at it; notes say what is unknown."""
    if report_to is None and settings.run.policy.rpartition(":")[2] != "sage":
        return source, ()
    board, notes = _find_executor_board(spark, settings)
    return SizingSource(source, spark, board), notes


def _find_executor_board(spark: Any, settings: Settings) -> tuple[Any, Notes]:
    if settings.executor_metrics.mode == "off":
        return None, (
            "executor_metrics is off: memory grows by lost executors and GC alone, and all other rules on "
            "memory and cores are silent",
        )
    if settings.executor_metrics.port == 0:
        return None, ("executor_metrics_port is not set, so executors cannot report what they use",)
    sink = find_sink(_read_conf(spark), settings.executor_metrics.port)
    if sink is None:
        return None, ("Spark's StatsD sink is not set up, so executors do not report what they use",)
    try:
        listener = listener_on(sink.host, settings.executor_metrics.port, sink.prefix)
    except PenstockError as error:
        return None, (str(error),)
    if listener.secret != sink.prefix:
        return None, ("Spark was not told the secret of executors' reports, so they are not believed",)
    return listener.board, () if sink.prefix else (
        "executors report without a secret: whoever reaches the port can send false figures",
    )


@contextmanager
def _live_with(
    watchers: Sequence[AbstractContextManager[object]],
    journal: Journal,
    loop: Loop,
    name: str,
    desk: RestartDesk | None,
    interval: float,
    parts: Sequence[PartKeeper],
) -> Iterator[Callable[[float], None]]:
    """Run what begins and ends with the autopilot's thread; what it yields is called after each cycle."""
    given = os.environ.get(ACTION_VARIABLE, "")
    # the restart by which this process was started is seen to its end by the supervisor
    spared = frozenset({int(given)}) if given.isdecimal() else frozenset()
    former = FormerRuns(journal, name, loop.application, spared)
    former.look(time.time())
    pulse = JournalPulse(journal, name, loop.application, interval)
    with ExitStack() as life:
        life.enter_context(closing(journal))
        for watcher in watchers:
            life.enter_context(watcher)
        if desk is not None:
            desk.start(loop.application, name, loop.resume)
            life.enter_context(closing(desk))
        tells = [life.enter_context(closing(pulse)).beat, former.look]
        if desk is not None:
            tells.append(RestartWatch(journal, name, loop.timeline.restarted).look)
        shown = [life.enter_context(part) for part in parts]

        def after_cycle(now: float) -> None:
            for tell in tells:
                tell(now)
            for part in shown:
                part.tell()

        yield after_cycle


def _build_ui_parts(
    spark: Any, settings: Settings, loop: Loop, handle: Callable[[], Autopilot]
) -> Iterator[PartKeeper]:
    """Yield what keeps our parts of the Spark UI up to date; each steps aside where it cannot be."""
    if not settings.run.spark_ui_tab:
        return
    timeline, interval = loop.timeline, settings.manager.policy_interval
    yield PartKeeper(
        loop.application,
        "tab",
        lambda: SparkTab(spark),
        lambda: render_tab(handle().status()),
        lambda: timeline.version,
    )
    if serves_prometheus(_read_conf(spark)):
        yield PartKeeper(
            loop.application,
            "metrics",
            lambda: SparkMetrics(spark),
            lambda: expose([handle().status()]).decode(),
            # the heartbeat goes on also where nothing else is new, as during a long action
            lambda: f"{timeline.version}.{time.monotonic() // interval:.0f}",
        )


@contextmanager
def _keep_terms(journal: Journal, name: str, application: str, terms: Terms) -> Iterator[None]:
    """Write down, as the run begins, what a report of it needs to know later."""
    remember_terms(journal, time.time(), name, application, terms)
    yield


def read_terms(conf: Mapping[str, str], settings: Settings) -> Terms:
    """Return what a run's executors have, and what it is set to keep."""
    try:
        memory, cpus = sum(read_executor_memory(conf)), max(1, int(conf.get("spark.task.cpus", 1)))
    except (PenstockError, ValueError) as error:
        log.debug("what executors have is not known: %s", error)
        memory, cpus = None, 1
    return Terms(
        task_cpus=cpus,
        executor_memory_bytes=memory,
        max_executors=settings.bounds.most,
        latency_target=settings.goals.latency_target,
        price_per_core_hour=settings.prices.per_core_hour,
        price_per_gb_hour=settings.prices.per_gb_hour,
    )


def _build_scraper(settings: Settings) -> Scraper:
    """Return what scrapes remote services: twice an interval, so that each window has a reading."""
    services = settings.services
    scrapes = list_scrapes(services.addresses, services.metrics)
    return Scraper(scrapes, settings.manager.policy_interval / 2, services.scrape_timeout)


def _build_cluster(settings: Settings) -> StandaloneCluster | None:
    """Return what asks the master for free hosts, twice an interval; None where none is set."""
    if not settings.services.standalone_master:
        return None
    (url,) = settings.services.standalone_master
    return StandaloneCluster(url, settings.manager.policy_interval / 2, settings.services.scrape_timeout)
