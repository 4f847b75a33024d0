"""What sizing memory and cores adds to an autopilot: windows that tell what executors use, and restarts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.dataflow.window import ApplicationWindow
    from penstock.decide.policy import Policy
    from penstock.decide.resizer import Host, Limits
    from penstock.decide.restarts import RestartJudge, RestartRules
    from penstock.journal.store import Journal
    from penstock.loop import Loop
    from penstock.ports import Source
    from penstock.scraping import Scraper
    from penstock.settings import Settings
    from penstock.supervise.desk import RestartDesk


def sizes_memory(settings: Settings, report_to: str | None) -> bool:
    """Whether anything looks at what executors use: Sage here, or a fleet's controller elsewhere."""
    return report_to is not None or settings.policy.rpartition(":")[2] == "sage"


def with_sizing(
    source: Source, spark: Any, settings: Settings, needed: bool
) -> tuple[Source, tuple[str, ...]]:
    """The source whose windows tell what executors use, and notes on what stays unknown."""
    from penstock.observe.spark_sizing import SizingSource

    if not needed:
        return source, ()
    board, notes = _board(spark, settings)
    return SizingSource(source, spark, board), notes


def _board(spark: Any, settings: Settings) -> tuple[Any, tuple[str, ...]]:
    from penstock.observe.metrics_listener import listener_on

    if settings.executor_metrics == "off":
        return None, (
            "executor_metrics is off: memory grows by lost executors and GC alone, and all other rules on "
            "memory and cores are silent",
        )
    if settings.executor_metrics_port == 0:
        return None, ("executor_metrics_port is not set, so executors cannot report what they use",)
    conf = dict(spark.sparkContext.getConf().getAll())
    host = conf.get("spark.metrics.conf.*.sink.statsd.host", "")
    if not host:
        return None, ("Spark's StatsD sink is not set up, so executors do not report what they use",)
    try:
        return listener_on(host, settings.executor_metrics_port).board, ()
    except PenstockError as error:
        return None, (str(error),)


def heeding(
    policy: Policy, journal: Journal, name: str, settings: Settings, restarts: RestartJudge
) -> Policy:
    """The policy, if it is one that sizes, with operators, others, the cluster and restarts to mind."""
    from penstock.decide.forecast import ForecastPolicy
    from penstock.decide.sage_overrides import together
    from penstock.decide.sage_policy import SagePolicy
    from penstock.journal.overrides import OperatorsWord

    sage = policy.inner if isinstance(policy, ForecastPolicy) else policy
    if isinstance(sage, SagePolicy):
        from_settings, word = sage.said, OperatorsWord(journal, name)
        sage.said = lambda: together(from_settings(), word())
        sage.others = lambda: _sizes_of_others(journal, name)
        sage.hosts = _hosts(settings) or sage.hosts
        sage.restarts = restarts
    return policy


def telling_need(policy: str) -> str:
    """The policy that tells a fleet what an application needs: its own, or the one that Sage's rules ask.

    The controller applies these rules itself; applied twice, they would shrink nothing for twice as long.
    """
    wrapped, sign, name = policy.rpartition(":")
    return f"{wrapped}{sign}{'ds2' if name == 'sage' else name}"


def reporting(
    policy: Policy, report_to: str, settings: Settings, journal: Journal, name: str, conf: Mapping[str, str]
) -> Policy:
    """The policy of an application that a fleet's controller steers; this one tells what it would need."""
    from penstock.decide.at_least import AtLeast
    from penstock.decide.makers import resizer_limits, service_lags
    from penstock.fleet.reporting import reporting_policy

    known, hosts = resizer_limits(settings), _hosts(settings)

    def limits(window: ApplicationWindow) -> Limits:
        return replace(known, hosts=hosts(window)) if hosts is not None else known

    lags = service_lags(settings)
    needs = AtLeast(policy, settings.min_executors)
    return reporting_policy(report_to, name, journal, needs, conf, lags, limits, settings.sage_up_window)


def _hosts(settings: Settings) -> Callable[[ApplicationWindow], tuple[Host, ...]] | None:
    """What is free on each host of the cluster now, where the settings say whom to ask."""
    if not settings.standalone_master:
        return None
    from penstock.standalone import StandaloneCluster

    (url,) = settings.standalone_master
    return StandaloneCluster(url, settings.service_scrape_timeout).hosts


def is_obeyed(journal: Journal, name: str, force: Mapping[str, Any] | None) -> bool:
    """Whether an application's policy, which remembers it, has decided by this force of an operator."""
    known = [journal.recall(name, kind).get("known", {}) for kind in _kinds_of_memory()]
    return force is not None and any(one.get("obeyed") == force["id"] for one in known)


def _sizes_of_others(journal: Journal, name: str) -> dict[str, Mapping[str, Any]]:
    """Application → the size that was right for it; none while the journal is away."""
    try:
        found = [journal.recall_all(kind) for kind in _kinds_of_memory()]
    except PenstockError:
        return {}
    sizes = {owner: known["size"] for one in found for owner, known in one.items() if "size" in known}
    return {owner: size for owner, size in sizes.items() if owner != name}


def _kinds_of_memory() -> tuple[str, str]:
    """What Sage's memories are kept as, with a forecast before it or without."""
    from penstock.decide.forecast import PREFIX
    from penstock.decide.sage_policy import SagePolicy

    return f"{PREFIX}{SagePolicy.memory_kind}", SagePolicy.memory_kind


def desk_of(spark: Any, settings: Settings, journal: Journal) -> RestartDesk | None:
    """What asks the supervisor of this process for restarts; None where nobody supervises it."""
    from penstock.supervise.channel import JOB_VARIABLE, own_channel

    channel = own_channel()
    if channel is None or settings.mode == "observe":
        return None
    from penstock.supervise.desk import RestartDesk
    from penstock.supervise.spark_driver import SparkDriver

    driver = SparkDriver(spark, settings.restart_stop_timeout)
    return RestartDesk(channel, journal, os.environ.get(JOB_VARIABLE, ""), restart_rules(settings), driver)


def restart_rules(settings: Settings) -> RestartRules:
    """How often and when restarts are allowed."""
    from penstock.decide.quiet_hours import parse_quiet_hours
    from penstock.decide.restarts import RestartRules

    return RestartRules(settings.restarts_per_day, parse_quiet_hours(settings.restart_quiet_hours))


def restart_under_way() -> frozenset[int]:
    """The restart by which this process was started, which its supervisor sees to the end."""
    from penstock.supervise.channel import ACTION_VARIABLE

    given = os.environ.get(ACTION_VARIABLE, "")
    return frozenset({int(given)}) if given.isdecimal() else frozenset()


def scraper_of(settings: Settings) -> Scraper:
    """What scrapes the remote services: twice an interval, so that each window has a reading."""
    from penstock.scraping import Scraper, scrapes_of

    scrapes = scrapes_of(settings.services, settings.service_metrics)
    return Scraper(scrapes, settings.policy_interval / 2, settings.service_scrape_timeout)


@contextmanager
def at_work(desk: RestartDesk | None, loop: Loop, name: str) -> Iterator[None]:
    """The desk reports while the autopilot runs."""
    if desk is None:
        yield
        return
    desk.start(loop.application, name, loop.resume)
    try:
        yield
    finally:
        desk.close()
