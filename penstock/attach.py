"""Attaches the autopilot to a running Spark application: one for each, put together from the real parts.

This module is loaded by `import penstock`, so it imports at the top only what costs nothing.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.autopilot import Autopilot
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.decide.policy import Policy
    from penstock.decide.restarts import RestartJudge
    from penstock.journal.store import Journal
    from penstock.loop import Loop
    from penstock.migrate.spark_mover import SparkMover
    from penstock.observe.spark_source import SparkSource
    from penstock.ports import Actuator
    from penstock.settings import Settings
    from penstock.supervise.desk import RestartDesk

log = logging.getLogger(__name__)

STOPPING_SECONDS = 5.0
"""How long attaching anew waits for an autopilot that was told to stop and is still at it."""
MOST_UNANSWERED = 5

_attached: dict[str, Autopilot] = {}
_listing = threading.Lock()
"""Held for a moment, to change the list; an autopilot that ends needs it while `_attaching` is held."""
_attaching = threading.Lock()


def attach(
    spark: Any,
    *,
    policy: str | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    report_to: str | None = None,
) -> Autopilot:
    """Attach the autopilot to this session's application; attaching again returns the same handle.

    `config` names a settings file; `settings` given here outrank it, the environment and Spark's own.
    `report_to` is the place of a fleet, a directory or kafka://HOST:PORT/NAME: windows are published there,
    and what the fleet's controller decides is carried out, within this application's own guardrails.
    """
    from penstock.observe.spark_session import application_id, check_supported

    check_supported(spark)
    effective = _settings(spark, policy, config, settings)
    fleet = report_to or effective.report_to
    return attach_once(application_id(spark), lambda: _assemble(spark, effective, fleet))


def attach_once(
    application: str, assemble: Callable[[], Autopilot], patience: float = STOPPING_SECONDS
) -> Autopilot:
    """The running autopilot of this application, or a new one; one that is stopping is waited for."""
    with _attaching:
        known = _attached.get(application)
        if known is not None and known.running and not known.stopping:
            log.info("%s: the autopilot is attached already", application)
            return known
        if known is not None and not known.ended_within(patience):
            log.warning("%s: the autopilot before has not ended after %g s", application, patience)
        handle = assemble()
        with _listing:
            _attached[application] = handle
        # inside the lock: another thread must find it at work, or it would start a second one
        handle.start(_unlist)
    return handle


def _unlist(handle: Autopilot) -> None:
    with _listing:
        if _attached.get(handle.application) is handle:
            del _attached[handle.application]


@atexit.register
def _detach_all() -> None:
    for handle in list(_attached.values()):
        handle.detach()


def _settings(
    spark: Any,
    policy: str | None,
    config: str | Path | None,
    settings: Mapping[str, object] | Settings | None,
) -> Settings:
    from penstock.settings import Settings, load_settings

    chosen: dict[str, object] = {} if policy is None else {"policy": policy}
    if isinstance(settings, Settings):
        return settings.model_copy(update=chosen)
    spark_conf = dict(spark.sparkContext.getConf().getAll())
    file = Path(config) if config is not None else None
    return load_settings(file, spark_conf=spark_conf, arguments={**(settings or {}), **chosen})


def _assemble(spark: Any, settings: Settings, report_to: str | None) -> Autopilot:
    """Put the real parts together; observing only means that no actuator is built."""
    from penstock.decide.manager import ScalingManager
    from penstock.decide.restarts import RecommendOnly
    from penstock.journal.store import journal_at
    from penstock.loop import Loop, LoopSettings
    from penstock.migrate.spark_mover import SparkMover
    from penstock.observe.spark_session import application_id, application_name
    from penstock.observe.spark_source import SparkSource
    from penstock.repartitioning import Repartitioning
    from penstock.sizing import desk_of, sizes_memory, with_sizing
    from penstock.state_control import StateControl

    journal = journal_at(settings.journal, retained=settings.retained_observations)
    name, desk = application_name(spark), desk_of(spark, settings, journal)
    restarts: RestartJudge = desk or RecommendOnly()
    source = SparkSource(spark, settings)
    mover = SparkMover(spark, settings, source.state_tasks)
    actuator, notes = _actuator(spark, settings, source, mover)
    sized, unknown = with_sizing(source, spark, settings, sizes_memory(settings, report_to))
    loop = Loop(
        application_id(spark),
        sized,
        _policy(spark, settings, journal, name, restarts, report_to),
        ScalingManager(settings.manager(), restarts),
        journal,
        actuator,
        LoopSettings(policy_interval=settings.policy_interval),
        mover,
    )
    loop.restarter = desk
    state = StateControl(loop, mover, Repartitioning(loop.application, journal, mover.bins(spark)))
    life = _life(settings, journal, mover, loop, name, desk)
    return Autopilot(loop, settings, name, _alive(spark), notes=notes + unknown, life=life, state=state)


def _policy(
    spark: Any,
    settings: Settings,
    journal: Journal,
    name: str,
    restarts: RestartJudge,
    report_to: str | None,
) -> Policy:
    """The policy of the settings with its overrides and its memory, and with a fleet's word if it has one."""
    from penstock.decide.registry import make_policy
    from penstock.remembering import remembering
    from penstock.sizing import heeding, reporting, telling_need

    own = telling_need(settings.policy) if report_to is not None else settings.policy
    made = make_policy(settings.model_copy(update={"policy": own}))
    policy = remembering(heeding(made, journal, name, settings, restarts), journal, name)
    if report_to is None:
        return policy
    conf = dict(spark.sparkContext.getConf().getAll())
    return reporting(policy, report_to, settings, journal, name, conf)


@contextmanager
def _life(
    settings: Settings, journal: Journal, mover: SparkMover, loop: Loop, name: str, desk: RestartDesk | None
) -> Iterator[None]:
    """What begins and ends with the autopilot's thread."""
    from penstock.former_runs import settle_former_runs
    from penstock.sizing import at_work, restart_under_way, scraper_of

    settle_former_runs(journal, name, loop.application, time.time(), spared=restart_under_way())
    with closing(journal), closing(mover), scraper_of(settings), at_work(desk, loop, name):
        yield


def _alive(spark: Any) -> Callable[[], bool]:
    from penstock.observe.spark_status import SparkStatus

    context, status = spark.sparkContext, SparkStatus(spark)
    return patiently(lambda: context._jsc is None, status.stopped)


def patiently(gone: Callable[[], bool], stopped: Callable[[], bool]) -> Callable[[], bool]:
    """Whether the application still runs; one question without an answer is not yet its end."""
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


def _actuator(
    spark: Any, settings: Settings, source: SparkSource, mover: SparkMover
) -> tuple[Actuator | None, tuple[str, ...]]:
    from penstock.act.spark_executors import SparkActuator
    from penstock.observe.spark_session import can_change_executors

    if settings.mode == "observe":
        return None, ()
    obstacle = can_change_executors(spark)
    if obstacle is not None:
        return None, (obstacle,)
    return SparkActuator(spark, settings, source.state_bins, mover), ()
