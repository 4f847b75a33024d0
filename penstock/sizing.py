"""What sizing memory and cores adds to an autopilot: windows that tell what executors use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.ports import Source
    from penstock.settings import Settings


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
        return None, ("executor_metrics is off: the rules on memory and CPU stay silent",)
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
